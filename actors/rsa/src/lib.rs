//! An RSA key of 2048 bits: made, shown, and used to decrypt what phones seal with it (OAEP with SHA-256).
//!
//! A crate of its own, so that it can be optimized where nothing else is: a sealed value takes a second otherwise.
//! Owns the scheme; the arithmetic is crypto-bigint's, whose operations take the same time for all numbers of a size.
//! Why not a whole RSA library, and what an attacker can measure: docs/adr/0025. Every failure looks the same.

// Input from outside must never end the process. A broken invariant may, with its reason (docs/adr/0005).
#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::string_slice, clippy::unreachable))]
#![cfg_attr(not(test), deny(clippy::expect_used, clippy::panic, clippy::unwrap_used))]

use std::hint::black_box;

use crypto_bigint::{
    Odd, U1024, U2048,
    modular::{FixedMontyForm, FixedMontyParams},
};

/// Length of the modulus, and of everything sealed with the key.
pub const BYTES: usize = 256;
/// Half of it: one prime.
const PRIME_BYTES: usize = BYTES / 2;
/// The public exponent.
const EXPONENT: u32 = 65_537;
/// Length of a SHA-256 digest.
const DIGEST: usize = 32;
/// Longest text that fits into one sealed value (RFC 8017, 7.1.1).
pub const TEXT_MAX: usize = BYTES - 2 * DIGEST - 2;
/// Odd primes tried by division before anything expensive: three of four candidates that are left fall otherwise too.
const SMALL_PRIMES: usize = 500;
/// Numbers looked at after one random start; the distance between primes of this size is about 700.
const WINDOW: u32 = 8_192;
/// Miller-Rabin rounds with random bases: an error below 2^-100 for random candidates (FIPS 186-5, table B.1).
const ROUNDS: u32 = 6;
/// Random starts before the source of chance is called broken.
const STARTS: u32 = 64;

/// What a public key looks like before and after its modulus (RFC 5280 and 8017: SubjectPublicKeyInfo in DER).
const DER_HEAD: [u8; 33] = [
    0x30, 0x82, 0x01, 0x22, 0x30, 0x0d, 0x06, 0x09, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x01, 0x05, 0x00,
    0x03, 0x82, 0x01, 0x0f, 0x00, 0x30, 0x82, 0x01, 0x0a, 0x02, 0x82, 0x01, 0x01, 0x00,
];
const DER_TAIL: [u8; 5] = [0x02, 0x03, 0x01, 0x00, 0x01];

/// Fills with chance that nobody can guess; `false` when there is none.
pub type Chance<'a> = &'a mut dyn FnMut(&mut [u8]) -> bool;

/// A private key.
#[derive(Clone)]
pub struct Key {
    params: FixedMontyParams<{ U2048::LIMBS }>,
    modulus: U2048,
    private: U2048,
}

impl Key {
    /// Makes one. Takes a tenth of a second on a fast machine and seconds on a small board: not for the thread that
    /// runs the actors. `None` when there is no chance to be had.
    #[must_use]
    pub fn make(chance: Chance<'_>) -> Option<Key> {
        let small = small_primes();
        let first = prime(chance, &small)?;
        let second = prime(chance, &small)?;
        Key::of_primes(&first, &second)
    }

    /// The key of two primes whose product has 2048 bits: for simulations and tests, which cannot wait for one.
    #[must_use]
    pub fn from_primes(first: &[u8; PRIME_BYTES], second: &[u8; PRIME_BYTES]) -> Option<Key> {
        Key::of_primes(&U1024::from_be_slice(first), &U1024::from_be_slice(second))
    }

    fn of_primes(first: &U1024, second: &U1024) -> Option<Key> {
        let modulus: U2048 = first.concatenating_mul(second);
        let totient: U2048 = first.wrapping_sub(&U1024::ONE).concatenating_mul(&second.wrapping_sub(&U1024::ONE));
        let params = FixedMontyParams::new(Odd::new(modulus).into_option()?);
        let key = Key { params, modulus, private: inverse_of_exponent(&totient) };
        // A prime that is none, or a slip in the arithmetic, shows here and not when somebody's password is lost.
        let probe = U2048::from(0x7072_6f62u32);
        let sealed = key.power(&probe, &U2048::from(EXPONENT));
        (key.power(&sealed, &key.private) == probe).then_some(key)
    }

    /// The public half in DER, 294 bytes, as phones read it.
    #[must_use]
    pub fn public_der(&self) -> Vec<u8> {
        let modulus = self.modulus.to_be_bytes();
        [&DER_HEAD[..], modulus.as_ref(), &DER_TAIL[..]].concat()
    }

    /// The text that was sealed with the public half. `None` for anything else, and after the same time.
    #[must_use]
    pub fn open(&self, sealed: &[u8]) -> Option<Vec<u8>> {
        if sealed.len() != BYTES {
            return None;
        }
        let number = U2048::from_be_slice(sealed);
        if number >= self.modulus {
            return None;
        }
        let block = self.power(&number, &self.private).to_be_bytes();
        unpad(block.as_ref())
    }

    fn power(&self, base: &U2048, exponent: &U2048) -> U2048 {
        FixedMontyForm::new(base, &self.params).pow(exponent).retrieve()
    }
}

impl Drop for Key {
    fn drop(&mut self) {
        self.private = U2048::ZERO;
        black_box(&self.private);
    }
}

/// `e^-1 mod totient`, by `(k * totient + 1) / e` with the one `k < e` that leaves no rest. Once for each key.
fn inverse_of_exponent(totient: &U2048) -> U2048 {
    let e = u64::from(EXPONENT);
    let bytes = totient.to_be_bytes();
    let rest = bytes.as_ref().iter().fold(0, |rest, byte| ((rest << 8) | u64::from(*byte)) % e);
    // -1 / rest, by Fermat: e is prime.
    let k = e - (0..16).fold((1, rest), |(all, square), _| (all * square % e, square * square % e)).0;
    let mut wide = [0; BYTES + 4];
    let mut carry = 1;
    let padded = [0; 4].into_iter().chain(bytes.as_ref().iter().copied());
    for (to, from) in wide.iter_mut().zip(padded.collect::<Vec<u8>>()).rev() {
        carry += u64::from(from) * k;
        *to = low_byte(carry);
        carry >>= 8;
    }
    let mut rest = 0;
    for digit in &mut wide {
        rest = (rest << 8) | u64::from(*digit);
        *digit = low_byte(rest / e);
        rest %= e;
    }
    U2048::from_be_slice(wide.last_chunk::<BYTES>().unwrap_or(&[0; BYTES]))
}

fn sha256(bytes: &[u8]) -> [u8; DIGEST] {
    let sum = ring::digest::digest(&ring::digest::SHA256, bytes);
    sum.as_ref().first_chunk().copied().unwrap_or_default()
}

fn low_byte(number: u64) -> u8 {
    number.to_le_bytes().first().copied().unwrap_or_default()
}

fn small_primes() -> Vec<u32> {
    let mut list: Vec<u32> = Vec::with_capacity(SMALL_PRIMES);
    let mut next = 3;
    while list.len() < SMALL_PRIMES {
        if list.iter().take_while(|prime| *prime * *prime <= next).all(|prime| next % prime != 0) {
            list.push(next);
        }
        next += 2;
    }
    list
}

fn rest_of(number: &U1024, divisor: u32) -> u32 {
    let bytes = number.to_be_bytes();
    bytes.as_ref().iter().fold(0, |rest, byte| ((rest << 8) | u32::from(*byte)) % divisor)
}

/// A random prime with its two highest bits set, so that two of them make 2048 bits.
fn prime(chance: Chance<'_>, small: &[u32]) -> Option<U1024> {
    for _ in 0..STARTS {
        let mut bytes = [0; PRIME_BYTES];
        if !chance(&mut bytes) {
            return None;
        }
        bytes[0] |= 0xc0;
        bytes[PRIME_BYTES - 1] |= 1;
        let start = U1024::from_be_slice(&bytes);
        let rests: Vec<u32> = small.iter().map(|prime| rest_of(&start, *prime)).collect();
        for step in (0..WINDOW).step_by(2) {
            if rests.iter().zip(small).any(|(rest, prime)| (rest + step) % prime == 0) {
                continue;
            }
            let candidate = start.wrapping_add(&U1024::from(step));
            if rest_of(&candidate, EXPONENT) != 1 && is_probably_prime(&candidate, chance)? {
                return Some(candidate);
            }
        }
    }
    None
}

/// Miller-Rabin. `None` when there is no chance to be had.
fn is_probably_prime(number: &U1024, chance: Chance<'_>) -> Option<bool> {
    let Some(odd) = Odd::new(*number).into_option() else { return Some(false) };
    let params = FixedMontyParams::new(odd);
    let one = FixedMontyForm::one(&params);
    let minus_one = -one;
    let before = number.wrapping_sub(&U1024::ONE);
    let twos = before.trailing_zeros();
    let odd_part = before.shr_vartime(twos);
    for round in 0..ROUNDS {
        let mut base = [0; PRIME_BYTES];
        if round == 0 {
            // Most that are not prime fail with 2 already.
            base[PRIME_BYTES - 1] = 2;
        } else if !chance(base.get_mut(1..)?) {
            return None;
        }
        let mut x = FixedMontyForm::new(&U1024::from_be_slice(&base), &params).pow(&odd_part);
        let mut passes = x == one || x == minus_one;
        for _ in 1..twos {
            x = x.square();
            passes |= x == minus_one;
        }
        if !passes {
            return Some(false);
        }
    }
    Some(true)
}

/// Takes the padding of RFC 8017, 7.1.2 step 3 away. Looks at every byte whatever it finds, and has one way to fail.
fn unpad(block: &[u8]) -> Option<Vec<u8>> {
    let (first, masked) = block.split_first()?;
    let (seed, data) = masked.split_at_checked(DIGEST)?;
    let mut seed = seed.to_vec();
    let mut data = data.to_vec();
    mask(&mut seed, &data);
    mask(&mut data, &seed);
    let (label, rest) = data.split_at_checked(DIGEST)?;
    let mut wrong = *first;
    for (found, wanted) in label.iter().zip(sha256(b"")) {
        wrong |= found ^ wanted;
    }
    // Zeros, a one, then the text. `searching` is 1 until the one was seen.
    let mut searching = 1u8;
    let mut start = 0usize;
    for (at, byte) in rest.iter().enumerate() {
        let is_zero = black_box(u8::from(*byte == 0));
        let is_one = black_box(u8::from(*byte == 1));
        wrong |= searching & (1 ^ is_zero) & (1 ^ is_one);
        let found = searching & is_one;
        start |= (at + 1) & usize::from(found).wrapping_neg();
        searching &= 1 ^ is_one;
    }
    wrong |= searching;
    let text = rest.get(start..).unwrap_or_default().to_vec();
    (black_box(wrong) == 0).then_some(text)
}

/// MGF1 with SHA-256, xored into `data`.
fn mask(data: &mut [u8], seed: &[u8]) {
    for (counter, chunk) in (0u32..).zip(data.chunks_mut(DIGEST)) {
        let pad = sha256(&[seed, &counter.to_be_bytes()[..]].concat());
        for (byte, pad) in chunk.iter_mut().zip(pad) {
            *byte ^= pad;
        }
    }
}

#[cfg(feature = "testing")]
impl Key {
    /// Seals as a phone does: the phone's half, for tests.
    #[must_use]
    pub fn seal(&self, text: &[u8], seed: &[u8; DIGEST]) -> Vec<u8> {
        let mut data = sha256(b"").to_vec();
        data.resize(BYTES - DIGEST - 2 - text.len(), 0);
        data.push(1);
        data.extend(text);
        let mut seed = seed.to_vec();
        mask(&mut data, &seed);
        mask(&mut seed, &data);
        let block = [&[0][..], &seed, &data].concat();
        self.power(&U2048::from_be_slice(&block), &U2048::from(EXPONENT)).to_be_bytes().as_ref().to_vec()
    }
}
