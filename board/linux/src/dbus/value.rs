//! One value of any type, and what can be asked of it. A value of another type than is asked for is an absent one.

use std::fmt;

use super::names;

/// A value of the bus. Shown by its type alone: it may hold a password.
#[derive(Clone, PartialEq)]
pub enum Value {
    /// `y`
    U8(u8),
    /// `b`
    Bool(bool),
    /// `n`
    I16(i16),
    /// `q`
    U16(u16),
    /// `i`
    I32(i32),
    /// `u`
    U32(u32),
    /// `x`
    I64(i64),
    /// `t`
    U64(u64),
    /// `d`
    F64(f64),
    /// `s`
    Text(String),
    /// `o`
    Path(String),
    /// `g`
    Signature(String),
    /// `h`: which of a message's descriptors; none are ever taken.
    Descriptor(u32),
    /// `ay`
    Bytes(Vec<u8>),
    /// `a…`: the type of each, and the values.
    List(Box<str>, Vec<Value>),
    /// `a{…}`: the types of keys and values one after the other, and the entries in order.
    Map(Box<str>, Vec<(Value, Value)>),
    /// `(…)`
    Structure(Vec<Value>),
    /// `v`
    Variant(Box<Value>),
}

impl Value {
    /// A list of texts.
    pub fn texts<T: Into<String>>(texts: impl IntoIterator<Item = T>) -> Value {
        Value::List("s".into(), texts.into_iter().map(|text| Value::Text(text.into())).collect())
    }

    /// The path of an object.
    pub fn path(path: impl Into<String>) -> Value {
        Value::Path(path.into())
    }

    /// Names with values of any type (`a{sv}`).
    pub fn dict<K: Into<String>>(entries: impl IntoIterator<Item = (K, Value)>) -> Value {
        let entry = |(name, value): (K, Value)| (Value::Text(name.into()), Value::Variant(Box::new(value)));
        Value::Map("sv".into(), entries.into_iter().map(entry).collect())
    }

    /// Names with texts (`a{ss}`).
    pub fn dict_of_texts<K: Into<String>, T: Into<String>>(entries: impl IntoIterator<Item = (K, T)>) -> Value {
        let entry = |(name, text): (K, T)| (Value::Text(name.into()), Value::Text(text.into()));
        Value::Map("ss".into(), entries.into_iter().map(entry).collect())
    }

    /// Names with dictionaries (`a{sa{sv}}`).
    pub fn dict_of_dicts<K: Into<String>>(entries: impl IntoIterator<Item = (K, Value)>) -> Value {
        let entry = |(name, dict): (K, Value)| (Value::Text(name.into()), dict);
        Value::Map("sa{sv}".into(), entries.into_iter().map(entry).collect())
    }

    /// The value itself, out of any wrapping.
    #[must_use]
    pub fn bare(&self) -> &Value {
        let mut value = self;
        while let Value::Variant(inner) = value {
            value = inner;
        }
        value
    }

    /// A text, or the path of an object.
    #[must_use]
    pub fn text(&self) -> Option<&str> {
        match self.bare() {
            Value::Text(text) | Value::Path(text) => Some(text),
            _ => None,
        }
    }

    /// Yes or no.
    #[must_use]
    pub fn boolean(&self) -> Option<bool> {
        if let Value::Bool(value) = self.bare() { Some(*value) } else { None }
    }

    /// A number without sign, of at most 32 bits.
    #[must_use]
    pub fn unsigned(&self) -> Option<u32> {
        match self.bare() {
            Value::U8(number) => Some(u32::from(*number)),
            Value::U16(number) => Some(u32::from(*number)),
            Value::U32(number) => Some(*number),
            _ => None,
        }
    }

    /// A number with a sign.
    #[must_use]
    pub fn signed(&self) -> Option<i64> {
        match self.bare() {
            Value::I16(number) => Some(i64::from(*number)),
            Value::I32(number) => Some(i64::from(*number)),
            Value::I64(number) => Some(*number),
            _ => None,
        }
    }

    /// Bytes.
    #[must_use]
    pub fn bytes(&self) -> Option<&[u8]> {
        if let Value::Bytes(bytes) = self.bare() { Some(bytes) } else { None }
    }

    /// The values of a list; none of anything else.
    #[must_use]
    pub fn list(&self) -> &[Value] {
        if let Value::List(_, values) = self.bare() { values } else { &[] }
    }

    /// The entries of a map; `None` of anything else.
    #[must_use]
    pub fn entries(&self) -> Option<&[(Value, Value)]> {
        if let Value::Map(_, entries) = self.bare() { Some(entries) } else { None }
    }

    /// What a map has under a name (or path).
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.entries()?.iter().find_map(|(key, value)| (key.text() == Some(name)).then_some(value))
    }

    /// What a map of maps has under two names.
    #[must_use]
    pub fn at(&self, first: &str, second: &str) -> Option<&Value> {
        self.get(first)?.get(second)
    }

    /// The type.
    pub(super) fn signature(&self, out: &mut String) {
        let letter = match self {
            Value::U8(_) => 'y',
            Value::Bool(_) => 'b',
            Value::I16(_) => 'n',
            Value::U16(_) => 'q',
            Value::I32(_) => 'i',
            Value::U32(_) => 'u',
            Value::I64(_) => 'x',
            Value::U64(_) => 't',
            Value::F64(_) => 'd',
            Value::Text(_) => 's',
            Value::Path(_) => 'o',
            Value::Signature(_) => 'g',
            Value::Descriptor(_) => 'h',
            Value::Variant(_) => 'v',
            Value::Bytes(_) => return out.push_str("ay"),
            Value::List(of, _) => return out.extend(["a", of]),
            Value::Map(of, _) => return out.extend(["a{", of, "}"]),
            Value::Structure(fields) => {
                out.push('(');
                fields.iter().for_each(|field| field.signature(out));
                ')'
            }
        };
        out.push(letter);
    }

    /// Whether it can be sent: its texts, paths and types are what they say they are.
    pub(super) fn is_sound(&self) -> bool {
        let is = |value: &Value, of: &str| {
            let mut signature = String::new();
            value.signature(&mut signature);
            signature == of && value.is_sound()
        };
        match self {
            Value::Text(text) => !text.contains('\0'),
            Value::Path(path) => names::is_path(path),
            Value::Signature(signature) => names::is_signature(signature),
            Value::List(of, values) => names::is_one(of) && &**of != "y" && values.iter().all(|value| is(value, of)),
            Value::Map(of, entries) => {
                let Some((key, value)) = of.split_at_checked(1) else { return false };
                names::is_one(&format!("a{{{of}}}")) && entries.iter().all(|(k, v)| is(k, key) && is(v, value))
            }
            Value::Structure(fields) => !fields.is_empty() && fields.iter().all(Value::is_sound),
            Value::Variant(inner) => inner.is_sound(),
            _ => true,
        }
    }
}

impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut signature = String::new();
        self.signature(&mut signature);
        f.write_str(&signature)
    }
}

impl From<bool> for Value {
    fn from(value: bool) -> Value {
        Value::Bool(value)
    }
}

impl From<u8> for Value {
    fn from(value: u8) -> Value {
        Value::U8(value)
    }
}

impl From<u16> for Value {
    fn from(value: u16) -> Value {
        Value::U16(value)
    }
}

impl From<i32> for Value {
    fn from(value: i32) -> Value {
        Value::I32(value)
    }
}

impl From<u32> for Value {
    fn from(value: u32) -> Value {
        Value::U32(value)
    }
}

impl From<i64> for Value {
    fn from(value: i64) -> Value {
        Value::I64(value)
    }
}

impl From<&str> for Value {
    fn from(value: &str) -> Value {
        Value::Text(value.to_owned())
    }
}

impl From<String> for Value {
    fn from(value: String) -> Value {
        Value::Text(value)
    }
}

impl From<Vec<u8>> for Value {
    fn from(value: Vec<u8>) -> Value {
        Value::Bytes(value)
    }
}
