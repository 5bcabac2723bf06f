//! When each part last spoke.
//!
//! A check-in is a store into memory. Once a second everything new goes to the database in one commit, so that other
//! servers and the next start know it too: a thousand devices cost one commit, not a thousand.

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
    store::{DbError, Store, parts},
};

/// How old what the database says may be; other servers show a device live within twice this.
pub const WRITTEN_EVERY: Duration = Duration::from_secs(1);
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
    /// The part's device called.
    pub fn touch(&self, part: &str, now: Millis) {
        if let Ok(parts) = self.parts.read()
            && let Some(seen) = parts.get(part)
        {
            seen.at.fetch_max(now, Relaxed);
            return;
        }
        if let Ok(mut parts) = self.parts.write() {
            parts.entry(part.into()).or_default().at.fetch_max(now, Relaxed);
        }
    }

    /// The later of what is in memory and what the database said.
    pub fn last_access(&self, part: &str, stored: Option<Millis>) -> Option<Millis> {
        let seen = self.parts.read().ok().and_then(|parts| parts.get(part).map(|seen| seen.at.load(Relaxed)));
        seen.max(stored)
    }

    /// The part is gone: nothing of it is to be written any more.
    pub fn forget(&self, part: &str) {
        if let Ok(mut parts) = self.parts.write() {
            parts.remove(part);
        }
    }

    /// Writes what is new; returns how many parts that were.
    pub async fn write_down(&self, store: &Store) -> Result<usize, DbError> {
        let new: Vec<(Arc<str>, Millis)> = match self.parts.read() {
            Ok(parts) => parts
                .iter()
                .map(|(part, seen)| (part, seen.at.load(Relaxed), seen.written.load(Relaxed)))
                .filter(|(_, at, written)| at > written)
                .map(|(part, at, _)| (part.clone(), at))
                .collect(),
            Err(_) => return Err(DbError::Closed),
        };
        if new.is_empty() {
            return Ok(0);
        }
        let written = new.clone();
        store
            .write(move |tx| written.iter().try_for_each(|(part, at)| parts::store_last_access(tx, part, *at)))
            .await?;
        if let Ok(parts) = self.parts.read() {
            for (part, at) in &new {
                if let Some(seen) = parts.get(part) {
                    seen.written.fetch_max(*at, Relaxed);
                }
            }
        }
        Ok(new.len())
    }
}

/// What a last access means at a moment.
pub fn liveness(last_access: Option<Millis>, now: Millis) -> Liveness {
    match last_access {
        // A clock that was set back leaves accesses in the future: those devices spoke, so they are live.
        Some(at) if now - at <= LIVE_WITHIN => Liveness { last_access, live: true, seconds_since: 0 },
        Some(at) => Liveness { last_access, live: false, seconds_since: (now - at) / 1000 },
        None => Liveness { last_access, live: false, seconds_since: 0 },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn live_for_ten_seconds() {
        let table = [
            (None, 50_000, false, 0),
            (Some(40_000), 50_000, true, 0),
            (Some(39_999), 50_000, false, 10),
            (Some(60_000), 50_000, true, 0),
        ];
        for (last_access, now, live, seconds_since) in table {
            assert_eq!(liveness(last_access, now), Liveness { last_access, live, seconds_since }, "{last_access:?}");
        }
    }
}
