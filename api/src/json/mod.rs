//! Reads JSON documents that come from elsewhere: bounded, without recursion, without a copy.
//!
//! Owns the grammar and its limits. [`parse`] checks a whole document once, from the first byte to the last, and returns
//! a [`Value`]: a place in the checked text that can be asked for its entries, items, text, number, position and raw
//! bytes. Nothing is built beside the text, so a document costs its own length however it is nested, and a value whose
//! bytes were signed is found again byte for byte ([`Value::raw`]).
//!
//! Refused, with line and column: more than [`Limits::bytes`], deeper than [`DEPTH_MAX`], bytes that are not UTF-8, a
//! byte order mark, `//` and `/* */` comments, trailing commas, anything after the value, half a surrogate pair.
//! A key given twice is legal JSON: [`Value::get`] takes the last one, [`Value::get_once`] refuses.
//!
//! Why not serde-json-core here: it recurses without a limit over what it skips, leaves escapes undecoded, refuses
//! surrogate pairs and names no place in its errors. A visitor was tried on paper first; places in checked text need no
//! state between calls and read like the document.
//!
//! ```
//! use api::json::{self, Limits};
//!
//! let text = br#"{"cloud": {"id": "p-1", "tries": 3}, "signed": {"a":  1}}"#;
//! let root = json::parse(text, Limits::DOCUMENT)?;
//! let cloud = root.get("cloud").expect("given above");
//! assert_eq!(cloud.get("id").and_then(|id| id.as_text()).as_deref(), Some("p-1"));
//! assert_eq!(cloud.get("tries").and_then(|tries| tries.as_i64()), Some(3));
//! assert_eq!(root.get_once("signed")?.expect("given above").raw(), r#"{"a":  1}"#);
//! # Ok::<(), json::JsonError>(())
//! ```

mod error;
mod scan;
mod value;
mod write;

#[cfg(test)]
mod tests;

pub use error::{JsonError, Position, Problem};
pub(crate) use value::integral;
pub use value::{Entries, Items, Kind, Value};
pub use write::quoted;

/// How deep objects and lists may lie in each other. The stack of open ones is one machine word of bits.
pub const DEPTH_MAX: u32 = 64;

/// What a document may cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Length of the whole text, in bytes.
    pub bytes: usize,
    /// Objects and lists inside each other, at most [`DEPTH_MAX`].
    pub depth: u32,
}

impl Limits {
    /// A document of the fleet: 1 MiB, 64 deep.
    pub const DOCUMENT: Limits = Limits { bytes: 1024 * 1024, depth: DEPTH_MAX };
    /// A small file of our own, such as a credentials file or a record: 64 KiB, 8 deep.
    pub const SMALL: Limits = Limits { bytes: 64 * 1024, depth: 8 };
}

/// Checks the whole document and returns its outermost value.
pub fn parse(document: &[u8], limits: Limits) -> Result<Value<'_>, JsonError> {
    if document.len() > limits.bytes {
        return Err(JsonError::at_start(Problem::TooLong { bytes: document.len(), allowed: limits.bytes }));
    }
    let text = std::str::from_utf8(document).map_err(|error| {
        let good = document.get(..error.valid_up_to()).unwrap_or_default();
        JsonError::new(good, good.len(), Problem::NotUtf8)
    })?;
    scan::check(text, limits.depth.min(DEPTH_MAX))?;
    Ok(Value::root(text))
}
