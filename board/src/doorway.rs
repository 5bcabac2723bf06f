//! A small HTTP listener for people near the device.
//!
//! The port reads requests and writes answers within fixed limits; it decides nothing. Whoever is slow, says too much or
//! says what is not HTTP/1.1 gets an error from the port and is let go, and is not heard of here.

pub use std::net::{SocketAddr, SocketAddrV4};
use std::{borrow::Cow, rc::Rc, time::Duration};

use async_trait::async_trait;

/// Longest request line and headers together, in bytes.
pub const HEAD_BYTES_MAX: usize = 4 * 1024;
/// Longest body, in bytes: a credentials file with room to spare.
pub const BODY_BYTES_MAX: usize = 16 * 1024;
/// Connections at a time; one more is answered 503 and closed.
pub const VISITORS_MAX: usize = 16;
/// Of these, connections of one visitor: what a browser opens to one server. Nobody fills the room alone.
pub const EACH_MAX: usize = 6;
/// How long a visitor may take for a request, from its first byte to its last.
pub const REQUEST_TAKES_MAX: Duration = Duration::from_secs(10);
/// How long a visitor may take to read an answer.
pub const READING_TAKES_MAX: Duration = Duration::from_secs(10);
/// How long a connection may stay open with nothing said.
pub const IDLE_MAX: Duration = Duration::from_secs(15);

/// A request.
#[derive(Clone, PartialEq, Eq)]
pub struct Request {
    /// `GET`; as it was written.
    pub method: String,
    /// Path and query as they were written, or a whole URL when the visitor took us for a proxy.
    pub target: String,
    /// Names in lower case, in order; values that are not UTF-8 are left out.
    pub headers: Vec<(String, String)>,
    /// At most [`BODY_BYTES_MAX`]. May hold a password: no `Debug`.
    pub body: Vec<u8>,
    /// Whose it is.
    pub visitor: SocketAddr,
}

impl Request {
    /// The first header of this name, which is in lower case.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(header, _)| header == name).map(|(_, value)| value.as_str())
    }
}

/// An answer. The port adds `Content-Length`, `Connection` and `Date`-less framing; for `HEAD` it leaves the body out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Response {
    /// 200
    pub status: u16,
    /// In order. No value holds a line break: the port asserts it.
    pub headers: Vec<(&'static str, Cow<'static, str>)>,
    /// Everything of it.
    pub body: Cow<'static, [u8]>,
}

/// A request that waits for its answer; dropping it closes the connection.
#[async_trait(?Send)]
pub trait Knock {
    /// What is asked.
    fn request(&self) -> &Request;

    /// Answers. Resolves when the visitor has it, or is gone.
    async fn answer(self: Box<Self>, response: Response);
}

/// A listener; dropping it closes it and every connection.
#[async_trait(?Send)]
pub trait Open {
    /// Where it listens: the port that was asked for, or the one the system chose for port 0.
    fn address(&self) -> SocketAddrV4;

    /// The next request. Cancel-safe.
    async fn next(&self) -> Box<dyn Knock>;
}

/// Why nobody can be let in.
#[derive(Debug, thiserror::Error)]
#[error("could not listen on {address}: {source}")]
pub struct DoorwayError {
    /// Where.
    pub address: SocketAddrV4,
    /// What the system said.
    #[source]
    pub source: std::io::Error,
}

/// Makes listeners.
#[async_trait(?Send)]
pub trait Doorway {
    /// Listens there and nowhere else.
    async fn open(&self, address: SocketAddrV4) -> Result<Rc<dyn Open>, DoorwayError>;
}
