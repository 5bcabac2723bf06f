//! The configuration of a device: raw documents in, settings and complaints out.
//!
//! Owns what every setting is called, is allowed to be and is when nobody says ([`fields`], the one table), how the
//! sources lie on each other, and what happens to a bad value. Reading never fails as a whole: it gives [`Settings`]
//! *and* [`Complaint`]s.
//!
//! Sources, later wins field by field: built in, defaults file of the manufacturer, cloud, command line. Within a
//! source, of a value that is not accepted the value accepted before stays ([`Accepted`]), also across a restart; a
//! document that cannot be read at all leaves the whole source as it was. `null` unsets what the source says; zero and
//! empty text are values like any other.
//!
//! ```text
//! defaults file ─ json::parse ─┐                        ┌─ Accepted (stored)
//!                              ├─ read.rs × fields.rs ──┤
//! cloud ── Struct on the wire ─┘        │               └─ resolve.rs × command line ── Settings
//!                                  complaints
//! ```

mod complaint;
pub mod fields;
mod layer;
mod leaf;
pub mod limits;
mod maintenance;
mod networks;
mod node;
#[cfg(any(test, feature = "testing"))]
pub mod random;
mod read;
#[cfg(any(test, feature = "testing"))]
pub mod reference;
mod resolve;
mod settings;
mod versions;

#[cfg(test)]
mod tests;

pub use complaint::{Complaint, Origin};
pub use layer::Accepted;
pub use maintenance::{Days, Maintenance, MinuteOfDay, Window, Zone};
pub use networks::{Address, Network, NetworkKind};
pub use settings::{
    Advanced, JournalLimit, Minutes, NetworkSettings, OsUpgrade, ServerLimits, Settings, SystemSettings, Trust,
    VersionControl,
};
pub use versions::{Channel, VersionSetting, without_secrets};

use crate::{
    json::{self, Limits},
    pb::platform::app::agent::v1::DeviceAgentConfigResponse,
};
use complaint::{Complaints, Fault};
use layer::Layer;
use limits::{DOCUMENT_BYTES_MAX, DOCUMENT_DEPTH_MAX};
use node::{Kind, Node};
use prost::Message;
use read::{Reader, SECTIONS};

/// Under this key a machine's configuration holds the part that is meant for the agent.
pub const AGENT_KEY: &str = "agent";

/// The limits of a document in text.
const DOCUMENT: Limits = Limits { bytes: DOCUMENT_BYTES_MAX, depth: DOCUMENT_DEPTH_MAX };

/// What a source gave.
#[derive(Clone, Debug)]
pub enum Source<T> {
    /// There is no such document: the source says nothing.
    Absent,
    /// The document.
    Given(T),
    /// There is one and it could not be read, for this reason: the source stays as it was.
    Unreadable(String),
}

/// What the command line says, over everything else.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CommandLine {
    /// Debug lines of the agent.
    pub debug: Option<bool>,
    /// Check for updates before the machine server is started.
    pub wait_for_update_check: Option<bool>,
}

/// Everything there is to read.
#[derive(Clone, Debug)]
pub struct Sources<'a> {
    /// Text of the manufacturer's defaults file.
    pub defaults: Source<&'a [u8]>,
    /// The fleet server's answer.
    pub cloud: Source<&'a DeviceAgentConfigResponse>,
    /// Options and environment of the agent.
    pub command_line: CommandLine,
}

/// What reading gives.
#[derive(Clone, Debug, PartialEq)]
pub struct Reading {
    /// In force from now on.
    pub settings: Settings,
    /// What the next reading falls back to.
    pub accepted: Accepted,
    /// What was not accepted.
    pub complaints: Vec<Complaint>,
}

/// Reads all sources, falling back to `before` where a value is not accepted.
pub fn read(sources: &Sources<'_>, before: &Accepted) -> Reading {
    let mut complaints = Complaints::default();
    let mut accepted = Accepted {
        defaults: match &sources.defaults {
            Source::Absent => Layer::default(),
            Source::Given(text) => read_text(text, Origin::Defaults, &before.defaults, &mut complaints),
            Source::Unreadable(why) => unreadable(why, Origin::Defaults, &before.defaults, &mut complaints),
        },
        cloud: match &sources.cloud {
            Source::Absent => Layer::default(),
            Source::Given(response) => read_response(response, &before.cloud, &mut complaints),
            Source::Unreadable(why) => unreadable(why, Origin::Cloud, &before.cloud, &mut complaints),
        },
    };
    resolve::hold_back_reboot(&mut accepted, before, &mut complaints);
    let settings = resolve::settings(&accepted, sources.command_line, &mut complaints);
    Reading { settings, accepted, complaints: complaints.finish() }
}

/// What a device would say to this document: a machine's whole configuration with the key `agent`, or the sections
/// themselves. `origin` says who would give it, because some settings are the manufacturer's alone.
pub fn check(document: &[u8], origin: Origin) -> Vec<Complaint> {
    let mut complaints = Complaints::default();
    let layer = read_text(document, origin, &Layer::default(), &mut complaints);
    let mut accepted = match origin {
        Origin::Defaults => Accepted { defaults: layer, cloud: Layer::default() },
        Origin::Cloud => Accepted { defaults: Layer::default(), cloud: layer },
    };
    resolve::hold_back_reboot(&mut accepted, &Accepted::default(), &mut complaints);
    complaints.finish()
}

/// What is in force when nobody says anything.
impl Default for Settings {
    fn default() -> Self {
        resolve::settings(&Accepted::default(), CommandLine::default(), &mut Complaints::default())
    }
}

fn read_text(document: &[u8], origin: Origin, before: &Layer, complaints: &mut Complaints) -> Layer {
    let root = match json::parse(document, DOCUMENT) {
        Ok(root) => root,
        Err(error) => {
            complaints.refuse_document(origin, &error.problem.to_string(), Some(error.position));
            return before.clone();
        }
    };
    let (path, sections) = match root.get(AGENT_KEY) {
        Some(agent) => (AGENT_KEY, agent),
        None => ("", root),
    };
    if sections.kind() != Kind::Object {
        let found = leaf::found(Node::Text(sections), false);
        let fault = Fault { inside: String::new(), place: Some(sections), found, allowed: "an object".into() };
        complaints.refuse(origin, path, fault);
        return before.clone();
    }
    // A machine's configuration without `agent` is full of names that are not ours.
    let ours = path == AGENT_KEY || origin == Origin::Defaults || sections.entries().any(|(name, _)| is_section(&name));
    if !ours {
        return Layer::default();
    }
    Reader::new(origin, false, before, complaints).read_sections(Node::Text(sections))
}

fn is_section(name: &str) -> bool {
    SECTIONS.contains(&name)
}

fn read_response(response: &DeviceAgentConfigResponse, before: &Layer, complaints: &mut Complaints) -> Layer {
    let sections = [
        ("advanced_settings", &response.advanced_settings),
        ("network_configuration", &response.network_configuration),
        ("additional_networks", &response.additional_networks),
        ("system_configuration", &response.system_configuration),
    ];
    let given = sections.iter().filter_map(|(name, section)| Some((*name, section.as_ref()?)));
    let bytes: usize = given.clone().map(|(_, section)| section.encoded_len()).sum();
    if bytes > DOCUMENT_BYTES_MAX {
        let why = format!("{bytes} bytes, more than the {DOCUMENT_BYTES_MAX} that are allowed");
        return unreadable(&why, Origin::Cloud, before, complaints);
    }
    // Counted from the section, not from the document: the versions travel one deeper than they are written.
    if given.clone().any(|(_, section)| node::wire_depth(section) > DOCUMENT_DEPTH_MAX) {
        let why = format!("objects and lists inside each other more than {DOCUMENT_DEPTH_MAX} deep");
        return unreadable(&why, Origin::Cloud, before, complaints);
    }
    let nodes = given.map(|(name, section)| (name, Node::WireObject(section)));
    Reader::new(Origin::Cloud, true, before, complaints).read_each(nodes)
}

fn unreadable(why: &str, origin: Origin, before: &Layer, complaints: &mut Complaints) -> Layer {
    complaints.refuse_document(origin, why, None);
    before.clone()
}
