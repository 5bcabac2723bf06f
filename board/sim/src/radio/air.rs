//! What is in the air and in the sockets: access points, cables, and what is behind them.

use board::network::{Address, JoinError, Medium, Profile, Security, Seen, Ssid};

use super::SimNetworks;

/// What is behind a link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Beyond {
    /// The internet.
    #[default]
    Internet,
    /// Nothing.
    Nothing,
    /// Somebody's login page.
    Portal,
}

/// An access point.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessPoint {
    /// Its name.
    pub ssid: Ssid,
    /// What it asks for.
    pub security: Security,
    /// Its password, where it asks for one.
    pub password: Option<String>,
    /// 0 to 100.
    pub signal: u8,
    /// It does not say its name.
    pub hidden: bool,
    /// It gives addresses.
    pub dhcp: bool,
    /// What is behind it.
    pub beyond: Beyond,
    /// Its channel.
    pub frequency_mhz: u32,
}

impl AccessPoint {
    /// A healthy one with WPA2; an empty password makes it an open one.
    ///
    /// # Panics
    /// When `name` is no name of a network.
    #[must_use]
    pub fn new(name: &str, password: &str) -> Self {
        AccessPoint {
            ssid: ssid(name),
            security: if password.is_empty() { Security::Open } else { Security::Wpa2 },
            password: Some(password.to_owned()).filter(|password| !password.is_empty()),
            signal: 60,
            hidden: false,
            dhcp: true,
            beyond: Beyond::Internet,
            frequency_mhz: 2437,
        }
    }

    pub(super) fn refuses(&self, psk: Option<&str>) -> Option<JoinError> {
        let unsuitable = |why: &str| JoinError::Unsuitable { ssid: self.ssid.clone(), why: why.to_owned() };
        match self.security {
            Security::Enterprise => Some(unsuitable("it asks for a user of an organization")),
            Security::Wep => Some(unsuitable("WEP has been broken since 2001")),
            Security::Open | Security::EnhancedOpen if psk.is_some() => {
                Some(unsuitable("it is open, and a password was given"))
            }
            Security::Open | Security::EnhancedOpen => None,
            Security::Wpa | Security::Wpa2 | Security::Wpa2Wpa3 | Security::Wpa3 => {
                (psk != self.password.as_deref()).then(|| JoinError::WrongPassword(self.ssid.clone()))
            }
        }
    }
}

/// A name of a network.
///
/// # Panics
/// When it is none.
#[must_use]
pub fn ssid(name: &str) -> Ssid {
    Ssid::new(name.as_bytes()).expect("a name has 1 to 32 bytes")
}

/// A socket for a cable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cable {
    /// A cable is in it.
    pub plugged: bool,
    /// Somebody at the other end gives addresses.
    pub dhcp: bool,
    /// What is behind it.
    pub beyond: Beyond,
}

/// The profile for any cable that a manager makes by itself and calls the administrator's: after all others.
#[must_use]
pub fn any_cable() -> Profile {
    Profile {
        key: "Wired connection 1".into(),
        medium: Medium::Wired,
        interface: None,
        priority: -999,
        address: Address::Auto,
        gateway: None,
        dns: Vec::new(),
        route_metric: 100,
    }
}

impl SimNetworks {
    /// What a radio hears.
    pub(crate) fn heard(&self) -> Vec<Seen> {
        let points = self.inner.points.borrow();
        let now = self.inner.clock.mono();
        let mut seen: Vec<Seen> = points
            .iter()
            .filter(|point| !point.hidden)
            .map(|point| Seen {
                ssid: point.ssid.clone(),
                signal: point.signal,
                security: point.security,
                frequency_mhz: point.frequency_mhz,
                heard: Some(now),
            })
            .collect();
        for (echo, until) in self.inner.echoes.borrow().iter() {
            if *until > now && seen.iter().all(|seen| seen.ssid != echo.ssid) {
                seen.push(echo.clone());
            }
        }
        // As real radios do: the device's own hotspot is among what it hears.
        seen.extend(self.inner.hotspot.borrow().as_ref().map(|hotspot| Seen {
            ssid: hotspot.ssid.clone(),
            signal: 100,
            security: Security::Wpa2,
            frequency_mhz: 2407 + 5 * u32::from(hotspot.channel),
            heard: Some(now),
        }));
        seen.sort_by_key(|seen| (std::cmp::Reverse(seen.signal), seen.ssid.clone()));
        seen
    }
}
