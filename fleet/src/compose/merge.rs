//! Merging: what becomes of two documents when one is laid over the other.
//!
//! Objects merge key by key and the later wins; lists of objects with a `name` merge by name; any other list is
//! replaced; `null` takes the key away. The place of a key or element is where it was first met.

use serde_json::{Map, Value};

/// Lays `over` on `base`. A `null` stays as a mark until [`strip_nulls`]: it may still have to remove a key further down.
pub(super) fn merge(base: &mut Map<String, Value>, over: Map<String, Value>) {
    for (key, value) in over {
        match (base.get_mut(&key), value) {
            (Some(Value::Object(below)), Value::Object(above)) => merge(below, above),
            (Some(Value::Array(below)), Value::Array(above)) if both_named(below, &above) => by_name(below, above),
            (Some(below), above) => *below = above,
            (None, above) => {
                base.insert(key, above);
            }
        }
    }
}

/// Takes away every key whose value is `null`, also in named elements; values inside other lists are data and stay.
pub(super) fn strip_nulls(object: &mut Map<String, Value>) {
    object.retain(|_, value| !value.is_null());
    for value in object.values_mut() {
        match value {
            Value::Object(inner) => strip_nulls(inner),
            Value::Array(list) if list.iter().all(is_named) => {
                list.iter_mut().filter_map(Value::as_object_mut).for_each(strip_nulls);
            }
            _ => {}
        }
    }
}

/// Whether a document is nested deeper than `levels`.
pub(super) fn deeper_than(object: &Map<String, Value>, levels: usize) -> bool {
    fn below(value: &Value, levels: usize) -> bool {
        match value {
            Value::Object(inner) => levels == 0 || inner.values().any(|value| below(value, levels - 1)),
            Value::Array(list) => levels == 0 || list.iter().any(|value| below(value, levels - 1)),
            _ => false,
        }
    }
    levels == 0 || object.values().any(|value| below(value, levels - 1))
}

/// The `name` of a list's element, where it is an object that has one.
pub(super) fn name_of(element: &Value) -> Option<&str> {
    element.get("name").and_then(Value::as_str).filter(|name| !name.is_empty())
}

fn is_named(element: &Value) -> bool {
    name_of(element).is_some()
}

/// An empty list over a named one adds nothing and removes nothing: tools write `"components": []` for "none of my own".
fn both_named(below: &[Value], above: &[Value]) -> bool {
    below.iter().all(is_named) && above.iter().all(is_named) && !below.is_empty()
}

fn by_name(below: &mut Vec<Value>, above: Vec<Value>) {
    for element in above {
        let same = below.iter_mut().find(|earlier| name_of(earlier) == name_of(&element));
        match (same, element) {
            (Some(Value::Object(earlier)), Value::Object(later)) => merge(earlier, later),
            (_, element) => below.push(element),
        }
    }
}
