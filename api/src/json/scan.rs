//! One pass over a document that says whether it is JSON.
//!
//! A loop with one state and a word of bits for what is open; it never calls itself, so no document overflows a stack.
//! Later steps over the same text (`value.rs`) rely on this check and need no errors.

use super::error::{Found, JsonError, Problem};

/// What must come next.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Want {
    Value,
    ValueOrEnd,
    Key,
    KeyOrEnd,
    CommaOrEnd,
    Nothing,
}

impl Want {
    fn text(self, open: Nesting) -> &'static str {
        match (self, open.in_list()) {
            (Want::Value, _) => "a value",
            (Want::ValueOrEnd, _) => "a value or ']'",
            (Want::Key, _) => "a key in double quotes",
            (Want::KeyOrEnd, _) => "a key in double quotes or '}'",
            (Want::CommaOrEnd, true) => "',' or ']'",
            (Want::CommaOrEnd, false) => "',' or '}'",
            (Want::Nothing, _) => "nothing after the document",
        }
    }
}

/// The open objects (0) and lists (1), innermost in the lowest bit.
#[derive(Clone, Copy, Default)]
struct Nesting {
    depth: u32,
    lists: u64,
}

impl Nesting {
    fn in_list(self) -> bool {
        self.depth > 0 && self.lists & 1 == 1
    }

    fn open(&mut self, list: bool) {
        self.depth += 1;
        self.lists = self.lists << 1 | u64::from(list);
    }

    /// Closes the innermost and says what must follow.
    fn close(&mut self) -> Want {
        self.depth = self.depth.saturating_sub(1);
        self.lists >>= 1;
        self.after_value()
    }

    fn after_value(self) -> Want {
        if self.depth == 0 { Want::Nothing } else { Want::CommaOrEnd }
    }
}

/// Refuses what is not JSON or deeper than `depth`, which is at most 64.
pub(super) fn check(text: &str, depth: u32) -> Result<(), JsonError> {
    if text.starts_with('\u{feff}') {
        return Err(JsonError::at_start(Problem::ByteOrderMark));
    }
    let mut cursor = Cursor { text, at: 0 };
    let mut open = Nesting::default();
    let mut want = Want::Value;
    loop {
        cursor.skip_blank();
        let Some(byte) = cursor.peek() else {
            return if want == Want::Nothing { Ok(()) } else { Err(cursor.unexpected(want.text(open))) };
        };
        want = match (want, byte) {
            (Want::Value | Want::ValueOrEnd, b'{' | b'[') => {
                if open.depth == depth {
                    return Err(cursor.error(Problem::TooDeep { allowed: depth }));
                }
                cursor.at += 1;
                open.open(byte == b'[');
                if byte == b'[' { Want::ValueOrEnd } else { Want::KeyOrEnd }
            }
            (Want::Value | Want::ValueOrEnd, b'"') => {
                cursor.string()?;
                open.after_value()
            }
            (Want::Value | Want::ValueOrEnd, b'-' | b'0'..=b'9') => {
                cursor.number()?;
                open.after_value()
            }
            (Want::Value | Want::ValueOrEnd, b't' | b'f' | b'n') => {
                cursor.word(want.text(open))?;
                open.after_value()
            }
            (Want::Key | Want::KeyOrEnd, b'"') => {
                cursor.string()?;
                cursor.skip_blank();
                if cursor.peek() != Some(b':') {
                    return Err(cursor.unexpected("':' after the key"));
                }
                cursor.at += 1;
                Want::Value
            }
            (Want::CommaOrEnd, b',') => {
                cursor.at += 1;
                if open.in_list() { Want::Value } else { Want::Key }
            }
            (Want::ValueOrEnd, b']') | (Want::KeyOrEnd, b'}') => {
                cursor.at += 1;
                open.close()
            }
            (Want::CommaOrEnd, b']') if open.in_list() => {
                cursor.at += 1;
                open.close()
            }
            (Want::CommaOrEnd, b'}') if !open.in_list() => {
                cursor.at += 1;
                open.close()
            }
            (Want::Value | Want::ValueOrEnd | Want::Key | Want::KeyOrEnd | Want::CommaOrEnd | Want::Nothing, b'/') => {
                return Err(cursor.error(Problem::Comment { expected: want.text(open) }));
            }
            (Want::Value | Want::ValueOrEnd | Want::Key | Want::KeyOrEnd | Want::CommaOrEnd | Want::Nothing, _) => {
                return Err(cursor.unexpected(want.text(open)));
            }
        };
    }
}

/// A place in the text that moves forward.
struct Cursor<'a> {
    text: &'a str,
    at: usize,
}

impl Cursor<'_> {
    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn next(&mut self) -> Option<u8> {
        let byte = self.peek()?;
        self.at += 1;
        Some(byte)
    }

    fn skip_blank(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\r' | b'\n')) {
            self.at += 1;
        }
    }

    fn error(&self, problem: Problem) -> JsonError {
        JsonError::new(self.text.as_bytes(), self.at, problem)
    }

    fn unexpected(&self, expected: &'static str) -> JsonError {
        // Inside a character of several bytes only after an error within it, which cannot be: all we look for is ASCII.
        let found = self.text.get(self.at..).and_then(|rest| rest.chars().next()).map_or(Found::End, Found::Char);
        self.error(Problem::Unexpected { expected, found })
    }

    fn unexpected_before(&mut self, expected: &'static str) -> JsonError {
        self.at -= 1;
        self.unexpected(expected)
    }

    fn word(&mut self, expected: &'static str) -> Result<(), JsonError> {
        let rest = self.text.get(self.at..).unwrap_or_default();
        let Some(word) = ["true", "false", "null"].into_iter().find(|word| rest.starts_with(word)) else {
            return Err(self.unexpected(expected));
        };
        self.at += word.len();
        Ok(())
    }

    fn number(&mut self) -> Result<(), JsonError> {
        if self.peek() == Some(b'-') {
            self.at += 1;
        }
        if self.peek() == Some(b'0') {
            self.at += 1;
            if matches!(self.peek(), Some(b'0'..=b'9')) {
                return Err(self.unexpected("no digit after a leading zero"));
            }
        } else {
            self.digits()?;
        }
        if self.peek() == Some(b'.') {
            self.at += 1;
            self.digits()?;
        }
        if matches!(self.peek(), Some(b'e' | b'E')) {
            self.at += 1;
            if matches!(self.peek(), Some(b'+' | b'-')) {
                self.at += 1;
            }
            self.digits()?;
        }
        Ok(())
    }

    fn digits(&mut self) -> Result<(), JsonError> {
        if !matches!(self.peek(), Some(b'0'..=b'9')) {
            return Err(self.unexpected("a digit"));
        }
        while matches!(self.peek(), Some(b'0'..=b'9')) {
            self.at += 1;
        }
        Ok(())
    }

    /// From the opening quote to behind the closing one. Escapes are checked here, so that decoding cannot fail.
    fn string(&mut self) -> Result<(), JsonError> {
        self.at += 1;
        loop {
            match self.next() {
                Some(b'"') => return Ok(()),
                Some(b'\\') => self.escape()?,
                Some(0..=0x1F) => {
                    return Err(self.unexpected_before("an escape such as \\n for a control character in text"));
                }
                Some(_) => {}
                None => return Err(self.unexpected("a closing '\"'")),
            }
        }
    }

    fn escape(&mut self) -> Result<(), JsonError> {
        match self.next() {
            Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => Ok(()),
            Some(b'u') => match self.four_hex()? {
                0xDC00..=0xDFFF => Err(self.unexpected("the first half of a surrogate pair before the second")),
                0xD800..=0xDBFF => self.second_half(),
                _ => Ok(()),
            },
            Some(_) => Err(self.unexpected_before("one of \" \\ / b f n r t u after '\\'")),
            None => Err(self.unexpected("one of \" \\ / b f n r t u after '\\'")),
        }
    }

    fn second_half(&mut self) -> Result<(), JsonError> {
        const EXPECTED: &str = "the second half of a surrogate pair, such as \\uDE00";
        for expected in [b'\\', b'u'] {
            if self.peek() != Some(expected) {
                return Err(self.unexpected(EXPECTED));
            }
            self.at += 1;
        }
        match self.four_hex()? {
            0xDC00..=0xDFFF => Ok(()),
            _ => Err(self.unexpected(EXPECTED)),
        }
    }

    fn four_hex(&mut self) -> Result<u32, JsonError> {
        let mut unit = 0;
        for _ in 0..4 {
            let Some(digit) = self.peek().and_then(|byte| char::from(byte).to_digit(16)) else {
                return Err(self.unexpected("four hexadecimal digits after \\u"));
            };
            unit = unit << 4 | digit;
            self.at += 1;
        }
        Ok(unit)
    }
}
