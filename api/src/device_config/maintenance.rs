//! When the machine server may be restarted and versions may be switched: windows in the week.
//!
//! Owns how windows are written. Whether one is open now needs a clock and the system's time zones, and is decided by
//! whoever waits for it.

use std::{fmt, rc::Rc};

/// More windows than days and nights in a week are a mistake.
pub(super) const WINDOWS_MAX: usize = 16;
/// The longest names of the zone database have 32 bytes.
pub(super) const ZONE_BYTES_MAX: usize = 64;
/// Minutes of a day; a window may end there.
const DAY_MINUTES: u16 = 24 * 60;

/// When restarts and switches may happen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Maintenance {
    /// Any of these must be open. Never empty.
    pub windows: Rc<[Window]>,
    /// The machine server must allow it too.
    pub use_server_word: bool,
}

/// One window, repeated every week.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Window {
    /// Days on which it opens.
    pub days: Days,
    /// Minute of the day at which it opens.
    pub from: MinuteOfDay,
    /// Minute of the day at which it closes; not after `from` means on the next day.
    pub to: MinuteOfDay,
    /// Whose clock.
    pub zone: Zone,
}

/// Days of the week, Monday in the lowest bit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Days(u8);

/// The names of the days as they are written.
pub(super) const DAY_NAMES: [&str; 7] = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"];

impl Days {
    /// Every day.
    pub const ALL: Days = Days(0b111_1111);
    /// No day; to start a collection.
    pub const NONE: Days = Days(0);

    /// With that day, by its name; `None` if no day is called so.
    pub fn with(self, name: &str) -> Option<Days> {
        let day = DAY_NAMES.iter().position(|known| *known == name)?;
        Some(Days(self.0 | 1 << day))
    }

    /// Whether the day is among them; Monday is 0.
    pub fn contains(self, weekday_from_monday: u32) -> bool {
        weekday_from_monday < 7 && self.0 >> weekday_from_monday & 1 == 1
    }

    /// Whether there is no day.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The names of the days.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        (0..).zip(DAY_NAMES).filter(move |(day, _)| self.contains(*day)).map(|(_, name)| name)
    }
}

/// A time of day in whole minutes, 00:00 to 24:00.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct MinuteOfDay(u16);

impl MinuteOfDay {
    /// Reads `HH:MM`.
    pub fn parse(text: &str) -> Option<MinuteOfDay> {
        let digits = |part: &str| {
            let plain = part.len() == 2 && part.bytes().all(|byte| byte.is_ascii_digit());
            plain.then(|| part.parse::<u16>().ok()).flatten()
        };
        let (hours, minutes) = text.split_once(':')?;
        let (hours, minutes) = (digits(hours)?, digits(minutes)?);
        let all = hours * 60 + minutes;
        (minutes < 60 && all <= DAY_MINUTES).then_some(MinuteOfDay(all))
    }

    /// Minutes since midnight, 0 to 1440.
    pub fn minutes(self) -> u16 {
        self.0
    }
}

impl fmt::Display for MinuteOfDay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:02}:{:02}", self.0 / 60, self.0 % 60)
    }
}

/// Whose clock a window follows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Zone {
    /// The device's own, `/etc/localtime`.
    Local,
    /// One of the system's zone database. Whether it is there shows only when it is looked up.
    Named(Box<str>),
}

impl Zone {
    /// Reads `local` or `Area/City`. A name is a path inside the zone database, so nothing that could leave it.
    pub fn parse(text: &str) -> Option<Zone> {
        if text == "local" {
            return Some(Zone::Local);
        }
        let named = text.len() <= ZONE_BYTES_MAX
            && text.starts_with(|first: char| first.is_ascii_uppercase())
            && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"/_+-".contains(&byte))
            && text.split('/').all(|part| !part.is_empty());
        named.then(|| Zone::Named(text.into()))
    }
}

impl fmt::Display for Zone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Zone::Local => f.write_str("local"),
            Zone::Named(name) => f.write_str(name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_day() {
        let table = [
            ("00:00", Some(0)),
            ("02:30", Some(150)),
            ("23:59", Some(1439)),
            ("24:00", Some(1440)),
            ("24:01", None),
            ("12:60", None),
            ("2:30", None),
            ("02:3", None),
            ("+2:30", None),
            ("0230", None),
            ("99:00", None),
            ("", None),
        ];
        for (text, minutes) in table {
            let time = MinuteOfDay::parse(text);
            assert_eq!(time.map(MinuteOfDay::minutes), minutes, "{text:?}");
            assert_eq!(time.map(|time| time.to_string()), minutes.map(|_| text.to_owned()));
        }
    }

    #[test]
    fn days_and_zones() {
        let days = Days::NONE.with("mon").and_then(|days| days.with("sun")).unwrap();
        assert_eq!(days.names().collect::<Vec<_>>(), ["mon", "sun"]);
        assert!(days.contains(0) && days.contains(6) && !days.contains(3) && !days.contains(200));
        assert_eq!(Days::NONE.with("Mon"), None);
        assert_eq!(Days::ALL.names().count(), 7);

        let table = [
            ("local", true),
            ("UTC", true),
            ("Europe/Berlin", true),
            ("America/Argentina/Buenos_Aires", true),
            ("Etc/GMT+5", true),
            ("", false),
            ("../../etc/shadow", false),
            ("/etc/localtime", false),
            ("Europe//Berlin", false),
            ("Europe/", false),
            ("berlin", false),
            ("Europe/Ber.lin", false),
        ];
        for (text, fits) in table {
            assert_eq!(Zone::parse(text).map(|zone| zone.to_string()), fits.then(|| text.to_owned()), "{text:?}");
        }
    }
}
