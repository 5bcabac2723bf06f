//! Keeps this very process, as `server` keeps the machine server: says how it is, and makes way for another version.
//!
//! Owns when the agent may be handed over to the next version of itself: in a maintenance window where one is configured,
//! at once where none is, and without waiting for anything when the present version has failed. The machine server is not
//! asked: it keeps its process, its pipes and every line. Carrying the hand-over out is the business of `main`, because
//! it ends every actor, this one included.
//!
//! | file | owns |
//! |---|---|
//! | `machine` | every decision |
//! | `actor` | waiting, and looking at the other actors |

pub mod actor;
pub mod machine;

#[cfg(test)]
mod tests;

use crate::server::{Phase, Program};

/// Everything the update actor may know about this process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// Counts the moments at which nothing speaks against a switch. The start of the agent is none: what is started was
    /// chosen by the launcher.
    pub opening: u64,
    /// What this process is.
    pub program: Program,
    /// [`Phase::Running`] while every actor is alive, else [`Phase::Starting`].
    pub phase: Phase,
    /// Which hand-over could not be carried out, and why; `None` since the next one was begun.
    pub refused: Option<(u64, String)>,
    /// A switch has met a shut maintenance window for over 14 days.
    pub shut_for_long: bool,
}

/// This process is to make way for what the pointer file names; counted, so that the same wish twice is two wishes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Leave(pub u64);
