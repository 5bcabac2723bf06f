//! Why a database could not be opened, and why a statement could not be run.

use std::{error::Error, fmt, io, path::Path};

use super::postgres::TlsSetupError;

/// Why a statement or a transaction failed, as far as a caller would treat it differently.
#[derive(Debug, thiserror::Error)]
pub enum DbError {
    /// A UNIQUE or PRIMARY KEY rule; the text names the columns.
    #[error("such a row exists already ({0})")]
    Exists(String),
    /// A FOREIGN KEY rule: the row refers to one that is not there, or is referred to.
    #[error("a row that this one belongs to is missing, or other rows belong to it")]
    Related,
    /// A text that no column takes: it holds NUL, or it is too long for an index.
    #[error("a text cannot be stored")]
    Unfit,
    /// The disk or the file's size limit.
    #[error("the database cannot grow: the disk is full")]
    Full,
    /// The server is shutting down, or the writer thread ended.
    #[error("the database is closed")]
    Closed,
    /// A bug in `work`; its transaction was undone.
    #[error("a transaction panicked and was undone")]
    Panicked,
    /// The connection was lost, or there is none; a write that was under way may have been done or not.
    #[error("the database cannot be reached")]
    Unreachable,
    /// Everything else: a bug in the SQL, a damaged file, no permission.
    #[error("the database refused a statement")]
    Engine(#[source] Box<dyn Error + Send + Sync>),
}

impl DbError {
    pub(super) fn column(column: usize, source: impl Error) -> Self {
        Self::Engine(Box::new(WrongColumn { column, why: source.to_string() }))
    }

    /// `work` went on after a refused statement, which not every engine can undo alone: a bug in `work`.
    pub(super) fn went_on() -> Self {
        Self::Engine("a write went on after one of its statements was refused; it was undone".into())
    }

    /// The same failure for one more of the writes that shared a commit.
    pub(super) fn again(&self) -> Self {
        match self {
            Self::Exists(what) => Self::Exists(what.clone()),
            Self::Related => Self::Related,
            Self::Unfit => Self::Unfit,
            Self::Full => Self::Full,
            Self::Panicked => Self::Panicked,
            Self::Unreachable => Self::Unreachable,
            Self::Closed | Self::Engine(_) => Self::Closed,
        }
    }
}

/// A column is not of the kind that the program reads it as.
#[derive(Debug)]
struct WrongColumn {
    column: usize,
    why: String,
}

impl fmt::Display for WrongColumn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "column {} cannot be read: {}", self.column, self.why)
    }
}

impl Error for WrongColumn {}

impl From<rusqlite::Error> for DbError {
    fn from(source: rusqlite::Error) -> Self {
        use rusqlite::{ErrorCode, ffi};
        let rusqlite::Error::SqliteFailure(failure, text) = &source else { return Self::Engine(source.into()) };
        match (failure.code, failure.extended_code) {
            (ErrorCode::DiskFull, _) => Self::Full,
            (_, ffi::SQLITE_CONSTRAINT_UNIQUE | ffi::SQLITE_CONSTRAINT_PRIMARYKEY) => {
                Self::Exists(text.clone().unwrap_or_default())
            }
            (_, ffi::SQLITE_CONSTRAINT_FOREIGNKEY) => Self::Related,
            _ => Self::Engine(source.into()),
        }
    }
}

/// Why a database could not be opened. The messages are for the person who started the server.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Made by a later version of this program.
    #[error(
        "{place} was written by a newer version (it has change {found}, this program knows {known}): \
         start that version, or restore a backup made before the upgrade"
    )]
    Newer {
        /// The file, or the server and schema.
        place: String,
        /// The newest change in it.
        found: i64,
        /// The newest change this program knows.
        known: i64,
    },
    /// Some other file.
    #[error("{place} is not a database of this server: move it away or name another one")]
    Foreign {
        /// The file, or the server and schema.
        place: String,
    },
    /// No permission, no such folder, no space.
    #[error("cannot open the database {place}")]
    File {
        /// The file, or the server and schema.
        place: String,
        /// What the operating system or the engine said.
        #[source]
        source: rusqlite::Error,
    },
    /// The file could not be created with mode 0600.
    #[error("cannot create {place}")]
    Create {
        /// The file, or the server and schema.
        place: String,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A change to the tables failed; it was undone.
    #[error("could not bring the database {place} up to date (change {number} {name})")]
    Migration {
        /// The file, or the server and schema.
        place: String,
        /// Which change.
        number: i64,
        /// Its name.
        name: &'static str,
        /// Why.
        #[source]
        source: Box<dyn Error + Send + Sync>,
    },
    /// No server there, no such database, no permission, a wrong password.
    #[error("cannot use the database {place}: {why}")]
    Unreachable {
        /// The server, without the password.
        place: String,
        /// What it or the system said.
        why: String,
    },
    /// TLS to the database cannot be set up.
    #[error(transparent)]
    Tls(#[from] TlsSetupError),
    /// No thread could be started.
    #[error("cannot start the database's writer thread")]
    Thread(#[source] io::Error),
}

impl OpenError {
    pub(super) fn of_file(path: &Path, source: rusqlite::Error) -> Self {
        match source.sqlite_error_code() {
            Some(rusqlite::ErrorCode::NotADatabase) => Self::Foreign { place: path.display().to_string() },
            _ => Self::File { place: path.display().to_string(), source },
        }
    }
}
