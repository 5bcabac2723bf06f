//! `release cosign`: one more signature under a document that somebody else signed.

use std::path::{Path, PathBuf};

use api::releases::{Root, sign};

use super::{
    ReleaseError,
    input::{read, read_keys},
    root::for_devices,
};
use crate::releases::folder::write_whole;

pub(super) fn cosign(keys: &[PathBuf], path: &Path) -> Result<String, ReleaseError> {
    let mut document = read(path)?;
    for key in read_keys(keys)? {
        document = sign::add_signature(&document, &key)?.into_bytes();
    }
    write_whole(path, &document)?;
    // A root that has become complete, or anything else.
    let complete = Root::pinned(&document).map_or_else(|_| String::new(), |root| for_devices(&root));
    Ok(format!("{}: signed\n{complete}", path.display()))
}
