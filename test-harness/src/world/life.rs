//! One life of the agent: what it is started with, and how it is told to end.

use std::{cell::RefCell, future::poll_fn, pin::Pin, rc::Rc, task::Poll};

use actors::{cloud::port::Cloud, kit::trace::Trace};
use board::Board;
use board_sim::{Driver, SimClock};
use smol::{LocalExecutor, Task};

use super::launch::Start;

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
    /// For log records, which know no board.
    pub clock: SimClock,
    /// What the launcher said, in a world that has one.
    pub start: Option<Start>,
}

/// Resolves when the agent has ended, with what it says about that.
type Run = Pin<Box<dyn Future<Output = String>>>;

/// Last words of an agent that becomes the next one.
pub const HANDS_OVER: &str = "hands over";
/// First words of an agent that ended without being asked; whoever started it does so again.
pub const CRASHES: &str = "crashes";

/// A started agent.
pub struct Started {
    /// The agent.
    pub run: Run,
    /// Asks it to end.
    pub stop: Box<dyn Fn()>,
}

/// How an agent is started. A value, so that a test can run something smaller than the whole agent.
pub type Agent = Rc<dyn Fn(Needs) -> Started>;

/// An agent that lives.
pub(super) struct Life {
    pub(super) driver: Driver,
    /// Held here and not by its task: letting it go must not wait for a turn of that task.
    run: Rc<RefCell<Option<Run>>>,
    task: Option<Task<String>>,
    stop: Box<dyn Fn()>,
}

impl Life {
    pub(super) fn begin(driver: Driver, started: Started) -> Self {
        let run = Rc::new(RefCell::new(Some(started.run)));
        let inside = Rc::clone(&run);
        let task = driver.executor().spawn(poll_fn(move |context| match inside.borrow_mut().as_mut() {
            Some(run) => run.as_mut().poll(context),
            None => Poll::Pending,
        }));
        Life { driver, run, task: Some(task), stop: started.stop }
    }

    pub(super) fn ask_to_stop(&self) {
        (self.stop)();
    }

    pub(super) fn has_ended(&self) -> bool {
        self.task.as_ref().is_some_and(Task::is_finished)
    }

    /// What it said at its end, if it has ended.
    pub(super) fn last_words(&mut self) -> Option<String> {
        let task = self.task.take_if(|task| task.is_finished())?;
        Some(smol::block_on(task))
    }
}

impl Drop for Life {
    /// Lets go of everything before any task has another turn: a killed agent does nothing any more.
    fn drop(&mut self) {
        drop(self.run.take());
        drop(self.task.take());
        self.driver.bury();
    }
}
