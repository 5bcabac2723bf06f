//! Time as the server stores it: whole milliseconds since 1970, which every client can carry.

use std::{
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering::Relaxed},
    },
    time::{SystemTime, UNIX_EPOCH},
};

use prost_types::Timestamp;

/// Milliseconds since 1970.
pub type Millis = i64;

/// The wall clock, which tests may push. Clones are the same clock.
#[derive(Debug, Clone, Default)]
pub struct Clock {
    pushed: Arc<AtomicI64>,
}

impl Clock {
    /// Now.
    pub fn now(&self) -> Millis {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        i64::try_from(since.as_millis()).unwrap_or(i64::MAX) + self.pushed.load(Relaxed)
    }

    /// Moves this clock forward or back from now on; for tests of clock jumps.
    pub fn push(&self, millis: i64) {
        self.pushed.fetch_add(millis, Relaxed);
    }
}

/// For an answer.
pub fn timestamp(at: Millis) -> Timestamp {
    Timestamp { seconds: at.div_euclid(1000), nanos: i32::try_from(at.rem_euclid(1000)).unwrap_or(0) * 1_000_000 }
}

/// From a request; cut to milliseconds, as everything stored is.
pub fn millis(at: &Timestamp) -> Millis {
    at.seconds.saturating_mul(1000).saturating_add(i64::from(at.nanos) / 1_000_000)
}
