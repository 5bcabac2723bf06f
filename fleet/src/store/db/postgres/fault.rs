//! What PostgreSQL's refusals mean for a caller. The values of a row never get into a text.

use std::{error::Error, fmt};

use tokio_postgres::error::SqlState;

use super::{super::DbError, socket::Gone};

/// A refusal as the server worded it: no detail, because details repeat values.
#[derive(Debug)]
pub(super) struct Refused(String);

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Error for Refused {}

/// Whether the connection is of no use after this.
pub(super) fn ends_connection(why: &tokio_postgres::Error) -> bool {
    match why.as_db_error() {
        Some(refused) => {
            let code = refused.code().code();
            // Connection exceptions; the administrator or a crash ended the session; taken over by nobody yet.
            code.starts_with("08") || matches!(code, "57P01" | "57P02" | "57P03" | "57P05" | "25P03")
        }
        None => why.is_closed() || why.source().is_some_and(|source| source.is::<std::io::Error>()),
    }
}

/// One sentence without values.
pub(super) fn sentence(why: &tokio_postgres::Error) -> String {
    if let Some(refused) = why.as_db_error() {
        return format!("{} (SQLSTATE {})", refused.message(), refused.code().code());
    }
    match why.source() {
        Some(source) => format!("{why}: {source}"),
        None => why.to_string(),
    }
}

pub(super) fn of_gone(why: &Gone) -> String {
    match why {
        Gone::Ended(Some(why)) => sentence(why),
        Gone::Ended(None) => "it was closed".to_owned(),
        Gone::Late => "it did not answer in time".to_owned(),
        Gone::System(why) => why.to_string(),
    }
}

/// What a refused statement means.
pub(super) fn of_statement(why: &tokio_postgres::Error) -> DbError {
    let Some(refused) = why.as_db_error() else {
        return DbError::Engine(Box::new(Refused(sentence(why))));
    };
    match refused.code() {
        &SqlState::UNIQUE_VIOLATION => DbError::Exists(columns(refused)),
        &SqlState::FOREIGN_KEY_VIOLATION => DbError::Related,
        &SqlState::CHARACTER_NOT_IN_REPERTOIRE | &SqlState::PROGRAM_LIMIT_EXCEEDED => DbError::Unfit,
        &SqlState::DISK_FULL => DbError::Full,
        // Too many connections, out of memory; a lock not had in time; cancelled; a deadlock.
        code if code.code().starts_with("53")
            || [
                SqlState::LOCK_NOT_AVAILABLE,
                SqlState::QUERY_CANCELED,
                SqlState::T_R_DEADLOCK_DETECTED,
                SqlState::T_R_SERIALIZATION_FAILURE,
            ]
            .contains(code)
            || ends_connection(why) =>
        {
            tracing::warn!(why = sentence(why), "the database could not serve a statement");
            DbError::Unreachable
        }
        _ => DbError::Engine(Box::new(Refused(sentence(why)))),
    }
}

/// `things.id`, `machines.location_id, machines.name`: as SQLite names them. The detail reads `Key (a, b)=(1, 2) …`.
fn columns(refused: &tokio_postgres::error::DbError) -> String {
    let table = refused.table().unwrap_or("?");
    let named =
        refused.detail().and_then(|detail| detail.strip_prefix("Key (")?.split_once(")=(")).map(|(names, _)| names);
    match named {
        Some(names) => names.split(", ").map(|name| format!("{table}.{name}")).collect::<Vec<_>>().join(", "),
        None => format!("{table}: {}", refused.constraint().unwrap_or_default()),
    }
}
