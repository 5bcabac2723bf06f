//! One moment of a database file, for a copy of it beside a running server.

use std::{fs::File, io, os::unix::fs::PermissionsExt, path::Path};

use super::{Connection, Counters, DbError, Tx, sqlite};

/// Why a file cannot be read or copied. For the person who asked for it.
#[derive(Debug, thiserror::Error)]
pub enum StillError {
    /// The engine said no.
    #[error("cannot read or copy the database {path}")]
    Engine {
        /// Which.
        path: String,
        /// Why.
        #[source]
        source: rusqlite::Error,
    },
    /// The system said no.
    #[error("cannot write {path}")]
    File {
        /// Which.
        path: String,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// Not what was written.
    #[error("the database {path} is damaged: {found}")]
    Damaged {
        /// Which.
        path: String,
        /// What the engine found first.
        found: String,
    },
}

/// A moment that is held: whoever reads here sees what was committed when it was taken, and nothing later.
pub struct Still {
    connection: Connection,
    counters: Counters,
    path: String,
}

impl Still {
    /// Now. A server that writes the file goes on doing so.
    pub fn of(path: &Path) -> Result<Self, StillError> {
        let path_said = path.display().to_string();
        let engine = |source| StillError::Engine { path: path_said.clone(), source };
        let connection = Connection::Sqlite(sqlite::Connection::open_as_it_is(path).map_err(engine)?);
        let still = Self { connection, counters: Counters::default(), path: path_said.clone() };
        let begun = still.connection.begin_snapshot().and_then(|()| {
            // The moment is that of the first statement.
            still.read(|tx| tx.first("SELECT COUNT(*) FROM sqlite_master", &[], |row| row.int(0)))
        });
        begun.map_err(|why| StillError::File { path: path_said, source: io::Error::other(why) })?;
        Ok(still)
    }

    /// Reads.
    pub fn read<T, E: From<DbError>>(&self, work: impl FnOnce(&Tx<'_>) -> Result<T, E>) -> Result<T, E> {
        work(&Tx::new(&self.connection, &self.counters))
    }

    /// All of it into a new file, mode 0600, on the disk when this returns.
    pub fn copy_to(&self, path: &Path) -> Result<(), StillError> {
        let Connection::Sqlite(connection) = &self.connection else { return Ok(()) };
        connection.copy_to(path).map_err(|source| StillError::Engine { path: self.path.clone(), source })?;
        let synced = File::open(path).and_then(|file| {
            file.set_permissions(PermissionsExt::from_mode(0o600))?;
            file.sync_all()
        });
        synced.map_err(|source| StillError::File { path: path.display().to_string(), source })
    }

    /// Whether the file is what the engine once wrote.
    pub fn check(path: &Path) -> Result<(), StillError> {
        let path_said = path.display().to_string();
        let found = sqlite::Connection::open_as_it_is(path).and_then(|connection| connection.check());
        match found {
            Ok(found) if found == "ok" => Ok(()),
            Ok(found) => Err(StillError::Damaged { path: path_said, found }),
            Err(source) => Err(StillError::Engine { path: path_said, source }),
        }
    }
}

impl Drop for Still {
    fn drop(&mut self) {
        self.connection.end_snapshot();
    }
}
