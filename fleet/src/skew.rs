//! How far this server's clock is from the one that all servers of a database share: the database's.
//!
//! Several servers compare times: when a device last spoke, until when a duty is held, how old a log line is. They are
//! asked for clocks that agree (NTP), and this is what notices when they do not. What is written for others is written in
//! the database's time, and who is too far from it takes no duty on.

use std::{
    fmt::Write,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicI64, Ordering::Relaxed},
    },
    time::Duration,
};

use tokio::sync::watch;

use crate::{
    clock::{Clock, Millis},
    context::Context,
    store::{DbError, Store, duties},
};

/// Further apart than this, something is wrong with one of the clocks.
pub const TOLERATED: Millis = 2_000;
/// How often they are compared.
const EVERY: Duration = Duration::from_secs(60);
/// Asked so often, and the quickest answer counts: the moment of the answer lies somewhere within the question.
const QUESTIONS: usize = 3;
/// An answer that took longer says too little.
const ANSWER_WITHIN: Millis = 1_000;

/// The difference, as it was last measured; none where no other server is.
#[derive(Debug, Default)]
pub struct Skew {
    ahead: AtomicI64,
    warned: AtomicBool,
}

impl Skew {
    /// Milliseconds by which this clock is ahead of the database's; negative if it is behind.
    pub fn ahead(&self) -> Millis {
        self.ahead.load(Relaxed)
    }

    /// A moment of this clock as the database would call it.
    pub fn shared(&self, here: Millis) -> Millis {
        here.saturating_sub(self.ahead())
    }

    /// A moment that another server wrote down, by this clock.
    pub fn here(&self, shared: Millis) -> Millis {
        shared.saturating_add(self.ahead())
    }

    /// Whether what this server thinks of times can be counted on by others.
    pub fn is_tolerable(&self) -> bool {
        self.ahead().abs() <= TOLERATED
    }

    /// Compares the clocks. What was measured last stays where no answer came soon enough.
    pub async fn measure(&self, store: &Store, clock: &Clock) -> Result<(), DbError> {
        if !store.state.is_shared() {
            return Ok(());
        }
        let mut best: Option<(Millis, Millis)> = None;
        for _ in 0..QUESTIONS {
            let before = clock.now();
            let theirs = store.state.read_apart(duties::clock_of_database).await?;
            let took = clock.now() - before;
            // Negative when the clock was set meanwhile.
            if (0..=ANSWER_WITHIN).contains(&took) && best.is_none_or(|(best, _)| took < best) {
                best = Some((took, difference(before, took, theirs)));
            }
        }
        if let Some((_, ahead)) = best {
            self.ahead.store(ahead, Relaxed);
        }
        let (ahead_ms, tolerable) = (self.ahead(), self.is_tolerable());
        match self.warned.swap(!tolerable, Relaxed) {
            was if was != tolerable => {}
            true => tracing::info!(ahead_ms, "this server's clock agrees with the database's again"),
            false => tracing::warn!(
                ahead_ms,
                "this server's clock is not the database's: set both right (NTP); until then others delete old logs and files"
            ),
        }
        Ok(())
    }

    /// For Prometheus.
    pub fn metrics(&self, page: &mut String) {
        let name = "fleet_clock_ahead_seconds";
        let help = "By how much this server's clock is ahead of the database's.";
        let seconds = self.ahead() as f64 / 1000.0;
        // Writing into a string cannot fail.
        let _ = writeln!(page, "# HELP {name} {help}\n# TYPE {name} gauge\n{name} {seconds}");
    }
}

/// How far this clock is ahead, by a question that was asked at `before` and answered with `theirs` after `took`. The moment
/// of the answer is known to half of that, and both clocks tell whole milliseconds: what is within this is no difference.
fn difference(before: Millis, took: Millis, theirs: Millis) -> Millis {
    let ahead = before + took / 2 - theirs;
    if ahead.abs() <= took / 2 + 1 { 0 } else { ahead }
}

/// Compares the clocks every minute until the server stops.
pub async fn keep_measured(context: Arc<Context>, mut stopped: watch::Receiver<bool>) {
    while tokio::time::timeout(EVERY, stopped.wait_for(|stop| *stop)).await.is_err() {
        if let Err(problem) = context.memory.skew.measure(&context.store, &context.clock).await {
            tracing::debug!(%problem, "could not compare this server's clock with the database's");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_question_cannot_tell_is_no_difference() {
        for (before, took, theirs, expected) in [
            (1_000, 0, 1_000, 0),
            (1_000, 0, 1_001, 0),
            (1_000, 0, 1_002, -2),
            (1_000, 10, 1_000, 0),
            (1_000, 10, 1_011, 0),
            (1_000, 10, 1_012, -7),
            (9_000, 10, 1_000, 8_005),
        ] {
            assert_eq!(difference(before, took, theirs), expected, "{before} {took} {theirs}");
        }
    }
}
