//! The one digest used everywhere: SHA-256.

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

#[cfg(test)]
mod tests {
    #[test]
    fn is_the_known_one() {
        assert_eq!(super::digest(b"abc")[..4], [0xba, 0x78, 0x16, 0xbf]);
    }
}
