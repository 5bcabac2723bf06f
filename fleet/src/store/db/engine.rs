//! One connection of either engine.

use std::path::{Path, PathBuf};

use super::{Arg, DbError, OpenError, PageCache, Row, postgres, sqlite};

/// Which database.
#[derive(Debug, Clone)]
pub enum Place {
    /// A file of SQLite.
    File(PathBuf),
    /// A schema of a PostgreSQL database.
    Schema(postgres::Address, &'static str),
}

pub(super) enum Connection {
    Sqlite(sqlite::Connection),
    Postgres(postgres::Connection),
}

macro_rules! either {
    ($connection:expr, $inner:ident => $call:expr) => {
        match $connection {
            Connection::Sqlite($inner) => $call,
            Connection::Postgres($inner) => $call,
        }
    };
}

impl Connection {
    pub(super) fn reader_of_file(path: &Path, cache: PageCache) -> Result<Self, OpenError> {
        sqlite::Connection::open_reader(path, cache).map(Self::Sqlite)
    }

    pub(super) fn query<T>(
        &self,
        sql: &'static str,
        args: &[Arg<'_>],
        limit: usize,
        row: impl FnMut(&Row<'_>) -> Result<T, DbError>,
    ) -> Result<Vec<T>, DbError> {
        either!(self, engine => engine.query(sql, args, limit, row))
    }

    pub(super) fn execute(&self, sql: &'static str, args: &[Arg<'_>]) -> Result<usize, DbError> {
        either!(self, engine => engine.execute(sql, args))
    }

    pub(super) fn begin_snapshot(&self) -> Result<(), DbError> {
        either!(self, engine => engine.begin_snapshot())
    }

    /// Also where no snapshot was begun.
    pub(super) fn end_snapshot(&self) {
        either!(self, engine => engine.end_snapshot())
    }

    /// From here to the end nobody else writes: neither this process nor another.
    pub(super) fn begin_write(&self) -> Result<(), DbError> {
        either!(self, engine => engine.begin_write())
    }

    pub(super) fn commit(&self) -> Result<(), DbError> {
        either!(self, engine => engine.commit())
    }

    pub(super) fn rollback(&self) -> Result<(), DbError> {
        either!(self, engine => engine.rollback())
    }

    pub(super) fn savepoint(&self) -> Result<(), DbError> {
        either!(self, engine => engine.savepoint())
    }

    pub(super) fn rollback_to(&self) -> Result<(), DbError> {
        either!(self, engine => engine.rollback_to())
    }

    pub(super) fn release(&self) -> Result<(), DbError> {
        either!(self, engine => engine.release())
    }

    /// The engine has not given up the transaction by itself.
    pub(super) fn is_in_transaction(&self) -> bool {
        either!(self, engine => engine.is_in_transaction())
    }

    /// Wakes other processes that use this database; not waited for, and lost with the connection.
    pub(super) fn announce(&self) {
        if let Self::Postgres(engine) = self {
            engine.announce();
        }
    }

    /// What the engine needs done after writes and does not do by itself.
    pub(super) fn tidy(&self) {
        if let Self::Sqlite(engine) = self {
            engine.shorten_log();
        }
    }

    /// What the neighbours of a write hear after which the engine gave up their common transaction.
    pub(super) fn why_given_up(&self) -> DbError {
        match self {
            Self::Sqlite(_) => DbError::Full,
            Self::Postgres(_) => DbError::Unreachable,
        }
    }

    /// A statement of the present write was refused, so the engine keeps nothing of it, whatever `work` says.
    pub(super) fn is_spoilt(&self) -> bool {
        either!(self, engine => engine.is_spoilt())
    }
}
