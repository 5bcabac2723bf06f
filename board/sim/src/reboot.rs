//! A machine that can be asked to reboot, and counts how often.

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    time::Duration,
};

use async_trait::async_trait;
use board::power::{Power, RebootError};

use crate::{clock::SimClock, power::Alive};

/// The machine's power, as the test sees it.
#[derive(Clone)]
pub struct SimPower {
    clock: SimClock,
    asked: Rc<RefCell<Vec<Duration>>>,
    due: Rc<Cell<bool>>,
    refuses: Rc<RefCell<Option<String>>>,
}

impl SimPower {
    pub(crate) fn new(clock: &SimClock) -> Self {
        SimPower { clock: clock.clone(), asked: Rc::default(), due: Rc::default(), refuses: Rc::default() }
    }

    /// Each time the system agreed to reboot, since the beginning of the world.
    #[must_use]
    pub fn reboots(&self) -> Vec<Duration> {
        self.asked.borrow().clone()
    }

    /// The system does not agree from now on, with these words.
    pub fn refuse(&self, why: Option<&str>) {
        self.refuses.replace(why.map(str::to_owned));
    }

    /// Whether the machine goes down now.
    #[must_use]
    pub fn is_due(&self) -> bool {
        self.due.get()
    }

    /// It has gone down; says whether it was to.
    pub fn take_due(&self) -> bool {
        self.due.take()
    }
}

pub(crate) struct PowerPort {
    pub(crate) power: SimPower,
    pub(crate) alive: Alive,
}

#[async_trait(?Send)]
impl Power for PowerPort {
    async fn reboot(&self) -> Result<(), RebootError> {
        self.alive.or_for_ever().await;
        if let Some(why) = &*self.power.refuses.borrow() {
            return Err(RebootError(why.clone()));
        }
        self.power.asked.borrow_mut().push(self.power.clock.elapsed());
        self.power.due.set(true);
        Ok(())
    }
}
