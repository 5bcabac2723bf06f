//! Signed documents: which version of a product a device may run, and what its bytes are.
//!
//! Three documents of TUF (theupdateframework.io). [`Root`] says whose signatures count and is followed by its successors
//! one by one; [`Release`] (TUF: `targets`) says what the bytes of one version are; [`Channel`] (TUF: `snapshot`) says
//! which version `stable` or `dev` means today. Everything is signed offline, so a fleet server chooses among what was
//! signed and can forge none of it. TUF's reference library verifies all three (docs/adr/0019).
//!
//! On disk and on the wire a document is one JSON object, `{"signatures": [{"keyid", "sig"}], "signed": {…}}`. What is
//! signed are the bytes of `signed` exactly as they stand in the document. The signing side ([`sign`]) writes them as
//! OLPC canonical JSON, so that TUF tools which write the object anew before they verify see the same bytes. A key's id is the
//! SHA-256 of its canonical key object, as in TUF. Numbers, signatures and digests: ed25519, lowercase hex.
//!
//! This module decides whether a document is genuine and well-formed. Whether it is still fresh is said by [`Expires`];
//! whether it steps back behind what a device has seen is for the device to know, which has a memory.
//!
//! | document | path below the server's address |
//! |---|---|
//! | root number N | [`root_path`]: `/releases/v1/root.N.json` |
//! | channel | [`channel_path`]: `/releases/v1/channel/NAME.json` |
//! | release | [`release_path`]: `/releases/v1/release/PRODUCT/VERSION.json` |
//! | artifact | [`artifact_path`]: `/releases/v1/artifact/SHA256` |

mod canonical;
mod channel;
mod envelope;
mod error;
mod expires;
pub mod hex;
mod key;
mod release;
mod root;
pub mod sign;

#[cfg(test)]
mod tests;

pub use channel::{Channel, ChannelEntry};
pub use envelope::DocumentType;
pub use error::DocumentError;
pub use expires::{Expires, Freshness};
pub use key::{KeyId, PublicKey};
pub use release::{Artifact, Format, Release, Unpacked};
pub use root::{Role, RoleKeys, Root};

use crate::json::Limits;

/// Longest document: a root with the most keys and signatures has a quarter of this.
pub const DOCUMENT_BYTES_MAX: usize = 64 * 1024;
/// Keys in one root.
pub const KEYS_MAX: usize = 16;
/// Signatures looked at on one document; each costs a curve operation on a small processor.
pub const SIGNATURES_MAX: usize = 32;
/// Platforms of one release.
pub const ARTIFACTS_MAX: usize = 32;
/// Products in one channel.
pub const PRODUCTS_MAX: usize = 16;
/// Length of a product's, channel's or platform's name; they become parts of paths.
pub const NAME_BYTES_MAX: usize = 64;
/// Length of a version.
pub const VERSION_BYTES_MAX: usize = 128;

/// What a document may cost to read; nothing in one lies deeper than six objects.
const LIMITS: Limits = Limits { bytes: DOCUMENT_BYTES_MAX, depth: 8 };

/// The part of the shape that a reader must know; another first number means that this agent is too old to read it.
const SPEC_VERSION: &str = "1.0.0";

/// Where root number `number` is.
#[must_use]
pub fn root_path(number: u64) -> String {
    format!("/releases/v1/root.{number}.json")
}

/// Where a channel's document is.
#[must_use]
pub fn channel_path(name: &str) -> String {
    format!("/releases/v1/channel/{name}.json")
}

/// Where a release's document is.
#[must_use]
pub fn release_path(product: &str, version: &semver::Version) -> String {
    // Build metadata is the only part of a version with a sign that means something else in some URLs.
    format!("/releases/v1/release/{product}/{}.json", version.to_string().replace('+', "%2B"))
}

/// Where an artifact is.
#[must_use]
pub fn artifact_path(sha256: &[u8; 32]) -> String {
    format!("/releases/v1/artifact/{}", hex::encode(sha256))
}

/// Lowercase letters, digits and `-`, `.`, `_` (and for platforms one `/`), beginning with a letter or digit: what may
/// become part of a path anywhere.
#[must_use]
pub fn is_name(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    name.len() <= NAME_BYTES_MAX
        && name.bytes().next().is_some_and(plain)
        && name.bytes().all(|byte| plain(byte) || matches!(byte, b'-' | b'.' | b'_'))
}

fn is_platform(name: &str) -> bool {
    name.split_once('/').is_some_and(|(system, processor)| is_name(system) && is_name(processor))
}
