//! Keeps one door as it is wanted: opens it, closes it, and tries again for ever when it cannot be opened.
//!
//! Owns how often a door is tried. A door that fails delays no other one: each has its own keeper.

use std::{rc::Rc, time::Duration};

use board::Mono;

use crate::kit::backoff::Backoff;

/// First wait after a door could not be opened or closed.
const RETRY_FIRST: Duration = Duration::from_secs(5);
/// Longest wait: somebody stands beside the device with a phone, and a scan of the air is heard every few minutes anyway.
const RETRY_MAX: Duration = Duration::from_secs(120);

/// How a door stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stand {
    /// Nothing of it is there.
    Closed,
    /// It is being opened.
    Opening,
    /// Visitors can come.
    Open {
        /// Since when.
        since: Mono,
    },
    /// It is being closed.
    Closing,
    /// Something may be left of it: of an agent that was killed, or of a closing that failed.
    Unknown,
}

/// What is to be done about a door.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Move {
    /// Open it.
    Open,
    /// Close it, whatever there is of it.
    Close,
}

/// Keeps one door.
#[derive(Clone, Debug)]
pub struct Keeper {
    stand: Stand,
    /// Not before this.
    retry: Option<Mono>,
    backoff: Backoff,
    trouble: Option<Rc<str>>,
}

impl Keeper {
    /// For a door that stands like this.
    #[must_use]
    pub const fn new(stand: Stand, seed: u64) -> Keeper {
        Keeper { stand, retry: None, backoff: Backoff::new(RETRY_FIRST, RETRY_MAX, seed), trouble: None }
    }

    /// How the door stands.
    #[must_use]
    pub const fn stand(&self) -> Stand {
        self.stand
    }

    /// Whether visitors can come.
    #[must_use]
    pub const fn is_open(&self) -> bool {
        matches!(self.stand, Stand::Open { .. })
    }

    /// Whether nothing of it is in the way.
    #[must_use]
    pub const fn is_closed(&self) -> bool {
        matches!(self.stand, Stand::Closed)
    }

    /// Why it could not be opened last, until it is open or not wanted.
    #[must_use]
    pub fn trouble(&self) -> Option<&Rc<str>> {
        self.trouble.as_ref()
    }

    /// What is to be done now. `able` says that the device has what it needs for this door.
    pub fn turn(&mut self, now: Mono, wanted: bool, able: bool) -> Option<Move> {
        if !wanted {
            self.trouble = None;
        }
        self.retry = self.retry.filter(|at| *at > now);
        if !able || self.retry.is_some() {
            return None;
        }
        let (stand, what) = match (self.stand, wanted) {
            (Stand::Closed, true) => (Stand::Opening, Move::Open),
            (Stand::Open { .. } | Stand::Opening, false) => (Stand::Closing, Move::Close),
            (Stand::Unknown, _) => (Stand::Closing, Move::Close),
            (Stand::Closed, false) | (Stand::Open { .. } | Stand::Opening, true) | (Stand::Closing, _) => return None,
        };
        self.stand = stand;
        Some(what)
    }

    /// The door is open, or why not.
    pub fn opened(&mut self, now: Mono, outcome: Result<(), Rc<str>>) {
        if self.stand != Stand::Opening {
            return;
        }
        match outcome {
            Ok(()) => {
                self.backoff.reset();
                (self.stand, self.trouble) = (Stand::Open { since: now }, None);
            }
            // What was opened of it is closed first.
            Err(why) => self.failed(now, why),
        }
    }

    /// Nothing is left of the door, or why something may be.
    pub fn closed(&mut self, now: Mono, outcome: Result<(), Rc<str>>) {
        if self.stand != Stand::Closing {
            return;
        }
        match outcome {
            Ok(()) => self.stand = Stand::Closed,
            Err(why) => self.failed(now, why),
        }
    }

    /// The door has gone by itself: its daemon was restarted, its adapter pulled out.
    pub fn lost(&mut self, now: Mono, why: Rc<str>) {
        match self.stand {
            Stand::Open { .. } | Stand::Opening => self.failed(now, why),
            Stand::Closed | Stand::Closing | Stand::Unknown => {}
        }
    }

    /// What it needs has come: there is no reason to wait any longer.
    pub fn came(&mut self) {
        self.backoff.reset();
        self.retry = None;
    }

    /// The moment at which time alone would change something.
    #[must_use]
    pub fn deadline(&self, wanted: bool, able: bool) -> Option<Mono> {
        let wants = wanted || self.stand == Stand::Unknown;
        self.retry.filter(|_| wants && able)
    }

    fn failed(&mut self, now: Mono, why: Rc<str>) {
        self.retry = Some(now + self.backoff.next_delay());
        (self.stand, self.trouble) = (Stand::Unknown, Some(why));
    }
}
