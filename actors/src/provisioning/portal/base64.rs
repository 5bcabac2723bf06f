//! Base64 of the standard alphabet: content hashes of a page's policy, and messages of clients that know only text.

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// With padding.
pub(super) fn encoded(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for three in bytes.chunks(3) {
        let word = three.iter().fold(0_u32, |word, &byte| word << 8 | u32::from(byte)) << (8 * (3 - three.len()));
        for place in 0..4_usize {
            let digit = ALPHABET.get((word >> (18 - 6 * place) & 63) as usize).copied().unwrap_or_default();
            text.push(if place <= three.len() { char::from(digit) } else { '=' });
        }
    }
    text
}

/// Several texts may follow each other, each with its own padding: that is how gRPC-Web sends frames as text.
pub(super) fn decoded(text: &[u8]) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3);
    for four in text.chunks(4) {
        let digits = four.iter().take_while(|&&digit| digit != b'=').count();
        if digits < 2 || four.get(digits..)?.iter().any(|&pad| pad != b'=') {
            return None;
        }
        let mut word = 0_u32;
        for digit in four.get(..digits)? {
            let value = ALPHABET.iter().position(|known| known == digit)?;
            word = word << 6 | u32::try_from(value).ok()?;
        }
        let [_, three @ ..] = (word << (6 * (4 - digits))).to_be_bytes();
        bytes.extend_from_slice(three.get(..digits - 1)?);
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_and_back() {
        let table: [(&[u8], &str); 6] = [
            (b"", ""),
            (b"f", "Zg=="),
            (b"fo", "Zm8="),
            (b"foo", "Zm9v"),
            (b"foobar", "Zm9vYmFy"),
            (&[0xff, 0xef], "/+8="),
        ];
        for (bytes, text) in table {
            assert_eq!(encoded(bytes), text);
            assert_eq!(decoded(text.as_bytes()).as_deref(), Some(bytes), "{text}");
        }
        assert_eq!(decoded(b"Zg==Zm8=").as_deref(), Some(&b"ffo"[..]), "two texts in a row");
        assert_eq!(decoded(b"Zm8").as_deref(), Some(&b"fo"[..]), "without padding");
        for bad in ["Z", "Z===", "====", "Zg=v", "Zm 9", "Zm9v\n"] {
            assert_eq!(decoded(bad.as_bytes()), None, "{bad}");
        }
    }
}
