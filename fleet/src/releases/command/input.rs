//! What release commands read: documents, keys, artifacts, dates.

use std::{
    fs,
    path::{Path, PathBuf},
    time::{SystemTime, UNIX_EPOCH},
};

use api::releases::{DocumentError, DocumentType, Expires, PublicKey, sign::SigningKey};
use semver::Version;
use serde::Deserialize;

use super::{
    ReleaseError,
    error::{failed, option},
};
use crate::releases::folder::{Folder, measure};

/// What a document is about, by its own words; nothing of it is believed yet.
pub(super) enum Subject {
    Root,
    Release(String, Version),
    Channel(String),
}

impl Subject {
    pub(super) fn rank(&self) -> u8 {
        match self {
            Self::Root => 0,
            Self::Release(..) => 1,
            Self::Channel(_) => 2,
        }
    }
}

#[derive(Deserialize)]
struct Document {
    signed: Signed,
}

#[derive(Deserialize)]
struct Signed {
    #[serde(rename = "_type")]
    kind: String,
    name: Option<String>,
    product: Option<String>,
    product_version: Option<String>,
    version: Option<serde_json::Value>,
}

pub(super) fn subject(path: &Path, document: &[u8]) -> Result<Subject, ReleaseError> {
    let unknown = || option("DOCUMENT", format!("{} is no signed root, release or channel", path.display()));
    let Document { signed } = serde_json::from_slice(document).map_err(|_| unknown())?;
    let kind = [DocumentType::Root, DocumentType::Release, DocumentType::Channel]
        .into_iter()
        .find(|kind| kind.name() == signed.kind);
    match (kind, signed.name, signed.product, signed.product_version) {
        (Some(DocumentType::Root), ..) => Ok(Subject::Root),
        (Some(DocumentType::Channel), Some(name), ..) => Ok(Subject::Channel(name)),
        (Some(DocumentType::Release), _, Some(product), Some(version)) => {
            Ok(Subject::Release(product, Version::parse(&version).map_err(|_| unknown())?))
        }
        _ => Err(unknown()),
    }
}

pub(super) fn root_number(document: &[u8]) -> u64 {
    let signed = serde_json::from_slice::<Document>(document).ok();
    signed.and_then(|document| document.signed.version?.as_u64()).unwrap_or_default()
}

/// A server's data folder, or a folder of releases itself.
pub(super) fn folder_of(data: &Path) -> Folder {
    let is_releases = data.file_name().is_some_and(|name| name == "releases");
    Folder::of_data(data.parent().filter(|_| is_releases).unwrap_or(data))
}

pub(super) fn read(path: &Path) -> Result<Vec<u8>, ReleaseError> {
    fs::read(path).map_err(failed("read", path))
}

pub(super) fn read_keys(paths: &[PathBuf]) -> Result<Vec<SigningKey>, ReleaseError> {
    let key = |path: &PathBuf| {
        let text = read(path)?;
        SigningKey::from_text(&text).map_err(|source| ReleaseError::Key { path: path.clone(), source })
    };
    paths.iter().map(key).collect()
}

/// 64 hexadecimal digits, or the key file of which only the public part is taken.
pub(super) fn public_key(text: &str) -> Result<PublicKey, ReleaseError> {
    match text.parse() {
        Ok(key) => Ok(key),
        Err(_) => Ok(read_keys(&[text.into()])?
            .first()
            .map(SigningKey::public)
            .ok_or_else(|| option("--root-key", "a key file or 64 hexadecimal digits"))?),
    }
}

pub(super) fn measured(path: &Path) -> Result<([u8; 32], u64), ReleaseError> {
    let mut file = fs::File::open(path).map_err(failed("read", path))?;
    measure(&mut file, |_| Ok(())).map_err(failed("read", path))
}

/// `90d` from now, or a date (its last second), or the exact form of the documents.
pub(super) fn expires(text: &str) -> Result<Expires, ReleaseError> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let days = text.strip_suffix('d').and_then(|days| days.parse::<u32>().ok());
    let expires = match days {
        Some(days) => i64::try_from(now + u64::from(days) * 86_400).ok().map(Expires::from_unix_seconds),
        None => Expires::parse(text).or_else(|| Expires::parse(&format!("{text}T23:59:59Z"))),
    };
    // The documents' form has four digits for the year.
    expires
        .filter(|expires| Expires::parse(&expires.to_string()).is_some())
        .ok_or_else(|| option("--expires", "a number of days such as 90d, or a date such as 2030-01-31"))
}

pub(super) fn at(path: &Path, source: DocumentError) -> ReleaseError {
    ReleaseError::Document { path: path.into(), source }
}
