//! Signatures and object paths: what is one and what is not.

/// Deepest nesting of lists, and of structures, in a signature.
const DEEP: usize = 32;
/// Longest signature, in bytes.
const SIGNATURE_MAX: usize = 255;

/// Whether this is a list of complete types.
pub(super) fn is_signature(signature: &str) -> bool {
    let mut rest = signature.as_bytes();
    while !rest.is_empty() {
        let Some(length) = one(rest, 0, 0) else { return false };
        rest = rest.get(length..).unwrap_or_default();
    }
    signature.len() <= SIGNATURE_MAX
}

/// The first complete type of a signature, and what is behind it.
pub(super) fn first(signature: &str) -> Option<(&str, &str)> {
    signature.split_at_checked(one(signature.as_bytes(), 0, 0)?)
}

/// Whether this is exactly one complete type.
pub(super) fn is_one(signature: &str) -> bool {
    is_signature(signature) && first(signature).is_some_and(|(_, rest)| rest.is_empty())
}

/// Length of the first complete type.
fn one(signature: &[u8], lists: usize, structures: usize) -> Option<usize> {
    if lists > DEEP || structures > DEEP {
        return None;
    }
    match signature.first()? {
        b'a' if signature.get(1) == Some(&b'{') => {
            let key = *signature.get(2)?;
            if !is_basic(key) {
                return None;
            }
            let value = one(signature.get(3..)?, lists + 1, structures + 1)?;
            (signature.get(3 + value) == Some(&b'}')).then_some(4 + value)
        }
        b'a' => Some(1 + one(signature.get(1..)?, lists + 1, structures)?),
        b'(' => {
            let mut at = 1;
            while signature.get(at)? != &b')' {
                at += one(signature.get(at..)?, lists, structures + 1)?;
            }
            (at > 1).then_some(at + 1)
        }
        b'v' => Some(1),
        kind => is_basic(*kind).then_some(1),
    }
}

fn is_basic(kind: u8) -> bool {
    b"ybnqiuxtdsogh".contains(&kind)
}

/// Whether this is the path of an object.
pub(super) fn is_path(path: &str) -> bool {
    let word = |word: &str| !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    path == "/" || path.strip_prefix('/').is_some_and(|words| words.split('/').all(word))
}
