//! A place in a checked document.
//!
//! Every step here relies on `scan::check` having seen the whole text: what cannot be read is answered with `None`
//! rather than with an error nobody could act on, and never with a panic. Steps are loops; a value is skipped by counting
//! brackets.

use super::error::{JsonError, Position, Problem};
use std::{borrow::Cow, fmt};

/// Doubles hold every integer up to here; beyond, `1e17` and its neighbour are the same number.
const EXACT_INTEGER_MAX: f64 = 9_007_199_254_740_992.0;

/// What a value is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `{…}`
    Object,
    /// `[…]`
    List,
    /// `"…"`
    Text,
    /// `1`, `-2.5e3`
    Number,
    /// `true` or `false`
    Bool,
    /// `null`
    Null,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kind::Object => "an object",
            Kind::List => "a list",
            Kind::Text => "text",
            Kind::Number => "a number",
            Kind::Bool => "true or false",
            Kind::Null => "null",
        })
    }
}

/// A value inside a checked document. Copies are free; equal are values with the same bytes.
#[derive(Clone, Copy)]
pub struct Value<'a> {
    document: &'a str,
    start: usize,
    end: usize,
}

/// Documents hold secrets: only kind and place are shown.
impl fmt::Debug for Value<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {}", self.kind(), self.position())
    }
}

impl<'a> Value<'a> {
    /// The outermost value of a text that `scan::check` accepted.
    pub(super) fn root(document: &'a str) -> Value<'a> {
        let bytes = document.as_bytes();
        let start = skip_blank(bytes, 0);
        Value { document, start, end: skip_value(bytes, start) }
    }

    /// What it is.
    pub fn kind(self) -> Kind {
        match self.document.as_bytes().get(self.start) {
            Some(b'{') => Kind::Object,
            Some(b'[') => Kind::List,
            Some(b'"') => Kind::Text,
            Some(b't' | b'f') => Kind::Bool,
            Some(b'-' | b'0'..=b'9') => Kind::Number,
            _ => Kind::Null,
        }
    }

    /// Its bytes exactly as they stand in the document, without the blanks around it.
    pub fn raw(self) -> &'a str {
        self.document.get(self.start..self.end).unwrap_or_default()
    }

    /// Where it begins. Counted on request; a document has few values worth a message.
    pub fn position(self) -> Position {
        Position::of(self.document.as_bytes(), self.start)
    }

    /// The entry of that name, the last one if there are several.
    pub fn get(self, key: &str) -> Option<Value<'a>> {
        self.entries().filter(|(name, _)| name == key).last().map(|(_, value)| value)
    }

    /// The entry of that name, where a second one must not be overlooked.
    pub fn get_once(self, key: &str) -> Result<Option<Value<'a>>, JsonError> {
        let mut found = None;
        for (_, value) in self.entries().filter(|(name, _)| name == key) {
            if found.replace(value).is_some() {
                return Err(JsonError { position: value.position(), problem: Problem::KeyTwice });
            }
        }
        Ok(found)
    }

    /// Keys and values in the order of the document; empty if it is no object.
    pub fn entries(self) -> Entries<'a> {
        Entries { document: self.document, at: self.inside(Kind::Object) }
    }

    /// The values of a list; empty if it is none.
    pub fn items(self) -> Items<'a> {
        Items { document: self.document, at: self.inside(Kind::List) }
    }

    fn inside(self, kind: Kind) -> usize {
        if self.kind() == kind { self.start + 1 } else { self.document.len() }
    }

    /// The text, decoded; borrowed if nothing was escaped.
    pub fn as_text(self) -> Option<Cow<'a, str>> {
        let inner = self.raw().strip_prefix('"')?.strip_suffix('"')?;
        Some(decode(inner))
    }

    /// `true` or `false`.
    pub fn as_bool(self) -> Option<bool> {
        match self.raw() {
            "true" => Some(true),
            "false" => Some(false),
            _ => None,
        }
    }

    /// The number; very large ones are infinite.
    pub fn as_f64(self) -> Option<f64> {
        (self.kind() == Kind::Number).then(|| self.raw().parse().ok()).flatten()
    }

    /// The number if it is an integer; `10.0` and `1e1` are.
    pub fn as_i64(self) -> Option<i64> {
        if self.kind() != Kind::Number {
            return None;
        }
        self.raw().parse().ok().or_else(|| integral(self.as_f64()?))
    }

    /// The number if it is an integer and not negative.
    pub fn as_u64(self) -> Option<u64> {
        if self.kind() != Kind::Number {
            return None;
        }
        self.raw().parse().ok().or_else(|| u64::try_from(self.as_i64()?).ok())
    }
}

/// A double that is an integer, as the integer.
pub(crate) fn integral(number: f64) -> Option<i64> {
    let exact = number.fract() == 0.0 && number.abs() <= EXACT_INTEGER_MAX;
    #[expect(clippy::cast_possible_truncation, reason = "whole, and within what both types hold")]
    exact.then_some(number as i64)
}

/// Keys and values of an object.
#[derive(Clone)]
pub struct Entries<'a> {
    document: &'a str,
    at: usize,
}

impl<'a> Iterator for Entries<'a> {
    type Item = (Cow<'a, str>, Value<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        let bytes = self.document.as_bytes();
        let key = skip_separators(bytes, self.at);
        if bytes.get(key) != Some(&b'"') {
            self.at = bytes.len();
            return None;
        }
        let after_key = skip_string(bytes, key);
        let name = Value { document: self.document, start: key, end: after_key }.as_text()?;
        let start = skip_separators(bytes, after_key);
        let value = Value { document: self.document, start, end: skip_value(bytes, start) };
        self.at = value.end;
        Some((name, value))
    }
}

/// Values of a list.
#[derive(Clone)]
pub struct Items<'a> {
    document: &'a str,
    at: usize,
}

impl<'a> Iterator for Items<'a> {
    type Item = Value<'a>;

    fn next(&mut self) -> Option<Self::Item> {
        let bytes = self.document.as_bytes();
        let start = skip_separators(bytes, self.at);
        if matches!(bytes.get(start), None | Some(b']' | b'}')) {
            self.at = bytes.len();
            return None;
        }
        self.at = skip_value(bytes, start);
        Some(Value { document: self.document, start, end: self.at })
    }
}

fn skip_blank(bytes: &[u8], mut at: usize) -> usize {
    while matches!(bytes.get(at), Some(b' ' | b'\t' | b'\r' | b'\n')) {
        at += 1;
    }
    at
}

/// To the next key, value or closing bracket. Which separators stand between was checked before.
fn skip_separators(bytes: &[u8], mut at: usize) -> usize {
    while matches!(bytes.get(at), Some(b' ' | b'\t' | b'\r' | b'\n' | b',' | b':')) {
        at += 1;
    }
    at
}

/// From an opening quote to behind the closing one.
fn skip_string(bytes: &[u8], start: usize) -> usize {
    let mut at = start + 1;
    loop {
        match bytes.get(at) {
            Some(b'"') => return at + 1,
            Some(b'\\') => at += 2,
            Some(_) => at += 1,
            None => return bytes.len(),
        }
    }
}

/// From the first byte of a value to behind its last.
fn skip_value(bytes: &[u8], start: usize) -> usize {
    let mut open = 0_u32;
    let mut at = start;
    loop {
        match bytes.get(at) {
            Some(b'"') => at = skip_string(bytes, at),
            Some(b'{' | b'[') => {
                open += 1;
                at += 1;
            }
            Some(b'}' | b']') if open > 0 => {
                open -= 1;
                at += 1;
            }
            Some(b' ' | b'\t' | b'\r' | b'\n' | b',' | b':') if open > 0 => at += 1,
            Some(b' ' | b'\t' | b'\r' | b'\n' | b',' | b':' | b'}' | b']') | None => return at,
            Some(_) => {
                while !matches!(
                    bytes.get(at),
                    None | Some(b' ' | b'\t' | b'\r' | b'\n' | b',' | b':' | b'{' | b'}' | b'[' | b']')
                ) {
                    at += 1;
                }
            }
        }
        if open == 0 {
            return at;
        }
    }
}

/// Escapes become characters. The scan has checked them, so an unreadable one cannot be here and is left out.
fn decode(inner: &str) -> Cow<'_, str> {
    if !inner.contains('\\') {
        return Cow::Borrowed(inner);
    }
    let mut text = String::with_capacity(inner.len());
    let mut rest = inner.chars();
    while let Some(character) = rest.next() {
        if character != '\\' {
            text.push(character);
            continue;
        }
        match rest.next() {
            Some('b') => text.push('\u{8}'),
            Some('f') => text.push('\u{c}'),
            Some('n') => text.push('\n'),
            Some('r') => text.push('\r'),
            Some('t') => text.push('\t'),
            Some('u') => text.extend(unicode(&mut rest)),
            Some(itself) => text.push(itself),
            None => {}
        }
    }
    Cow::Owned(text)
}

fn unicode(rest: &mut std::str::Chars<'_>) -> Option<char> {
    let first = unit(rest)?;
    if !(0xD800..0xDC00).contains(&first) {
        return char::from_u32(first);
    }
    (rest.next()? == '\\' && rest.next()? == 'u').then_some(())?;
    let second = unit(rest)?.checked_sub(0xDC00)?;
    char::from_u32(0x10000 + ((first - 0xD800) << 10) + second)
}

fn unit(rest: &mut std::str::Chars<'_>) -> Option<u32> {
    let mut unit = 0;
    for _ in 0..4 {
        unit = unit << 4 | rest.next()?.to_digit(16)?;
    }
    Some(unit)
}
