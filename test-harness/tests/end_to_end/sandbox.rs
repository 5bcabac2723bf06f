//! `make sandbox`: the whole main job from one command, and nothing left when it ends.

use std::{
    fs,
    os::unix::{fs::PermissionsExt as _, process::CommandExt as _},
    path::Path,
    process::Command,
};

use api::pb::platform::{
    app::v1::{ListOrganizationsRequest, app_service},
    fleet::v1::{GetPartStatusRequest, admin_service, server_status},
};
use serde_json::Value;
use test_harness::real::{
    fleet::{Owner, call, client},
    process::Running,
    programs,
};

use crate::world::{NOBODY, Signal, eventually, for_everybody, is_root};

/// The programs that a sandbox consists of.
const PROGRAMS: [&str; 4] = ["sandbox", "platform-fleet", "platform-agent", "stand-in-server"];
/// Starts a sandbox; gives the first line that it prints.
fn sandbox(program: &Path, folder: &Path, arguments: &[&str], user: Option<u32>) -> (Running, String) {
    let mut command = Command::new(program);
    command.args(["--listen", "127.0.0.1:0", "--data"]).arg(folder).args(arguments);
    if let Some(user) = user {
        command.uid(user).gid(user);
    }
    let log = folder.with_extension("log");
    Running::start(command, "sandbox", &log, true).unwrap_or_else(|trouble| {
        let agent = fs::read_to_string(folder.join("device/agent.log")).unwrap_or_default();
        panic!("{trouble}\n{agent}")
    })
}

/// Ctrl-C, and nothing is left that has to do with this folder.
#[track_caller]
fn interrupted(sandbox: Running, folder: &Path) {
    assert_eq!(sandbox.end_by(Signal::INT).unwrap(), Some(0));
    assert_eq!(processes_about(folder), Vec::<String>::new(), "nothing is left");
}

/// Command lines that name this folder.
fn processes_about(folder: &Path) -> Vec<String> {
    let folder = folder.to_str().expect("a name");
    let processes = fs::read_dir("/proc").expect("a list of processes").flatten();
    let lines = processes.filter_map(|process| fs::read(process.path().join("cmdline")).ok());
    let lines = lines.map(|line| String::from_utf8_lossy(&line).replace('\0', " "));
    lines.filter(|line| line.contains(folder)).collect()
}

fn field<'a>(json: &'a Value, name: &str) -> &'a str {
    json[name].as_str().unwrap_or_else(|| panic!("{name} in {json}"))
}

fn owner(json: &Value) -> Owner {
    Owner {
        organization_id: field(json, "organization_id").into(),
        key_id: field(json, "key_id").into(),
        key: api::Secret::new(field(json, "key")),
    }
}

#[test]
fn scripts_get_one_line_and_a_second_start_keeps_everything() {
    let place = tempfile::tempdir().unwrap();
    let folder = place.path().join("sandbox");
    let program = programs::find("sandbox").unwrap();
    let (first, line) = sandbox(&program, &folder, &["--json", "--no-agent"], None);
    let mut before: Value = serde_json::from_str(&line).unwrap();
    let mut names: Vec<_> = before.as_object().unwrap().keys().map(String::as_str).collect();
    names.sort_unstable();
    let documented = ["key", "key_id", "location_id", "machine_id", "organization_id", "part_id", "part_secret", "url"];
    assert_eq!(names, documented);
    let memory = folder.join("sandbox.json");
    assert_eq!(fs::metadata(&memory).unwrap().permissions().mode() & 0o777, 0o600, "it holds the key");
    interrupted(first, &folder);

    let (second, line) = sandbox(&program, &folder, &["--json", "--no-agent"], None);
    let after: Value = serde_json::from_str(&line).unwrap();
    before["url"] = after["url"].clone();
    assert_eq!(after, before);
    let client = client(field(&after, "url"), &owner(&after)).unwrap();
    let organizations = call(&client, app_service::LIST_ORGANIZATIONS, &ListOrganizationsRequest {}).unwrap();
    assert_eq!(organizations.organizations[0].id, field(&after, "organization_id"));
    interrupted(second, &folder);
}

#[test]
fn an_ordinary_user_sees_a_live_machine_twice() {
    let place = tempfile::tempdir().unwrap();
    let folder = place.path().join("sandbox");
    // Whoever is root becomes nobody, and nobody may not even look into the folder of the build.
    let user = is_root().then_some(NOBODY);
    let program = match user {
        Some(_) => for_everybody(place.path(), &PROGRAMS).join("sandbox"),
        None => programs::find("sandbox").unwrap(),
    };
    for start in ["first", "second"] {
        let (sandbox, line) = sandbox(&program, &folder, &["--json", "--minute", "1"], user);
        let json: Value = serde_json::from_str(&line).unwrap();
        let client = client(field(&json, "url"), &owner(&json)).unwrap();
        let request = GetPartStatusRequest { part_id: field(&json, "part_id").into() };
        let status = call(&client, admin_service::GET_PART_STATUS, &request).unwrap();
        let server = status.status.and_then(|status| status.server).unwrap_or_default();
        assert!(status.live, "{start}");
        assert_eq!((server.phase(), server.version.as_str()), (server_status::Phase::Running, "1.1.0"), "{start}");
        interrupted(sandbox, &folder);
    }
}

#[test]
fn the_main_job_on_postgresql_and_its_password_is_told_to_nobody() {
    if test_postgres::database_or_skip("the main job on PostgreSQL").is_none() {
        return;
    }
    const PASSWORD: &str = "battery-staple-5000";
    let options = test_postgres::Options { password: Some(PASSWORD.into()), tls: None };
    let database = test_postgres::Server::start(&options).unwrap();
    let name = database.database();
    let name = name.rsplit('/').next().unwrap();
    let url = format!("{}?sslmode=disable", database.tcp_url(name));

    let place = tempfile::tempdir().unwrap();
    let folder = place.path().join("sandbox");
    let user = is_root().then_some(NOBODY);
    let program = match user {
        Some(_) => for_everybody(place.path(), &PROGRAMS).join("sandbox"),
        None => programs::find("sandbox").unwrap(),
    };
    for start in ["first", "second"] {
        let mut command = Command::new(&program);
        command.args(["--listen", "127.0.0.1:0", "--json", "--minute", "1", "--database", &url, "--data"]).arg(&folder);
        command.env("PGPASSWORD", PASSWORD).env("RUST_LOG", "debug,h2=info,hyper=info");
        if let Some(user) = user {
            command.uid(user).gid(user);
        }
        let (sandbox, line) = Running::start(command, "sandbox", &folder.with_extension("log"), true).unwrap();
        let json: Value = serde_json::from_str(&line).unwrap_or_else(|_| panic!("{line} {}", sandbox.said()));
        let client = client(field(&json, "url"), &owner(&json)).unwrap();
        let request = GetPartStatusRequest { part_id: field(&json, "part_id").into() };
        let status = call(&client, admin_service::GET_PART_STATUS, &request).unwrap();
        let server = status.status.and_then(|status| status.server).unwrap_or_default();
        assert!(status.live, "{start}");
        assert_eq!((server.phase(), server.version.as_str()), (server_status::Phase::Running, "1.1.0"), "{start}");
        let parts = "SELECT COUNT(*) FROM fleet_state.parts WHERE id = '";
        assert_eq!(database.sql(name, &format!("{parts}{}'", field(&json, "part_id"))), "1", "it is really there");
        let told = processes_about(&folder).join("\n");
        assert!(told.contains("--database") && !told.contains(PASSWORD), "{told}");
        interrupted(sandbox, &folder);
        let log = fs::read_to_string(folder.join("fleet.log")).unwrap();
        assert!(log.contains("executing statement"), "the driver's own log is on");
        assert!(!log.contains(PASSWORD) && !log.contains(field(&json, "part_secret")));
    }
    assert!(!folder.join("fleet/state.db").exists());
}

#[test]
fn a_port_in_use_is_said_and_nothing_is_left() {
    let place = tempfile::tempdir().unwrap();
    let folder = place.path().join("sandbox");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let output = Command::new(programs::find("sandbox").unwrap())
        .args(["--listen", &address, "--json", "--data"])
        .arg(&folder)
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("in use"), "{said}");
    assert_eq!(processes_about(&folder), Vec::<String>::new());
}

#[test]
fn when_one_of_its_programs_ends_the_sandbox_ends_and_says_so() {
    let place = tempfile::tempdir().unwrap();
    let folder = place.path().join("sandbox");
    let (mut sandbox, line) = sandbox(&programs::find("sandbox").unwrap(), &folder, &["--json", "--no-agent"], None);
    let _: Value = serde_json::from_str(&line).unwrap();
    let fleet = fs::read_dir("/proc").unwrap().flatten().find_map(|process| {
        let line = fs::read(process.path().join("cmdline")).ok()?;
        let line = String::from_utf8_lossy(&line).into_owned();
        let is_it = line.contains("platform-fleet\0serve") && line.contains(folder.to_str()?);
        is_it.then(|| process.file_name().to_str()?.parse::<u32>().ok())?
    });
    crate::world::signal(fleet.expect("a fleet server"), Signal::KILL);
    assert_eq!(sandbox.wait().unwrap(), Some(1));
    assert!(sandbox.said().contains("platform-fleet ended by itself"), "{}", sandbox.said());
    eventually("the end of everything", || processes_about(&folder).is_empty().then_some(())).unwrap();
}
