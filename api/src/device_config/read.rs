//! Walks the document of one source along the table and keeps what is good.
//!
//! A bad value costs that value only: what this source had before stays, so that a slip never switches something on that
//! was off. `null` unsets what this source says. Names that nobody knows are reported and skipped, whatever they hold.
//! The walk goes as deep as the table, never as deep as the document.

use super::{
    complaint::{Complaints, Fault, Origin},
    fields::{ANY, FIELDS, Field, Form, Key, Setter},
    layer::{Layer, NetworkEntry},
    leaf::{self, Checked},
    limits::{ENV_BYTES_MAX, ENV_ENTRIES_MAX, NETWORK_NAME_BYTES_MAX, NETWORKS_MAX},
    node::{Kind, Node},
};
use crate::Secret;

/// Section names of the document, in the order of the reference.
pub(super) const SECTIONS: [&str; 5] =
    ["version_control", "advanced_settings", "network_configuration", "additional_networks", "system_configuration"];
const NETWORKS: &str = "additional_networks";
/// On the wire the versions travel inside this section: the response has no field for them.
const WIRE_VERSIONS: [&str; 2] = ["advanced_settings", "version_control"];

/// One source being read.
pub(super) struct Reader<'a> {
    origin: Origin,
    from_wire: bool,
    before: &'a Layer,
    complaints: &'a mut Complaints,
    layer: Layer,
    /// One bit per field that was met, so that a second one is noticed.
    seen: u64,
}

const _: () = assert!(FIELDS.len() <= u64::BITS as usize, "`seen` has one bit per field");

impl<'a> Reader<'a> {
    pub(super) fn new(origin: Origin, from_wire: bool, before: &'a Layer, complaints: &'a mut Complaints) -> Self {
        Reader { origin, from_wire, before, complaints, layer: Layer::default(), seen: 0 }
    }

    /// Reads the object that holds the sections.
    pub(super) fn read_sections(mut self, sections: Node<'_>) -> Layer {
        for (name, value) in sections.entries() {
            self.entry(&[&name], value);
        }
        self.layer
    }

    /// Reads sections that come one by one.
    pub(super) fn read_each<'n>(mut self, sections: impl IntoIterator<Item = (&'static str, Node<'n>)>) -> Layer {
        for (name, value) in sections {
            self.entry(&[name], value);
        }
        self.layer
    }

    fn entry(&mut self, path: &[&str], value: Node<'_>) {
        if self.from_wire && path == WIRE_VERSIONS {
            return self.entry(&["version_control"], value);
        }
        if path == [NETWORKS] {
            return self.networks(value);
        }
        if let Some(field) = FIELDS.iter().find(|field| field.path == path) {
            return self.field(field, value);
        }
        if !FIELDS.iter().any(|field| field.path.starts_with(path)) {
            return self.complaints.unknown(self.origin, &path.join("."), value.place());
        }
        match value.kind() {
            Kind::Null => {}
            Kind::Object => {
                for (name, inner) in value.entries() {
                    let inner_path: Vec<&str> = path.iter().copied().chain([&*name]).collect();
                    self.entry(&inner_path, inner);
                }
            }
            Kind::List | Kind::Text | Kind::Number | Kind::Bool => {
                self.refuse(&path.join("."), value, "an object");
                for field in FIELDS.iter().filter(|field| field.path.starts_with(path)) {
                    self.keep_before(field.key);
                }
            }
        }
    }

    fn field(&mut self, field: &Field, value: Node<'_>) {
        let bit = 1_u64 << field.key as u8;
        if self.seen & bit != 0 {
            let fault = Fault { found: "a second value".into(), ..fault_at(value, "one value; the last one counts") };
            self.complaints.refuse(self.origin, &field.name(), fault);
        }
        self.seen |= bit;

        self.layer.values.remove(&field.key);
        if value.is_null() {
            return;
        }
        if field.setter == Setter::Manufacturer && self.origin != Origin::Defaults {
            let found = "a setting of the manufacturer".into();
            let fault = Fault { found, ..fault_at(value, "this setting in the defaults file only") };
            return self.complaints.refuse(self.origin, &field.name(), fault);
        }
        let checked = match field.form {
            Form::Environment => self.environment(field, value),
            _ => leaf::read(field, value),
        };
        match checked {
            Ok(checked) => drop(self.layer.values.insert(field.key, checked)),
            Err(fault) => {
                self.complaints.refuse(self.origin, &field.name(), fault);
                self.keep_before(field.key);
            }
        }
    }

    /// Variable by variable: a bad one keeps the value it had, the others are taken.
    fn environment<'n>(&mut self, field: &Field, value: Node<'n>) -> Result<Checked, Fault<'n>> {
        if value.kind() != Kind::Object {
            return Err(Fault { found: leaf::found(value, false), ..fault_at(value, &leaf::allowed(field.form)) });
        }
        let count = value.entries().count();
        if count > ENV_ENTRIES_MAX {
            let found = format!("{count} variables");
            return Err(Fault { found, ..fault_at(value, &leaf::allowed(field.form)) });
        }
        let mut variables: Vec<(Box<str>, Secret)> = Vec::with_capacity(count);
        for (name, inner) in value.entries() {
            variables.retain(|(known, _)| **known != *name);
            if inner.is_null() {
                continue;
            }
            let secret = leaf::variable(&name, inner).or_else(|fault| {
                self.complaints.refuse(self.origin, &format!("{}.{name}", field.name()), fault);
                self.variable_before(&name).ok_or(())
            });
            variables.extend(secret.map(|secret| (name.as_ref().into(), secret)));
        }
        let bytes = environment_bytes(&variables);
        if bytes > ENV_BYTES_MAX {
            let found = format!("{bytes} bytes of variables");
            return Err(Fault { found, ..fault_at(value, &leaf::allowed(field.form)) });
        }
        variables.sort_by(|(a, _), (b, _)| a.cmp(b));
        Ok(Checked::Environment(variables))
    }

    fn variable_before(&self, name: &str) -> Option<Secret> {
        match self.before.values.get(&Key::ServerEnv) {
            Some(Checked::Environment(before)) => {
                before.iter().find(|(known, _)| **known == *name).map(|(_, secret)| secret.clone())
            }
            _ => None,
        }
    }

    fn networks(&mut self, value: Node<'_>) {
        if value.is_null() {
            return;
        }
        let count = value.entries().count();
        if value.kind() != Kind::Object || count > NETWORKS_MAX {
            let found = if count > 0 { format!("{count} networks") } else { leaf::found(value, false) };
            let allowed = format!("an object of at most {NETWORKS_MAX} networks");
            self.complaints.refuse(self.origin, NETWORKS, Fault { found, ..fault_at(value, &allowed) });
            return self.layer.networks.clone_from(&self.before.networks);
        }
        for (name, inner) in value.entries() {
            self.network(&name, inner);
        }
    }

    fn network(&mut self, name: &str, value: Node<'_>) {
        let path = format!("{NETWORKS}.{name}");
        if name.is_empty() || name.len() > NETWORK_NAME_BYTES_MAX || name.contains(char::is_control) {
            let allowed = format!("a name of 1 to {NETWORK_NAME_BYTES_MAX} bytes on one line");
            let fault = Fault { found: format!("a name of {} bytes", name.len()), ..fault_at(value, &allowed) };
            return self.complaints.refuse(self.origin, &path, fault);
        }
        self.layer.networks.remove(name);
        let entry = match value.kind() {
            Kind::Null => return,
            Kind::Object => self.network_entry(&path, value),
            Kind::List | Kind::Text | Kind::Number | Kind::Bool => {
                self.refuse(&path, value, "an object");
                None
            }
        };
        // Half a network connects nowhere: the whole entry stays as it was, or is not there.
        let entry = entry.or_else(|| self.before.networks.get(name).cloned());
        self.layer.networks.extend(entry.map(|entry| (name.into(), entry)));
    }

    fn network_entry(&mut self, path: &str, value: Node<'_>) -> Option<NetworkEntry> {
        let mut entry = NetworkEntry::new();
        let mut good = true;
        for (name, inner) in value.entries() {
            let Some(field) = FIELDS.iter().find(|field| field.path == [NETWORKS, ANY, &name]) else {
                self.complaints.unknown(self.origin, &format!("{path}.{name}"), inner.place());
                continue;
            };
            entry.remove(&field.key);
            if inner.is_null() {
                continue;
            }
            match leaf::read(field, inner) {
                Ok(checked) => drop(entry.insert(field.key, checked)),
                Err(fault) => {
                    good = false;
                    self.complaints.refuse(self.origin, &format!("{path}.{name}"), fault);
                }
            }
        }
        let is_empty = |key| !matches!(entry.get(&key), Some(Checked::Text(text)) if !text.is_empty());
        let is_wifi = matches!(entry.get(&Key::NetworkType), Some(Checked::Text(kind)) if **kind == *"wifi");
        let missing = match (is_empty(Key::NetworkType), is_wifi && is_empty(Key::NetworkSsid)) {
            (true, _) => Some((Key::NetworkType, leaf::allowed(Key::NetworkType.field().form))),
            (false, true) => Some((Key::NetworkSsid, "the name of the WiFi network".into())),
            (false, false) => None,
        };
        // A bad type or name was complained about already; its absence is not a second fault.
        if let (true, Some((key, allowed))) = (good, missing) {
            good = false;
            let name = key.field().path.last().copied().unwrap_or_default();
            let fault = Fault { found: "nothing".into(), ..fault_at(value, &allowed) };
            self.complaints.refuse(self.origin, &format!("{path}.{name}"), fault);
        }
        good.then_some(entry)
    }

    fn refuse(&mut self, path: &str, value: Node<'_>, allowed: &str) {
        let fault = Fault { found: leaf::found(value, false), ..fault_at(value, allowed) };
        self.complaints.refuse(self.origin, path, fault);
    }

    fn keep_before(&mut self, key: Key) {
        let before = self.before.values.get(&key);
        self.layer.values.extend(before.map(|value| (key, value.clone())));
    }
}

/// Names and values together, each with the byte that ends it.
pub(super) fn environment_bytes(variables: &[(Box<str>, Secret)]) -> usize {
    variables.iter().map(|(name, value)| name.len() + value.len() + 2).sum()
}

fn fault_at<'a>(value: Node<'a>, allowed: &str) -> Fault<'a> {
    Fault { inside: String::new(), place: value.place(), found: String::new(), allowed: allowed.into() }
}
