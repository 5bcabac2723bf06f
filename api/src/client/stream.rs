//! Calls with many messages in one direction.
//!
//! An incoming stream gives each message as it arrives and holds one at a time; an outgoing one asks its source for the
//! next message only when the last has left. Dropping a stream closes its connection, which tells the server.

use std::{
    error::Error as StdError,
    fmt,
    io::{self, Read},
    iter::FusedIterator,
    marker::PhantomData,
};

use prost::Message;

use super::{Call, error::CallError, exchange::Answer, grpc_web::framed};

/// The messages of a server stream. Ends after the server's OK or after the first error.
pub struct Stream<M> {
    answer: Option<Answer>,
    call: Call,
    messages: PhantomData<fn() -> M>,
}

impl<M> Stream<M> {
    pub(super) fn new(answer: Answer, call: Call) -> Self {
        Self { answer: Some(answer), call, messages: PhantomData }
    }
}

impl<M: Message + Default> Iterator for Stream<M> {
    type Item = Result<M, CallError>;

    fn next(&mut self) -> Option<Self::Item> {
        let next = self.answer.as_mut()?.next();
        if !matches!(next, Ok(Some(_))) {
            self.answer = None;
        }
        next.map_err(|error| self.call.unless_cancelled(error)).transpose()
    }
}

impl<M: Message + Default> FusedIterator for Stream<M> {}

/// Reads the messages of a client stream as frames.
pub(super) struct Outgoing<I> {
    messages: I,
    frame: Vec<u8>,
    sent: usize,
}

/// Marks an error of the caller's own source on its way through the HTTP client.
#[derive(Debug)]
pub(super) struct OutgoingError(pub(super) io::Error);

impl fmt::Display for OutgoingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl StdError for OutgoingError {}

impl<I> Outgoing<I> {
    pub(super) fn new(messages: I) -> Self {
        Self { messages, frame: Vec::new(), sent: 0 }
    }
}

impl<M: Message, I: Iterator<Item = io::Result<M>>> Read for Outgoing<I> {
    fn read(&mut self, space: &mut [u8]) -> io::Result<usize> {
        let ours = |error| io::Error::other(OutgoingError(error));
        while self.sent >= self.frame.len() {
            let Some(message) = self.messages.next() else { return Ok(0) };
            self.frame = message.and_then(|message| framed(&message)).map_err(ours)?;
            self.sent = 0;
        }
        let read = self.frame.get(self.sent..).unwrap_or_default().read(space)?;
        self.sent = self.sent.saturating_add(read);
        Ok(read)
    }
}
