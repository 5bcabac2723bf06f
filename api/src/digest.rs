//! The one digest used everywhere: SHA-256, alone and with a key.

/// SHA-256 of `bytes`.
#[must_use]
pub fn sha256(bytes: &[u8]) -> [u8; 32] {
    let mut sum = [0; 32];
    for (byte, value) in sum.iter_mut().zip(ring::digest::digest(&ring::digest::SHA256, bytes).as_ref()) {
        *byte = *value;
    }
    sum
}

/// SHA-256 of `bytes`, for naming content.
#[must_use]
pub fn digest(bytes: &[u8]) -> [u8; 32] {
    sha256(bytes)
}

/// SHA-256 of what is read piece by piece.
pub struct Sum(ring::digest::Context);

impl Default for Sum {
    fn default() -> Self {
        Self(ring::digest::Context::new(&ring::digest::SHA256))
    }
}

impl Sum {
    /// The next piece.
    pub fn add(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The sum of all pieces so far, in lowercase digits.
    #[must_use]
    pub fn hex(&self) -> String {
        let sum = self.0.clone().finish();
        sum.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

/// HMAC-SHA256 of `bytes` with `key` (RFC 2104).
#[must_use]
pub fn hmac_sha256(key: &[u8], bytes: &[u8]) -> [u8; 32] {
    let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, key);
    let mut sum = [0; 32];
    for (byte, value) in sum.iter_mut().zip(ring::hmac::sign(&key, bytes).as_ref()) {
        *byte = *value;
    }
    sum
}

#[cfg(test)]
mod tests {
    #[test]
    fn is_the_known_one() {
        assert_eq!(super::digest(b"abc")[..4], [0xba, 0x78, 0x16, 0xbf]);
    }

    #[test]
    fn in_pieces_it_is_the_same() {
        let mut sum = super::Sum::default();
        ["a", "", "bc"].into_iter().for_each(|piece| sum.add(piece.as_bytes()));
        assert_eq!(sum.hex(), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    }

    /// Test case 2 of RFC 4231.
    #[test]
    fn with_a_key_too() {
        let sum = super::hmac_sha256(b"Jefe", b"what do ya want for nothing?");
        assert_eq!(sum[..4], [0x5b, 0xdc, 0xc1, 0x46]);
    }
}
