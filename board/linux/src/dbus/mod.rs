//! The wire of the message bus (D-Bus): what the agent needs of it and no more.
//!
//! By the D-Bus Specification, revision 0.43 (<https://dbus.freedesktop.org/doc/dbus-specification.html>). Owns the
//! encoding of values and messages, the greeting, and one connection with its calls and readers. Everything that comes
//! is checked and bounded before it is believed. One dynamic [`Value`] stands for every type, so that no code is made for
//! each signature. There are no descriptors, no introspection and no other authentication than by the kernel's word
//! (EXTERNAL): nothing here needs them.

mod address;
mod connection;
mod message;
mod names;
mod queue;
mod read;
mod stream;
mod value;
mod write;

use std::io;

pub(crate) use self::{
    address::socket_file,
    connection::{DAEMON, Tasks},
    message::Rule,
};
pub use self::{
    connection::{Connection, Inbox, Said},
    message::{Kind, Message},
    queue::QUEUE,
    read::VALUES_MAX,
    value::Value,
};

/// Longest body of a message that is read, in bytes. The protocol allows 128 MiB; all objects of a network manager that
/// hears hundreds of access points have a tenth of this, those of a bluetoothd that somebody lets listen in a crowd a half.
pub const BODY_MAX: usize = 2 << 20;
/// Longest list of header fields, in bytes. A match rule or a path in it may be long; more is nonsense.
pub(crate) const FIELDS_MAX: usize = 64 << 10;

/// Why something did not work.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The socket.
    #[error("{0}")]
    Socket(#[from] io::Error),
    /// The address of the bus says nothing that can be used.
    #[error("no usable address of a bus: {0}")]
    Address(String),
    /// The bus does not let this process in.
    #[error("the bus refused this process: {0}")]
    Refused(String),
    /// What came, or what was to be sent, is not as it has to be.
    #[error("nonsense on the bus: {0}")]
    Nonsense(&'static str),
    /// Who was called answered with an error.
    #[error("{words}")]
    Named {
        /// `org.freedesktop.DBus.Error.ServiceUnknown`
        name: String,
        /// For people; the name where there are none.
        words: String,
    },
    /// Nobody answered in time.
    #[error("no answer in time")]
    TimedOut,
    /// The connection has ended.
    #[error("the message bus has hung up")]
    Closed,
}

impl Error {
    /// The name of the error with which a call was answered.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        if let Error::Named { name, .. } = self { Some(name) } else { None }
    }
}

/// Reads one message out of `bytes`, for tests and fuzzing.
///
/// # Errors
/// Where it is not exactly one message as it has to be.
pub fn parse(bytes: &[u8]) -> Result<Message, Error> {
    let head = bytes.first_chunk().ok_or(Error::Nonsense("a message is cut off"))?;
    let sizes = message::Sizes::of(head)?;
    let rest = bytes.get(sizes.header..).filter(|body| body.len() == sizes.body && body.len() <= BODY_MAX);
    let body = rest.ok_or(Error::Nonsense("a message of another length than it says"))?;
    let mut message = message::header(bytes.get(..sizes.header).unwrap_or_default())?;
    message.read_body(body)?;
    Ok(message)
}

#[cfg(test)]
mod tests;
