//! Secrets that owners may read again (of parts and locations), unreadable to whoever has only the database.
//!
//! The server's key lies in a file of its own beside the databases, mode 0600, and belongs into a different backup.
//! A sealed secret is bound to its id: copied to another row it does not open.

use std::{
    fs::{self, OpenOptions},
    io::{self, Write},
    os::unix::fs::{OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
};

use ring::{
    aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey},
    hmac,
};

use crate::{hex, ids};

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
    match fs::read(path) {
        Ok(bytes) => {
            if fs::metadata(path).map_err(file)?.permissions().mode() & 0o077 != 0 {
                return Err(KeyFileError::Open { path: path.into() });
            }
            bytes.try_into().map_err(|_| KeyFileError::Damaged { path: path.into() })
        }
        Err(missing) if missing.kind() == io::ErrorKind::NotFound => {
            let key: [u8; 32] = ids::random();
            // Under another name first: a key cut in half by a full disk must not look like the key. A name of this process:
            // a second one that starts at this moment would take the file away, or give its own bytes the key's name.
            let new = path.with_extension(format!("key.new.{}", ids::new_id()));
            let written = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new).and_then(|mut out| {
                out.write_all(&key)?;
                out.sync_all()
            });
            let named = written.and_then(|()| fs::hard_link(&new, path));
            let _ = fs::remove_file(&new);
            match named {
                Ok(()) => Ok(key),
                // That process' key counts.
                Err(there) if there.kind() == io::ErrorKind::AlreadyExists => master_key(path),
                Err(source) => Err(file(source)),
            }
        }
        Err(source) => Err(file(source)),
    }
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
}
