//! The launcher with real processes: versions that die, that are none, and stored state that is poison.

use std::{
    fs,
    io::{self, Write as _},
    os::unix::fs::{PermissionsExt as _, symlink},
    path::{Path, PathBuf},
    process::{Command, Output},
};

use tempfile::TempDir;
use test_harness::real::{agent::AgentOptions, process::Running, programs::find};

use crate::{
    bad_input::SmallDisk,
    world::{Signal, eventually, is_root},
};

/// What may lie in the place of a file, and how it is put there.
type Poison = (&'static str, fn(&Path));

/// A root folder with slots.
struct Root {
    folder: TempDir,
    /// Where it is, when it is not in the folder.
    place: Option<PathBuf>,
}

impl Root {
    fn new() -> Root {
        let root = Root { folder: tempfile::tempdir().expect("a folder for a test"), place: None };
        fs::create_dir_all(root.path().join("state")).expect("made");
        root
    }

    fn path(&self) -> PathBuf {
        self.place.clone().unwrap_or_else(|| self.folder.path().join("root"))
    }

    fn program(&self, slot: &str) -> PathBuf {
        self.path().join("versions/platform-agent").join(slot).join("platform-agent")
    }

    fn state(&self, name: &str) -> PathBuf {
        self.path().join("state").join(name)
    }

    /// Puts this into a slot.
    fn install(&self, slot: &str, content: &[u8], mode: u32) {
        let path = self.program(slot);
        fs::create_dir_all(path.parent().expect("a folder")).expect("made");
        test_executables::write(&path, content).expect("written");
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("set");
    }

    /// Puts an agent into a slot that says how it was started, and ends.
    fn install_script(&self, slot: &str) {
        let variables = "slot=$PLATFORM_AGENT_SLOT launcher=$PLATFORM_AGENT_LAUNCHER note=$PLATFORM_AGENT_LAUNCH_NOTE";
        let script = format!("#!/bin/sh\necho \"{slot}: $* | {variables}\"\nexit 7\n");
        self.install(slot, script.as_bytes(), 0o755);
    }

    fn point(&self, text: &str) {
        fs::create_dir_all(self.path().join("state")).expect("made");
        fs::write(self.state("platform-agent.pointer"), text).expect("written");
    }

    /// As the agent leaves it that hands over to a version on trial in slot b.
    fn try_b(&self) {
        self.point("slot-pointer 1 a\n");
        self.install_script("a");
        let said = self.launch(&[]);
        assert_eq!(said.slot(), "a");
        platform_agent::launcher::mark(
            &platform_agent::launcher::disk::SystemDisk,
            &self.path(),
            actors::update::slots::Slot::A,
            platform_agent::launcher::Mark::Stopped,
        )
        .expect("marked");
        self.point("slot-pointer 1 b trial\n");
    }

    /// Runs the launcher, and what it becomes, to the end.
    fn launch(&self, arguments: &[&str]) -> Said {
        self.launch_by(Command::new(find("platform-launcher").expect("it is built")), arguments)
    }

    /// The same, by a command that ends in the launcher.
    fn launch_by(&self, mut command: Command, arguments: &[&str]) -> Said {
        command.arg("--root").arg(self.path()).args(arguments);
        Said::of(command.output().expect("the launcher can be started"))
    }

    /// Slots of the first starts with a bad version on trial in slot b: as on any device.
    #[track_caller]
    fn assert_falls_back(&self, command: impl Fn() -> Command) {
        let starts: Vec<Said> = (0..4).map(|_| self.launch_by(command(), &[])).collect();
        assert_eq!(starts.iter().map(Said::slot).collect::<Vec<_>>(), ["b", "b", "b", "a"], "{starts:?}");
        assert_eq!(self.pointer(), "slot-pointer 1 a\n");
    }

    fn pointer(&self) -> String {
        fs::read_to_string(self.state("platform-agent.pointer")).unwrap_or_default()
    }
}

/// What came of a start.
#[derive(Debug)]
struct Said {
    out: String,
    err: String,
    code: Option<i32>,
}

impl Said {
    fn of(output: Output) -> Said {
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        Said { out: text(output.stdout), err: text(output.stderr), code: output.status.code() }
    }

    /// The slot of the script that ran, and `+safe`.
    fn slot(&self) -> String {
        let Some((slot, rest)) = self.out.split_once(": ") else { return format!("nothing: {self:?}") };
        format!("{slot}{}", if rest.starts_with("--safe ") { "+safe" } else { "" })
    }
}

#[test]
fn a_version_that_dies_three_times_is_left_and_the_next_is_told_why() {
    let root = Root::new();
    root.install_script("b");
    root.try_b();
    let starts: Vec<Said> = (0..4).map(|_| root.launch(&["-d"])).collect();
    assert_eq!(starts.iter().map(Said::slot).collect::<Vec<_>>(), ["b", "b", "b", "a"], "{starts:?}");
    assert_eq!(root.pointer(), "slot-pointer 1 a\n");
    let (first, back) = (&starts[0], &starts[3]);
    assert_eq!(first.code, Some(7), "the launcher became the version");
    assert!(first.out.contains(&format!("--root {} -d | slot=b", root.path().display())), "{first:?}");
    assert!(first.out.contains("/platform-launcher note=\n"), "{first:?}");
    let note = "slot b was started 3 times in a row and did not live for 60 s: back to slot a";
    assert!(back.out.contains("slot=a launcher=/") && back.out.contains(note), "{back:?}");
    assert!(back.err.contains(note), "{back:?}");
    // The ladder goes on to --safe.
    assert_eq!((0..3).map(|_| root.launch(&[]).slot()).collect::<Vec<_>>(), ["a", "a", "a+safe"]);
}

#[test]
fn what_cannot_be_executed_costs_no_start() {
    let bad: [(&str, &[u8], u32); 4] = [
        ("Exec format error", b"\x7fELF and then nothing", 0o755),
        ("it is empty", b"", 0o755),
        ("it has no execute bit", b"#!/bin/sh\n", 0o644),
        ("No such file", b"#!/nowhere/shell\n", 0o755),
    ];
    for (why, content, mode) in bad {
        let root = Root::new();
        root.try_b();
        root.install("b", content, mode);
        let said = root.launch(&[]);
        assert_eq!(said.slot(), "a", "{why}: {said:?}");
        assert!(said.out.contains("slot b cannot be started") && said.out.contains(why), "{why}: {said:?}");
        assert_eq!(root.pointer(), "slot-pointer 1 a\n", "{why}");
    }
    // A folder in the place of the program, in the slot that is kept.
    let root = Root::new();
    root.point("slot-pointer 1 a\n");
    root.install_script("b");
    fs::create_dir_all(root.program("a").join("inside")).expect("made");
    let said = root.launch(&[]);
    assert_eq!(said.slot(), "b", "{said:?}");
    // Nothing at all: it ends with its own code and says where it looked.
    fs::remove_file(root.program("b")).expect("removed");
    let said = root.launch(&[]);
    assert_eq!(said.code, Some(69), "{said:?}");
    assert!(said.err.contains("slot a: it is no file; slot b: it is missing"), "{said:?}");
}

#[test]
fn small_files_that_are_poison_do_not_keep_it_from_starting() {
    let poisons: [Poison; 6] = [
        ("missing", |_| ()),
        ("a folder", |path| fs::create_dir_all(path.join("inside")).expect("made")),
        ("garbage", |path| fs::write(path, [0, 159, 146, 150, 0]).expect("written")),
        ("huge", |path| fs::File::create(path).and_then(|file| file.set_len(5 << 30)).expect("made")),
        ("a link in a circle", |path| symlink(path, path).expect("linked")),
        ("a pipe", |path| {
            let made = Command::new("mkfifo").arg(path).status().expect("mkfifo");
            assert!(made.success());
        }),
    ];
    for (poison, plant) in poisons {
        for name in ["platform-agent.pointer", "platform-agent.starts"] {
            let root = Root::new();
            root.install_script("b");
            root.try_b();
            fs::remove_file(root.state(name)).expect("removed");
            plant(&root.state(name));
            // The trial is known from the one file that is whole, or one more start is all it gets.
            let starts: Vec<String> = (0..2).map(|_| root.launch(&[]).slot()).collect();
            let expected = if name.ends_with("pointer") { ["a", "a"] } else { ["b", "a"] };
            assert_eq!(starts, expected, "{name} is {poison}");
            assert_eq!(root.launch(&["--version"]).code, Some(7), "an option of the agent's, not the launcher's");
        }
    }
}

#[test]
fn without_a_place_to_count_it_starts_and_says_so() {
    let root = Root::new();
    root.install_script("a");
    fs::remove_dir_all(root.path().join("state")).expect("removed");
    fs::write(root.path().join("state"), "a file").expect("written");
    for _ in 0..2 {
        let said = root.launch(&[]);
        assert_eq!(said.slot(), "a", "{said:?}");
        assert!(said.err.contains("this start is not counted"), "{said:?}");
    }
}

#[test]
fn on_a_full_disk_it_counts_and_goes_back() {
    let root = Root::new();
    let place = root.path();
    let Some(disk) = SmallDisk::mount(&place, 1) else { return };
    root.install_script("b");
    root.try_b();
    // A file is there to be overwritten; there is no room for a second one.
    disk.fill();
    root.assert_falls_back(launcher);
    let mark = fs::metadata(root.state("platform-agent.starts")).expect("counted").len();
    assert!(mark > 0);
}

#[test]
fn all_it_needs_is_one_folder_that_can_be_written() {
    let root = Root::new();
    let opt = root.folder.path().join("opt");
    let Some(_opt) = SmallDisk::mount(&opt, 1) else { return };
    let own = opt.join("platform");
    fs::create_dir(&own).expect("made");
    let Some(_own) = SmallDisk::mount(&own, 1) else { return };
    let remounted = Command::new("mount").args(["-o", "remount,ro"]).arg(&opt).status().expect("mount");
    assert!(remounted.success());
    fs::write(opt.join("file"), "").expect_err("it is read-only");
    let root = Root { folder: root.folder, place: Some(own.clone()) };
    root.install_script("b");
    root.try_b();
    root.assert_falls_back(launcher);
}

#[test]
fn without_the_name_of_the_boot_it_counts_as_ever() {
    let root = Root::new();
    if !is_root() {
        let _ = writeln!(io::stderr(), "SKIPPED a board without a boot id: needs root");
        return;
    }
    root.install_script("b");
    root.try_b();
    root.assert_falls_back(|| {
        let mut command = Command::new("unshare");
        let hide = "mount --bind /dev/null /proc/sys/kernel/random/boot_id && exec \"$0\" \"$@\"";
        command.args(["--mount", "sh", "-c", hide]).arg(find("platform-launcher").expect("it is built"));
        command
    });
}

fn launcher() -> Command {
    Command::new(find("platform-launcher").expect("it is built"))
}

#[test]
fn a_reload_while_it_waits_is_no_end() {
    let root = Root::new();
    root.install("a", b"#!/bin/sh\ngrep SigIgn /proc/$$/status\nexit 7\n", 0o755);
    root.point("slot-pointer 1 a\n");
    assert_eq!(root.launch(&[]).code, Some(7));
    // The second in a row waits.
    let mut command = Command::new(find("platform-launcher").expect("it is built"));
    command.arg("--root").arg(root.path());
    let output = root.folder.path().join("output");
    let (mut launcher, _) = Running::start(command, "the launcher", &output, false).expect("it can be started");
    eventually("its pause", || launcher.said().contains("it is started in 1 s").then_some(())).expect("it waits");
    launcher.signal(Signal::HUP);
    assert_eq!(launcher.wait().expect("it ends"), Some(7), "{}", launcher.said());
    // Nor is it one for the agent, until that listens.
    let said = launcher.said();
    let ignored = said.lines().find_map(|line| line.strip_prefix("SigIgn:")).expect("said");
    let ignored = u64::from_str_radix(ignored.trim(), 16).expect("a mask");
    assert_eq!(ignored & 1, 1, "{said}");
}

#[test]
fn it_neither_counts_nor_starts_beside_another_agent() {
    let root = Root::new();
    root.install_script("a");
    root.point("slot-pointer 1 a\n");
    let held = platform_agent::lock::take(&root.path()).expect("free");
    let said = root.launch(&[]);
    assert_eq!((said.code, &*said.out), (Some(75), ""), "{said:?}");
    assert!(said.err.contains(&format!("process {}", std::process::id())), "{said:?}");
    assert!(!root.state("platform-agent.starts").exists());
    // Called as the agent it is for questions, also beside a running one.
    let link = root.path().join("platform-agent");
    symlink(find("platform-launcher").expect("it is built"), &link).expect("linked");
    let said = Command::new(&link).arg("--root").arg(root.path()).arg("status").output().expect("it can be started");
    let said = Said::of(said);
    assert!(said.out.ends_with("status | slot= launcher= note=\n"), "{said:?}");
    assert!(!root.state("platform-agent.starts").exists());
    // And so it is to explain.
    let launcher = find("platform-launcher").expect("it is built");
    let said =
        Said::of(Command::new(launcher).arg("--explain").arg("--root").arg(root.path()).output().expect("started"));
    assert!(said.out.contains("pointer: slot a\n") && said.out.contains("next start: slot a, after 0 s"), "{said:?}");
    assert!(!root.state("platform-agent.starts").exists());
    drop(held);
    assert_eq!(root.launch(&[]).slot(), "a");
}

/// The agent as it is built, in slot a, with nobody to talk to.
fn real_agent(root: &Root) -> AgentOptions {
    let agent = fs::read(find("platform-agent").expect("it is built")).expect("read");
    root.install("a", &agent, 0o755);
    root.point("slot-pointer 1 a\n");
    let mut options = AgentOptions::new(root.folder.path());
    options.program = Some(find("platform-launcher").expect("it is built"));
    // A minute is what a start has to live for.
    options.minute = Some(0.3);
    let nobody = r#"{"cloud": {"app_address": "http://127.0.0.1:9", "id": "p", "secret": "s"}}"#;
    fs::write(options.credentials(), nobody).expect("written");
    options
}

fn mark(root: &Root) -> String {
    let text = fs::read(root.state("platform-agent.starts")).unwrap_or_default();
    let text = String::from_utf8_lossy(&text).into_owned();
    text.lines().find_map(|line| line.strip_prefix("mark ")).unwrap_or_default().to_owned()
}

#[test]
fn the_agent_says_that_it_lives_and_that_it_was_stopped() {
    let root = Root::new();
    let options = AgentOptions { minute: Some(3600.0), ..real_agent(&root) };
    let running = options.start().expect("started");
    eventually("the agent", || running.said().contains("starts in").then_some(())).expect("it starts");
    assert_eq!(mark(&root), "none");
    let before = running.said().matches("fleet server cannot be reached").count();
    running.kill();
    let running = options.start().expect("started");
    eventually("the second start", || running.said().contains("start 2 in a row").then_some(())).expect("counted");
    // By then it listens to signals.
    let asked = || (running.said().matches("fleet server cannot be reached").count() > before).then_some(());
    eventually("its first question", asked).expect("it runs");
    assert_eq!(running.stop().expect("it ends"), Some(0));
    assert_eq!(mark(&root), "stopped");
    let options = AgentOptions { minute: Some(0.2), ..options };
    let running = options.start().expect("started");
    eventually("the mark", || (mark(&root) == "lived").then_some(())).expect("it lives");
    running.kill();
    assert_eq!(mark(&root), "lived");
}

#[test]
fn no_stored_file_keeps_the_agent_from_living() {
    let files = [
        "state/config.cache",
        "state/platform-agent.record",
        "state/platform-server.record",
        "state/platform-server.pointer",
        "state/restarts.counter",
        "state/machine-server.process",
        "state/agent.life",
        "trust/root.json",
        "trust/numbers",
        "download/platform-server.validator",
        "download/platform-server.partial",
        "download/platform-agent.partial",
        "spool/0000000000000001",
        "agent.lock",
        "run",
        "run/server.stdout",
        "run/server.stderr",
        "run/console.sock",
    ];
    let poisons: [Poison; 5] = [
        ("empty", |path| fs::write(path, "").expect("written")),
        ("garbage", |path| fs::write(path, [b'{', 0, 159, 146, 150, b'\n', 255, 7].repeat(500)).expect("written")),
        ("huge", |path| fs::File::create(path).and_then(|file| file.set_len(1 << 30)).expect("made")),
        ("a folder", |path| fs::create_dir_all(path.join("inside")).expect("made")),
        // Nobody is at its other end.
        ("a pipe", |path| assert!(Command::new("mkfifo").arg(path).status().expect("run").success())),
    ];
    for file in files {
        for (poison, plant) in poisons {
            let root = Root::new();
            let options = real_agent(&root);
            let path = root.path().join(file);
            fs::create_dir_all(path.parent().expect("a folder")).expect("made");
            plant(&path);
            let mut starts = 0;
            // Usual, or --safe: within six starts it lives.
            loop {
                starts += 1;
                assert!(starts <= 6, "{file} is {poison}: it does not live");
                let mut running = options.start().expect("started");
                let lives = eventually("its life or end", || match mark(&root).as_str() {
                    "lived" => Some(true),
                    _ => (!running.is_running()).then_some(false),
                });
                if lives.expect("it lives or ends") {
                    assert!(starts == 1 || running.said().contains("--safe"), "{}", running.said());
                    running.end_by(Signal::KILL).expect("it ends");
                    break;
                }
            }
            if starts > 1 {
                println!("{file} is {poison}: {starts} starts");
            }
        }
    }
}

#[test]
fn a_safe_start_sets_state_aside_and_says_so() {
    let root = Root::new();
    root.point("slot-pointer 1 a\n");
    root.install_script("a");
    for _ in 0..3 {
        assert_eq!(root.launch(&[]).slot(), "a");
    }
    let options = real_agent(&root);
    fs::write(root.state("config.cache"), "poison").expect("written");
    let running = options.start().expect("started");
    eventually("the mark", || (mark(&root) == "lived").then_some(())).expect("it lives");
    assert!(running.said().contains("config.cache is set aside"), "{}", running.said());
    assert!(running.said().contains("it is started with --safe"), "{}", running.said());
    assert_eq!(fs::read_to_string(root.state("config.cache.set-aside")).expect("kept"), "poison");
    running.stop().expect("it ends");
    // From then on as usual.
    let running = options.start().expect("started");
    eventually("a usual start", || running.said().contains("starts slot a, start 1 in a row").then_some(()))
        .expect("usual");
}

#[test]
fn a_version_that_hangs_before_it_is_ready_is_ended_and_left() {
    use std::os::unix::process::ExitStatusExt as _;
    let root = Root::new();
    root.try_b();
    root.install("b", b"#!/bin/sh\nexec sleep 1000\n", 0o755);
    for start in 1..=3 {
        let mut command = Command::new(find("platform-launcher").expect("it is built"));
        command.arg("--root").arg(root.path()).env("PLATFORM_AGENT_START_SECONDS", "1");
        let ended = command.output().expect("the launcher can be started");
        assert_eq!(ended.status.signal(), Some(14), "start {start}: {ended:?}");
    }
    let said = root.launch(&[]);
    assert_eq!(said.slot(), "a", "{said:?}");
    assert!(said.out.contains("slot b was started 3 times in a row"), "{said:?}");
    assert_eq!(root.pointer(), "slot-pointer 1 a\n");
}

#[test]
fn an_agent_that_is_ready_has_no_limit_any_more() {
    let root = Root::new();
    let limit = ("PLATFORM_AGENT_START_SECONDS".to_owned(), "10".to_owned());
    let options = AgentOptions { minute: Some(11.0), environment: vec![limit], ..real_agent(&root) };
    let mut running = options.start().expect("started");
    eventually("the mark", || (mark(&root) == "lived" || !running.is_running()).then_some(())).expect("lives or ends");
    assert!(running.is_running(), "{}", running.said());
    assert_eq!(mark(&root), "lived");
    running.stop().expect("it ends");
}
