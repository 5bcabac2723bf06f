//! Values to bytes.

use super::{Value, read::alignment};

/// Writes values one after the other. What is written must be sound.
#[derive(Default)]
pub(super) struct Writer {
    pub bytes: Vec<u8>,
    /// The greatest byte first, as some machines do; ours never do, whatever they are.
    pub big: bool,
}

impl Writer {
    pub(super) fn align(&mut self, to: usize) {
        self.bytes.resize(self.bytes.len().next_multiple_of(to), 0);
    }

    fn fixed<const N: usize>(&mut self, mut bytes: [u8; N]) {
        if self.big {
            bytes.reverse();
        }
        self.align(N);
        self.bytes.extend_from_slice(&bytes);
    }

    pub(super) fn u8(&mut self, byte: u8) {
        self.bytes.push(byte);
    }

    pub(super) fn u32(&mut self, number: u32) {
        self.fixed(number.to_le_bytes());
    }

    fn length(&mut self, length: usize) {
        self.u32(u32::try_from(length).unwrap_or(u32::MAX));
    }

    pub(super) fn text(&mut self, text: &str) {
        self.length(text.len());
        self.bytes.extend_from_slice(text.as_bytes());
        self.u8(0);
    }

    pub(super) fn signature(&mut self, signature: &str) {
        self.u8(u8::try_from(signature.len()).unwrap_or(u8::MAX));
        self.bytes.extend_from_slice(signature.as_bytes());
        self.u8(0);
    }

    /// A list: its length in front, which is known afterwards, and does not count the padding before its first value.
    pub(super) fn list(&mut self, alignment: usize, write: impl FnOnce(&mut Writer)) {
        self.u32(0);
        let at = self.bytes.len();
        self.align(alignment);
        let begin = self.bytes.len();
        write(self);
        let length = u32::try_from(self.bytes.len() - begin).unwrap_or(u32::MAX);
        let length = if self.big { length.to_be_bytes() } else { length.to_le_bytes() };
        if let Some(place) = self.bytes.get_mut(at - length.len()..at) {
            place.copy_from_slice(&length);
        }
    }

    pub(super) fn value(&mut self, value: &Value) {
        match value {
            Value::U8(number) => self.u8(*number),
            Value::Bool(yes) => self.u32(u32::from(*yes)),
            Value::I16(number) => self.fixed(number.to_le_bytes()),
            Value::U16(number) => self.fixed(number.to_le_bytes()),
            Value::I32(number) => self.fixed(number.to_le_bytes()),
            Value::U32(number) | Value::Descriptor(number) => self.u32(*number),
            Value::I64(number) => self.fixed(number.to_le_bytes()),
            Value::U64(number) => self.fixed(number.to_le_bytes()),
            Value::F64(number) => self.fixed(number.to_le_bytes()),
            Value::Text(text) | Value::Path(text) => self.text(text),
            Value::Signature(signature) => self.signature(signature),
            Value::Bytes(bytes) => {
                self.length(bytes.len());
                self.bytes.extend_from_slice(bytes);
            }
            Value::List(of, values) => {
                self.list(alignment(of), |writer| values.iter().for_each(|value| writer.value(value)));
            }
            Value::Map(_, entries) => self.list(8, |writer| {
                for (key, value) in entries {
                    writer.align(8);
                    writer.value(key);
                    writer.value(value);
                }
            }),
            Value::Structure(fields) => {
                self.align(8);
                fields.iter().for_each(|field| self.value(field));
            }
            Value::Variant(inner) => {
                let mut signature = String::new();
                inner.signature(&mut signature);
                self.signature(&signature);
                self.value(inner);
            }
        }
    }
}
