//! Ids and random secrets.

use std::collections::BTreeSet;

use ring::rand::{SecureRandom, SystemRandom};

use crate::hex;

/// Bits are taken five at a time; no letters that are mistaken for each other when read aloud.
const ALPHABET: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";
/// 32 characters of 5 bits: 160 bits, above the 128 that allow a plain hash at rest.
const SECRET_BYTES: usize = 20;
/// What somebody may have taken for another field: as short as ours.
const SECRET_LETTERS_MIN: usize = SECRET_BYTES * 8 / 5;
/// Different ones in it. What is drawn has some 20; what is typed to fill a field has one or two.
const DRAWN_LETTERS_MIN: usize = 8;

/// A new id: a random UUID, because clients refuse anything else as the id of a key.
pub fn new_id() -> String {
    let mut bytes: [u8; 16] = random();
    bytes[6] = (bytes[6] & 0x0f) | 0x40;
    bytes[8] = (bytes[8] & 0x3f) | 0x80;
    from_bytes(bytes)
}

/// The text of a UUID.
pub fn from_bytes(bytes: [u8; 16]) -> String {
    let digits = hex::encode(&bytes);
    let cut = |from, to| digits.get(from..to).unwrap_or_default();
    [cut(0, 8), cut(8, 12), cut(12, 16), cut(16, 20), cut(20, 32)].join("-")
}

/// Whether it is written like one of ours: lowercase digits and dashes in their places.
pub fn is_id(text: &str) -> bool {
    let fits = |(place, letter): (usize, u8)| match place {
        8 | 13 | 18 | 23 => letter == b'-',
        _ => matches!(letter, b'0'..=b'9' | b'a'..=b'f'),
    };
    text.len() == 36 && text.bytes().enumerate().all(fits)
}

/// The bytes of a UUID; `None` for anything that is not written like one of ours.
pub fn to_bytes(id: &str) -> Option<[u8; 16]> {
    if !is_id(id) {
        return None;
    }
    let mut digits = id.bytes().filter(|letter| *letter != b'-').map(|letter| match letter {
        b'a'..=b'f' => letter - b'a' + 10,
        _ => letter & 0x0f,
    });
    let mut half = || digits.next().unwrap_or_default();
    Some(std::array::from_fn(|_| half() << 4 | half()))
}

/// A new secret for a person or a device to keep.
pub fn new_secret() -> String {
    let bytes: [u8; SECRET_BYTES] = random();
    let mut secret = String::with_capacity(SECRET_BYTES * 8 / 5);
    for five in bytes.chunks_exact(5) {
        let group = five.iter().fold(0_u64, |sum, byte| sum << 8 | u64::from(*byte));
        for place in (0..8).rev() {
            secret.push(char::from(ALPHABET[(group >> (place * 5) & 31) as usize]));
        }
    }
    secret
}

/// Whether it holds something of a secret's form, ours or another server's: that many letters and digits in a row, and not
/// the same few again and again. An id is none.
pub fn may_be_secret(text: &str) -> bool {
    let looks_drawn = |run: &str| run.bytes().collect::<BTreeSet<u8>>().len() >= DRAWN_LETTERS_MIN;
    let mut runs = text.split(|letter: char| !letter.is_ascii_alphanumeric());
    runs.any(|run| run.len() >= SECRET_LETTERS_MIN && looks_drawn(run))
}

/// Bytes nobody can guess.
pub fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    SystemRandom::new().fill(&mut bytes).expect("the operating system has randomness once it has booted");
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_uuids_and_survive_the_round_trip() {
        let id = new_id();
        assert_eq!(from_bytes(to_bytes(&id).unwrap()), id);
        assert_eq!(id.as_bytes()[14], b'4');
        for wrong in ["", "abc", "0000000000000000000000000000000000000", &id[1..], &id.replace('-', "_")] {
            assert_eq!(to_bytes(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn secrets_have_160_bits_and_differ() {
        let (one, other) = (new_secret(), new_secret());
        assert_eq!(one.len(), 32);
        assert!(one.bytes().all(|letter| ALPHABET.contains(&letter)));
        assert_ne!(one, other);
    }

    #[test]
    fn what_may_be_a_secret_is_known_by_its_form() {
        let secret = new_secret();
        let inside = format!("Bearer {secret}, or so");
        let digits = hex::encode(&random::<16>());
        for text in [&*secret, &inside, &digits] {
            assert!(may_be_secret(text), "{text}");
        }
        let short = &secret[1..];
        for text in ["", short, &new_id(), &"x".repeat(500), "acme:camera-for-the-northern-hall-2"] {
            assert!(!may_be_secret(text), "{text}");
        }
    }
}
