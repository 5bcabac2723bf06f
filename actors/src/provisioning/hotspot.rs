//! What the hotspot is called, its password, its channel and its address.
//!
//! Owns nothing but arithmetic: the same device has the same name and password each time, and keeps clear of every
//! network that it is joined to.
//!
//! # The password that belongs to one device
//!
//! Where the manufacturer gives `hotspot_password_secret`, the password is the first twelve letters, in lower case, of the
//! base32 text (RFC 4648) of HMAC-SHA256 with that secret over `hotspot password 1 SERIAL`: 60 bits, easily typed, and
//! printed on a label by whoever has secret and serial number (docs/provisioning.md).

use api::{Secret, brand, device_config::NetworkSettings, digest};
use board::network::{Ipv4Addr, SSID_BYTES_MAX, Seen, Ssid, Subnet, overlap};

/// Letters of a password that belongs to one device: 60 bits.
const DERIVED_LETTERS: usize = 12;
/// The channels of the 2.4 GHz band that do not overlap. Every country allows them, and every phone hears them: 12 and 13
/// are silent in some.
const CHANNELS: [u8; 3] = [1, 6, 11];
/// MHz within which two networks of 20 MHz disturb each other.
const OVERLAP_MHZ: u32 = 20;
/// Length of the hotspot's prefix.
const PREFIX: u8 = 24;

/// `PREFIX-HOSTNAME`, cut to what fits, at a letter.
#[must_use]
pub fn ssid(prefix: &str, hostname: &str) -> Option<Ssid> {
    let whole = if hostname.is_empty() { prefix.to_owned() } else { format!("{prefix}-{hostname}") };
    let end = (0..=SSID_BYTES_MAX.min(whole.len())).rev().find(|&end| whole.is_char_boundary(end)).unwrap_or(0);
    Ssid::new(whole.get(..end).unwrap_or_default().as_bytes())
}

/// The password: the one that is configured; else the one that belongs to this device, where the manufacturer has a
/// secret for that; else the one that is built in and known to everybody.
#[must_use]
pub fn password(settings: &NetworkSettings, serial: &str) -> Secret {
    match &settings.hotspot_password_secret {
        Some(secret) if settings.hotspot_password.expose() == brand::HOTSPOT_PASSWORD && !serial.is_empty() => {
            derived(secret, serial)
        }
        _ => settings.hotspot_password.clone(),
    }
}

/// The password that belongs to the device with this serial number.
#[must_use]
pub fn derived(secret: &Secret, serial: &str) -> Secret {
    const ALPHABET: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";
    let sum = digest::hmac_sha256(secret.expose().as_bytes(), format!("hotspot password 1 {serial}").as_bytes());
    let bit = |at: usize| sum.get(at / 8).map_or(0, |byte| usize::from(byte >> (7 - at % 8)) & 1);
    let letter = |at: usize| (0..5).fold(0, |number, place| number << 1 | bit(5 * at + place));
    let letters = (0..DERIVED_LETTERS).filter_map(|at| ALPHABET.get(letter(at))).map(|letter| char::from(*letter));
    Secret::from(letters.collect::<String>())
}

/// The channel that is disturbed least by what is in the air; the first of equals.
#[must_use]
pub fn channel(seen: &[Seen]) -> u8 {
    let noise = |channel: u8| -> u32 {
        let centre = 2407 + 5 * u32::from(channel);
        let near = seen.iter().filter(|seen| seen.frequency_mhz.abs_diff(centre) < OVERLAP_MHZ);
        // A weak neighbour disturbs too; ten of them as much as one at the next table.
        near.map(|seen| 10 + u32::from(seen.signal)).sum()
    };
    CHANNELS.into_iter().min_by_key(|&channel| noise(channel)).unwrap_or(6)
}

/// 10.42.0.1/24, or the next that none of these overlaps: what is connected must stay reachable.
#[must_use]
pub fn address(taken: &[Subnet]) -> Subnet {
    let ten = (0..=255).map(|third| Ipv4Addr::new(10, 42, third, 1));
    let others = (0..=255).rev().map(|third| Ipv4Addr::new(172, 31, third, 1));
    let home = (0..=255).rev().map(|third| Ipv4Addr::new(192, 168, third, 1));
    let mut candidates = ten.chain(others).chain(home).map(|address| (address, PREFIX));
    let free = |candidate: &Subnet| !taken.iter().any(|other| overlap(*candidate, *other));
    candidates.find(free).unwrap_or((Ipv4Addr::new(10, 42, 0, 1), PREFIX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use board::network::Security;

    #[test]
    fn names_are_cut_at_a_letter() {
        let table = [
            ("platform-setup", "pump-7", "platform-setup-pump-7"),
            ("platform-setup", "", "platform-setup"),
            ("setup", "a-very-long-name-of-a-machine-that-goes-on", "setup-a-very-long-name-of-a-mach"),
            ("größe", "äöüäöüäöüäöüäöüäöü", "größe-äöüäöüäöüäöü"),
            ("setup", "日本語日本語日本語", "setup-日本語日本語日本"),
        ];
        for (prefix, hostname, expected) in table {
            let ssid = ssid(prefix, hostname).expect("a name");
            assert_eq!(ssid.to_string(), expected, "{prefix} {hostname}");
            assert!(
                ssid.bytes().len() <= SSID_BYTES_MAX && ssid.bytes().len() + 4 > SSID_BYTES_MAX.min(expected.len())
            );
        }
    }

    /// `printf %s "hotspot password 1 100000001a2b3c4d" | openssl dgst -sha256 -hmac "secret of the factory" -binary |
    /// base32 | head -c 12 | tr A-Z a-z` prints the same.
    #[test]
    fn a_label_can_be_printed_without_the_device() {
        let secret = Secret::from("secret of the factory");
        assert_eq!(derived(&secret, "100000001a2b3c4d").expose(), LABEL);
        assert_ne!(derived(&secret, "100000001a2b3c4e").expose(), LABEL);
    }
    const LABEL: &str = "gl5xnuijiksx";

    #[test]
    fn the_quietest_channel_is_taken() {
        let on = |channel: u32, signal: u8| Seen {
            ssid: Ssid::new(b"x").expect("a name"),
            signal,
            security: Security::Wpa2,
            frequency_mhz: if channel > 14 { 5000 + 5 * channel } else { 2407 + 5 * channel },
            heard: None,
        };
        let table = [
            (vec![], 1),
            (vec![on(1, 80)], 6),
            (vec![on(1, 80), on(6, 20), on(11, 60)], 6),
            (vec![on(3, 80)], 11),
            (vec![on(36, 100), on(149, 90)], 1),
            (vec![on(1, 10), on(1, 10), on(1, 10), on(6, 30), on(11, 90)], 6),
        ];
        for (seen, expected) in table {
            assert_eq!(channel(&seen), expected, "{seen:?}");
        }
    }

    #[test]
    fn no_network_of_the_device_is_hidden_by_its_hotspot() {
        let net = |a: [u8; 4], prefix| (Ipv4Addr::from(a), prefix);
        let table = [
            (vec![], [10, 42, 0, 1]),
            (vec![net([192, 168, 1, 7], 24)], [10, 42, 0, 1]),
            (vec![net([10, 42, 0, 99], 24)], [10, 42, 1, 1]),
            (vec![net([10, 42, 0, 99], 23)], [10, 42, 2, 1]),
            (vec![net([10, 8, 0, 2], 8)], [172, 31, 255, 1]),
            (vec![net([10, 8, 0, 2], 8), net([172, 16, 0, 9], 12)], [192, 168, 255, 1]),
            (vec![net([10, 42, 0, 7], 32)], [10, 42, 1, 1]),
            (vec![net([0, 0, 0, 0], 0)], [10, 42, 0, 1]),
        ];
        for (taken, expected) in table {
            assert_eq!(address(&taken), (Ipv4Addr::from(expected), 24), "{taken:?}");
        }
    }
}
