//! JSON text → the bytes of a Struct, in one go.
//!
//! What `documents::to_struct` followed by encoding gives, without the tree in between: a configuration is read from
//! the database as text and goes out as a Struct, many times for each time it is written. Lengths stand before what
//! they count, so each is written as one byte and widened afterwards where that was too little, which moves only the
//! large ones. A name that occurs twice is told twice; whoever decodes keeps the last, as JSON readers do.

use std::fmt;

use prost::encoding::{WireType, encode_key, encode_varint};
use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};

use crate::limits::CONFIG_DEPTH_MAX;

/// Field numbers of google.protobuf: Struct.fields (a map of key and value), ListValue.values, and the kinds of Value.
mod tag {
    pub(super) const FIELDS: u32 = 1;
    pub(super) const KEY: u32 = 1;
    pub(super) const VALUE: u32 = 2;
    pub(super) const VALUES: u32 = 1;
    pub(super) const NULL: u32 = 1;
    pub(super) const NUMBER: u32 = 2;
    pub(super) const STRING: u32 = 3;
    pub(super) const BOOL: u32 = 4;
    pub(super) const STRUCT: u32 = 5;
    pub(super) const LIST: u32 = 6;
}

/// The bytes; none for what is not an object, which nobody could have stored.
pub fn of_text(text: &str) -> Vec<u8> {
    // Punctuation goes, tags and lengths come: about the same.
    let mut out = Vec::with_capacity(text.len() + text.len() / 4);
    let mut json = serde_json::Deserializer::from_str(text);
    match json.deserialize_map(Fields { out: &mut out, depth: 0 }) {
        Ok(()) => out,
        Err(_) => Vec::new(),
    }
}

/// A field that is counted in bytes, with whatever `content` appends as its content.
fn counted<T>(out: &mut Vec<u8>, tag: u32, content: impl FnOnce(&mut Vec<u8>) -> T) -> T {
    encode_key(tag, WireType::LengthDelimited, out);
    let place = out.len();
    out.push(0);
    let result = content(out);
    let length = out.len() - place - 1;
    match u8::try_from(length).ok().filter(|short| *short < 0x80) {
        Some(short) => out[place] = short,
        None => {
            let mut wide = Vec::with_capacity(5);
            encode_varint(length as u64, &mut wide);
            out.splice(place..=place, wide);
        }
    }
    result
}

fn string(out: &mut Vec<u8>, tag: u32, text: &str) {
    encode_key(tag, WireType::LengthDelimited, out);
    encode_varint(text.len() as u64, out);
    out.extend_from_slice(text.as_bytes());
}

/// Appends the fields of a Struct.
struct Fields<'o> {
    out: &'o mut Vec<u8>,
    depth: usize,
}

/// Appends a name as the key of a map entry.
struct Name<'o>(&'o mut Vec<u8>);

/// Appends a Value.
struct Value<'o> {
    out: &'o mut Vec<u8>,
    depth: usize,
}

fn deeper<E: Error>(depth: usize) -> Result<usize, E> {
    if depth < CONFIG_DEPTH_MAX { Ok(depth + 1) } else { Err(E::custom("nested too deep")) }
}

impl<'de> Visitor<'de> for Fields<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let depth = deeper(self.depth)?;
        loop {
            // An entry is begun before it is known that there is one, and taken back if there is none.
            let begin = self.out.len();
            let more = counted(self.out, tag::FIELDS, |entry| {
                if map.next_key_seed(Name(entry))?.is_none() {
                    return Ok(false);
                }
                counted(entry, tag::VALUE, |out| map.next_value_seed(Value { out, depth }))?;
                Ok(true)
            })?;
            if !more {
                self.out.truncate(begin);
                return Ok(());
            }
        }
    }
}

impl<'de> DeserializeSeed<'de> for Name<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_str(self)
    }
}

impl Visitor<'_> for Name<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a name")
    }

    fn visit_str<E>(self, text: &str) -> Result<(), E> {
        string(self.0, tag::KEY, text);
        Ok(())
    }
}

impl<'de> DeserializeSeed<'de> for Value<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_any(self)
    }
}

impl Value<'_> {
    fn number(self, number: f64) {
        encode_key(tag::NUMBER, WireType::SixtyFourBit, self.out);
        self.out.extend_from_slice(&number.to_le_bytes());
    }

    fn small(self, tag: u32, value: u8) {
        encode_key(tag, WireType::Varint, self.out);
        self.out.push(value);
    }
}

impl<'de> Visitor<'de> for Value<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<(), A::Error> {
        counted(self.out, tag::STRUCT, |out| Fields { out, depth: self.depth }.visit_map(map))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        let depth = deeper(self.depth)?;
        counted(self.out, tag::LIST, |out| {
            loop {
                let begin = out.len();
                let more = counted(out, tag::VALUES, |out| list.next_element_seed(Value { out, depth }))?;
                if more.is_none() {
                    out.truncate(begin);
                    return Ok(());
                }
            }
        })
    }

    fn visit_str<E>(self, text: &str) -> Result<(), E> {
        string(self.out, tag::STRING, text);
        Ok(())
    }

    fn visit_bool<E>(self, flag: bool) -> Result<(), E> {
        self.small(tag::BOOL, flag.into());
        Ok(())
    }

    fn visit_i64<E>(self, number: i64) -> Result<(), E> {
        self.number(number as f64);
        Ok(())
    }

    fn visit_u64<E>(self, number: u64) -> Result<(), E> {
        self.number(number as f64);
        Ok(())
    }

    fn visit_f64<E>(self, number: f64) -> Result<(), E> {
        self.number(number);
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        self.small(tag::NULL, 0);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use prost::Message as _;
    use prost_types::Struct;

    use super::*;
    use crate::documents;

    #[test]
    fn the_bytes_are_those_of_the_tree() {
        let long = format!(r#"{{"{}":{{"text":"{}"}}}}"#, "n".repeat(200), "ä\\n".repeat(20_000));
        let wide = format!("{{\"list\":[{}]}}", vec!["{\"a\":[1,{}]}"; 500].join(","));
        let deep = format!("{}1{}", "{\"a\":".repeat(CONFIG_DEPTH_MAX), "}".repeat(CONFIG_DEPTH_MAX));
        let deeper = format!("{}1{}", "{\"a\":".repeat(CONFIG_DEPTH_MAX + 1), "}".repeat(CONFIG_DEPTH_MAX + 1));
        let texts = [
            "{}",
            r#"{"":""}"#,
            r#"{"a":null,"b":true,"c":false,"d":"x\u00e9\n","e":-0.5,"f":[],"g":{},"h":[[],[1,[2,"3"]],{"i":{"j":0}}]}"#,
            r#"{"big":18446744073709551615,"small":-9223372036854775808,"f":1e300}"#,
            r#"{"twice":1,"twice":{"last":"wins"}}"#,
            r#"{"z":1,"a":2}"#,
            "[1]",
            "nonsense",
            r#"{"cut":"#,
            &long,
            &wide,
            &deeper,
        ];
        for text in texts {
            let bytes = of_text(text);
            assert_eq!(Struct::decode(&*bytes).unwrap(), documents::to_struct(text), "{text:.80}");
        }
        // Deeper than our own decoder goes.
        assert_eq!(of_text(&deep), documents::to_struct(&deep).encode_to_vec());
    }

    #[test]
    fn every_length_of_a_length() {
        for length in (0..300).chain([16_382, 16_383, 16_384, 16_385]) {
            let text = format!("{{\"a\":[\"{}\"]}}", "x".repeat(length));
            assert_eq!(Struct::decode(&*of_text(&text)).unwrap(), documents::to_struct(&text), "{length}");
        }
    }
}
