//! Looking into values of the message bus. A value of another type than is wanted is an absent one.

use zbus::zvariant::Value;

/// The value itself, out of any wrapping.
fn bare<'a>(value: &'a Value<'a>) -> &'a Value<'a> {
    match value {
        Value::Value(inner) => bare(inner),
        value => value,
    }
}

pub(super) fn text<'a>(value: &'a Value<'a>) -> Option<&'a str> {
    match bare(value) {
        Value::Str(text) => Some(text.as_str()),
        Value::ObjectPath(path) => Some(path.as_str()),
        _ => None,
    }
}

pub(super) fn boolean(value: &Value<'_>) -> Option<bool> {
    if let Value::Bool(value) = bare(value) { Some(*value) } else { None }
}

pub(super) fn unsigned(value: &Value<'_>) -> Option<u32> {
    match bare(value) {
        Value::U8(number) => Some(u32::from(*number)),
        Value::U32(number) => Some(*number),
        _ => None,
    }
}

pub(super) fn signed(value: &Value<'_>) -> Option<i64> {
    match bare(value) {
        Value::I32(number) => Some(i64::from(*number)),
        Value::I64(number) => Some(*number),
        _ => None,
    }
}

pub(super) fn list<'a>(value: &'a Value<'a>) -> impl Iterator<Item = &'a Value<'a>> {
    let array = if let Value::Array(array) = bare(value) { Some(array) } else { None };
    array.into_iter().flat_map(|array| array.iter())
}

pub(super) fn bytes(value: &Value<'_>) -> Option<Vec<u8>> {
    let Value::Array(array) = bare(value) else { return None };
    array.iter().map(|byte| if let Value::U8(byte) = byte { Some(*byte) } else { None }).collect()
}

/// One entry of a map.
pub(super) fn entry<'a>(map: &'a Value<'a>, name: &str) -> Option<&'a Value<'a>> {
    let Value::Dict(map) = bare(map) else { return None };
    map.iter().find_map(|(key, value)| (text(key) == Some(name)).then_some(value))
}
