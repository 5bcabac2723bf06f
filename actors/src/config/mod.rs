//! Keeps the settings in force.
//!
//! Owns the merge of what the manufacturer, the cloud and the command line say, the memory of what was accepted, and who
//! hears of a change. The order of the sources is that of who is nearer to this very device: what is built in holds for
//! every device, the manufacturer's file for a product, the cloud for this machine, the command line for this start.
//!
//! What was accepted is stored before it is published, so that a restart never finds an older configuration than the
//! one that was acted upon. On start the stored one is in force at once: a device without network runs its machine
//! server as it did before. A disk that refuses to store does not hold a change back; it is reported, and tried again.

pub mod actor;
pub mod cache;
pub mod diff;
pub mod machine;
#[cfg(test)]
mod tests;

use std::rc::Rc;

use api::device_config::{Advanced, Complaint, Network, NetworkSettings, SystemSettings, VersionControl};

use crate::kit::latest::Latest;

/// The settings in force, section by section; each reader hears only of the sections it watches, and only when they
/// changed.
#[derive(Clone, Default)]
pub struct Sections {
    /// Wanted versions.
    pub versions: Latest<Rc<VersionControl>>,
    /// Machine server, maintenance, updates.
    pub advanced: Latest<Rc<Advanced>>,
    /// Connection and provisioning.
    pub network: Latest<Rc<NetworkSettings>>,
    /// Networks that were given.
    pub networks: Latest<Rc<[Network]>>,
    /// Operating system.
    pub system: Latest<Rc<SystemSettings>>,
    /// How the configuration itself is. Published after the sections.
    pub status: Latest<ConfigStatus>,
}

/// How the configuration itself is.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ConfigStatus {
    /// Digest of the cloud's configuration that is in force; `None` while the cloud has never been heard.
    pub applied_revision: Option<[u8; 32]>,
    /// What was not accepted.
    pub complaints: Rc<[Complaint]>,
    /// Why what is in force could not be stored; it would be lost by a restart.
    pub trouble: Option<Rc<str>>,
}

/// Read the defaults file again: SIGHUP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reload;
