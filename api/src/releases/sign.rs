//! The signing side: for the machine that holds private keys, never for a device.
//!
//! Writes the canonical bytes and signatures over them. Refuses to sign what the reading side would refuse, so that a
//! mistake is seen where it can be corrected.

use ring::{
    rand::{SecureRandom as _, SystemRandom},
    signature::{Ed25519KeyPair, KeyPair as _},
};

use super::{
    ARTIFACTS_MAX, Artifact, Channel, DocumentError, PRODUCTS_MAX, PublicKey, Release, Root, VERSION_BYTES_MAX,
    canonical, canonical::Object, envelope, hex, is_name, is_platform, release::is_path,
};
use crate::{
    Secret,
    json::{self, Limits},
};

/// A private key.
pub struct SigningKey {
    seed: Secret,
    pair: Ed25519KeyPair,
}

/// Why a key file is none.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyFileError {
    /// Not what [`SigningKey::to_text`] writes.
    #[error("not a key file: it must hold {{\"keytype\": \"ed25519\", \"private\": 64 hexadecimal digits}}")]
    Malformed,
    /// The system's source of random numbers failed.
    #[error("the system gave no random numbers for a new key")]
    NoRandomNumbers,
}

/// Why something was not signed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SignError {
    /// A device would refuse it.
    #[error("devices would refuse this document: {0}")]
    WouldBeRefused(&'static str),
    /// A document that is there cannot be read.
    #[error(transparent)]
    Document(#[from] DocumentError),
}

impl SigningKey {
    /// A new key.
    pub fn generate() -> Result<Self, KeyFileError> {
        let mut seed = [0; 32];
        SystemRandom::new().fill(&mut seed).map_err(|_| KeyFileError::NoRandomNumbers)?;
        Self::from_seed(&seed)
    }

    /// The key whose ed25519 seed this is; the same every time.
    pub fn from_seed(seed: &[u8; 32]) -> Result<Self, KeyFileError> {
        let pair = Ed25519KeyPair::from_seed_unchecked(seed).map_err(|_| KeyFileError::Malformed)?;
        Ok(SigningKey { seed: hex::encode(seed).into(), pair })
    }

    /// Reads a key file.
    pub fn from_text(text: &[u8]) -> Result<Self, KeyFileError> {
        let file = json::parse(text, Limits::SMALL).map_err(|_| KeyFileError::Malformed)?;
        let entry = |key| file.get(key).and_then(json::Value::as_text);
        let seed = entry("private").as_deref().and_then(hex::decode).ok_or(KeyFileError::Malformed)?;
        match entry("keytype").as_deref() {
            Some("ed25519") => Self::from_seed(&seed),
            _ => Err(KeyFileError::Malformed),
        }
    }

    /// The key file: for a file that only its owner can read.
    #[must_use]
    pub fn to_text(&self) -> Secret {
        let text = Object::new()
            .text("keyid", &self.public().id().to_string())
            .text("keytype", "ed25519")
            .text("private", self.seed.expose())
            .text("public", &self.public().to_string());
        Secret::new(text.end() + "\n")
    }

    /// What others know it by.
    #[must_use]
    pub fn public(&self) -> PublicKey {
        let mut public = [0; 32];
        public.iter_mut().zip(self.pair.public_key().as_ref()).for_each(|(byte, key)| *byte = *key);
        PublicKey::from_bytes(public)
    }

    fn signature(&self, signed: &str) -> String {
        Object::new()
            .text("keyid", &self.public().id().to_string())
            .text("sig", &hex::encode(self.pair.sign(signed.as_bytes()).as_ref()))
            .end()
    }
}

/// A signed root. For a successor the keys of old and new root both have to be given (or added later).
pub fn root(root: &Root, keys: &[&SigningKey]) -> Result<String, SignError> {
    let roles = [&root.root, &root.release, &root.channel];
    if !roles.iter().all(|role| role.is_possible()) {
        return Err(SignError::WouldBeRefused("each role needs a threshold of 1 up to the number of its keys"));
    }
    if root.version == 0 {
        return Err(SignError::WouldBeRefused("root numbers start at 1"));
    }
    Ok(document(&root.canonical(), keys))
}

/// A signed release.
pub fn release(release: &Release, keys: &[&SigningKey]) -> Result<String, SignError> {
    let refused = if !is_name(&release.product) {
        "the product's name may have lowercase letters, digits, '-', '.' and '_'"
    } else if release.number == 0 {
        "release numbers start at 1"
    } else if release.version.to_string().len() > VERSION_BYTES_MAX {
        "the version is too long"
    } else if release.artifacts.is_empty() || release.artifacts.len() > ARTIFACTS_MAX {
        "a release has 1 to 32 artifacts"
    } else if !release.artifacts.iter().all(|a| is_platform(&a.platform) && is_path(&a.path) && a.length > 0) {
        "each artifact needs a platform such as linux/amd64, a length, and a path of plain names that begins with a slash"
    } else if !release.artifacts.iter().all(Artifact::is_complete) {
        "what is packed needs digest and length of the executable inside"
    } else if has_twice(release.artifacts.iter().map(|artifact| &artifact.platform)) {
        "a platform is named twice"
    } else {
        return Ok(document(&release.canonical(), keys));
    };
    Err(SignError::WouldBeRefused(refused))
}

/// A signed channel.
pub fn channel(channel: &Channel, keys: &[&SigningKey]) -> Result<String, SignError> {
    let refused = if !is_name(&channel.name) || !channel.products.iter().all(|entry| is_name(&entry.product)) {
        "names of channels and products may have lowercase letters, digits, '-', '.' and '_'"
    } else if channel.version == 0 || channel.products.iter().any(|entry| entry.number == 0) {
        "document and release numbers start at 1"
    } else if channel.products.len() > PRODUCTS_MAX || has_twice(channel.products.iter().map(|entry| &entry.product)) {
        "a channel has up to 16 different products"
    } else {
        return Ok(document(&channel.canonical(), keys));
    };
    Err(SignError::WouldBeRefused(refused))
}

/// Adds a signature to a document, for keys that lie with different people. A second one by the same key replaces the
/// first.
pub fn add_signature(document: &[u8], key: &SigningKey) -> Result<String, SignError> {
    let (signed, present) = envelope::take_apart(document)?;
    let others = present.iter().filter(|(id, _)| *id != key.public().id());
    let others =
        others.map(|(id, sig)| Object::new().text("keyid", &id.to_string()).text("sig", &hex::encode(sig)).end());
    let mine = std::iter::once(key.signature(signed.raw()));
    Ok(wrap(signed.raw(), others.chain(mine)))
}

fn document(signed: &str, keys: &[&SigningKey]) -> String {
    wrap(signed, keys.iter().map(|key| key.signature(signed)))
}

fn wrap(signed: &str, signatures: impl Iterator<Item = String>) -> String {
    Object::new().raw("signatures", &canonical::list(signatures)).raw("signed", signed).end() + "\n"
}

fn has_twice<'a>(names: impl Iterator<Item = &'a String>) -> bool {
    let mut names: Vec<_> = names.collect();
    let all = names.len();
    names.sort();
    names.dedup();
    names.len() != all
}
