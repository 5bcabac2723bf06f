//! Variables: `{"$variable": {"name": "x"}}` inside a fragment becomes the value that the reference gives for `x`.

use serde_json::{Map, Value};

use super::{ComposeError, Work};

const VARIABLE: &str = "$variable";

impl Work<'_> {
    /// A copy of `value` with its variables replaced; nothing where the whole value is a variable that is not given.
    /// A value that was put in is not looked at again: what it holds is data.
    pub(super) fn substitute(
        &mut self,
        value: &Value,
        variables: Option<&Map<String, Value>>,
        at: &str,
    ) -> Result<Option<Value>, ComposeError> {
        match value {
            Value::Object(object) if object.len() == 1 && object.contains_key(VARIABLE) => {
                self.variable(&object[VARIABLE], variables, at)
            }
            Value::Object(object) => {
                let mut copy = Map::with_capacity(object.len());
                for (key, value) in object {
                    if let Some(value) = self.substitute(value, variables, at)? {
                        copy.insert(key.clone(), value);
                    }
                }
                Ok(Some(Value::Object(copy)))
            }
            Value::Array(list) => {
                let mut copy = Vec::with_capacity(list.len());
                for value in list {
                    copy.extend(self.substitute(value, variables, at)?);
                }
                Ok(Some(Value::Array(copy)))
            }
            plain => Ok(Some(plain.clone())),
        }
    }

    fn variable(
        &mut self,
        reference: &Value,
        variables: Option<&Map<String, Value>>,
        at: &str,
    ) -> Result<Option<Value>, ComposeError> {
        let Some(name) = reference.get("name").and_then(Value::as_str) else {
            self.complaints.add(at, "a $variable has no name; the value was left out");
            return Ok(None);
        };
        let Some(variables) = variables else {
            self.complaints.add(
                at,
                format!("variable {name} stands in the part itself, where nothing gives it a value; it was left out"),
            );
            return Ok(None);
        };
        let Some(value) = variables.get(name) else {
            self.complaints.add(at, format!("variable {name} is not given; the value was left out"));
            return Ok(None);
        };
        self.spend(size(value))?;
        Ok(Some(value.clone()))
    }
}

/// About what a value takes as text; exact enough to bound copies.
pub(super) fn size(value: &Value) -> usize {
    match value {
        Value::Object(object) => object.iter().map(|(key, value)| key.len() + 4 + size(value)).sum::<usize>() + 2,
        Value::Array(list) => list.iter().map(|value| size(value) + 1).sum::<usize>() + 2,
        Value::String(text) => text.len() + 2,
        Value::Null | Value::Bool(_) | Value::Number(_) => 8,
    }
}
