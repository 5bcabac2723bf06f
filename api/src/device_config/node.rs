//! One way to look at a raw value, whether it came as JSON text or as the wire's Struct.
//!
//! Owns the differences: on the wire every number is a double and nothing has a place; in text a key may come twice. All
//! else is the same, so that one table reads both.

use crate::json;
use prost_types::{Struct, Value as WireValue, value::Kind as WireKind};
use std::{borrow::Cow, collections::btree_map};

pub(super) use crate::json::Kind;

/// Where a value stands, if it stands in a text. Line and column are counted only for what is shown: counting costs the
/// length of the document.
pub(super) type Place<'a> = Option<json::Value<'a>>;

/// A raw value.
#[derive(Clone, Copy)]
pub(super) enum Node<'a> {
    /// In a checked text.
    Text(json::Value<'a>),
    /// On the wire.
    Wire(&'a WireValue),
    /// An object on the wire.
    WireObject(&'a Struct),
}

impl<'a> Node<'a> {
    pub(super) fn kind(self) -> Kind {
        match self {
            Node::Text(value) => value.kind(),
            Node::WireObject(_) => Kind::Object,
            Node::Wire(value) => match &value.kind {
                None | Some(WireKind::NullValue(_)) => Kind::Null,
                Some(WireKind::BoolValue(_)) => Kind::Bool,
                Some(WireKind::NumberValue(_)) => Kind::Number,
                Some(WireKind::StringValue(_)) => Kind::Text,
                Some(WireKind::ListValue(_)) => Kind::List,
                Some(WireKind::StructValue(_)) => Kind::Object,
            },
        }
    }

    pub(super) fn is_null(self) -> bool {
        self.kind() == Kind::Null
    }

    /// Its place, if it stands in a text.
    pub(super) fn place(self) -> Place<'a> {
        match self {
            Node::Text(value) => Some(value),
            Node::Wire(_) | Node::WireObject(_) => None,
        }
    }

    pub(super) fn as_bool(self) -> Option<bool> {
        match self {
            Node::Text(value) => value.as_bool(),
            Node::Wire(WireValue { kind: Some(WireKind::BoolValue(flag)) }) => Some(*flag),
            Node::Wire(_) | Node::WireObject(_) => None,
        }
    }

    pub(super) fn as_integer(self) -> Option<i64> {
        match self {
            Node::Text(value) => value.as_i64(),
            Node::Wire(WireValue { kind: Some(WireKind::NumberValue(number)) }) => json::integral(*number),
            Node::Wire(_) | Node::WireObject(_) => None,
        }
    }

    pub(super) fn as_text(self) -> Option<Cow<'a, str>> {
        match self {
            Node::Text(value) => value.as_text(),
            Node::Wire(WireValue { kind: Some(WireKind::StringValue(text)) }) => Some(Cow::Borrowed(text)),
            Node::Wire(_) | Node::WireObject(_) => None,
        }
    }

    /// The number as a person would write it, for a complaint.
    pub(super) fn number(self) -> Option<String> {
        match self {
            Node::Text(value) => value.as_f64().map(|_| value.raw().to_owned()),
            Node::Wire(WireValue { kind: Some(WireKind::NumberValue(number)) }) => Some(number.to_string()),
            Node::Wire(_) | Node::WireObject(_) => None,
        }
    }

    /// Keys and values; empty if it is no object.
    pub(super) fn entries(self) -> Entries<'a> {
        match self {
            Node::Text(value) => Entries::Text(value.entries()),
            Node::WireObject(object) | Node::Wire(WireValue { kind: Some(WireKind::StructValue(object)) }) => {
                Entries::Wire(object.fields.iter())
            }
            Node::Wire(_) => Entries::Wire(btree_map::Iter::default()),
        }
    }

    /// The values of a list; empty if it is none.
    pub(super) fn items(self) -> Items<'a> {
        match self {
            Node::Text(value) => Items::Text(value.items()),
            Node::Wire(WireValue { kind: Some(WireKind::ListValue(list)) }) => Items::Wire(list.values.iter()),
            Node::Wire(_) | Node::WireObject(_) => Items::Wire([].iter()),
        }
    }

    /// The entry of that name; the last one if there are several.
    pub(super) fn get(self, key: &str) -> Option<Node<'a>> {
        self.entries().filter(|(name, _)| name == key).last().map(|(_, value)| value)
    }
}

/// Keys and values of an object.
pub(super) enum Entries<'a> {
    Text(json::Entries<'a>),
    Wire(btree_map::Iter<'a, String, WireValue>),
}

impl<'a> Iterator for Entries<'a> {
    type Item = (Cow<'a, str>, Node<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        match self {
            Entries::Text(entries) => entries.next().map(|(name, value)| (name, Node::Text(value))),
            Entries::Wire(entries) => {
                entries.next().map(|(name, value)| (Cow::Borrowed(name.as_str()), Node::Wire(value)))
            }
        }
    }
}

/// Values of a list.
pub(super) enum Items<'a> {
    Text(json::Items<'a>),
    Wire(std::slice::Iter<'a, WireValue>),
}

impl<'a> Iterator for Items<'a> {
    type Item = Node<'a>;

    fn next(&mut self) -> Option<Self::Item> {
        match self {
            Items::Text(items) => items.next().map(Node::Text),
            Items::Wire(items) => items.next().map(Node::Wire),
        }
    }
}

/// How deep an object on the wire goes, by a loop: the decoder allows more than we do.
pub(super) fn wire_depth(object: &Struct) -> u32 {
    let mut deepest = 1;
    let mut open: Vec<(Node<'_>, u32)> = vec![(Node::WireObject(object), 1)];
    while let Some((node, depth)) = open.pop() {
        deepest = deepest.max(depth);
        let inner = node.entries().map(|(_, value)| value).chain(node.items());
        open.extend(
            inner.filter(|value| matches!(value.kind(), Kind::Object | Kind::List)).map(|value| (value, depth + 1)),
        );
    }
    deepest
}
