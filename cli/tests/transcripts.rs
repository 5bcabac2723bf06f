//! What is typed, what is shown, and the exit code, command by command.

#[path = "../../api/tests/server/mod.rs"]
mod server;

mod fleet;
#[path = "transcripts/operations.rs"]
mod operations;

use std::{
    fs,
    io::Write,
    os::unix::fs::PermissionsExt,
    path::PathBuf,
    process::{Command, Stdio},
};

use api::pb::platform::fleet::v1 as wire;
use fleet::{ARM_MAIN, End, Fleet, KEY_ID, LAB, ORGANIZATION, ROVER, ROVER_MAIN, Tail, log, time};

/// A person with a home folder, a server, and an environment that says so.
struct Desk {
    fleet: Fleet,
    home: tempfile::TempDir,
    environment: Vec<(String, String)>,
}

/// What a command left behind.
struct Done {
    exit: i32,
    out: String,
    err: String,
}

impl Desk {
    fn new() -> Self {
        let desk = Self::without_key();
        let url = desk.fleet.server.url();
        let environment =
            [("PLATFORM_URL", url.as_str()), ("PLATFORM_API_KEY_ID", KEY_ID), ("PLATFORM_API_KEY", "right")];
        Self { environment: environment.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec(), ..desk }
    }

    fn without_key() -> Self {
        Self { fleet: Fleet::start(), home: tempfile::tempdir().unwrap(), environment: Vec::new() }
    }

    fn run(&self, line: &str) -> Done {
        self.run_with(line, "", &[])
    }

    fn run_with(&self, line: &str, input: &str, environment: &[(&str, &str)]) -> Done {
        let words: Vec<String> =
            line.split(' ').filter(|word| !word.is_empty()).map(|word| word.replace('␠', " ")).collect();
        let mut child = Command::new(env!("CARGO_BIN_EXE_platform"))
            .args(words)
            .env_clear()
            .env("HOME", self.home.path())
            .env("PATH", "/usr/bin:/bin")
            .env("TMPDIR", self.home.path())
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .envs(environment.iter().copied())
            .current_dir(self.home.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        // The command may end without reading.
        let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
        let output = child.wait_with_output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap().replace(&self.fleet.server.url(), "http://fleet");
        Done { exit: output.status.code().unwrap(), out: text(output.stdout), err: text(output.stderr) }
    }

    fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.home.path().join(name);
        fs::write(&path, text).unwrap();
        path
    }

    /// The command works, says nothing else, and shows exactly this.
    #[track_caller]
    fn shows(&self, line: &str, expected: &str) {
        let done = self.run(line);
        assert_eq!((done.exit, done.err.as_str()), (0, ""), "{line}\n{}", done.out);
        assert_eq!(done.out, expected, "{line}");
    }

    /// The command fails with this exit code and this text.
    #[track_caller]
    fn fails(&self, line: &str, exit: i32, expected: &str) {
        let done = self.run(line);
        assert_eq!(done.exit, exit, "{line}\n{}{}", done.out, done.err);
        assert!(done.err.contains(expected), "{line}\n{}", done.err);
    }

    fn config(&self) -> serde_json::Value {
        serde_json::from_str(&self.fleet.state().config).unwrap()
    }
}

#[test]
fn lists() {
    let desk = Desk::new();
    desk.shows(
        "organization list",
        "NAME  ID                                    NAMESPACE  CREATED\n\
         acme  0a000000-0000-4000-8000-000000000001             2023-11-14T22:13:20.500Z\n",
    );
    desk.shows(
        "location list",
        "NAME   ID                                    MACHINES  PARENT\n\
         plant  0a000000-0000-4000-8000-000000000002  1\n\
         lab    0a000000-0000-4000-8000-000000000003  1\n",
    );
    desk.fleet.state().two_machines = true;
    desk.shows(
        "machine list",
        "NAME   LOCATION  STATE           ID\n\
         rover  plant     live            0a000000-0000-4000-8000-000000000004\n\
         rover  lab       awaiting setup  0a000000-0000-4000-8000-000000000006\n",
    );
    desk.shows(
        "machine list --location plant",
        "NAME   LOCATION  STATE  ID\nrover  plant     live   0a000000-0000-4000-8000-000000000004\n",
    );
    desk.shows(
        "part list plant/rover",
        "NAME        MAIN  STATE  ID\nrover-main  yes   live   0a000000-0000-4000-8000-000000000005\n",
    );
    desk.shows(
        "key list",
        "NAME   ID                                    MAY                                                      CREATED\n\
         first  0a000000-0000-4000-8000-000000000008  organization_owner 0a000000-0000-4000-8000-000000000001  2023-11-14T22:13:20.500Z\n",
    );
    desk.shows("fragment list", "There is no fragment yet; make one with `fragment create NAME FILE`.\n");
    desk.shows("fragment list -o json", "[]\n");
}

#[test]
fn making_things() {
    let desk = Desk::new();
    desk.shows("machine create arm --location lab", "Machine \"arm\" is made. Its id is 0a000000-0000-4000-8000-000000000006; `platform part credentials 0a000000-0000-4000-8000-000000000006` gives the file for its device.\n");
    let made: serde_json::Value = serde_json::from_str(&desk.run("location create attic -o json").out).unwrap();
    assert_eq!((&made["name"], &made["id"], &made["auth"]), (&"attic".into(), &LAB.into(), &serde_json::Value::Null));
    desk.shows("organization create beta", "name       beta\nid         0a000000-0000-4000-8000-000000000001\nnamespace\ncreated    2023-11-14T22:13:20.500Z\n");
    desk.fails("machine create arm", 1, "there is more than one location; name one, by its name or id:\n  plant");
}

#[test]
fn a_part_is_found_by_what_a_person_would_say() {
    let desk = Desk::new();
    let name = |line: &str| {
        let done = desk.run(&format!("part get {line} -o json"));
        assert_eq!(done.exit, 0, "{line}: {}", done.err);
        serde_json::from_str::<serde_json::Value>(&done.out).unwrap()["id"].as_str().unwrap().to_owned()
    };
    for line in ["", "rover", "plant/rover", "plant/rover/rover-main", ROVER_MAIN, ROVER] {
        assert_eq!(name(line), ROVER_MAIN, "{line:?}");
    }
    desk.fails(
        "part get attic/rover",
        1,
        "there is no location \"attic\"; there are:\n  plant  0a000000-0000-4000-8000-000000000002\n  lab",
    );
    desk.fails("part get arm", 1, "there is no machine \"arm\"; there are:\n  rover");
    desk.fails("part get plant/rover/left", 1, "there is no part \"left\"; there are:\n  rover-main");
    desk.fleet.state().two_machines = true;
    desk.fails("part get", 1, "there is more than one machine; name one, as LOCATION/MACHINE or by its id:\n  rover  0a000000-0000-4000-8000-000000000004\n  rover");
    desk.fails("part get rover", 1, "more than one machine is called \"rover\"");
    assert_eq!((name("plant/rover"), name("lab/rover")), (ROVER_MAIN.to_owned(), ARM_MAIN.to_owned()));
}

#[test]
fn secrets_are_shown_only_to_who_asks_for_them() {
    let desk = Desk::new();
    for line in [
        "part get",
        "part get -o json",
        "part list -o json",
        "machine get -o json",
        "part history -o json",
        "part secret list -o json",
        "part secret create -o json",
        "location get plant -o json",
        "location list -o json",
    ] {
        let done = desk.run(line);
        assert_eq!(done.exit, 0, "{line}: {}", done.err);
        assert!(!done.out.contains("s3cret"), "{line}: {}", done.out);
    }
    desk.shows("part credentials", "{\"cloud\": {\"secret\": \"s3cret\"}}\n");
    desk.shows(
        "part credentials --write device.json",
        "Written to device.json; put it on the device as /etc/platform.json.\n",
    );
    let path = desk.home.path().join("device.json");
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(fs::read_to_string(path).unwrap(), "{\"cloud\": {\"secret\": \"s3cret\"}}");
    desk.shows("part secret list", "ID                                    STATE    CREATED\n0a000000-0000-4000-8000-000000000008  enabled  2023-11-14T22:13:20.500Z\n");
    desk.shows(&format!("part secret delete {KEY_ID}"), &format!("Secret {KEY_ID} is deleted.\n"));
}

#[test]
fn environment_variables() {
    let desk = Desk::new();
    desk.shows(
        "part env set GREETING=hello␠world EMPTY=",
        "GREETING, EMPTY set for \"rover-main\"; its machine server is restarted as soon as it permits.\n",
    );
    assert_eq!(
        desk.config(),
        serde_json::json!({"components": [], "agent": {"advanced_settings": {"debug": true, "platform_server_env": {"GREETING": "hello world", "EMPTY": ""}}}})
    );
    assert!(desk.fleet.state().config.starts_with("{\n  \"components\""), "the order of keys is kept");
    desk.shows("part env list", "GREETING=hello world\nEMPTY=\n");
    desk.shows("part env set GREETING=hello␠world", "Nothing to change for \"rover-main\".\n");
    desk.shows(
        "part env unset GREETING --part plant/rover",
        "GREETING removed for \"rover-main\"; its machine server is restarted as soon as it permits.\n",
    );
    desk.shows("part env list -o json", "{\n  \"EMPTY\": \"\"\n}\n");
    desk.fails("part env set GREETING", 2, "\"GREETING\" is not KEY=VALUE");
    desk.fails("part env set =x", 2, "\"=x\" is not KEY=VALUE");
    desk.fails("part env set", 2, "required arguments were not provided");
}

#[test]
fn a_small_change_survives_somebody_elses() {
    let desk = Desk::new();
    desk.fleet.state().rivals = 2;
    desk.shows("part env set A=1 -o json", &format!("{{\n  \"part_id\": \"{ROVER_MAIN}\",\n  \"changed\": true\n}}\n"));
    desk.fleet.state().rivals = 100;
    desk.fails(
        "part env set A=2",
        1,
        "the part was changed meanwhile (ABORTED)\nSomebody else changed it in the meantime",
    );
}

#[test]
fn pinning() {
    let desk = Desk::new();
    desk.shows("part pin 1.0.0", "platform-server of \"rover-main\" is pinned to 1.0.0; the device fetches it now and starts it at its next restart (`platform part restart`).\n");
    assert_eq!(desk.config()["agent"]["version_control"], serde_json::json!({"platform-server": "1.0.0"}));
    desk.shows(
        "part pin dev --agent",
        "platform-agent of \"rover-main\" is pinned to dev; the device switches once it is verified.\n",
    );
    desk.shows("part pin 1.0.0", "platform-server of \"rover-main\" was pinned to 1.0.0 already.\n");
    let before = desk.fleet.state().config.clone();
    desk.fails("part pin not␠a␠version", 1, "the device would not accept this, so nothing was changed:\n  ");
    assert_eq!(desk.fleet.state().config, before);
}

#[test]
fn restart_and_status() {
    let desk = Desk::new();
    desk.shows("machine status", "machine  rover\npart     rover-main  0a000000-0000-4000-8000-000000000005\nstate    live\ndevice   has not reported yet\n");
    desk.shows("part restart", "The machine server of \"rover-main\" is restarted as soon as it permits.\n");
    assert!(desk.fleet.state().marked);
    desk.fleet.state().marked = false;
    desk.fleet.state().status = Some(wire::DeviceStatus {
        agent_version: "0.1.0".into(),
        platform: "linux/arm64".into(),
        hostname: "board\u{1b}[31m".into(),
        uptime_seconds: 7200,
        agent_uptime_seconds: 60,
        agent: Some(wire::AgentStatus {
            slot: "b".into(),
            starts: 3,
            start_reason: "the device booted".into(),
            ..Default::default()
        }),
        complaints: vec![wire::Complaint {
            path: "a.b".into(),
            found: "x".into(),
            allowed: "y".into(),
            source: "cloud".into(),
        }],
        server: Some(wire::ServerStatus {
            phase: 4,
            version: "1.0.0".into(),
            pid: 42,
            crashes: 1,
            last_exit: "signal 11 (SIGSEGV)".into(),
            last_lines: vec!["motor: stall".into()],
            url: "http://127.0.0.1:1".into(),
            ..Default::default()
        }),
        updates: vec![
            wire::UpdateStatus {
                product: 2,
                phase: 9,
                wanted: "stable".into(),
                installed_version: "1.0.0".into(),
                last_error: "1.1.0 was rolled back: it ended unasked; choose another version, or ask for a retry"
                    .into(),
                bad_versions: vec!["1.1.0".into()],
                ..Default::default()
            },
            wire::UpdateStatus {
                product: 1,
                phase: 2,
                wanted: "dev".into(),
                target_version: "0.2.0".into(),
                installed_version: "0.1.0".into(),
                percent: 62,
                ..Default::default()
            },
        ],
        disks: vec![wire::Disk { path: "/opt/platform".into(), free_bytes: 3 << 30, total_bytes: 20 << 30 }],
        warnings: vec!["clock is not synchronised".into()],
        ..Default::default()
    });
    let shown = desk.run("machine status").out;
    let expected = "machine   rover\n\
        part      rover-main  0a000000-0000-4000-8000-000000000005\n\
        state     live\n\
        device    board\\u{1b}[31m on linux/arm64, up 2 h\n\
        agent     0.1.0, up 60 s, start 3 from slot b: the device booted\n\
        server    1.0.0, running as process 42\n\
        url       http://127.0.0.1:1\n\
        crashes   1, last: signal 11 (SIGSEGV)\n\
        it said   motor: stall\n\
        versions  agent runs 0.1.0, installed 0.1.0, wanted dev\n\
        versions  server runs 1.0.0, installed 1.0.0, wanted stable, failed here: 1.1.0\n\
        update    server went back to the version before\n\
        update    agent downloading 0.2.0, 62 %\n\
        disk      /opt/platform: 3072 MiB of 20 GiB free\n\
        reported  never\n\
        ! update of the server: 1.1.0 was rolled back: it ended unasked; choose another version, or ask for a retry\n\
        ! clock is not synchronised\n\
        ! a.b: found x, allowed is y (cloud)\n";
    assert_eq!(shown, expected);
    let json: serde_json::Value = serde_json::from_str(&desk.run("machine status -o json").out).unwrap();
    assert_eq!(
        (&json[0]["part_name"], &json[0]["status"]["server"]["phase"]),
        (&"rover-main".into(), &"PHASE_RUNNING".into())
    );
    desk.fleet.state().refused = Some(("GetPartStatus", 12));
    desk.shows("machine status rover", "machine  rover\npart     rover-main  0a000000-0000-4000-8000-000000000005\nstate    live\ndevice   has not reported yet\n");
    desk.shows(
        &format!("machine retry-update {ROVER} --product machine-server"),
        "The devices of \"rover\" try their updates again within a minute, or when they are back.\n",
    );
    desk.fails("machine retry-update --product firmware", 2, "[possible values: machine-server, agent]");
}

#[test]
fn reading_logs() {
    let desk = Desk::new();
    desk.fleet.state().logs = vec![
        log(1, "info", "one"),
        log(2, "error", "two\nlines\u{1b}[2J"),
        log(3, "info", "three"),
        log(4, "warn", "four"),
        log(5, "info", "five"),
    ];
    desk.shows(
        "part logs",
        "2023-11-14T22:13:21.500Z  INFO   rover.server  one\n\
         2023-11-14T22:13:22.500Z  ERROR  rover.server  two\n    lines\\u{1b}[2J\n\
         2023-11-14T22:13:23.500Z  INFO   rover.server  three\n\
         2023-11-14T22:13:24.500Z  WARN   rover.server  four\n\
         2023-11-14T22:13:25.500Z  INFO   rover.server  five\n",
    );
    desk.shows("part logs -n 1 --part rover", "2023-11-14T22:13:25.500Z  INFO   rover.server  five\n");
    desk.shows("part logs --level warn,ERROR -n 1", "2023-11-14T22:13:24.500Z  WARN   rover.server  four\n");
    desk.shows("part logs rover --filter thr", "2023-11-14T22:13:23.500Z  INFO   rover.server  three\n");
    let lines = desk.run("part logs -n 3 -o json").out;
    let messages: Vec<_> =
        lines.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap()["message"].clone()).collect();
    assert_eq!(messages, ["three", "four", "five"]);
}

/// The stream breaks, the server comes back, lines were logged meanwhile: each is shown once and in order.
#[test]
fn following_logs_over_a_break() {
    let desk = Desk::new();
    {
        let mut state = desk.fleet.state();
        state.logs = vec![log(1, "info", "before")];
        let first = Tail {
            lines: vec![log(2, "info", "live"), log(3, "debug", "noise")],
            missed: vec![log(4, "error", "missed")],
            end: End::Break,
        };
        let second = Tail { lines: vec![log(5, "info", "again")], missed: vec![], end: End::Status(14) };
        state.tails = [first, second].into();
    }
    let done = desk.run("part logs --follow --level info,error");
    let messages: Vec<_> = done.out.lines().map(|line| line.rsplit("  ").next().unwrap()).collect();
    assert_eq!(messages, ["before", "live", "missed", "again"]);
    assert_eq!(done.exit, 1);
    let told: Vec<_> = done.err.lines().collect();
    assert!(told[0].contains("the log broke off") && told[0].ends_with("(trying again)"), "{told:?}");
    assert_eq!(told[1], "(connected again)");
    assert!(told[2].contains("UNAVAILABLE") && told[2].ends_with("(trying again)"), "{told:?}");
    assert!(told[3].contains("the part is gone (NOT_FOUND)"), "a part that is gone ends it: {told:?}");
}

#[test]
fn the_whole_configuration() {
    let desk = Desk::new();
    desk.shows("part config get", "{\"components\": [], \"agent\": {\"advanced_settings\": {\"debug\": true}}}\n");
    desk.file("good.json", r#"{"agent": {"version_control": {"agent": "stable"}}}"#);
    desk.shows(
        "part config set good.json",
        "The configuration of \"rover-main\" is changed; its device takes it over within seconds.\n",
    );
    assert_eq!(desk.fleet.state().config, r#"{"agent": {"version_control": {"agent": "stable"}}}"#, "to the letter");

    desk.file("bad.json", r#"{"agent": {"advanced_settings": {"debug": "yes"}}}"#);
    desk.fails("part config set bad.json", 1, "(--force changes it anyway):\n  line 1, column 43: ");
    desk.fails("part config set bad.json", 1, "advanced_settings.debug: found \"yes\"");
    assert_eq!(desk.run("part config set bad.json --force").exit, 0);
    let known = desk.run("part env set A=1");
    assert_eq!(known.exit, 0, "an old fault does not stand in the way of something else: {}", known.err);
    assert!(known.err.contains("note: the device does not accept"), "{}", known.err);

    let piped = desk.run_with("part config set -", "[]", &[]);
    assert_eq!(
        (piped.exit, piped.err.contains("this is not a configuration, which is a JSON object")),
        (1, true),
        "{}",
        piped.err
    );
    desk.fails(
        "part config set good.json --unchanged-since 2023-11-14T22:13:20.500Z",
        1,
        "the part was changed meanwhile",
    );
    desk.fails("part config set good.json --unchanged-since yesterday", 2, "--unchanged-since");
    desk.fails("part config set none.json", 1, "none.json: No such file");
}

#[test]
fn editing() {
    let desk = Desk::new();
    let edit = |script: &str| {
        let editor = desk.home.path().join("editor.sh");
        let text = format!("#!/bin/sh\nstat -c %a \"$2\" > mode\n{script}\n");
        test_executables::write(&editor, text.as_bytes()).unwrap();
        desk.run_with("part config edit", "", &[("EDITOR", &format!("{} --wait", editor.display()))])
    };
    let done = edit("sed -i s/true/false/ \"$2\"");
    assert_eq!((done.exit, done.err.as_str()), (0, ""), "{}", done.out);
    assert_eq!(desk.config()["agent"]["advanced_settings"]["debug"], false);
    assert_eq!(fs::read_to_string(desk.home.path().join("mode")).unwrap(), "600\n");
    assert_eq!(edit("true").out, "Nothing was changed.\n");
    let done = edit("exit 3");
    assert!(done.exit == 1 && done.err.contains("nothing was changed"), "{}", done.err);
    let done = edit("echo '{oh' > \"$2\"");
    assert!(done.exit == 1 && done.err.contains("Your text is kept in "), "{}", done.err);
    let kept = done.err.split("kept in ").nth(1).unwrap().split(".\n").next().unwrap();
    assert_eq!(fs::read_to_string(kept).unwrap(), "{oh\n");
}

#[test]
fn keys_are_shown_once() {
    let desk = Desk::new();
    desk.shows(
        "key create robots --role owner --machine rover",
        &format!("id   {KEY_ID}\nkey  fresh\nThe key is shown this once and cannot be read again.\n"),
    );
    desk.shows(
        &format!("key rotate {KEY_ID} -o json"),
        &format!("{{\n  \"id\": \"{KEY_ID}\",\n  \"key\": \"fresher\"\n}}\n"),
    );
    desk.shows(&format!("key delete {KEY_ID}"), &format!("Key {KEY_ID} is deleted.\n"));
    let seen = desk.fleet.server.seen.lock().unwrap();
    let made = seen.iter().find(|request| request.is("CreateKey")).unwrap();
    let right = &made.messages::<api::pb::platform::app::v1::CreateKeyRequest>()[0].authorizations[0];
    assert_eq!(
        (right.authorization_id.as_str(), right.resource_id.as_str(), right.organization_id.as_str()),
        ("robot_owner", ROVER, ORGANIZATION)
    );
}

#[test]
fn fragments() {
    let desk = Desk::new();
    desk.file("f.json", r#"{"agent": {"minutes": 10, "ratio": 0.5, "none": null, "list": [1]}}"#);
    desk.shows(
        "fragment create base f.json",
        "name          base\n\
         id            0a000000-0000-4000-8000-000000000003\n\
         revision      1\n\
         last updated  2023-11-14T22:13:20.500Z\n\
         {\n  \"agent\": {\n    \"list\": [\n      1\n    ],\n    \"minutes\": 10,\n    \"none\": null,\n    \"ratio\": 0.5\n  }\n}\n",
    );
    desk.fails("fragment get other", 1, "there is no fragment \"other\"; there are:\n  base");
    desk.fails("fragment update base", 2, "nothing to change");
    assert_eq!(desk.run("fragment get base -o json").exit, 0);
}

#[test]
fn modules() {
    let desk = Desk::new();
    desk.shows("module list", "There is no module yet; make one with `module create NAME`.\n");
    let id = format!("{ORGANIZATION}:camera");
    desk.shows(
        "module create camera",
        &format!("id   {id}\nurl  https://fleet.example.com/packages/v1/{ORGANIZATION}/camera\n"),
    );
    let meta = r#"{"description": "takes pictures", "entrypoint": "bin/run", "visibility": "public",
        "models": [{"api": "a:b:c", "model": "acme:camera:usb"}], "applications": [
        {"name": "board", "type": "multi_machine", "entrypoint": "index.html"}]}"#;
    desk.file("meta.json", meta);
    desk.file("readme.md", "# Camera");
    let shown = "id           ID\nvisibility   unlisted\ndescription  takes pictures\nurl\nentrypoint   bin/new\n\
                 models       acme:camera:usb\napps         board\nmachines     0\n";
    let line = "module update camera --meta meta.json --readme readme.md --visibility unlisted --entrypoint bin/new";
    desk.shows(line, &shown.replace("ID", &id));
    // What is not given stays.
    let shown = shown.replace("ID", &id).replace("\nurl\n", "\nurl          https://example.org\n");
    desk.shows(&format!("module update {id} --url https://example.org"), &shown);
    {
        let state = desk.fleet.state();
        let module = &state.registry.modules[0];
        assert_eq!((module.markdown_description.as_deref(), module.apps.len()), (Some("# Camera"), 1));
    }
    desk.fails("module update camera --meta readme.md", 1, "this describes no module");

    desk.file("module.tar.gz", &"x".repeat(100_000));
    let digest = "d69e68988157833272305aaf21f453c800346e8a3640db6578e260215542e5d4";
    let uploaded =
        desk.run("module upload camera module.tar.gz --version 1.2.3 --platform linux/arm64 --tag distro:debian");
    assert_eq!((uploaded.exit, &*uploaded.err), (0, ""), "no bar where nobody looks");
    let sentence = format!("{id} 1.2.3 for linux/arm64 is uploaded: 100000 bytes, sha256 {digest}.\n");
    assert_eq!(uploaded.out, sentence + "https://fleet.example.com/packages/v1/there\n");
    {
        let state = desk.fleet.state();
        let (info, bytes) = state.registry.uploaded.as_ref().unwrap();
        assert_eq!(
            (&*info.version, &info.platform_tags[..], bytes.len()),
            ("1.2.3", &["distro:debian".to_owned()][..], 100_000)
        );
    }
    let table = desk.run("module list");
    let row = format!("{id}  unlisted    1.2.3   0         takes pictures\n");
    assert!(table.out.ends_with(&row), "{}", table.out);
    assert!(
        desk.run("module get camera")
            .out
            .ends_with("VERSION  PLATFORM     UPLOADED\n1.2.3    linux/arm64  2023-11-14T22:13:20.500Z\n")
    );
    let found = desk.run("module file camera --platform linux/arm64 -o json");
    let found: serde_json::Value = serde_json::from_str(&found.out).unwrap();
    assert_eq!((&found["info"]["version"], &found["info"]["files"][0]["size"]), (&"1.2.3".into(), &100_000.into()));
    // The server says that it keeps something else.
    desk.fleet.state().registry.loses_bytes = true;
    desk.fails("module upload camera module.tar.gz --version 1.2.4 --platform any", 1, "the server keeps ");
    desk.fails("module upload camera none.tar.gz --version 1.2.4 --platform any", 1, "none.tar.gz");
    desk.fails("module upload other module.tar.gz --version 1.2.4 --platform any", 1, "no such module");
    desk.shows("module delete camera", &format!("The module {id} is deleted.\n"));
}

#[test]
fn registry_and_applications() {
    let desk = Desk::new();
    desk.shows("registry list", "There is no registry item that you may see.\n");
    let id = format!("{ORGANIZATION}:detector");
    let shown = desk.run("registry create detector --kind model");
    assert!(
        shown.out.starts_with(&format!("id           {id}\nkind         model\nvisibility   private\n")),
        "{}",
        shown.out
    );
    desk.fails("registry update detector", 2, "nothing to change");
    let shown = desk.run("registry update detector --visibility public --description finds␠screws");
    assert!(shown.out.contains("visibility   public\ndescription  finds screws\n"), "{} {}", shown.out, shown.err);
    let listed = desk.run("registry list --own --kind model --search screws");
    assert!(listed.out.contains(&format!("{id}  model  public      0         0         ")), "{}", listed.out);
    let listed: serde_json::Value = serde_json::from_str(&desk.run("registry list -o json").out).unwrap();
    assert_eq!(listed[0]["item_id"], id);
    desk.fails("registry create x --kind soup", 2, "invalid value 'soup'");
    desk.shows("registry delete detector -o json", &format!("{{\n  \"id\": \"{id}\"\n}}\n"));

    desk.shows(
        "app content acme board",
        "content     /packages/v1/acme/camera/1.0.0/any\nentrypoint  index.html\nkind        for several machines\npublic      no\n",
    );
    desk.shows(
        "app branding acme board",
        "logo       logo.png\ntexts      machinePicker.heading: Choose\nfragments  f\nfor        o\n",
    );
}

#[test]
fn the_audit_log_is_read_page_by_page() {
    let desk = Desk::new();
    let event = |seconds, operation: &str| wire::AuditEvent {
        when: time(seconds),
        actor: format!("api-key:{KEY_ID}"),
        from_address: "127.0.0.1".into(),
        operation: operation.into(),
        resource_type: "robot".into(),
        resource_id: ROVER.into(),
        detail: String::new(),
    };
    desk.fleet.state().audit = (0..5).rev().map(|number| event(number, &format!("Change{number}"))).collect();
    let done = desk.run("audit list -n 3");
    let operations: Vec<_> = done.out.lines().skip(1).map(|line| line.split("  ").nth(3).unwrap()).collect();
    assert_eq!(operations, ["Change4", "Change3", "Change2"]);
    desk.fails("audit list -n 0", 2, "invalid value '0'");
    let done = desk.run("audit export --since 2023-11-14T22:13:21Z --until 2023-11-14T22:13:24Z");
    let lines = done.out.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    let operations: Vec<_> = lines.map(|line| line["operation"].as_str().unwrap().to_owned()).collect();
    assert_eq!(operations, ["Change3", "Change2", "Change1"]);
    assert_eq!(desk.run("audit export").out.lines().count(), 5);
    desk.fails("audit export --since yesterday", 2, "invalid value 'yesterday'");
}

#[test]
fn checking_a_file_needs_no_server() {
    let desk = Desk::without_key();
    desk.file("good.json", r#"{"agent": {"advanced_settings": {"debug": true}}}"#);
    desk.shows("config check good.json", "good.json: a device accepts all of it\n");
    desk.shows("config check good.json -o json", "[]\n");
    desk.file("bad.json", "{\"agent\": {\n  \"advanced_settings\": {\"debug\": 1}}}");
    let done = desk.run("config check bad.json");
    assert_eq!(done.exit, 1);
    assert!(
        done.out.starts_with("bad.json:2:34: ") && done.out.contains("advanced_settings.debug: found 1"),
        "{}",
        done.out
    );
    assert!(done.err.contains("1 setting is not accepted"), "{}", done.err);
    assert_eq!(desk.run_with("config check -", "nonsense", &[]).exit, 1);
}

#[test]
fn logging_in_and_out() {
    let desk = Desk::without_key();
    desk.fails("machine list", 1, "you are not logged in to a fleet server\nLog in with `platform login");
    let url = desk.fleet.server.url();
    let login = format!("login --url {url} --key-id {KEY_ID}");
    let done = desk.run_with(&login, "right\n", &[]);
    let path = desk.home.path().join(".config/platform/profiles.json");
    assert_eq!(done.out, format!("Logged in to http://fleet (profile \"default\" in {}).\n", path.display()));
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(fs::metadata(path.parent().unwrap()).unwrap().permissions().mode() & 0o777, 0o700);
    assert_eq!(desk.run("machine list").exit, 0);

    let wrong = desk.run_with(&format!("{login} --profile other"), "wrong", &[]);
    assert_eq!(wrong.exit, 1);
    assert!(
        wrong.err.contains("did not accept the credentials: no such key") && !wrong.err.contains("wrong"),
        "{}",
        wrong.err
    );
    desk.fails("machine list --profile other", 1, "there is no profile \"other\" (known: default)");
    assert_eq!(desk.run_with(&format!("{login} --profile other --unchecked"), "wrong", &[]).exit, 0);
    desk.fails("machine list", 1, "log in again with `platform login`");
    assert_eq!(desk.run("machine list --profile default").exit, 0);

    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    desk.fails("machine list", 1, "can be read by others (mode 644)");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();

    desk.shows(
        "logout --profile other",
        "The key of profile \"other\" is forgotten here; it stays valid until it is deleted on the server.\n",
    );
    assert!(!fs::read_to_string(&path).unwrap().contains("wrong"));
    desk.fails("machine list", 1, "you are not logged in");
    desk.fails("login --url ftp://x --key-id y", 2, "ftp:// is not a way");
    desk.fails("login", 2, "--url is needed where nobody can be asked");
    let empty = desk.run_with(&login, "", &[]);
    assert!(empty.exit == 2 && empty.err.contains("the API key is empty"), "{}", empty.err);
    fs::write(&path, "{").unwrap();
    desk.fails("machine list", 1, "is damaged");
}

#[test]
fn the_environment_is_taken_whole_or_not_at_all() {
    let mut desk = Desk::new();
    assert_eq!(desk.run("machine list").exit, 0);
    desk.environment.retain(|(name, _)| name != "PLATFORM_API_KEY");
    desk.fails("machine list", 2, "PLATFORM_URL is set, but PLATFORM_API_KEY is not: set all three");
    desk.environment.retain(|(name, _)| name != "PLATFORM_URL");
    desk.fails("machine list", 1, "you are not logged in");
}

#[test]
fn refusals_say_what_to_do() {
    let desk = Desk::new();
    let table = [
        ("GetRobotPart", 7, "(PERMISSION_DENIED)\nAsk an owner"),
        ("GetRobotPart", 12, "(UNIMPLEMENTED)\nThis server does not offer the operation"),
        ("GetRobotPart", 5, "platform: could not read the part: refused for the test (NOT_FOUND)"),
    ];
    for (operation, code, expected) in table {
        desk.fleet.state().refused = Some((operation, code));
        desk.fails(&format!("part get {ROVER_MAIN}"), 1, expected);
    }
    desk.fails("part logs a --part b", 2, "cannot be used with");
    desk.fails("part shout", 2, "unrecognized subcommand 'shout'");
    desk.fails("", 2, "Usage: platform");
    let nobody = desk.run_with("machine list", "", &[("PLATFORM_URL", "http://127.0.0.1:1")]);
    assert!(
        nobody.exit == 1 && nobody.err.contains("cannot reach the server http://127.0.0.1:1: nothing listens there"),
        "{}",
        nobody.err
    );
}

#[test]
fn completions_and_help() {
    let desk = Desk::without_key();
    for shell in ["bash", "zsh", "fish"] {
        let done = desk.run(&format!("completions {shell}"));
        assert!(done.exit == 0 && done.out.contains("credentials"), "{shell}");
    }
    assert_eq!(desk.run("part logs --help").exit, 0);
    assert!(desk.run("--version").out.starts_with("platform "));
}
