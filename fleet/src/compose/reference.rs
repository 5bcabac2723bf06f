//! A reference to a fragment: `"ID"`, or `{"id", "version", "variables", "prefix"}`.
//!
//! Id, version and prefix are plain text, never variables: so the graph of fragments can be seen, and a cycle refused,
//! when a fragment is saved.

use std::fmt;

use serde_json::{Map, Value};

use super::complaint::Complaints;

/// References in one list; a machine of fifty parts' worth of fragments is far below.
const REFERENCES_MAX: usize = 128;
/// Prefixes become part of names, which become labels.
const PREFIX_MAX_BYTES: usize = 60;

/// Which fragment, and which of its versions: a revision or a tag; none means the newest.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    /// The fragment's id.
    pub id: String,
    /// Revision or tag.
    pub version: Option<String>,
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.version {
            Some(version) => write!(f, "{} version {version}", self.id),
            None => f.write_str(&self.id),
        }
    }
}

/// One entry of a `fragments` list.
#[derive(Debug, Clone, PartialEq)]
pub struct Reference {
    /// The fragment.
    pub key: Key,
    /// What its `$variable`s become.
    pub variables: Map<String, Value>,
    /// What its resources' names begin with.
    pub prefix: Option<String>,
}

/// The references of a `fragments` list; what is none leaves a complaint.
pub(super) fn read(list: Option<&Value>, at: &str, complaints: &mut Complaints) -> Vec<Reference> {
    let list = match list {
        None | Some(Value::Null) => return Vec::new(),
        Some(Value::Array(list)) => list,
        Some(_) => {
            complaints
                .add(format!("{at}, fragments"), "a list of fragment ids or objects belongs here; it was ignored");
            return Vec::new();
        }
    };
    if list.len() > REFERENCES_MAX {
        complaints.add(
            format!("{at}, fragments"),
            format!("{} entries, and {REFERENCES_MAX} are allowed; the rest was ignored", list.len()),
        );
    }
    let read_one = |(index, entry)| match reference(entry) {
        Ok(reference) => Some(reference),
        Err(says) => {
            complaints.add(format!("{at}, fragments[{index}]"), format!("{says}; the entry was ignored"));
            None
        }
    };
    list.iter().take(REFERENCES_MAX).enumerate().filter_map(read_one).collect()
}

/// One entry of a `fragments` list; or what is wrong with it.
pub fn reference(entry: &Value) -> Result<Reference, &'static str> {
    let entry = match entry {
        Value::String(id) => return Ok(Reference { key: key(id, None)?, variables: Map::new(), prefix: None }),
        Value::Object(entry) => entry,
        _ => return Err("an id, or an object with an id, belongs here"),
    };
    let text = |name: &str, says| match entry.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.as_str()).filter(|text| !text.is_empty())),
        Some(_) => Err(says),
    };
    let id = text("id", "the id must be text")?.ok_or("it has no id")?;
    let version = text("version", "the version must be text: a revision or a tag")?;
    let prefix = text("prefix", "the prefix must be text")?;
    if prefix.is_some_and(|prefix| prefix.len() > PREFIX_MAX_BYTES) {
        return Err("the prefix is longer than 60 bytes");
    }
    let variables = match entry.get("variables") {
        None | Some(Value::Null) => Map::new(),
        Some(Value::Object(variables)) => variables.clone(),
        Some(_) => return Err("the variables must be an object: name and value"),
    };
    Ok(Reference { key: key(id, version)?, variables, prefix: prefix.map(str::to_owned) })
}

/// Of an id or a version, which are looked for in an index.
const KEY_MAX_BYTES: usize = 200;

fn key(id: &str, version: Option<&str>) -> Result<Key, &'static str> {
    if id.is_empty() {
        return Err("the id is empty");
    }
    let unfit = |text: &str| text.len() > KEY_MAX_BYTES || text.chars().any(char::is_control);
    if unfit(id) || version.is_some_and(unfit) {
        return Err("the id or the version is longer than 200 bytes, or holds control characters");
    }
    Ok(Key { id: id.to_owned(), version: version.map(str::to_owned) })
}
