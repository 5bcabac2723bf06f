//! What only SQLite has: a file, its mode, its size, its statement cache.

use std::{
    path::Path,
    sync::{
        Barrier,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::Duration,
};

use super::*;

const TABLES: &[Migration] = &[
    Migration { number: 1, name: "things", sql: "CREATE TABLE things (id TEXT PRIMARY KEY, n BIGINT NOT NULL)" },
    Migration { number: 2, name: "notes", sql: "CREATE TABLE notes (thing TEXT NOT NULL REFERENCES things(id))" },
];

fn open(folder: &tempfile::TempDir) -> Db {
    Db::open(&Place::File(folder.path().join("t.db")), TABLES, Durability::ProcessDeath).unwrap()
}

fn insert(tx: &Tx<'_>, id: &str, n: i64) -> Result<(), DbError> {
    tx.run("INSERT INTO things (n, id) VALUES ($2, $1)", &[id.into(), n.into()]).map(|_| ())
}

#[tokio::test]
async fn a_statement_is_compiled_once_whatever_its_parameters_are() {
    const JOINED: &str = "SELECT t.id FROM things t JOIN notes o ON o.thing = t.id WHERE t.id = $1 ORDER BY t.n";
    let folder = tempfile::tempdir().unwrap();
    let db = open(&folder);
    let again = db.read::<_, DbError, _>(|tx| {
        for id in ["a", "b", "c"] {
            tx.all(JOINED, &[id.into()], |row| row.text(0))?;
        }
        match tx.connection {
            Connection::Sqlite(connection) => connection.compiled_again(JOINED),
            Connection::Postgres(_) => Err(DbError::Closed),
        }
    });
    assert_eq!(again.await.unwrap(), 0);
}

#[tokio::test]
async fn a_full_disk_is_said_and_survived() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.db");
    let mut first = sqlite::Connection::open(&path, Durability::ProcessDeath, PageCache::SMALL).unwrap();
    migrate::bring_up_to_date(&mut first, &path, TABLES).unwrap();
    first.freeze_size().unwrap();
    let pool = || Pool::of_file(&path, 1, PageCache::SMALL).unwrap();
    let db = Db::over(Connection::Sqlite(first), pool(), pool(), None).unwrap();
    let long = "x".repeat(100_000);
    let full = db.write(move |tx| insert(tx, &long, 1)).await;
    assert!(matches!(full, Err(DbError::Full)), "{full:?}");
    db.write(|tx| insert(tx, "small", 1)).await.unwrap();
    let count = |tx: &Tx<'_>| tx.first("SELECT COUNT(*) FROM things", &[], |row| row.int(0));
    assert_eq!(db.read::<_, DbError, _>(count).await.unwrap(), Some(1));
}

#[test]
fn whoever_opens_a_new_file_waits_for_others_who_have_just_opened_it() {
    // So often that the moment is met at which it matters.
    const ROUNDS: usize = 60;
    let folder = tempfile::tempdir().unwrap();
    for round in 0..ROUNDS {
        let path = folder.path().join(format!("{round}.db"));
        let (meet, done) = (Barrier::new(2), AtomicBool::new(false));
        let other = || {
            let other = rusqlite::Connection::open(&path).unwrap();
            meet.wait();
            while !done.load(SeqCst) {
                // It may be refused in its turn.
                let _ = other.execute_batch("BEGIN IMMEDIATE; ROLLBACK");
            }
        };
        let opened = std::thread::scope(|scope| {
            scope.spawn(other);
            meet.wait();
            let opened = sqlite::Connection::open(&path, Durability::ProcessDeath, PageCache::SMALL);
            done.store(true, SeqCst);
            opened
        });
        assert!(opened.is_ok(), "round {round}: {:?}", opened.err());
    }
}

#[tokio::test]
async fn a_foreign_file_is_refused_with_a_sentence() {
    let folder = tempfile::tempdir().unwrap();
    let foreign = folder.path().join("letter.txt");
    std::fs::write(&foreign, "Dear Sir or Madam, ".repeat(100)).unwrap();
    let foreign = Db::open(&Place::File(foreign), TABLES, Durability::ProcessDeath).err().unwrap();
    assert!(matches!(foreign, OpenError::Foreign { .. }), "{foreign}");
}

#[cfg(unix)]
#[tokio::test]
async fn nobody_else_can_read_the_files() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let db = open(&folder);
    db.write(|tx| insert(tx, "a", 1)).await.unwrap();
    for entry in std::fs::read_dir(folder.path()).unwrap() {
        let entry = entry.unwrap();
        assert_eq!(entry.metadata().unwrap().permissions().mode() & 0o077, 0, "{:?}", entry.path());
    }
}

#[test]
fn who_reads_points_keeps_as_many_pages_as_was_said_and_who_reads_lists_few() {
    let folder = tempfile::tempdir().unwrap();
    let place = Place::File(folder.path().join("t.db"));
    let db = Db::open_caching(&place, TABLES, Durability::ProcessDeath, PageCache(5000)).unwrap();
    let kept = |pool: &Pool| -> Vec<i64> {
        let idle = pool.idle.lock().unwrap();
        let sqlite = idle.iter().filter_map(|one| if let Connection::Sqlite(one) = one { Some(one) } else { None });
        sqlite.map(|one| one.page_cache().unwrap()).collect()
    };
    assert_eq!(kept(&db.inner.readers), [5000; READERS]);
    assert_eq!(kept(&db.inner.scanners), [1024; SCANNERS]);
}

/// Somebody always reads: each begins before the one before it ends.
struct Relay {
    reads: sqlite::Connection,
    rests: sqlite::Connection,
}

impl Relay {
    fn begin(path: &Path) -> Self {
        let reader = || sqlite::Connection::open_reader(path, PageCache::SMALL).unwrap();
        let relay = Self { reads: reader(), rests: reader() };
        look(&relay.reads);
        relay
    }

    fn hand_over(&mut self) {
        look(&self.rests);
        self.reads.end_snapshot();
        std::mem::swap(&mut self.reads, &mut self.rests);
    }
}

/// The moment of a snapshot is that of its first statement.
fn look(reader: &sqlite::Connection) {
    reader.begin_snapshot().unwrap();
    reader.query("SELECT COUNT(*) FROM notes", &[], 1, |row| row.int(0)).unwrap();
}

fn writer(path: &Path) -> sqlite::Connection {
    let mut writer = sqlite::Connection::open(path, Durability::ProcessDeath, PageCache::SMALL).unwrap();
    migrate::bring_up_to_date(&mut writer, path, TABLES).unwrap();
    writer
}

/// Rows that make the log longer by so many bytes at least; the table stays as long as it is.
const REPLACE: &str = "REPLACE INTO things (id, n) VALUES ('long', 1), ($1, 2)";

fn commit(writer: &sqlite::Connection, bytes: usize) {
    writer.begin_write().unwrap();
    writer.execute(REPLACE, &["x".repeat(bytes).as_str().into()]).unwrap();
    writer.commit().unwrap();
    writer.shorten_log();
}

fn length(log: &Path) -> u64 {
    std::fs::metadata(log).unwrap().len()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn the_write_ahead_log_stays_short_however_readers_overlap() {
    use std::sync::mpsc::{TryRecvError, sync_channel};
    // So many times may a machine that has no time for the readers' turns be too late.
    const TRIES: u64 = 64;
    let folder = tempfile::tempdir().unwrap();
    let (path, log) = (folder.path().join("t.db"), folder.path().join("t.db-wal"));
    let mut first = writer(&path);
    first.shorten_again_after(Duration::ZERO);
    let pool = || Pool::of_file(&path, 1, PageCache::SMALL).unwrap();
    let db = Db::over(Connection::Sqlite(first), pool(), pool(), None).unwrap();
    let mut relay = Relay::begin(&path);
    let (mut longest, mut written) = (0, 0);
    while written < sqlite::LOG_BYTES_WANTED / (1 << 20) + TRIES {
        let ((begun, hears_begun), (go, hears_go)) = (sync_channel(1), sync_channel::<()>(1));
        let text = "x".repeat(1 << 20);
        let change = move |tx: &Tx<'_>| {
            let _ = begun.send(());
            let _ = hears_go.recv();
            tx.run(REPLACE, &[text.as_str().into()])
        };
        let change = tokio::spawn({
            let db = db.clone();
            async move { db.write::<_, DbError, _>(change).await }
        });
        // While the writer is busy with the log, turns are taken; while it writes, nobody ends: so SQLite by itself finds
        // no moment to begin the log anew.
        loop {
            match hears_begun.try_recv() {
                Ok(()) => break,
                Err(TryRecvError::Empty) => relay.hand_over(),
                Err(TryRecvError::Disconnected) => panic!("the writer has gone"),
            }
        }
        let now = length(&log);
        drop(go);
        change.await.unwrap().unwrap();
        if now < longest {
            // As seen one write before.
            assert!(longest > sqlite::LOG_BYTES_WANTED / 2, "readers were waited for at {longest} bytes");
            return;
        }
        (longest, written) = (now, written + 1);
    }
    panic!("{} MiB of log", longest >> 20);
}

#[test]
fn a_log_that_a_long_reader_held_gets_short_when_it_doubles_or_after_a_while() {
    let folder = tempfile::tempdir().unwrap();
    let (path, log) = (folder.path().join("t.db"), folder.path().join("t.db-wal"));
    let mut first = writer(&path);
    let wanted = sqlite::LOG_BYTES_WANTED;
    let enough = usize::try_from(wanted).unwrap();
    first.shorten_again_after(Duration::MAX);
    let relay = Relay::begin(&path);
    commit(&first, enough);
    let held = length(&log);
    assert!(held >= wanted);
    relay.reads.end_snapshot();
    commit(&first, enough + enough / 8);
    assert_eq!(length(&log), 0, "twice as long");

    look(&relay.reads);
    commit(&first, enough);
    let held = length(&log);
    relay.reads.end_snapshot();
    // The first folds it back, the others begin it anew in the same file.
    for _ in 0..3 {
        commit(&first, 1);
        assert!(length(&log) >= held, "it was not to be tried yet");
    }
    // A command that comes and goes leaves it to the server.
    commit(&writer(&path), 1);
    assert!(length(&log) >= held, "who came a moment ago waited for readers");
    first.shorten_again_after(Duration::ZERO);
    commit(&first, 1);
    assert_eq!(length(&log), 0, "after a while");
}

#[test]
fn others_are_waited_for_as_before_when_the_log_could_not_be_shortened() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.db");
    let first = writer(&path);
    let before = first.other_process_wait().unwrap();
    first.begin_write().unwrap();
    let text = "x".repeat(usize::try_from(sqlite::LOG_BYTES_WANTED).unwrap());
    first.execute(REPLACE, &[text.as_str().into()]).unwrap();
    // More than the cache keeps is in the log before the commit. Inside a transaction the engine refuses to shorten it.
    let log = folder.path().join("t.db-wal");
    assert!(length(&log) >= sqlite::LOG_BYTES_WANTED);
    first.shorten_log();
    assert!(length(&log) >= sqlite::LOG_BYTES_WANTED);
    assert_eq!(first.other_process_wait().unwrap(), before);
    first.rollback().unwrap();
}
