//! The one wait of an actor: its inbox, or the moment at which time alone changes something.

use board::{Clock, Mono};
use smol::future::FutureExt as _;

/// What an actor hears: its few sources (mailbox, latest values, finished background work) as one stream of events.
pub trait Inbox {
    /// The actor's events.
    type Event;

    /// The next event; `None` once the actor shall end. Must be cancel-safe: it is dropped when the deadline wins.
    fn next(&mut self) -> impl Future<Output = Option<Self::Event>>;

    /// The event that says the machine's deadline has passed.
    fn deadline_passed(&self) -> Self::Event;
}

/// Waits for the next event, or for `deadline` if that comes first.
///
/// News wins over time when both are there: a machine that asks for the deadline again gets it in the next round.
pub async fn next_event<I: Inbox>(inbox: &mut I, clock: &dyn Clock, deadline: Option<Mono>) -> Option<I::Event> {
    enum Woken<E> {
        News(Option<E>),
        Time,
    }
    let woken = async { Woken::News(inbox.next().await) }
        .or(async {
            match deadline {
                Some(at) => clock.sleep_until(at).await,
                None => std::future::pending().await,
            }
            Woken::Time
        })
        .await;
    match woken {
        Woken::News(event) => event,
        Woken::Time => Some(inbox.deadline_passed()),
    }
}

/// Checks that an event for a passed deadline moved it: one left in the past would spin for ever, and stop simulated
/// time.
///
/// # Panics
/// When it did not. That is a bug of the machine which no input may cause, and spinning would be worse.
#[allow(clippy::panic, reason = "a broken invariant ends the agent; the launcher starts it again")]
pub fn assert_moved(actor: &'static str, before: Option<Mono>, after: Option<Mono>, now: Mono) {
    if let (Some(before), Some(after)) = (before, after) {
        assert!(
            before > now || after > now || after != before,
            "{actor}: the deadline passed and the machine left it where it was"
        );
    }
}
