//! What goes into a statement and what comes out: text and whole numbers, because both engines agree about those.

use super::{DbError, postgres::Whole};

/// One parameter of a statement.
#[derive(Debug, Clone, Copy)]
pub enum Arg<'a> {
    /// NULL.
    Null,
    /// BIGINT: times in milliseconds, counts, flags.
    Int(i64),
    /// TEXT: ids, names, JSON. Contains no NUL: operations refuse it, and so does one of the engines.
    Text(&'a str),
    /// BYTEA: bodies that only this program reads.
    Blob(&'a [u8]),
}

impl<'a> From<&'a str> for Arg<'a> {
    fn from(text: &'a str) -> Self {
        Arg::Text(text)
    }
}

impl<'a> From<&'a String> for Arg<'a> {
    fn from(text: &'a String) -> Self {
        Arg::Text(text)
    }
}

impl From<i64> for Arg<'_> {
    fn from(number: i64) -> Self {
        Arg::Int(number)
    }
}

impl From<bool> for Arg<'_> {
    fn from(flag: bool) -> Self {
        Arg::Int(i64::from(flag))
    }
}

impl<'a, T> From<Option<T>> for Arg<'a>
where
    Arg<'a>: From<T>,
{
    fn from(value: Option<T>) -> Self {
        value.map_or(Arg::Null, Arg::from)
    }
}

/// One row of an answer; columns are counted from 0 in the order of the SELECT.
pub struct Row<'r> {
    row: Engine<'r>,
}

enum Engine<'r> {
    Sqlite(&'r rusqlite::Row<'r>),
    Postgres(&'r tokio_postgres::Row),
}

impl<'r> Row<'r> {
    pub(super) fn of_sqlite(row: &'r rusqlite::Row<'r>) -> Self {
        Self { row: Engine::Sqlite(row) }
    }

    pub(super) fn of_postgres(row: &'r tokio_postgres::Row) -> Self {
        Self { row: Engine::Postgres(row) }
    }

    /// TEXT that is never NULL.
    pub fn text(&self, column: usize) -> Result<String, DbError> {
        self.str(column).map(str::to_owned)
    }

    /// TEXT that is never NULL, without a copy.
    pub fn str(&self, column: usize) -> Result<&str, DbError> {
        match self.row {
            Engine::Sqlite(row) => row.get_ref(column)?.as_str().map_err(|source| DbError::column(column, source)),
            Engine::Postgres(row) => row.try_get(column).map_err(|source| DbError::column(column, source)),
        }
    }

    /// TEXT or NULL.
    pub fn maybe_text(&self, column: usize) -> Result<Option<String>, DbError> {
        match self.row {
            Engine::Sqlite(row) => {
                let text = row.get_ref(column)?.as_str_or_null().map_err(|source| DbError::column(column, source))?;
                Ok(text.map(str::to_owned))
            }
            Engine::Postgres(row) => row.try_get(column).map_err(|source| DbError::column(column, source)),
        }
    }

    /// BIGINT that is never NULL.
    pub fn int(&self, column: usize) -> Result<i64, DbError> {
        match self.row {
            Engine::Sqlite(row) => row.get_ref(column)?.as_i64().map_err(|source| DbError::column(column, source)),
            Engine::Postgres(row) => {
                row.try_get(column).map(|Whole(number)| number).map_err(|source| DbError::column(column, source))
            }
        }
    }

    /// BIGINT or NULL.
    pub fn maybe_int(&self, column: usize) -> Result<Option<i64>, DbError> {
        match self.row {
            Engine::Sqlite(row) => {
                row.get_ref(column)?.as_i64_or_null().map_err(|source| DbError::column(column, source))
            }
            Engine::Postgres(row) => {
                let whole: Option<Whole> = row.try_get(column).map_err(|source| DbError::column(column, source))?;
                Ok(whole.map(|Whole(number)| number))
            }
        }
    }

    /// BIGINT used as a flag.
    pub fn flag(&self, column: usize) -> Result<bool, DbError> {
        Ok(self.int(column)? != 0)
    }

    /// BYTEA that is never NULL, without a copy.
    pub fn blob(&self, column: usize) -> Result<&[u8], DbError> {
        match self.row {
            Engine::Sqlite(row) => row.get_ref(column)?.as_blob().map_err(|source| DbError::column(column, source)),
            Engine::Postgres(row) => row.try_get(column).map_err(|source| DbError::column(column, source)),
        }
    }
}
