//! What a visitor can do, whichever door it is.
//!
//! Owns the checks of what was typed, so that every door refuses the same things with the same sentences. Whether a
//! visitor may do it now is decided by the machine, and told beforehand by [`super::welcome::Welcome::identity`].

use api::Secret;
use board::network::{SSID_BYTES_MAX, Ssid};

use crate::network::Given;

/// Where somebody stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Door {
    /// The page on the hotspot.
    Portal,
    /// The provisioning service of the contract, on the hotspot.
    App,
    /// Our characteristics over Bluetooth.
    Bluetooth,
    /// Improv over Bluetooth.
    Improv,
    /// The device itself: `platform-agent provision`.
    Console,
}

/// What a visitor does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Visit {
    /// A browser opened the page, not a phone's own probe: once per visitor.
    Came,
    /// Somebody types.
    Touched,
    /// Look again for networks.
    Rescan,
    /// Join this network; may come together with an identity.
    Network(Given),
    /// Be this machine.
    Identity(Identity),
    /// The result of the last attempt has been shown to a person.
    SawResult,
    /// The visitor is done: leave provisioning and try what was given.
    Leave,
}

/// Who the device is to be: the content of a credentials file, checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// `https://fleet.example.com`
    pub app_address: String,
    /// Which part.
    pub part_id: String,
    /// What it shows to be believed.
    pub proof: Proof,
}

/// What an identity is proved by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Proof {
    /// A part's secret.
    Secret(Secret),
    /// An API key.
    ApiKey {
        /// Its name.
        id: String,
        /// The key itself.
        key: Secret,
    },
}

/// What is wrong with what was typed, for the person who typed it. Never holds the password.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Mistyped {
    /// No name.
    #[error("choose a network or type its name")]
    NoName,
    /// The name is too long.
    #[error("a network's name has at most {SSID_BYTES_MAX} bytes")]
    NameTooLong,
    /// The password cannot be one.
    #[error("a WiFi password has 8 to 63 characters")]
    Password,
    /// The password cannot be typed on every device.
    #[error("a WiFi password has letters, digits and signs of the English keyboard only")]
    Letters,
}

/// Checks a network as it was typed: the name in bytes, the password with empty meaning none.
pub fn network(name: &[u8], password: &str, hidden: bool) -> Result<Given, Mistyped> {
    let ssid = match name.len() {
        0 => return Err(Mistyped::NoName),
        1..=SSID_BYTES_MAX => Ssid::new(name).ok_or(Mistyped::NoName)?,
        _ => return Err(Mistyped::NameTooLong),
    };
    let key = password.len() == 64 && password.bytes().all(|byte| byte.is_ascii_hexdigit());
    let psk = match password.len() {
        0 => None,
        _ if key => Some(Secret::from(password)),
        _ if !password.bytes().all(|byte| (b' '..=b'~').contains(&byte)) => return Err(Mistyped::Letters),
        8..=63 => Some(Secret::from(password)),
        _ => return Err(Mistyped::Password),
    };
    Ok(Given { ssid, psk, hidden })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_typed() {
        let (hex, long, too_long) = ("aF09".repeat(16), "x".repeat(63), "x".repeat(64));
        let table: [(&[u8], &str, Result<bool, Mistyped>); 10] = [
            (b"home", "12345678", Ok(true)),
            (b"home", "", Ok(false)),
            (b"home", &long, Ok(true)),
            (b"home", &hex, Ok(true)),
            (b"home", &too_long, Err(Mistyped::Password)),
            (b"home", "1234567", Err(Mistyped::Password)),
            (b"home", "pässwort123", Err(Mistyped::Letters)),
            (b"", "12345678", Err(Mistyped::NoName)),
            (&[0xff; 32], "12345678", Ok(true)),
            (&[0xff; 33], "12345678", Err(Mistyped::NameTooLong)),
        ];
        for (name, password, expected) in table {
            let given = network(name, password, false);
            assert_eq!(given.map(|given| given.psk.is_some()), expected, "{name:?} {password}");
        }
    }
}
