//! What the agent can ask of a device.
//!
//! A port says what is wanted in the words of the domain and hides the mechanism. Every port is answered three times:
//! by the operating system (`board-linux`, with `board-portable` for what all systems share), and by a simulation that
//! is as strict as the hardware (`board-sim`). All ports are used from one thread; none of them needs `Send`.

// Input from outside must never end the process. A broken invariant may, with its reason (docs/adr/0005).
#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::string_slice, clippy::unreachable))]
#![cfg_attr(not(test), deny(clippy::expect_used, clippy::panic, clippy::unwrap_used))]

pub mod bluetooth;
pub mod clock;
pub mod console;
pub mod doorway;
pub mod fetch;
pub mod files;
pub mod host;
pub mod network;
pub mod power;
pub mod process;
pub mod service;

use std::rc::Rc;

pub use clock::{Clock, Mono, Wall};

/// One device: one field per ability.
///
/// An ability that a kind of device lacks is `None`; its actor is then not started, visibly, in the wiring.
#[derive(Clone)]
pub struct Board {
    /// Time, and waiting for it.
    pub clock: Rc<dyn clock::Clock>,
    /// Small records, spools and large files.
    pub files: Rc<dyn files::Files>,
    /// Downloads and small local questions.
    pub fetch: Rc<dyn fetch::Fetch>,
    /// The machine server as a process.
    pub processes: Rc<dyn process::Processes>,
    /// The service manager above us.
    pub service: Rc<dyn service::Service>,
    /// Questions asked at the device.
    pub console: Rc<dyn console::Console>,
    /// Switching the machine off and on.
    pub power: Option<Rc<dyn power::Power>>,
    /// Links, profiles and the radio.
    pub networks: Option<Rc<dyn network::Networks>>,
    /// A small HTTP listener for people near the device.
    pub doorway: Option<Rc<dyn doorway::Doorway>>,
    /// Bluetooth LE.
    pub bluetooth: Option<Rc<dyn bluetooth::Bluetooth>>,
    /// Names and facts of this machine.
    pub host: Rc<dyn host::Host>,
}
