//! How this machine is connected, and what it can be connected to: links, profiles, the radio, the hotspot.
//!
//! The system's network manager does the work. It may be missing, be too old, be restarted at any moment, and the radio
//! may be plugged in late: every call can fail for that reason, and [`Networks::changed`] tells when things are otherwise.
//! Profiles made through this port carry a mark of the agent; no other profile is ever listed, changed or removed.

use std::fmt;
pub use std::net::Ipv4Addr;

use async_trait::async_trait;
use secret::Secret;

use crate::Mono;

/// Longest name of a WiFi network, in bytes (IEEE 802.11).
pub const SSID_BYTES_MAX: usize = 32;

/// An address of this machine and the length of its network's prefix.
pub type Subnet = (Ipv4Addr, u8);

/// Whether two networks have addresses in common. A prefix of 0 is everywhere and no network of its own: it has none.
#[must_use]
pub fn overlap((a, a_prefix): Subnet, (b, b_prefix): Subnet) -> bool {
    let shorter = u32::from(a_prefix.min(b_prefix).min(32));
    let mask = u32::MAX.checked_shl(32 - shorter).unwrap_or(0);
    shorter > 0 && u32::from(a) & mask == u32::from(b) & mask
}

/// The name of a WiFi network: 1 to 32 bytes of any kind. Shown as text where it is text, with `\x..` for the rest.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ssid(Box<[u8]>);

impl Ssid {
    /// `None` when it is empty or too long.
    #[must_use]
    pub fn new(bytes: &[u8]) -> Option<Ssid> {
        (1..=SSID_BYTES_MAX).contains(&bytes.len()).then(|| Ssid(bytes.into()))
    }

    /// As it is in the air.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Display for Ssid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use fmt::Write as _;
        for chunk in self.0.utf8_chunks() {
            for letter in chunk.valid().chars() {
                match letter {
                    '\\' => f.write_str("\\\\")?,
                    letter if letter.is_control() => {
                        letter.encode_utf8(&mut [0; 4]).bytes().try_for_each(|byte| write!(f, "\\x{byte:02x}"))?;
                    }
                    letter => f.write_char(letter)?,
                }
            }
            chunk.invalid().iter().try_for_each(|byte| write!(f, "\\x{byte:02x}"))?;
        }
        Ok(())
    }
}

impl fmt::Debug for Ssid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{self}\"")
    }
}

/// What an access point asks of who wants to join.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Security {
    /// Nothing.
    #[default]
    Open,
    /// Nothing, and the traffic is encrypted all the same (OWE, "enhanced open").
    EnhancedOpen,
    /// A WEP key: broken since 2001, and not joined.
    Wep,
    /// A password, WPA of 2003 only.
    Wpa,
    /// A password, WPA2.
    Wpa2,
    /// A password, WPA2 and WPA3 side by side.
    Wpa2Wpa3,
    /// A password, WPA3 (SAE) only.
    Wpa3,
    /// A user of an organization (802.1X).
    Enterprise,
}

impl Security {
    /// Whether a password is asked for.
    #[must_use]
    pub const fn wants_password(self) -> bool {
        matches!(self, Security::Wep | Security::Wpa | Security::Wpa2 | Security::Wpa2Wpa3 | Security::Wpa3)
    }
}

/// A WiFi network that the radio has heard; of several access points with one name, the strongest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Its name.
    pub ssid: Ssid,
    /// 0 to 100.
    pub signal: u8,
    /// What it asks for.
    pub security: Security,
    /// Its channel's centre, in MHz.
    pub frequency_mhz: u32,
    /// When it was heard last, to the second below; what is remembered may be minutes old. `None` when nobody knows.
    pub heard: Option<Mono>,
}

/// Radio or cable, and what is needed to use it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Medium {
    /// A WiFi network.
    Wifi {
        /// Its name.
        ssid: Ssid,
        /// Passphrase of 8 to 63 characters or 64 hexadecimal digits; `None` is an open network. Empty is one that the
        /// network manager has and does not tell; where such a profile is put, it keeps what it has.
        psk: Option<Secret>,
        /// It does not say its name by itself, and is asked for by name.
        hidden: bool,
    },
    /// A cable.
    Wired,
}

/// How the device gets its IPv4 address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Address {
    /// By DHCP.
    #[default]
    Auto,
    /// A fixed one, with the length of the network's prefix.
    Fixed(Ipv4Addr, u8),
}

/// A network that the device was given: what the network manager keeps.
///
/// How a password is used (WPA2, WPA3) is the port's to choose by what the access point offers; it must not stop working
/// when the access point is set from one to the other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Profile {
    /// Names it among the agent's own profiles; any text without control characters, at most 128 bytes.
    pub key: String,
    /// What it connects to.
    pub medium: Medium,
    /// Only on this interface; `None` is any.
    pub interface: Option<String>,
    /// -999 to 999; the network manager takes the higher first when it connects by itself.
    pub priority: i16,
    /// Its address.
    pub address: Address,
    /// Way out; `None` is what DHCP says.
    pub gateway: Option<Ipv4Addr>,
    /// Name servers; empty is what DHCP says.
    pub dns: Vec<Ipv4Addr>,
    /// The lower is preferred for outgoing traffic.
    pub route_metric: u32,
}

/// The system's network manager.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Manager {
    /// Not there, or not there yet.
    #[default]
    Absent,
    /// There, and cannot be used: a sentence that says why and what to do.
    Unusable(String),
    /// It answers.
    Ready,
}

/// A WiFi device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Radio {
    /// `wlan0`
    pub interface: String,
    /// It can be an access point.
    pub access_point: bool,
    /// It can be an access point and join another one at the same time, whatever the channel of that one is.
    pub both: bool,
    /// Switched off, by hand or by software: why, in words.
    pub blocked: Option<String>,
}

/// Something that is connected. The agent's hotspot is not among them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// `eth0`
    pub interface: String,
    /// The name of the network, when it is WiFi.
    pub ssid: Option<Ssid>,
    /// Key of the profile, when it is one of ours.
    pub key: Option<String>,
    /// Its first address and the length of the prefix.
    pub address: Option<Subnet>,
    /// Traffic to elsewhere can go out here.
    pub default_route: bool,
}

/// What the network manager's own check says of the internet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Internet {
    /// It has no check, or has not looked yet.
    #[default]
    Unknown,
    /// Not reachable.
    No,
    /// Behind somebody's login page.
    Portal,
    /// Reachable.
    Yes,
}

/// Everything that can change by itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Links {
    /// Who does the work.
    pub manager: Manager,
    /// WiFi devices, ordered by interface.
    pub radios: Vec<Radio>,
    /// What is connected, ordered by interface.
    pub links: Vec<Link>,
    /// WiFi devices that are being connected now, whoever began it; not as the agent's hotspot. Ordered.
    pub coming: Vec<String>,
    /// The network manager's word on the internet.
    pub internet: Internet,
    /// Every network that this machine has an address of or a way to, also where it connects to nothing (the bridges of
    /// containers): what must stay reachable when another one is made. Not the hotspot's own. Ordered.
    pub subnets: Vec<Subnet>,
}

/// What the network manager could not do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NetworkError {
    /// It is not there.
    #[error("the network manager does not answer: {0}")]
    Absent(String),
    /// It refused; its words, never with a secret in them.
    #[error("the network manager refused: {0}")]
    Refused(String),
    /// It was stopped or restarted in the middle: nothing is known of what was asked for, and it can be asked again.
    #[error("the network manager was stopped or restarted meanwhile")]
    Restarted,
    /// There is no such WiFi device (any more).
    #[error("there is no WiFi device{}", .0.as_ref().map(|name| format!(" named {name}")).unwrap_or_default())]
    NoRadio(Option<String>),
}

/// Why a network could not be joined. The message is for the person who gave the password.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JoinError {
    /// No access point of that name answers.
    #[error("no network named {0} is in range")]
    NotInRange(Ssid),
    /// It does not accept the password, or wants one and has none.
    #[error("wrong password for {0}")]
    WrongPassword(Ssid),
    /// It asks for something that this device cannot give.
    #[error("{ssid} cannot be joined: {why}")]
    Unsuitable {
        /// Its name.
        ssid: Ssid,
        /// What it asks for.
        why: String,
    },
    /// Joined, and no address was given.
    #[error("{0} gives this device no address: is its DHCP server running, and has it addresses left?")]
    NoAddress(String),
    /// A cable that is not plugged in.
    #[error("no cable is plugged into {0}")]
    NoCable(String),
    /// It took too long.
    #[error("{0} did not answer in time")]
    TimedOut(String),
    /// Something else.
    #[error(transparent)]
    Network(#[from] NetworkError),
}

/// Which names the hotspot's name server answers with the device's address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CaptiveNames {
    /// All of them, so that phones show the portal as a sign-in sheet.
    All,
    /// Those that end in `.setup`.
    Setup,
}

/// The access point that a person with a phone joins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hotspot {
    /// Its name.
    pub ssid: Ssid,
    /// WPA2 password, 8 to 63 characters.
    pub password: Secret,
    /// On this device.
    pub interface: String,
    /// Channel of the 2.4 GHz band. Always given: left alone, the network manager picks some that the country forbids.
    pub channel: u8,
    /// The device's own address there and the length of its prefix; phones get the others by DHCP.
    pub address: Subnet,
    /// What the name server says.
    pub names: CaptiveNames,
    /// Where the API of RFC 8908 is, told by DHCP option 114 (RFC 8910); `None` tells nothing.
    pub captive_api: Option<String>,
}

/// The network manager and the radio.
///
/// Calls that wait can be dropped at any time: what they began is then left as it is, and the next call sees it.
#[async_trait(?Send)]
pub trait Networks {
    /// How things are now; costs nothing.
    fn links(&self) -> Links;

    /// Resolves when [`Networks::links`] differs from what it was when this was called. Cancel-safe.
    async fn changed(&self);

    /// The agent's own profiles with everything that was given, passwords too. One that somebody edited is listed as it
    /// is now, so that comparing finds the difference; one that cannot be read any more as a profile comes with what
    /// could be read.
    async fn profiles(&self) -> Result<Vec<Profile>, NetworkError>;

    /// Adds a profile, or changes the one of this key. Connects nothing; the network manager may do so by itself, and what
    /// is connected by this key stays as it was until it is joined again. On stable storage when it returns, readable
    /// for the network manager only.
    async fn put(&self, profile: &Profile) -> Result<(), NetworkError>;

    /// Removes the agent's profile of this key; disconnects what uses it. None there is fine.
    async fn remove(&self, key: &str) -> Result<(), NetworkError>;

    /// Connects by this profile of the agent's. Resolves when the link has an address, or says why it never will; takes
    /// at most a minute.
    async fn join(&self, key: &str) -> Result<Link, JoinError>;

    /// Connects by a profile that is not the agent's and that the system would use by itself, the best that is there, on
    /// this interface if one is named. `false` when there is none that could be tried.
    async fn join_known(&self, interface: Option<&str>) -> Result<bool, JoinError>;

    /// Listens to the air for networks; takes some seconds. Strongest first, each name once, hidden ones left out.
    /// `fresh` asks the radio; without it, what was heard last is enough.
    async fn scan(&self, interface: Option<&str>, fresh: bool) -> Result<Vec<Seen>, NetworkError>;

    /// Opens the hotspot, or changes the one that is open. Resolves when phones can join it.
    async fn open_hotspot(&self, hotspot: &Hotspot) -> Result<(), NetworkError>;

    /// Closes the hotspot and leaves nothing of it behind: no profile, no file of the name server. Also one that an
    /// agent left open which was killed. None open is fine.
    async fn close_hotspot(&self) -> Result<(), NetworkError>;

    /// Power save of all WiFi links; `None` is the system's own again. Whether anything was changed.
    async fn set_power_save(&self, on: Option<bool>) -> Result<bool, NetworkError>;

    /// Country whose radio rules apply, two letters; `None` leaves them alone.
    async fn set_country(&self, country: Option<&str>) -> Result<(), NetworkError>;
}

#[cfg(test)]
mod tests {
    use super::{Ssid, overlap};

    #[test]
    fn networks_with_addresses_in_common() {
        let table = [
            ("the same", [10, 42, 0, 77], 24, true),
            ("around it", [10, 0, 0, 1], 8, true),
            ("inside it", [10, 42, 0, 129], 30, true),
            ("one address", [10, 42, 0, 7], 32, true),
            ("beside it", [10, 42, 1, 1], 24, false),
            ("everywhere", [10, 42, 0, 2], 0, false),
            ("nonsense", [10, 42, 0, 1], 99, true),
        ];
        for (case, address, prefix, expected) in table {
            let hotspot = ([10, 42, 0, 1].into(), 24);
            let other = (address.into(), prefix);
            assert_eq!((overlap(hotspot, other), overlap(other, hotspot)), (expected, expected), "{case}");
        }
    }

    #[test]
    fn names_are_shown() {
        let table: [(&[u8], Option<&str>); 8] = [
            (b"home", Some("home")),
            ("Grüße 🏠".as_bytes(), Some("Grüße 🏠")),
            (b"a\\b", Some("a\\\\b")),
            (b"line\nbreak\x1b[31m", Some("line\\x0abreak\\x1b[31m")),
            (b"\xff\xfeok", Some("\\xff\\xfeok")),
            (b"\x00", Some("\\x00")),
            (b"", None),
            (&[b'x'; 33], None),
        ];
        for (bytes, shown) in table {
            assert_eq!(Ssid::new(bytes).map(|ssid| ssid.to_string()).as_deref(), shown, "{bytes:?}");
        }
    }
}
