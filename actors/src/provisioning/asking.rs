//! When phones that once shared their own connection are asked for it again, without being paired anew.
//!
//! Asking one that is not near keeps the Bluetooth radio calling for five seconds, so that it is done ever more seldom, and
//! not beside somebody who is setting the device up.

use std::time::Duration;

use board::Mono;

use crate::kit::backoff::Backoff;

/// First wait: a known WiFi network that is near is being joined by then.
const ASK_FIRST: Duration = Duration::from_secs(30);
/// Longest wait: whoever comes home with the phone does not wait for longer, and the radio is not kept busy.
const ASK_MAX: Duration = Duration::from_secs(15 * 60);
/// A phone that connects so soon after one was asked has been connected to by that.
const ECHO: Duration = Duration::from_secs(10);

/// What is known of asking.
#[derive(Clone, Debug)]
pub struct Asking {
    backoff: Backoff,
    /// When they are asked next, while that is wanted.
    due: Option<Mono>,
    /// They are being looked for and asked.
    running: bool,
    /// One has connected meanwhile.
    came: bool,
    /// When one that was near had been asked last.
    ended: Option<Mono>,
}

impl Asking {
    /// Nobody is asked. `seed` differs per device.
    #[must_use]
    pub const fn new(seed: u64) -> Asking {
        Asking { backoff: Backoff::new(ASK_FIRST, ASK_MAX, seed), due: None, running: false, came: false, ended: None }
    }

    /// Whether they are to be asked now. `wanted`: the device is offline and could. `busy`: somebody is being helped.
    pub fn turn(&mut self, now: Mono, wanted: bool, busy: bool) -> bool {
        if !wanted {
            self.due = None;
            self.backoff.reset();
            return false;
        }
        if self.due.is_none() && !self.running {
            self.due = Some(now + self.backoff.next_delay());
        }
        if busy || self.due.is_none_or(|due| due > now) {
            return false;
        }
        self.begun();
        true
    }

    /// One is being asked, because it has just been let in or because of [`Asking::turn`].
    pub fn begun(&mut self) {
        (self.due, self.running) = (None, true);
    }

    /// That is over. `near`: one was near, whatever it said.
    pub fn asked(&mut self, now: Mono, near: bool) {
        let came = std::mem::take(&mut self.came);
        self.running = false;
        match near {
            true => self.ended = Some(now),
            // It was not found, because it came a moment later.
            false if came => self.due = Some(now),
            false => {}
        }
    }

    /// One of them has connected by itself: it is asked at once, where that is wanted.
    pub fn came(&mut self, now: Mono) {
        self.came = self.running;
        let echo = self.ended.is_some_and(|ended| now < ended + ECHO);
        if let Some(due) = self.due.as_mut().filter(|_| !echo) {
            *due = now;
        }
    }

    /// The moment at which time alone would change something.
    #[must_use]
    pub fn deadline(&self, busy: bool) -> Option<Mono> {
        self.due.filter(|_| !busy)
    }
}
