//! JSON as the wire's Struct.

use prost_types::{ListValue, Struct, Value, value::Kind};

/// The Struct of a JSON object; anything else becomes an empty one.
#[must_use]
pub fn from_json(json: &serde_json::Value) -> Struct {
    match value(json).kind {
        Some(Kind::StructValue(fields)) => fields,
        _ => Struct::default(),
    }
}

fn value(json: &serde_json::Value) -> Value {
    use serde_json::Value as Json;
    let kind = match json {
        Json::Null => Kind::NullValue(0),
        Json::Bool(value) => Kind::BoolValue(*value),
        Json::Number(number) => Kind::NumberValue(number.as_f64().unwrap_or(f64::NAN)),
        Json::String(text) => Kind::StringValue(text.clone()),
        Json::Array(items) => Kind::ListValue(ListValue { values: items.iter().map(value).collect() }),
        Json::Object(fields) => Kind::StructValue(Struct {
            fields: fields.iter().map(|(name, json)| (name.clone(), value(json))).collect(),
        }),
    };
    Value { kind: Some(kind) }
}
