//! Runs the machine server and keeps it healthy.
//!
//! Owns when it is started, stopped and restarted, and every reason for that: crashes, a start that takes too long, a
//! changed environment, an operator's wish, another version. A healthy machine server is never restarted without being
//! asked first, and a dead one never waits for anything but its back-off.
//!
//! | file | owns |
//! |---|---|
//! | `machine` | every decision |
//! | `pending` | what a restart that is wanted still waits for |
//! | `actor` | waiting and doing |
//! | `launch` | command line and environment |
//! | `readiness` | which words on standard output mean "ready" |
//! | `permission` | what the answer to `/restart_status` means |
//! | `lines` | output bytes as log lines |
//! | `record` | what the next agent must know to find the running server again |

pub mod actor;
pub mod launch;
pub mod lines;
pub mod machine;
pub mod pending;
pub mod permission;
pub mod readiness;
pub mod record;

#[cfg(test)]
mod tests;

use std::path::PathBuf;

use board::{Wall, process::ProcessId};

pub use crate::maintenance::{WindowState, Windows};

/// An installed version of the machine server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// As its release document or its pin names it.
    pub version: String,
    /// The executable.
    pub path: PathBuf,
}

/// What the update actor tells this one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Answers an opening (see [`Report::opening`]): run this, or nothing while nothing is installed. Comes again when
    /// the first version has been installed. An answer that comes after the limit and names another program than the
    /// one that was started meanwhile is taken as a [`Command::Switch`].
    Run {
        /// Which opening is answered.
        opening: u64,
        /// What to run.
        program: Option<Program>,
    },
    /// The answer to this opening needs an update check or a download first: wait longer for it.
    Hold {
        /// Which opening will be answered.
        opening: u64,
    },
    /// Run this instead of what runs, as soon as maintenance window and machine server permit.
    Switch {
        /// What to run from then on.
        program: Program,
    },
    /// What runs has failed: run this instead, which has not. A failed version that runs and is ready is asked as for a
    /// [`Command::Switch`]; nothing waits for a maintenance window, and one that is dead or not ready is not asked.
    Back {
        /// What to run from then on.
        program: Program,
    },
}

/// What the machine server is doing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Phase {
    /// Nothing is installed yet, or the update actor has not said what to run.
    #[default]
    NoVersion,
    /// Switched off by its setting.
    Disabled,
    /// Started, not ready yet.
    Starting,
    /// Ready.
    Running,
    /// Asked to end.
    Stopping,
    /// Dead, waiting for the back-off to pass.
    WaitingToRestart,
}

/// Everything others may know about the machine server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// What it is doing.
    pub phase: Phase,
    /// Counts the moments at which another version may start without asking: the start of the agent is number 1 (0
    /// when it found a machine server running and adopted it, which is no such moment), each restart asked for by an
    /// operator is one more. The machine server stands still until [`Command::Run`] answers.
    pub opening: u64,
    /// What runs, or ran last.
    pub program: Option<Program>,
    /// The running process.
    pub process: Option<ProcessId>,
    /// When it was started.
    pub started_at: Option<Wall>,
    /// When it became ready.
    pub ready_at: Option<Wall>,
    /// Times it ended unasked since the agent's state was created.
    pub crashes: u64,
    /// Times it ended unasked since the present program was first started; judged on probation.
    pub crashes_of_program: u64,
    /// How it ended last, unless that was as asked: "exit code 3", "signal 9 (SIGKILL)".
    pub last_exit: String,
    /// The last lines it printed before it ended unasked.
    pub last_lines: Vec<String>,
    /// Why a restart that is wanted has not happened yet; empty when none is wanted.
    pub restart_pending: String,
    /// What of the maintenance windows cannot be followed and which limits are not in force, and what to do about it.
    pub trouble: Vec<String>,
    /// Where it says it serves.
    pub url: String,
    /// Restarts carried out for operators: compare with `cloud::RestartsWanted`.
    pub operator_restarts: u64,
    /// The machine server asks the fleet server itself whether it shall restart.
    pub handles_needs_restart: bool,
}
