//! How often a write may be wrong.
//!
//! Owns the bound on guessing the password, on what can be measured of the key, and on the time that opening sealed
//! values takes from the actors' one thread. Only wrong writes count: whoever knows the password is never slowed down by
//! themselves, but may be by somebody near who keeps guessing; such a person could jam the radio just as well.

use std::time::Duration;

use board::Mono;

/// Wrong writes in a row before each further one has to wait.
const BURST: u32 = 16;
/// One more may be wrong after this.
const REFILL: Duration = Duration::from_secs(2);

/// Counts wrong writes.
#[derive(Debug, Default)]
pub(super) struct Limit {
    wrong: u32,
    since: Option<Mono>,
}

impl Limit {
    /// Whether a write may be looked at now.
    pub(super) fn allows(&mut self, now: Mono) -> bool {
        let Some(since) = self.since else { return true };
        let passed = u32::try_from(now.since(since).as_nanos() / REFILL.as_nanos()).unwrap_or(u32::MAX);
        if passed >= self.wrong {
            *self = Limit::default();
        } else {
            self.wrong -= passed;
            self.since = Some(since + REFILL * passed);
        }
        self.wrong < BURST
    }

    /// That one was wrong.
    pub(super) fn wrong(&mut self, now: Mono) {
        self.since = self.since.or(Some(now));
        self.wrong += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guessing_gets_slow_and_stays_possible() {
        let at = |seconds| Mono::BOOT + Duration::from_secs(seconds);
        let mut limit = Limit::default();
        for _ in 0..BURST {
            assert!(limit.allows(at(10)));
            limit.wrong(at(10));
        }
        assert!(!limit.allows(at(10)));
        assert!(!limit.allows(at(11)));
        assert!(limit.allows(at(12)));
        limit.wrong(at(12));
        assert!(!limit.allows(at(13)));
        let guesses =
            (14..=3_614).filter(|second| limit.allows(at(*second)).then(|| limit.wrong(at(*second))).is_some());
        assert_eq!(guesses.count(), 1_801, "one in two seconds");
        assert!(limit.allows(at(10_000)));
        assert_eq!(limit.wrong, 0, "an hour without a guess forgets them all");
    }
}
