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

    /// Test case 2 of RFC 4231.
    #[test]
    fn with_a_key_too() {
        let sum = super::hmac_sha256(b"Jefe", b"what do ya want for nothing?");
        assert_eq!(sum[..4], [0x5b, 0xdc, 0xc1, 0x46]);
    }
}
