//! The promises of `Db`, on a real database of either engine: this file is compiled once for each.

use super::*;

const TABLES: &[Migration] = &[
    Migration { number: 1, name: "things", sql: "CREATE TABLE things (id TEXT PRIMARY KEY, n BIGINT NOT NULL)" },
    Migration { number: 2, name: "notes", sql: "CREATE TABLE notes (thing TEXT NOT NULL REFERENCES things(id))" },
];

/// A place for a database that nobody else uses, or `None` where there is no PostgreSQL.
struct Fixture {
    _folder: tempfile::TempDir,
    place: Place,
}

fn fixture(test: &str) -> Option<Fixture> {
    let folder = tempfile::tempdir().unwrap();
    let place = match module_path!().ends_with("_on_postgres") {
        true => Place::Schema(Address::parse(&test_postgres::database_or_skip(test)?).unwrap(), "things"),
        false => Place::File(folder.path().join("t.db")),
    };
    Some(Fixture { _folder: folder, place })
}

fn open(fixture: &Fixture) -> Db {
    Db::open(&fixture.place, TABLES, Durability::ProcessDeath).unwrap()
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
    let Some(fixture) = fixture("parameters mean their number not their place") else { return };
    let db = open(&fixture);
    db.write(|tx| insert(tx, "a", 7)).await.unwrap();
    assert_eq!(ids(&db).await, [("a".to_owned(), 7)]);
}

#[tokio::test]
async fn a_refused_write_undoes_itself_and_nobody_else() {
    let Some(fixture) = fixture("a refused write undoes itself and nobody else") else { return };
    let db = open(&fixture);
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
    let Some(fixture) = fixture("a panic in a write is an error of that write only") else { return };
    let db = open(&fixture);
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
    for _ in 0..REMOTE_READERS * 2 {
        assert_eq!(ids(&db).await.len(), 1, "the reader's connection came back");
    }
}

#[tokio::test]
async fn broken_rules_are_told_apart() {
    let Some(fixture) = fixture("broken rules are told apart") else { return };
    let db = open(&fixture);
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
async fn a_newer_database_is_refused_with_a_sentence() {
    let Some(fixture) = fixture("a newer database") else { return };
    drop(open(&fixture));
    let older = Db::open(&fixture.place, &TABLES[..1], Durability::ProcessDeath).err().unwrap();
    assert!(matches!(older, OpenError::Newer { found: 2, known: 1, .. }), "{older}");
}

#[tokio::test]
async fn every_kind_of_value_comes_back_as_it_went_in() {
    const MIXED: &[Migration] = &[Migration {
        number: 1,
        name: "mixed",
        sql: "CREATE TABLE mixed (id TEXT PRIMARY KEY, t TEXT, n BIGINT, b BYTEA NOT NULL); -- two statements\n\
              CREATE INDEX mixed_by_n ON mixed (n);",
    }];
    let Some(fixture) = fixture("every kind of value") else { return };
    let db = Db::open(&fixture.place, MIXED, Durability::PowerCut).unwrap();
    let rows = [
        ("1", Some("Grüße, 'quoted' $1 %"), Some(i64::MIN), &b"\0\xff"[..]),
        ("2", None, None, b""),
        ("3", Some(""), Some(i64::MAX), b"x"),
    ];
    for (id, text, number, bytes) in rows {
        let done = db.write(move |tx| {
            let args = [id.into(), text.into(), number.into(), Arg::Blob(bytes)];
            tx.run("INSERT INTO mixed (id, t, n, b) VALUES ($1, $2, $3, $4)", &args)
        });
        assert_eq!(done.await.map_err(|why: DbError| why).unwrap(), 1);
    }
    let read = db.read::<_, DbError, _>(|tx| {
        tx.all("SELECT id, t, n, b, CAST(SUM(n) AS BIGINT) FROM mixed GROUP BY id, t, n, b ORDER BY id", &[], |row| {
            assert_eq!(row.maybe_int(2)?, row.maybe_int(4)?);
            Ok((row.text(0)?, row.maybe_text(1)?, row.maybe_int(2)?, row.blob(3)?.to_vec()))
        })
    });
    let expected: Vec<_> = rows
        .iter()
        .map(|(id, text, number, bytes)| ((*id).to_owned(), text.map(str::to_owned), *number, bytes.to_vec()))
        .collect();
    assert_eq!(read.await.unwrap(), expected);
    let wrong = db.read::<_, DbError, _>(|tx| tx.first("SELECT t FROM mixed WHERE id = '1'", &[], |row| row.int(0)));
    assert!(matches!(wrong.await, Err(DbError::Engine(_))));
    let null = db.read::<_, DbError, _>(|tx| tx.first("SELECT t FROM mixed WHERE id = '2'", &[], |row| row.text(0)));
    assert!(matches!(null.await, Err(DbError::Engine(_))));
    let returned = db.write::<_, DbError, _>(|tx| {
        tx.run_returning("UPDATE mixed SET n = $2 WHERE id = $1 RETURNING n", &["2".into(), 5.into()], |row| row.int(0))
    });
    assert_eq!(returned.await.unwrap(), Some(5));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_read_sees_one_moment_whatever_is_written_meanwhile() {
    let Some(fixture) = fixture("a read sees one moment") else { return };
    let db = open(&fixture);
    let (begun, wait_for_begin) = std::sync::mpsc::channel();
    let (written, wait_for_write) = std::sync::mpsc::channel::<()>();
    let reading = tokio::spawn({
        let db = db.clone();
        async move {
            db.scan::<_, DbError, _>(move |tx| {
                let count = |tx: &Tx<'_>| tx.first("SELECT COUNT(*) FROM things", &[], |row| row.int(0));
                let before = count(tx)?;
                let _ = begun.send(());
                let _ = wait_for_write.recv();
                Ok((before, count(tx)?))
            })
            .await
        }
    });
    tokio::task::spawn_blocking(move || wait_for_begin.recv()).await.unwrap().unwrap();
    db.write(|tx| insert(tx, "a", 1)).await.unwrap();
    written.send(()).unwrap();
    assert_eq!(reading.await.unwrap().unwrap(), (Some(0), Some(0)));
    assert_eq!(ids(&db).await.len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_servers_write_one_after_the_other() {
    let Some(fixture) = fixture("two servers write one after the other") else { return };
    // Each write reads, then writes what follows from it: lost if another one came in between.
    let servers = [open(&fixture), open(&fixture)];
    servers[0].write(|tx| insert(tx, "sum", 0)).await.unwrap();
    let writes = (0..200).map(|n| {
        let db = servers[n % 2].clone();
        tokio::spawn(async move {
            db.write::<_, DbError, _>(|tx| {
                let sum = tx.first("SELECT n FROM things WHERE id = 'sum'", &[], |row| row.int(0))?.unwrap_or(0);
                tx.run("UPDATE things SET n = $1 WHERE id = 'sum'", &[(sum + 1).into()])
            })
            .await
        })
    });
    for write in writes.collect::<Vec<_>>() {
        write.await.unwrap().unwrap();
    }
    assert_eq!(ids(&servers[1]).await, [("sum".to_owned(), 200)]);
}

#[tokio::test]
async fn an_announcement_wakes_this_process_and_others() {
    let Some(fixture) = fixture("an announcement wakes others") else { return };
    let (one, other) = (open(&fixture), open(&fixture));
    let mut woken = [one.changed(), other.changed()];
    let heard = std::sync::Arc::new(Mutex::new(Vec::new()));
    // On a file nobody else is told; and nobody is told before the other one listens.
    for n in 0.. {
        let (heard, committed) = (heard.clone(), one.clone());
        let work = move |tx: &Tx<'_>| {
            insert(tx, &n.to_string(), n)?;
            tx.announce();
            Ok::<_, DbError>(n)
        };
        one.write_then(work, move |n| heard.lock().unwrap().push((*n, committed.counted().commits))).await.unwrap();
        woken[0].changed().await.unwrap();
        let wait = std::time::Duration::from_millis(100);
        if !one.is_shared() || tokio::time::timeout(wait, woken[1].changed()).await.is_ok() {
            break;
        }
        assert!(n < 600, "never woken");
    }
    let heard = heard.lock().unwrap().clone();
    assert!(
        heard.iter().all(|(n, commits)| *commits > u64::try_from(*n).unwrap()),
        "heard after the commit: {heard:?}"
    );
    let refused = one.write_then(|tx| insert(tx, "0", 0), |()| panic!("it was refused"));
    assert!(matches!(refused.await, Err(DbError::Exists(_))));
}

#[tokio::test]
async fn servers_that_start_together_change_the_tables_once() {
    let Some(fixture) = fixture("servers that start together") else { return };
    let together = std::sync::Arc::new(std::sync::Barrier::new(6));
    let starts: Vec<_> = (0..6)
        .map(|_| {
            let (place, together) = (fixture.place.clone(), together.clone());
            std::thread::spawn(move || {
                together.wait();
                Db::open(&place, TABLES, Durability::ProcessDeath).map(drop)
            })
        })
        .collect();
    for start in starts {
        start.join().unwrap().unwrap();
    }
    let list = |tx: &Tx<'_>| tx.all("SELECT number FROM migrations ORDER BY number", &[], |row| row.int(0));
    assert_eq!(open(&fixture).read::<_, DbError, _>(list).await.unwrap(), [1, 2]);
}
