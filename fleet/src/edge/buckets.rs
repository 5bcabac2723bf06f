//! What each has used of a rate: leaky buckets by key, in bounded memory. When it is full of busy ones, new ones are let pass
//! uncounted. Those who find nothing left stand in line: each is told a time of its own to come again, or all would come at the
//! same one. Time is given, and nobody waits here.

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
/// Of one share; about 60 bytes each, 100,000 in a table.
const BUCKETS_PER_SHARD: usize = 6_250;
/// Seconds between two searches for the quiet in a full share.
const SWEEP_EVERY: f64 = 1.0;
/// Nobody is told to come again later than this only because others are in line before.
pub(super) const LINE_MAX: Duration = Duration::from_secs(1);
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
    /// The bucket of that one, as it is now. Nothing if there is no room for another one; whoever has used nothing lately
    /// is as good as unknown, and makes room.
    fn bucket(&mut self, key: u64, rate: f64, now: f64) -> Option<&mut Bucket> {
        if self.buckets.len() >= BUCKETS_PER_SHARD && !self.buckets.contains_key(&key) {
            if now - self.swept >= SWEEP_EVERY {
                self.swept = now;
                self.buckets.retain(|_, bucket| bucket.left(now) > 0.0);
            }
            if self.buckets.len() >= BUCKETS_PER_SHARD {
                return None;
            }
        }
        let bucket = self.buckets.entry(key).or_insert(Bucket { used: 0.0, at: now, rate, cost: 0.0, line: 0.0 });
        // Somebody may have looked at the clock before, and come here after another one.
        let now = now.max(bucket.at);
        *bucket = Bucket { used: bucket.left(now), at: now, rate, ..*bucket };
        Some(bucket)
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
    /// Of what was let through last: the next one is like it.
    cost: f64,
    /// When whoever is last in line was told to come again; in the past, nobody is.
    line: f64,
}

impl Bucket {
    fn left(self, now: f64) -> f64 {
        (self.used - (now - self.at).max(0.0) * self.rate).max(0.0)
    }

    /// When to come again for something that would be there after `lacking` seconds.
    fn line_up(&mut self, lacking: f64) -> Duration {
        let soonest = self.at + lacking;
        self.line = match self.line > self.at {
            true => (self.line + self.cost / self.rate).min(self.at + LINE_MAX.as_secs_f64()).max(soonest),
            false => soonest,
        };
        Duration::from_secs_f64(self.line - self.at)
    }
}

impl Table {
    /// Uses `cost` of what there is, or says how long until it would be there, and others in line had theirs.
    pub(super) fn take(&self, key: u64, cost: f64, rate: f64, most: f64, now: f64) -> Result<(), Duration> {
        if rate <= 0.0 {
            return Ok(());
        }
        let mut shard = self.shard(key);
        let Some(bucket) = shard.bucket(key, rate, now) else {
            self.uncounted.fetch_add(1, Relaxed);
            return Ok(());
        };
        if bucket.used + cost > most {
            return Err(bucket.line_up((bucket.used + cost - most) / rate));
        }
        (bucket.used, bucket.cost) = (bucket.used + cost, cost);
        Ok(())
    }

    /// What was let through for `paid` costs `cost`; that is used, whether it is there or not, until `most` is.
    pub(super) fn charge(&self, key: u64, paid: f64, cost: f64, rate: f64, most: f64, now: f64) {
        let mut shard = self.shard(key);
        if rate > 0.0
            && let Some(bucket) = shard.bucket(key, rate, now)
        {
            (bucket.used, bucket.cost) = ((bucket.used + cost - paid).min(most), cost);
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
        assert_eq!(table.take(7, 1.0, 1.0, 5.0, 101.0), Ok(()), "after the wait there is room for one …");
        assert!(table.take(7, 1.0, 1.0, 5.0, 101.0).is_err(), "… and only one");
        assert_eq!(table.take(8, 1.0, 1.0, 5.0, 101.0), Ok(()), "others are not concerned");
        assert_eq!(table.take(7, 1.0, 0.0, 0.0, 101.0), Ok(()), "0 is no limit");
    }

    #[test]
    fn what_is_used_beyond_a_bucket_has_to_come_back_first() {
        let table = Table::default();
        table.charge(7, 1.0, 20.0, 10.0, 60.0, 100.0);
        assert_eq!(table.take(7, 1.0, 10.0, 50.0, 100.0), Ok(()), "20 of 50");
        table.charge(7, 1.0, 1_000.0, 10.0, 60.0, 100.0);
        assert_eq!(table.take(7, 1.0, 10.0, 50.0, 100.0), Err(Duration::from_millis(1_100)), "60 at most");
        assert_eq!(table.take(7, 1.0, 10.0, 50.0, 101.2), Ok(()));
        table.charge(8, 1.0, 1_000.0, 0.0, 60.0, 100.0);
        assert_eq!(table.take(8, 1.0, 0.0, 0.0, 100.0), Ok(()), "0 is no limit");
    }

    #[test]
    fn each_in_line_comes_again_when_there_is_something_for_it() {
        // By 1,000 a second, 5,000 at once; all of them at the same moment.
        let (table, rate, most) = (Table::default(), 1_000.0, 5_000.0);
        let refused = |key| table.take(key, 1.0, rate, most, 100.0).unwrap_err().as_secs_f64() * 1e3;
        let nearly = |waits: Vec<f64>, expected: &[f64]| {
            assert!(waits.iter().zip(expected).all(|(one, other)| (one - other).abs() < 0.01), "{waits:?}");
        };
        (0..5_000).for_each(|_| table.take(7, 1.0, rate, most, 100.0).unwrap());
        nearly((0..4).map(|_| refused(7)).collect(), &[1.0, 2.0, 3.0, 4.0]);
        // As far apart as it costs what such a caller does, up to a second.
        (0..250).for_each(|_| {
            table.take(8, 1.0, rate, most, 100.0).unwrap();
            table.charge(8, 1.0, 20.0, rate, 6_000.0, 100.0);
        });
        nearly((0..4).map(|_| refused(8)).collect(), &[1.0, 21.0, 41.0, 61.0]);
        nearly((0..100).map(|_| refused(8)).skip(98).collect(), &[1_000.0, 1_000.0]);
        // Who comes again at its time finds it.
        for wait in [0.0011, 0.0211, 0.0411] {
            assert_eq!(table.take(8, 1.0, rate, most, 100.0 + wait), Ok(()));
            table.charge(8, 1.0, 20.0, rate, 6_000.0, 100.0 + wait);
        }
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
