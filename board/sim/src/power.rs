//! How the agent can be interrupted: the power goes, or somebody kills it, in the middle of any write.
//!
//! An interruption unwinds out of the very call that was interrupted, with [`Interrupted`] as its payload and without a
//! panic message, so that not one statement after it runs. The driver catches it, drops every task, and starts the
//! agent again. Ports of an agent that is gone do nothing any more, whatever its destructors try.

use std::{cell::Cell, rc::Rc};

/// What ended the agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interruption {
    /// The power was cut: what was not on stable storage is gone, and so is every process.
    PowerCut,
    /// The agent alone was killed: the files are as it left them and the machine server lives on.
    Killed,
}

/// How much of the interrupted write got through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reached {
    /// Nothing of it.
    Nothing,
    /// A part of what was appended; other writes are all or nothing, and this is nothing.
    Part,
    /// All of it, and nobody was told.
    Everything,
}

impl Reached {
    /// The three, in that order.
    pub const ALL: [Reached; 3] = [Reached::Nothing, Reached::Part, Reached::Everything];
}

/// The payload of an interruption.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interrupted(pub Interruption);

/// Whether the agent these ports were made for still runs.
#[derive(Clone)]
pub(crate) struct Alive(Rc<Cell<bool>>);

impl Alive {
    pub(crate) fn new() -> Self {
        Alive(Rc::new(Cell::new(true)))
    }

    pub(crate) fn get(&self) -> bool {
        self.0.get()
    }

    pub(crate) fn end(&self) {
        self.0.set(false);
    }

    /// Goes on at once while the agent lives; never, once it is gone.
    pub(crate) async fn or_for_ever(&self) {
        if !self.get() {
            std::future::pending::<()>().await;
        }
    }
}
