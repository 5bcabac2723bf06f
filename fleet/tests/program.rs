//! The program itself: its command line, its exit codes, its death.

use std::{fs, os::unix::fs::PermissionsExt, path::Path, process::Command};

#[path = "program/renewal.rs"]
mod renewal;
mod world;

#[path = "program/starting.rs"]
mod starting;

use api::pb::platform::{
    app::v1::*,
    common::v1::LogEntry,
    fleet::v1::{UploadLogsRequest, UploadLogsResponse},
};
use world::{
    Client,
    process::{Server, init, login, place, run},
};

#[test]
fn mistakes_are_told_in_one_sentence_with_their_exit_code() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let data = data.to_str().unwrap();
    let table: [(&[&str], i32, &str); 10] = [
        (&["serve", "--address", "fleet.example.com", "--data", data], 2, "https://"),
        (&["serve", "--frobnicate"], 2, "--frobnicate"),
        (&["serve", "--listen", "nowhere"], 2, "nowhere"),
        (&["serve", "--listen", "0.0.0.0:0", "--data", data], 2, "--insecure"),
        (&["serve", "--database", "mysql://somewhere/fleet", "--data", data], 2, "postgres://"),
        (
            &["init", "--org", "x", "--email", "a@b.example", "--database", "postgres://u:pw@h/f", "--data", data],
            2,
            "PGPASSWORD",
        ),
        (
            &["serve", "--database", "postgres://u@127.0.0.1:1/f", "--listen", "127.0.0.1:0", "--data", data],
            4,
            "127.0.0.1:1/f",
        ),
        (
            &["serve", "--listen", "127.0.0.1:0", "--data", data, "--tls-cert", "/none", "--tls-key", "/none"],
            1,
            "/none",
        ),
        (&["init", "--org", "", "--email", "a@b.example", "--data", data], 1, "--org"),
        (&["init", "--org", "x", "--email", "nobody", "--data", data], 1, "e-mail"),
    ];
    for (arguments, expected, mentions) in table {
        let (code, _, err) = run(arguments);
        assert_eq!(code, expected, "{arguments:?}: {err}");
        assert!(err.contains(mentions), "{arguments:?}: {err}");
        assert!(!err.contains("panicked"), "{err}");
    }
}

#[test]
fn a_mistyped_folder_does_not_become_a_server() {
    if world::engine::ON_POSTGRES {
        return; // there the folder has the key only, which the database asks for
    }
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("fleet-dat");
    let table: [&[&str]; 4] = [
        &["audit"],
        &["user", "add", "--email", "a@b.example"],
        &["user", "key", "--email", "a@b.example"],
        &["user", "invite", "--org", "Acme", "--email", "a@b.example", "--address", "https://fleet.example"],
    ];
    for arguments in table {
        let (code, _, err) = run(&[arguments, &["--data", data.to_str().unwrap()]].concat());
        assert_eq!(code, 4, "{arguments:?}: {err}");
        assert!(err.contains("no server in") && err.contains("--data"), "{arguments:?}: {err}");
        assert!(!data.exists(), "{arguments:?}");
    }
}

#[test]
fn a_port_in_use_is_said_and_the_files_are_not_touched() {
    let folder = tempfile::tempdir().unwrap();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let data = folder.path().join("data");
    let (code, _, err) = run(&["serve", "--listen", &address, "--data", data.to_str().unwrap()]);
    assert_eq!(code, 3, "{err}");
    assert!(err.contains("in use"), "{err}");
    assert!(!data.exists());
}

#[test]
fn a_newer_database_a_foreign_file_and_a_bad_folder_are_refused() {
    if world::engine::ON_POSTGRES {
        return; // about files; the same refusals by a server are in store/db/postgres/tests.rs
    }
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    init(&data);
    assert_eq!(fs::metadata(&data).unwrap().permissions().mode() & 0o777, 0o700);
    let database = rusqlite::Connection::open(data.join("state.db")).unwrap();
    database.execute("INSERT INTO migrations VALUES (9999, 'from the future', 0)", []).unwrap();
    drop(database);
    let serve = |data: &Path| run(&["serve", "--listen", "127.0.0.1:0", "--data", data.to_str().unwrap()]);
    let (code, _, err) = serve(&data);
    assert_eq!(code, 5, "{err}");
    assert!(err.contains("newer version"), "{err}");

    let foreign = folder.path().join("foreign");
    fs::create_dir(&foreign).unwrap();
    fs::write(foreign.join("state.db"), "these are not the rows you are looking for".repeat(100)).unwrap();
    let (code, _, err) = serve(&foreign);
    assert_eq!(code, 4, "{err}");
    assert!(err.contains("not a database"), "{err}");

    let file = folder.path().join("file");
    fs::write(&file, "").unwrap();
    let (code, _, err) = serve(&file);
    assert_eq!(code, 4, "{err}");
    assert!(err.contains("data folder"), "{err}");

    let others = folder.path().join("others");
    fs::create_dir(&others).unwrap();
    fs::write(others.join("letters"), "").unwrap();
    let (code, _, err) = serve(&others);
    assert_eq!(code, 4, "{err}");
    assert!(err.contains("none of this server's"), "{err}");
    assert_ne!(fs::metadata(&others).unwrap().permissions().mode() & 0o077, 0, "its mode is as it was");
}

#[tokio::test]
async fn no_acknowledged_write_is_lost_by_kill_9() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let (organization_id, key_id, key) = init(&data);
    let mut names: Vec<String> = Vec::new();
    for round in 0..4 {
        let mut server = Server::start(&data);
        let client = server.client(&key_id, &key).await;
        // What an earlier server acknowledged is all there.
        let list = ListLocationsRequest { organization_id: organization_id.clone() };
        let listed: ListLocationsResponse = client.app("ListLocations", list).await.unwrap();
        let there: Vec<String> = listed.locations.into_iter().map(|location| location.name).collect();
        for name in &names {
            assert!(there.contains(name), "{name} was acknowledged and is gone");
        }
        // Many at once, and the kill comes in the middle of them.
        let (acknowledged, mut heard) = tokio::sync::mpsc::unbounded_channel();
        for n in 0..200 {
            let (client, acknowledged, organization_id) =
                (client.clone(), acknowledged.clone(), organization_id.clone());
            tokio::spawn(async move {
                let name = format!("{round}-{n}");
                let request = CreateLocationRequest { organization_id, name: name.clone(), parent_location_id: None };
                if client.app::<_, CreateLocationResponse>("CreateLocation", request).await.is_ok() {
                    let _ = acknowledged.send(name);
                }
            });
        }
        drop(acknowledged);
        for _ in 0..20 {
            names.extend(heard.recv().await);
        }
        server.process.kill().unwrap();
        server.process.wait().unwrap();
        while let Some(name) = heard.recv().await {
            names.push(name);
        }
    }
    assert!(names.len() >= 80, "{}", names.len());
}

/// Half of the writers number their batches, as our agent does, and repeat what was not acknowledged; the others call Log.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_acknowledged_log_line_is_lost_by_kill_9() {
    const WRITERS: u64 = 8;
    const BATCHES: u64 = 20;
    const LINES: u64 = 5;
    let lines = |writer: &str, number: u64| -> Vec<String> {
        (0..LINES).map(|line| format!("{writer}.{number}.{line}")).collect()
    };
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let keys = init(&data);
    let mut server = Server::start(&data);
    let owner = server.owner(&keys).await;
    let location = owner.location("North", None).await;
    let part = owner.main_part(&owner.machine(&location, "arm").await).await;
    let secret = part.secrets[0].secret.clone();
    // Who wrote, which batch of theirs, whether it was acknowledged.
    let mut sent: Vec<(String, u64, bool)> = Vec::new();
    for round in 0..3 {
        let device = server.login("robot-secret", &part.id, &secret).await;
        let (tell, mut heard) = tokio::sync::mpsc::unbounded_channel();
        for n in 0..WRITERS {
            let (device, id, tell) = (device.clone(), part.id.clone(), tell.clone());
            tokio::spawn(async move {
                let writer = format!("{}-{round}-{n}", if n % 2 == 0 { "spool" } else { "plain" });
                for number in 1..=BATCHES {
                    let acknowledged = write_lines(&device, &id, &writer, number, lines(&writer, number)).await;
                    let _ = tell.send((writer.clone(), number, acknowledged));
                    if !acknowledged {
                        return;
                    }
                }
            });
        }
        drop(tell);
        // The kill comes in the middle of them.
        for _ in 0..30 {
            sent.extend(heard.recv().await);
        }
        server.process.kill().unwrap();
        server.process.wait().unwrap();
        while let Some(one) = heard.recv().await {
            sent.push(one);
        }
        server = Server::start(&data);
        let there = server.client(&keys.1, &keys.2).await.lines(&part.id).await;
        for (writer, number, _) in sent.iter().filter(|(_, _, acknowledged)| *acknowledged) {
            for line in lines(writer, *number) {
                let times = there.iter().filter(|message| **message == line).count();
                assert_eq!(times, 1, "{line} was acknowledged");
            }
        }
        // What nobody acknowledged is there as a whole or not at all, and once when it is sent again.
        let device = server.login("robot-secret", &part.id, &secret).await;
        for (writer, number, acknowledged) in sent.iter_mut().filter(|(_, _, acknowledged)| !*acknowledged) {
            let wanted = lines(writer, *number);
            let count = there.iter().filter(|message| wanted.contains(message)).count();
            assert!(count == 0 || count == wanted.len(), "{count} lines of {writer}.{number}");
            if writer.starts_with("spool") {
                *acknowledged = write_lines(&device, &part.id, writer, *number, wanted).await;
                assert!(*acknowledged, "{writer}.{number}");
            }
        }
    }
    let there = server.client(&keys.1, &keys.2).await.lines(&part.id).await;
    for (writer, number, _) in sent.iter().filter(|(_, _, acknowledged)| *acknowledged) {
        for line in lines(writer, *number) {
            assert_eq!(there.iter().filter(|message| **message == line).count(), 1, "{line} at the end");
        }
    }
    assert!(sent.iter().filter(|(_, _, acknowledged)| *acknowledged).count() >= 80, "{}", sent.len());
}

/// One batch by the call that the writer's name says; whether it was acknowledged.
async fn write_lines(device: &Client, part: &str, writer: &str, number: u64, lines: Vec<String>) -> bool {
    let entry = |message| LogEntry { level: "info".into(), message, ..LogEntry::default() };
    let logs = lines.into_iter().map(entry).collect();
    if writer.starts_with("plain") {
        let request = LogRequest { id: part.into(), logs };
        return device.call::<_, LogResponse>("/platform.app.v1.RobotService/Log", request).await.is_ok();
    }
    let request = UploadLogsRequest { part_id: part.into(), spool_id: writer.into(), batch_number: number, logs };
    let path = "/platform.fleet.v1.DeviceService/UploadLogs";
    device.call::<_, UploadLogsResponse>(path, request).await.is_ok_and(|reply| reply.acknowledged >= number)
}

fn terminate(server: &Server) {
    let told = Command::new("kill").args(["-TERM", &server.process.id().to_string()]).status().unwrap();
    assert!(told.success());
}

/// It tells what it does.
fn start_logged(data: &Path, log: &Path) -> Server {
    let file = fs::File::create(log).unwrap();
    Server::start_with(data, |command| {
        command.args(["--log-format", "json"]).env("RUST_LOG", "fleet=debug").stderr(file)
    })
}

/// It ended because nobody was left, and not because it had waited long enough.
fn nothing_was_cut_off(log: &Path) {
    let told = fs::read_to_string(log).unwrap();
    assert!(told.contains("/platform.app.v1.AppService/"), "it tells of calls: {told}");
    assert!(!told.contains("did not end in time"), "{told}");
}

#[tokio::test(flavor = "multi_thread")]
async fn stops_in_order_when_asked() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let (_, key_id, key) = init(&data);
    let log = folder.path().join("log");
    let mut server = start_logged(&data, &log);
    let client = server.client(&key_id, &key).await;
    client.app::<_, ListOrganizationsResponse>("ListOrganizations", ListOrganizationsRequest {}).await.unwrap();
    terminate(&server);
    // With a client connected and idle: the connection is told, and does not hold up the end.
    assert_eq!(server.process.wait().unwrap().code(), Some(0));
    nothing_was_cut_off(&log);
    // init works beside nobody and after somebody.
    init(&data);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_log_that_goes_to_a_file_has_no_colours() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let (_, key_id, key) = init(&data);
    let log = folder.path().join("log");
    let file = fs::File::create(&log).unwrap();
    let mut server =
        Server::start_with(&data, |command| command.env_remove("NO_COLOR").env("RUST_LOG", "fleet=debug").stderr(file));
    let client = server.client(&key_id, &key).await;
    client.app::<_, ListOrganizationsResponse>("ListOrganizations", ListOrganizationsRequest {}).await.unwrap();
    terminate(&server);
    assert_eq!(server.process.wait().unwrap().code(), Some(0));
    let told = fs::read_to_string(&log).unwrap();
    assert!(told.contains("/platform.app.v1.AppService/ListOrganizations") && !told.contains('\u{1b}'), "{told}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_is_told_of_the_end_and_a_call_under_way_is_finished() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let keys = init(&data);
    let log = folder.path().join("log");
    let mut server = start_logged(&data, &log);
    let owner = server.owner(&keys).await;
    let client = owner.client.clone();
    let location = owner.location("North", None).await;
    let part = owner.main_part(&owner.machine(&location, "arm").await).await.id;
    let tail = TailRobotPartLogsRequest { id: part.clone(), ..Default::default() };
    let mut stream = client.stream("/viam.app.v1.AppService/TailRobotPartLogs", tail).await;

    // A call whose message is half there.
    let address = server.url.strip_prefix("http://").unwrap();
    let mut slow = tokio::net::TcpStream::connect(address).await.unwrap();
    let body = serde_json::json!({"organizationId": owner.organization, "name": "South"}).to_string();
    let token = client.token.as_deref().unwrap();
    let head = format!(
        "POST /platform.app.v1.AppService/CreateLocation HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n\
         Authorization: Bearer {token}\r\nExpect: 100-continue\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    tokio::io::AsyncWriteExt::write_all(&mut slow, head.as_bytes()).await.unwrap();
    // Said when the operation begins to wait for the message.
    let mut go_on = [0; b"HTTP/1.1 100 Continue\r\n\r\n".len()];
    let heard = tokio::io::AsyncReadExt::read_exact(&mut slow, &mut go_on);
    tokio::time::timeout(world::PATIENCE, heard).await.expect("the server reads on").unwrap();
    tokio::io::AsyncWriteExt::write_all(&mut slow, &body.as_bytes()[..10]).await.unwrap();

    terminate(&server);
    let end = tokio::time::timeout(world::PATIENCE, stream.message()).await.expect("the stream is told").unwrap_err();
    assert_eq!(end.code(), tonic::Code::Unavailable, "{end:?}");
    assert_eq!(tonic_types::StatusExt::get_details_error_info(&end).unwrap().reason, "SHUTTING_DOWN");
    tokio::io::AsyncWriteExt::write_all(&mut slow, &body.as_bytes()[10..]).await.unwrap();
    let mut said = Vec::new();
    let all = tokio::io::AsyncReadExt::read_to_end(&mut slow, &mut said);
    tokio::time::timeout(world::PATIENCE, all).await.expect("the call is answered").unwrap();
    let said = String::from_utf8_lossy(&said);
    assert!(said.starts_with("HTTP/1.1 200") && said.contains("South"), "{said}");
    assert!(server.process.wait().unwrap().success());
    nothing_was_cut_off(&log);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_log_has_a_line_for_each_call_and_no_secret() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let (_, key_id, key) = init(&data);
    let log = folder.path().join("log");
    let mut server = start_logged(&data, &log);
    let client = server.client(&key_id, &key).await;
    client.app::<_, ListOrganizationsResponse>("ListOrganizations", ListOrganizationsRequest {}).await.unwrap();
    let missing = GetRobotRequest { id: "00000000-0000-4000-8000-000000000000".into() };
    client.app::<_, GetRobotResponse>("GetRobot", missing).await.unwrap_err();
    terminate(&server);
    assert!(server.process.wait().unwrap().success());
    let text = fs::read_to_string(&log).unwrap();
    let lines: Vec<serde_json::Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let of = |operation: &str| {
        let path = format!("/platform.app.v1.AppService/{operation}");
        lines.iter().find(|line| line["operation"] == path).unwrap_or_else(|| panic!("no {operation} in {text}"))
    };
    assert_eq!(of("ListOrganizations")["code"], "Ok");
    assert_eq!(of("GetRobot")["code"], "NotFound");
    assert!(of("GetRobot")["ms"].is_u64() && !of("GetRobot")["request_id"].as_str().unwrap().is_empty());
    assert!(of("GetRobot")["who"].as_str().unwrap().contains(&key_id), "{}", of("GetRobot"));
    for secret in [&*key, client.token.as_deref().unwrap()] {
        assert!(!text.contains(secret), "{text}");
    }
}

#[tokio::test]
async fn people_are_added_and_invited_beside_a_running_server() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let place = place(&data);
    let place: Vec<&str> = place.iter().map(String::as_str).collect();
    let (organization, key_id, key) = init(&data);
    let server = Server::start(&data);
    let owner = server.client(&key_id, &key).await;

    let user = |arguments: &[&str]| {
        let (code, out, err) = run(&[&["user"], arguments, &["--json"], &*place].concat());
        let fields: serde_json::Value = serde_json::from_str(&out).unwrap_or_default();
        (code, fields, err)
    };
    let (code, ann, err) = user(&["add", "--email", "ann@example.org", "--org", "Acme", "--role", "operator"]);
    assert_eq!((code, &*err), (0, ""));
    let text = |fields: &serde_json::Value, name: &str| fields[name].as_str().unwrap().to_owned();
    let client = server.client(&text(&ann, "key_id"), &text(&ann, "key")).await;
    let seen: ListOrganizationsResponse = client.app("ListOrganizations", ListOrganizationsRequest {}).await.unwrap();
    assert_eq!(seen.organizations[0].id, organization);
    let request = ListOrganizationMembersRequest { organization_id: organization.clone() };
    let listed: ListOrganizationMembersResponse = owner.app("ListOrganizationMembers", request).await.unwrap();
    assert_eq!(listed.members[0].user_id, text(&ann, "user_id"));

    let (code, another, _) = user(&["key", "--email", "ann@example.org"]);
    assert_eq!((code, text(&another, "user_id")), (0, text(&ann, "user_id")));
    server.client(&text(&another, "key_id"), &text(&another, "key")).await;

    let (code, only, _) = user(&["key", "--email", "ann@example.org", "--only"]);
    assert_eq!(code, 0);
    server.client(&text(&only, "key_id"), &text(&only, "key")).await;
    // The server looks several times a second at what other programs did.
    let ends = async {
        loop {
            match client.app::<_, ListOrganizationsResponse>("ListOrganizations", ListOrganizationsRequest {}).await {
                Ok(_) => tokio::time::sleep(std::time::Duration::from_millis(20)).await,
                Err(refused) => return refused.code(),
            }
        }
    };
    let ended = tokio::time::timeout(world::PATIENCE, ends).await.expect("her present token ends");
    assert_eq!(ended, tonic::Code::Unauthenticated);
    for ended in [&ann, &another] {
        let again = login(&server.url, "api-key", &text(ended, "key_id"), &text(ended, "key")).await;
        assert_eq!(again.map(drop).unwrap_err().code(), tonic::Code::Unauthenticated);
    }

    let address = format!("{}/", server.url);
    let (code, link, _) =
        user(&["invite", "--org", &organization, "--email", "bob@example.org", "--address", &address]);
    assert_eq!(code, 0);
    assert!(text(&link, "link").starts_with(&format!("{}/invite/", server.url)), "{link}");
    let table: [(&[&str], &str); 4] = [
        (&["add", "--email", "ann@example.org"], "already"),
        (&["add", "--email", "carl@example.org", "--org", "Nowhere"], "no organization"),
        (&["key", "--email", "bob@example.org"], "no user"),
        (&["invite", "--org", "Acme", "--email", "ann@example.org", "--address", &address], "member already"),
    ];
    for (arguments, says) in table {
        let (code, _, err) = user(arguments);
        assert!(code == 1 && err.contains(says), "{arguments:?}: {code} {err}");
    }
}
