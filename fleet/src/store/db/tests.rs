//! The promises of `Db`, on a real file.

use super::*;

const TABLES: &[Migration] = &[
    Migration { number: 1, name: "things", sql: "CREATE TABLE things (id TEXT PRIMARY KEY, n BIGINT NOT NULL)" },
    Migration { number: 2, name: "notes", sql: "CREATE TABLE notes (thing TEXT NOT NULL REFERENCES things(id))" },
];

fn open(folder: &tempfile::TempDir) -> Db {
    Db::open(&folder.path().join("t.db"), TABLES, Durability::ProcessDeath).unwrap()
}

fn insert(tx: &Tx<'_>, id: &str, n: i64) -> Result<(), DbError> {
    tx.run("INSERT INTO things (n, id) VALUES ($2, $1)", &[id.into(), n.into()]).map(|_| ())
}

async fn ids(db: &Db) -> Vec<(String, i64)> {
    let rows = |tx: &Tx<'_>| tx.all("SELECT id, n FROM things ORDER BY id", &[], |row| Ok((row.text(0)?, row.int(1)?)));
    db.read::<_, DbError, _>(rows).await.unwrap()
}

#[tokio::test]
async fn parameters_mean_their_number_not_their_place() {
    let folder = tempfile::tempdir().unwrap();
    let db = open(&folder);
    db.write(|tx| insert(tx, "a", 7)).await.unwrap();
    assert_eq!(ids(&db).await, [("a".to_owned(), 7)]);
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
        tx.connection.compiled_again(JOINED)
    });
    assert_eq!(again.await.unwrap(), 0);
}

#[tokio::test]
async fn a_refused_write_undoes_itself_and_nobody_else() {
    let folder = tempfile::tempdir().unwrap();
    let db = open(&folder);
    let writes = (0..200_i64).map(|n| {
        let db = db.clone();
        tokio::spawn(async move {
            db.write(move |tx| {
                insert(tx, &format!("{n:03}"), n)?;
                if n % 3 == 0 { Err(DbError::Related) } else { Ok(()) }
            })
            .await
        })
    });
    for (n, write) in writes.collect::<Vec<_>>().into_iter().enumerate() {
        assert_eq!(write.await.unwrap().is_ok(), n % 3 != 0, "{n}");
    }
    let kept = ids(&db).await;
    assert_eq!(kept.len(), 133);
    assert!(kept.iter().all(|(_, n)| n % 3 != 0));
    assert!(db.counted().commits <= 133, "writes that wait together share commits");
}

#[tokio::test]
async fn a_panic_in_a_write_is_an_error_of_that_write_only() {
    let folder = tempfile::tempdir().unwrap();
    let db = open(&folder);
    let broken: Result<(), DbError> = db.write(|_| panic!("a bug")).await;
    assert!(matches!(broken, Err(DbError::Panicked)));
    db.write(|tx| insert(tx, "after", 1)).await.unwrap();
    let broken: Result<(), DbError> = tokio::spawn({
        let db = db.clone();
        async move { db.read(|_| panic!("a bug")).await }
    })
    .await
    .unwrap_or(Err(DbError::Panicked));
    assert!(broken.is_err());
    for _ in 0..READERS * 2 {
        assert_eq!(ids(&db).await.len(), 1, "the reader's connection came back");
    }
}

#[tokio::test]
async fn broken_rules_are_told_apart() {
    let folder = tempfile::tempdir().unwrap();
    let db = open(&folder);
    db.write(|tx| insert(tx, "a", 1)).await.unwrap();
    let twice = db.write(|tx| insert(tx, "a", 1)).await;
    assert!(matches!(twice, Err(DbError::Exists(what)) if what.contains("things.id")));
    let orphan: Result<usize, DbError> =
        db.write(|tx| tx.run("INSERT INTO notes (thing) VALUES ($1)", &["nothing".into()])).await;
    assert!(matches!(orphan, Err(DbError::Related)));
    let sneaky: Result<usize, DbError> = db.read(|tx| tx.run("DELETE FROM things", &[])).await;
    assert!(matches!(sneaky, Err(DbError::Engine(_))), "readers cannot write");
}

#[tokio::test]
async fn a_full_disk_is_said_and_survived() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.db");
    let mut first = sqlite::Connection::open(&path, Durability::ProcessDeath).unwrap();
    migrate::bring_up_to_date(&mut first, &path, TABLES).unwrap();
    first.freeze_size().unwrap();
    let (writes, queue) = mpsc::channel(4);
    let counters = Arc::new(Counters::default());
    writer::start(first, queue, counters.clone()).unwrap();
    let pool = || Pool::open(&path, 1).unwrap();
    let inner = Inner { readers: pool(), scanners: pool(), writes, counters };
    let db = Db { inner: Arc::new(inner) };
    let long = "x".repeat(100_000);
    let full = db.write(move |tx| insert(tx, &long, 1)).await;
    assert!(matches!(full, Err(DbError::Full)), "{full:?}");
    db.write(|tx| insert(tx, "small", 1)).await.unwrap();
    assert_eq!(ids(&db).await.len(), 1);
}

#[tokio::test]
async fn a_newer_database_and_a_foreign_file_are_refused_with_a_sentence() {
    let folder = tempfile::tempdir().unwrap();
    drop(open(&folder));
    let path = folder.path().join("t.db");
    let older = Db::open(&path, &TABLES[..1], Durability::ProcessDeath).err().unwrap();
    assert!(matches!(older, OpenError::Newer { found: 2, known: 1, .. }), "{older}");
    let foreign = folder.path().join("letter.txt");
    std::fs::write(&foreign, "Dear Sir or Madam, ".repeat(100)).unwrap();
    let foreign = Db::open(&foreign, TABLES, Durability::ProcessDeath).err().unwrap();
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
