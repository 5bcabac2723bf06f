//! Networks that a device was given besides the ones it knows.
//!
//! Owns what an entry of `additional_networks` is once it is checked. An entry stands or falls as a whole: half a network
//! would be tried and fail for a reason nobody could see.

use crate::Secret;
use std::{fmt, net::Ipv4Addr, rc::Rc};

/// One network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Network {
    /// Its name in the configuration.
    pub name: Rc<str>,
    /// Radio or cable.
    pub kind: NetworkKind,
    /// Only this interface; `None` is any.
    pub interface: Option<Box<str>>,
    /// -999 to 999; the higher is tried first.
    pub priority: i16,
    /// How the device gets its address.
    pub address: Address,
    /// Way out; `None` is what DHCP says.
    pub gateway: Option<Ipv4Addr>,
    /// Name servers; empty is what DHCP says.
    pub dns: Box<[Ipv4Addr]>,
    /// The lower is preferred for outgoing traffic: 100 for cables and 600 for radio unless it was given.
    pub route_metric: u32,
}

/// Radio or cable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NetworkKind {
    /// A WiFi network.
    Wifi {
        /// Its name in the air, at most 32 bytes.
        ssid: Box<str>,
        /// Passphrase or 64 hexadecimal digits; `None` is an open network.
        psk: Option<Secret>,
    },
    /// A cable.
    Wired,
}

/// How a device gets its IPv4 address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Address {
    /// By DHCP.
    Auto,
    /// A fixed one, with the length of the network's prefix.
    Fixed(Ipv4Addr, u8),
}

impl Address {
    /// Reads `auto` or `192.168.1.5/24`.
    pub fn parse(text: &str) -> Option<Address> {
        if text == "auto" {
            return Some(Address::Auto);
        }
        let (address, prefix) = text.split_once('/')?;
        let plain = (1..=2).contains(&prefix.len()) && prefix.bytes().all(|byte| byte.is_ascii_digit());
        let prefix = plain.then(|| prefix.parse().ok()).flatten()?;
        (1..=32).contains(&prefix).then_some(Address::Fixed(address.parse().ok()?, prefix))
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Auto => f.write_str("auto"),
            Address::Fixed(address, prefix) => write!(f, "{address}/{prefix}"),
        }
    }
}

/// Whether a text can be the password of a WiFi network: 8 to 63 printable ASCII characters, or a key of 64
/// hexadecimal digits.
pub(super) fn is_psk(text: &str) -> bool {
    is_passphrase(text) || (text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

/// Whether a text can be typed as the password of a WiFi network: 8 to 63 printable ASCII characters.
pub(super) fn is_passphrase(text: &str) -> bool {
    (8..=63).contains(&text.len()) && text.bytes().all(|byte| (b' '..=b'~').contains(&byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses() {
        let table = [
            ("auto", true),
            ("192.168.1.5/24", true),
            ("10.0.0.1/8", true),
            ("10.0.0.1/32", true),
            ("10.0.0.1/0", false),
            ("10.0.0.1/33", false),
            ("10.0.0.1/+8", false),
            ("10.0.0.1/008", false),
            ("10.0.0.1", false),
            ("10.0.0/8", false),
            ("fe80::1/64", false),
            ("", false),
            ("Auto", false),
        ];
        for (text, fits) in table {
            assert_eq!(
                Address::parse(text).map(|address| address.to_string()),
                fits.then(|| text.to_owned()),
                "{text}"
            );
        }
    }

    #[test]
    fn passwords() {
        let table = [
            ("1234567".to_owned(), false),
            ("12345678".to_owned(), true),
            ("x".repeat(63), true),
            ("x".repeat(64), false),
            ("aF09".repeat(16), true),
            ("a".repeat(65), false),
            ("pässwörter".to_owned(), false),
            ("tab\tinside".to_owned(), false),
        ];
        for (text, fits) in table {
            assert_eq!(is_psk(&text), fits, "{text}");
        }
        assert!(!is_passphrase(&"aF09".repeat(16)));
    }
}
