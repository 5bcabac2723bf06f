//! What people and the service manager say to the agent by signal.
//!
//! Handlers, not a blocked mask: a mask is inherited by the machine server, which would then never hear its SIGTERM;
//! handlers fall back to their default when it is started. So does a signal that was ignored until the agent listens.

use async_signal::{Signal, Signals};
use smol::stream::StreamExt as _;

/// What was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// SIGTERM or SIGINT: end.
    Stop,
    /// SIGHUP: read files again.
    Reload,
}

/// Everything asked since the source was made.
pub struct Source {
    signals: Signals,
}

/// Listens from now on.
pub fn signals() -> std::io::Result<Source> {
    Ok(Source { signals: Signals::new([Signal::Term, Signal::Int, Signal::Hup])? })
}

/// SIGHUP, whose default is the end, means nothing to this process and to the program that it becomes, until that one
/// listens: between one agent and the next nobody could read anything again, and the next one reads everything anyway.
#[expect(unsafe_code, reason = "rustix leaves signal handlers to the C library")]
pub fn ignore_reload() {
    // SAFETY: no handler is installed, and nothing of this process is touched.
    unsafe { libc::signal(libc::SIGHUP, libc::SIG_IGN) };
}

impl Source {
    /// The next wish. Cancel-safe.
    pub async fn next(&mut self) -> Asked {
        loop {
            match self.signals.next().await {
                Some(Ok(Signal::Hup)) => return Asked::Reload,
                Some(Ok(_)) => return Asked::Stop,
                Some(Err(error)) => log::warn!("a signal was lost: {error}"),
                None => std::future::pending().await,
            }
        }
    }
}
