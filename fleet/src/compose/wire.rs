//! JSON as it is stored and JSON as it travels: `serde_json` values and the wire's `Struct`.
//!
//! The wire knows only doubles and no order. So an integral double becomes an integer when it is read, and key order is
//! kept wherever the text itself travels (`config_json`).

use prost_types::{Struct, Value as WireValue, value::Kind};
use serde_json::{Map, Number, Value};

/// Above this a double no longer tells neighbouring integers apart (2^53).
const EXACT_MAX: f64 = 9_007_199_254_740_992.0;

/// A JSON object as the wire's `Struct`.
pub fn to_struct(object: &Map<String, Value>) -> Struct {
    Struct { fields: object.iter().map(|(key, value)| (key.clone(), to_wire(value))).collect() }
}

/// One JSON value as the wire's `Value`.
pub fn to_wire(value: &Value) -> WireValue {
    let kind = match value {
        Value::Null => Kind::NullValue(0),
        Value::Bool(flag) => Kind::BoolValue(*flag),
        // A number beyond f64 has no double: serde_json only holds such with a feature this crate does not use.
        Value::Number(number) => Kind::NumberValue(number.as_f64().unwrap_or(f64::MAX)),
        Value::String(text) => Kind::StringValue(text.clone()),
        Value::Array(list) => Kind::ListValue(prost_types::ListValue { values: list.iter().map(to_wire).collect() }),
        Value::Object(object) => Kind::StructValue(to_struct(object)),
    };
    WireValue { kind: Some(kind) }
}

/// The wire's `Struct` as a JSON object, keys in the order of their names.
pub fn from_struct(object: &Struct) -> Map<String, Value> {
    object.fields.iter().map(|(key, value)| (key.clone(), from_wire(value))).collect()
}

/// The wire's `Value` as JSON. What JSON cannot say (an unset kind, not-a-number, infinity) becomes `null`.
pub fn from_wire(value: &WireValue) -> Value {
    match &value.kind {
        None | Some(Kind::NullValue(_)) => Value::Null,
        Some(Kind::BoolValue(flag)) => Value::Bool(*flag),
        Some(Kind::NumberValue(number)) if number.fract() == 0.0 && number.abs() <= EXACT_MAX => {
            Value::from(*number as i64)
        }
        Some(Kind::NumberValue(number)) => Number::from_f64(*number).map_or(Value::Null, Value::Number),
        Some(Kind::StringValue(text)) => Value::String(text.clone()),
        Some(Kind::ListValue(list)) => Value::Array(list.values.iter().map(from_wire).collect()),
        Some(Kind::StructValue(object)) => Value::Object(from_struct(object)),
    }
}
