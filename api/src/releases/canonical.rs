//! Writes objects as OLPC canonical JSON: keys sorted, no blanks, only `"` and `\` escaped, whole numbers only.
//!
//! Control characters would have to stand unescaped, which no JSON reader accepts; no text that a document may hold has any.

/// An object being written; add its entries in ascending order of their keys.
pub(super) struct Object {
    text: String,
    last: String,
}

impl Object {
    pub(super) fn new() -> Self {
        Object { text: String::from("{"), last: String::new() }
    }

    /// An entry whose value is canonical JSON already.
    pub(super) fn raw(mut self, key: &str, value: &str) -> Self {
        debug_assert!(
            self.last.is_empty() || *self.last < *key,
            "canonical JSON sorts its keys: {} < {key}",
            self.last
        );
        if !self.last.is_empty() {
            self.text.push(',');
        }
        self.last = key.to_owned();
        self.text.push_str(&text(key));
        self.text.push(':');
        self.text.push_str(value);
        self
    }

    pub(super) fn text(self, key: &str, value: &str) -> Self {
        self.raw(key, &text(value))
    }

    pub(super) fn number(self, key: &str, value: u64) -> Self {
        self.raw(key, &value.to_string())
    }

    pub(super) fn end(mut self) -> String {
        self.text.push('}');
        self.text
    }
}

/// A list of values that are canonical JSON already.
pub(super) fn list(values: impl IntoIterator<Item = String>) -> String {
    format!("[{}]", values.into_iter().collect::<Vec<_>>().join(","))
}

/// A text.
pub(super) fn text(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}
