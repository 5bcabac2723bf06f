//! When to try again to connect: one for all connections of a database.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

/// After the first failure.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
/// Longer pauses would only keep a server away that is there again.
const LONGEST_PAUSE: Duration = Duration::from_secs(2);
/// How long one attempt may take; others are told to come later meanwhile.
pub(super) const ATTEMPT_WITHIN: Duration = Duration::from_secs(5);

#[derive(Default)]
struct State {
    failures: u32,
    not_before: Option<Instant>,
}

/// Counts failures; lets one caller through when the pause is over.
#[derive(Default)]
pub(super) struct Gate {
    state: Mutex<State>,
}

impl Gate {
    /// Whether an attempt may be made now.
    pub(super) fn admits(&self, now: Instant) -> bool {
        let mut state = self.held();
        if state.failures == 0 {
            return true;
        }
        if state.not_before.is_some_and(|moment| now < moment) {
            return false;
        }
        state.not_before = Some(now + ATTEMPT_WITHIN);
        true
    }

    /// An attempt failed, or a connection was lost.
    pub(super) fn failed(&self, now: Instant) {
        let mut state = self.held();
        let pause = FIRST_PAUSE.saturating_mul(1 << state.failures.min(8)).min(LONGEST_PAUSE);
        state.failures = state.failures.saturating_add(1);
        state.not_before = Some(now + pause);
    }

    /// An attempt succeeded; whether that ends an outage.
    pub(super) fn succeeded(&self) -> bool {
        let before = std::mem::take(&mut *self.held());
        before.failures > 0
    }

    fn held(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_a_bound_and_one_caller_tries_at_a_time() {
        let (gate, mut now) = (Gate::default(), Instant::now());
        assert!(gate.admits(now) && gate.admits(now), "a healthy database is connected to by many at once");
        let mut pauses = Vec::new();
        for _ in 0..8 {
            gate.failed(now);
            let begin = now;
            while !gate.admits(now) {
                now += Duration::from_millis(50);
            }
            assert!(!gate.admits(now), "the next one waits for the first one's outcome");
            pauses.push((now - begin).as_millis());
        }
        assert_eq!(pauses, [100, 200, 400, 800, 1600, 2000, 2000, 2000]);
        assert!(gate.succeeded() && !gate.succeeded());
        assert!(gate.admits(now));
    }
}
