//! The newest value, for many readers: a slow reader misses what was overtaken and never holds anybody up.

use std::{
    cell::RefCell,
    future::poll_fn,
    rc::Rc,
    task::{Poll, Waker},
};

struct Shared<T> {
    value: Option<T>,
    /// Rises with each publication; zero means nothing was published yet.
    edition: u64,
    waiting: Vec<Waker>,
}

/// The writing end.
pub struct Latest<T> {
    shared: Rc<RefCell<Shared<T>>>,
}

/// A reading end; each has its own idea of what it has seen.
pub struct Watch<T> {
    shared: Rc<RefCell<Shared<T>>>,
    seen: u64,
}

impl<T: Clone> Latest<T> {
    /// Nothing published yet: readers wait.
    #[must_use]
    pub fn new() -> Self {
        Latest { shared: Rc::new(RefCell::new(Shared { value: None, edition: 0, waiting: Vec::new() })) }
    }

    /// Replaces the value and wakes the readers.
    pub fn publish(&self, value: T) {
        let waiting = {
            let mut shared = self.shared.borrow_mut();
            shared.value = Some(value);
            shared.edition += 1;
            std::mem::take(&mut shared.waiting)
        };
        waiting.into_iter().for_each(Waker::wake);
    }

    /// A new reader, which has seen nothing.
    #[must_use]
    pub fn watch(&self) -> Watch<T> {
        Watch { shared: Rc::clone(&self.shared), seen: 0 }
    }

    /// The newest value.
    #[must_use]
    pub fn get(&self) -> Option<T> {
        self.shared.borrow().value.clone()
    }
}

impl<T: Clone + PartialEq> Latest<T> {
    /// Publishes only what differs from the value there is; says whether it did.
    pub fn publish_if_changed(&self, value: T) -> bool {
        let differs = self.shared.borrow().value.as_ref() != Some(&value);
        if differs {
            self.publish(value);
        }
        differs
    }
}

impl<T: Clone> Default for Latest<T> {
    fn default() -> Self {
        Latest::new()
    }
}

impl<T> Clone for Latest<T> {
    fn clone(&self) -> Self {
        Latest { shared: Rc::clone(&self.shared) }
    }
}

impl<T> Clone for Watch<T> {
    /// The copy has seen what the original has.
    fn clone(&self) -> Self {
        Watch { shared: Rc::clone(&self.shared), seen: self.seen }
    }
}

impl<T: Clone> Watch<T> {
    /// The newest value that this reader has not had yet. Cancel-safe: a value is only counted as seen when it is
    /// returned.
    pub async fn changed(&mut self) -> T {
        poll_fn(|context| {
            let mut shared = self.shared.borrow_mut();
            if let (true, Some(value)) = (shared.edition > self.seen, shared.value.clone()) {
                self.seen = shared.edition;
                return Poll::Ready(value);
            }
            if !shared.waiting.iter().any(|waker| waker.will_wake(context.waker())) {
                shared.waiting.push(context.waker().clone());
            }
            Poll::Pending
        })
        .await
    }

    /// The newest value, seen or not.
    #[must_use]
    pub fn get(&self) -> Option<T> {
        self.shared.borrow().value.clone()
    }
}
