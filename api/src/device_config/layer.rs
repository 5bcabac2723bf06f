//! What one source says, checked, and how it is stored.
//!
//! The stored form is a configuration document again, read by the same table: what was written by one version of the
//! agent is read by the next, and what that one no longer allows is left out. It holds secrets.

use super::{
    complaint::{Complaints, Origin},
    fields::Key,
    leaf::Checked,
    node::Node,
    read::Reader,
};
use crate::{
    Secret,
    json::{self, Limits, quoted},
};
use std::{collections::BTreeMap, fmt::Display};

/// Checked fields of one network; type is given, and a name if it is WiFi.
pub(super) type NetworkEntry = BTreeMap<Key, Checked>;

/// What one source says.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Layer {
    pub(super) values: BTreeMap<Key, Checked>,
    pub(super) networks: BTreeMap<Box<str>, NetworkEntry>,
}

/// What was accepted from each source: the ground a bad value falls back to, also across a restart.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Accepted {
    pub(super) defaults: Layer,
    pub(super) cloud: Layer,
}

impl Accepted {
    /// The same without what the cloud said: it was said of another machine.
    #[must_use]
    pub fn without_cloud(self) -> Accepted {
        Accepted { cloud: Layer::default(), ..self }
    }

    /// As text to be stored. It holds secrets: private files only.
    pub fn encode(&self) -> String {
        format!("{{\"defaults\":{},\"cloud\":{}}}", written(&self.defaults), written(&self.cloud))
    }

    /// Back from the text; `None` if it is none of ours. A field that is no longer allowed is left out.
    pub fn decode(text: &[u8]) -> Option<Accepted> {
        let root = json::parse(text, Limits::DOCUMENT).ok()?;
        let layer = |name: &str, origin| {
            let mut nobody_listens = Complaints::default();
            let before = Layer::default();
            let reader = Reader::new(origin, false, &before, &mut nobody_listens);
            Some(reader.read_sections(Node::Text(root.get(name)?)))
        };
        Some(Accepted { defaults: layer("defaults", Origin::Defaults)?, cloud: layer("cloud", Origin::Cloud)? })
    }
}

/// A JSON object being written.
struct Object {
    text: String,
    empty: bool,
}

impl Object {
    fn new() -> Object {
        Object { text: "{".into(), empty: true }
    }

    fn key(&mut self, name: &str) {
        if !self.empty {
            self.text.push(',');
        }
        self.empty = false;
        self.text.push_str(&quoted(name).to_string());
        self.text.push(':');
    }

    fn entry(&mut self, name: &str, value: &str) {
        self.key(name);
        self.text.push_str(value);
    }

    fn open(&mut self, name: &str) {
        self.key(name);
        self.text.push('{');
        self.empty = true;
    }

    fn close(&mut self) {
        self.text.push('}');
        self.empty = false;
    }
}

fn written(layer: &Layer) -> String {
    let mut object = Object::new();
    let mut open: &[&str] = &[];
    for (key, value) in &layer.values {
        let Some((name, parents)) = key.field().path.split_last() else { continue };
        while let (false, Some((_, outer))) = (parents.starts_with(open), open.split_last()) {
            object.close();
            open = outer;
        }
        for parent in parents.iter().skip(open.len()) {
            object.open(parent);
        }
        open = parents;
        object.entry(name, &written_value(value));
    }
    for _ in open {
        object.close();
    }
    object.open("additional_networks");
    for (name, entry) in &layer.networks {
        object.open(name);
        for (key, value) in entry {
            object.entry(key.field().path.last().copied().unwrap_or_default(), &written_value(value));
        }
        object.close();
    }
    object.close();
    object.close();
    object.text
}

fn written_value(value: &Checked) -> String {
    match value {
        Checked::Flag(flag) => flag.to_string(),
        Checked::Integer(number) => number.to_string(),
        Checked::Text(text) => quoted(text).to_string(),
        Checked::Hidden(secret) => quoted(secret.expose()).to_string(),
        Checked::Version(version) => quoted(&version.to_string()).to_string(),
        Checked::Address(address) => quoted(&address.to_string()).to_string(),
        Checked::Ip(ip) => quoted(&ip.map(|ip| ip.to_string()).unwrap_or_default()).to_string(),
        Checked::Ips(ips) => list(ips.iter().map(|ip| quoted(&ip.to_string()).to_string())),
        Checked::Keys(keys) => list(keys.iter().map(|key| quoted(key))),
        Checked::Environment(variables) => {
            let mut object = Object::new();
            for (name, value) in variables {
                object.entry(name, &quoted(Secret::expose(value)).to_string());
            }
            object.close();
            object.text
        }
        Checked::Windows(windows) => list(windows.iter().map(|window| {
            let mut object = Object::new();
            object.entry("days", &list(window.days.names().map(quoted)));
            object.entry("from", &quoted(&window.from.to_string()).to_string());
            object.entry("to", &quoted(&window.to.to_string()).to_string());
            object.entry("tz", &quoted(&window.zone.to_string()).to_string());
            object.close();
            object.text
        })),
    }
}

fn list(items: impl Iterator<Item = impl Display>) -> String {
    let items: Vec<_> = items.map(|item| item.to_string()).collect();
    format!("[{}]", items.join(","))
}
