//! When the machine server may be restarted and versions may be switched: is a window of the week open?
//!
//! Pure: whoever waits brings the wall clock and the zone files. A window follows the local clock: one that lies wholly in
//! an hour that the spring change skips does not open that day, one in the hour that autumn repeats opens twice. A zone
//! that this system does not know keeps its windows shut and is complained about: opening at a guessed hour is worse.

pub mod gate;
mod posix_rule;
mod system;
mod zone;

use std::{path::PathBuf, rc::Rc};

use api::device_config::{Maintenance, Window, Zone};
use board::Wall;

pub use system::SystemWindows;
pub use zone::{TimeZone, ZONE_FILE_BYTES_MAX};

const MINUTES_PER_DAY: i64 = 24 * 60;
/// A window that is shut now opens within a week and a day, or never.
const LOOK_AHEAD_MINUTES: i64 = 8 * MINUTES_PER_DAY;
const MILLIS_PER_MINUTE: i64 = 60_000;

/// The windows with their zones looked up.
#[derive(Clone, Debug)]
pub struct Calendar {
    windows: Vec<(Window, Option<Rc<TimeZone>>)>,
}

/// Whether something may happen now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opening {
    /// Now.
    Open,
    /// Not before this moment; `None` is never, as far as can be seen.
    Shut {
        /// When the next window opens.
        until: Option<Wall>,
    },
}

/// Whether the maintenance windows are open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowState {
    /// One of them is.
    pub open: bool,
    /// When that may change.
    pub changes: Option<Wall>,
}

/// Reads maintenance windows; needs the system's time zones, so machines are told what it sees.
pub trait Windows {
    /// As of `at`.
    fn look(&self, maintenance: &Maintenance, at: Wall) -> WindowState;

    /// What cannot be followed of the windows looked at last, as sentences.
    fn trouble(&self) -> Vec<String>;
}

/// Where the system keeps the rules of a zone.
#[must_use]
pub fn zone_file(zone: &Zone) -> PathBuf {
    match zone {
        Zone::Local => PathBuf::from("/etc/localtime"),
        Zone::Named(name) => PathBuf::from("/usr/share/zoneinfo").join(name.as_ref()),
    }
}

impl Calendar {
    /// Looks up the zones with `read`, which gives the content of a [`zone_file`] or nothing. Also says which zones could
    /// not be used; a system without `/etc/localtime` runs on UTC.
    pub fn new(maintenance: &Maintenance, read: impl Fn(&Zone) -> Option<Vec<u8>>) -> (Calendar, Vec<String>) {
        let mut unknown = Vec::new();
        let windows = maintenance.windows.iter().map(|window| {
            let zone = match (read(&window.zone), &window.zone) {
                (Some(bytes), _) => TimeZone::parse(&bytes),
                (None, Zone::Local) => Some(TimeZone::utc()),
                (None, Zone::Named(_)) => None,
            };
            let name = window.zone.to_string();
            if zone.is_none() && !unknown.contains(&name) {
                unknown.push(name);
            }
            (window.clone(), zone.map(Rc::new))
        });
        let windows = windows.collect();
        (Calendar { windows }, unknown)
    }

    /// Whether a window is open at `now`, and if none is, when the next one opens.
    #[must_use]
    pub fn at(&self, now: Wall) -> Opening {
        let this_minute = now.as_millis().div_euclid(MILLIS_PER_MINUTE);
        if self.is_open(this_minute) {
            return Opening::Open;
        }
        let next = (this_minute + 1..=this_minute + LOOK_AHEAD_MINUTES).find(|minute| self.is_open(*minute));
        Opening::Shut { until: next.map(|minute| Wall::from_millis(minute * MILLIS_PER_MINUTE)) }
    }

    fn is_open(&self, utc_minute: i64) -> bool {
        self.windows.iter().any(|(window, zone)| {
            let Some(zone) = zone else { return false };
            let local = utc_minute + i64::from(zone.offset_at(utc_minute * 60)) / 60;
            covers(window, local)
        })
    }
}

/// Whether the window covers this minute of the local clock, counted from 1970-01-01 00:00 local time.
fn covers(window: &Window, local_minute: i64) -> bool {
    let (day, minute) = (local_minute.div_euclid(MINUTES_PER_DAY), local_minute.rem_euclid(MINUTES_PER_DAY));
    // 1970-01-01 was a Thursday, three days after a Monday.
    let opens_on = |day: i64| window.days.contains(u32::try_from((day + 3).rem_euclid(7)).unwrap_or(0));
    let (from, to) = (i64::from(window.from.minutes()), i64::from(window.to.minutes()));
    if from < to {
        return opens_on(day) && (from..to).contains(&minute);
    }
    // Past midnight: the evening belongs to the day it opens on, the morning to the day before.
    (opens_on(day) && minute >= from) || (opens_on(day - 1) && minute < to)
}

#[cfg(test)]
mod tests;
