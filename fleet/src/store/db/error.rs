//! Why a database could not be opened, and why a statement could not be run.

use std::{
    io,
    path::{Path, PathBuf},
};

/// Why a statement or a transaction failed, as far as a caller would treat it differently.
#[derive(Debug, thiserror::Error)]
pub enum DbError {
    /// A UNIQUE or PRIMARY KEY rule; the text names the columns.
    #[error("such a row exists already ({0})")]
    Exists(String),
    /// A FOREIGN KEY rule: the row refers to one that is not there, or is referred to.
    #[error("a row that this one belongs to is missing, or other rows belong to it")]
    Related,
    /// The disk or the file's size limit.
    #[error("the database cannot grow: the disk is full")]
    Full,
    /// The server is shutting down, or the writer thread ended.
    #[error("the database is closed")]
    Closed,
    /// A bug in `work`; its transaction was undone.
    #[error("a transaction panicked and was undone")]
    Panicked,
    /// Everything else: a bug in the SQL, a damaged file, no permission.
    #[error("the database refused a statement")]
    Engine(#[source] rusqlite::Error),
}

impl DbError {
    pub(super) fn column(column: usize, source: rusqlite::types::FromSqlError) -> Self {
        let conversion =
            rusqlite::Error::FromSqlConversionFailure(column, rusqlite::types::Type::Null, Box::new(source));
        Self::Engine(conversion)
    }

    /// The same failure for one more of the writes that shared a commit.
    pub(super) fn again(&self) -> Self {
        match self {
            Self::Exists(what) => Self::Exists(what.clone()),
            Self::Related => Self::Related,
            Self::Full => Self::Full,
            Self::Panicked => Self::Panicked,
            Self::Closed | Self::Engine(_) => Self::Closed,
        }
    }
}

impl From<rusqlite::Error> for DbError {
    fn from(source: rusqlite::Error) -> Self {
        use rusqlite::{ErrorCode, ffi};
        let rusqlite::Error::SqliteFailure(failure, text) = &source else { return Self::Engine(source) };
        match (failure.code, failure.extended_code) {
            (ErrorCode::DiskFull, _) => Self::Full,
            (_, ffi::SQLITE_CONSTRAINT_UNIQUE | ffi::SQLITE_CONSTRAINT_PRIMARYKEY) => {
                Self::Exists(text.clone().unwrap_or_default())
            }
            (_, ffi::SQLITE_CONSTRAINT_FOREIGNKEY) => Self::Related,
            _ => Self::Engine(source),
        }
    }
}

/// Why a database could not be opened. The messages are for the person who started the server.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Made by a later version of this program.
    #[error(
        "{path} was written by a newer version (it has change {found}, this program knows {known}): \
         start that version, or restore a backup made before the upgrade"
    )]
    Newer {
        /// The file.
        path: PathBuf,
        /// The newest change in it.
        found: i64,
        /// The newest change this program knows.
        known: i64,
    },
    /// Some other file.
    #[error("{path} is not a database of this server: move it away or name another folder with --data")]
    Foreign {
        /// The file.
        path: PathBuf,
    },
    /// No permission, no such folder, no space.
    #[error("cannot open the database {path}")]
    File {
        /// The file.
        path: PathBuf,
        /// What the operating system or the engine said.
        #[source]
        source: rusqlite::Error,
    },
    /// The file could not be created with mode 0600.
    #[error("cannot create {path}")]
    Create {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A change to the tables failed; it was undone.
    #[error("could not bring the database {path} up to date (change {number} {name})")]
    Migration {
        /// The file.
        path: PathBuf,
        /// Which change.
        number: i64,
        /// Its name.
        name: &'static str,
        /// Why.
        #[source]
        source: rusqlite::Error,
    },
    /// No thread could be started.
    #[error("cannot start the database's writer thread")]
    Thread(#[source] io::Error),
}

impl OpenError {
    pub(super) fn of_file(path: &Path, source: rusqlite::Error) -> Self {
        match source.sqlite_error_code() {
            Some(rusqlite::ErrorCode::NotADatabase) => Self::Foreign { path: path.into() },
            _ => Self::File { path: path.into(), source },
        }
    }
}
