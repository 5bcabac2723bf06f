//! A text that must not be seen: keys, passwords, tokens.
//!
//! Owns the rule that a secret never reaches a log by accident: no `Display`, a `Debug` without content, and no way to
//! the text but [`Secret::expose`], so that every place which reveals one can be found by that word. Does not wipe
//! memory: whoever can read the agent's memory already owns the device.

use std::{fmt, hint::black_box};

/// A secret text. Compares in constant time, prints as `(secret)`.
#[derive(Clone, Default)]
pub struct Secret(Box<str>);

impl Secret {
    /// Takes a text out of the light.
    pub fn new(text: impl Into<Box<str>>) -> Self {
        Self(text.into())
    }

    /// The text itself: for a header, a file with mode 0600, or a screen that was asked for it.
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// Whether there is nothing to hide.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Length in bytes; used for limits, and not secret.
    pub fn len(&self) -> usize {
        self.0.len()
    }
}

/// Takes the same time wherever the texts differ, so that answering times do not teach the text. The length may be learnt.
impl PartialEq for Secret {
    fn eq(&self, other: &Self) -> bool {
        let (ours, theirs) = (self.0.as_bytes(), other.0.as_bytes());
        ours.len() == theirs.len() && ours.iter().zip(theirs).fold(0, |seen, (a, b)| black_box(seen | (a ^ b))) == 0
    }
}

impl Eq for Secret {}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(secret)")
    }
}

impl From<String> for Secret {
    fn from(text: String) -> Self {
        Self::new(text)
    }
}

impl From<&str> for Secret {
    fn from(text: &str) -> Self {
        Self::new(text)
    }
}

#[cfg(test)]
mod tests {
    use super::Secret;

    #[test]
    fn never_shows_itself() {
        #[derive(Debug)]
        #[allow(dead_code, reason = "read through Debug")]
        struct Login {
            key: Secret,
        }
        let login = Login { key: Secret::from("correct horse") };
        assert_eq!(format!("{login:?}"), "Login { key: (secret) }");
        assert!(!format!("{login:#?}").contains("horse"));
    }

    #[test]
    fn equality() {
        let table = [
            ("same", "abc", "abc", true),
            ("last", "abc", "abd", false),
            ("shorter", "abc", "ab", false),
            ("empty", "", "", true),
        ];
        for (case, a, b, equal) in table {
            assert_eq!(Secret::from(a) == Secret::from(b), equal, "{case}");
        }
    }
}
