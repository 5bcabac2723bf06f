//! What only PostgreSQL has: a server that goes away and comes back, passwords, TLS, schemas of others.

use test_postgres::{Options, Server as TestServer};

use super::super::*;

const TABLES: &[Migration] =
    &[Migration { number: 1, name: "things", sql: "CREATE TABLE things (id TEXT PRIMARY KEY, n BIGINT NOT NULL)" }];

fn place(url: &str) -> Place {
    Place::Schema(Address::parse(url).unwrap(), "things")
}

fn open(url: &str) -> Result<Db, OpenError> {
    Db::open(&place(url), TABLES, Durability::ProcessDeath)
}

fn is_there(what: &str) -> bool {
    test_postgres::database_or_skip(what).is_some()
}

async fn insert(db: &Db, id: &'static str) -> Result<usize, DbError> {
    db.write(move |tx| tx.run("INSERT INTO things (id, n) VALUES ($1, 1)", &[id.into()])).await
}

async fn count(db: &Db) -> Result<Option<i64>, DbError> {
    db.read(|tx| tx.first("SELECT COUNT(*) FROM things", &[], |row| row.int(0))).await
}

#[tokio::test]
async fn a_server_that_goes_away_is_said_and_reached_again() {
    if !is_there("a server that goes away") {
        return;
    }
    let server = TestServer::start(&Options::default()).unwrap();
    let url = server.database();
    let db = open(&url).unwrap();
    assert_eq!(insert(&db, "before").await.unwrap(), 1);
    assert_eq!(count(&db).await.unwrap(), Some(1));

    // Restarted while nobody asked: nobody hears of it.
    server.stop();
    server.start_again();
    assert_eq!(count(&db).await.unwrap(), Some(1));
    assert_eq!(insert(&db, "between").await.unwrap(), 1);

    // Gone in the middle of a read and of a write.
    let (reader, writer) = (db.clone(), db.clone());
    let server = Arc::new(server);
    let (of_read, of_write) = (server.clone(), server.clone());
    let cut = reader.scan::<_, DbError, _>(move |tx| {
        tx.first("SELECT COUNT(*) FROM things", &[], |row| row.int(0))?;
        of_read.crash();
        tx.first("SELECT COUNT(*) FROM things", &[], |row| row.int(0))
    });
    assert!(matches!(cut.await, Err(DbError::Unreachable)));
    assert!(matches!(count(&db).await, Err(DbError::Unreachable)));
    assert!(matches!(insert(&db, "lost").await, Err(DbError::Unreachable)));
    server.start_again();
    reached_again(&db).await;
    let cut = writer.write::<_, DbError, _>(move |tx| {
        tx.run("INSERT INTO things (id, n) VALUES ('half', 1)", &[])?;
        of_write.crash();
        Ok(())
    });
    assert!(matches!(cut.await, Err(DbError::Unreachable)), "not acknowledged");
    server.start_again();
    reached_again(&db).await;
    assert_eq!(count(&db).await.unwrap(), Some(2), "what was acknowledged, and nothing else");
    assert_eq!(insert(&db, "after").await.unwrap(), 1);
}

/// Asks until there is an answer; the pause between attempts is at most two seconds.
async fn reached_again(db: &Db) {
    let begin = std::time::Instant::now();
    while count(db).await.is_err() {
        assert!(begin.elapsed().as_secs() < 60, "never reached again");
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn a_write_that_goes_on_after_a_refusal_is_undone_alone() {
    let Some(url) = test_postgres::database_or_skip("a write that goes on after a refusal") else { return };
    let db = open(&url).unwrap();
    insert(&db, "taken").await.unwrap();
    let stubborn = |db: Db, id: &'static str| async move {
        db.write::<_, DbError, _>(move |tx| {
            tx.run("INSERT INTO things (id, n) VALUES ($1, 2)", &[id.into()])?;
            let twice = tx.run("INSERT INTO things (id, n) VALUES ('taken', 2)", &[]);
            assert!(matches!(twice, Err(DbError::Exists(_))));
            Ok(())
        })
        .await
    };
    assert!(matches!(stubborn(db.clone(), "alone").await, Err(DbError::Engine(_))));
    // Beside others in one commit.
    let writes = (0..50).map(|n| {
        let (db, stubborn) = (db.clone(), &stubborn);
        let id: &'static str = Box::leak(n.to_string().into_boxed_str());
        let bad = (n % 5 == 0).then(|| tokio::spawn(stubborn(db.clone(), id)));
        let good = (n % 5 != 0).then(|| tokio::spawn(async move { insert(&db, id).await.map(drop) }));
        (n, bad.or(good).unwrap())
    });
    for (n, write) in writes.collect::<Vec<_>>() {
        assert_eq!(write.await.unwrap().is_ok(), n % 5 != 0, "{n}");
    }
    assert_eq!(count(&db).await.unwrap(), Some(41));
}

#[tokio::test]
async fn the_password_and_the_certificate_are_asked_for_and_the_password_is_never_told() {
    if !is_there("a password and TLS") {
        return;
    }
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let options = Options {
        password: Some("correct horse".to_owned()),
        tls: Some((made.cert.pem(), made.signing_key.serialize_pem())),
    };
    let server = TestServer::start(&options).unwrap();
    let _ = server.database();
    let folder = tempfile::tempdir().unwrap();
    let roots = folder.path().join("roots.pem");
    std::fs::write(&roots, made.cert.pem()).unwrap();
    let url = |query: &str| format!("{}?{query}", server.tcp_url("test0"));
    let with = |query: &str, password: &str| {
        let address = Address::parse(&url(query)).unwrap().with_password(password);
        Db::open(&Place::Schema(address, "things"), TABLES, Durability::ProcessDeath)
    };
    let trusted = format!("sslmode=verify-full&sslrootcert={}", roots.display());

    let db = with(&trusted, "correct horse").unwrap();
    insert(&db, "a").await.unwrap();
    let encrypted = "SELECT COUNT(*) FROM pg_stat_ssl s JOIN pg_stat_activity a ON a.pid = s.pid
                     WHERE a.application_name = 'platform-fleet' AND NOT s.ssl";
    assert_eq!(server.sql("test0", encrypted), "0");
    assert_eq!(count(&with("sslmode=disable", "correct horse").unwrap()).await.unwrap(), Some(1));

    for (query, password, mentions) in [
        (&*trusted, "wrong secret", "password authentication failed"),
        ("sslmode=disable", "wrong secret", "password authentication failed"),
        ("sslmode=require", "correct horse", "certificate"),
    ] {
        let refused = with(query, password).err().unwrap();
        let told = format!("{refused} {refused:?}");
        assert!(told.contains(mentions), "{told}");
        assert!(!told.contains("wrong secret") && !told.contains("correct horse"), "{told}");
    }
    // The certificate is good, and not for this name.
    let other =
        Address::parse(&url(&trusted).replace("localhost", "127.0.0.1")).unwrap().with_password("correct horse");
    assert!(Db::open(&Place::Schema(other, "things"), TABLES, Durability::ProcessDeath).is_err());
}

#[tokio::test]
async fn schemas_of_others_and_missing_databases_are_refused_with_a_sentence() {
    let Some(url) = test_postgres::database_or_skip("schemas of others") else { return };
    let server = test_postgres::shared().unwrap();
    let name = url.rsplit('/').next().unwrap().to_owned();
    server.sql(&name, "CREATE SCHEMA things; CREATE TABLE things.letters (text TEXT)");
    assert!(matches!(open(&url).err().unwrap(), OpenError::Foreign { .. }));
    // An empty schema made by an administrator for a user who may make none.
    server.sql(&name, "DROP TABLE things.letters; CREATE USER plain; GRANT ALL ON SCHEMA things TO plain");
    let plain = url.replace(test_postgres::USER, "plain");
    insert(&open(&plain).unwrap(), "a").await.unwrap();
    for (url, mentions) in [
        (url.replace(&name, "nowhere"), "does not exist"),
        (url.replace(test_postgres::USER, "nobody_known"), "nobody_known"),
        ("postgres://u@127.0.0.1:1/f".to_owned(), "127.0.0.1:1/f"),
    ] {
        let refused = open(&url).err().unwrap();
        assert!(
            matches!(&refused, OpenError::Unreachable { .. }) && refused.to_string().contains(mentions),
            "{refused}"
        );
    }
    let broken = [Migration { number: 1, name: "broken", sql: "CREATE TABLE a (id TEXT); CREATE NONSENSE" }];
    let fresh = Db::open(&Place::Schema(Address::parse(&url).unwrap(), "fresh"), &broken, Durability::ProcessDeath);
    assert!(matches!(fresh.err().unwrap(), OpenError::Migration { number: 1, name: "broken", .. }));
    assert_eq!(server.sql(&name, "SELECT COUNT(*) FROM pg_tables WHERE schemaname = 'fresh'"), "0", "undone");
}
