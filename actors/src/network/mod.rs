//! Keeps the device connected with what it was given.
//!
//! Owns which profiles the device has, which network is tried next, what counts as online, and the reboot of a device
//! that has been offline for too long. Never touches a profile that the agent did not make.
//!
//! | file | owns |
//! |---|---|
//! | `machine` | what happens, and what follows at once |
//! | `machine/work` | what is done next, and how it ended |
//! | `machine/keeping` | the profiles that the network manager has, and how the radio is set |
//! | `machine/giving` | what a person gave |
//! | `machine/proof` | changes of a network in use, and the way back |
//! | `machine/watch` | whether a radio's link is there at all, and the best |
//! | `machine/lost` | networks that were just lost |
//! | `machine/round` | one go at every network |
//! | `machine/reboot` | the reboot of a device that stays offline |
//! | `machine/words` | what others are told |
//! | `online` | whether the device is online, and since when |
//! | `choose` | the order in which networks are tried, and the patience with each |
//! | `profiles` | wanted × present → add, change, remove |
//! | `record` | what must be known after a reboot |
//! | `actor` | waiting and doing |

pub mod actor;
pub mod choose;
pub mod machine;
pub mod online;
pub mod profiles;
pub mod record;
#[cfg(test)]
mod tests;

use std::rc::Rc;

use api::Secret;
use board::{
    Mono,
    network::{Link, Radio, Seen, Ssid, Subnet},
};

/// How the device is connected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Connectivity {
    /// Nobody has looked yet.
    #[default]
    Unknown,
    /// The internet, or what this device counts as it, can be reached.
    Online {
        /// Since when.
        since: Mono,
    },
    /// There is a link and no internet. Counts as offline only where the configuration says so.
    Local {
        /// Since when there is no internet.
        since: Mono,
    },
    /// There is no link.
    Offline {
        /// Since when.
        since: Mono,
    },
}

/// What a person gave at a door.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Given {
    /// The network's name.
    pub ssid: Ssid,
    /// Its password; `None` for an open one.
    pub psk: Option<Secret>,
    /// It was typed and not chosen from the list.
    pub hidden: bool,
}

/// What others can ask of this actor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Store this as a profile of priority 999 (older ones of that kind step down), and join it now. The result is
    /// published as [`Joining`] with this number.
    Join {
        /// Names the attempt.
        attempt: u64,
        /// What to join.
        given: Given,
    },
    /// Try every network that is known, from the highest priority to the lowest, now: the hotspot has closed for that.
    TryKnown {
        /// Names the round.
        round: u64,
    },
    /// Listen to the air now, because somebody looks at the list.
    Rescan,
    /// The radio is the hotspot's (`true`) or free again.
    Hotspot(bool),
    /// Somebody is being helped: no reboot, and no network is tried but the one that is given.
    Busy(bool),
}

/// How an attempt stands.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Outcome {
    /// It is being tried.
    #[default]
    Trying,
    /// The link has an address.
    Joined(Link),
    /// In words for the person who gave the password, such as "wrong password for X".
    Failed(Rc<str>),
}

/// [`Command::Join`] has its result within this, whatever the network manager does.
pub const JOIN_TAKES_MAX: std::time::Duration = machine::TOGETHER_MAX;

/// The last attempt that was asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Joining {
    /// Its number; 0 is none.
    pub attempt: u64,
    /// How it stands.
    pub outcome: Outcome,
    /// The last round of [`Command::TryKnown`] that has ended; 0 is none.
    pub round_ended: u64,
}

/// What a person at a door can choose from, and what the radio can do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Air {
    /// Strongest first; at most [`SEEN_MAX`].
    pub seen: Rc<[Seen]>,
    /// The radio that is used for WiFi and hotspot; `None` while there is none.
    pub radio: Option<Radio>,
    /// The network manager's own sentence when it cannot be used.
    pub trouble: Option<Rc<str>>,
    /// [`board::network::Links::subnets`]: a hotspot keeps clear of them.
    pub subnets: Rc<[Subnet]>,
}

/// Networks that are kept of a scan: a list that a person can still read, and a bound on memory.
pub const SEEN_MAX: usize = 48;

/// How the network is, for people.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// How the device is connected.
    pub connectivity: Connectivity,
    /// Links that lead somewhere.
    pub links: Vec<Link>,
    /// What is not well, in sentences.
    pub trouble: Vec<String>,
    /// Reboots because it was offline for too long, ever.
    pub reboots: u64,
}
