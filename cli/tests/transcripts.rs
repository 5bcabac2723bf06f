//! What is typed, what is shown, and the exit code, command by command.

#[path = "../../api/tests/server/mod.rs"]
mod server;

mod fleet;
#[path = "transcripts/logs.rs"]
mod logs;
#[path = "transcripts/operations.rs"]
mod operations;
#[path = "transcripts/parts.rs"]
mod parts;
#[path = "transcripts/registry.rs"]
mod registry;
#[path = "transcripts/session.rs"]
mod session;
#[path = "transcripts/shells.rs"]
mod shells;
#[path = "transcripts/terminal.rs"]
mod terminal;

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

    /// The command of a line; `␠` is a blank within a word.
    fn command(&self, line: &str) -> Command {
        let words = line.split(' ').filter(|word| !word.is_empty()).map(|word| word.replace('␠', " "));
        let mut command = Command::new(env!("CARGO_BIN_EXE_platform"));
        command.args(words).env_clear().current_dir(self.home.path());
        command.env("HOME", self.home.path()).env("PATH", "/usr/bin:/bin").env("TMPDIR", self.home.path());
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        command
    }

    fn run_with(&self, line: &str, input: &str, environment: &[(&str, &str)]) -> Done {
        let mut command = self.command(line);
        command.envs(environment.iter().copied());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
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
fn restart_and_status() {
    let desk = Desk::new();
    desk.shows("machine status", "machine  rover\npart     rover-main  0a000000-0000-4000-8000-000000000005\nstate    live\ndevice   has not reported yet\n");
    desk.shows("part restart", "The machine server of \"rover-main\" is restarted as soon as it permits.\n");
    assert!(desk.fleet.state().marked);
    desk.fleet.state().marked = false;
    // Only the server has something to say: its complaints are shown, and no blanks for what the device never said.
    let complaint = |path: &str, allowed: &str| wire::Complaint {
        path: path.into(),
        found: "it names none".into(),
        allowed: allowed.into(),
        source: "fragments".into(),
    };
    desk.fleet.state().status = Some(wire::DeviceStatus {
        complaints: vec![complaint("fragments[0]", ""), complaint("agent.x", "a number")],
        ..Default::default()
    });
    desk.shows(
        "machine status",
        "machine  rover\npart     rover-main  0a000000-0000-4000-8000-000000000005\nstate    live\n\
         device   has not reported yet\n\
         ! fragments[0]: it names none (fragments)\n\
         ! agent.x: found it names none, allowed is a number (fragments)\n",
    );
    // By a clock that runs ahead, so that the words do not change with the years.
    desk.fleet.state().reported_at = Some(prost_types::Timestamp { seconds: 10_000_000_000, nanos: 0 });
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
        reported  now\n\
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
