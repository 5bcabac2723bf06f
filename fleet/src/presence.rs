//! When each part last spoke.
//!
//! A check-in is a store into memory. Once a second everything new goes to the database in one commit, so that other
//! servers and the next start know it too: a thousand devices cost one commit, not a thousand. Where several servers
//! heard a device, the latest counts: what is stored never goes back, and whoever asks takes the later of both.

use std::{
    collections::HashMap,
    sync::{
        Arc, RwLock,
        atomic::{AtomicI64, Ordering::Relaxed},
    },
    time::Duration,
};

use crate::{
    clock::Millis,
    skew::Skew,
    store::{DbError, Store, parts},
};

/// How old what the database says may be; other servers show a device live within twice this.
pub const WRITTEN_EVERY: Duration = Duration::from_secs(1);
/// Devices in one transaction: as long as it runs, nobody else writes.
const WRITTEN_AT_ONCE: usize = 512;
/// What was written down and not heard for this long is read from the database where it is wanted: devices come and go.
const REMEMBERED_FOR: Millis = 60 * 60 * 1000;
/// How often the memory is looked through for those.
const TIDIED_EVERY: Millis = 60 * 1000;
/// A device is live when it spoke within this.
pub const LIVE_WITHIN: Millis = 10_000;

#[derive(Default)]
struct Seen {
    at: AtomicI64,
    written: AtomicI64,
}

/// Last accesses, newest first in memory, a second later on disk.
#[derive(Default)]
pub struct Presence {
    parts: RwLock<HashMap<Arc<str>, Seen>>,
    /// What is stored is in the database's time, so that servers whose clocks differ mean the same moment.
    skew: Arc<Skew>,
    tidied: AtomicI64,
}

/// How the contract says whether a device is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Liveness {
    /// When it last spoke; `None` if it never did.
    pub last_access: Option<Millis>,
    /// Within [`LIVE_WITHIN`].
    pub live: bool,
    /// 0 while live.
    pub seconds_since: i64,
}

impl Presence {
    /// Nobody was heard yet.
    pub fn new(skew: Arc<Skew>) -> Self {
        Self { skew, ..Self::default() }
    }

    /// The part's device called.
    pub fn touch(&self, part: &str, now: Millis) {
        if let Ok(parts) = self.parts.read()
            && let Some(seen) = parts.get(part)
        {
            // Not the maximum: after a clock was set back, the maximum would be in the future for hours.
            seen.at.store(now, Relaxed);
            return;
        }
        if let Ok(mut parts) = self.parts.write() {
            parts.entry(part.into()).or_default().at.store(now, Relaxed);
        }
    }

    /// The later of what is in memory and what the database said, as far as it can be true at `now`.
    pub fn last_access(&self, part: &str, stored: Option<Millis>, now: Millis) -> Option<Millis> {
        let seen = self.parts.read().ok().and_then(|parts| parts.get(part).map(|seen| seen.at.load(Relaxed)));
        let stored = stored.map(|at| self.skew.here(at));
        let believable = |at: &Millis| *at <= now + LIVE_WITHIN;
        // Only a clock that was set back leaves something unbelievable, and then it is all there is to show.
        seen.filter(believable).max(stored.filter(believable)).or(seen).or(stored)
    }

    /// The part is gone: nothing of it is to be written any more.
    pub fn forget(&self, part: &str) {
        if let Ok(mut parts) = self.parts.write() {
            parts.remove(part);
        }
    }

    /// Writes what is new; returns how many parts that were.
    pub async fn write_down(&self, store: &Store, now: Millis) -> Result<usize, DbError> {
        self.tidy(now);
        let new: Vec<(Arc<str>, Millis)> = match self.parts.read() {
            Ok(parts) => parts
                .iter()
                .map(|(part, seen)| (part, seen.at.load(Relaxed), seen.written.load(Relaxed)))
                .filter(|(_, at, written)| at != written)
                .map(|(part, at, _)| (part.clone(), at))
                .collect(),
            Err(_) => return Err(DbError::Closed),
        };
        if new.is_empty() {
            return Ok(0);
        }
        // A few at a time: others write too.
        for some in new.chunks(WRITTEN_AT_ONCE) {
            let heard: Vec<_> = some.iter().map(|(part, at)| (part.clone(), self.skew.shared(*at))).collect();
            let believable = self.skew.shared(now) + LIVE_WITHIN;
            store.write(move |tx| parts::store_last_access(tx, &heard, believable)).await?;
            if let Ok(parts) = self.parts.read() {
                for (part, at) in some {
                    if let Some(seen) = parts.get(part) {
                        seen.written.store(*at, Relaxed);
                    }
                }
            }
        }
        Ok(new.len())
    }

    /// Also the way out for a part that was deleted on another server while its device was still talking to this one.
    fn tidy(&self, now: Millis) {
        if (now - self.tidied.load(Relaxed)).abs() < TIDIED_EVERY {
            return;
        }
        self.tidied.store(now, Relaxed);
        if let Ok(mut parts) = self.parts.write() {
            parts.retain(|_, seen| {
                let at = seen.at.load(Relaxed);
                at != seen.written.load(Relaxed) || now - at < REMEMBERED_FOR
            });
        }
    }
}

/// What a last access means at a moment.
pub fn liveness(last_access: Option<Millis>, now: Millis) -> Liveness {
    match last_access {
        // In the future is possible after a clock was set back; far in the future says nothing about now.
        Some(at) if (now - at).abs() <= LIVE_WITHIN => Liveness { last_access, live: true, seconds_since: 0 },
        Some(at) => Liveness { last_access, live: false, seconds_since: (now - at).max(0) / 1000 },
        None => Liveness { last_access, live: false, seconds_since: 0 },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_was_set_back_keeps_nobody_alive() {
        let presence = Presence::default();
        presence.touch("part", 1_000_000);
        assert_eq!(presence.last_access("part", Some(999_000), 1_000_000), Some(1_000_000));
        // Set back by 900 seconds: silent devices are not live, those that speak again are.
        assert!(!liveness(presence.last_access("part", None, 100_000), 100_000).live);
        presence.touch("part", 101_000);
        assert_eq!(presence.last_access("part", Some(1_000_000), 101_000), Some(101_000));
    }

    #[test]
    fn who_was_not_heard_for_an_hour_is_left_to_the_database() {
        let presence = Presence::default();
        presence.touch("old", 1_000_000);
        presence.touch("unwritten", 1_000_000);
        presence.parts.read().unwrap()["old"].written.store(1_000_000, Relaxed);
        presence.tidy(1_000_000 + REMEMBERED_FOR - 1);
        assert_eq!(presence.parts.read().unwrap().len(), 2);
        presence.tidy(1_000_000 + REMEMBERED_FOR + TIDIED_EVERY);
        assert_eq!(presence.parts.read().unwrap().keys().map(|part| &**part).collect::<Vec<_>>(), ["unwritten"]);
    }

    #[test]
    fn live_for_ten_seconds() {
        let table = [
            (None, 50_000, false, 0),
            (Some(40_000), 50_000, true, 0),
            (Some(39_999), 50_000, false, 10),
            (Some(60_000), 50_000, true, 0),
            (Some(60_001), 50_000, false, 0),
        ];
        for (last_access, now, live, seconds_since) in table {
            assert_eq!(liveness(last_access, now), Liveness { last_access, live, seconds_since }, "{last_access:?}");
        }
    }
}
