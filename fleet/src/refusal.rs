//! The reasons to say no, and the status of each.
//!
//! A refusal carries a machine-readable reason (google.rpc.ErrorInfo) and, for a bad field, which one
//! (google.rpc.BadRequest). Its message tells the caller what to do; what went wrong inside the server goes to the
//! server's own log and never to the caller.

use std::{collections::HashMap, error::Error, fmt};

use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt};

use crate::store::DbError;

/// Whose reasons these are, for clients that match on ErrorInfo.
const DOMAIN: &str = "platform.fleet";

/// Why an operation was not done.
pub struct Refusal {
    kind: Kind,
    message: String,
    field: Option<&'static str>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Unauthenticated,
    Denied,
    NotFound,
    Invalid,
    Exists,
    Precondition,
    Stale,
    Exhausted,
    Unavailable,
    Unreachable,
    Again,
    Internal,
}

impl Refusal {
    /// No token, a bad one, a revoked one, a wrong secret. Says no more than that.
    pub fn unauthenticated(message: &str) -> Self {
        Self::new(Kind::Unauthenticated, message.to_owned())
    }

    /// The caller sees it but may not do this.
    pub fn denied(permission: &str) -> Self {
        Self::new(Kind::Denied, format!("this needs the permission {permission}, which your key does not have here"))
    }

    /// Not allowed whatever the permissions are.
    pub fn forbidden(message: impl Into<String>) -> Self {
        Self::new(Kind::Denied, message.into())
    }

    /// There is none, or the caller may not know that there is.
    pub fn not_found(what: &str, id: &str) -> Self {
        Self::new(Kind::NotFound, format!("there is no {what} {}", shown(id)))
    }

    /// It cannot be the id of anything here.
    pub fn malformed_id(what: &str, id: &str) -> Self {
        let message = format!("{} is not the id of a {what}: ids are UUIDs in lowercase", shown(id));
        Self { kind: Kind::Invalid, message, field: Some("id") }
    }

    /// A field of the request cannot be accepted; `why` says what is allowed.
    pub fn invalid(field: &'static str, why: impl fmt::Display) -> Self {
        Self { kind: Kind::Invalid, message: format!("{field}: {why}"), field: Some(field) }
    }

    /// The name is taken, or the thing is there already.
    pub fn exists(message: impl Into<String>) -> Self {
        Self::new(Kind::Exists, message.into())
    }

    /// Something else must happen first; the message says what.
    pub fn precondition(message: impl Into<String>) -> Self {
        Self::new(Kind::Precondition, message.into())
    }

    /// Somebody else changed it since the caller looked.
    pub fn stale(message: impl Into<String>) -> Self {
        Self::new(Kind::Stale, message.into())
    }

    /// A limit is reached.
    pub fn exhausted(message: impl Into<String>) -> Self {
        Self::new(Kind::Exhausted, message.into())
    }

    /// It could not be done just now, through no fault of the caller: the same again may succeed.
    pub fn again(message: impl Into<String>) -> Self {
        Self::new(Kind::Again, message.into())
    }

    /// A fault of the server. The cause is logged here, once, and not told.
    pub fn internal(cause: impl Error) -> Self {
        let mut text = cause.to_string();
        let mut source = cause.source();
        while let Some(deeper) = source {
            text = format!("{text}: {deeper}");
            source = deeper.source();
        }
        tracing::error!(cause = text, "an operation failed inside the server");
        Self::new(Kind::Internal, "the server failed; its log says why".to_owned())
    }

    /// Whether the thing asked for is not there (or not visible).
    pub fn is_not_found(&self) -> bool {
        self.kind == Kind::NotFound
    }

    /// What the caller is told.
    pub fn message(&self) -> &str {
        &self.message
    }

    fn new(kind: Kind, message: String) -> Self {
        Self { kind, message, field: None }
    }
}

impl Kind {
    fn code(self) -> Code {
        match self {
            Self::Unauthenticated => Code::Unauthenticated,
            Self::Denied => Code::PermissionDenied,
            Self::NotFound => Code::NotFound,
            Self::Invalid => Code::InvalidArgument,
            Self::Exists => Code::AlreadyExists,
            Self::Precondition => Code::FailedPrecondition,
            Self::Stale => Code::Aborted,
            Self::Exhausted => Code::ResourceExhausted,
            Self::Unavailable | Self::Unreachable | Self::Again => Code::Unavailable,
            Self::Internal => Code::Internal,
        }
    }

    fn reason(self) -> &'static str {
        match self {
            Self::Unauthenticated => "UNAUTHENTICATED",
            Self::Denied => "PERMISSION_DENIED",
            Self::NotFound => "NOT_FOUND",
            Self::Invalid => "INVALID_FIELD",
            Self::Exists => "ALREADY_EXISTS",
            Self::Precondition => "NOT_IN_THIS_STATE",
            Self::Stale => "CHANGED_MEANWHILE",
            Self::Exhausted => "LIMIT_REACHED",
            Self::Unavailable => "SHUTTING_DOWN",
            Self::Unreachable => "DATABASE_UNREACHABLE",
            Self::Again => "TRY_AGAIN",
            Self::Internal => "SERVER_FAULT",
        }
    }
}

/// Something a caller sent, fit to be repeated to it: short, printable.
fn shown(text: &str) -> String {
    let cut: String = text.chars().take(64).collect();
    if cut.is_empty() { "without an id".to_owned() } else { format!("{cut:?}") }
}

impl From<DbError> for Refusal {
    fn from(cause: DbError) -> Self {
        match cause {
            DbError::Full => {
                tracing::error!("the disk of the data folder is full: nothing can be written until there is space");
                Self::exhausted("the server's disk is full: nothing was changed")
            }
            DbError::Closed => Self::new(Kind::Unavailable, "the server is shutting down: try again".to_owned()),
            DbError::Unreachable => Self {
                kind: Kind::Unreachable,
                message: "the server cannot reach its database: try again".to_owned(),
                field: None,
            },
            other => Self::internal(other),
        }
    }
}

impl From<Refusal> for Status {
    fn from(refusal: Refusal) -> Self {
        let mut details = ErrorDetails::with_error_info(refusal.kind.reason(), DOMAIN, HashMap::new());
        if let Some(field) = refusal.field {
            details.add_bad_request_violation(field, refusal.message.clone());
        }
        Status::with_error_details(refusal.kind.code(), refusal.message, details)
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl fmt::Debug for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.kind, self.message)
    }
}

impl Error for Refusal {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_refusal_has_its_status_and_says_why_in_details() {
        let table = [
            (Refusal::unauthenticated("x"), Code::Unauthenticated),
            (Refusal::denied("write_robot"), Code::PermissionDenied),
            (Refusal::not_found("robot", "x"), Code::NotFound),
            (Refusal::malformed_id("robot", "x"), Code::InvalidArgument),
            (Refusal::invalid("name", "x"), Code::InvalidArgument),
            (Refusal::exists("x"), Code::AlreadyExists),
            (Refusal::precondition("x"), Code::FailedPrecondition),
            (Refusal::stale("x"), Code::Aborted),
            (Refusal::again("x"), Code::Unavailable),
            (DbError::Full.into(), Code::ResourceExhausted),
            (DbError::Closed.into(), Code::Unavailable),
            (DbError::Unreachable.into(), Code::Unavailable),
            (DbError::Related.into(), Code::Internal),
        ];
        for (refusal, code) in table {
            let (reason, field) = (refusal.kind.reason(), refusal.field);
            let status = Status::from(refusal);
            assert_eq!(status.code(), code, "{reason}");
            assert_eq!(status.get_details_error_info().unwrap().reason, reason);
            let named = status.get_details_bad_request().map(|bad| bad.field_violations[0].field.clone());
            assert_eq!(named.as_deref(), field);
        }
    }

    #[test]
    fn a_fault_of_the_server_tells_nobody_what_it_was() {
        let fault = Refusal::internal(std::io::Error::other("secret path /srv/x"));
        assert!(!fault.message().contains("secret"));
        assert!(!Refusal::not_found("robot", &"\u{7}x".repeat(500)).message().contains('\u{7}'));
    }
}
