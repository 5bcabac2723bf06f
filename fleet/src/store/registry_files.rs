//! Versions of registry items, and the file of each version for each platform.

use super::{Arg, DbError, Row, Tx, artifacts, audit, registry};
use crate::{
    authz::{Granted, RegistryItem, right},
    clock::Millis,
    refusal::Refusal,
};

/// One file.
#[derive(Debug, Clone)]
pub struct File {
    /// Its item's own id.
    pub item: String,
    /// A semantic version.
    pub version: String,
    /// "linux/arm64", "any".
    pub platform: String,
    /// What else a machine must have, separated by line breaks.
    pub platform_tags: String,
    /// SHA-256 in lowercase digits: its name in the artifact store.
    pub digest: String,
    /// How long it is.
    pub bytes: i64,
    /// When it came.
    pub uploaded_at: Millis,
}

/// One version.
#[derive(Debug, Clone)]
pub struct Version {
    /// A semantic version.
    pub version: String,
    /// What the item said when the first file came; see [`registry::Stored::details`].
    pub details: Vec<u8>,
    /// When that was.
    pub created_at: Millis,
}

macro_rules! select {
    ($rest:literal) => {
        concat!(
            "SELECT f.item_id, f.version, f.platform, f.platform_tags, f.digest, f.bytes, f.uploaded_at
             FROM registry_files f ",
            $rest
        )
    };
}

fn file(row: &Row<'_>) -> Result<File, DbError> {
    Ok(File {
        item: row.text(0)?,
        version: row.text(1)?,
        platform: row.text(2)?,
        platform_tags: row.text(3)?,
        digest: row.text(4)?,
        bytes: row.int(5)?,
        uploaded_at: row.int(6)?,
    })
}

/// Of one item.
pub fn of_item(tx: &Tx<'_>, item: &str) -> Result<Vec<File>, DbError> {
    tx.all(select!("WHERE f.item_id = $1 ORDER BY f.version, f.platform"), &[item.into()], file)
}

/// One file.
pub fn get(tx: &Tx<'_>, item: &str, version: &str, platform: &str) -> Result<Option<File>, DbError> {
    let sql = select!("WHERE f.item_id = $1 AND f.version = $2 AND f.platform = $3");
    tx.first(sql, &[item.into(), version.into(), platform.into()], file)
}

/// Of one item.
pub fn versions(tx: &Tx<'_>, item: &str) -> Result<Vec<Version>, DbError> {
    let sql = "SELECT version, details, created_at FROM registry_versions WHERE item_id = $1 ORDER BY version";
    tx.all(sql, &[item.into()], |row| {
        Ok(Version { version: row.text(0)?, details: row.blob(1)?.to_vec(), created_at: row.int(2)? })
    })
}

/// Adds a file whose bytes lie in the artifact store. The same bytes again are no change; other bytes are refused,
/// because machines may have the first ones. False: there was nothing to add.
pub fn add(
    tx: &Tx<'_>,
    granted: &Granted<RegistryItem, right::WritePrivateRegistryItem>,
    new: &File,
    now: Millis,
) -> Result<bool, Refusal> {
    let item = registry::get(tx, granted.id())?.ok_or_else(|| Refusal::not_found("registry item", ""))?;
    registry::may_touch(granted, &item)?;
    match get(tx, &item.id, &new.version, &new.platform)? {
        Some(here) if here.digest == new.digest => return Ok(false),
        Some(_) => {
            return Err(Refusal::exists(format!(
                "version {} for {} was published with other contents, and what was published does not change: \
                 upload under a new version",
                new.version, new.platform
            )));
        }
        None => {}
    }
    if !artifacts::stays(tx, &new.digest)? {
        return Err(Refusal::again("the same bytes were just being removed: upload once more"));
    }
    let sql = "INSERT INTO registry_versions (item_id, version, details, created_at) VALUES ($1, $2, $3, $4)
               ON CONFLICT (item_id, version) DO NOTHING";
    tx.run(sql, &[(&*item.id).into(), (&*new.version).into(), Arg::Blob(&item.details), now.into()])?;
    let sql = "INSERT INTO registry_files (item_id, version, platform, platform_tags, digest, bytes, uploaded_at)
               VALUES ($1, $2, $3, $4, $5, $6, $7)";
    let args = [
        (&*item.id).into(),
        (&*new.version).into(),
        (&*new.platform).into(),
        (&*new.platform_tags).into(),
        (&*new.digest).into(),
        new.bytes.into(),
        now.into(),
    ];
    tx.run(sql, &args)?;
    let detail =
        format!("{:?} {} {}, {} bytes, sha256 {}", item.name, new.version, new.platform, new.bytes, new.digest);
    audit::record(tx, granted, now, "UploadModuleFile", &detail)?;
    Ok(true)
}

/// The item is about to go: what only it refers to may leave the artifact store at once.
pub(super) fn let_go(tx: &Tx<'_>, item: &str) -> Result<(), DbError> {
    of_item(tx, item)?.iter().try_for_each(|file| artifacts::withdraw(tx, &file.digest))
}
