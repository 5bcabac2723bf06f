//! What access points ask for, and how a profile is to be used with them.

use std::time::Duration;

use board::{
    Mono,
    network::{Security, Ssid},
};
use secret::Secret;

/// Flags of an access point as the network manager tells them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Offer {
    /// General flags.
    pub flags: u32,
    /// Of WPA.
    pub wpa: u32,
    /// Of RSN, which is WPA2 and WPA3.
    pub rsn: u32,
}

const PRIVACY: u32 = 0x1;
const PSK: u32 = 0x100;
const ENTERPRISE: u32 = 0x200 | 0x2000;
const SAE: u32 = 0x400;
const OWE: u32 = 0x800;

impl Offer {
    /// In words of the domain.
    pub(super) fn security(self) -> Security {
        let both = self.wpa | self.rsn;
        match () {
            () if self.rsn & SAE != 0 && both & PSK != 0 => Security::Wpa2Wpa3,
            () if self.rsn & SAE != 0 => Security::Wpa3,
            () if self.rsn & PSK != 0 => Security::Wpa2,
            () if self.wpa & PSK != 0 => Security::Wpa,
            () if both & ENTERPRISE != 0 => Security::Enterprise,
            () if self.rsn & OWE != 0 => Security::EnhancedOpen,
            () if both == 0 && self.flags & PRIVACY != 0 => Security::Wep,
            () => Security::Open,
        }
    }
}

/// How the secret of a profile is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum How {
    /// No security.
    Open,
    /// Encrypted without a password.
    EnhancedOpen,
    /// WPA2, or WPA3 where both sides can: the network manager offers both.
    Password,
    /// WPA2 without protected management frames, for radios that promise WPA3 and fail.
    Wpa2Only,
    /// WPA3 only.
    Wpa3Only,
}

impl How {
    /// For a network of which nothing is known yet.
    pub(super) const fn usual(psk: Option<&Secret>) -> How {
        if psk.is_some() { How::Password } else { How::Open }
    }

    /// Whether a password is kept for it.
    pub(super) const fn is_by_password(self) -> bool {
        matches!(self, How::Password | How::Wpa2Only | How::Wpa3Only)
    }
}

/// Why there is no way to join.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Impossible {
    /// It asks for a password.
    PasswordMissing,
    /// Something that this device cannot give.
    Unsuitable(&'static str),
}

/// The ways to try, the likeliest first; `offered` is `None` where nobody heard the network.
pub(super) fn ways(offered: Option<Security>, psk: Option<&Secret>) -> Result<&'static [How], Impossible> {
    let key = psk.is_some_and(|psk| is_raw_key(psk.expose()));
    match (offered, psk) {
        (Some(Security::Wep), _) => {
            Err(Impossible::Unsuitable("it uses WEP, which protects nothing; set it to WPA2 or WPA3"))
        }
        (Some(Security::Enterprise), _) => {
            Err(Impossible::Unsuitable("it asks for a user of an organization (802.1X), which is not supported"))
        }
        (Some(Security::Open | Security::EnhancedOpen), Some(_)) => Err(Impossible::Unsuitable(
            "a password was given and it asks for none: it may be somebody else's of the same name",
        )),
        (Some(offered), None) if offered.wants_password() => Err(Impossible::PasswordMissing),
        (Some(Security::EnhancedOpen), None) => Ok(&[How::EnhancedOpen]),
        (_, None) => Ok(&[How::Open]),
        (Some(Security::Wpa3), Some(_)) if key => {
            Err(Impossible::Unsuitable("it uses WPA3, which needs the password itself and not 64 hexadecimal digits"))
        }
        (Some(Security::Wpa3), Some(_)) => Ok(&[How::Wpa3Only]),
        (Some(Security::Wpa2Wpa3), Some(_)) => Ok(&[How::Password, How::Wpa2Only]),
        (_, Some(_)) => Ok(&[How::Password]),
    }
}

/// 64 hexadecimal digits are the key itself and no passphrase.
fn is_raw_key(psk: &str) -> bool {
    psk.len() == 64 && psk.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// An access point that was heard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Heard {
    /// `None` hides its name.
    pub ssid: Option<Ssid>,
    /// 0 to 100.
    pub signal: u8,
    /// What it asks for.
    pub offer: Offer,
    /// In MHz.
    pub frequency: u32,
    /// Seconds after boot; negative is never.
    pub last: i64,
}

/// The strongest of each name, strongest first; hidden ones left out.
pub(super) fn strongest(heard: Vec<Heard>) -> Vec<board::network::Seen> {
    // Put in by hand: each sorting of another type is five kilobytes on the board.
    let mut sorted: Vec<Heard> = Vec::with_capacity(heard.len());
    for one in heard {
        let at = sorted
            .partition_point(|there| one.signal.cmp(&there.signal).then_with(|| there.ssid.cmp(&one.ssid)).is_le());
        sorted.insert(at, one);
    }
    let mut seen: Vec<board::network::Seen> = Vec::new();
    for one in sorted {
        let Some(ssid) = one.ssid else { continue };
        let heard = u64::try_from(one.last).ok().map(|last| Mono::BOOT + Duration::from_secs(last));
        match seen.iter_mut().find(|there| there.ssid == ssid) {
            Some(there) => there.heard = there.heard.max(heard),
            None => seen.push(board::network::Seen {
                ssid,
                signal: one.signal.min(100),
                security: one.offer.security(),
                frequency_mhz: one.frequency,
                heard,
            }),
        }
    }
    seen
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_put_into_words() {
        // As NetworkManager 1.42 told them of real access points (hostapd).
        let table = [
            ("open", (0, 0, 0), Security::Open),
            ("open half of a pair with OWE", (0, 0, 0x1000), Security::Open),
            ("WEP", (1, 0, 0), Security::Wep),
            ("WPA", (1, 0x144, 0), Security::Wpa),
            ("WPA and WPA2", (1, 0x144, 0x188), Security::Wpa2),
            ("WPA2", (1, 0, 0x188), Security::Wpa2),
            ("WPA2 and WPA3", (1, 0, 0x588), Security::Wpa2Wpa3),
            ("WPA3", (1, 0, 0x488), Security::Wpa3),
            ("OWE", (1, 0, 0x888), Security::EnhancedOpen),
            ("a company", (1, 0, 0x288), Security::Enterprise),
            ("a company of 192 bits", (1, 0, 0x2088), Security::Enterprise),
            ("rubbish", (0xffff_ffff, 0, 0xffff_0000), Security::Open),
        ];
        for (case, (flags, wpa, rsn), security) in table {
            assert_eq!(Offer { flags, wpa, rsn }.security(), security, "{case}");
        }
    }

    #[test]
    fn ways_to_join() {
        use Security::{EnhancedOpen, Enterprise, Open, Wep, Wpa, Wpa2, Wpa2Wpa3, Wpa3};
        let password = Secret::from("correct horse");
        let hex = Secret::from("0123456789abcdef".repeat(4).as_str());
        let suits = |offered, psk: Option<&Secret>| ways(offered, psk).map(<[How]>::to_vec);
        for offered in [Open, EnhancedOpen, Wep, Enterprise] {
            assert!(matches!(suits(Some(offered), Some(&password)), Err(Impossible::Unsuitable(_))), "{offered:?}");
        }
        for offered in [Wpa, Wpa2, Wpa2Wpa3, Wpa3] {
            assert_eq!(suits(Some(offered), None), Err(Impossible::PasswordMissing), "{offered:?}");
        }
        assert_eq!(suits(Some(Open), None), Ok(vec![How::Open]));
        assert_eq!(suits(Some(EnhancedOpen), None), Ok(vec![How::EnhancedOpen]));
        assert_eq!(suits(None, None), Ok(vec![How::Open]));
        for offered in [None, Some(Wpa), Some(Wpa2)] {
            assert_eq!(suits(offered, Some(&password)), Ok(vec![How::Password]), "{offered:?}");
        }
        assert_eq!(suits(Some(Wpa2Wpa3), Some(&password)), Ok(vec![How::Password, How::Wpa2Only]));
        assert_eq!(suits(Some(Wpa3), Some(&password)), Ok(vec![How::Wpa3Only]));
        assert_eq!(suits(Some(Wpa2), Some(&hex)), Ok(vec![How::Password]));
        assert!(matches!(suits(Some(Wpa3), Some(&hex)), Err(Impossible::Unsuitable(_))));
    }

    #[test]
    fn each_name_once_and_the_strongest_first() {
        let heard = |name: &str, signal, frequency| Heard {
            ssid: Ssid::new(name.as_bytes()),
            signal,
            offer: Offer::default(),
            frequency,
            last: i64::from(frequency) - 2430,
        };
        let seen = strongest(vec![
            heard("far", 20, 2412),
            heard("home", 40, 2437),
            heard("", 99, 2437),
            heard("home", 70, 5180),
            heard("loud", 255, 2462),
        ]);
        let last: Vec<_> = seen.iter().map(|one| one.heard.map(|at| at.as_nanos() / 1_000_000_000)).collect();
        assert_eq!(last, [Some(32), Some(2750), None], "the last time of any of that name");
        let short: Vec<_> = seen.iter().map(|one| (one.ssid.to_string(), one.signal, one.frequency_mhz)).collect();
        assert_eq!(
            short,
            [("loud".to_owned(), 100, 2462), ("home".to_owned(), 70, 5180), ("far".to_owned(), 20, 2412)]
        );
    }
}
