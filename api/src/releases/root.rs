//! Whose signatures count, and how that changes.

use std::fmt;

use super::{
    Channel, DocumentError, DocumentType, Expires, KEYS_MAX, PublicKey, Release, SPEC_VERSION, canonical,
    canonical::Object,
    envelope::{Entries as _, Envelope},
};
use crate::json::Value;

/// What keys are used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Signs roots.
    Root,
    /// Signs releases.
    Release,
    /// Signs channels.
    Channel,
}

/// TUF wants every root to name it. Its work, to show that a snapshot is of today, is done by the channel's own short
/// life, so it has the channel's keys and signs nothing.
const UNUSED_ROLE: &str = "timestamp";

impl Role {
    /// TUF's name for it, which is the one in the document.
    const fn name(self) -> &'static str {
        match self {
            Role::Root => "root",
            Role::Release => "targets",
            Role::Channel => "snapshot",
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Role::Root => "root",
            Role::Release => "release",
            Role::Channel => "channel",
        })
    }
}

/// The keys of a role, and how many of them must sign.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RoleKeys {
    /// Different keys.
    pub keys: Vec<PublicKey>,
    /// At least one, at most as many as there are keys.
    pub threshold: usize,
}

/// Whose signatures count. One that came from [`Root::anchored`], [`Root::pinned`] or [`Root::successor`] is genuine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Root {
    /// Its number: rises by one with each successor.
    pub version: u64,
    /// When it stops counting.
    pub expires: Expires,
    /// Who signs roots.
    pub root: RoleKeys,
    /// Who signs releases.
    pub release: RoleKeys,
    /// Who signs channels.
    pub channel: RoleKeys,
}

impl Root {
    /// The first root of a device that was given keys in the factory: signed by enough of its own root keys, and by
    /// enough of those that were given. How many are enough is never the document's own word: one stolen key could sign
    /// a root that says "one".
    pub fn anchored(document: &[u8], given: &RoleKeys) -> Result<Root, DocumentError> {
        let (root, envelope) = Self::self_signed(document)?;
        let (valid, needed) = (envelope.tally(&given.keys).valid, given.threshold);
        match given.is_possible() && valid >= needed {
            true => Ok(root),
            false => Err(DocumentError::NotAnchored { valid, needed, given: given.keys.len() }),
        }
    }

    /// The first root of a device that was given nothing: believed because of whom it came from, or read back from where
    /// a genuine one was stored.
    pub fn pinned(document: &[u8]) -> Result<Root, DocumentError> {
        Ok(Self::self_signed(document)?.0)
    }

    /// The root after this one: signed by enough keys of this one and of its own, with the next number.
    pub fn successor(&self, document: &[u8]) -> Result<Root, DocumentError> {
        let (next, envelope) = Self::self_signed(document)?;
        envelope.check(Role::Root, &self.root)?;
        let needed = self.version.saturating_add(1);
        match next.version == needed {
            true => Ok(next),
            false => Err(DocumentError::RootOutOfOrder { needed, found: next.version }),
        }
    }

    /// What a channel means, if the document is genuine and about that channel.
    pub fn channel(&self, document: &[u8], name: &str) -> Result<Channel, DocumentError> {
        let envelope = Envelope::open(document, DocumentType::Channel)?;
        envelope.check(Role::Channel, &self.channel)?;
        let channel = Channel::read(envelope.signed)?;
        match channel.name == name {
            true => Ok(channel),
            false => Err(DocumentError::WrongSubject { expected: name.to_owned(), found: channel.name }),
        }
    }

    /// A release, if the document is genuine and about that version of that product.
    pub fn release(&self, document: &[u8], product: &str, version: &semver::Version) -> Result<Release, DocumentError> {
        let envelope = Envelope::open(document, DocumentType::Release)?;
        envelope.check(Role::Release, &self.release)?;
        let release = Release::read(envelope.signed)?;
        match release.product == product && release.version == *version {
            true => Ok(release),
            false => Err(DocumentError::WrongSubject {
                expected: format!("{product} {version}"),
                found: format!("{} {}", release.product, release.version),
            }),
        }
    }

    fn self_signed(document: &[u8]) -> Result<(Root, Envelope<'_>), DocumentError> {
        let envelope = Envelope::open(document, DocumentType::Root)?;
        let root = Self::read(envelope.signed)?;
        envelope.check(Role::Root, &root.root)?;
        Ok((root, envelope))
    }

    fn read(signed: Value<'_>) -> Result<Root, DocumentError> {
        let expected = "key ids, each with the ed25519 key it is the digest of";
        let malformed = DocumentError::Malformed { entry: "keys", expected };
        let mut keys = Vec::new();
        for (id, key) in signed.entry("keys", expected)?.entries() {
            // Other kinds of keys may come one day; they cannot count here.
            if key.text("scheme", "a signature scheme")? != "ed25519" {
                continue;
            }
            let key: PublicKey =
                key.entry("keyval", "an object")?.text("public", expected)?.parse().map_err(|_| malformed.clone())?;
            if key.id().to_string() != id || keys.len() == KEYS_MAX {
                return Err(malformed);
            }
            keys.push(key);
        }
        let roles = signed.entry("roles", "an object")?;
        Ok(Root {
            version: signed.count("version")?,
            expires: signed.expires()?,
            root: RoleKeys::read(roles, Role::Root, &keys)?,
            release: RoleKeys::read(roles, Role::Release, &keys)?,
            channel: RoleKeys::read(roles, Role::Channel, &keys)?,
        })
    }

    /// What is to be signed.
    pub(super) fn canonical(&self) -> String {
        let mut keys: Vec<_> =
            [&self.root, &self.release, &self.channel].iter().flat_map(|role| role.keys.iter().copied()).collect();
        keys.sort_by_key(|key| key.id().to_string());
        keys.dedup();
        let keys = keys.iter().fold(Object::new(), |keys, key| keys.raw(&key.id().to_string(), &key.object()));
        let roles = Object::new()
            .raw(Role::Root.name(), &self.root.canonical())
            .raw(Role::Channel.name(), &self.channel.canonical())
            .raw(Role::Release.name(), &self.release.canonical())
            .raw(UNUSED_ROLE, &self.channel.canonical());
        Object::new()
            .text("_type", DocumentType::Root.name())
            .raw("consistent_snapshot", "false")
            .text("expires", &self.expires.to_string())
            .raw("keys", &keys.end())
            .raw("roles", &roles.end())
            .text("spec_version", SPEC_VERSION)
            .number("version", self.version)
            .end()
    }
}

impl RoleKeys {
    /// `threshold` of these keys.
    #[must_use]
    pub fn new(threshold: usize, keys: impl IntoIterator<Item = PublicKey>) -> Self {
        let mut keys: Vec<_> = keys.into_iter().collect();
        keys.sort();
        keys.dedup();
        RoleKeys { keys, threshold }
    }

    /// Keys without a word about how many must sign: more than half of them, so that one that is lost or stolen
    /// neither locks out nor lets in.
    #[must_use]
    pub fn most_of(keys: impl IntoIterator<Item = PublicKey>) -> Self {
        let keys = Self::new(1, keys);
        RoleKeys { threshold: keys.keys.len() / 2 + 1, ..keys }
    }

    /// Whether it can ever be fulfilled, and never by nobody.
    #[must_use]
    pub fn is_possible(&self) -> bool {
        (1..=self.keys.len()).contains(&self.threshold) && self.keys.len() <= KEYS_MAX
    }

    fn read(roles: Value<'_>, role: Role, known: &[PublicKey]) -> Result<RoleKeys, DocumentError> {
        let expected = "a threshold and the ids of at least as many different keys of this document";
        let malformed = DocumentError::Malformed { entry: role.name(), expected };
        let object = roles.entry(role.name(), expected)?;
        let ids: Vec<_> = object.entry("keyids", expected)?.items().filter_map(Value::as_text).collect();
        let keys = known.iter().copied().filter(|key| ids.contains(&key.id().to_string().into()));
        let threshold = usize::try_from(object.count("threshold")?).map_err(|_| malformed.clone())?;
        Some(RoleKeys::new(threshold, keys)).filter(RoleKeys::is_possible).ok_or(malformed)
    }

    fn canonical(&self) -> String {
        let mut ids: Vec<_> = self.keys.iter().map(|key| key.id().to_string()).collect();
        ids.sort();
        let ids = canonical::list(ids.iter().map(|id| canonical::text(id)));
        Object::new().raw("keyids", &ids).number("threshold", self.threshold as u64).end()
    }
}
