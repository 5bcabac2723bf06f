//! One life of the agent: what it is started with, and how it is told to end.

use std::{pin::Pin, rc::Rc};

use actors::{cloud::port::Cloud, kit::trace::Trace};
use board::Board;
use board_sim::Driver;
use smol::{LocalExecutor, Task};

/// What an agent needs to live.
pub struct Needs {
    /// The device.
    pub board: Board,
    /// The fleet server.
    pub cloud: Rc<dyn Cloud>,
    /// Where its tasks run.
    pub executor: Rc<LocalExecutor<'static>>,
    /// Where its transitions are written down.
    pub trace: Trace,
    /// Chance.
    pub seed: u64,
}

/// A started agent.
pub struct Started {
    /// Resolves when the agent has ended, with what it says about that.
    pub run: Pin<Box<dyn Future<Output = String>>>,
    /// Asks it to end.
    pub stop: Box<dyn Fn()>,
}

/// How an agent is started. A value, so that a test can run something smaller than the whole agent.
pub type Agent = Rc<dyn Fn(Needs) -> Started>;

/// An agent that lives.
pub(super) struct Life {
    pub(super) driver: Driver,
    run: Option<Task<String>>,
    stop: Box<dyn Fn()>,
}

impl Life {
    pub(super) fn begin(driver: Driver, started: Started) -> Self {
        let run = driver.executor().spawn(started.run);
        Life { driver, run: Some(run), stop: started.stop }
    }

    pub(super) fn ask_to_stop(&self) {
        (self.stop)();
    }

    /// What it said at its end, if it has ended.
    pub(super) fn last_words(&mut self) -> Option<String> {
        let run = self.run.take_if(|run| run.is_finished())?;
        Some(smol::block_on(run))
    }
}

impl Drop for Life {
    /// Lets go of every task, so that a killed agent does nothing any more.
    fn drop(&mut self) {
        drop(self.run.take());
        self.driver.bury();
    }
}
