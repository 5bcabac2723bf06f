//! What a command shows: a table for people, JSON for programs, never both.
//!
//! Names and log lines come from devices and other people, so nothing of them may steer the terminal: control characters
//! are shown, not sent. In JSON a number that is whole is written as one, because a configuration knows no 10.0.

use std::{
    io::{self, Write},
    sync::OnceLock,
};

pub(crate) use api::report::plain;
use prost::{Message, Name};
use prost_reflect::{DescriptorPool, DynamicMessage, MessageDescriptor, SerializeOptions};
use prost_types::Struct;
use serde_json::{Number, Value};

use crate::{args::Format, failure::Failure};

/// Largest whole number that a double holds without loss.
const WHOLE_MAX: f64 = 9_007_199_254_740_992.0;

/// Where results go.
pub(crate) struct Output {
    format: Format,
    to: Box<dyn Write>,
}

impl Output {
    pub(crate) fn to_stdout(format: Format) -> Self {
        Self { format, to: Box::new(io::BufWriter::new(io::stdout())) }
    }

    pub(crate) fn is_json(&self) -> bool {
        self.format == Format::Json
    }

    /// A list: rows under titles, or an array. `empty` is what a person reads instead of no rows.
    pub(crate) fn list<M, const N: usize>(
        &mut self,
        items: &[M],
        titles: [&str; N],
        empty: &str,
        row: impl Fn(&M) -> [String; N],
    ) -> Result<(), Failure>
    where
        M: Message + Name,
    {
        if self.is_json() {
            return self.json(&Value::Array(items.iter().map(json_of).collect()));
        }
        if items.is_empty() {
            return self.line(empty);
        }
        self.table(titles, items.iter().map(row).collect())
    }

    /// Rows under titles, as wide as they need to be.
    pub(crate) fn table<const N: usize>(&mut self, titles: [&str; N], rows: Vec<[String; N]>) -> Result<(), Failure> {
        let mut lines = vec![titles.map(str::to_uppercase)];
        lines.extend(rows.into_iter().map(|row| row.map(|cell| plain(&cell))));
        let mut widths = [0; N];
        for line in &lines {
            for (width, cell) in widths.iter_mut().zip(line) {
                *width = cell.chars().count().max(*width);
            }
        }
        for line in &lines {
            let cells = line.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}"));
            self.line(cells.collect::<Vec<_>>().join("  ").trim_end())?;
        }
        Ok(())
    }

    /// One thing: lines of name and value, or an object.
    pub(crate) fn one<M: Message + Name>(&mut self, item: &M, lines: &[(&str, String)]) -> Result<(), Failure> {
        if self.is_json() {
            return self.json(&json_of(item));
        }
        self.facts(lines)
    }

    /// Lines of name and value.
    pub(crate) fn facts(&mut self, lines: &[(&str, String)]) -> Result<(), Failure> {
        let width = lines.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
        for (name, value) in lines {
            self.line(format!("{name:width$}  {}", plain(value)).trim_end())?;
        }
        Ok(())
    }

    /// A sentence for a person; a program gets `object`.
    pub(crate) fn done(&mut self, sentence: &str, object: Value) -> Result<(), Failure> {
        if self.is_json() { self.json(&object) } else { self.line(&plain(sentence)) }
    }

    /// A document, readable.
    pub(crate) fn json(&mut self, value: &Value) -> Result<(), Failure> {
        self.line(&format!("{value:#}"))
    }

    /// A document on one line, for streams of them.
    pub(crate) fn json_line(&mut self, value: &Value) -> Result<(), Failure> {
        self.line(&value.to_string())
    }

    /// Text that was made here, or made plain before.
    pub(crate) fn line(&mut self, text: &str) -> Result<(), Failure> {
        writeln!(self.to, "{text}").map_err(Failure::Output)
    }

    /// Shows what was written so far; for output that goes on.
    pub(crate) fn flush(&mut self) -> Result<(), Failure> {
        self.to.flush().map_err(Failure::Output)
    }

    pub(crate) fn finish(mut self) -> Result<(), Failure> {
        self.flush()
    }
}

/// A message as JSON, with the names of the contract.
pub(crate) fn json_of<M: Message + Name>(message: &M) -> Value {
    json_as(&M::full_name(), message)
}

/// A free-form document as JSON.
pub(crate) fn json_of_struct(document: &Struct) -> Value {
    json_as("google.protobuf.Struct", document)
}

/// A message of that kind as JSON, from its bytes.
pub(crate) fn json_of_bytes(kind: &MessageDescriptor, bytes: &[u8]) -> Value {
    match DynamicMessage::decode(kind.clone(), bytes) {
        Ok(dynamic) => json(&dynamic),
        Err(why) => Value::String(format!("cannot be read as {}: {why}", kind.name())),
    }
}

/// Every message and operation.
pub(crate) fn pool() -> &'static DescriptorPool {
    static POOL: OnceLock<DescriptorPool> = OnceLock::new();
    POOL.get_or_init(|| {
        DescriptorPool::decode(api::pb::DESCRIPTORS).expect("the descriptors were compiled with this program")
    })
}

fn json_as(name: &str, message: &impl Message) -> Value {
    let descriptor = pool().get_message_by_name(name).expect("every message of `pb` is in its descriptors");
    let mut dynamic = DynamicMessage::new(descriptor);
    dynamic.transcode_from(message).expect("a message fits its own descriptor");
    json(&dynamic)
}

fn json(dynamic: &DynamicMessage) -> Value {
    let options =
        SerializeOptions::new().use_proto_field_name(true).stringify_64_bit_integers(false).skip_default_fields(false);
    match dynamic.serialize_with_options(serde_json::value::Serializer, &options) {
        Ok(value) => whole_numbers(value),
        // A moment outside the years 1 to 9999, or a number that JSON does not know.
        Err(error) => Value::String(format!("cannot be shown as JSON: {error}")),
    }
}

fn whole_numbers(value: Value) -> Value {
    match value {
        Value::Number(number) => Value::Number(whole(number)),
        Value::Array(items) => Value::Array(items.into_iter().map(whole_numbers).collect()),
        Value::Object(entries) => {
            Value::Object(entries.into_iter().map(|(key, value)| (key, whole_numbers(value))).collect())
        }
        other => other,
    }
}

fn whole(number: Number) -> Number {
    match number.as_f64() {
        Some(double) if number.is_f64() && double.fract() == 0.0 && double.abs() <= WHOLE_MAX => {
            // Exact: the fraction is nothing and the size was checked.
            Number::from(double as i64)
        }
        _ => number,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::pb::platform::{app::v1 as app, common::v1::LogEntry};
    use prost_types::{Value as WireValue, value::Kind};

    #[test]
    fn messages_as_json() {
        let number = |value| WireValue { kind: Some(Kind::NumberValue(value)) };
        let fields = [("whole", 10.0), ("half", 10.5), ("large", 9_007_199_254_740_993.0), ("huge", 1e300)];
        let fields = fields.map(|(key, value)| (key.to_owned(), number(value))).into();
        let entry = LogEntry { caller: Some(Struct { fields }), message: "m".into(), ..Default::default() };
        let json = json_of(&entry);
        assert_eq!(
            json["caller"],
            serde_json::json!({"half": 10.5, "huge": 1e300, "large": 9_007_199_254_740_992_i64, "whole": 10})
        );
        let robot = app::Robot { online_state: 1, seconds_since_online: 5, ..Default::default() };
        let json = json_of(&robot);
        assert_eq!(
            (&json["online_state"], &json["seconds_since_online"], &json["name"]),
            (&"ONLINE_STATE_ONLINE".into(), &5.into(), &"".into())
        );
    }
}
