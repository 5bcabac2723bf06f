//! What each has used of a rate: leaky buckets by key, in bounded memory. When it is full of busy ones, new ones are let pass
//! uncounted. Time is given, and nobody waits here.

use std::{
    collections::HashMap,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

/// Shares of the table, so that callers seldom wait for each other.
const SHARDS: usize = 16;
/// Of one share; about 50 bytes each, 100,000 in a table.
const BUCKETS_PER_SHARD: usize = 6_250;
/// Seconds between two searches for the quiet in a full share.
const SWEEP_EVERY: f64 = 1.0;
/// As many are counted at most.
#[cfg(test)]
pub(super) const BUCKETS: usize = SHARDS * BUCKETS_PER_SHARD;

/// Buckets by key.
#[derive(Default)]
pub(super) struct Table {
    shards: [Mutex<Shard>; SHARDS],
    uncounted: AtomicU64,
}

/// A share of the table.
#[derive(Default)]
struct Shard {
    buckets: HashMap<u64, Bucket>,
    /// When the quiet were last forgotten: looking through all for each newcomer would be the greater harm.
    swept: f64,
}

impl Shard {
    fn used(&self, key: u64, now: f64) -> f64 {
        self.buckets.get(&key).map_or(0.0, |bucket| bucket.at(now))
    }

    /// Whether that one can be counted. Whoever has used nothing lately is as good as unknown, and makes room.
    fn has_room_for(&mut self, key: u64, now: f64) -> bool {
        if self.buckets.len() < BUCKETS_PER_SHARD || self.buckets.contains_key(&key) {
            return true;
        }
        if now - self.swept >= SWEEP_EVERY {
            self.swept = now;
            self.buckets.retain(|_, bucket| bucket.at(now) > 0.0);
        }
        self.buckets.len() < BUCKETS_PER_SHARD
    }
}

/// What was used of a limit and has not come back yet.
#[derive(Debug, Clone, Copy)]
struct Bucket {
    used: f64,
    /// Seconds since the start of the server.
    at: f64,
    /// What comes back by second.
    rate: f64,
}

impl Bucket {
    fn at(self, now: f64) -> f64 {
        (self.used - (now - self.at).max(0.0) * self.rate).max(0.0)
    }
}

impl Table {
    /// Uses `cost` of what there is, or says how long until it would be there.
    pub(super) fn take(&self, key: u64, cost: f64, rate: f64, most: f64, now: f64) -> Result<(), Duration> {
        if rate <= 0.0 {
            return Ok(());
        }
        let mut shard = self.shard(key);
        let used = shard.used(key, now);
        if used + cost > most {
            return Err(Duration::from_secs_f64((used + cost - most) / rate));
        }
        if shard.has_room_for(key, now) {
            shard.buckets.insert(key, Bucket { used: used + cost, at: now, rate });
        } else {
            self.uncounted.fetch_add(1, Relaxed);
        }
        Ok(())
    }

    /// Uses `cost`, whether it is there or not, until `most` is used.
    pub(super) fn add(&self, key: u64, cost: f64, rate: f64, most: f64, now: f64) {
        let mut shard = self.shard(key);
        if rate > 0.0 && shard.has_room_for(key, now) {
            let used = (shard.used(key, now) + cost).min(most);
            shard.buckets.insert(key, Bucket { used, at: now, rate });
        }
    }

    /// How often somebody was let pass because there was no room to count it.
    pub(super) fn uncounted(&self) -> u64 {
        self.uncounted.load(Relaxed)
    }

    fn shard(&self, key: u64) -> MutexGuard<'_, Shard> {
        let shard = &self.shards[(key % SHARDS as u64) as usize];
        shard.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_lets_a_burst_through_and_then_its_rate() {
        let table = Table::default();
        for call in 0..5 {
            assert_eq!(table.take(7, 1.0, 1.0, 5.0, 100.0), Ok(()), "call {call} of the burst");
        }
        assert_eq!(table.take(7, 1.0, 1.0, 5.0, 100.0), Err(Duration::from_secs(1)), "the sixth waits");
        assert_eq!(table.take(7, 1.0, 1.0, 5.0, 100.5), Err(Duration::from_millis(500)));
        assert_eq!(table.take(7, 1.0, 1.0, 5.0, 101.0), Ok(()), "after the wait there is room for one …");
        assert!(table.take(7, 1.0, 1.0, 5.0, 101.0).is_err(), "… and only one");
        assert_eq!(table.take(8, 1.0, 1.0, 5.0, 101.0), Ok(()), "others are not concerned");
        assert_eq!(table.take(7, 1.0, 0.0, 0.0, 101.0), Ok(()), "0 is no limit");
    }

    #[test]
    fn what_is_used_beyond_a_bucket_has_to_come_back_first() {
        let table = Table::default();
        table.add(7, 19.0, 10.0, 60.0, 100.0);
        assert_eq!(table.take(7, 1.0, 10.0, 50.0, 100.0), Ok(()), "20 of 50");
        table.add(7, 1_000.0, 10.0, 60.0, 100.0);
        assert_eq!(table.take(7, 1.0, 10.0, 50.0, 100.0), Err(Duration::from_millis(1_100)), "60 at most");
        assert_eq!(table.take(7, 1.0, 10.0, 50.0, 101.2), Ok(()));
        table.add(8, 1_000.0, 0.0, 60.0, 100.0);
        assert_eq!(table.take(8, 1.0, 0.0, 0.0, 100.0), Ok(()), "0 is no limit");
    }

    #[test]
    fn the_table_is_bounded_and_forgets_the_quiet_first() {
        let table = Table::default();
        let all = BUCKETS;
        for key in 0..2 * all as u64 {
            // Each has used two of what comes back by one a second.
            let _ = table.take(key, 2.0, 1.0, 5.0, 0.0);
        }
        let kept = || table.shards.iter().map(|shard| shard.lock().unwrap().buckets.len()).sum::<usize>();
        assert_eq!(kept(), all, "full of busy callers: the rest is not counted");
        assert_eq!(table.uncounted(), all as u64, "and that is told");
        assert_eq!(table.take(u64::MAX, 1.0, 1.0, 5.0, 60.0), Ok(()));
        assert!(kept() < all, "the quiet make room");
    }
}
