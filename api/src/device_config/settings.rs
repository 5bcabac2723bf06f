//! The settings in force, as checked types: what the actors see of the configuration.
//!
//! Nothing here can be out of bounds: the fields come out of `read` only, which has checked them against the table.
//! Sections are `Rc` and comparable, so that only a section which changed is handed on.

use super::{maintenance::Maintenance, networks::Network, versions::VersionSetting};
use crate::Secret;
use std::{rc::Rc, time::Duration};

/// A length of time as the configuration gives it. `--dev-mode` shortens the minute, never the number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Minutes(pub u32);

impl Minutes {
    /// The length, where a minute lasts `minute`.
    pub fn times(self, minute: Duration) -> Duration {
        minute.saturating_mul(self.0)
    }

    /// Zero switches several settings off.
    pub fn is_zero(self) -> bool {
        self.0 == 0
    }
}

/// Everything in force.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Section `version_control`.
    pub versions: Rc<VersionControl>,
    /// Section `advanced_settings`.
    pub advanced: Rc<Advanced>,
    /// Section `network_configuration`.
    pub network: Rc<NetworkSettings>,
    /// Section `additional_networks`, ordered by name.
    pub networks: Rc<[Network]>,
    /// Section `system_configuration`.
    pub system: Rc<SystemSettings>,
}

/// Which versions are wanted.
#[derive(Clone, Debug, PartialEq)]
pub struct VersionControl {
    /// Of the agent.
    pub agent: VersionSetting,
    /// Of the machine server.
    pub server: VersionSetting,
}

/// Section `advanced_settings`.
#[derive(Clone, Debug, PartialEq)]
pub struct Advanced {
    /// Debug lines of the agent.
    pub debug: bool,
    /// No profile, scan, hotspot, portal, Bluetooth or reboot.
    pub disable_network_configuration: bool,
    /// The operating system is left alone.
    pub disable_system_configuration: bool,
    /// The machine server does not run.
    pub disable_server: bool,
    /// Variables for the machine server, ordered by name. The values may be secrets.
    pub server_env: Box<[(Box<str>, Secret)]>,
    /// A machine server that is not ready after this is killed and started again.
    pub server_start_timeout: Minutes,
    /// Where the machine server is asked for its status until it names a better place.
    pub server_status_url: Box<str>,
    /// Check for updates before the machine server is started.
    pub wait_for_update_check: bool,
    /// When the machine server may be restarted and versions switched; `None` is always.
    pub maintenance: Option<Maintenance>,
    /// Downloads together; 0 is unlimited.
    pub update_bandwidth_kilobytes_per_second: u32,
    /// Space that downloads, versions and spools leave free.
    pub disk_reserve_megabytes: u32,
    /// How long a new version is watched; `None` is each product's own.
    pub probation: Option<Minutes>,
    /// What the operating system allows the machine server.
    pub server_limits: ServerLimits,
    /// Whom this device believes, by the manufacturer's word.
    pub trust: Trust,
}

/// What the operating system allows the machine server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServerLimits {
    /// Memory; `None` is all there is.
    pub memory_max_megabytes: Option<u32>,
    /// Share of the processor against others, 1 to 10,000; `None` is the system's own.
    pub cpu_weight: Option<u32>,
    /// Files that one process may have open; `None` is the system's own.
    pub open_files_max: Option<u32>,
}

/// Whom this device believes. Only the manufacturer's defaults file can say so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trust {
    /// Ed25519 public root keys, 64 lowercase hexadecimal digits each; empty: the root is pinned at first contact.
    pub release_keys: Box<[Box<str>]>,
    /// How many of them must have signed a root; `None` is more than half.
    pub release_keys_threshold: Option<u32>,
    /// Whether a URL pin without a signed digest is taken as the owner's word.
    pub allow_unsigned_pins: bool,
}

/// Section `network_configuration`.
#[derive(Clone, Debug, PartialEq)]
pub struct NetworkSettings {
    /// The device reboots after being offline this long; `None` is never.
    pub device_reboot_after_offline: Option<Minutes>,
    /// No Bluetooth door.
    pub disable_bt_provisioning: bool,
    /// No hotspot.
    pub disable_wifi_provisioning: bool,
    /// Only names ending in `.setup` resolve to the device.
    pub disable_captive_portal_redirect: bool,
    /// Every pairing request is accepted.
    pub bluetooth_trust_all: bool,
    /// Fragment for machines made at the door.
    pub fragment_id: Option<Box<str>>,
    /// Interface for hotspot and WiFi; `None` is the first 802.11 device.
    pub hotspot_interface: Option<Box<str>>,
    /// Password of the hotspot.
    pub hotspot_password: Secret,
    /// A per-device password is made from this, by the manufacturer's word.
    pub hotspot_password_secret: Option<Secret>,
    /// First part of the hotspot's name.
    pub hotspot_prefix: Box<str>,
    /// Shown at the doors.
    pub manufacturer: Box<str>,
    /// Shown at the doors.
    pub model: Box<str>,
    /// Offline this long before the hotspot opens.
    pub offline_before_starting_hotspot: Minutes,
    /// The hotspot closes after this, so that other connections are tried.
    pub retry_connection_timeout: Minutes,
    /// A connection without internet counts as offline.
    pub turn_on_hotspot_if_wifi_has_no_internet: bool,
    /// A visitor who did nothing for this long is idle.
    pub user_idle: Minutes,
    /// Power save of the radio; `None` leaves the system's own.
    pub wifi_power_save: Option<bool>,
    /// Two letters of the country whose radio rules apply; `None` leaves the system's own.
    pub wifi_country: Option<Box<str>>,
    /// Asked to find out whether there is internet; `None` is the system's own check.
    pub connectivity_check_url: Option<Box<str>>,
    /// A device that has an identity accepts another one at a door.
    pub allow_identity_change: bool,
    /// Announced by the DHCP option of RFC 8910: `https://portal.acme.example/api`, where the page's port answers RFC 8908.
    pub advertise_captive_api: Option<Box<str>>,
    /// The Improv service is offered over Bluetooth.
    pub improv: bool,
    /// Improv needs somebody at the device.
    pub improv_needs_presence: bool,
}

/// A limit of the journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JournalLimit {
    /// No limit set by us; one that we set before is removed.
    Unmanaged,
    /// At most so many megabytes.
    Megabytes(u32),
}

/// Updates of the operating system's packages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OsUpgrade {
    /// The system's own settings stay as they are.
    Unchanged,
    /// All packages.
    All,
    /// Security updates only.
    Security,
    /// None.
    Disable,
}

/// Section `system_configuration`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SystemSettings {
    /// Comma list of SYSLOG_IDENTIFIERs, `-` excludes, `all`; empty forwards nothing.
    pub forward_system_logs: Box<str>,
    /// Of the journal in memory.
    pub journald_runtime: JournalLimit,
    /// Of the journal on disk.
    pub journald_system: JournalLimit,
    /// What is done about package updates.
    pub os_auto_upgrade: OsUpgrade,
}
