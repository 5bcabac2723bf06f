//! The time a new version has been watched, which stands still while the version cannot show anything.

use std::time::Duration;

use board::Mono;

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
        self.watched + self.since.map_or(Duration::ZERO, |since| now.since(since))
    }

    /// Stands still from now on.
    pub(super) fn pause(&mut self, now: Mono) {
        self.watched = self.watched_at(now);
        self.since = None;
    }
}
