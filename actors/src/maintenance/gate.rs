//! Waiting for a maintenance window: how long it has been shut, and when to look at it again.

use std::time::Duration;

use board::{Mono, Wall};

use super::WindowState;

/// Reported when something has met a shut window for this long.
const SHUT_FOR_LONG: Duration = Duration::from_secs(14 * 24 * 3600);
/// Windows are looked at again at least this often, because wall clocks are set.
const LOOK_AGAIN: Duration = Duration::from_secs(3600);
/// A window that changes right now is looked at again after this.
const LOOK_AGAIN_MIN: Duration = Duration::from_secs(1);

/// No clock that was ever set shows less: 2024. What a clock says before that is not remembered.
const SET_CLOCK: Wall = Wall::from_millis(1_704_067_200_000);

/// What something that waits for a window knows of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Gate {
    shut_since: Option<Mono>,
    /// The same for the next start of the agent, as far as the clock can be believed.
    since: Option<Wall>,
    /// What an earlier start of the agent knew, until something waits for the window again.
    stored: Option<Wall>,
    for_long: bool,
}

impl Gate {
    /// Continues what an earlier start of the agent has remembered ([`Gate::since`]).
    #[must_use]
    pub fn resume(stored: Option<Wall>) -> Self {
        Gate { stored, ..Gate::default() }
    }

    /// To be remembered for the next start of the agent.
    #[must_use]
    pub fn since(&self) -> Option<Wall> {
        self.since.or(self.stored)
    }

    /// Nothing waits for the window.
    pub fn leave(&mut self) {
        *self = Gate::resume(self.stored);
    }

    /// Notes whether the window is `shut`, and says when to look again; never, while it stands open or there is none.
    pub fn look(&mut self, now: Mono, wall: Wall, shut: Option<WindowState>) -> Option<Mono> {
        let stored = self.stored.take();
        let Some(shut) = shut else {
            *self = Gate::default();
            return None;
        };
        let since = *self.shut_since.get_or_insert(now);
        self.since = self.since.or(stored).or((wall >= SET_CLOCK).then_some(wall));
        let by_wall = self.since.map_or(0, |since| wall.as_millis().saturating_sub(since.as_millis()));
        let by_wall = Duration::from_millis(u64::try_from(by_wall).unwrap_or(0));
        self.for_long = now.since(since).max(by_wall) >= SHUT_FOR_LONG;
        let change = shut.changes.map_or(LOOK_AGAIN, |at| {
            let millis = at.as_millis().saturating_sub(wall.as_millis());
            Duration::from_millis(u64::try_from(millis).unwrap_or(0)).clamp(LOOK_AGAIN_MIN, LOOK_AGAIN)
        });
        Some(now + change)
    }

    /// For people, while it is shut.
    #[must_use]
    pub fn sentence(&self) -> Option<&'static str> {
        self.shut_since.map(|_| match self.for_long {
            true => "the maintenance window has been shut for over 14 days",
            false => "waiting for the maintenance window",
        })
    }

    /// It has been shut for so long that somebody should look at its setting.
    #[must_use]
    pub const fn is_shut_for_long(&self) -> bool {
        self.for_long
    }
}
