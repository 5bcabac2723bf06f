//! Writes text so that this and every other JSON reader gets it back.

use std::fmt::{self, Write as _};

/// `text` in quotes, escaped, for use in `format!` and `write!`.
pub fn quoted(text: &str) -> impl fmt::Display {
    Quoted(text)
}

struct Quoted<'a>(&'a str);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_char('"')?;
        for character in self.0.chars() {
            match character {
                '"' => f.write_str("\\\"")?,
                '\\' => f.write_str("\\\\")?,
                '\n' => f.write_str("\\n")?,
                '\r' => f.write_str("\\r")?,
                '\t' => f.write_str("\\t")?,
                control if control < ' ' => write!(f, "\\u{:04x}", u32::from(control))?,
                plain => f.write_char(plain)?,
            }
        }
        f.write_char('"')
    }
}
