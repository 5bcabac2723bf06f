//! A backup taken under load, and the server made out of it.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::Path,
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::Instant,
};

mod world;

#[path = "backup/commands.rs"]
mod commands;
#[path = "under_load/writers/mod.rs"]
mod writers;

use api::pb::platform::{app::v1::*, common::v1::LogEntry};
use bytes::Bytes;
use fleet::{
    authn::digest_of,
    backup::{self, BackupError, Wanted},
    store::{Address, DbError, Tx},
    wiring,
};
use world::{World, engine::ON_POSTGRES};

const FILE: &str = "what a module is made of";

fn wanted(data: &Path) -> Wanted<'_> {
    Wanted { data, databases: !ON_POSTGRES, artifacts: true, key: true }
}

/// A registry item with one file.
async fn publish(world: &World, organization: &str) {
    let context = &world.server.context;
    let digest = digest_of(FILE);
    let mut file = context.artifacts.begin().await.unwrap();
    file.add(Bytes::from_static(FILE.as_bytes())).await.unwrap();
    file.keep(&digest).await.unwrap();
    let organization = organization.to_owned();
    let rows = move |tx: &Tx<'_>| {
        tx.run(
            "INSERT INTO registry_items (id, organization_id, name, type, visibility, url, description, details,
                 created_at, updated_at) VALUES ('item', $1, 'm', 3, 1, '', '', $2, 1, 1)",
            &[(&organization).into(), fleet::store::Arg::Blob(b"")],
        )?;
        tx.run(
            "INSERT INTO registry_versions (item_id, version, details, created_at) VALUES ('item', '1.0.0', $1, 1)",
            &[fleet::store::Arg::Blob(b"")],
        )?;
        tx.run(
            "INSERT INTO registry_files (item_id, version, platform, platform_tags, digest, bytes, uploaded_at)
             VALUES ('item', '1.0.0', 'any', '', $1, 24, 1)",
            &[(&digest).into()],
        )
        .map(drop)
    };
    context.store.write::<_, DbError>(rows).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_acknowledged_before_a_backup_is_in_it() {
    let world = World::new().await;
    let owner = world.owner("Acme").await;
    owner.location("North", None).await;
    let part = owner.main_part(&owner.machine("", "arm").await).await;
    publish(&world, &owner.organization).await;
    let data = world.folder.path().join("data");
    fs::create_dir_all(data.join("releases/channel")).unwrap();
    fs::write(data.join("releases/channel/stable.json"), "{}").unwrap();
    fs::write(data.join("releases/root.1.json"), "{}").unwrap();
    fs::write(data.join("releases/.1.part"), "half").unwrap();
    let log = |message: String| {
        let entry = LogEntry { level: "info".into(), message, ..LogEntry::default() };
        LogRequest { id: part.id.clone(), logs: vec![entry] }
    };

    // Writers that never pause.
    let ended = Arc::new(AtomicBool::new(false));
    let (tell, mut heard) = tokio::sync::mpsc::unbounded_channel();
    let mut writers = Vec::new();
    for writer in 0..4 {
        let (client, tell, ended) = (owner.client.clone(), tell.clone(), ended.clone());
        let (organization, log) = (owner.organization.clone(), log(format!("writer {writer}")));
        writers.push(tokio::spawn(async move {
            for n in 0.. {
                let (name, begin) = (format!("{writer}-{n}"), Instant::now());
                let request = CreateLocationRequest {
                    organization_id: organization.clone(),
                    name: name.clone(),
                    parent_location_id: None,
                };
                client.app::<_, CreateLocationResponse>("CreateLocation", request).await.unwrap();
                let mut log = log.clone();
                log.logs[0].message = name.clone();
                client.call::<_, LogResponse>("/platform.app.v1.RobotService/Log", log).await.unwrap();
                let _ = tell.send((name, begin, Instant::now()));
                if ended.load(SeqCst) {
                    return;
                }
            }
        }));
    }
    drop(tell);
    // Each with the moments at which it was asked for and acknowledged.
    let mut written: Vec<(String, Instant, Instant)> = Vec::new();
    for _ in 0..40 {
        written.push(heard.recv().await.unwrap());
    }
    // Again until somebody has written meanwhile: a busy machine may give the writers no time.
    let (mut number, patient_until) = (0, Instant::now() + world::PATIENCE);
    let (begin, dump, to, note) = loop {
        number += 1;
        let to = world.folder.path().join(format!("backup {number}"));
        let begin = Instant::now();
        let (dump, note) = tokio::task::spawn_blocking({
            let (folder, data, to) = (world.folder.path().to_owned(), data.clone(), to.clone());
            move || {
                // On PostgreSQL its own program takes the databases, first.
                let dump = world::engine::url(&folder).map(|url| test_postgres::shared().unwrap().dump(&url));
                (dump, backup::take(&wanted(&data), &to).unwrap())
            }
        })
        .await
        .unwrap();
        let end = Instant::now();
        while let Ok(one) = heard.try_recv() {
            written.push(one);
        }
        if written.iter().any(|(_, asked, acknowledged)| begin <= *asked && *acknowledged <= end) {
            break (begin, dump, to, note);
        }
        assert!(end < patient_until, "nobody writes during a backup");
    };
    ended.store(true, SeqCst);
    while let Some(one) = heard.recv().await {
        written.push(one);
    }
    for writer in writers {
        writer.await.unwrap();
    }
    let before = written.into_iter().filter(|(.., acknowledged)| *acknowledged < begin);
    let names: Vec<String> = before.map(|(name, ..)| name).collect();
    assert_eq!((note.artifacts, note.databases, note.key, note.damaged.len()), (1, !ON_POSTGRES, true, 0));
    let closed = |name: &str| fs::metadata(to.join(name)).unwrap().permissions().mode() & 0o077 == 0;
    let artifact = format!("artifacts/sha256/{}", digest_of(FILE));
    for name in ["", "server.key", "backup.json", "artifacts", "artifacts/sha256", &artifact] {
        assert!(closed(name), "{name:?}");
    }
    for name in ["state.db", "logs.db"].iter().filter(|_| !ON_POSTGRES) {
        assert!(closed(name), "{name:?}");
    }
    let files = note.files.as_ref().unwrap();
    assert_eq!(files[&artifact], digest_of(FILE));
    assert_eq!(files.contains_key("state.db"), !ON_POSTGRES);
    assert!(files.contains_key("server.key") && files.contains_key("releases/channel/stable.json"), "{files:?}");
    assert!(!to.join("releases/.1.part").exists(), "what was not whole yet");
    let again = backup::take(&wanted(&data), &to).unwrap_err();
    assert!(matches!(again, BackupError::There { .. }), "{again}");

    // The first server is lost.
    let (key_id, key, organization) = (owner.key_id.clone(), owner.key.clone(), owner.organization.clone());
    drop(owner);
    let World { folder, server } = world;
    server.stop().await;
    fs::remove_dir_all(&data).unwrap();
    let new = folder.path().join("new");
    backup::restore(&to, &new, true).unwrap();
    let database = dump.map(|dump| Address::parse(&test_postgres::shared().unwrap().restored(&dump)).unwrap());
    let options = wiring::Options { folder: new.clone(), database, ..Default::default() };
    let world = World { folder, server: wiring::start(options).await.unwrap() };
    let client = world.login("api-key", &key_id, &key).await.unwrap();
    let list = ListLocationsRequest { organization_id: organization };
    let listed: ListLocationsResponse = client.app("ListLocations", list).await.unwrap();
    let there: Vec<String> = listed.locations.into_iter().map(|location| location.name).collect();
    let lines = client.lines(&part.id).await;
    for name in &names {
        assert!(there.contains(name), "{name} was acknowledged before and is not there");
        assert!(lines.contains(name), "the line of {name} was acknowledged before and is not there");
    }
    // Its secrets open, and its files are there.
    let request = GetRobotPartRequest { id: part.id.clone() };
    let found: GetRobotPartResponse = client.app("GetRobotPart", request).await.unwrap();
    let secret = found.part.unwrap().secrets.remove(0).secret;
    assert!(!secret.is_empty());
    world.login("robot-secret", &part.id, &secret).await.unwrap();
    assert_eq!(fs::read_to_string(new.join("artifacts/sha256").join(digest_of(FILE))).unwrap(), FILE);
    assert_eq!(fs::read_to_string(new.join("releases/channel/stable.json")).unwrap(), "{}");
    // And it goes on.
    client.call::<_, LogResponse>("/platform.app.v1.RobotService/Log", log("after".into())).await.unwrap();
    world.end().await;
}

#[tokio::test]
async fn what_is_no_whole_backup_is_refused() {
    let world = World::new().await;
    let owner = world.owner("Acme").await;
    publish(&world, &owner.organization).await;
    let path = |name: &str| world.folder.path().join(name);
    let (data, new) = (path("data"), path("new"));
    let refused = |from: &Path| {
        let why = backup::restore(from, &new, true).unwrap_err();
        assert!(!new.exists(), "half a server is none");
        why
    };
    assert!(matches!(refused(&data), BackupError::NoBackup { .. }));
    backup::take(&wanted(&data), &path("whole")).unwrap();
    let restored = backup::restore(&path("whole"), &data, true).unwrap_err();
    assert!(matches!(restored, BackupError::There { .. }), "a server is not written over: {restored}");
    let copy = |name: &str| {
        let to = path(name);
        assert!(Command::new("cp").arg("-a").arg(path("whole")).arg(&to).status().unwrap().success());
        to
    };
    let without_note = copy("a");
    fs::remove_file(without_note.join("backup.json")).unwrap();
    assert!(matches!(refused(&without_note), BackupError::NoBackup { .. }));
    let newer = copy("b");
    fs::write(newer.join("backup.json"), r#"{"format": 2}"#).unwrap();
    assert!(matches!(refused(&newer), BackupError::Newer { found: 2 }));
    let other_bytes = copy("c");
    fs::write(other_bytes.join("artifacts/sha256").join(digest_of(FILE)), "24 bytes of another kind").unwrap();
    assert!(matches!(refused(&other_bytes), BackupError::Damaged { .. }));
    let lost = copy("d");
    fs::remove_file(lost.join("artifacts/sha256").join(digest_of(FILE))).unwrap();
    assert!(matches!(refused(&lost), BackupError::Damaged { .. }));
    // One bit, where no checker of databases looks: each file has its digest.
    let flip = |folder: &Path, name: &str| {
        let mut bytes = fs::read(folder.join(name)).unwrap();
        *bytes.last_mut().unwrap() ^= 1;
        fs::write(folder.join(name), bytes).unwrap();
    };
    for (n, name) in
        ["server.key", "state.db", "logs.db"].into_iter().enumerate().filter(|(n, _)| *n == 0 || !ON_POSTGRES)
    {
        let flipped = copy(&format!("flipped{n}"));
        flip(&flipped, name);
        let why = refused(&flipped);
        assert!(matches!(&why, BackupError::Damaged { path } if path.ends_with(name)), "{name}: {why}");
    }
    let more = copy("more");
    fs::create_dir_all(more.join("releases")).unwrap();
    fs::write(more.join("releases/root.9.json"), "{}").unwrap();
    assert!(matches!(refused(&more), BackupError::Damaged { .. }), "a file that was not backed up");
    // A folder that somebody made for it stays, whatever becomes of the rest.
    fs::create_dir(path("mounted")).unwrap();
    assert!(backup::restore(&more, &path("mounted"), true).is_err());
    assert_eq!(fs::read_dir(path("mounted")).unwrap().count(), 0);

    // What lies where the unfinished backup goes: somebody's own folder, one that is being made, one that was broken off.
    let partial = path("own.partial");
    fs::create_dir(&partial).unwrap();
    fs::write(partial.join("diary"), "dear").unwrap();
    assert!(matches!(backup::take(&wanted(&data), &path("own")), Err(BackupError::Busy { .. })));
    assert_eq!(fs::read_to_string(partial.join("diary")).unwrap(), "dear");
    let lock = fs::File::create(partial.join(".unfinished-backup")).unwrap();
    lock.lock().unwrap();
    assert!(matches!(backup::take(&wanted(&data), &path("own")), Err(BackupError::Busy { .. })));
    assert!(partial.join("diary").exists());
    drop(lock);
    backup::take(&wanted(&data), &path("own")).unwrap();
    assert!(!partial.exists() && !path("own/diary").exists() && !path("own/.unfinished-backup").exists());
    assert!(matches!(
        backup::take(&wanted(&data), &path("x/..")),
        Err(BackupError::Unnamed { .. } | BackupError::There { .. })
    ));
    if !ON_POSTGRES {
        let cut = copy("e");
        let state = fs::read(cut.join("state.db")).unwrap();
        fs::write(cut.join("state.db"), &state[..state.len() / 2]).unwrap();
        refused(&cut);
        // A file that the registry names and that is gone is not passed over in silence.
        fs::remove_file(data.join("artifacts/sha256").join(digest_of(FILE))).unwrap();
        let missing = backup::take(&wanted(&data), &path("f")).unwrap_err();
        assert!(matches!(missing, BackupError::Missing { .. }), "{missing}");
        assert!(!path("f").exists() && !path("f.partial").exists());
    }
    if !ON_POSTGRES {
        a_key_that_opens_nothing_is_neither_backed_up_nor_put_back(&path("whole"), &path("keyless")).await;
    }
    // The program does the same.
    let program = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_platform-fleet"));
        let place = world::engine::url(world.folder.path()).map(|url| format!("--database={url}"));
        let output = command.args(arguments).args(place.filter(|_| arguments[0] == "backup")).output().unwrap();
        (output.status.code(), String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap())
    };
    fs::create_dir_all(data.join("artifacts/sha256")).unwrap();
    fs::write(data.join("artifacts/sha256").join(digest_of(FILE)), FILE).unwrap();
    let text = |name: &str| path(name).display().to_string();
    let made = program(&["backup", &text("g"), "--data", &text("data"), "--without-key"]);
    assert_eq!((made.0, &*made.2), (Some(0), ""), "{made:?}");
    assert!(made.1.contains("no key, 1 files") && !path("g/server.key").exists(), "{made:?}");
    let back = program(&["restore", &text("g"), "--data", &text("h")]);
    assert_eq!((back.0, &*back.2), (Some(0), ""), "{back:?}");
    assert!(back.1.contains("server's key was not restored"), "{back:?}");
    let refused = program(&["restore", &text("g"), "--data", &text("h")]);
    assert_eq!(refused.0, Some(1));
    assert!(refused.2.contains("there already"), "{refused:?}");
    world.end().await;
}

async fn a_key_that_opens_nothing_is_neither_backed_up_nor_put_back(whole: &Path, data: &Path) {
    let beside = |name: &str| data.with_file_name(name);
    backup::restore(whole, data, true).unwrap();
    let start = async |data: &Path| {
        let options = wiring::Options { folder: data.into(), ..wiring::Options::default() };
        wiring::start(options).await.map(|running| async { running.stop().await })
    };
    let key = data.join("server.key");
    let good = fs::read(&key).unwrap();
    // Without its key a server does not start, and makes none that would look like it.
    fs::remove_file(&key).unwrap();
    assert!(matches!(start(data).await.err(), Some(wiring::StartError::MissingKey { .. })));
    assert!(!key.exists());
    // With another one neither.
    fs::write(&key, [7; 32]).unwrap();
    fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
    assert!(matches!(start(data).await.err(), Some(wiring::StartError::OtherKey { .. })));
    let refused = backup::take(&wanted(data), &beside("useless")).unwrap_err();
    assert!(matches!(&refused, BackupError::OtherKey { path } if *path == key), "{refused}");
    assert!(!beside("useless").exists() && !beside("useless.partial").exists());
    fs::write(&key, "short").unwrap();
    assert!(matches!(backup::take(&wanted(data), &beside("useless")), Err(BackupError::Key(_))));
    // The rest of it is good all the same.
    backup::take(&Wanted { key: false, ..wanted(data) }, &beside("rest")).unwrap();
    // A backup of an earlier version, with a key that did not belong to it.
    let wrong = beside("wrong");
    assert!(Command::new("cp").arg("-a").arg(whole).arg(&wrong).status().unwrap().success());
    fs::write(wrong.join("server.key"), [7; 32]).unwrap();
    let note = fs::read_to_string(wrong.join("backup.json")).unwrap();
    let mut note: serde_json::Value = serde_json::from_str(&note).unwrap();
    note["files"]["server.key"] = digest_of(&"\u{7}".repeat(32)).into();
    fs::write(wrong.join("backup.json"), note.to_string()).unwrap();
    let again = beside("again");
    let refused = backup::restore(&wrong, &again, true).unwrap_err();
    assert!(matches!(&refused, BackupError::UselessKey { .. }), "{refused}");
    assert!(refused.to_string().contains("--without-key") && !again.exists(), "{refused}");
    // What it says to do.
    let restored = backup::restore(&wrong, &again, false).unwrap();
    assert!(!restored.key && !again.join("server.key").exists());
    fs::write(again.join("server.key"), &good).unwrap();
    fs::set_permissions(again.join("server.key"), fs::Permissions::from_mode(0o600)).unwrap();
    start(&again).await.unwrap().await;

    fs::write(&key, good).unwrap();
    start(data).await.unwrap().await;
}
