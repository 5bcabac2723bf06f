//! What the network manager says of devices, radios and the internet; asked anew when a signal says that it changed.

use board::network::{Internet, Manager, NetworkError, Radio, Ssid};

use super::{
    daemon::{ACCESS_POINT, ACTIVE, DEVICE, Daemon, NAME, Owned, PATH, WIRELESS},
    settings::Mark,
};
use crate::netlink::Radios;

/// Oldest version whose calls are all there.
const VERSION_MIN: (u32, u32) = (1, 30);

/// States of a device (`NMDeviceState`).
pub(super) mod state {
    pub(in super::super) const UNMANAGED: u32 = 10;
    pub(in super::super) const UNAVAILABLE: u32 = 20;
    pub(in super::super) const DISCONNECTED: u32 = 30;
    /// It has its addresses.
    pub(in super::super) const IP_CHECK: u32 = 80;
    pub(in super::super) const ACTIVATED: u32 = 100;
    pub(in super::super) const FAILED: u32 = 120;
}

/// Kinds of devices (`NMDeviceType`).
const ETHERNET: u32 = 1;
/// One end of a cable between containers; joined like a cable.
const VETH: u32 = 20;
const WIFI: u32 = 2;
const GENERIC: u32 = 14;
const WIFI_P2P: u32 = 30;
const LOOPBACK: u32 = 32;
/// Profiles that are remembered by whose they are; forgotten together, and asked again.
const KEYS_MAX: usize = 64;
/// A radio's ability to be an access point.
const CAN_BE_ACCESS_POINT: u32 = 0x40;
/// The connection was not made by a profile: the network manager only found the interface configured.
const EXTERNAL: u32 = 0x80;

/// A device that can be connected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Device {
    pub path: String,
    /// `eth0`
    pub interface: String,
    /// Where its addresses are: `ppp0` of a modem.
    pub ip_interface: String,
    pub wifi: bool,
    pub ethernet: bool,
    pub state: u32,
    /// The connection, while it is being made and while it is there.
    pub active: Option<String>,
    /// Only found configured.
    pub external: bool,
    pub ssid: Option<Ssid>,
    pub owned: Option<Owned>,
}

/// Everything that was asked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Known {
    pub manager: Manager,
    pub radios: Vec<Radio>,
    pub devices: Vec<Device>,
    pub internet: Internet,
}

/// Asks. What vanishes meanwhile is left out: its signal comes, and it is asked again.
pub(super) async fn ask(daemon: &Daemon, mark: &Mark) -> Result<Known, NetworkError> {
    let manager = daemon.all(PATH, NAME).await?;
    if let Some(words) = too_old(manager.text("Version")) {
        return Ok(Known { manager: Manager::Unusable(words), ..Known::default() });
    }
    let off = match () {
        () if !manager.is("WirelessHardwareEnabled") => Some("switched off by a switch of the device (rfkill)"),
        () if !manager.is("WirelessEnabled") => Some("WiFi is switched off (nmcli radio wifi on)"),
        () if !manager.is("NetworkingEnabled") => Some("networking is switched off (nmcli networking on)"),
        () => None,
    };
    let mut known = Known {
        manager: Manager::Ready,
        internet: internet(
            manager.is("ConnectivityCheckAvailable") && manager.is("ConnectivityCheckEnabled"),
            manager.number("Connectivity"),
        ),
        ..Known::default()
    };
    let mut radios = None;
    for path in manager.paths("Devices") {
        let Ok(properties) = daemon.all(path, DEVICE).await else { continue };
        let kind = properties.number("DeviceType");
        let state = properties.number("State");
        if matches!(kind, GENERIC | LOOPBACK | WIFI_P2P) || (state <= state::UNMANAGED && kind != WIFI) {
            continue;
        }
        let interface = properties.text("Interface").to_owned();
        let mut device = Device {
            path: path.to_owned(),
            ip_interface: properties.path("IpInterface").unwrap_or(&interface).to_owned(),
            wifi: kind == WIFI,
            ethernet: matches!(kind, ETHERNET | VETH),
            state,
            active: properties.path("ActiveConnection").map(str::to_owned),
            external: false,
            ssid: None,
            owned: None,
            interface,
        };
        if let Some(active) = &device.active
            && let Ok(active) = daemon.all(active, ACTIVE).await
        {
            device.external = active.number("StateFlags") & EXTERNAL != 0;
            if let Some(profile) = active.path("Connection") {
                device.owned = owned(daemon, mark, profile).await;
            }
        }
        if device.wifi {
            let Ok(wireless) = daemon.all(path, WIRELESS).await else { continue };
            if let Some(heard) = wireless.path("ActiveAccessPoint")
                && let Ok(heard) = daemon.all(heard, ACCESS_POINT).await
            {
                device.ssid = Ssid::new(heard.bytes("Ssid"));
            }
            if device.interface == mark.interface() {
                // The hotspot's own, and no radio to choose.
                known.devices.push(device);
                continue;
            }
            let access_point = wireless.number("WirelessCapabilities") & CAN_BE_ACCESS_POINT != 0;
            let mut both =
                || radios.get_or_insert_with(Radios::open).as_ref().ok()?.both_at_once(&device.interface).ok();
            let at = known.radios.partition_point(|radio| radio.interface < device.interface);
            let radio = Radio {
                interface: device.interface.clone(),
                access_point,
                both: access_point && both().unwrap_or(false),
                blocked: off.or_else(|| unusable(state)).map(str::to_owned),
            };
            known.radios.insert(at, radio);
        }
        if state > state::UNMANAGED {
            known.devices.push(device);
        }
    }
    Ok(known)
}

/// Whose profile this is; asked once per profile.
async fn owned(daemon: &Daemon, mark: &Mark, profile: &str) -> Option<Owned> {
    if let Some((_, owned)) = daemon.keys.borrow().iter().find(|(path, _)| path == profile) {
        return owned.clone();
    }
    let settings = daemon.settings(profile).await.ok()?;
    let owned = if mark.is_hotspot(&settings) { Some(Owned::Hotspot) } else { mark.key(&settings).map(Owned::Profile) };
    let mut keys = daemon.keys.borrow_mut();
    // Each hotspot that was open has one of its own.
    if keys.len() >= KEYS_MAX {
        keys.clear();
    }
    keys.push((profile.to_owned(), owned.clone()));
    owned
}

fn too_old(version: &str) -> Option<String> {
    let mut numbers = version.split('.').map_while(|number| number.parse().ok());
    let (wanted_major, wanted_minor) = VERSION_MIN;
    match (numbers.next(), numbers.next()) {
        (Some(major), Some(minor)) if (major, minor) >= VERSION_MIN => None,
        _ => Some(format!(
            "NetworkManager {version} is too old: {wanted_major}.{wanted_minor} or newer is needed for WiFi and hotspot"
        )),
    }
}

fn internet(checked: bool, connectivity: u32) -> Internet {
    match connectivity {
        _ if !checked => Internet::Unknown,
        1 | 3 => Internet::No,
        2 => Internet::Portal,
        4 => Internet::Yes,
        _ => Internet::Unknown,
    }
}

/// Of a radio that the network manager, the supplicant or the firmware is still busy with, or will never be done with.
pub(super) const NOT_READY: &str =
    "not ready: is wpa_supplicant installed and running, and has the radio its firmware?";

fn unusable(state: u32) -> Option<&'static str> {
    match state {
        0..=state::UNMANAGED => {
            Some("the network manager does not manage it (unmanaged-devices in its configuration?)")
        }
        state::UNAVAILABLE => Some(NOT_READY),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_new_enough_or_named() {
        for version in ["1.30.0", "1.42.4", "1.52", "2.0", "1.30.0-rc1"] {
            assert_eq!(too_old(version), None, "{version}");
        }
        for version in ["1.28.4", "0.9", "", "nonsense"] {
            assert!(too_old(version).is_some_and(|words| words.contains("1.30")), "{version}");
        }
    }

    #[test]
    fn a_check_that_nobody_makes_says_nothing() {
        let table = [
            (false, 4, Internet::Unknown),
            (true, 0, Internet::Unknown),
            (true, 1, Internet::No),
            (true, 2, Internet::Portal),
            (true, 3, Internet::No),
            (true, 4, Internet::Yes),
            (true, 77, Internet::Unknown),
        ];
        for (checked, connectivity, word) in table {
            assert_eq!(internet(checked, connectivity), word, "{checked} {connectivity}");
        }
    }
}
