//! `Db`: one SQL text, run by SQLite or PostgreSQL; the engines' own types never leave this folder.
//!
//! Owns connections, transactions, prepared statements and the count of what was run. Reads run on a small pool of
//! connections, each in its own snapshot. Writes go through one thread, which puts everything that waits into one
//! commit (each write in its own savepoint, so that one refused write does not undo its neighbours): an
//! acknowledgement is sent only after that commit. Knows nothing of organizations or machines.
//!
//! A write may *announce* itself: then [`Db::changed`] moves in this process, and on PostgreSQL in every other one that
//! uses the database. That is only a wake-up, which may be lost; what changed is to be found in the tables.
//!
//! On SQLite, `synchronous = NORMAL` in WAL mode: an acknowledged write survives the death of the process at any moment
//! (`kill -9`), because the operating system already has it; a power cut may lose the last second or so, but never
//! damages the file. `Durability::PowerCut` buys that second at the price of one fsync per commit.

mod arg;
mod engine;
mod error;
mod migrate;
mod postgres;
mod sqlite;
mod still;
mod writer;

pub use arg::{Arg, Row};
pub use engine::Place;
pub use error::{DbError, OpenError};
pub use migrate::Migration;
pub use postgres::{Address, AddressError, TlsSetupError};
pub use still::{Still, StillError};

use std::{
    cell::{Cell, RefCell},
    collections::HashSet,
    path::Path,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use tokio::{
    runtime::{Handle, RuntimeFlavor},
    sync::{Semaphore, mpsc, oneshot, watch},
};

use engine::Connection;
use postgres::{Purpose, Server};
use writer::{Job, Submitted};

/// Connections for point reads: more than cores buys nothing, and each may cache pages.
const READERS: usize = 4;
/// Connections for lists and pages, apart: four long ones at once must not hold up every heartbeat.
const SCANNERS: usize = 4;
/// The same on PostgreSQL, where a reader waits for the network more than it works. Opened when they are needed.
const REMOTE_READERS: usize = 8;
/// Writes that may wait for the writer thread before callers wait themselves; at 20 µs each, a queue of 20 ms.
const WRITE_QUEUE: usize = 1024;

/// What must not be able to lose an acknowledged write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Durability {
    /// The death of the process. The default.
    #[default]
    ProcessDeath,
    /// A power cut too: one fsync per commit.
    PowerCut,
}

/// KiB of pages that a connection of SQLite which reads points or writes may keep. PostgreSQL has caches of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PageCache(pub u32);

impl PageCache {
    /// For what is read once, or from the end: lists, pages of logs.
    pub const SMALL: Self = Self(1024);
}

/// How often the database was asked; the bench divides these by the number of calls.
#[derive(Debug, Default)]
pub struct Counters {
    reads: AtomicU64,
    writes: AtomicU64,
    commits: AtomicU64,
}

/// A moment's value of [`Counters`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counted {
    /// Statements that only read.
    pub reads: u64,
    /// Statements that inserted, updated or deleted.
    pub writes: u64,
    /// Transactions that ended with something written.
    pub commits: u64,
}

impl Counters {
    fn now(&self) -> Counted {
        Counted {
            reads: self.reads.load(Relaxed),
            writes: self.writes.load(Relaxed),
            commits: self.commits.load(Relaxed),
        }
    }
}

/// One database. Cheap to clone.
#[derive(Clone)]
pub struct Db {
    inner: Arc<Inner>,
}

struct Inner {
    readers: Pool,
    scanners: Pool,
    /// One connection that calls never take; on SQLite, where a point read waits for nobody else, there is none.
    apart: Option<Pool>,
    writes: mpsc::Sender<Submitted>,
    counters: Arc<Counters>,
    /// A read waits for another process, not only for this one's memory.
    remote: bool,
    changed: Arc<watch::Sender<u64>>,
}

/// Connections nobody uses at the moment.
struct Pool {
    idle: Mutex<Vec<Connection>>,
    free: Arc<Semaphore>,
}

/// Inside a transaction: runs statements. The same for reading and writing; a reader's engine refuses to write.
pub struct Tx<'c> {
    connection: &'c Connection,
    counters: &'c Counters,
    notes: RefCell<Vec<Note>>,
    announced: Cell<bool>,
}

/// What a write says to whoever keeps something of this database in memory: of which kind it is, and about whom.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Note {
    /// One word.
    pub kind: &'static str,
    /// An id, or nothing.
    pub about: String,
}

impl Db {
    /// Opens a database, applies the migrations it lacks, starts the writer. A file is created with mode 0600.
    pub fn open(place: &Place, migrations: &[Migration], durability: Durability) -> Result<Self, OpenError> {
        Self::open_caching(place, migrations, durability, PageCache::SMALL)
    }

    /// The same with more memory for what is asked for again and again.
    pub fn open_caching(
        place: &Place,
        migrations: &[Migration],
        durability: Durability,
        cache: PageCache,
    ) -> Result<Self, OpenError> {
        match place {
            Place::File(path) => Self::open_file(path, migrations, durability, cache),
            Place::Schema(address, schema) => {
                let server = Server::new(address, schema, durability)?;
                let first = postgres::Connection::open_first(server.clone())?;
                first.bring_up_to_date(migrations)?;
                let pool = |size| Pool::of((0..size).map(|_| postgres::Connection::new(server.clone(), Purpose::Read)));
                let (readers, scanners, apart) = (pool(REMOTE_READERS), pool(SCANNERS), pool(1));
                let db = Self::over(Connection::Postgres(first), readers, scanners, Some(apart))?;
                postgres::listen(server, Arc::downgrade(&db.inner.changed)).map_err(OpenError::Thread)?;
                Ok(db)
            }
        }
    }

    fn open_file(
        path: &Path,
        migrations: &[Migration],
        durability: Durability,
        cache: PageCache,
    ) -> Result<Self, OpenError> {
        let mut first = sqlite::Connection::open(path, durability, cache)?;
        migrate::bring_up_to_date(&mut first, path, migrations)?;
        let pool = |size, cache| Pool::of_file(path, size, cache);
        Self::over(Connection::Sqlite(first), pool(READERS, cache)?, pool(SCANNERS, PageCache::SMALL)?, None)
    }

    fn over(writer: Connection, readers: Pool, scanners: Pool, apart: Option<Pool>) -> Result<Self, OpenError> {
        let counters = Arc::new(Counters::default());
        let remote = matches!(writer, Connection::Postgres(_));
        let (writes, queue) = mpsc::channel(WRITE_QUEUE);
        let changed = Arc::new(watch::Sender::new(0));
        writer::start(writer, queue, counters.clone(), changed.clone()).map_err(OpenError::Thread)?;
        Ok(Self { inner: Arc::new(Inner { readers, scanners, apart, writes, counters, remote, changed }) })
    }

    /// Reads a few rows by key, on this very thread: a point read costs less than handing it to another one. Where the
    /// answer comes from another process, other tasks of this thread are given to another one meanwhile.
    pub async fn read<T, E, F>(&self, work: F) -> Result<T, E>
    where
        F: FnOnce(&Tx<'_>) -> Result<T, E>,
        E: From<DbError>,
    {
        self.read_from(&self.inner.readers, work).await
    }

    /// The same past all calls, however many wait: for the little that decides whether their answers can be trusted.
    pub async fn read_apart<T, E, F>(&self, work: F) -> Result<T, E>
    where
        F: FnOnce(&Tx<'_>) -> Result<T, E>,
        E: From<DbError>,
    {
        self.read_from(self.inner.apart.as_ref().unwrap_or(&self.inner.readers), work).await
    }

    async fn read_from<T, E, F>(&self, pool: &Pool, work: F) -> Result<T, E>
    where
        F: FnOnce(&Tx<'_>) -> Result<T, E>,
        E: From<DbError>,
    {
        let _permit = pool.free.acquire().await.map_err(|_| DbError::Closed)?;
        let read = || pool.snapshot(&self.inner.counters, work);
        let may_wait = Handle::current().runtime_flavor() == RuntimeFlavor::MultiThread;
        if self.inner.remote && may_wait { tokio::task::block_in_place(read) } else { read() }
    }

    /// Reads lists and pages: on a thread that may be kept busy, so that short calls do not wait behind it.
    pub async fn scan<T, E, F>(&self, work: F) -> Result<T, E>
    where
        F: FnOnce(&Tx<'_>) -> Result<T, E> + Send + 'static,
        T: Send + 'static,
        E: From<DbError> + Send + 'static,
    {
        let inner = self.inner.clone();
        // Before a thread is taken: threads that wait for each other's connections would leave none for downloads.
        let permit = Arc::clone(&inner.scanners.free).acquire_owned().await.map_err(|_| DbError::Closed)?;
        let done = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            inner.scanners.snapshot(&inner.counters, work)
        });
        done.await.map_err(|_| DbError::Closed)?
    }

    /// Changes something: all of it or, when `work` returns an error, nothing of it. Returns after the commit.
    pub async fn write<T, E, F>(&self, work: F) -> Result<T, E>
    where
        F: FnOnce(&Tx<'_>) -> Result<T, E> + Send + 'static,
        T: Send + 'static,
        E: From<DbError> + Send + 'static,
    {
        self.write_then(work, |_| {}).await
    }

    /// The same; `after` runs between the commit and the answer, also when the caller has gone away meanwhile, and when
    /// nobody knows whether the commit happened. On the writer's thread: it may not wait for anything.
    pub async fn write_then<T, E, F, A>(&self, work: F, after: A) -> Result<T, E>
    where
        F: FnOnce(&Tx<'_>) -> Result<T, E> + Send + 'static,
        A: FnOnce(&T) + Send + 'static,
        T: Send + 'static,
        E: From<DbError> + Send + 'static,
    {
        let (reply, answer) = oneshot::channel();
        let job = Job::new(work, after, reply);
        self.inner.writes.send(Box::new(job)).await.map_err(|_| DbError::Closed)?;
        answer.await.map_err(|_| DbError::Closed)?
    }

    /// Moves when something was announced, here or by another process that uses the database. Not for each announcement,
    /// and not for certain: a line that was cut may lose one.
    pub fn changed(&self) -> watch::Receiver<u64> {
        self.inner.changed.subscribe()
    }

    /// Other servers may write to it.
    pub fn is_shared(&self) -> bool {
        self.inner.remote
    }

    /// Writes that wait for their turn.
    pub fn waiting(&self) -> usize {
        self.inner.writes.max_capacity().saturating_sub(self.inner.writes.capacity())
    }

    /// How much was asked of this database since it was opened.
    pub fn counted(&self) -> Counted {
        self.inner.counters.now()
    }
}

impl Pool {
    fn of_file(path: &Path, size: usize, cache: PageCache) -> Result<Self, OpenError> {
        let idle = (0..size).map(|_| Connection::reader_of_file(path, cache)).collect::<Result<Vec<_>, _>>()?;
        Ok(Self { free: Arc::new(Semaphore::new(idle.len())), idle: Mutex::new(idle) })
    }

    fn of(connections: impl Iterator<Item = postgres::Connection>) -> Self {
        let idle: Vec<_> = connections.map(Connection::Postgres).collect();
        Self { free: Arc::new(Semaphore::new(idle.len())), idle: Mutex::new(idle) }
    }

    /// One consistent view for all statements of `work`. The caller holds one of the `free` permits.
    fn snapshot<T, E: From<DbError>>(
        &self,
        counters: &Counters,
        work: impl FnOnce(&Tx<'_>) -> Result<T, E>,
    ) -> Result<T, E> {
        /// Gives the connection back also when `work` panics.
        struct Borrowed<'a>(&'a Mutex<Vec<Connection>>, Option<Connection>);
        impl Drop for Borrowed<'_> {
            fn drop(&mut self) {
                if let (Some(connection), Ok(mut pool)) = (self.1.take(), self.0.lock()) {
                    connection.end_snapshot();
                    pool.push(connection);
                }
            }
        }
        let connection = self.idle.lock().map_err(|_| DbError::Closed)?.pop().ok_or(DbError::Closed)?;
        let borrowed = Borrowed(&self.idle, Some(connection));
        let Some(connection) = borrowed.1.as_ref() else { return Err(DbError::Closed.into()) };
        connection.begin_snapshot()?;
        work(&Tx::new(connection, counters))
    }
}

impl<'c> Tx<'c> {
    fn new(connection: &'c Connection, counters: &'c Counters) -> Self {
        Self { connection, counters, notes: RefCell::default(), announced: Cell::new(false) }
    }

    /// Says something to whoever keeps parts of this database in memory; see [`Self::noted`].
    pub fn note(&self, note: Note) {
        self.notes.borrow_mut().push(note);
    }

    /// What was said in this transaction so far, each thing once.
    pub fn noted(&self) -> Vec<Note> {
        let (notes, mut known) = (self.notes.borrow(), HashSet::new());
        notes.iter().filter(|note| known.insert(*note)).cloned().collect()
    }

    /// Once it is committed, whoever waits for [`Db::changed`] is woken.
    pub fn announce(&self) {
        self.announced.set(true);
    }

    /// Every row.
    pub fn all<T>(
        &self,
        sql: &'static str,
        args: &[Arg<'_>],
        row: impl FnMut(&Row<'_>) -> Result<T, DbError>,
    ) -> Result<Vec<T>, DbError> {
        self.counters.reads.fetch_add(1, Relaxed);
        self.connection.query(sql, args, usize::MAX, row)
    }

    /// The first row, if there is one.
    pub fn first<T>(
        &self,
        sql: &'static str,
        args: &[Arg<'_>],
        row: impl FnMut(&Row<'_>) -> Result<T, DbError>,
    ) -> Result<Option<T>, DbError> {
        self.counters.reads.fetch_add(1, Relaxed);
        Ok(self.connection.query(sql, args, 1, row)?.pop())
    }

    /// Inserts, updates or deletes; the number of rows that changed.
    pub fn run(&self, sql: &'static str, args: &[Arg<'_>]) -> Result<usize, DbError> {
        self.counters.writes.fetch_add(1, Relaxed);
        self.connection.execute(sql, args)
    }

    /// Inserts, updates or deletes with RETURNING: the first returned row.
    pub fn run_returning<T>(
        &self,
        sql: &'static str,
        args: &[Arg<'_>],
        row: impl FnMut(&Row<'_>) -> Result<T, DbError>,
    ) -> Result<Option<T>, DbError> {
        self.counters.writes.fetch_add(1, Relaxed);
        // To the end: a statement left half-way has not done its work.
        Ok(self.connection.query(sql, args, usize::MAX, row)?.into_iter().next())
    }
}

#[cfg(test)]
mod tests;
#[cfg(test)]
#[path = "tests.rs"]
#[allow(clippy::duplicate_mod, reason = "the same promises, on the other engine")]
mod tests_on_postgres;
#[cfg(test)]
mod tests_sqlite;
