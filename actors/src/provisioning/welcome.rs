//! What a visitor sees, whichever door it is.
//!
//! Owns nothing that may be eaten by looking: the result of an attempt stays until a person has seen it, and a phone's
//! own probe is no person.

use std::rc::Rc;

use board::network::{Seen, Ssid};

/// Whether a visitor may say who the device is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IdentityDoor {
    /// The device has none: whoever is here gives it one.
    #[default]
    Wanted,
    /// It has one, and the manufacturer or somebody at the device allows another.
    Open,
    /// It has one, and keeps it (docs/security.md: setup-mode takeover).
    Shut,
}

/// How the last attempt to join a network stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Result {
    /// It is being tried.
    Trying,
    /// The device has an address there; online once the fleet server or the internet was reached.
    Joined {
        /// Its address, such as `192.168.1.20`.
        address: Option<Rc<str>>,
        /// The internet was reached, too.
        online: bool,
    },
    /// In words, such as "wrong password for X".
    Failed(Rc<str>),
}

/// The last attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// Its number: another one is another attempt.
    pub number: u64,
    /// Which network.
    pub ssid: Ssid,
    /// How it stands.
    pub result: Result,
}

/// What is shown.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Welcome {
    /// As the manufacturer says.
    pub manufacturer: Rc<str>,
    /// As the manufacturer says.
    pub model: Rc<str>,
    /// Fragment for machines made here.
    pub fragment_id: Option<Rc<str>>,
    /// The device's own name.
    pub hostname: Rc<str>,
    /// The agent's version.
    pub agent_version: Rc<str>,
    /// Networks in the air, strongest first.
    pub networks: Rc<[Seen]>,
    /// Whether the device knows who it is.
    pub has_identity: bool,
    /// Whether a visitor may say so.
    pub identity: IdentityDoor,
    /// Whether the device is online.
    pub online: bool,
    /// The network it is joined to.
    pub joined: Option<Ssid>,
    /// The last attempt, until a person has seen how it ended and a new one is made.
    pub attempt: Option<Attempt>,
    /// Sentences about what is wrong with the device's settings or parts.
    pub complaints: Rc<[Rc<str>]>,
    /// The hotspot stays while a network is tried: the person sees the result. Otherwise it goes and comes back.
    pub stays: bool,
}
