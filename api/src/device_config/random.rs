//! Configurations made from a seed: mostly plausible, often wrong, sometimes not JSON at all.
//!
//! Built for tests, the swarm and the fuzzer only. The same seed gives the same document for ever, so a seed that failed
//! can be named in a test.

use super::{
    Accepted, CommandLine, Origin, Settings, Source, Sources,
    complaint::Complaints,
    fields::{ANY, FIELDS, Form, Shape},
    limits::{COMPLAINTS_MAX, DOCUMENT_BYTES_MAX, ENV_ENTRIES_MAX, NETWORKS_MAX},
    read,
    read::SECTIONS,
    read_response, read_text,
};
use crate::{
    json::{self, Limits, quoted},
    pb::platform::app::agent::v1::DeviceAgentConfigResponse,
};
use prost::Message as _;
use prost_types::{ListValue, Struct, Value, value::Kind};
use std::fmt::Write as _;

/// Text that stands wherever a secret may stand; it must be seen nowhere else.
pub const PLANTED_SECRET: &str = "planted-secret";

/// A document: the sections, half of the time under `agent`, and one in eight damaged.
pub fn random_document(seed: u64) -> Vec<u8> {
    let mut random = Random::new(seed);
    let mut document = match random.below(16) {
        0 => random.wild_value(),
        1 => random.nested(),
        2..9 => format!("{{\"agent\":{}}}", random.sections()),
        _ => random.sections(),
    }
    .into_bytes();
    if random.below(8) == 0 {
        random.damage(&mut document);
    }
    document
}

/// Reads the document of this seed from every side and asserts what holds for every document whatsoever: no panic, no
/// secret shown, every bound kept, the same after a restart and after reading again, the same as text and on the wire.
/// Returns what is accepted, for the next seed to fall back to.
pub fn hold(seed: u64, before: &Accepted) -> Accepted {
    let document = random_document(seed);
    let cloud = as_response(&document);
    let sources = Sources {
        defaults: Source::Given(&document),
        cloud: cloud.as_ref().map_or(Source::Absent, Source::Given),
        command_line: CommandLine::default(),
    };
    let first = read(&sources, before);
    let shown = format!("{:?} {:?} {:?}", first.settings, first.complaints, first.accepted);
    assert!(!shown.contains(PLANTED_SECRET), "seed {seed}: a secret is shown");
    assert!(first.complaints.len() <= COMPLAINTS_MAX + 1, "seed {seed}");

    let Settings { advanced, network, networks, .. } = &first.settings;
    assert!(networks.len() <= NETWORKS_MAX && advanced.server_env.len() <= ENV_ENTRIES_MAX, "seed {seed}");
    let earliest = network.offline_before_starting_hotspot.0 + network.retry_connection_timeout.0;
    assert!(network.device_reboot_after_offline.is_none_or(|reboot| reboot.0 >= earliest), "seed {seed}");

    let stored = Accepted::decode(first.accepted.encode().as_bytes());
    assert!(stored.as_ref() == Some(&first.accepted), "seed {seed}: it must survive a restart");
    let again = read(&sources, &first.accepted);
    assert!(again.settings == first.settings, "seed {seed}: reading again must change nothing");
    assert!(again.accepted == first.accepted, "seed {seed}: reading again must change nothing");

    // Near the limit one of the two forms may be just above it.
    if let Some(response) = cloud.as_ref().filter(|response| response.encoded_len() <= DOCUMENT_BYTES_MAX) {
        let mut said = Complaints::default();
        let as_text = read_text(&document, Origin::Cloud, &before.cloud, &mut said);
        let as_wire = read_response(response, &before.cloud, &mut said);
        assert!(as_text == as_wire, "seed {seed}: text and wire must mean the same");
    }
    first.accepted
}

/// The same document as the fleet server sends it; `None` if it has no such form (no object, or a key twice).
pub fn as_response(document: &[u8]) -> Option<DeviceAgentConfigResponse> {
    let root = json::parse(document, Limits::DOCUMENT).ok()?;
    let mut sections = as_struct(root.get(super::AGENT_KEY).unwrap_or(root))?;
    let versions = sections.fields.remove("version_control");
    let mut section = |name: &str| match sections.fields.remove(name).and_then(|value| value.kind) {
        Some(Kind::StructValue(section)) => Some(Some(section)),
        None | Some(Kind::NullValue(_)) => Some(None),
        Some(Kind::NumberValue(_) | Kind::StringValue(_) | Kind::BoolValue(_) | Kind::ListValue(_)) => None,
    };
    let mut advanced = section("advanced_settings")?;
    if let Some(versions) = versions {
        let advanced = advanced.get_or_insert_default();
        if advanced.fields.insert("version_control".into(), versions).is_some() {
            return None;
        }
    }
    Some(DeviceAgentConfigResponse {
        advanced_settings: advanced,
        network_configuration: section("network_configuration")?,
        additional_networks: section("additional_networks")?,
        system_configuration: section("system_configuration")?,
        ..Default::default()
    })
}

fn as_struct(value: json::Value<'_>) -> Option<Struct> {
    let mut object = Struct::default();
    for (name, inner) in value.entries() {
        if object.fields.insert(name.into_owned(), as_wire(inner)?).is_some() {
            return None;
        }
    }
    (value.kind() == json::Kind::Object).then_some(object)
}

fn as_wire(value: json::Value<'_>) -> Option<Value> {
    let kind = match value.kind() {
        json::Kind::Object => Kind::StructValue(as_struct(value)?),
        json::Kind::List => Kind::ListValue(ListValue { values: value.items().map(as_wire).collect::<Option<_>>()? }),
        json::Kind::Text => Kind::StringValue(value.as_text()?.into_owned()),
        json::Kind::Number => Kind::NumberValue(value.as_f64()?),
        json::Kind::Bool => Kind::BoolValue(value.as_bool()?),
        json::Kind::Null => Kind::NullValue(0),
    };
    Some(Value { kind: Some(kind) })
}

/// SplitMix64 (Steele, Lea, Flood 2014): any seed is a good one.
struct Random(u64);

impl Random {
    fn new(seed: u64) -> Random {
        Random(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.next() % limit.max(1) as u64).unwrap_or(0)
    }

    fn of<T: Copy>(&mut self, list: &[T]) -> Option<T> {
        list.get(self.below(list.len())).copied()
    }

    fn sections(&mut self) -> String {
        let mut entries = Vec::new();
        for section in SECTIONS {
            if self.below(4) > 0 {
                let value = if self.below(24) == 0 { self.wild_value() } else { self.section(section) };
                entries.push((section.to_owned(), value));
            }
        }
        if self.below(8) == 0 {
            entries.push(("unheard_of".into(), self.wild_value()));
        }
        object(entries)
    }

    fn section(&mut self, section: &str) -> String {
        if section == "additional_networks" {
            let count = if self.below(50) == 0 { 70 } else { self.below(5) };
            let entries = (0..count).map(|number| {
                let name = if self.below(20) == 0 { "x".repeat(self.below(80)) } else { format!("net {number}") };
                let value = if self.below(12) == 0 { self.wild_value() } else { self.fields_under(&[section, ANY]) };
                (format!("{name}{number}"), value)
            });
            return object(entries.collect());
        }
        self.fields_under(&[section])
    }

    fn fields_under(&mut self, path: &[&str]) -> String {
        let mut entries: Vec<(String, String)> = Vec::new();
        for field in FIELDS.iter().filter(|field| field.path.starts_with(path)) {
            let Some(name) = field.path.get(path.len()) else { continue };
            if self.below(2) == 0 || entries.iter().any(|(known, _)| known == name) {
                continue;
            }
            let inner: Vec<&str> = path.iter().copied().chain([*name]).collect();
            let value = match (field.path.len() > inner.len(), self.below(4)) {
                (_, 0) => self.wild_value(),
                (true, _) => self.fields_under(&inner),
                (false, _) => self.good_value(field.form),
            };
            entries.push(((*name).into(), value));
        }
        if self.below(10) == 0 {
            entries.push(("unheard_of".into(), self.wild_value()));
        }
        object(entries)
    }

    /// A value that the form allows, or nearly: on and just beyond the bounds.
    fn good_value(&mut self, form: Form) -> String {
        let text = |text: &str| quoted(text).to_string();
        match form {
            Form::Flag => (self.below(2) == 0).to_string(),
            Form::Integer { min, max, special } => {
                let between = min + i64::try_from(self.below(600)).unwrap_or(0);
                let numbers = [min, max, between, between, special.map_or(0, |(value, _)| value), max + 1, min - 1];
                self.of(&numbers).unwrap_or(0).to_string()
            }
            Form::Text { shape: Shape::Country, .. } => text(self.of(&["", "DE", "US"]).unwrap_or("")),
            Form::Text { shape: Shape::NamedUrl, .. } => {
                text(self.of(&["https://a.example/b", "https://c", ""]).unwrap_or(""))
            }
            Form::Text { shape: Shape::WebUrl, .. } => text(self.of(&["http://a/b", "https://c", ""]).unwrap_or("")),
            Form::Text { min, max, .. } => {
                let length = self.of(&[min, max, max + 1, 5, 12]).unwrap_or(1);
                text(&"a".repeat(length))
            }
            Form::Choice(choices) => text(self.of(choices).unwrap_or("")),
            Form::Version => {
                let forms =
                    ["stable", "dev", "1.2.3", "0.1.0-dev.4", "http://h/p", r"file://C:\server.exe", "file:///x"];
                text(self.of(&forms).unwrap_or("stable"))
            }
            Form::Passphrase | Form::Psk | Form::Hidden { .. } => {
                let more = self.below(70);
                text(&format!("{PLANTED_SECRET}{}", "x".repeat(more)))
            }
            Form::Address => text(self.of(&["auto", "10.0.0.5/8", "192.168.0.9/24"]).unwrap_or("auto")),
            Form::Ip => text(self.of(&["", "10.0.0.1", "8.8.8.8"]).unwrap_or("")),
            Form::Ips => list((0..self.below(10)).map(|number| text(&format!("10.0.0.{number}"))).collect()),
            Form::Environment => {
                let count = if self.below(40) == 0 { 130 } else { self.below(6) };
                let length = if self.below(40) == 0 { 9000 } else { self.below(40) };
                let entry = |number| {
                    let value = if self.below(8) == 0 { self.wild_value() } else { "x".repeat(length) };
                    (format!("VAR_{number}"), text(&format!("{PLANTED_SECRET}{value}")))
                };
                object((0..count).map(entry).collect())
            }
            Form::Windows => {
                let window = |random: &mut Random| {
                    let days = ["[\"mon\"]", "[\"sat\",\"sun\"]", "[]", "[\"someday\"]", "null"];
                    let times = ["00:00", "02:30", "23:59", "24:00", "25:00"];
                    let zones = ["local", "Europe/Berlin", "../x"];
                    object(vec![
                        ("days".into(), random.of(&days).unwrap_or("null").into()),
                        ("from".into(), text(random.of(&times).unwrap_or(""))),
                        ("to".into(), text(random.of(&times).unwrap_or(""))),
                        ("tz".into(), text(random.of(&zones).unwrap_or(""))),
                    ])
                };
                let count = self.below(4);
                list((0..count).map(|_| window(self)).collect())
            }
            Form::Keys => {
                let length = self.of(&[64, 64, 63]).unwrap_or(64);
                list(
                    (0..self.below(3))
                        .map(|_| text(&"aB".repeat(32).chars().take(length).collect::<String>()))
                        .collect(),
                )
            }
        }
    }

    /// A value of any kind.
    fn wild_value(&mut self) -> String {
        let values = [
            "null",
            "true",
            "false",
            "0",
            "-1",
            "10",
            "10.0",
            "10.5",
            "1e300",
            "-0.0",
            "99999999999999999999",
            "\"\"",
            "\"10\"",
            "\"\\ud83d\\ude00\"",
            "\"a\\u0000b\"",
            "\"null\"",
            "[]",
            "{}",
            "[1,2]",
            "{\"a\":{\"b\":[]}}",
        ];
        match self.below(12) {
            0 => quoted(&"long ".repeat(self.below(2000))).to_string(),
            1 => self.nested(),
            _ => self.of(&values).unwrap_or("null").into(),
        }
    }

    /// Deep, around and far beyond what is allowed.
    fn nested(&mut self) -> String {
        let levels = self.of(&[3, 20, 58, 62, 64, 65, 200, 5000]).unwrap_or(3);
        let (open, close) = self.of(&[("[", "]"), ("{\"k\":", "}")]).unwrap_or(("[", "]"));
        format!("{}1{}", open.repeat(levels), close.repeat(levels))
    }

    fn damage(&mut self, document: &mut Vec<u8>) {
        for _ in 0..=self.below(4) {
            let at = self.below(document.len());
            let byte = self.of(b"{}[]\",:\\/0e-tfn \n\xff\xc3").unwrap_or(b' ');
            match self.below(4) {
                0 => document.truncate(at),
                1 => document.insert(at.min(document.len()), byte),
                _ => {
                    if let Some(place) = document.get_mut(at) {
                        *place = byte;
                    }
                }
            }
        }
    }
}

fn object(entries: Vec<(String, String)>) -> String {
    let mut text = String::from("{");
    for (number, (name, value)) in entries.into_iter().enumerate() {
        let comma = if number > 0 { "," } else { "" };
        let _ = write!(text, "{comma}{}:{value}", quoted(&name));
    }
    text + "}"
}

fn list(items: Vec<String>) -> String {
    format!("[{}]", items.join(","))
}
