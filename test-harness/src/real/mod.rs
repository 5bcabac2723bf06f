//! Real processes on real sockets: a fleet server, an agent and a machine server on this machine, as users run them.
//!
//! The sandbox and the end-to-end tests are made of these. Everything listens on loopback, lives in one folder and ends
//! with the value that started it. Waiting is for events (a line, an answer), bounded by [`PATIENCE`].

pub mod agent;
pub mod agents;
pub mod device;
pub mod fleet;
pub mod http;
pub mod mirror;
pub mod port;
pub mod process;
pub mod programs;
pub mod releases;
pub mod stand_in;
pub mod structs;

use std::time::{Duration, Instant};

/// How long anything may take before a test or the sandbox gives up on it. Generous: it is only ever reached by a
/// fault, on the slowest machine.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// What went wrong, in a sentence for people.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Trouble(pub String);

impl Trouble {
    /// `context: cause`.
    pub fn of(context: impl std::fmt::Display, cause: impl std::fmt::Display) -> Self {
        Trouble(format!("{context}: {cause}"))
    }
}

/// Asks again and again until there is an answer, at most [`PATIENCE`] long; `what` names it for the error.
pub fn eventually<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> Result<T, Trouble> {
    let begin = Instant::now();
    let mut pause = Duration::from_millis(10);
    loop {
        if let Some(answer) = ask() {
            return Ok(answer);
        }
        if begin.elapsed() > PATIENCE {
            return Err(Trouble(format!("gave up waiting for {what} after {} s", PATIENCE.as_secs())));
        }
        std::thread::sleep(pause);
        // Quick things are seen quickly, slow ones are not held up by being asked.
        pause = (pause * 2).min(Duration::from_millis(200));
    }
}
