//! The time a new version has been watched, which stands still while the version cannot show anything.

use std::time::Duration;

use board::Mono;

/// Time between two looks that counts at most. The clock goes on while the device sleeps, and a version that sleeps shows
/// nothing: so whoever watches looks at least this often.
const LOOK: Duration = Duration::from_secs(60);

/// A version on probation, as far as this start of the agent has seen.
#[derive(Clone, Debug, Default)]
pub(super) struct Trial {
    /// Time watched before `since`.
    pub(super) watched: Duration,
    /// When watching began; `None` while it is frozen.
    pub(super) since: Option<Mono>,
    /// Crashes that were forgiven because there is nothing to go back to.
    pub(super) forgiven: u64,
}

impl Trial {
    /// Time watched until now.
    pub(super) fn watched_at(&self, now: Mono) -> Duration {
        self.watched + self.since.map_or(Duration::ZERO, |since| now.since(since).min(LOOK))
    }

    /// Counts what was watched until now, and goes on.
    pub(super) fn look(&mut self, now: Mono) {
        self.pause(now);
        self.since = Some(now);
    }

    /// When to look next while `left` of the trial is left to be watched; `None` while it is frozen.
    pub(super) fn next_look(&self, left: Duration) -> Option<Mono> {
        self.since.map(|since| since + left.min(LOOK))
    }

    /// Stands still from now on.
    pub(super) fn pause(&mut self, now: Mono) {
        self.watched = self.watched_at(now);
        self.since = None;
    }
}
