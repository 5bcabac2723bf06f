//! What only SQLite has: a file, its mode, its size, its statement cache.

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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_write_ahead_log_stays_short_however_readers_overlap() {
    const WANTED: u64 = 16 << 20;
    let folder = tempfile::tempdir().unwrap();
    let db = open(&folder);
    db.write::<_, DbError, _>(|tx| (0..3_000).try_for_each(|n| insert(tx, &n.to_string(), n))).await.unwrap();
    // Each begins before the one before it ends, so there is no moment without one; and reads for a while.
    let ended = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let (mut begun, mut others) = (Vec::new(), Vec::new());
    for _ in 0..2 {
        let (tell, hear) = std::sync::mpsc::sync_channel(1);
        begun.push(tell);
        others.push(hear);
    }
    others.reverse();
    let readers = begun.into_iter().zip(others).enumerate().map(|(n, (begun, other))| {
        let (db, ended) = (db.clone(), ended.clone());
        tokio::spawn(async move {
            let (mut other, mut read) = (other, 0);
            if n == 1 {
                // While the first one reads: both in step would end together.
                other = tokio::task::spawn_blocking(move || other.recv().map(|()| other)).await.unwrap().unwrap();
            }
            while !ended.load(std::sync::atomic::Ordering::SeqCst) {
                let begun = begun.clone();
                let held = db.scan::<_, DbError, _>(move |tx| {
                    let count = "SELECT COUNT(*) FROM things a WHERE length(a.id || a.n) > 2";
                    let _ = tx.first(count, &[], |row| row.int(0))?;
                    let _ = begun.send(());
                    let _ = other.recv();
                    Ok(other)
                });
                other = held.await.unwrap();
                read += 1;
            }
            read
        })
    });
    let readers: Vec<_> = readers.collect();
    let (log, mut most) = (folder.path().join("t.db-wal"), 0);
    let long = "x".repeat(1 << 20);
    for n in 0..4 * WANTED / (1 << 20) {
        let id = format!("{long}{}", n % 2);
        let change = move |tx: &Tx<'_>| {
            tx.run("DELETE FROM things WHERE n = -1", &[])?;
            insert(tx, &id, -1)
        };
        db.write::<_, DbError, _>(change).await.unwrap();
        most = most.max(std::fs::metadata(&log).unwrap().len());
    }
    ended.store(true, std::sync::atomic::Ordering::SeqCst);
    for reader in readers {
        assert!(reader.await.unwrap() > 1, "they took turns");
    }
    // Without waiting for anybody it is twice as long as what was written: a text, and the same in the index.
    assert!(most < 4 * WANTED, "{} MiB of log", most >> 20);
}
