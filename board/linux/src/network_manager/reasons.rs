//! Why a device did not connect, from the network manager's numbers to words for a person.

use board::network::{JoinError, NetworkError, Security, Ssid};

/// Reasons of a device's state (`NMDeviceStateReason`) that the agent tells apart.
pub(super) mod device {
    pub(in super::super) const NOW_UNMANAGED: u32 = 3;
    pub(in super::super) const IP_CONFIG_UNAVAILABLE: u32 = 5;
    pub(in super::super) const IP_CONFIG_EXPIRED: u32 = 6;
    pub(in super::super) const NO_SECRETS: u32 = 7;
    pub(in super::super) const SUPPLICANT_DISCONNECT: u32 = 8;
    pub(in super::super) const SUPPLICANT_CONFIG_FAILED: u32 = 9;
    pub(in super::super) const SUPPLICANT_FAILED: u32 = 10;
    pub(in super::super) const SUPPLICANT_TIMEOUT: u32 = 11;
    pub(in super::super) const DHCP_START_FAILED: u32 = 15;
    pub(in super::super) const DHCP_ERROR: u32 = 16;
    pub(in super::super) const DHCP_FAILED: u32 = 17;
    pub(in super::super) const SHARED_START_FAILED: u32 = 18;
    pub(in super::super) const SHARED_FAILED: u32 = 19;
    pub(in super::super) const FIRMWARE_MISSING: u32 = 35;
    pub(in super::super) const REMOVED: u32 = 36;
    pub(in super::super) const SLEEPING: u32 = 37;
    pub(in super::super) const CONNECTION_REMOVED: u32 = 38;
    pub(in super::super) const USER_REQUESTED: u32 = 39;
    pub(in super::super) const CARRIER: u32 = 40;
    pub(in super::super) const SSID_NOT_FOUND: u32 = 53;
    pub(in super::super) const NEW_ACTIVATION: u32 = 60;
    pub(in super::super) const IP_ADDRESS_DUPLICATE: u32 = 64;
}

/// What was to be joined.
#[derive(Clone, Copy)]
pub(super) struct Target<'a> {
    /// The network's name, when it is WiFi.
    pub ssid: Option<&'a Ssid>,
    /// The device.
    pub interface: &'a str,
    /// A password was given.
    pub with_password: bool,
    /// What an access point of that name asks for, when one was heard.
    pub heard: Option<Security>,
}

impl Target<'_> {
    /// For a sentence.
    pub(super) fn name(self) -> String {
        self.ssid.map_or_else(|| self.interface.to_owned(), ToString::to_string)
    }
}

/// Why it failed.
pub(super) fn failure(reason: u32, target: Target<'_>) -> JoinError {
    use device::*;
    let refused = |words: String| JoinError::Network(NetworkError::Refused(words));
    match (reason, target.ssid) {
        (NO_SECRETS, Some(ssid)) => JoinError::WrongPassword(ssid.clone()),
        // With WPA3 a wrong password looks like this, where wpa_supplicant did not say more.
        (SSID_NOT_FOUND | SUPPLICANT_TIMEOUT | SUPPLICANT_DISCONNECT, Some(ssid))
            if target.with_password && matches!(target.heard, Some(Security::Wpa3 | Security::Wpa2Wpa3)) =>
        {
            JoinError::WrongPassword(ssid.clone())
        }
        (SSID_NOT_FOUND, Some(ssid)) => JoinError::NotInRange(ssid.clone()),
        (SUPPLICANT_TIMEOUT | SUPPLICANT_DISCONNECT | SUPPLICANT_FAILED, Some(ssid)) if target.heard.is_none() => {
            JoinError::NotInRange(ssid.clone())
        }
        (SUPPLICANT_TIMEOUT | SUPPLICANT_DISCONNECT, Some(ssid)) => JoinError::TimedOut(ssid.to_string()),
        (SUPPLICANT_CONFIG_FAILED | SUPPLICANT_FAILED, Some(ssid)) => JoinError::Unsuitable {
            ssid: ssid.clone(),
            why: "the system's wpa_supplicant or the radio's driver does not know what it asks for".to_owned(),
        },
        (IP_CONFIG_UNAVAILABLE | IP_CONFIG_EXPIRED | DHCP_START_FAILED | DHCP_ERROR | DHCP_FAILED, _) => {
            JoinError::NoAddress(target.name())
        }
        (CARRIER, None) => JoinError::NoCable(target.interface.to_owned()),
        (CARRIER, Some(ssid)) => JoinError::NotInRange(ssid.clone()),
        (REMOVED, Some(_)) => JoinError::Network(NetworkError::NoRadio(Some(target.interface.to_owned()))),
        (IP_ADDRESS_DUPLICATE, _) => refused(format!("somebody else on {} has this address", target.name())),
        (FIRMWARE_MISSING, _) => refused(format!("the firmware of {} is missing", target.interface)),
        (SLEEPING, _) => refused("networking is switched off or the system sleeps (nmcli networking on)".to_owned()),
        (CONNECTION_REMOVED, _) => refused(format!("the profile for {} was removed meanwhile", target.name())),
        (USER_REQUESTED | NEW_ACTIVATION, _) => {
            refused(format!("somebody or something else used {} for another network meanwhile", target.interface))
        }
        (reason, _) => refused(format!("{} was not joined on {} (reason {reason})", target.name(), target.interface)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_are_put_into_words() {
        let home = Ssid::new(b"home").unwrap();
        let heard = Target { ssid: Some(&home), interface: "wlan0", with_password: true, heard: Some(Security::Wpa2) };
        let wpa3 = Target { heard: Some(Security::Wpa3), ..heard };
        let unheard = Target { heard: None, ..heard };
        let cable = Target { ssid: None, interface: "eth0", with_password: false, heard: None };
        let table = [
            (7, heard, "wrong password for home"),
            (8, wpa3, "wrong password for home"),
            (53, wpa3, "wrong password for home"),
            (11, heard, "home did not answer in time"),
            (11, unheard, "no network named home is in range"),
            (53, heard, "no network named home is in range"),
            (5, heard, "home gives this device no address: is its DHCP server running, and has it addresses left?"),
            (17, cable, "eth0 gives this device no address: is its DHCP server running, and has it addresses left?"),
            (40, cable, "no cable is plugged into eth0"),
            (
                9,
                heard,
                "home cannot be joined: the system's wpa_supplicant or the radio's driver does not know what it asks for",
            ),
            (36, heard, "there is no WiFi device named wlan0"),
            (
                60,
                heard,
                "the network manager refused: somebody or something else used wlan0 for another network meanwhile",
            ),
            (12345, cable, "the network manager refused: eth0 was not joined on eth0 (reason 12345)"),
        ];
        for (reason, target, words) in table {
            assert_eq!(failure(reason, target).to_string(), words, "{reason}");
        }
    }
}
