//! The outside of every document: what was signed, and by whom.

use std::fmt;

use super::{
    DocumentError, Expires, KeyId, LIMITS, PublicKey, SIGNATURES_MAX, SPEC_VERSION, hex,
    root::{Role, RoleKeys},
};
use crate::json::{self, Value};

/// The kinds of documents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DocumentType {
    /// Whose signatures count.
    Root,
    /// What the bytes of a version are.
    Release,
    /// What a channel means today.
    Channel,
}

impl DocumentType {
    /// The word in `_type`, which is TUF's.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            DocumentType::Root => "root",
            DocumentType::Release => "targets",
            DocumentType::Channel => "snapshot",
        }
    }
}

impl fmt::Display for DocumentType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            DocumentType::Root => "root",
            DocumentType::Release => "release",
            DocumentType::Channel => "channel",
        })
    }
}

/// Who signed what.
pub(super) type Signatures = Vec<(KeyId, [u8; 64])>;

/// A document taken apart, nothing of it believed yet.
pub(super) struct Envelope<'a> {
    pub(super) signed: Value<'a>,
    signatures: Signatures,
}

impl<'a> Envelope<'a> {
    pub(super) fn open(document: &'a [u8], expected: DocumentType) -> Result<Self, DocumentError> {
        let (signed, signatures) = take_apart(document)?;
        let found = signed.text("_type", "the kind of document")?;
        if found != expected.name() {
            return Err(DocumentError::WrongType { expected, found: found.chars().take(32).collect() });
        }
        let spec = signed.text("spec_version", "text such as 1.0")?;
        let (ours, _) = SPEC_VERSION.split_once('.').unwrap_or((SPEC_VERSION, ""));
        if spec.split('.').next() != Some(ours) {
            return Err(DocumentError::TooNew { found: spec.chars().take(32).collect() });
        }
        Ok(Envelope { signed, signatures })
    }

    /// Checks that enough different keys of the role have signed exactly these bytes.
    pub(super) fn check(&self, role: Role, keys: &RoleKeys) -> Result<(), DocumentError> {
        let Tally { valid, wrong, unknown } = self.tally(&keys.keys);
        match valid >= keys.threshold {
            true => Ok(()),
            false => Err(DocumentError::BelowThreshold { role, valid, needed: keys.threshold, wrong, unknown }),
        }
    }

    /// Counts keys, not signatures: the same key twice is one.
    pub(super) fn tally(&self, keys: &[PublicKey]) -> Tally {
        let message = self.signed.raw().as_bytes();
        let (mut signers, mut wrong, mut unknown) = (Vec::new(), 0, 0);
        for (id, signature) in &self.signatures {
            match keys.iter().find(|key| key.id() == *id) {
                None => unknown += 1,
                Some(_) if signers.contains(id) => {}
                Some(key) if key.has_signed(message, signature) => signers.push(*id),
                Some(_) => wrong += 1,
            }
        }
        Tally { valid: signers.len(), wrong, unknown }
    }
}

/// How many signatures count, and why the others do not.
pub(super) struct Tally {
    pub(super) valid: usize,
    pub(super) wrong: usize,
    pub(super) unknown: usize,
}

/// The signed object and its signatures, of any kind of document.
pub(super) fn take_apart(document: &[u8]) -> Result<(Value<'_>, Signatures), DocumentError> {
    let outside = json::parse(document, LIMITS)?;
    // A second `signed` must not be overlooked: one would be verified and the other one read.
    let signed = outside.get_once("signed")?.filter(|signed| signed.kind() == json::Kind::Object);
    let signed = signed.ok_or(DocumentError::Malformed { entry: "signed", expected: "an object" })?;
    let malformed = DocumentError::Malformed { entry: "signatures", expected: "a list of keyid and sig" };
    let list =
        outside.get_once("signatures")?.filter(|list| list.kind() == json::Kind::List).ok_or(malformed.clone())?;
    let mut signatures = Vec::new();
    for signature in list.items().take(SIGNATURES_MAX) {
        let (id, sig) = (signature.text("keyid", "a key id")?, signature.text("sig", "hexadecimal digits")?);
        // Keys of another kind than ours have ids and signatures of another length: not counted, not fatal.
        if let (Ok(id), Some(sig)) = (id.parse(), hex::decode(&sig)) {
            signatures.push((id, sig));
        }
    }
    Ok((signed, signatures))
}

/// Reading entries that must be there, exactly once.
pub(super) trait Entries<'a> {
    fn entry(self, key: &'static str, expected: &'static str) -> Result<Value<'a>, DocumentError>;
    fn text(self, key: &'static str, expected: &'static str) -> Result<String, DocumentError>;
    fn count(self, key: &'static str) -> Result<u64, DocumentError>;
    fn expires(self) -> Result<Expires, DocumentError>;
}

impl<'a> Entries<'a> for Value<'a> {
    fn entry(self, key: &'static str, expected: &'static str) -> Result<Value<'a>, DocumentError> {
        self.get_once(key)?.ok_or(DocumentError::Malformed { entry: key, expected })
    }

    fn text(self, key: &'static str, expected: &'static str) -> Result<String, DocumentError> {
        let text = self.entry(key, expected)?.as_text();
        text.map(Into::into).ok_or(DocumentError::Malformed { entry: key, expected })
    }

    fn count(self, key: &'static str) -> Result<u64, DocumentError> {
        let expected = "a whole number from 1";
        let count = self.entry(key, expected)?.as_u64().filter(|count| *count > 0);
        count.ok_or(DocumentError::Malformed { entry: key, expected })
    }

    fn expires(self) -> Result<Expires, DocumentError> {
        let expected = "a time such as 2030-01-31T23:59:59Z";
        let text = self.text("expires", expected)?;
        Expires::parse(&text).ok_or(DocumentError::Malformed { entry: "expires", expected })
    }
}
