//! A bounded queue of commands whose sender waits while it is full.

use crate::rank::Actor;

/// The sending end.
pub struct Mailbox<T> {
    queue: async_channel::Sender<T>,
}

/// The receiving end.
pub struct Mail<T> {
    queue: async_channel::Receiver<T>,
}

/// Makes a queue for commands from one actor to another.
///
/// # Panics
/// When `from` does not rank before `to` or the capacity is zero: both would let the agent lock up, and both are
/// decided by constants in the wiring, so that every test run proves them right.
#[must_use]
#[allow(clippy::panic, reason = "the wiring is wrong, which no input can cause")]
pub fn mailbox<T>(from: Actor, to: Actor, capacity: usize) -> (Mailbox<T>, Mail<T>) {
    assert!(from < to, "{} may not command {}: commands go down the ranks", from.name(), to.name());
    outside(capacity)
}

/// Makes a queue for a sender that is no actor: a signal handler, a test.
#[must_use]
pub fn outside<T>(capacity: usize) -> (Mailbox<T>, Mail<T>) {
    let (sender, receiver) = async_channel::bounded(capacity);
    (Mailbox { queue: sender }, Mail { queue: receiver })
}

impl<T> Clone for Mailbox<T> {
    fn clone(&self) -> Self {
        Mailbox { queue: self.queue.clone() }
    }
}

impl<T> Mailbox<T> {
    /// Waits for room, then leaves the command. An actor that has ended takes no more commands; they are dropped.
    pub async fn send(&self, command: T) {
        let _ = self.queue.send(command).await;
    }

    /// Leaves the command if there is room; gives it back if not.
    pub fn try_send(&self, command: T) -> Result<(), T> {
        self.queue.try_send(command).map_err(async_channel::TrySendError::into_inner)
    }
}

impl<T> Mail<T> {
    /// The next command; waits for ever once every sender is gone. Cancel-safe.
    pub async fn next(&self) -> T {
        match self.queue.recv().await {
            Ok(command) => command,
            Err(_) => std::future::pending().await,
        }
    }

    /// How many commands wait.
    #[must_use]
    pub fn depth(&self) -> usize {
        self.queue.len()
    }
}
