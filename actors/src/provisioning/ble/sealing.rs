//! The scheme that existing phone apps use: each value alone, as `<password of the hotspot>:<value>`, sealed with RSA.
//!
//! Owns the rule that a failed decryption is never a value: whatever is wrong with a write, it is the same error, and
//! nothing has changed. The scheme does not say which characteristic a sealed value was meant for, nor when; so each is
//! good for one characteristic, once. Its weaknesses (who owns the public key?) are written down in docs/security.md.

use api::{Secret, digest::sha256};

use rsa_key::Key;

use super::characteristics::{VALUES, Value};

/// Sealed values that one key opens. A person needs eight, and tries a few times.
const OPENED_MAX: usize = 256;
/// As much of a digest as is kept: nobody makes two sealed values that agree in this much and are both right.
const MARK: usize = 16;

type Mark = [u8; MARK];

/// What a sealed value is.
#[derive(PartialEq, Eq)]
pub(super) enum Opened {
    /// A value from somebody who knows the password.
    Value(Vec<u8>),
    /// The very write that came last for this characteristic: a phone that did not hear the answer says it again.
    Again,
}

/// Why it is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refused {
    /// Not sealed with this key, not by somebody who knows the password, or not for the first time.
    Wrong,
    /// This key has opened as many as it may.
    Full,
}

/// Opens sealed values, each once.
pub(super) struct Sealing {
    key: Key,
    password: Secret,
    opened: Vec<Mark>,
    last: [Option<Mark>; VALUES],
}

impl Sealing {
    pub(super) fn new(key: Key, password: Secret) -> Sealing {
        Sealing { key, password, opened: Vec::new(), last: [None; VALUES] }
    }

    pub(super) fn public_der(&self) -> Vec<u8> {
        self.key.public_der()
    }

    /// Whether looking at it costs time.
    pub(super) fn is_new(&self, sealed: &[u8]) -> bool {
        !self.opened.contains(&mark(sealed))
    }

    pub(super) fn open(&mut self, value: Value, sealed: &[u8]) -> Result<Opened, Refused> {
        let mark = mark(sealed);
        let slot = self.last.get_mut(value as usize).ok_or(Refused::Wrong)?;
        if self.opened.contains(&mark) {
            return if *slot == Some(mark) { Ok(Opened::Again) } else { Err(Refused::Wrong) };
        }
        if self.opened.len() >= OPENED_MAX {
            return Err(Refused::Full);
        }
        let text = self.key.open(sealed).ok_or(Refused::Wrong)?;
        let password = self.password.expose();
        // Secrets compare in constant time. A password may hold colons: its length says where it ends.
        let given = text.get(..password.len()).map(String::from_utf8_lossy).unwrap_or_default();
        let knows = Secret::new(given.into_owned()) == self.password;
        match text.get(password.len()..).and_then(<[u8]>::split_first) {
            Some((b':', value)) if knows => {
                *slot = Some(mark);
                self.opened.push(mark);
                Ok(Opened::Value(value.to_vec()))
            }
            _ => Err(Refused::Wrong),
        }
    }
}

fn mark(sealed: &[u8]) -> Mark {
    sha256(sealed).first_chunk().copied().unwrap_or_default()
}
