//! Bearer tokens: which key or secret, which generation of it, and a signature of this server.
//!
//! Opaque to every client. No expiry, because clients never ask for a second one; a token ends with its key.

use ring::hmac;

use crate::{hex, ids};

/// Kind, id and subject.
const CLAIM_BYTES: usize = 1 + 16 + 16;
/// Of the signature; 128 bits cannot be guessed.
const SIGNATURE_BYTES: usize = 16;

/// What a token claims.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Claim {
    ApiKey { id: [u8; 16], generation: u64 },
    Part { secret: [u8; 16], part: [u8; 16] },
    Location { secret: [u8; 16], part: [u8; 16] },
}

impl Claim {
    pub(super) fn api_key(id: &str, generation: u64) -> Option<Self> {
        Some(Self::ApiKey { id: ids::to_bytes(id)?, generation })
    }

    pub(super) fn part(secret: &str, part: &str) -> Option<Self> {
        Some(Self::Part { secret: ids::to_bytes(secret)?, part: ids::to_bytes(part)? })
    }

    pub(super) fn location(secret: &str, part: &str) -> Option<Self> {
        Some(Self::Location { secret: ids::to_bytes(secret)?, part: ids::to_bytes(part)? })
    }

    /// Under which the rights of its holder are remembered. Two parts may come with one secret of their location.
    pub(super) fn session(&self) -> [u8; 16] {
        match self {
            Self::ApiKey { id, .. } => *id,
            Self::Part { secret, .. } => *secret,
            Self::Location { secret, part } => std::array::from_fn(|n| secret[n] ^ part[n]),
        }
    }

    pub(super) fn generation(&self) -> u64 {
        match self {
            Self::ApiKey { generation, .. } => *generation,
            Self::Part { .. } | Self::Location { .. } => 0,
        }
    }

    fn to_bytes(&self) -> [u8; CLAIM_BYTES] {
        let mut bytes = [0; CLAIM_BYTES];
        let (kind, id, subject) = match self {
            Self::ApiKey { id, generation } => (b'k', id, u128::from(*generation).to_be_bytes()),
            Self::Part { secret, part } => (b'p', secret, *part),
            Self::Location { secret, part } => (b'l', secret, *part),
        };
        bytes[0] = kind;
        bytes[1..17].copy_from_slice(id);
        bytes[17..].copy_from_slice(&subject);
        bytes
    }

    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (kind, rest) = bytes.split_first()?;
        let (id, subject) = rest.split_at_checked(16)?;
        let (id, subject): ([u8; 16], [u8; 16]) = (id.try_into().ok()?, subject.try_into().ok()?);
        match kind {
            b'k' => Some(Self::ApiKey { id, generation: u64::try_from(u128::from_be_bytes(subject)).ok()? }),
            b'p' => Some(Self::Part { secret: id, part: subject }),
            b'l' => Some(Self::Location { secret: id, part: subject }),
            _ => None,
        }
    }
}

/// Signs and checks.
pub(super) struct Signer {
    key: hmac::Key,
}

impl Signer {
    pub(super) fn new(master: &[u8; 32]) -> Self {
        let derived = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, master), b"bearer tokens");
        Self { key: hmac::Key::new(hmac::HMAC_SHA256, derived.as_ref()) }
    }

    pub(super) fn token(&self, claim: &Claim) -> String {
        let claim = claim.to_bytes();
        let signature = hmac::sign(&self.key, &claim);
        let mut token = hex::encode(&claim);
        token.push_str(&hex::encode(&signature.as_ref()[..SIGNATURE_BYTES]));
        token
    }

    pub(super) fn open(&self, token: &str) -> Option<Claim> {
        // Looked at before it is decoded: a megabyte of header is not worth decoding.
        if token.len() != (CLAIM_BYTES + SIGNATURE_BYTES) * 2 {
            return None;
        }
        let bytes = hex::decode(token)?;
        let (claim, signature) = bytes.split_at_checked(CLAIM_BYTES)?;
        let expected = hmac::sign(&self.key, claim);
        let differences = expected.as_ref().iter().zip(signature).fold(0, |sum, (a, b)| sum | (a ^ b));
        (std::hint::black_box(differences) == 0).then(|| Claim::from_bytes(claim))?
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_opens_only_as_it_was_signed() {
        let signer = Signer::new(&[7; 32]);
        let claims = [
            Claim::ApiKey { id: [1; 16], generation: 9 },
            Claim::Part { secret: [2; 16], part: [3; 16] },
            Claim::Location { secret: [4; 16], part: [5; 16] },
        ];
        for claim in claims {
            let token = signer.token(&claim);
            assert_eq!(signer.open(&token), Some(claim));
            assert_eq!(Signer::new(&[8; 32]).open(&token), None, "another server's key");
            for place in 0..token.len() {
                let mut changed = token.clone().into_bytes();
                changed[place] = if changed[place] == b'0' { b'1' } else { b'0' };
                assert_eq!(signer.open(std::str::from_utf8(&changed).unwrap()), None, "digit {place}");
            }
        }
        for garbage in ["", "Bearer", &"0".repeat(98), &"é".repeat(49), &"f".repeat(1 << 20)] {
            assert_eq!(signer.open(garbage), None);
        }
    }
}
