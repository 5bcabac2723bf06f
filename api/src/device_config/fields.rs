//! THE TABLE: every setting of a device once, with type, default, bound, doc and who may set it.
//!
//! Reading, merging, complaints, what is stored and `docs/config.md` are derived from these rows. A new setting is a
//! [`Key`], a row, a line in `settings.rs` and one in `resolve.rs`.

use super::{
    limits::{DHCP_OPTION_BYTES_MAX, LINE_BYTES_MAX, MINUTES_MAX},
    versions::URL_BYTES_MAX,
};
use crate::brand;

/// Names a row. In the order of the table, which a test compares.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
#[allow(missing_docs, reason = "each is explained in its row")]
pub enum Key {
    AgentVersion,
    ServerVersion,
    Debug,
    DisableNetworkConfiguration,
    DisableSystemConfiguration,
    DisableServer,
    ServerEnv,
    ServerStartTimeout,
    ServerStatusUrl,
    WaitForUpdateCheck,
    MaintenanceWindows,
    UseServerWord,
    UpdateBandwidth,
    DiskReserve,
    Probation,
    ServerMemoryMax,
    ServerCpuWeight,
    ServerOpenFilesMax,
    ReleaseKeys,
    ReleaseKeysThreshold,
    AllowUnsignedPins,
    RebootAfterOffline,
    DisableBtProvisioning,
    DisableWifiProvisioning,
    DisableCaptivePortalRedirect,
    BluetoothTrustAll,
    FragmentId,
    HotspotInterface,
    HotspotPassword,
    HotspotPrefix,
    Manufacturer,
    Model,
    OfflineBeforeHotspot,
    RetryConnectionTimeout,
    HotspotIfNoInternet,
    UserIdle,
    WifiPowerSave,
    WifiCountry,
    ConnectivityCheckUrl,
    AllowIdentityChange,
    HotspotPasswordSecret,
    AdvertiseCaptiveApi,
    Improv,
    ImprovNeedsPresence,
    NetworkType,
    NetworkInterface,
    NetworkSsid,
    NetworkPsk,
    NetworkPriority,
    NetworkAddress,
    NetworkGateway,
    NetworkDns,
    NetworkRouteMetric,
    ForwardSystemLogs,
    JournaldRuntimeMax,
    JournaldSystemMax,
    OsAutoUpgrade,
}

/// One setting.
#[derive(Debug)]
pub struct Field {
    /// Its name in the program.
    pub key: Key,
    /// Its place in the document; [`ANY`] stands for a name that the user chooses.
    pub path: &'static [&'static str],
    /// Type and bounds.
    pub form: Form,
    /// The value when no source gives one.
    pub builtin: Builtin,
    /// Who may set it.
    pub setter: Setter,
    /// What it does, for people.
    pub doc: &'static str,
}

/// In a path: a name that the user chooses.
pub const ANY: &str = "*";

/// Who may set a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Setter {
    /// Manufacturer and cloud.
    Everyone,
    /// Only the manufacturer's defaults file: what a stolen cloud account must not change.
    Manufacturer,
}

/// The value when no source gives one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Builtin {
    /// Not set; the meaning is in the row's doc.
    Unset,
    /// A flag.
    Flag(bool),
    /// A number.
    Integer(i64),
    /// A text.
    Text(&'static str),
}

/// Type and bounds of a value.
#[derive(Clone, Copy, Debug)]
pub enum Form {
    /// `true` or `false`.
    Flag,
    /// An integer between two bounds, or one special value with its meaning.
    Integer {
        /// Smallest.
        min: i64,
        /// Largest.
        max: i64,
        /// A value outside the bounds that is allowed, and what it means.
        special: Option<(i64, &'static str)>,
    },
    /// Text of a length in bytes.
    Text {
        /// Shortest.
        min: usize,
        /// Longest.
        max: usize,
        /// What it must look like.
        shape: Shape,
    },
    /// One of these texts.
    Choice(&'static [&'static str]),
    /// A version setting.
    Version,
    /// The password of a hotspot; never shown.
    Passphrase,
    /// The password or key of a network, or empty; never shown.
    Psk,
    /// A text that is never shown.
    Hidden {
        /// Shortest.
        min: usize,
        /// Longest.
        max: usize,
    },
    /// `auto` or an IPv4 address with prefix length.
    Address,
    /// An IPv4 address, or empty.
    Ip,
    /// A list of IPv4 addresses.
    Ips,
    /// An object of texts; the values are never shown.
    Environment,
    /// A list of maintenance windows.
    Windows,
    /// A list of public keys.
    Keys,
}

/// What a text must look like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// One line: no control characters.
    Line,
    /// No blanks, no slash: the name of a network interface.
    Interface,
    /// Two capital letters, or empty.
    Country,
    /// An `http` or `https` URL, or empty.
    WebUrl,
    /// An `https` URL whose host is a name, or empty: somebody's certificate has to be for it.
    NamedUrl,
}

/// Every setting.
pub static FIELDS: &[Field] = {
    use Builtin::{Flag, Integer, Text, Unset};
    use Key::*;
    use Setter::{Everyone, Manufacturer as OnlyManufacturer};

    const VERSIONS: &str = "version_control";
    const ADVANCED: &str = "advanced_settings";
    const NETWORK: &str = "network_configuration";
    const NETWORKS: &str = "additional_networks";
    const SYSTEM: &str = "system_configuration";

    const MINUTES: Form = Form::Integer { min: 0, max: MINUTES_MAX, special: None };
    const MINUTES_FROM_1: Form = Form::Integer { min: 1, max: MINUTES_MAX, special: None };
    const LINE: Form = Form::Text { min: 0, max: LINE_BYTES_MAX, shape: Shape::Line };
    const SHOWN: Form = Form::Text { min: 1, max: LINE_BYTES_MAX, shape: Shape::Line };
    const INTERFACE: Form = Form::Text { min: 0, max: 15, shape: Shape::Interface };
    const WEB_URL: Form = Form::Text { min: 0, max: URL_BYTES_MAX, shape: Shape::WebUrl };
    const JOURNAL: Form =
        Form::Integer { min: 1, max: 1_048_576, special: Some((-1, "no limit set by us, ours is removed")) };

    /// A row that everybody may set.
    const fn row(
        key: Key,
        path: &'static [&'static str],
        form: Form,
        builtin: Builtin,
        setter: Setter,
        doc: &'static str,
    ) -> Field {
        Field { key, path, form, builtin, setter, doc }
    }

    &[
        // version_control
        row(
            AgentVersion,
            &[VERSIONS, "agent"],
            Form::Version,
            Text("stable"),
            Everyone,
            "Version of the agent: `stable` (upgrades with each release), `dev`, an exact semantic version, or a URL of a binary (`http`, `https`, `file`; Windows-style file URLs too).",
        ),
        row(
            ServerVersion,
            &[VERSIONS, brand::SERVER_VERSION_KEY],
            Form::Version,
            Text("stable"),
            Everyone,
            "Version of the machine server, written like the agent's.",
        ),
        // advanced_settings
        row(Debug, &[ADVANCED, "debug"], Form::Flag, Flag(false), Everyone, "Debug lines in the log of the agent."),
        row(
            DisableNetworkConfiguration,
            &[ADVANCED, "disable_network_configuration"],
            Form::Flag,
            Flag(false),
            Everyone,
            "Leaves the network alone: no profile, scan, hotspot, portal, Bluetooth or reboot; `additional_networks` is ignored.",
        ),
        row(
            DisableSystemConfiguration,
            &[ADVANCED, "disable_system_configuration"],
            Form::Flag,
            Flag(false),
            Everyone,
            "Leaves the operating system alone: `system_configuration` is ignored.",
        ),
        row(
            DisableServer,
            &[ADVANCED, brand::DISABLE_SERVER_KEY],
            Form::Flag,
            Flag(false),
            Everyone,
            "Stops the machine server and does not start it, so that a person can run one.",
        ),
        row(
            ServerEnv,
            &[ADVANCED, brand::SERVER_ENV_KEY],
            Form::Environment,
            Unset,
            Everyone,
            "Variables for the machine server and its children, besides the agent's own environment. Sources are merged variable by variable.",
        ),
        row(
            ServerStartTimeout,
            &[ADVANCED, brand::SERVER_START_TIMEOUT_KEY],
            MINUTES_FROM_1,
            Integer(10),
            Everyone,
            "A machine server that is not ready after this is killed and started again.",
        ),
        row(
            ServerStatusUrl,
            &[ADVANCED, "server_status_url"],
            Form::Text { min: 1, max: URL_BYTES_MAX, shape: Shape::WebUrl },
            Text("http://127.0.0.1:8081"),
            Everyone,
            "Where the machine server is asked for its status until it names a better place.",
        ),
        row(
            WaitForUpdateCheck,
            &[ADVANCED, "wait_for_update_check"],
            Form::Flag,
            Flag(false),
            Everyone,
            "Waits for a network and checks for updates before the machine server is started.",
        ),
        row(
            MaintenanceWindows,
            &[ADVANCED, "maintenance", "windows"],
            Form::Windows,
            Unset,
            Everyone,
            "When the machine server may be restarted and versions switched. Unset or empty: always.",
        ),
        row(
            UseServerWord,
            &[ADVANCED, "maintenance", "use_server_word"],
            Form::Flag,
            Flag(true),
            Everyone,
            "With windows: the machine server must allow a restart too.",
        ),
        row(
            UpdateBandwidth,
            &[ADVANCED, "update_bandwidth_kilobytes_per_second"],
            Form::Integer { min: 0, max: 10_000_000, special: None },
            Integer(0),
            Everyone,
            "Speed of downloads together; 0 is unlimited.",
        ),
        row(
            DiskReserve,
            &[ADVANCED, "disk_reserve_megabytes"],
            Form::Integer { min: 0, max: 1_048_576, special: None },
            Integer(64),
            Everyone,
            "Space on disk that downloads and versions leave free. Queued logs have a bound of their own.",
        ),
        row(
            Probation,
            &[ADVANCED, "probation_minutes"],
            // Another version has to wait for the end of it.
            Form::Integer { min: 0, max: 24 * 60, special: None },
            Unset,
            Everyone,
            "How long a new version is watched before it is kept. Unset: 5 for the machine server, 10 for the agent.",
        ),
        row(
            ServerMemoryMax,
            &[ADVANCED, "server_limits", "memory_max_megabytes"],
            Form::Integer { min: 16, max: 16_777_216, special: Some((0, "no limit")) },
            Integer(0),
            Everyone,
            "Memory that the operating system lets the machine server have, with everything it starts. It is killed and \
             restarted when it wants more.",
        ),
        row(
            ServerCpuWeight,
            &[ADVANCED, "server_limits", "cpu_weight"],
            Form::Integer { min: 1, max: 10_000, special: Some((0, "the system's own")) },
            Integer(0),
            Everyone,
            "Share of the processor for the machine server when others want it too; 100 is what most services have.",
        ),
        row(
            ServerOpenFilesMax,
            &[ADVANCED, "server_limits", "open_files_max"],
            Form::Integer { min: 64, max: 1_048_576, special: Some((0, "the system's own")) },
            Integer(0),
            Everyone,
            "Files that a process of the machine server may have open at a time, from its next start on.",
        ),
        row(
            ReleaseKeys,
            &[ADVANCED, "release_keys"],
            Form::Keys,
            Unset,
            OnlyManufacturer,
            "Ed25519 public root keys: the root document of the signed releases must be signed by these. Unset: the root met at first contact is kept.",
        ),
        row(
            ReleaseKeysThreshold,
            &[ADVANCED, "release_keys_threshold"],
            Form::Integer { min: 1, max: 16, special: Some((0, "more than half of them")) },
            Integer(0),
            OnlyManufacturer,
            "How many of `release_keys` must have signed the root document.",
        ),
        row(
            AllowUnsignedPins,
            &[ADVANCED, "allow_unsigned_pins"],
            Form::Flag,
            Flag(true),
            OnlyManufacturer,
            "Takes a URL in `version_control` without a signed digest as the owner's word.",
        ),
        // network_configuration
        row(
            RebootAfterOffline,
            &[NETWORK, "device_reboot_after_offline_minutes"],
            MINUTES,
            Integer(0),
            Everyone,
            "Reboots the device after being offline this long; 0 is never. Must be at least `offline_before_starting_hotspot_minutes` and `retry_connection_timeout_minutes` together.",
        ),
        row(
            DisableBtProvisioning,
            &[NETWORK, "disable_bt_provisioning"],
            Form::Flag,
            Flag(false),
            Everyone,
            "Does not offer provisioning over Bluetooth.",
        ),
        row(
            DisableWifiProvisioning,
            &[NETWORK, "disable_wifi_provisioning"],
            Form::Flag,
            Flag(false),
            Everyone,
            "Does not open a provisioning hotspot.",
        ),
        row(
            DisableCaptivePortalRedirect,
            &[NETWORK, "disable_captive_portal_redirect"],
            Form::Flag,
            Flag(false),
            Everyone,
            "Only names ending in `.setup` resolve to the device, so phones show no sign-in screen.",
        ),
        row(
            BluetoothTrustAll,
            &[NETWORK, "bluetooth_trust_all"],
            Form::Flag,
            Flag(false),
            Everyone,
            "Accepts every Bluetooth pairing request; needed only for Bluetooth tethering.",
        ),
        row(
            FragmentId,
            &[NETWORK, "fragment_id"],
            LINE,
            Unset,
            Everyone,
            "Fragment that configures machines made at the door. Needed for provisioning by Bluetooth or mobile app.",
        ),
        row(
            HotspotInterface,
            &[NETWORK, "hotspot_interface"],
            INTERFACE,
            Unset,
            Everyone,
            "Interface for hotspot and WiFi, such as `wlan0`. Unset or empty: the first 802.11 device.",
        ),
        row(
            HotspotPassword,
            &[NETWORK, "hotspot_password"],
            Form::Passphrase,
            Text(brand::HOTSPOT_PASSWORD),
            Everyone,
            "Password of the provisioning hotspot.",
        ),
        row(
            HotspotPrefix,
            &[NETWORK, "hotspot_prefix"],
            Form::Text { min: 1, max: 24, shape: Shape::Line },
            Text(brand::HOTSPOT_PREFIX),
            Everyone,
            "Put before the device's host name to form the name of the hotspot.",
        ),
        row(
            Manufacturer,
            &[NETWORK, "manufacturer"],
            SHOWN,
            Text(brand::NAME),
            Everyone,
            "Shown on the portal and by provisioning apps.",
        ),
        row(
            Model,
            &[NETWORK, "model"],
            SHOWN,
            Text("custom"),
            Everyone,
            "Shown on the portal and by provisioning apps.",
        ),
        row(
            OfflineBeforeHotspot,
            &[NETWORK, "offline_before_starting_hotspot_minutes"],
            MINUTES,
            Integer(2),
            Everyone,
            "Minutes offline before the hotspot opens.",
        ),
        row(
            RetryConnectionTimeout,
            &[NETWORK, "retry_connection_timeout_minutes"],
            MINUTES_FROM_1,
            Integer(10),
            Everyone,
            "The hotspot closes after this, so that other connections can be tried.",
        ),
        row(
            HotspotIfNoInternet,
            &[NETWORK, "turn_on_hotspot_if_wifi_has_no_internet"],
            Form::Flag,
            Flag(false),
            Everyone,
            "Takes a WiFi connection without internet for being offline.",
        ),
        row(
            UserIdle,
            &[NETWORK, "user_idle_minutes"],
            MINUTES,
            Integer(5),
            Everyone,
            "A visitor of portal or app who did nothing for this long is idle.",
        ),
        row(
            WifiPowerSave,
            &[NETWORK, "wifi_power_save"],
            Form::Flag,
            Unset,
            Everyone,
            "Switches power save on or off on all WiFi connections. Unset: the system's own.",
        ),
        row(
            WifiCountry,
            &[NETWORK, "wifi_country"],
            Form::Text { min: 0, max: 2, shape: Shape::Country },
            Unset,
            Everyone,
            "Country whose radio rules apply, such as `DE`. Unset or empty: the system's own.",
        ),
        row(
            ConnectivityCheckUrl,
            &[NETWORK, "connectivity_check_url"],
            WEB_URL,
            Unset,
            Everyone,
            "Asked whether there is internet where neither the fleet server nor the system's own check says so. Over http it must answer 204, or 200 with a text that begins with `ok` or `NetworkManager is online`; over https any answer will do. Unset or empty: the fleet server's own address.",
        ),
        row(
            AllowIdentityChange,
            &[NETWORK, "allow_identity_change"],
            Form::Flag,
            Flag(false),
            OnlyManufacturer,
            "A device that has an identity accepts another one at a door.",
        ),
        row(
            HotspotPasswordSecret,
            &[NETWORK, "hotspot_password_secret"],
            Form::Hidden { min: 16, max: 256 },
            Unset,
            OnlyManufacturer,
            "Makes the hotspot's password different on each device, from this and the device's serial number.",
        ),
        row(
            AdvertiseCaptiveApi,
            &[NETWORK, "advertise_captive_api"],
            Form::Text { min: 0, max: DHCP_OPTION_BYTES_MAX, shape: Shape::NamedUrl },
            Unset,
            OnlyManufacturer,
            "Announced to phones by the DHCP option of RFC 8910 as the API of RFC 8908, which the page's port answers at this host and path. For who has a certificate for that name that phones trust, and puts it in front of that port. Unset or empty: not announced.",
        ),
        row(
            Improv,
            &[NETWORK, "improv"],
            Form::Flag,
            Flag(false),
            OnlyManufacturer,
            "Offers the Improv service over Bluetooth: it takes a network, never an identity.",
        ),
        row(
            ImprovNeedsPresence,
            &[NETWORK, "improv_needs_presence"],
            Form::Flag,
            Flag(true),
            OnlyManufacturer,
            "Improv takes a network only when somebody is at the device.",
        ),
        // additional_networks
        row(
            NetworkType,
            &[NETWORKS, ANY, "type"],
            Form::Choice(&["wifi", "wired"]),
            Unset,
            Everyone,
            "Radio or cable. Required.",
        ),
        row(
            NetworkInterface,
            &[NETWORKS, ANY, "interface"],
            INTERFACE,
            Unset,
            Everyone,
            "Only this interface, such as `eth0`. Unset or empty: any.",
        ),
        row(
            NetworkSsid,
            &[NETWORKS, ANY, "ssid"],
            Form::Text { min: 0, max: 32, shape: Shape::Line },
            Unset,
            Everyone,
            "Name of the WiFi network. Required for `wifi`.",
        ),
        row(
            NetworkPsk,
            &[NETWORKS, ANY, "psk"],
            Form::Psk,
            Unset,
            Everyone,
            "Password of the WiFi network. Unset or empty: an open network.",
        ),
        row(
            NetworkPriority,
            &[NETWORKS, ANY, "priority"],
            Form::Integer { min: -999, max: 999, special: None },
            Integer(0),
            Everyone,
            "The higher is tried first.",
        ),
        row(
            NetworkAddress,
            &[NETWORKS, ANY, "ipv4_address"],
            Form::Address,
            Text("auto"),
            Everyone,
            "Address of the device in that network, with prefix length, such as `192.168.1.5/24`.",
        ),
        row(
            NetworkGateway,
            &[NETWORKS, ANY, "ipv4_gateway"],
            Form::Ip,
            Unset,
            Everyone,
            "Way out of that network. Unset or empty: what DHCP says.",
        ),
        row(
            NetworkDns,
            &[NETWORKS, ANY, "ipv4_dns"],
            Form::Ips,
            Unset,
            Everyone,
            "Name servers. Unset or empty: what DHCP says.",
        ),
        row(
            NetworkRouteMetric,
            &[NETWORKS, ANY, "ipv4_route_metric"],
            Form::Integer { min: 0, max: 4_294_967_295, special: None },
            Integer(0),
            Everyone,
            "The lower is preferred for outgoing traffic. 0 is 100 for `wired` and 600 for `wifi`.",
        ),
        // system_configuration
        row(
            ForwardSystemLogs,
            &[SYSTEM, "forward_system_logs"],
            Form::Text { min: 0, max: 1024, shape: Shape::Line },
            Text(""),
            Everyone,
            "System log lines that are sent to the cloud: comma list of SYSLOG_IDENTIFIERs, `-` before one excludes it, `all` is everything. Empty: none.",
        ),
        row(
            JournaldRuntimeMax,
            &[SYSTEM, "logging_journald_runtime_max_use_megabytes"],
            JOURNAL,
            Integer(512),
            Everyone,
            "Largest size of the journal in memory.",
        ),
        row(
            JournaldSystemMax,
            &[SYSTEM, "logging_journald_system_max_use_megabytes"],
            JOURNAL,
            Integer(512),
            Everyone,
            "Largest size of the journal on disk.",
        ),
        row(
            OsAutoUpgrade,
            &[SYSTEM, "os_auto_upgrade_type"],
            Form::Choice(&["", "all", "security", "disable"]),
            Text(""),
            Everyone,
            "Updates of the operating system's packages: all, those of security, none; empty leaves the system's own settings.",
        ),
    ]
};

impl Key {
    /// The row of this name.
    #[allow(clippy::expect_used, reason = "the table is a constant")]
    pub fn field(self) -> &'static Field {
        FIELDS.get(self as usize).expect("a test compares keys and rows one by one")
    }
}

impl Field {
    /// The path as people write it.
    pub fn name(&self) -> String {
        self.path.join(".")
    }

    /// Whether it belongs to an entry of `additional_networks`.
    pub fn is_of_network(&self) -> bool {
        self.path.contains(&ANY)
    }

    /// Whether what was found may be shown in a complaint.
    pub fn may_be_shown(&self) -> bool {
        !matches!(self.form, Form::Passphrase | Form::Psk | Form::Hidden { .. } | Form::Environment)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn rows_stand_where_their_keys_say() {
        for (place, field) in FIELDS.iter().enumerate() {
            assert_eq!(field.key as usize, place, "{}", field.name());
        }
        assert_eq!(FIELDS.len(), Key::OsAutoUpgrade as usize + 1);
        let paths: BTreeSet<_> = FIELDS.iter().map(|field| field.path).collect();
        assert_eq!(paths.len(), FIELDS.len(), "a path is given to two rows");
    }
}
