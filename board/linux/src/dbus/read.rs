//! Bytes to values, in either order of bytes. Nothing is taken that the specification forbids.

use super::{Error, Value, names};

/// Most values in one message; what is made of it stays within some megabytes.
pub const VALUES_MAX: usize = 200_000;
/// Deepest nesting of values.
const DEEP: usize = 64;
/// Longest list, in bytes.
const LIST_MAX: usize = 64 << 20;

/// Reads values one after the other.
pub(super) struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
    big: bool,
    left: usize,
}

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8], big: bool) -> Reader<'a> {
        Reader { bytes, at: 0, big, left: VALUES_MAX }
    }

    /// All values of a signature, which must be all that there is.
    pub(super) fn values(&mut self, signature: &str) -> Result<Vec<Value>, Error> {
        let mut values = Vec::new();
        let mut rest = signature;
        while !rest.is_empty() {
            let (one, behind) = names::first(rest).ok_or(Error::Nonsense("a type that is none"))?;
            values.push(self.value(one, 0)?);
            rest = behind;
        }
        if self.at < self.bytes.len() { Err(Error::Nonsense("more bytes than values")) } else { Ok(values) }
    }

    /// The value of one complete type.
    fn value(&mut self, kind: &str, depth: usize) -> Result<Value, Error> {
        self.left = self.left.checked_sub(1).ok_or(Error::Nonsense("too many values"))?;
        if depth > DEEP {
            return Err(Error::Nonsense("nested too deeply"));
        }
        Ok(match kind.as_bytes() {
            b"y" => Value::U8(self.fixed::<1>()?[0]),
            b"b" => match self.u32()? {
                0 => Value::Bool(false),
                1 => Value::Bool(true),
                _ => return Err(Error::Nonsense("neither yes nor no")),
            },
            b"n" => Value::I16(i16::from_le_bytes(self.fixed()?)),
            b"q" => Value::U16(u16::from_le_bytes(self.fixed()?)),
            b"i" => Value::I32(i32::from_le_bytes(self.fixed()?)),
            b"u" => Value::U32(self.u32()?),
            b"x" => Value::I64(i64::from_le_bytes(self.fixed()?)),
            b"t" => Value::U64(u64::from_le_bytes(self.fixed()?)),
            b"d" => Value::F64(f64::from_le_bytes(self.fixed()?)),
            b"h" => Value::Descriptor(self.u32()?),
            b"s" => Value::Text(self.text()?.to_owned()),
            b"o" => Value::Path(self.path()?.to_owned()),
            b"g" => Value::Signature(self.signature()?.to_owned()),
            b"v" => {
                let kind = self.signature()?;
                if !names::is_one(kind) {
                    return Err(Error::Nonsense("a variant that is not of one type"));
                }
                Value::Variant(Box::new(self.value(kind, depth + 1)?))
            }
            b"ay" => {
                let length = self.length()?;
                Value::Bytes(self.take(length)?.to_vec())
            }
            [b'a', b'{', ..] => {
                let of = kind.get(2..kind.len().saturating_sub(1)).unwrap_or_default();
                let (key, value) = of.split_at_checked(1).ok_or(Error::Nonsense("a map without types"))?;
                let end = self.list_end(8)?;
                let mut entries = Vec::new();
                while self.at < end {
                    self.align(8)?;
                    entries.push((self.value(key, depth + 2)?, self.value(value, depth + 2)?));
                }
                self.ended(end)?;
                Value::Map(of.into(), entries)
            }
            [b'a', ..] => {
                let of = kind.get(1..).unwrap_or_default();
                let end = self.list_end(alignment(of))?;
                let mut values = Vec::new();
                while self.at < end {
                    values.push(self.value(of, depth + 1)?);
                }
                self.ended(end)?;
                Value::List(of.into(), values)
            }
            [b'(', ..] => {
                self.align(8)?;
                let mut rest = kind.get(1..kind.len().saturating_sub(1)).unwrap_or_default();
                let mut fields = Vec::new();
                while let Some((one, behind)) = names::first(rest) {
                    fields.push(self.value(one, depth + 1)?);
                    rest = behind;
                }
                Value::Structure(fields)
            }
            _ => return Err(Error::Nonsense("a type that is none")),
        })
    }

    /// The same place in fewer bytes.
    pub(super) fn within(self, bytes: &'a [u8]) -> Reader<'a> {
        Reader { bytes, ..self }
    }

    /// A value with its type in front.
    pub(super) fn variant(&mut self) -> Result<Value, Error> {
        let kind = self.signature()?;
        if !names::is_one(kind) {
            return Err(Error::Nonsense("a variant that is not of one type"));
        }
        self.value(kind, 1)
    }

    pub(super) fn is_at_end(&self) -> bool {
        self.at >= self.bytes.len()
    }

    /// Padding before a value; it has to be zero.
    pub(super) fn align(&mut self, to: usize) -> Result<(), Error> {
        let padding = self.at.next_multiple_of(to) - self.at;
        if self.take(padding)?.iter().any(|byte| *byte != 0) {
            return Err(Error::Nonsense("padding that is not empty"));
        }
        Ok(())
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], Error> {
        let end = self.at.checked_add(length);
        let taken = end.and_then(|end| self.bytes.get(self.at..end)).ok_or(Error::Nonsense("a value is cut off"))?;
        self.at += length;
        Ok(taken)
    }

    /// A number's bytes, the least first.
    fn fixed<const N: usize>(&mut self) -> Result<[u8; N], Error> {
        self.align(N)?;
        let mut bytes = *self.take(N)?.first_chunk::<N>().ok_or(Error::Nonsense("a value is cut off"))?;
        if self.big {
            bytes.reverse();
        }
        Ok(bytes)
    }

    pub(super) fn u32(&mut self) -> Result<u32, Error> {
        self.fixed().map(u32::from_le_bytes)
    }

    pub(super) fn u8(&mut self) -> Result<u8, Error> {
        self.fixed::<1>().map(|[byte]| byte)
    }

    fn length(&mut self) -> Result<usize, Error> {
        let length = usize::try_from(self.u32()?).unwrap_or(usize::MAX);
        if length > LIST_MAX { Err(Error::Nonsense("a list that is too long")) } else { Ok(length) }
    }

    /// Where a list ends that begins here.
    fn list_end(&mut self, alignment: usize) -> Result<usize, Error> {
        let length = self.length()?;
        self.align(alignment)?;
        let end = self.at.saturating_add(length);
        if end > self.bytes.len() { Err(Error::Nonsense("a list is cut off")) } else { Ok(end) }
    }

    fn ended(&self, end: usize) -> Result<(), Error> {
        if self.at == end { Ok(()) } else { Err(Error::Nonsense("a list of another length than it says")) }
    }

    fn terminated(&mut self, length: usize) -> Result<&'a str, Error> {
        let text = std::str::from_utf8(self.take(length)?).map_err(|_| Error::Nonsense("a text that is none"))?;
        if self.take(1)? != [0] || text.contains('\0') {
            return Err(Error::Nonsense("a text that does not end where it says"));
        }
        Ok(text)
    }

    pub(super) fn text(&mut self) -> Result<&'a str, Error> {
        let length = self.length()?;
        self.terminated(length)
    }

    pub(super) fn path(&mut self) -> Result<&'a str, Error> {
        let path = self.text()?;
        if names::is_path(path) { Ok(path) } else { Err(Error::Nonsense("a path that is none")) }
    }

    pub(super) fn signature(&mut self) -> Result<&'a str, Error> {
        let length = usize::from(self.u8()?);
        let signature = self.terminated(length)?;
        if names::is_signature(signature) { Ok(signature) } else { Err(Error::Nonsense("a type that is none")) }
    }
}

/// Where a value of this type may begin.
pub(super) fn alignment(kind: &str) -> usize {
    match kind.as_bytes().first() {
        Some(b'y' | b'g' | b'v') => 1,
        Some(b'n' | b'q') => 2,
        Some(b'x' | b't' | b'd' | b'(' | b'{') => 8,
        _ => 4,
    }
}
