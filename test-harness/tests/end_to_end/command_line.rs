//! The real command line against a real server: the five things to try, as the sandbox prints them; every command
//! (`every_command`), two people and one part (`editing`), and signing in in a browser (`signing_in`).

mod desk;
mod editing;
mod every_command;
mod signing_in;

use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
};

use serde_json::Value;
use test_harness::real::{process::Running, programs};

use crate::world::{Signal, eventually};

/// A sandbox, and what its screen told.
struct Sandbox {
    running: Running,
    environment: Vec<(String, String)>,
    /// The five lines, without their comments.
    lines: Vec<String>,
    // Last, so that it outlives the processes.
    place: tempfile::TempDir,
}

impl Sandbox {
    fn start() -> Sandbox {
        let place = tempfile::tempdir().unwrap();
        let mut command = Command::new(programs::find("sandbox").unwrap());
        command.args(["--listen", "127.0.0.1:0", "--minute", "1", "--data"]).arg(place.path().join("sandbox"));
        let (running, _) = Running::start(command, "sandbox", &place.path().join("screen"), false).unwrap();
        let screen = eventually("the screen", || Some(running.said()).filter(|said| said.contains("Ctrl-C"))).unwrap();
        let told = |line: &str| line.trim().strip_prefix("export ").map(str::to_owned);
        let export = screen.lines().find_map(told).expect("the environment to export");
        let pair = |pair: &str| pair.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned()));
        let environment = export.split(' ').filter_map(pair).collect();
        let lines = screen.lines().skip_while(|line| !line.contains("Five things to try")).skip(2);
        let lines = lines.take_while(|line| !line.trim().is_empty());
        let lines: Vec<String> =
            lines.map(|line| line.split('#').next().unwrap_or_default().trim().to_owned()).collect();
        assert_eq!(lines.len(), 5, "{screen}");
        Sandbox { running, environment, lines, place }
    }

    /// What a person would type: the line that contains these words.
    fn line(&self, words: &str) -> String {
        let line = self.lines.iter().find(|line| line.contains(words));
        line.unwrap_or_else(|| panic!("{words} in {:?}", self.lines)).clone()
    }

    fn command(&self, line: &str) -> Command {
        let mut words = line.split_whitespace();
        let mut command = Command::new(words.next().expect("a program"));
        command.args(words).envs(self.environment.clone()).env("HOME", self.place.path()).stdin(Stdio::null());
        command
    }

    /// Runs one line; what it printed.
    #[track_caller]
    fn run(&self, line: &str) -> String {
        let output = self.command(line).output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        assert!(output.status.success(), "{line}: {}{}", text(&output.stdout), text(&output.stderr));
        text(&output.stdout)
    }

    fn platform(&self, arguments: &str) -> String {
        self.run(&format!("{} {arguments}", programs::find("platform").unwrap().display()))
    }

    /// The machine server as `machine status` knows it.
    fn server(&self) -> Value {
        let status: Value = serde_json::from_str(&self.platform("--output json machine status")).unwrap();
        status[0]["status"]["server"].clone()
    }

    #[track_caller]
    fn until(&self, what: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let found = eventually(what, || Some(self.server()).filter(&wanted));
        found.unwrap_or_else(|trouble| panic!("{trouble}: {}", self.platform("--output json machine status")))
    }
}

fn pid(server: &Value) -> u64 {
    server["pid"].as_u64().unwrap_or_default()
}

/// A variable of a process.
fn variable(pid: u64, name: &str) -> Option<String> {
    let environment = fs::read(Path::new("/proc").join(pid.to_string()).join("environ")).ok()?;
    let environment = String::from_utf8_lossy(&environment).into_owned();
    environment.split('\0').find_map(|line| line.strip_prefix(name)?.strip_prefix('=').map(str::to_owned))
}

#[test]
fn the_five_things_to_try_do_what_they_say() {
    let sandbox = Sandbox::start();
    let first = sandbox.until("a machine server", |server| pid(server) != 0);
    assert_eq!(first["version"], "1.1.0", "{first}");

    // An environment variable.
    sandbox.run(&sandbox.line("part env set"));
    let second = sandbox.until("another process", |server| !matches!(pid(server), 0) && pid(server) != pid(&first));
    assert_eq!(variable(pid(&second), "GREETING").as_deref(), Some("hello"));
    assert_eq!(variable(pid(&second), "FROM_FRAGMENT").as_deref(), Some("hello"), "the fragment's is still there");

    // Kill it and look: the line has two commands.
    let line = sandbox.line("machine status");
    let (kill, status) = line.split_once(';').expect("two commands");
    sandbox.run(kill);
    let third =
        sandbox.until("a crash", |server| pid(server) != pid(&second) && server["crashes"].to_string().contains('1'));
    assert!(third["last_exit"].as_str().is_some_and(|exit| exit.contains("SIGKILL")), "{third}");
    let screen = sandbox.run(status);
    for word in ["1.1.0", "SIGKILL", "sandbox-machine"] {
        assert!(screen.contains(word), "{word} in\n{screen}");
    }

    // Another version, from the next restart on.
    sandbox.run(&sandbox.line("part pin"));
    eventually("the version to be ready", || {
        let status: Value = serde_json::from_str(&sandbox.platform("--output json machine status")).unwrap();
        let update = &status[0]["status"]["updates"][0];
        (update["target_version"] == "1.0.0" && update["phase"].as_str()?.contains("STAGED")).then_some(())
    })
    .unwrap_or_else(|trouble| panic!("{trouble}: {}", sandbox.platform("--output json machine status")));
    assert_eq!(pid(&sandbox.server()), pid(&third));
    sandbox.run(&sandbox.line("part restart"));
    let fourth = sandbox.until("1.0.0", |server| server["version"] == "1.0.0" && pid(server) != 0);
    assert_ne!(pid(&fourth), pid(&third));

    // Follow the log.
    let log = sandbox.place.path().join("followed");
    let (follower, _) =
        Running::start(sandbox.command(&sandbox.line("logs --follow")), "platform", &log, false).unwrap();
    eventually("lines of the past", || follower.said().contains("runs as process").then_some(())).unwrap();
    sandbox.platform("part env set GREETING=again");
    let seen = eventually("lines of now", || {
        // The start with the version, and the one with the other variable.
        (follower.said().matches("version 1.0.0 runs as process").count() >= 2).then_some(())
    });
    seen.unwrap_or_else(|trouble| panic!("{trouble}: {}", follower.said()));
    drop(follower);
    assert_eq!(sandbox.running.end_by(Signal::INT).unwrap(), Some(0));
}
