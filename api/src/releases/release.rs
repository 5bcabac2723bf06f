//! What the bytes of one version of a product are.
//!
//! On the wire a `targets` document of TUF: one target for each platform, the release's number as its version, and what
//! TUF has no word for (product, its version, format, path, what is inside) beside it and under `custom`.

use semver::Version;

use super::{
    ARTIFACTS_MAX, DocumentError, DocumentType, Expires, SPEC_VERSION, artifact_path, canonical::Object,
    channel::version, envelope::Entries as _, hex, is_name, is_platform,
};
use crate::json::Value;

/// One version of a product, for every platform it is made for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Release {
    /// "platform-server"
    pub product: String,
    /// Its version.
    pub version: Version,
    /// Rises with each release of the product, whatever the versions are.
    pub number: u64,
    /// When it may no longer be installed.
    pub expires: Expires,
    /// One entry for each platform, sorted by its name.
    pub artifacts: Vec<Artifact>,
}

/// The bytes for one platform.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Artifact {
    /// "linux/amd64"
    pub platform: String,
    /// Digest of the bytes as they are downloaded.
    pub sha256: [u8; 32],
    /// Their length.
    pub length: u64,
    /// How they are packed.
    pub format: Format,
    /// The executable inside, where the bytes are packed: without it nobody could bound what unpacking writes.
    pub unpacked: Option<Unpacked>,
    /// Where they are, below the address of the server (or mirror) that gave the document.
    pub path: String,
}

/// What unpacking must bring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unpacked {
    /// Digest of the executable.
    pub sha256: [u8; 32],
    /// Its length.
    pub length: u64,
}

/// How an executable is packed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Format {
    /// Not at all.
    Raw,
    /// One xz stream.
    Xz,
    /// In a way that this version does not know.
    Other(Box<str>),
}

impl Format {
    /// The word in the document.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Format::Raw => "raw",
            Format::Xz => "xz",
            Format::Other(name) => name,
        }
    }
}

impl Artifact {
    /// An executable as it is, at the usual place.
    #[must_use]
    pub fn raw(platform: &str, sha256: [u8; 32], length: u64) -> Self {
        let (format, path) = (Format::Raw, artifact_path(&sha256));
        Artifact { platform: platform.to_owned(), sha256, length, format, unpacked: None, path }
    }

    /// An executable in one xz stream, at the usual place: digest and length are those of the stream.
    #[must_use]
    pub fn xz(platform: &str, sha256: [u8; 32], length: u64, unpacked: Unpacked) -> Self {
        let raw = Self::raw(platform, sha256, length);
        Artifact { format: Format::Xz, unpacked: Some(unpacked), ..raw }
    }

    /// Whether what the format needs is there, and nothing else.
    pub(super) fn is_complete(&self) -> bool {
        match self.format {
            Format::Raw => self.unpacked.is_none(),
            Format::Xz => self.unpacked.is_some_and(|inside| inside.length > 0),
            Format::Other(_) => true,
        }
    }
}

impl Release {
    /// The bytes for a platform, if there are any.
    #[must_use]
    pub fn artifact(&self, platform: &str) -> Option<&Artifact> {
        self.artifacts.iter().find(|artifact| artifact.platform == platform)
    }

    pub(super) fn read(signed: Value<'_>) -> Result<Release, DocumentError> {
        let expected = "an object of platforms, each with its length, hashes and custom entries (format, path)";
        let malformed = DocumentError::Malformed { entry: "targets", expected };
        let mut artifacts: Vec<Artifact> = Vec::new();
        for (platform, target) in signed.entry("targets", expected)?.entries() {
            let twice = artifacts.iter().any(|known| known.platform == platform);
            if artifacts.len() == ARTIFACTS_MAX || twice || !is_platform(&platform) {
                return Err(malformed);
            }
            let custom = target.entry("custom", expected)?;
            let path = custom.text("path", "a path that begins with a slash")?;
            let format = match custom.text("format", "raw or xz")?.as_str() {
                "raw" => Format::Raw,
                "xz" => Format::Xz,
                other => Format::Other(other.chars().take(32).collect::<String>().into()),
            };
            let unpacked = custom.get_once("unpacked")?.map(|inside| {
                let length = inside.count("length")?;
                Ok::<_, DocumentError>(Unpacked { sha256: read_digest(inside)?, length })
            });
            let (sha256, length) = (read_digest(target)?, target.count("length")?);
            let artifact =
                Artifact { platform: platform.into(), sha256, length, format, unpacked: unpacked.transpose()?, path };
            if !is_path(&artifact.path) || !artifact.is_complete() {
                return Err(malformed);
            }
            artifacts.push(artifact);
        }
        let product = signed.text("product", "the name of a product")?;
        if !is_name(&product) {
            return Err(DocumentError::Malformed { entry: "product", expected: "the name of a product" });
        }
        Ok(Release {
            product,
            version: read_version(signed)?,
            number: signed.count("version")?,
            expires: signed.expires()?,
            artifacts,
        })
    }

    /// What is to be signed.
    pub(super) fn canonical(&self) -> String {
        let mut artifacts: Vec<_> = self.artifacts.iter().collect();
        artifacts.sort_by_key(|artifact| &artifact.platform);
        let targets = artifacts.iter().fold(Object::new(), |targets, artifact| {
            let custom = Object::new().text("format", artifact.format.name()).text("path", &artifact.path);
            let custom = match &artifact.unpacked {
                None => custom,
                Some(inside) => custom.raw("unpacked", &canonical_bytes(Object::new(), &inside.sha256, inside.length)),
            };
            let custom = Object::new().raw("custom", &custom.end());
            targets.raw(&artifact.platform, &canonical_bytes(custom, &artifact.sha256, artifact.length))
        });
        Object::new()
            .text("_type", DocumentType::Release.name())
            .text("expires", &self.expires.to_string())
            .text("product", &self.product)
            .text("product_version", &self.version.to_string())
            .text("spec_version", SPEC_VERSION)
            .raw("targets", &targets.end())
            .number("version", self.number)
            .end()
    }
}

/// Digest and length as TUF writes them.
fn canonical_bytes(before: Object, sha256: &[u8; 32], length: u64) -> String {
    let hashes = Object::new().text("sha256", &hex::encode(sha256)).end();
    before.raw("hashes", &hashes).number("length", length).end()
}

fn read_digest(object: Value<'_>) -> Result<[u8; 32], DocumentError> {
    let expected = "64 hexadecimal digits under sha256";
    let text = object.entry("hashes", expected)?.text("sha256", expected)?;
    hex::decode(&text).ok_or(DocumentError::Malformed { entry: "hashes", expected })
}

/// The version of the product, for people and settings.
fn read_version(object: Value<'_>) -> Result<Version, DocumentError> {
    let expected = "a version such as 1.2.3";
    let text = object.text("product_version", expected)?;
    version(&text).ok_or(DocumentError::Malformed { entry: "product_version", expected })
}

/// A path that cannot lead to another server or out of the mirror's folder: what stands before it is always the server's
/// own address. Nothing in it is escaped, so that it means the same to every server, proxy and file system.
pub(super) fn is_path(path: &str) -> bool {
    path.len() <= PATH_BYTES_MAX && path.strip_prefix('/').is_some_and(|path| path.split('/').all(is_step))
}

/// One name in a path.
fn is_step(step: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~' | b'+');
    !matches!(step, "" | "." | "..") && step.bytes().all(plain)
}

/// Length of a path: two names of files at their longest.
const PATH_BYTES_MAX: usize = 512;
