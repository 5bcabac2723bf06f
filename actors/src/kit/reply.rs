//! The one answer of a thread that was asked something: no queue, so it joins nobody and needs no limit.

use std::{
    future::poll_fn,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Poll, Waker},
};

struct Slot<T> {
    answer: Option<T>,
    /// The thread is gone without an answer.
    lost: bool,
    waiting: Option<Waker>,
}

/// Where the answer is left. Dropped without one, it says that none will come.
pub struct Reply<T> {
    slot: Arc<Mutex<Slot<T>>>,
}

/// Where the answer is waited for.
pub struct Awaited<T> {
    slot: Arc<Mutex<Slot<T>>>,
}

/// Both ends.
#[must_use]
pub fn reply<T>() -> (Reply<T>, Awaited<T>) {
    let slot = Arc::new(Mutex::new(Slot { answer: None, lost: false, waiting: None }));
    (Reply { slot: Arc::clone(&slot) }, Awaited { slot })
}

fn open<T>(slot: &Mutex<Slot<T>>) -> MutexGuard<'_, Slot<T>> {
    // The lock guards single statements: whoever panicked left a whole slot behind.
    slot.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<T> Reply<T> {
    /// Leaves the answer.
    pub fn give(self, answer: T) {
        open(&self.slot).answer = Some(answer);
    }
}

impl<T> Drop for Reply<T> {
    fn drop(&mut self) {
        let waiting = {
            let mut slot = open(&self.slot);
            slot.lost = slot.answer.is_none();
            slot.waiting.take()
        };
        if let Some(waker) = waiting {
            waker.wake();
        }
    }
}

impl<T> Awaited<T> {
    /// The answer, or nothing when none will come. Cancel-safe.
    pub async fn get(&self) -> Option<T> {
        poll_fn(|context| {
            let mut slot = open(&self.slot);
            match slot.answer.take() {
                Some(answer) => Poll::Ready(Some(answer)),
                None if slot.lost => Poll::Ready(None),
                None => {
                    slot.waiting = Some(context.waker().clone());
                    Poll::Pending
                }
            }
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    #[test]
    #[allow(clippy::disallowed_methods, reason = "the answer comes from another thread, and this proves it")]
    fn an_answer_arrives_from_another_thread_and_so_does_its_absence() {
        let (reply, awaited) = super::reply::<u8>();
        let thread = std::thread::spawn(move || reply.give(7));
        assert_eq!(smol::block_on(awaited.get()), Some(7));
        thread.join().expect("it only answers");

        let (reply, awaited) = super::reply::<u8>();
        let thread = std::thread::spawn(move || drop(reply));
        assert_eq!(smol::block_on(awaited.get()), None);
        thread.join().expect("it only drops");
    }
}
