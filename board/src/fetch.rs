//! Fetching: a large file into the file system, or a small answer into memory.
//!
//! Policy (when, how often, how much) is the caller's; this port carries out one attempt within the limits it is given.

use std::{
    cell::{Cell, RefCell},
    path::PathBuf,
    time::Duration,
};

use async_trait::async_trait;

use crate::files::FileError;

/// What tells whether a resource is still the same one: the server's ETag or Last-Modified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Validator(pub String);

/// One attempt to bring a resource into a file.
#[derive(Clone, Debug)]
pub struct Download {
    /// `http` or `https`.
    pub url: String,
    /// Where the bytes go; what it holds already is continued when `validator` still holds, else replaced.
    pub into: PathBuf,
    /// Validator of the bytes that `into` holds already.
    pub validator: Option<Validator>,
    /// A longer resource is refused, before or while it arrives.
    pub bytes_max: u64,
    /// Given up when no byte arrives for this long.
    pub stall: Duration,
    /// Given up after this long altogether.
    pub total: Duration,
    /// Bytes per second; `None` is as fast as it goes.
    pub rate: Option<u64>,
    /// Bytes that must stay free on the file system.
    pub reserve: u64,
}

/// How far a download is; shared with whoever shows it.
#[derive(Debug, Default)]
pub struct Progress {
    /// Bytes in the file.
    pub have: Cell<u64>,
    /// Bytes expected, when the server said.
    pub expected: Cell<Option<u64>>,
    /// Validator of the bytes that are arriving, as soon as the server named one: store it beside the partial file.
    pub validator: RefCell<Option<Validator>>,
}

/// A finished download.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Downloaded {
    /// Length of the file.
    pub len: u64,
    /// Whether an earlier part was continued.
    pub resumed: bool,
}

/// Why an attempt ended without the file.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// No such scheme, or not a URL at all.
    #[error("{url} is not an address this device can fetch from; http and https work")]
    BadUrl {
        /// The address.
        url: String,
    },
    /// Name not found, refused, reset, TLS failure: trying again later may help.
    #[error("could not reach {url}: {reason}")]
    Unreachable {
        /// The address.
        url: String,
        /// What went wrong, in the words of the library.
        reason: String,
    },
    /// The server answered, and the answer is no.
    #[error("{url} answered with status {status}")]
    Refused {
        /// The address.
        url: String,
        /// HTTP status.
        status: u16,
    },
    /// Nothing arrived for the stall limit, or the whole took too long.
    #[error("{url} stopped sending after {have} bytes")]
    Stalled {
        /// The address.
        url: String,
        /// Bytes that had arrived.
        have: u64,
    },
    /// The connection ended before the announced length.
    #[error("{url} ended after {have} of {expected} bytes")]
    Truncated {
        /// The address.
        url: String,
        /// Bytes that arrived.
        have: u64,
        /// Bytes announced.
        expected: u64,
    },
    /// More than the caller allowed.
    #[error("{url} is longer than the {limit} bytes allowed for it")]
    TooLong {
        /// The address.
        url: String,
        /// The limit in bytes.
        limit: u64,
    },
    /// It would fill the disk.
    #[error("{needed} bytes are needed and {free} are free, of which {reserve} must stay free: make room on the disk")]
    NoSpace {
        /// Bytes still to come.
        needed: u64,
        /// Bytes free.
        free: u64,
        /// Bytes that must stay free.
        reserve: u64,
    },
    /// The file could not be written.
    #[error(transparent)]
    File(#[from] FileError),
}

/// A small answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// HTTP status.
    pub status: u16,
    /// The body.
    pub body: Vec<u8>,
}

/// Fetching, as a device can do it.
#[async_trait(?Send)]
pub trait Fetch {
    /// Brings a resource into a file, streaming, in bounded memory. What has arrived stays in the file on failure, so
    /// that the next attempt may continue it. Dropping the future ends the attempt soon.
    async fn download(&self, what: &Download, progress: &Progress) -> Result<Downloaded, FetchError>;

    /// Asks for a small document within `limit` and `bytes_max`. Any status is an answer, not an error. With `local`,
    /// proxies of the environment are not used.
    async fn get(&self, url: &str, local: bool, limit: Duration, bytes_max: usize) -> Result<Reply, FetchError>;
}
