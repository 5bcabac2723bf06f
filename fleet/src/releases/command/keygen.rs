//! `release keygen`: a private key, in a file that only its owner can read.

use std::{fs::OpenOptions, io::Write, os::unix::fs::OpenOptionsExt, path::Path};

use api::releases::sign::SigningKey;

use super::{ReleaseError, error::failed};

pub(super) fn keygen(path: &Path) -> Result<String, ReleaseError> {
    let failed = failed("make", path);
    let key = SigningKey::generate().map_err(|source| ReleaseError::Key { path: path.into(), source })?;
    // Never over an existing file: that key may be the only one that can sign the next root.
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).map_err(&failed)?;
    file.write_all(key.to_text().expose().as_bytes()).and_then(|()| file.sync_all()).map_err(failed)?;
    Ok(format!("{}: private key, keep it off the server\npublic key {}\n", path.display(), key.public()))
}
