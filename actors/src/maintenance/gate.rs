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

/// What something that waits for a window knows of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Gate {
    shut_since: Option<Mono>,
    for_long: bool,
}

impl Gate {
    /// Notes whether the window is `shut`, and says when to look again; never, while it stands open or there is none.
    pub fn look(&mut self, now: Mono, wall: Wall, shut: Option<WindowState>) -> Option<Mono> {
        let Some(shut) = shut else {
            *self = Gate::default();
            return None;
        };
        let since = *self.shut_since.get_or_insert(now);
        self.for_long = now.since(since) >= SHUT_FOR_LONG;
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
