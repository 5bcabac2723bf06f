//! Messages that wait for one reader.

use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
    future::poll_fn,
    rc::Rc,
    task::{Poll, Waker},
};

use super::Message;

/// Messages that wait for one reader at most.
pub const QUEUE: usize = 64;

/// A queue that never holds its writer up: full, it loses the oldest, and its reader is told.
#[derive(Default)]
pub(super) struct Queue {
    waiting: RefCell<VecDeque<Rc<Message>>>,
    lost: Cell<bool>,
    closed: Cell<bool>,
    reader: RefCell<Option<Waker>>,
}

/// What a queue gives.
pub(super) enum Next {
    Message(Rc<Message>),
    Lost,
    Closed,
}

impl Queue {
    /// What had to go for it.
    pub(super) fn put(&self, message: Rc<Message>) -> Option<Rc<Message>> {
        let mut waiting = self.waiting.borrow_mut();
        let lost = if waiting.len() >= QUEUE { waiting.pop_front() } else { None };
        if lost.is_some() {
            self.lost.set(true);
        }
        waiting.push_back(message);
        self.wake();
        lost
    }

    /// Something for this reader could not be read.
    pub(super) fn lose(&self) {
        self.lost.set(true);
        self.wake();
    }

    /// What waits is still read.
    pub(super) fn close(&self) {
        self.closed.set(true);
        self.wake();
    }

    fn wake(&self) {
        if let Some(reader) = self.reader.take() {
            reader.wake();
        }
    }

    /// Cancel-safe; one reader.
    pub(super) async fn next(&self) -> Next {
        poll_fn(|context| {
            if self.lost.take() {
                return Poll::Ready(Next::Lost);
            }
            if let Some(message) = self.waiting.borrow_mut().pop_front() {
                return Poll::Ready(Next::Message(message));
            }
            if self.closed.get() {
                return Poll::Ready(Next::Closed);
            }
            *self.reader.borrow_mut() = Some(context.waker().clone());
            Poll::Pending
        })
        .await
    }
}
