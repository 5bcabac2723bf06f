//! A service manager that remembers what it was told.

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    time::Duration,
};

use board::service::Service;

use crate::{clock::SimClock, power::Alive};

/// One thing the agent said, and how long after the beginning of the world.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Told {
    /// When.
    pub at: Duration,
    /// What.
    pub what: Word,
}

/// What an agent can say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Word {
    /// The actors live.
    Ready(String),
    /// Still making progress.
    Alive,
    /// Going down on purpose.
    Stopping,
}

/// The service manager, as the test sees it.
#[derive(Clone)]
pub struct SimService {
    clock: SimClock,
    told: Rc<RefCell<Vec<Told>>>,
    watchdog: Rc<Cell<Option<Duration>>>,
}

impl SimService {
    pub(crate) fn new(clock: &SimClock) -> Self {
        SimService { clock: clock.clone(), told: Rc::default(), watchdog: Rc::default() }
    }

    /// Everything it was told.
    #[must_use]
    pub fn told(&self) -> Vec<Told> {
        self.told.borrow().clone()
    }

    /// Wants to hear from the agent this often.
    pub fn watch(&self, every: Duration) {
        self.watchdog.set(Some(every));
    }
}

/// The service manager as the agent of one boot sees it.
pub(crate) struct ServicePort {
    pub(crate) service: SimService,
    pub(crate) alive: Alive,
}

impl ServicePort {
    fn note(&self, what: Word) {
        if self.alive.get() {
            self.service.told.borrow_mut().push(Told { at: self.service.clock.elapsed(), what });
        }
    }
}

impl Service for ServicePort {
    fn ready(&self, status: &str) {
        self.note(Word::Ready(status.to_owned()));
    }

    fn alive(&self) {
        self.note(Word::Alive);
    }

    fn watchdog(&self) -> Option<Duration> {
        self.service.watchdog.get()
    }

    fn stopping(&self) {
        self.note(Word::Stopping);
    }
}
