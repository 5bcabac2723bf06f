//! From what the sources say to what is in force: field by field the later source wins, and what no source says is built
//! in. Here are the rules that concern several fields at once.

use super::{
    Accepted, CommandLine,
    complaint::{Complaints, Fault, Origin},
    fields::{Builtin, Key},
    layer::{Layer, NetworkEntry},
    leaf::Checked,
    limits::{ENV_BYTES_MAX, ENV_ENTRIES_MAX, NETWORKS_MAX},
    maintenance::Maintenance,
    networks::{Address, Network, NetworkKind},
    read::environment_bytes,
    settings::{
        Advanced, JournalLimit, Minutes, NetworkSettings, OsUpgrade, ServerLimits, Settings, SystemSettings, Trust,
        VersionControl,
    },
    versions::{Channel, VersionSetting},
};
use crate::Secret;
use std::{collections::BTreeMap, net::Ipv4Addr, rc::Rc};

/// Preferred routes when the configuration does not say: cables before radio.
const ROUTE_METRIC_WIRED: u32 = 100;
const ROUTE_METRIC_WIFI: u32 = 600;

/// Takes back a reboot that would come before every other attempt was made. Such a device would reboot for ever instead
/// of ever opening its hotspot, so the reboot yields, whichever of the three settings was changed last.
pub(super) fn hold_back_reboot(accepted: &mut Accepted, before: &Accepted, complaints: &mut Complaints) {
    loop {
        let merged = Merged::new(accepted);
        let reboot = merged.integer(Key::RebootAfterOffline);
        let earliest = merged.integer(Key::OfflineBeforeHotspot) + merged.integer(Key::RetryConnectionTimeout);
        if reboot == 0 || reboot >= earliest {
            return;
        }
        let of = |layer: &Layer| layer.values.contains_key(&Key::RebootAfterOffline);
        let (origin, layer, before) = match (of(&accepted.cloud), of(&accepted.defaults)) {
            (true, _) => (Origin::Cloud, &mut accepted.cloud, &before.cloud),
            (false, true) => (Origin::Defaults, &mut accepted.defaults, &before.defaults),
            // Built in is 0, which never gets here.
            (false, false) => return,
        };
        let allowed = format!(
            "0 or at least {earliest}, which is offline_before_starting_hotspot_minutes and retry_connection_timeout_minutes together"
        );
        let fault = Fault { inside: String::new(), place: None, found: reboot.to_string(), allowed };
        complaints.refuse(origin, &Key::RebootAfterOffline.field().name(), fault);
        match before.values.get(&Key::RebootAfterOffline) {
            Some(Checked::Integer(previous)) if *previous == 0 || *previous >= earliest => {
                layer.values.insert(Key::RebootAfterOffline, Checked::Integer(*previous));
            }
            _ => drop(layer.values.remove(&Key::RebootAfterOffline)),
        }
    }
}

/// What is in force.
pub(super) fn settings(accepted: &Accepted, command_line: CommandLine, complaints: &mut Complaints) -> Settings {
    let merged = Merged::new(accepted);
    let windows = match merged.value(Key::MaintenanceWindows) {
        Some(Checked::Windows(windows)) if !windows.is_empty() => Some(Rc::clone(windows)),
        _ => None,
    };
    let use_server_word = merged.flag(Key::UseServerWord);
    let advanced = Advanced {
        debug: command_line.debug.unwrap_or_else(|| merged.flag(Key::Debug)),
        disable_network_configuration: merged.flag(Key::DisableNetworkConfiguration),
        disable_system_configuration: merged.flag(Key::DisableSystemConfiguration),
        disable_server: merged.flag(Key::DisableServer),
        server_env: merged.environment(complaints),
        server_start_timeout: merged.minutes(Key::ServerStartTimeout),
        server_status_url: merged.text(Key::ServerStatusUrl),
        wait_for_update_check: command_line
            .wait_for_update_check
            .unwrap_or_else(|| merged.flag(Key::WaitForUpdateCheck)),
        maintenance: windows.map(|windows| Maintenance { windows, use_server_word }),
        update_bandwidth_kilobytes_per_second: merged.count(Key::UpdateBandwidth),
        disk_reserve_megabytes: merged.count(Key::DiskReserve),
        probation: merged.value(Key::Probation).map(|_| merged.minutes(Key::Probation)),
        server_limits: ServerLimits {
            memory_max_megabytes: Some(merged.count(Key::ServerMemoryMax)).filter(|limit| *limit > 0),
            cpu_weight: Some(merged.count(Key::ServerCpuWeight)).filter(|weight| *weight > 0),
            open_files_max: Some(merged.count(Key::ServerOpenFilesMax)).filter(|files| *files > 0),
        },
        trust: Trust {
            release_keys: match merged.value(Key::ReleaseKeys) {
                Some(Checked::Keys(keys)) => keys.clone(),
                _ => Box::default(),
            },
            release_keys_threshold: Some(merged.count(Key::ReleaseKeysThreshold)).filter(|count| *count > 0),
            allow_unsigned_pins: merged.flag(Key::AllowUnsignedPins),
        },
    };
    let network = NetworkSettings {
        device_reboot_after_offline: Some(merged.minutes(Key::RebootAfterOffline)).filter(|minutes| !minutes.is_zero()),
        disable_bt_provisioning: merged.flag(Key::DisableBtProvisioning),
        disable_wifi_provisioning: merged.flag(Key::DisableWifiProvisioning),
        disable_captive_portal_redirect: merged.flag(Key::DisableCaptivePortalRedirect),
        bluetooth_trust_all: merged.flag(Key::BluetoothTrustAll),
        fragment_id: merged.text_if_any(Key::FragmentId),
        hotspot_interface: merged.text_if_any(Key::HotspotInterface),
        hotspot_password: merged.hidden(Key::HotspotPassword).unwrap_or_default(),
        hotspot_password_secret: merged.hidden(Key::HotspotPasswordSecret),
        hotspot_prefix: merged.text(Key::HotspotPrefix),
        manufacturer: merged.text(Key::Manufacturer),
        model: merged.text(Key::Model),
        offline_before_starting_hotspot: merged.minutes(Key::OfflineBeforeHotspot),
        retry_connection_timeout: merged.minutes(Key::RetryConnectionTimeout),
        turn_on_hotspot_if_wifi_has_no_internet: merged.flag(Key::HotspotIfNoInternet),
        user_idle: merged.minutes(Key::UserIdle),
        wifi_power_save: merged.value(Key::WifiPowerSave).map(|_| merged.flag(Key::WifiPowerSave)),
        wifi_country: merged.text_if_any(Key::WifiCountry),
        connectivity_check_url: merged.text_if_any(Key::ConnectivityCheckUrl),
        allow_identity_change: merged.flag(Key::AllowIdentityChange),
        advertise_captive_api: merged.text_if_any(Key::AdvertiseCaptiveApi),
        improv: merged.flag(Key::Improv),
        improv_needs_presence: merged.flag(Key::ImprovNeedsPresence),
    };
    let system = SystemSettings {
        forward_system_logs: merged.text(Key::ForwardSystemLogs),
        journald_runtime: merged.journal_limit(Key::JournaldRuntimeMax),
        journald_system: merged.journal_limit(Key::JournaldSystemMax),
        os_auto_upgrade: match &*merged.text(Key::OsAutoUpgrade) {
            "all" => OsUpgrade::All,
            "security" => OsUpgrade::Security,
            "disable" => OsUpgrade::Disable,
            _ => OsUpgrade::Unchanged,
        },
    };
    let versions =
        VersionControl { agent: merged.version(Key::AgentVersion), server: merged.version(Key::ServerVersion) };
    Settings {
        versions: Rc::new(versions),
        advanced: Rc::new(advanced),
        network: Rc::new(network),
        networks: merged.networks(complaints),
        system: Rc::new(system),
    }
}

/// The sources on top of each other.
struct Merged<'a> {
    cloud: &'a Layer,
    defaults: &'a Layer,
}

impl<'a> Merged<'a> {
    fn new(accepted: &'a Accepted) -> Merged<'a> {
        Merged { cloud: &accepted.cloud, defaults: &accepted.defaults }
    }

    fn value(&self, key: Key) -> Option<&'a Checked> {
        self.cloud.values.get(&key).or_else(|| self.defaults.values.get(&key))
    }

    fn flag(&self, key: Key) -> bool {
        match self.value(key) {
            Some(Checked::Flag(flag)) => *flag,
            _ => key.field().builtin == Builtin::Flag(true),
        }
    }

    fn integer(&self, key: Key) -> i64 {
        match (self.value(key), key.field().builtin) {
            (Some(Checked::Integer(given)), _) => *given,
            (_, Builtin::Integer(builtin)) => builtin,
            _ => 0,
        }
    }

    fn count(&self, key: Key) -> u32 {
        u32::try_from(self.integer(key)).unwrap_or_default()
    }

    fn minutes(&self, key: Key) -> Minutes {
        Minutes(self.count(key))
    }

    fn journal_limit(&self, key: Key) -> JournalLimit {
        u32::try_from(self.integer(key)).map_or(JournalLimit::Unmanaged, JournalLimit::Megabytes)
    }

    fn text(&self, key: Key) -> Box<str> {
        match (self.value(key), key.field().builtin) {
            (Some(Checked::Text(text)), _) => text.clone(),
            (_, Builtin::Text(text)) => text.into(),
            _ => Box::default(),
        }
    }

    fn text_if_any(&self, key: Key) -> Option<Box<str>> {
        Some(self.text(key)).filter(|text| !text.is_empty())
    }

    fn hidden(&self, key: Key) -> Option<Secret> {
        match (self.value(key), key.field().builtin) {
            (Some(Checked::Hidden(secret)), _) => Some(secret.clone()),
            (_, Builtin::Text(text)) => Some(Secret::from(text)),
            _ => None,
        }
    }

    fn version(&self, key: Key) -> VersionSetting {
        match self.value(key) {
            Some(Checked::Version(version)) => version.clone(),
            _ => VersionSetting::Channel(Channel::Stable),
        }
    }

    /// Variable by variable the later source wins. Together they are bounded like each alone; the cloud's come first.
    fn environment(&self, complaints: &mut Complaints) -> Box<[(Box<str>, Secret)]> {
        let of = |layer: &'a Layer| match layer.values.get(&Key::ServerEnv) {
            Some(Checked::Environment(variables)) => variables.as_slice(),
            _ => &[],
        };
        let mut all = of(self.cloud).to_vec();
        for (name, value) in of(self.defaults) {
            if all.iter().any(|(known, _)| known == name) {
                continue;
            }
            all.push((name.clone(), value.clone()));
            if all.len() > ENV_ENTRIES_MAX || environment_bytes(&all) > ENV_BYTES_MAX {
                all.pop();
                let allowed =
                    format!("{ENV_ENTRIES_MAX} variables and {ENV_BYTES_MAX} bytes together with the cloud's");
                let path = format!("{}.{name}", Key::ServerEnv.field().name());
                complaints.refuse(Origin::Defaults, &path, too_much("one variable too many", allowed));
            }
        }
        all.sort_by(|(a, _), (b, _)| a.cmp(b));
        all.into()
    }

    /// Entry by entry the later source wins. Together they are bounded like each alone; the cloud's come first.
    fn networks(&self, complaints: &mut Complaints) -> Rc<[Network]> {
        let mut all: BTreeMap<&str, &NetworkEntry> =
            self.cloud.networks.iter().map(|(name, entry)| (&**name, entry)).collect();
        for (name, entry) in &self.defaults.networks {
            if all.contains_key(&**name) {
                continue;
            }
            if all.len() >= NETWORKS_MAX {
                let path = format!("additional_networks.{name}");
                let allowed = format!("{NETWORKS_MAX} networks together with the cloud's");
                complaints.refuse(Origin::Defaults, &path, too_much("one network too many", allowed));
                continue;
            }
            all.insert(name, entry);
        }
        all.into_iter().map(|(name, entry)| network(name, entry)).collect()
    }
}

fn too_much(found: &str, allowed: String) -> Fault<'static> {
    Fault { inside: String::new(), place: None, found: found.into(), allowed }
}

fn network(name: &str, entry: &NetworkEntry) -> Network {
    let text = |key| match entry.get(&key) {
        Some(Checked::Text(text)) if !text.is_empty() => Some(text.clone()),
        _ => None,
    };
    let integer = |key| match entry.get(&key) {
        Some(Checked::Integer(number)) => *number,
        _ => 0,
    };
    let ip = |key| match entry.get(&key) {
        Some(Checked::Ip(ip)) => *ip,
        _ => None::<Ipv4Addr>,
    };
    let is_wifi = text(Key::NetworkType).is_some_and(|kind| *kind == *"wifi");
    let kind = if is_wifi {
        let psk = match entry.get(&Key::NetworkPsk) {
            Some(Checked::Hidden(psk)) if !psk.is_empty() => Some(psk.clone()),
            _ => None,
        };
        NetworkKind::Wifi { ssid: text(Key::NetworkSsid).unwrap_or_default(), psk }
    } else {
        NetworkKind::Wired
    };
    let usual_metric = if is_wifi { ROUTE_METRIC_WIFI } else { ROUTE_METRIC_WIRED };
    let metric = u32::try_from(integer(Key::NetworkRouteMetric)).ok().filter(|metric| *metric > 0);
    Network {
        name: name.into(),
        kind,
        interface: text(Key::NetworkInterface),
        priority: i16::try_from(integer(Key::NetworkPriority)).unwrap_or_default(),
        address: match entry.get(&Key::NetworkAddress) {
            Some(Checked::Address(address)) => *address,
            _ => Address::Auto,
        },
        gateway: ip(Key::NetworkGateway),
        dns: match entry.get(&Key::NetworkDns) {
            Some(Checked::Ips(ips)) => ips.clone(),
            _ => Box::default(),
        },
        route_metric: metric.unwrap_or(usual_metric),
    }
}
