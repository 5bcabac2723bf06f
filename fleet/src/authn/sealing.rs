//! Secrets that owners may read again (of parts and locations), unreadable to whoever has only the database.
//!
//! The server's key lies in a file of its own beside the databases, mode 0600, and belongs into a different backup.
//! A sealed secret is bound to its id: copied to another row it does not open.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write},
    os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
};

use ring::{
    aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey},
    hmac,
};

use crate::{hex, ids};

/// Tries to find a name that nobody cleans away at this very moment.
const NAMES_MAX: usize = 10;

/// Why the server's key cannot be used. For the person who started the server.
#[derive(Debug, thiserror::Error)]
pub enum KeyFileError {
    /// Not there and not to be made, or not to be read.
    #[error("cannot read or create the server's key {path}")]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// Others may read it.
    #[error("the server's key {path} can be read by others: chmod 600 {path}")]
    Open {
        /// The file.
        path: PathBuf,
    },
    /// It is something else.
    #[error("{path} is not a server key (32 bytes): restore it from its backup; without it stored secrets are lost")]
    Damaged {
        /// The file.
        path: PathBuf,
    },
}

/// The key that everything else is derived from.
pub(super) fn master_key(path: &Path) -> Result<[u8; 32], KeyFileError> {
    let file = |source| KeyFileError::File { path: path.into(), source };
    let bytes = match fs::read(path) {
        Err(missing) if missing.kind() == io::ErrorKind::NotFound => make(path).and_then(|()| fs::read(path)),
        read => read,
    };
    let bytes = bytes.map_err(file)?;
    if fs::metadata(path).map_err(file)?.permissions().mode() & 0o077 != 0 {
        return Err(KeyFileError::Open { path: path.into() });
    }
    let key = key_of(bytes, path)?;
    // Not while the key itself is not good: what was left may be the only copy.
    if let Err(cause) = remove_what_was_left(path) {
        tracing::warn!(%cause, path = %path.display(), "what a killed start left beside the server's key cannot be removed");
    }
    Ok(key)
}

fn key_of(bytes: Vec<u8>, path: &Path) -> Result<[u8; 32], KeyFileError> {
    bytes.try_into().map_err(|_| KeyFileError::Damaged { path: path.into() })
}

/// Tells the key in this file from others, as [`Sealer::digest`] does. None is made.
pub fn digest_of_key(path: &Path) -> Result<String, KeyFileError> {
    let bytes = fs::read(path).map_err(|source| KeyFileError::File { path: path.into(), source })?;
    Ok(Sealer::new(&key_of(bytes, path)?).digest)
}

/// A new key, unless another process that starts at this moment gives one its name first: that one counts.
fn make(path: &Path) -> io::Result<()> {
    // Under another name first: a key cut in half by a full disk must not look like the key.
    let (mut out, new) = other_name(path)?;
    let key: [u8; 32] = ids::random();
    let written = out.write_all(&key).and_then(|()| out.sync_all());
    let named = match written.and_then(|()| fs::hard_link(&new, path)) {
        Err(there) if there.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        named => named,
    };
    // Nothing is sealed by a key whose name a loss of power could take back.
    let kept = named.and_then(|()| sync_folder(path));
    let _ = fs::remove_file(&new);
    kept
}

/// A file of this process beside the key. Its lock tells others that somebody holds it, and ends with the process.
fn other_name(path: &Path) -> io::Result<(File, PathBuf)> {
    for _ in 0..NAMES_MAX {
        let new = path.with_file_name(format!("{}{}", left_prefix(path), ids::new_id()));
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
        // Between these two lines another process that starts may have taken it for left behind.
        if file.try_lock().is_ok() && file.metadata()?.nlink() > 0 {
            return Ok((file, new));
        }
        let _ = fs::remove_file(&new);
    }
    Err(io::Error::other("no name for a new key could be had"))
}

/// A start that was killed may leave a second copy of the key.
fn remove_what_was_left(path: &Path) -> io::Result<()> {
    let (prefix, mut removed) = (left_prefix(path), false);
    for entry in fs::read_dir(folder_of(path))? {
        let entry = entry?;
        if !entry.file_name().to_string_lossy().starts_with(&prefix) {
            continue;
        }
        // One that has gone meanwhile was removed by its owner.
        let Ok(file) = OpenOptions::new().write(true).open(entry.path()) else { continue };
        if file.try_lock().is_ok() {
            match fs::remove_file(entry.path()) {
                Err(gone) if gone.kind() == io::ErrorKind::NotFound => {}
                done => done?,
            }
            removed = true;
        }
    }
    // Its start may not have come to this.
    if removed { sync_folder(path) } else { Ok(()) }
}

fn left_prefix(path: &Path) -> String {
    format!("{}.new.", path.file_name().unwrap_or_default().to_string_lossy())
}

fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

fn sync_folder(path: &Path) -> io::Result<()> {
    File::open(folder_of(path))?.sync_all()
}

/// Seals and opens.
pub struct Sealer {
    key: LessSafeKey,
    digest: String,
}

impl Sealer {
    pub(super) fn new(master: &[u8; 32]) -> Self {
        let derived = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, master), b"sealed secrets");
        let key =
            UnboundKey::new(&AES_256_GCM, derived.as_ref()).expect("HMAC-SHA256 gives the 32 bytes AES-256 needs");
        let digest = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, master), b"which key this is");
        Self { key: LessSafeKey::new(key), digest: hex::encode(&digest.as_ref()[..16]) }
    }

    /// Tells this key from others, and nothing else of it.
    pub fn digest(&self) -> &str {
        &self.digest
    }

    /// The text to store: nonce and ciphertext.
    pub fn seal(&self, id: &str, secret: &str) -> String {
        let nonce: [u8; NONCE_LEN] = ids::random();
        let mut text = secret.as_bytes().to_vec();
        self.key
            .seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), Aad::from(id.as_bytes()), &mut text)
            .expect("a secret is far below the cipher's limit of 64 GiB");
        hex::encode(&[&nonce[..], &text].concat())
    }

    /// The secret again; `None` if it was sealed by another key, for another id, or damaged.
    pub fn open(&self, id: &str, sealed: &str) -> Option<String> {
        let mut bytes = hex::decode(sealed)?;
        let (nonce, text) = bytes.split_at_mut_checked(NONCE_LEN)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
        let opened = self.key.open_in_place(nonce, Aad::from(id.as_bytes()), text).ok()?;
        String::from_utf8(opened.to_vec()).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn opens_only_for_the_same_id_and_key() {
        let sealer = Sealer::new(&[1; 32]);
        let sealed = sealer.seal("id", "correct horse");
        assert_eq!(sealer.open("id", &sealed).as_deref(), Some("correct horse"));
        assert_eq!(sealer.open("other", &sealed), None);
        assert_eq!(Sealer::new(&[2; 32]).open("id", &sealed), None);
        assert_eq!(sealer.open("id", &sealed[2..]), None);
        assert_eq!(sealer.open("id", "zz"), None);
        assert!(!sealed.contains(&hex::encode(b"correct")));
    }

    #[test]
    fn the_key_is_made_once_kept_private_and_its_damage_is_said() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("server.key");
        let key = master_key(&path).unwrap();
        assert_eq!(master_key(&path).unwrap(), key);
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        assert!(matches!(master_key(&path), Err(KeyFileError::Open { .. })));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        fs::write(&path, b"short").unwrap();
        assert!(matches!(master_key(&path), Err(KeyFileError::Damaged { .. })));
    }

    /// What lies beside the key.
    fn beside(path: &Path) -> Vec<PathBuf> {
        let entries = fs::read_dir(path.parent().unwrap()).unwrap().map(|entry| entry.unwrap().path());
        entries.filter(|entry| entry != path).collect()
    }

    #[test]
    fn what_a_killed_start_left_beside_the_key_is_removed_unless_somebody_holds_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("server.key");
        let key = master_key(&path).unwrap();
        assert!(beside(&path).is_empty());
        // Killed after it gave the key its name.
        fs::hard_link(&path, folder.path().join("server.key.new.killed")).unwrap();
        let (held, name) = other_name(&path).unwrap();
        let other = folder.path().join("server.key.old");
        fs::write(&other, "an owner's own").unwrap();
        assert_eq!(master_key(&path).unwrap(), key);
        let mut left = beside(&path);
        left.sort();
        assert_eq!(left, [name.clone(), other.clone()]);
        drop(held);
        // The only copy, perhaps.
        fs::write(&path, b"short").unwrap();
        assert!(master_key(&path).is_err());
        assert!(name.exists());
        fs::write(&path, key).unwrap();
        assert_eq!(master_key(&path).unwrap(), key);
        assert_eq!(beside(&path), [other]);
    }

    #[test]
    fn of_many_that_start_at_once_one_makes_the_key_and_nothing_else_is_left() {
        for _ in 0..20 {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("server.key");
            let starting = std::sync::Barrier::new(8);
            let keys: Vec<[u8; 32]> = std::thread::scope(|scope| {
                let start = || {
                    starting.wait();
                    master_key(&path).unwrap()
                };
                let starts: Vec<_> = (0..8).map(|_| scope.spawn(start)).collect();
                starts.into_iter().map(|one| one.join().unwrap()).collect()
            });
            assert!(keys.iter().all(|key| *key == keys[0]));
            // Of a name that another one wanted to look at, a look later at the latest.
            assert_eq!(master_key(&path).unwrap(), keys[0]);
            assert!(beside(&path).is_empty());
        }
    }
}
