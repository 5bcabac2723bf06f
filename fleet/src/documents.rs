//! Configurations and metadata: JSON text at rest, a Struct on the wire.
//!
//! What a caller sends as text is kept letter by letter. What it sends as a Struct has lost its key order, and every
//! number is a double; whole ones (to 2^53, beyond which a double counts in twos) are written as integers, so that a
//! setting of 10 does not come back as 10.0. Values that only writers may know are masked here.

use std::{collections::BTreeMap, fmt};

use prost_types::{ListValue, Struct, Value, value::Kind};
use serde::{
    Serialize, Serializer,
    de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor},
    ser::{SerializeMap, SerializeSeq},
};

use crate::{
    limits::{CONFIG_BYTES_MAX, CONFIG_DEPTH_MAX},
    refusal::Refusal,
};

/// Beyond this a double cannot tell neighbouring integers apart.
const WHOLE_MAX: f64 = 9_007_199_254_740_992.0;
/// What callers without `write_robot` see instead.
pub const MASK: &str = "********";
/// Names of settings whose value is a password.
const PASSWORDS: [&str; 2] = ["psk", "hotspot_password"];

/// The text as it is, after a look: a JSON object, not too long, not too deep.
pub fn checked(field: &'static str, text: &str) -> Result<(), Refusal> {
    if text.len() > CONFIG_BYTES_MAX {
        return Err(Refusal::invalid(
            field,
            format_args!("has {} bytes: at most {CONFIG_BYTES_MAX} are kept", text.len()),
        ));
    }
    if text.contains('\0') {
        return Err(Refusal::invalid(field, "contains a NUL character: take it out"));
    }
    let mut json = serde_json::Deserializer::from_str(text);
    let looked = Look { depth: 0 }.deserialize(&mut json).and_then(|()| json.end());
    looked.map_err(|why| Refusal::invalid(field, format_args!("{}: send one JSON object", flaw(&why))))
}

/// What is wrong and where, without the value that was met there: it may be a password.
fn flaw(why: &serde_json::Error) -> String {
    let text = why.to_string();
    text.rsplit_once(", expected ").map_or_else(|| text.clone(), |(_, expected)| format!("expected {expected}"))
}

/// As JSON text.
pub fn to_text(field: &'static str, object: &Struct) -> Result<String, Refusal> {
    let text = serde_json::to_string(&Object(&object.fields)).map_err(|why| Refusal::invalid(field, why))?;
    checked(field, &text)?;
    Ok(text)
}

/// As a Struct; text that was stored is an object, because [`checked`] saw it.
pub fn to_struct(text: &str) -> Struct {
    let mut json = serde_json::Deserializer::from_str(text);
    match (AsValue { depth: 0 }).deserialize(&mut json) {
        Ok(Value { kind: Some(Kind::StructValue(object)) }) => object,
        _ => Struct::default(),
    }
}

/// The same document with passwords and the machine server's environment hidden.
pub fn masked(text: &str) -> String {
    let Ok(mut document) = serde_json::from_str::<serde_json::Value>(text) else { return "{}".into() };
    mask(&mut document);
    document.to_string()
}

fn mask(value: &mut serde_json::Value) {
    match value {
        serde_json::Value::Object(fields) => {
            for (name, value) in fields {
                // A name may be a path: `fragment_mods` set `agent.additional_networks.home.psk`.
                let mut steps = name.split('.').rev();
                let last = steps.next().unwrap_or_default();
                if PASSWORDS.contains(&last) || steps.any(|step| step == api::brand::SERVER_ENV_KEY) {
                    *value = MASK.into();
                } else if last == api::brand::SERVER_ENV_KEY {
                    hide_all(value);
                } else {
                    if name == "fragments" {
                        hide_variables(value);
                    }
                    mask(value);
                }
            }
        }
        serde_json::Value::Array(elements) => elements.iter_mut().for_each(mask),
        _ => {}
    }
}

/// What a reference gives to a fragment's variables: only the fragment knows which of them become passwords.
fn hide_variables(references: &mut serde_json::Value) {
    let list = references.as_array_mut().map(Vec::as_mut_slice).unwrap_or_default();
    list.iter_mut().filter_map(|reference| reference.get_mut("variables")).for_each(hide_all);
}

/// The names stay readable; whatever is not an object of strings is hidden as a whole.
fn hide_all(value: &mut serde_json::Value) {
    match value {
        serde_json::Value::Object(fields) => fields.iter_mut().for_each(|(_, value)| *value = MASK.into()),
        other => *other = MASK.into(),
    }
}

/// Looks at everything, keeps nothing.
struct Look {
    depth: usize,
}

/// Builds the wire's value without a tree of another kind in between.
struct AsValue {
    depth: usize,
}

fn deeper<E: Error>(depth: usize) -> Result<usize, E> {
    if depth >= CONFIG_DEPTH_MAX {
        return Err(E::custom(format_args!("nested deeper than {CONFIG_DEPTH_MAX}")));
    }
    Ok(depth + 1)
}

impl<'de> DeserializeSeed<'de> for Look {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        if self.depth == 0 { from.deserialize_map(self) } else { from.deserialize_any(self) }
    }
}

impl<'de> Visitor<'de> for Look {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let depth = deeper(self.depth)?;
        while map.next_key::<serde::de::IgnoredAny>()?.is_some() {
            map.next_value_seed(Look { depth })?;
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        let depth = deeper(self.depth)?;
        while list.next_element_seed(Look { depth })?.is_some() {}
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }
}

impl<'de> DeserializeSeed<'de> for AsValue {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Value, D::Error> {
        from.deserialize_any(self)
    }
}

fn of(kind: Kind) -> Value {
    Value { kind: Some(kind) }
}

impl<'de> Visitor<'de> for AsValue {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let depth = deeper(self.depth)?;
        let mut fields = BTreeMap::new();
        while let Some(name) = map.next_key::<String>()? {
            fields.insert(name, map.next_value_seed(AsValue { depth })?);
        }
        Ok(of(Kind::StructValue(Struct { fields })))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Value, A::Error> {
        let depth = deeper(self.depth)?;
        let mut values = Vec::new();
        while let Some(value) = list.next_element_seed(AsValue { depth })? {
            values.push(value);
        }
        Ok(of(Kind::ListValue(ListValue { values })))
    }

    fn visit_str<E>(self, text: &str) -> Result<Value, E> {
        Ok(of(Kind::StringValue(text.to_owned())))
    }

    fn visit_string<E>(self, text: String) -> Result<Value, E> {
        Ok(of(Kind::StringValue(text)))
    }

    fn visit_bool<E>(self, flag: bool) -> Result<Value, E> {
        Ok(of(Kind::BoolValue(flag)))
    }

    fn visit_i64<E>(self, number: i64) -> Result<Value, E> {
        Ok(of(Kind::NumberValue(number as f64)))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Value, E> {
        Ok(of(Kind::NumberValue(number as f64)))
    }

    fn visit_f64<E>(self, number: f64) -> Result<Value, E> {
        Ok(of(Kind::NumberValue(number)))
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(of(Kind::NullValue(0)))
    }
}

/// Writes a Struct as JSON.
struct Object<'a>(&'a BTreeMap<String, Value>);

impl Serialize for Object<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut map = to.serialize_map(Some(self.0.len()))?;
        for (name, value) in self.0 {
            map.serialize_entry(name, &Json(value))?;
        }
        map.end()
    }
}

struct Json<'a>(&'a Value);

impl Serialize for Json<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match &self.0.kind {
            None | Some(Kind::NullValue(_)) => to.serialize_unit(),
            Some(Kind::BoolValue(flag)) => to.serialize_bool(*flag),
            Some(Kind::StringValue(text)) => to.serialize_str(text),
            Some(Kind::NumberValue(number)) if !number.is_finite() => {
                Err(serde::ser::Error::custom("contains a number that JSON cannot write (infinite or not a number)"))
            }
            Some(Kind::NumberValue(number)) if number.fract() == 0.0 && number.abs() <= WHOLE_MAX => {
                to.serialize_i64(*number as i64)
            }
            Some(Kind::NumberValue(number)) => to.serialize_f64(*number),
            Some(Kind::StructValue(object)) => Object(&object.fields).serialize(to),
            Some(Kind::ListValue(list)) => {
                let mut out = to.serialize_seq(Some(list.values.len()))?;
                for value in &list.values {
                    out.serialize_element(&Json(value))?;
                }
                out.end()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_numbers_stay_whole() {
        let table = [
            (r#"{"a":10,"b":-3,"c":0}"#, r#"{"a":10,"b":-3,"c":0}"#),
            (r#"{"a":1.5,"b":-2.25}"#, r#"{"a":1.5,"b":-2.25}"#),
            (r#"{"a":10.0}"#, r#"{"a":10}"#),
            (r#"{"a":9007199254740993}"#, r#"{"a":9007199254740992}"#),
            (r#"{"b":[null,true,"x",{"y":[]}],"a":{}}"#, r#"{"a":{},"b":[null,true,"x",{"y":[]}]}"#),
            ("{}", "{}"),
        ];
        for (text, back) in table {
            checked("config", text).unwrap();
            assert_eq!(to_text("config", &to_struct(text)).unwrap(), back, "{text}");
        }
    }

    #[test]
    fn what_is_not_a_bounded_object_is_refused_with_the_place() {
        let deep = format!("{}1{}", "{\"a\":".repeat(CONFIG_DEPTH_MAX + 1), "}".repeat(CONFIG_DEPTH_MAX + 1));
        let deepest = format!("{}1{}", "{\"a\":".repeat(CONFIG_DEPTH_MAX), "}".repeat(CONFIG_DEPTH_MAX));
        checked("config", &deepest).unwrap();
        let long = format!("{{\"a\":\"{}\"}}", "x".repeat(CONFIG_BYTES_MAX));
        for wrong in ["", "[]", "1", "null", "{", "{\"a\":}", "{} {}", "{\"a\":1,}", "{\"\0\":1}", &deep, &long] {
            let refused = checked("config", wrong).unwrap_err();
            assert!(refused.message().starts_with("config: "), "{refused}");
        }
        let infinite = Struct { fields: [("a".to_owned(), of(Kind::NumberValue(f64::INFINITY)))].into() };
        assert!(to_text("config", &infinite).is_err());
    }

    #[test]
    fn passwords_and_environments_are_masked_wherever_they_lie() {
        let text = r#"{"agent":{"additional_networks":{"home":{"psk":"open sesame","ssid":"home"}},
            "advanced_settings":{"platform_server_env":{"TOKEN":"abc"}},"network_configuration":{"hotspot_password":"x"}},
            "list":[{"psk":{"odd":1}}],"platform_server_env":"odd",
            "fragments":["a",{"id":"b","variables":{"wifi":"given"}}],
            "fragment_mods":[{"fragment_id":"a","mods":[{"$set":{"agent.additional_networks.home.psk":"by path",
            "agent.advanced_settings.platform_server_env.KEY":"step","agent.advanced_settings.platform_server_env":{"K":"all"},
            "agent.advanced_settings.debug":"kept"}}]}]}"#;
        let masked = masked(text);
        for secret in ["open sesame", "abc", "\"x\"", "odd\":1", "given", "by path", "\"step\"", "\"all\""] {
            assert!(!masked.contains(secret), "{secret}: {masked}");
        }
        for shown in ["TOKEN", "\"ssid\":\"home\"", "\"wifi\"", "\"kept\"", "\"id\":\"b\""] {
            assert!(masked.contains(shown), "{shown}: {masked}");
        }
    }
}
