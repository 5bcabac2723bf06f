//! Why a call failed, told apart by what a caller would do about it.
//!
//! Owns the sixteen gRPC codes, a server's own word ([`Status`]) and everything that can go wrong before there is one.
//! Messages name the server and say what to do; the cause is in `source`.

use std::{error::Error as StdError, fmt, io, time::Duration};

use prost::Message;

use super::address::Address;
use crate::pb::google::rpc;

/// The codes of gRPC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(i32)]
#[allow(missing_docs, reason = "the names are those of the gRPC specification")]
pub enum Code {
    Ok = 0,
    Cancelled = 1,
    Unknown = 2,
    InvalidArgument = 3,
    DeadlineExceeded = 4,
    NotFound = 5,
    AlreadyExists = 6,
    PermissionDenied = 7,
    ResourceExhausted = 8,
    FailedPrecondition = 9,
    Aborted = 10,
    OutOfRange = 11,
    Unimplemented = 12,
    Internal = 13,
    Unavailable = 14,
    DataLoss = 15,
    Unauthenticated = 16,
}

impl Code {
    const ALL: [Self; 17] = [
        Self::Ok,
        Self::Cancelled,
        Self::Unknown,
        Self::InvalidArgument,
        Self::DeadlineExceeded,
        Self::NotFound,
        Self::AlreadyExists,
        Self::PermissionDenied,
        Self::ResourceExhausted,
        Self::FailedPrecondition,
        Self::Aborted,
        Self::OutOfRange,
        Self::Unimplemented,
        Self::Internal,
        Self::Unavailable,
        Self::DataLoss,
        Self::Unauthenticated,
    ];

    /// The code with this number; numbers of a later version are `Unknown`.
    pub fn from_number(number: i32) -> Self {
        usize::try_from(number).ok().and_then(|at| Self::ALL.get(at)).copied().unwrap_or(Self::Unknown)
    }

    /// What an HTTP status means when the answer carries no gRPC status: the mapping of the gRPC specification, with
    /// 409 and 413 besides because proxies in front of a fleet server do send them.
    pub fn from_http(status: u16) -> Self {
        match status {
            400 => Self::Internal,
            401 => Self::Unauthenticated,
            403 => Self::PermissionDenied,
            404 => Self::Unimplemented,
            408 => Self::DeadlineExceeded,
            409 => Self::Aborted,
            413 | 431 => Self::ResourceExhausted,
            429 | 502 | 503 | 504 => Self::Unavailable,
            _ => Self::Unknown,
        }
    }

    /// The name as the gRPC specification writes it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ok => "OK",
            Self::Cancelled => "CANCELLED",
            Self::Unknown => "UNKNOWN",
            Self::InvalidArgument => "INVALID_ARGUMENT",
            Self::DeadlineExceeded => "DEADLINE_EXCEEDED",
            Self::NotFound => "NOT_FOUND",
            Self::AlreadyExists => "ALREADY_EXISTS",
            Self::PermissionDenied => "PERMISSION_DENIED",
            Self::ResourceExhausted => "RESOURCE_EXHAUSTED",
            Self::FailedPrecondition => "FAILED_PRECONDITION",
            Self::Aborted => "ABORTED",
            Self::OutOfRange => "OUT_OF_RANGE",
            Self::Unimplemented => "UNIMPLEMENTED",
            Self::Internal => "INTERNAL",
            Self::Unavailable => "UNAVAILABLE",
            Self::DataLoss => "DATA_LOSS",
            Self::Unauthenticated => "UNAUTHENTICATED",
        }
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What the server said about a call that it refused.
#[derive(Debug, Clone, PartialEq)]
pub struct Status {
    /// Which kind of refusal.
    pub code: Code,
    /// A sentence for a person.
    pub message: String,
    /// Typed details, as the server attached them.
    pub details: Vec<prost_types::Any>,
}

impl Status {
    /// A status without details.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), details: Vec::new() }
    }

    /// Reads the details out of a `grpc-status-details-bin`; unreadable ones are left out, never an error of the call.
    pub(super) fn with_details(mut self, encoded: &[u8]) -> Self {
        if let Ok(status) = rpc::Status::decode(encoded) {
            self.details = status.details;
        }
        self
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.message.as_str() {
            "" => f.write_str(self.code.name()),
            message => write!(f, "{message} ({})", self.code),
        }
    }
}

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// The server understood the call and refused it.
    #[error("{0}")]
    Refused(Status),
    /// The server did not accept the credentials themselves; repeating the call cannot help until they change.
    #[error("the server {server} did not accept the credentials: {status}")]
    CredentialsRefused {
        /// Which server.
        server: Address,
        /// Its word.
        status: Status,
    },
    /// No connection, or it broke: nobody can say whether the server did what was asked.
    #[error("cannot reach the server {server}: {reason}; check the address and the network")]
    Unreachable {
        /// Which server.
        server: Address,
        /// In a few words.
        reason: String,
        /// The cause.
        #[source]
        source: Option<Cause>,
    },
    /// The server's certificate was not accepted.
    #[error("the certificate of {server} is not trusted: {reason}")]
    Untrusted {
        /// Which server.
        server: Address,
        /// In a few words, and what to do.
        reason: String,
    },
    /// There is no list of trusted authorities on this machine.
    #[error("no trusted certificate authorities: {0}")]
    NoTrust(String),
    /// Something answered that is not a fleet server: a captive portal, a web server, a proxy.
    #[error("{server} does not answer like a fleet server ({found}); check the address, or sign in to the network")]
    NotAFleetServer {
        /// Which address.
        server: Address,
        /// What came instead.
        found: String,
    },
    /// The time allowed for the call is over.
    #[error("the server {server} did not answer within {} s", .limit.as_secs_f32())]
    Deadline {
        /// Which server.
        server: Address,
        /// The time that was allowed.
        limit: Duration,
    },
    /// [`Client::cancel`](super::Client::cancel) was called.
    #[error("the call was cancelled")]
    Cancelled,
    /// A message is larger than this client accepts.
    #[error("the server {server} sent a message of {size} bytes; at most {limit} are accepted")]
    TooLarge {
        /// Which server.
        server: Address,
        /// Announced by the server.
        size: u64,
        /// Accepted here.
        limit: u64,
    },
    /// The answer began as one should and then was cut or garbled.
    #[error("the answer of {server} is damaged: {reason}")]
    Damaged {
        /// Which server.
        server: Address,
        /// What is wrong with it.
        reason: String,
    },
    /// The caller's own messages for a client stream could not be read.
    #[error("could not read what was to be sent")]
    Input(#[source] io::Error),
}

/// The cause of an [`CallError::Unreachable`].
pub type Cause = Box<dyn StdError + Send + Sync>;

impl CallError {
    /// The nearest gRPC code, whoever found the fault.
    pub fn code(&self) -> Code {
        match self {
            Self::Refused(status) => status.code,
            Self::CredentialsRefused { .. } => Code::Unauthenticated,
            Self::Unreachable { .. } | Self::Untrusted { .. } | Self::NoTrust(_) | Self::NotAFleetServer { .. } => {
                Code::Unavailable
            }
            Self::Deadline { .. } => Code::DeadlineExceeded,
            Self::Cancelled | Self::Input(_) => Code::Cancelled,
            Self::TooLarge { .. } => Code::ResourceExhausted,
            Self::Damaged { .. } => Code::Internal,
        }
    }

    /// The server's own word, if it had one.
    pub fn status(&self) -> Option<&Status> {
        match self {
            Self::Refused(status) | Self::CredentialsRefused { status, .. } => Some(status),
            _ => None,
        }
    }

    /// Whether the same call may succeed a moment later without anybody doing anything.
    pub fn is_passing(&self) -> bool {
        match self {
            Self::Refused(status) => status.code == Code::Unavailable,
            Self::Unreachable { .. } | Self::Damaged { .. } => true,
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_know_their_numbers() {
        for (number, code) in (0..).zip(Code::ALL) {
            assert_eq!((code as i32, Code::from_number(number)), (number, code), "{code}");
        }
        assert_eq!(Code::from_number(17), Code::Unknown);
        assert_eq!(Code::from_number(-1), Code::Unknown);
    }
}
