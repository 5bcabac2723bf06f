//! The authenticated scheme: a conversation that only somebody who knows the device's password can hold.
//!
//! Owns version 1, byte by byte as docs/bluetooth.md writes it down. X25519 with a fresh key for each conversation,
//! the stretched password mixed into the key derivation, AES-256-GCM with counters: what was recorded cannot be opened
//! later, repeated, reordered, moved to another device, or changed. The phone proves first that it knows the password;
//! the device says nothing that depends on it before, so that nobody near can take its answer home and guess.

use std::num::NonZeroU32;

use api::Secret;
use ring::{
    aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey},
    agreement::{EphemeralPrivateKey, UnparsedPublicKey, X25519, agree_ephemeral},
    hkdf, pbkdf2,
    rand::SystemRandom,
};

/// First byte of everything.
const VERSION: u8 = 1;
/// An X25519 public key.
const PUBLIC: usize = 32;
/// Of the password's stretching.
const SALT: usize = 16;
/// A key of AES-256, and a stretched password.
const KEY: usize = 32;
/// GCM's tag.
const TAG: usize = 16;
/// Version and counter.
const HEAD: usize = 1 + 8;
/// Rounds of stretching: a tenth of a second on a small board, once for each opening of the door.
const ROUNDS: NonZeroU32 = NonZeroU32::new(20_000).expect("is not zero");
/// Conversations at the same time; the oldest ends for a new one.
const CONVERSATIONS: usize = 4;

/// What is ready before the door opens: it takes time.
#[derive(Clone)]
pub(super) struct Stretched {
    salt: [u8; SALT],
    key: [u8; KEY],
}

impl Stretched {
    pub(super) fn new(password: &Secret, salt: [u8; SALT]) -> Stretched {
        let mut key = [0; KEY];
        pbkdf2::derive(pbkdf2::PBKDF2_HMAC_SHA256, ROUNDS, &salt, password.expose().as_bytes(), &mut key);
        Stretched { salt, key }
    }
}

/// What the device tells the phone of its last message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Done.
    Taken = 0,
    /// Something in it cannot be right; the sentence says what.
    Unfit = 1,
    /// The device has an identity and keeps it.
    NotAllowed = 2,
}

/// Conversations, and the half key for the next one.
pub(super) struct Channel {
    stretched: Stretched,
    next: Option<(EphemeralPrivateKey, [u8; PUBLIC])>,
    open: Vec<Conversation>,
    answer: Vec<u8>,
}

struct Conversation {
    phone: String,
    keys: Keys,
    /// Counter of the last message that was taken.
    heard: u64,
    /// Counter of the last answer.
    said: u64,
}

/// One for each direction.
struct Keys {
    to_device: LessSafeKey,
    to_phone: LessSafeKey,
}

impl Channel {
    pub(super) fn new(stretched: Stretched) -> Channel {
        let mut channel = Channel { stretched, next: None, open: Vec::new(), answer: Vec::new() };
        channel.renew();
        channel
    }

    /// Version, public key, salt. Empty when the system has no chance to give.
    pub(super) fn hello(&self) -> Vec<u8> {
        let Some((_, public)) = &self.next else { return Vec::new() };
        [&[VERSION][..], public, &self.stretched.salt].concat()
    }

    /// Version, counter, sealed answer; empty before the first.
    pub(super) fn answer(&self) -> &[u8] {
        &self.answer
    }

    /// The phone's half: version, public key, and a tag that only who knows the password can make. Uses up the hello
    /// either way.
    pub(super) fn begin(&mut self, phone: &str, half: &[u8]) -> Option<()> {
        let (head, tag) = half.split_at_checked(1 + PUBLIC)?;
        let (version, theirs) = head.split_first()?;
        if *version != VERSION || tag.len() != TAG {
            return None;
        }
        let (private, ours) = self.next.take()?;
        self.renew();
        let shared = agree_ephemeral(private, &UnparsedPublicKey::new(&X25519, theirs), |shared| {
            Keys::derive(&self.stretched.key, shared, &ours, theirs)
        });
        let keys = shared.ok()??;
        open(&keys.to_device, 0, head, tag)?;
        self.open.retain(|conversation| conversation.phone != phone);
        if self.open.len() >= CONVERSATIONS {
            self.open.remove(0);
        }
        self.open.push(Conversation { phone: phone.to_owned(), keys, heard: 0, said: 0 });
        self.say(phone, Verdict::Taken, "");
        Some(())
    }

    /// A message: version, counter, sealed fields. `None` when it is not the next one of this phone's conversation.
    pub(super) fn hear(&mut self, phone: &str, message: &[u8]) -> Option<Vec<u8>> {
        let (head, sealed) = message.split_at_checked(HEAD)?;
        let (version, counter) = head.split_first()?;
        let counter = u64::from_be_bytes(*counter.first_chunk()?);
        let conversation = self.open.iter_mut().find(|conversation| conversation.phone == phone)?;
        if *version != VERSION || counter <= conversation.heard {
            return None;
        }
        let fields = open(&conversation.keys.to_device, counter, head, sealed)?;
        conversation.heard = counter;
        Some(fields)
    }

    /// What is said of the last message: one byte, the counter of that message, and a sentence.
    pub(super) fn say(&mut self, phone: &str, verdict: Verdict, sentence: &str) {
        let Some(conversation) = self.open.iter_mut().find(|conversation| conversation.phone == phone) else { return };
        conversation.said += 1;
        let head = [&[VERSION][..], &conversation.said.to_be_bytes()].concat();
        let mut text = [&[verdict as u8][..], &conversation.heard.to_be_bytes(), sentence.as_bytes()].concat();
        if seal(&conversation.keys.to_phone, conversation.said, &head, &mut text).is_some() {
            self.answer = [head, text].concat();
        }
    }

    /// A phone has gone, and its conversation with it.
    pub(super) fn left(&mut self, phone: &str) {
        self.open.retain(|conversation| conversation.phone != phone);
    }

    fn renew(&mut self) {
        let private = EphemeralPrivateKey::generate(&X25519, &SystemRandom::new());
        self.next = private.ok().and_then(|private| {
            let public = *private.compute_public_key().ok()?.as_ref().first_chunk()?;
            Some((private, public))
        });
    }
}

impl Keys {
    fn derive(stretched: &[u8; KEY], shared: &[u8], device: &[u8], phone: &[u8]) -> Option<Keys> {
        let secret = hkdf::Salt::new(hkdf::HKDF_SHA256, stretched).extract(shared);
        let key = |direction: &[u8]| {
            let mut key = [0; KEY];
            secret.expand(&[direction, device, phone], hkdf::HKDF_SHA256).ok()?.fill(&mut key).ok()?;
            UnboundKey::new(&AES_256_GCM, &key).ok().map(LessSafeKey::new)
        };
        Some(Keys { to_device: key(b"provisioning 1 to device")?, to_phone: key(b"provisioning 1 to phone")? })
    }
}

/// Four zeros and the counter: never twice with one key.
fn nonce(counter: u64) -> Nonce {
    let mut bytes = [0; 12];
    if let Some(end) = bytes.last_chunk_mut() {
        *end = counter.to_be_bytes();
    }
    Nonce::assume_unique_for_key(bytes)
}

fn open(key: &LessSafeKey, counter: u64, head: &[u8], sealed: &[u8]) -> Option<Vec<u8>> {
    let mut text = sealed.to_vec();
    let length = key.open_in_place(nonce(counter), Aad::from(head), &mut text).ok()?.len();
    text.truncate(length);
    Some(text)
}

fn seal(key: &LessSafeKey, counter: u64, head: &[u8], text: &mut Vec<u8>) -> Option<()> {
    key.seal_in_place_append_tag(nonce(counter), Aad::from(head), text).ok()
}

#[cfg(test)]
pub(super) mod phone {
    //! The phone's half, for tests.
    use super::*;

    pub(in crate::provisioning::ble) struct Phone {
        keys: Keys,
        said: u64,
    }

    impl Phone {
        /// The half to be written, and what can be said afterwards.
        pub(in crate::provisioning::ble) fn begin(password: &str, hello: &[u8]) -> (Vec<u8>, Phone) {
            let (device, salt) = hello[1..].split_at(PUBLIC);
            let stretched = Stretched::new(&Secret::from(password), salt.try_into().unwrap());
            let private = EphemeralPrivateKey::generate(&X25519, &SystemRandom::new()).unwrap();
            let public = private.compute_public_key().unwrap();
            let keys = agree_ephemeral(private, &UnparsedPublicKey::new(&X25519, device), |shared| {
                Keys::derive(&stretched.key, shared, device, public.as_ref()).unwrap()
            });
            let keys = keys.unwrap();
            let head = [&[VERSION], public.as_ref()].concat();
            let mut tag = Vec::new();
            seal(&keys.to_device, 0, &head, &mut tag).unwrap();
            ([head, tag].concat(), Phone { keys, said: 0 })
        }

        pub(in crate::provisioning::ble) fn message(&mut self, fields: &[(u8, &[u8])]) -> Vec<u8> {
            self.said += 1;
            let head = [&[VERSION][..], &self.said.to_be_bytes()].concat();
            let mut text = Vec::new();
            for (tag, value) in fields {
                text.push(*tag);
                text.extend(u16::try_from(value.len()).unwrap().to_be_bytes());
                text.extend(*value);
            }
            seal(&self.keys.to_device, self.said, &head, &mut text).unwrap();
            [head, text].concat()
        }

        /// Verdict, counter of the message, sentence.
        pub(in crate::provisioning::ble) fn hear(&self, answer: &[u8]) -> Option<(u8, u64, String)> {
            let (head, sealed) = answer.split_at_checked(HEAD)?;
            let text = open(&self.keys.to_phone, u64::from_be_bytes(*head[1..].first_chunk()?), head, sealed)?;
            Some((
                text[0],
                u64::from_be_bytes(*text[1..].first_chunk()?),
                String::from_utf8(text[9..].to_vec()).unwrap(),
            ))
        }
    }

    /// Both keys, for vectors.
    pub(in crate::provisioning::ble) fn sealed_by(
        password: &str,
        salt: [u8; SALT],
        shared: &[u8],
        device: &[u8],
        phone: &[u8],
        text: &[u8],
    ) -> (Vec<u8>, Vec<u8>, Vec<u8>) {
        let stretched = Stretched::new(&Secret::from(password), salt);
        let keys = Keys::derive(&stretched.key, shared, device, phone).unwrap();
        let head = [&[VERSION][..], &7u64.to_be_bytes()].concat();
        let (mut up, mut down) = (text.to_vec(), text.to_vec());
        seal(&keys.to_device, 7, &head, &mut up).unwrap();
        seal(&keys.to_phone, 7, &head, &mut down).unwrap();
        (stretched.key.to_vec(), up, down)
    }
}
