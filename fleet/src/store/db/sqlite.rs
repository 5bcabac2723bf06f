//! The SQLite driver: pragmas, statement cache, `$n` parameters.
//!
//! SQLite takes `$1` for a *name* and numbers names by first appearance, so `SET a = $2 WHERE id = $1` would bind
//! the wrong way round without a word. Every text is therefore rewritten once to `?n`, which is what we mean.

use std::{
    cell::{Cell, RefCell},
    collections::HashMap,
    fs::{self, OpenOptions},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use rusqlite::{
    ErrorCode, OpenFlags, ToSql,
    backup::{Backup, StepResult},
    config::DbConfig,
    types::ToSqlOutput,
    types::ValueRef,
};

use super::{Arg, DbError, Durability, OpenError, PageCache, Row};

/// Every statement of the program stays prepared; there are fewer than this.
const STATEMENTS_KEPT: usize = 256;
/// How long to wait for another *process* (`platform-fleet init` beside a running server); ours never collide.
const OTHER_PROCESS_WAIT: Duration = Duration::from_secs(5);
/// Between two attempts where SQLite itself does not wait for one.
const OTHER_PROCESS_AGAIN: Duration = Duration::from_millis(5);
/// The write-ahead log is folded back into the database when it has this many pages (4 KiB each).
const CHECKPOINT_PAGES: i64 = 1000;
/// That begins the log anew only at a moment at which nobody reads in it. Under load there may be none: what is longer than
/// this is made short by asking readers to end, four times as long as the log is without them.
pub(super) const LOG_BYTES_WANTED: u64 = 16 << 20;
/// How long those who read at that moment are waited for. Nobody writes meanwhile.
const READERS_WAIT: Duration = Duration::from_millis(250);
const _: () = assert!(10 * READERS_WAIT.as_millis() < OTHER_PROCESS_WAIT.as_millis(), "others would hear \"locked\"");
/// When readers that were not waited for to the end are waited for again, unless the log is twice as long before.
const LOG_AGAIN_AFTER: Duration = Duration::from_secs(30);

pub(super) struct Connection {
    raw: rusqlite::Connection,
    /// Of whoever writes.
    log: Option<Log>,
    /// Text of a statement (by place and length: all are `'static`) → the same with `?n`.
    rewritten: RefCell<HashMap<(usize, usize), Box<str>>>,
}

/// The write-ahead log's file.
struct Log {
    path: PathBuf,
    /// How long it was when readers were waited for last.
    length_then: Cell<u64>,
    /// When that was.
    waited: Cell<Instant>,
    again_after: Duration,
}

impl Log {
    fn of(database: &Path) -> Self {
        let mut path = database.as_os_str().to_owned();
        path.push("-wal");
        let again_after = LOG_AGAIN_AFTER;
        let log = Self { path: path.into(), length_then: Cell::new(0), waited: Cell::new(Instant::now()), again_after };
        // As if it had just been tried: a log that is long already is not for a command of a moment beside the server.
        log.waited_now();
        log
    }

    fn waited_now(&self) {
        self.length_then.set(self.bytes());
        self.waited.set(Instant::now());
    }

    /// Long, and twice as long as it was, or not tried for a while: what SQLite begins anew stays as long a file as it was.
    fn is_to_be_shortened(&self) -> bool {
        let bytes = self.bytes();
        self.length_then.set(self.length_then.get().min(bytes));
        bytes >= LOG_BYTES_WANTED
            && (bytes / 2 >= self.length_then.get() || self.waited.get().elapsed() >= self.again_after)
    }

    fn bytes(&self) -> u64 {
        fs::metadata(&self.path).map_or(0, |file| file.len())
    }
}

impl ToSql for Arg<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(match self {
            Arg::Null => ValueRef::Null,
            Arg::Int(number) => ValueRef::Integer(*number),
            Arg::Text(text) => ValueRef::Text(text.as_bytes()),
            Arg::Blob(bytes) => ValueRef::Blob(bytes),
        }))
    }
}

impl Connection {
    pub(super) fn open(path: &Path, durability: Durability, cache: PageCache) -> Result<Self, OpenError> {
        let file = |source| OpenError::of_file(path, source);
        // Made by us first, so that nobody else can read it even for a moment; SQLite gives -wal and -shm the same mode.
        OpenOptions::new()
            .create(true)
            .append(true)
            .mode(0o600)
            .open(path)
            .map_err(|source| OpenError::Create { place: path.display().to_string(), source })?;
        let raw = rusqlite::Connection::open(path).map_err(file)?;
        let connection = Self { log: Some(Log::of(path)), ..Self::with_pragmas(raw, cache).map_err(file)? };
        let synchronous = if durability == Durability::PowerCut { "FULL" } else { "NORMAL" };
        let set = |name: &str, value: &dyn ToSql| connection.raw.pragma_update(None, name, value);
        connection
            .keep_log()
            .and_then(|()| set("synchronous", &synchronous))
            .and_then(|()| set("foreign_keys", &true))
            .and_then(|()| {
                connection.raw.pragma_update_and_check(None, "wal_autocheckpoint", CHECKPOINT_PAGES, |_| Ok(()))
            })
            .map_err(file)?;
        Ok(connection)
    }

    /// Has the file written through a log. In a new file that is a change of its first page: who meets another process in
    /// the middle of one is refused without a wait, because both hold what they have read.
    fn keep_log(&self) -> rusqlite::Result<()> {
        let begin = Instant::now();
        loop {
            let done = self.raw.pragma_update_and_check(None, "journal_mode", "WAL", |_| Ok(()));
            let busy =
                done.as_ref().err().and_then(rusqlite::Error::sqlite_error_code) == Some(ErrorCode::DatabaseBusy);
            if !busy || begin.elapsed() >= OTHER_PROCESS_WAIT {
                return done;
            }
            thread::sleep(OTHER_PROCESS_AGAIN);
        }
    }

    pub(super) fn open_reader(path: &Path, cache: PageCache) -> Result<Self, OpenError> {
        let file = |source| OpenError::of_file(path, source);
        let raw = rusqlite::Connection::open(path).map_err(file)?;
        let connection = Self::with_pragmas(raw, cache).map_err(file)?;
        connection.raw.pragma_update(None, "query_only", true).map_err(file)?;
        Ok(connection)
    }

    /// The file as it is, whatever version wrote it; not made if it is not there.
    pub(super) fn open_as_it_is(path: &Path) -> rusqlite::Result<Self> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Self::with_pragmas(rusqlite::Connection::open_with_flags(path, flags)?, PageCache::SMALL)?;
        connection.raw.pragma_update(None, "query_only", true)?;
        Ok(connection)
    }

    /// Every page, as the present snapshot sees it, into a new file. The write-ahead log grows meanwhile; a writer waits no
    /// longer than for any reader ([`Self::shorten_log`]).
    pub(super) fn copy_to(&self, path: &Path) -> rusqlite::Result<()> {
        let mut copy = rusqlite::Connection::open(path)?;
        let backup = Backup::new(&self.raw, &mut copy)?;
        // In one step: with several, a writer in between would make it begin again, and under load for ever.
        match backup.step(-1)? {
            StepResult::Done => Ok(()),
            other => Err(rusqlite::Error::SqliteFailure(
                rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_BUSY),
                Some(format!("the copy was not finished: {other:?}")),
            )),
        }
    }

    /// What the engine finds wrong with the file; "ok" is nothing.
    pub(super) fn check(&self) -> rusqlite::Result<String> {
        self.raw.query_row("PRAGMA quick_check(1)", [], |row| row.get(0))
    }

    fn with_pragmas(raw: rusqlite::Connection, PageCache(kib): PageCache) -> rusqlite::Result<Self> {
        raw.busy_timeout(OTHER_PROCESS_WAIT)?;
        raw.set_prepared_statement_cache_capacity(STATEMENTS_KEPT);
        // Without this the planner looks at the values of parameters and compiles most joins and every ORDER BY anew at
        // each call, four times the cost of running them.
        raw.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
        // As SQLite counts: negative means KiB.
        raw.pragma_update(None, "cache_size", -i64::from(kib))?;
        Ok(Self { raw, log: None, rewritten: RefCell::default() })
    }

    pub(super) fn query<T>(
        &self,
        sql: &'static str,
        args: &[Arg<'_>],
        limit: usize,
        mut row: impl FnMut(&Row<'_>) -> Result<T, DbError>,
    ) -> Result<Vec<T>, DbError> {
        let mut statement = self.prepared(sql)?;
        let mut rows = statement.query(rusqlite::params_from_iter(args))?;
        let mut found = Vec::new();
        while found.len() < limit
            && let Some(next) = rows.next()?
        {
            found.push(row(&Row::of_sqlite(next))?);
        }
        Ok(found)
    }

    pub(super) fn execute(&self, sql: &'static str, args: &[Arg<'_>]) -> Result<usize, DbError> {
        Ok(self.prepared(sql)?.execute(rusqlite::params_from_iter(args))?)
    }

    /// Statements of the driver itself: not counted, no parameters.
    fn control(&self, sql: &'static str) -> Result<(), DbError> {
        self.raw.prepare_cached(sql)?.execute([])?;
        Ok(())
    }

    pub(super) fn begin_snapshot(&self) -> Result<(), DbError> {
        self.control("BEGIN")
    }

    pub(super) fn end_snapshot(&self) {
        // Fails only if the snapshot never began.
        let _ = self.control("COMMIT");
    }

    pub(super) fn begin_write(&self) -> Result<(), DbError> {
        self.control("BEGIN IMMEDIATE")
    }

    pub(super) fn commit(&self) -> Result<(), DbError> {
        self.control("COMMIT")
    }

    pub(super) fn rollback(&self) -> Result<(), DbError> {
        self.control("ROLLBACK")
    }

    /// Makes the write-ahead log short again where it got long. After a commit was answered: nobody waits for this but the
    /// next write. Readers that do not end in time are let be for a while; a backup may read for minutes.
    pub(super) fn shorten_log(&self) {
        let Some(log) = self.log.as_ref().filter(|log| log.is_to_be_shortened()) else { return };
        let held = self.raw.busy_timeout(READERS_WAIT).and_then(|()| {
            // That somebody reads for longer is no error here, but the first column.
            self.raw.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get::<_, bool>(0))
        });
        let restored = self.raw.busy_timeout(OTHER_PROCESS_WAIT);
        log.waited_now();
        match restored.and(held) {
            Ok(false) => {}
            Ok(true) => tracing::debug!(path = %log.path.display(), "somebody reads in the write-ahead log for long"),
            Err(problem) => tracing::warn!(%problem, "the write-ahead log could not be made shorter"),
        }
    }

    pub(super) fn savepoint(&self) -> Result<(), DbError> {
        self.control("SAVEPOINT job")
    }

    pub(super) fn rollback_to(&self) -> Result<(), DbError> {
        self.control("ROLLBACK TO job")
    }

    pub(super) fn release(&self) -> Result<(), DbError> {
        self.control("RELEASE job")
    }

    pub(super) fn is_in_transaction(&self) -> bool {
        !self.raw.is_autocommit()
    }

    /// Never: here a refused statement undoes itself only.
    pub(super) fn is_spoilt(&self) -> bool {
        false
    }

    fn prepared(&self, sql: &'static str) -> Result<rusqlite::CachedStatement<'_>, DbError> {
        let mut rewritten = self.rewritten.borrow_mut();
        let text = rewritten.entry((sql.as_ptr().addr(), sql.len())).or_insert_with(|| sql.replace('$', "?").into());
        Ok(self.raw.prepare_cached(text)?)
    }

    pub(super) fn migrations_done(&self) -> rusqlite::Result<i64> {
        self.raw.execute_batch(
            "CREATE TABLE IF NOT EXISTS migrations (number BIGINT PRIMARY KEY, name TEXT NOT NULL, applied_at BIGINT NOT NULL)",
        )?;
        self.raw.query_row("SELECT COALESCE(MAX(number), 0) FROM migrations", [], |row| row.get(0))
    }

    pub(super) fn migrate(&mut self, number: i64, name: &str, sql: &str) -> rusqlite::Result<()> {
        let tx = self.raw.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
        // Another process may have been quicker between our look and this lock.
        let there: i64 =
            tx.query_row("SELECT COUNT(*) FROM migrations WHERE number = ?1", [number], |row| row.get(0))?;
        if there == 0 {
            tx.execute_batch(sql)?;
            let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as i64);
            tx.execute("INSERT INTO migrations (number, name, applied_at) VALUES (?1, ?2, ?3)", (number, name, now))?;
        }
        tx.commit()
    }

    /// How often the engine compiled a statement again since it was prepared.
    #[cfg(test)]
    pub(super) fn compiled_again(&self, sql: &'static str) -> Result<i32, DbError> {
        Ok(self.prepared(sql)?.get_status(rusqlite::StatementStatus::RePrepare))
    }

    /// KiB of pages that may be kept.
    #[cfg(test)]
    pub(super) fn page_cache(&self) -> rusqlite::Result<i64> {
        self.raw.query_row("PRAGMA cache_size", [], |row| row.get::<_, i64>(0)).map(|size| -size)
    }

    /// Milliseconds for which another process is waited for.
    #[cfg(test)]
    pub(super) fn other_process_wait(&self) -> rusqlite::Result<i64> {
        self.raw.query_row("PRAGMA busy_timeout", [], |row| row.get(0))
    }

    /// Another time after which a log that readers held is tried again.
    #[cfg(test)]
    pub(super) fn shorten_again_after(&mut self, time: Duration) {
        if let Some(log) = &mut self.log {
            log.again_after = time;
        }
    }

    /// Makes the file refuse to grow beyond its present size: a full disk for tests.
    #[cfg(test)]
    pub(super) fn freeze_size(&self) -> rusqlite::Result<()> {
        let pages: i64 = self.raw.query_row("PRAGMA page_count", [], |row| row.get(0))?;
        self.raw.pragma_update_and_check(None, "max_page_count", pages, |_| Ok(()))
    }
}
