//! Messages out of a stream of bytes, and into it.

use std::{convert::Infallible, os::unix::net::UnixStream};

use smol::{
    Async,
    channel::Receiver,
    io::{AsyncReadExt as _, AsyncWriteExt as _},
};

use super::{
    BODY_MAX, Error,
    message::{HEAD, Message, Sizes, header},
};

/// Room for what comes that is kept between messages, in bytes.
const ROOM: usize = 4 << 10;
/// Most that is made room for before it is there, in bytes.
const ROOM_STEP: usize = 64 << 10;

/// Sends one after the other, whole.
pub(super) async fn send(stream: &Async<UnixStream>, sent: &Receiver<Vec<u8>>) -> Result<(), Error> {
    let mut stream = stream;
    while let Ok(bytes) = sent.recv().await {
        stream.write_all(&bytes).await?;
    }
    Ok(())
}

/// Gives every message to `take`, with its body as bytes or why there is none. Ends when the connection does, or when what
/// comes is not the protocol.
pub(super) async fn receive(
    stream: &Async<UnixStream>,
    take: impl Fn(Message, Result<&[u8], Error>),
) -> Result<Infallible, Error> {
    let mut input = Input { stream, buffer: Vec::new() };
    loop {
        let head = input.fill(HEAD).await?.first_chunk().ok_or(Error::Closed)?;
        let Sizes { header: length, body } = Sizes::of(head)?;
        let message = header(input.fill(length).await?)?;
        input.pass(length).await?;
        if body > BODY_MAX {
            take(message, Err(Error::Nonsense("a message that is too long")));
        } else {
            take(message, Ok(input.fill(body).await?));
        }
        input.pass(body).await?;
        // A bus that talks without end must not keep others from being heard.
        smol::future::yield_now().await;
    }
}

/// What has come and was not yet taken.
struct Input<'a> {
    stream: &'a Async<UnixStream>,
    buffer: Vec<u8>,
}

impl Input<'_> {
    /// The next `length` bytes, which stay.
    async fn fill(&mut self, length: usize) -> Result<&[u8], Error> {
        while self.buffer.len() < length {
            self.more(length).await?;
        }
        Ok(self.buffer.get(..length).unwrap_or_default())
    }

    /// Takes the next `length` bytes away, also those that are still to come.
    async fn pass(&mut self, mut length: usize) -> Result<(), Error> {
        loop {
            let there = length.min(self.buffer.len());
            self.buffer.drain(..there);
            length -= there;
            if length == 0 {
                break;
            }
            self.more(length).await?;
        }
        if self.buffer.is_empty() {
            self.buffer.shrink_to(ROOM);
        }
        Ok(())
    }

    async fn more(&mut self, wanted: usize) -> Result<(), Error> {
        let before = self.buffer.len();
        let room = wanted.saturating_sub(before).clamp(ROOM, ROOM_STEP);
        self.buffer.resize(before + room, 0);
        let mut stream = self.stream;
        let read = stream.read(self.buffer.get_mut(before..).unwrap_or_default()).await;
        self.buffer.truncate(before + *read.as_ref().unwrap_or(&0));
        if read? == 0 { Err(Error::Closed) } else { Ok(()) }
    }
}
