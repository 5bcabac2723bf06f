//! Small stored documents: a header line with kind, format number and digest, then one JSON object.
//!
//! The digest tells a document that was damaged on the disk from one that a later agent wrote; both are refused, and
//! whoever reads says what happens then.

use api::{digest::sha256, releases::hex};

/// Why a stored document cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unusable {
    /// Another format than this agent reads.
    #[error("it was written in another format, perhaps by a later agent")]
    OtherFormat,
    /// Not what was written.
    #[error("it is damaged")]
    Damaged,
}

/// The bytes of a stored document: `KIND 1 SHA256`, a line break, and `body`.
#[must_use]
pub(super) fn seal(kind: &str, body: &str) -> Vec<u8> {
    format!("{kind} 1 {}\n{body}\n", digest_of(body)).into_bytes()
}

/// The body of a stored document.
pub(super) fn open<'a>(kind: &str, bytes: &'a [u8]) -> Result<&'a str, Unusable> {
    let text = std::str::from_utf8(bytes).map_err(|_| Unusable::Damaged)?;
    let (header, body) = text.split_once('\n').ok_or(Unusable::Damaged)?;
    let after = header.strip_prefix(kind).and_then(|rest| rest.strip_prefix(' ')).ok_or(Unusable::Damaged)?;
    let digest = match after.split_once(' ') {
        Some(("1", digest)) => digest,
        Some((format, _)) if format.parse::<u32>().is_ok() => return Err(Unusable::OtherFormat),
        _ => return Err(Unusable::Damaged),
    };
    let body = body.strip_suffix('\n').ok_or(Unusable::Damaged)?;
    if digest_of(body) == digest { Ok(body) } else { Err(Unusable::Damaged) }
}

fn digest_of(body: &str) -> String {
    hex::encode(&sha256(body.as_bytes()))
}
