//! Public keys and their names.

use std::{fmt, str::FromStr};

use ring::signature;

use super::{canonical::Object, hex};
use crate::digest::sha256;

/// An ed25519 public key.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PublicKey([u8; 32]);

/// Names a key: the SHA-256 of its canonical key object.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyId([u8; 32]);

/// A text that is no public key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a release key is 64 hexadecimal digits, the ed25519 public key")]
pub struct NotAKey;

impl PublicKey {
    /// From its 32 bytes.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        PublicKey(bytes)
    }

    /// Its name. Made from the key alone: one key cannot count twice under two names.
    #[must_use]
    pub fn id(&self) -> KeyId {
        KeyId(sha256(self.object().as_bytes()))
    }

    /// The key object of TUF, canonical.
    pub(super) fn object(&self) -> String {
        let value = Object::new().text("public", &self.to_string()).end();
        Object::new().text("keytype", "ed25519").raw("keyval", &value).text("scheme", "ed25519").end()
    }

    pub(super) fn has_signed(&self, message: &[u8], signature: &[u8]) -> bool {
        signature::UnparsedPublicKey::new(&signature::ED25519, self.0).verify(message, signature).is_ok()
    }
}

impl FromStr for PublicKey {
    type Err = NotAKey;

    fn from_str(text: &str) -> Result<Self, NotAKey> {
        hex::decode(text).map(PublicKey).ok_or(NotAKey)
    }
}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(&self.0))
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl FromStr for KeyId {
    type Err = NotAKey;

    fn from_str(text: &str) -> Result<Self, NotAKey> {
        hex::decode(text).map(KeyId).ok_or(NotAKey)
    }
}

impl fmt::Display for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(&self.0))
    }
}

impl fmt::Debug for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}
