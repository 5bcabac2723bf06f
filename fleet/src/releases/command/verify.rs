//! `release verify`: whether documents, and the files they describe, are genuine.

use std::{collections::BTreeMap, path::PathBuf};

use api::releases::Root;

use super::{
    ReleaseError,
    error::{failed, option},
    input::{Subject, at, measured, read, subject},
};
use crate::{hex, releases::pack};

pub(super) fn verify(roots: &[PathBuf], artifacts: &[PathBuf], documents: &[PathBuf]) -> Result<String, ReleaseError> {
    let mut said = String::new();
    let mut trusted: Option<Root> = None;
    for path in roots {
        let document = read(path)?;
        let next = match &trusted {
            None => Root::pinned(&document),
            Some(root) => root.successor(&document),
        };
        let root = next.map_err(|source| at(path, source))?;
        said += &format!("{}: root number {}, until {}\n", path.display(), root.version, root.expires);
        trusted = Some(root);
    }
    let root = trusted.ok_or_else(|| option("--root", "at least one is needed"))?;
    let mut have = BTreeMap::new();
    for path in artifacts {
        have.insert(measured(path)?, path);
    }
    for path in documents {
        let document = read(path)?;
        match subject(path, &document)? {
            Subject::Root => {
                return Err(option("DOCUMENT", "roots are named with --root, in the order of their numbers"));
            }
            Subject::Channel(name) => {
                let channel = root.channel(&document, &name).map_err(|source| at(path, source))?;
                said += &format!(
                    "{}: channel {name}, number {}, until {}\n",
                    path.display(),
                    channel.version,
                    channel.expires
                );
            }
            Subject::Release(product, version) => {
                let release = root.release(&document, &product, &version).map_err(|source| at(path, source))?;
                let lacking = release.artifacts.iter().find(|one| !have.contains_key(&(one.sha256, one.length)));
                if let (Some(lacking), false) = (lacking, artifacts.is_empty()) {
                    let (platform, sha256) = (lacking.platform.clone(), hex::encode(&lacking.sha256));
                    return Err(ReleaseError::NotVerified { path: path.clone(), platform, sha256 });
                }
                for one in &release.artifacts {
                    let (Some(promised), Some(file)) = (one.unpacked, have.get(&(one.sha256, one.length))) else {
                        continue;
                    };
                    if pack::look_inside(file).map_err(failed("unpack", file))? != (promised.sha256, promised.length) {
                        return Err(ReleaseError::OtherInside { path: path.clone(), file: (*file).clone() });
                    }
                }
                said += &format!(
                    "{}: {product} {version}, number {}, until {}\n",
                    path.display(),
                    release.number,
                    release.expires
                );
            }
        }
    }
    Ok(said)
}
