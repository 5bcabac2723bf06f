//! How a device is: asked at the device, and at the fleet server.

use std::{
    fs,
    io::{Read as _, Write as _},
    os::unix::{
        fs::{FileTypeExt as _, PermissionsExt as _},
        net::UnixStream,
        process::CommandExt as _,
    },
    process::Command,
    thread,
};

use serde_json::{Value, json};
use test_harness::real::stand_in;

use crate::world::{NOBODY, Signal, UpdatePhase, World, eventually, for_everybody, is_root, server, signal, update};

/// Waits for a document like this; gives it and the exit code.
#[track_caller]
fn until(world: &World, what: &str, wanted: impl Fn(&Value) -> bool) -> (Option<i32>, Value) {
    let found = eventually(what, || Some(world.local_status()).filter(|(_, document)| wanted(document)));
    found.unwrap_or_else(|trouble| panic!("{trouble}: {:#}\n{}", world.local_status().1, world.agent_said()))
}

fn says(document: &Value, words: &str) -> bool {
    let troubles = document["troubles"].as_array().expect("a list");
    troubles.iter().any(|text| text.as_str().is_some_and(|text| text.contains(words)))
}

/// The same document without what changes from one moment to the next.
fn still(mut status: Value) -> Value {
    for passing in ["uptime_seconds", "agent_uptime_seconds", "device_time", "logs"] {
        assert!(status[passing].take() != Value::Null, "{passing}");
    }
    // Told as the time that has passed, by a clock of milliseconds.
    assert!(status["network"]["since"].take() != Value::Null);
    for disk in status["disks"].as_array_mut().expect("a list") {
        disk["free_bytes"].take();
    }
    status
}

#[test]
fn the_device_says_what_the_fleet_server_was_told() {
    let world = World::running(&[("1.0.0", &[])]);
    world.configure(&json!({"advanced_settings": {"probation_minutes": 1, "debug": "perhaps"}}));
    world.until("1.0.0 to be kept", |status| {
        update(status).phase() == UpdatePhase::Committed && !status.complaints.is_empty()
    });
    let (code, document) = until(&world, "the configuration", |document| says(document, "advanced_settings.debug"));
    assert_eq!((code, &document["running"]), (Some(3), &json!(true)), "a complaint is a trouble");
    assert_eq!(document["cloud"]["reach"], "REACH_REACHED");
    assert_eq!(document["cloud"]["address"], json!(world.url));
    assert_eq!(document["cloud"]["part_id"], json!(world.device.part_id));
    let shown: Value = serde_json::from_str(&world.platform(&["machine", "status", "-o", "json"])).expect("JSON");
    assert_eq!(still(document["status"].clone()), still(shown[0]["status"].clone()), "the same, key by key");

    world.configure(&json!({"advanced_settings": {"probation_minutes": 1}}));
    // What this test cannot help: nobody vouches for the clock, no launcher started this agent, and disks are full.
    let known = ["the clock is not synchronised", "was started without its launcher", "is almost full"];
    let (code, document) = until(&world, "no other troubles", |document| {
        let troubles = document["troubles"].as_array().expect("a list");
        let expected = |text: &Value| text.as_str().is_some_and(|text| known.iter().any(|known| text.contains(known)));
        troubles.iter().all(expected)
    });
    assert_eq!(code, Some(if document["troubles"] == json!([]) { 0 } else { 3 }));
    let update = &document["status"]["updates"][0];
    assert_eq!(
        (&update["wanted"], &update["installed_version"], &update["running_version"], &update["percent"]),
        (&json!("stable"), &json!("1.0.0"), &json!("1.0.0"), &json!(0))
    );
    assert_eq!(document["status"]["server"]["pid"], json!(world.server_pid()));

    let table = world.ask_agent(&[]);
    let table = String::from_utf8(table.stdout).expect("UTF-8");
    for words in [
        "server    1.0.0, running as process",
        "versions  server runs 1.0.0, installed 1.0.0, wanted stable",
        "disk  ",
        "reached",
    ] {
        assert!(table.contains(words), "{words}\n{table}");
    }
    let remote = world.platform(&["machine", "status"]);
    for line in remote.lines().filter(|line| line.starts_with("versions") || line.starts_with("url")) {
        assert!(table.contains(line), "one wording: {line}\n{table}");
    }
}

#[test]
fn it_answers_without_a_network_and_while_it_waits_for_one() {
    let mut world = World::running(&[("1.0.0", &[])]);
    let pid = world.server_pid();
    world.stop_fleet();
    let (code, document) = until(&world, "offline", |document| document["cloud"]["reach"] == "REACH_UNREACHABLE");
    assert_eq!(code, Some(3));
    assert!(says(&document, "the fleet server cannot be reached"), "{document:#}");
    assert_eq!(document["status"]["server"]["pid"], json!(pid));
    let table = world.ask_agent(&[]);
    assert_eq!(table.status.code(), Some(3));
    let table = String::from_utf8(table.stdout).expect("UTF-8");
    assert!(table.contains("! the fleet server cannot be reached"), "{table}");
    world.stop_agent();

    // A fresh device that waits for a network before its first start.
    fs::remove_dir_all(world.options.root()).expect("removed");
    world.options.arguments.push("--wait".to_owned());
    world.options.minute = Some(60.0);
    world.start_agent();
    let (code, document) = until(&world, "an answer", |document| {
        document["running"] == true && document["cloud"]["reach"] == "REACH_UNREACHABLE"
    });
    assert_eq!((code, &document["status"]["server"]["phase"]), (Some(3), &json!("PHASE_NO_VERSION")), "{document:#}");
    assert!(says(&document, "no version of the machine server is installed yet"), "{document:#}");
}

#[test]
fn it_answers_in_safe_mode_and_says_so() {
    let mut world = World::running(&[("1.0.0", &[])]);
    world.stop_agent();
    world.options.arguments.push("--safe".to_owned());
    world.start_agent();
    let (code, document) = until(&world, "an answer", |document| document["running"] == true);
    assert_eq!((code, &document["status"]["agent"]["safe_mode"]), (Some(3), &json!(true)));
    assert!(says(&document, "the agent runs in safe mode"), "{document:#}");
    assert!(world.until_ready().pid > 0, "its machine server runs all the same");
    world.until("a report of it", |status| status.agent.as_ref().is_some_and(|agent| agent.safe_mode));
    assert!(world.platform(&["machine", "status"]).contains("! the agent runs in safe mode"));
}

#[test]
fn a_download_shows_how_far_it_is() {
    let world = World::running(&[("1.0.0", &[])]);
    let large = world.path("large");
    stand_in::build_padded("1.1.0", &[], 3_000_000, &large).expect("a stand-in");
    world.configure(&json!({"advanced_settings": {"update_bandwidth_kilobytes_per_second": 400}}));
    world.until_checked();
    world.factory.release("1.1.0", 7, &large).expect("a release");
    world.channel("stable", "1.1.0");
    let (_, document) = until(&world, "a part of the download", |document| {
        let update = &document["status"]["updates"][0];
        update["phase"] == "PHASE_DOWNLOADING" && update["percent"].as_u64().is_some_and(|percent| percent > 0)
    });
    let update = &document["status"]["updates"][0];
    assert_eq!((&update["target_version"], &update["installed_version"]), (&json!("1.1.0"), &json!("1.0.0")));
    assert!(update["percent"].as_u64().is_some_and(|percent| percent < 100), "{update:#}");
    until(&world, "the whole of it", |document| document["status"]["updates"][0]["phase"] == "PHASE_STAGED");
}

#[test]
fn why_it_was_started_is_known_and_nobody_there_is_said() {
    let mut world = World::running(&[("1.0.0", &[])]);
    let agent = |document: &Value| document["status"]["agent"].clone();
    let first = agent(&world.local_status().1);
    assert_eq!((&first["starts"], &first["crashes"], &first["safe_mode"]), (&json!(1), &json!(0), &json!(false)));
    // Its socket is left behind.
    world.kill_agent();
    let socket = world.options.root().join("run/console.sock");
    assert!(socket.exists());
    let (code, document) = world.local_status();
    assert_eq!((code, &document["running"]), (Some(1), &json!(false)));
    assert!(says(&document, "no agent runs in"), "{document:#}");
    let table = world.ask_agent(&[]);
    assert!(table.status.code() == Some(1) && table.stdout.is_empty());
    assert!(String::from_utf8_lossy(&table.stderr).contains("no agent runs in"));

    world.start_agent();
    let (_, document) = until(&world, "the next agent", |document| document["running"] == true);
    let second = agent(&document);
    assert_eq!((&second["starts"], &second["crashes"]), (&json!(2), &json!(1)));
    assert!(second["start_reason"].as_str().is_some_and(|reason| reason.contains("unasked")), "{second}");
    world.stop_agent();
    world.start_agent();
    let (_, document) = until(&world, "the third agent", |document| document["running"] == true);
    let third = agent(&document);
    assert_eq!((&third["starts"], &third["crashes"]), (&json!(3), &json!(1)));
    assert!(third["start_reason"].as_str().is_some_and(|reason| reason.contains("stopped and started")), "{third}");
    world.until("a report of it", |status| status.agent.as_ref().is_some_and(|agent| agent.starts == 3));
}

#[test]
fn the_socket_is_the_agents_users_alone() {
    let place = tempfile::tempdir().expect("a folder");
    let bin = for_everybody(place.path(), &["platform-agent"]);
    let mut world = World::at(place.path(), &[("1.0.0", &[])]);
    world.start_agent();
    world.until_ready();
    let (root, run) = (world.options.root(), world.options.root().join("run"));
    let socket = fs::symlink_metadata(run.join("console.sock")).expect("it is there");
    assert!(socket.file_type().is_socket());
    assert_eq!(socket.permissions().mode() & 0o777, 0o600);
    assert_eq!(fs::metadata(&run).expect("there").permissions().mode() & 0o777, 0o700);
    if !is_root() {
        eprintln!("not root: nobody else to ask");
        return;
    }
    let ask = || {
        let mut command = Command::new(bin.join("platform-agent"));
        command.args(["status", "--json", "--root"]).arg(&root).uid(NOBODY).gid(NOBODY);
        let output = command.output().expect("it starts");
        (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let refused = |(code, said): (Option<i32>, String)| {
        assert_eq!(code, Some(77), "{said}");
        assert!(said.contains("\"running\": false") && said.contains("sudo") && !said.contains("hostname"), "{said}");
    };
    refused(ask());
    // Also when somebody has opened the folders on the way.
    for folder in [world.options.folder.clone(), root.clone(), run] {
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o755)).expect("set");
    }
    refused(ask());
}

#[test]
fn nonsense_and_crowds_at_the_socket_do_no_harm() {
    let world = World::running(&[("1.0.0", &[])]);
    let socket = world.options.root().join("run/console.sock");
    let ask = |words: &[u8]| {
        let mut stream = UnixStream::connect(&socket).expect("connected");
        stream.write_all(words).expect("asked");
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        String::from_utf8_lossy(&answer).into_owned()
    };
    for nonsense in [&b"GET / HTTP/1.1\r\n"[..], &[0xff; 64], b"status 99999\n"] {
        assert_eq!(ask(nonsense), "error the question for the status is \"status 1\"\n");
    }
    let silent: Vec<_> = (0..3).map(|_| UnixStream::connect(&socket).expect("connected")).collect();
    thread::scope(|scope| {
        let crowd: Vec<_> = (0..20).map(|_| scope.spawn(|| ask(b"status 1\n"))).collect();
        for one in crowd {
            let answer = one.join().expect("answered");
            assert!(answer.starts_with("status "), "{answer}");
        }
    });
    drop(silent);
    assert_eq!(world.local_status().1["running"], true);
    assert!(!world.agent_said().contains("busy for"), "{}", world.agent_said());
}

#[test]
fn an_operator_sees_a_rollback_its_reason_and_can_have_it_tried_again() {
    let mut world = World::running(&[("1.0.0", &[])]);
    world.configure(&json!({"advanced_settings": {"probation_minutes": 3}}));
    world.release("1.1.0", &[("crash-after-ms", "300")]);
    world.channel("stable", "1.1.0");
    world.until("1.1.0 to be staged", |status| update(status).phase() == UpdatePhase::Staged);
    world.mark_for_restart();
    world.until("1.0.0 to be back", |status| {
        update(status).phase() == UpdatePhase::RolledBack && server(status).version == "1.0.0"
    });
    let shown = eventually("the rollback", || {
        Some(world.platform(&["machine", "status"])).filter(|shown| shown.contains("server runs 1.0.0"))
    });
    let shown = shown.unwrap_or_else(|trouble| panic!("{trouble}: {}", world.platform(&["machine", "status"])));
    for words in [
        "update    server went back to the version before",
        "wanted stable, failed here: 1.1.0",
        "! update of the server: 1.1.0 was rolled back: it ended unasked while it was on probation; choose another",
    ] {
        assert!(shown.contains(words), "{words}\n{shown}");
    }
    let (code, document) = world.local_status();
    assert!(code == Some(3) && says(&document, "1.1.0 was rolled back: it ended unasked"), "{document:#}");
    let lines = eventually("the line of the log", || {
        Some(world.lines("platform-server: 1.1.0 was rolled back")).filter(|lines| !lines.is_empty())
    });
    let lines = lines.unwrap_or_else(|trouble| panic!("{trouble}\n{}", world.agent_said()));
    assert_eq!(lines.iter().map(|line| line.level.as_str()).collect::<Vec<_>>(), ["warn"], "once, as a warning");
    let logs = world.platform(&["part", "logs", "--level", "warn"]);
    assert!(logs.contains("1.1.0 was rolled back"), "{logs}");

    let said = world.platform(&["machine", "retry-update", "--product", "machine-server"]);
    assert!(said.contains("try their updates again"), "{said}");
    // A device in trouble reports each minute, and at once when something happens.
    signal(world.server_pid(), Signal::KILL);
    world.until("another try", |status| update(status).retried > 0);
}
