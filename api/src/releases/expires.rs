//! When a document stops counting, and what that means while nobody vouches for the clock.

use std::fmt;

const SECONDS_PER_DAY: i64 = 86_400;

/// The end of a document's life, to the second.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Expires(i64);

/// Whether a document may still be followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Freshness {
    /// Before its end.
    Fresh,
    /// Past its end by a clock that nothing vouches for: followed, and reported.
    ExpiredByDoubtfulClock,
    /// Past its end: what is installed stays, nothing new is taken from it.
    Expired,
}

impl Expires {
    /// `seconds` after 1970-01-01 UTC.
    #[must_use]
    pub const fn from_unix_seconds(seconds: i64) -> Self {
        Expires(seconds)
    }

    /// Seconds since 1970-01-01 UTC.
    #[must_use]
    pub const fn unix_seconds(self) -> i64 {
        self.0
    }

    /// Judges by the time of day. A clock that is not `synchronised` never makes a document unusable: a board whose
    /// battery is empty could then not be updated at all.
    #[must_use]
    pub const fn at(self, unix_seconds: i64, synchronised: bool) -> Freshness {
        match (unix_seconds < self.0, synchronised) {
            (true, _) => Freshness::Fresh,
            (false, true) => Freshness::Expired,
            (false, false) => Freshness::ExpiredByDoubtfulClock,
        }
    }

    /// Reads `2030-01-31T23:59:59Z`, the one form TUF documents use.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (date, time) = text.strip_suffix('Z')?.split_once('T')?;
        let [year, month, day] = numbers(date, '-', [4, 2, 2])?;
        let [hour, minute, second] = numbers(time, ':', [2, 2, 2])?;
        let expires = Expires(days_from_civil(year, month, day) * SECONDS_PER_DAY + hour * 3600 + minute * 60 + second);
        // 31 February and 25 o'clock come back as another text.
        (expires.to_string() == text).then_some(expires)
    }
}

fn numbers(text: &str, separator: char, widths: [usize; 3]) -> Option<[i64; 3]> {
    let mut numbers = [0; 3];
    let mut parts = text.split(separator);
    for (number, width) in numbers.iter_mut().zip(widths) {
        let part = parts.next().filter(|part| part.len() == width && part.bytes().all(|byte| byte.is_ascii_digit()))?;
        *number = part.parse().ok()?;
    }
    parts.next().is_none().then_some(numbers)
}

/// Days since 1970-01-01 (Hinnant, "chrono-compatible low-level date algorithms").
const fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468
}

impl fmt::Display for Expires {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (days, second) = (self.0.div_euclid(SECONDS_PER_DAY) + 719_468, self.0.rem_euclid(SECONDS_PER_DAY));
        let (era, day_of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
        let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let shifted = (5 * day_of_year + 2) / 153;
        let (day, month) = (day_of_year - (153 * shifted + 2) / 5 + 1, (shifted + 2) % 12 + 1);
        let year = era * 400 + year_of_era + i64::from(month <= 2);
        let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
        write!(f, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_and_seconds() {
        for (text, seconds) in [
            ("1970-01-01T00:00:00Z", 0),
            ("2000-02-29T12:34:56Z", 951_827_696),
            ("2026-11-20T08:00:00Z", 1_795_161_600),
            ("2100-03-01T00:00:00Z", 4_107_542_400),
            ("9999-12-31T23:59:59Z", 253_402_300_799),
        ] {
            assert_eq!(Expires::parse(text), Some(Expires(seconds)), "{text}");
            assert_eq!(Expires(seconds).to_string(), text);
        }
        for garbage in [
            "",
            "2026-11-20",
            "2026-11-20T08:00:00",
            "2026-11-20T08:00:00+01:00",
            "2026-13-20T08:00:00Z",
            "2026-02-30T08:00:00Z",
            "2026-11-20T24:00:00Z",
            "2026-11-20T08:00:00.5Z",
            "+026-11-20T08:00:00Z",
            "2026-11-20-01T08:00:00Z",
        ] {
            assert_eq!(Expires::parse(garbage), None, "{garbage}");
        }
    }

    #[test]
    fn a_doubtful_clock_expires_nothing() {
        let end = Expires(100);
        let table = [
            ("before", 99, true, Freshness::Fresh),
            ("before, by a doubtful clock", 99, false, Freshness::Fresh),
            ("at the end", 100, true, Freshness::Expired),
            ("after", 1 << 40, true, Freshness::Expired),
            ("after, by a doubtful clock", 1 << 40, false, Freshness::ExpiredByDoubtfulClock),
        ];
        for (case, now, synchronised, expected) in table {
            assert_eq!(end.at(now, synchronised), expected, "{case}");
        }
    }
}
