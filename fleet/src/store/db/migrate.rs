//! Numbered changes to the tables: forward only, each in a transaction, each once.
//!
//! A database that has a change this program does not know was used by a newer version and is refused: that version
//! may have written what this one would misread.

use std::path::Path;

use super::{OpenError, sqlite::Connection};

/// One change. The SQL uses what both engines understand: TEXT and BIGINT, no triggers, no defaults with functions.
#[derive(Debug, Clone, Copy)]
pub struct Migration {
    /// Counted from 1, without gaps.
    pub number: i64,
    /// What it does, from the file's name.
    pub name: &'static str,
    /// One or more statements.
    pub sql: &'static str,
}

pub(super) fn bring_up_to_date(
    connection: &mut Connection,
    path: &Path,
    migrations: &[Migration],
) -> Result<(), OpenError> {
    let done = connection.migrations_done().map_err(|source| OpenError::of_file(path, source))?;
    let known = migrations.last().map_or(0, |newest| newest.number);
    if done > known {
        return Err(OpenError::Newer { place: path.display().to_string(), found: done, known });
    }
    for Migration { number, name, sql } in migrations.iter().filter(|migration| migration.number > done) {
        connection.migrate(*number, name, sql).map_err(|source| OpenError::Migration {
            place: path.display().to_string(),
            number: *number,
            name,
            source: source.into(),
        })?;
    }
    Ok(())
}
