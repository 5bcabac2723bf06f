//! How an agent gets onto a device and off it again: `--install` into images, the script of the fleet server, and what
//! a service leaves behind when it is stopped. As an ordinary user, below a folder; `make lab` does it on a board.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use actors::update::{
    record::Record,
    slots::{Layout, Slot},
};
use test_harness::real::{programs::find, releases::Factory};

use crate::world::{Mirror, World, eventually, http, is_alive, until_gone};
use test_harness::real::mirror::Lie;

/// The version that is built.
const VERSION: &str = env!("CARGO_PKG_VERSION");
const AGENT: &str = "platform-agent";
const LAUNCHER: &str = "platform-launcher";

fn agent(arguments: &[&str], image: &Path) -> Output {
    let mut command = Command::new(find(AGENT).expect("it is built"));
    command.args(arguments).arg("--into").arg(image).output().expect("it runs")
}

#[track_caller]
fn said(output: &Output) -> String {
    let text = String::from_utf8_lossy(&[&output.stdout[..], &output.stderr[..]].concat()).into_owned();
    assert!(output.status.success(), "{text}");
    text
}

/// Whether both hold the same. Not compared by a macro, which would print them.
fn same(one: &Path, other: &Path) -> bool {
    fs::read(one).unwrap() == fs::read(other).unwrap()
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap_or_else(|error| panic!("{}: {error}", path.display())).permissions().mode() & 0o7777
}

/// Every file and link below a folder.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        match entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            true => found.extend(files(&path)),
            false => found.push(path),
        }
    }
    found
}

fn record(image: &Path) -> (PathBuf, Record) {
    let path = Layout::new(&image.join("opt/platform"), AGENT).record();
    let record = Record::decode(&fs::read(&path).expect("a record")).expect("it is whole");
    (path, record)
}

#[test]
fn an_image_gets_an_agent_that_starts_and_loses_exactly_that() {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("image");
    fs::create_dir_all(image.join("opt/platform")).unwrap();
    fs::write(image.join("opt/platform/notes.txt"), "somebody's").unwrap();
    fs::create_dir_all(image.join("etc")).unwrap();
    fs::write(image.join("etc/platform.json"), "{}").unwrap();

    let first = said(&agent(&["--install"], &image));
    assert!(first.contains("copied") && first.contains("enabled"), "{first}");
    let root = image.join("opt/platform");
    let program = root.join("versions/platform-agent/a/platform-agent");
    assert!(same(&program, &find(AGENT).unwrap()), "whole");
    for (path, expected) in [
        (program.clone(), 0o755),
        (root.join("bin/platform-launcher"), 0o755),
        (root.join("state"), 0o700),
        (root.join("state/platform-agent.record"), 0o600),
        (image.join("etc/systemd/system/platform-agent.service"), 0o644),
    ] {
        assert_eq!(mode(&path), expected, "{}", path.display());
    }
    let wants = image.join("etc/systemd/system/multi-user.target.wants/platform-agent.service");
    assert!(wants.exists(), "the link leads somewhere");
    let link = fs::read_link(image.join("usr/local/bin/platform-agent")).unwrap();
    assert_eq!(link, Path::new("/opt/platform/bin/platform-launcher"), "as it will be on the device");
    let (_, stored) = record(&image);
    assert_eq!(stored.slots.active, Some(Slot::A));
    assert_eq!(stored.slots.active().unwrap().version, VERSION);

    // Again: nothing differs, nothing is written.
    let written = |path: &Path| fs::metadata(path).unwrap().modified().unwrap();
    let before = (written(&program), written(&root.join("state/platform-agent.record")));
    let again = said(&agent(&["--install"], &image));
    assert!(!again.contains("copied") && !again.contains("written"), "{again}");
    assert_eq!((written(&program), written(&root.join("state/platform-agent.record"))), before);

    let gone = said(&agent(&["--uninstall"], &image));
    assert!(gone.contains("removed") && gone.contains("kept"), "{gone}");
    let mut left = files(&image);
    left.sort();
    assert_eq!(left, [image.join("etc/platform.json"), image.join("opt/platform/notes.txt")], "{gone}");
    said(&agent(&["--uninstall", "--purge"], &image));
    assert_eq!(files(&image), [image.join("opt/platform/notes.txt")]);
}

#[test]
fn a_torn_slot_is_replaced_and_a_newer_version_only_when_told_to() {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("image");
    said(&agent(&["--install"], &image));
    let root = image.join("opt/platform");
    let slot = |name: &str| root.join(format!("versions/platform-agent/{name}/platform-agent"));

    // A disk that lost the second half: the same length, other bytes.
    let mut torn = fs::read(slot("a")).unwrap();
    let half = torn.len() / 2;
    torn[half..].fill(0);
    fs::write(slot("a"), &torn).unwrap();
    said(&agent(&["--install"], &image));
    let (path, mut stored) = record(&image);
    let active = stored.slots.active.expect("one is active");
    assert!(same(&slot(active.name()), &find(AGENT).unwrap()), "whole again");

    // What lies there says that it is newer.
    let mut newer = stored.slots.active().cloned().expect("one is active");
    newer.version = "99.0.0".to_owned();
    fs::OpenOptions::new()
        .append(true)
        .open(slot(active.name()))
        .and_then(|mut file| {
            use std::io::Write as _;
            file.write_all(b"more")
        })
        .unwrap();
    let bytes = fs::read(slot(active.name())).unwrap();
    newer.length = bytes.len() as u64;
    newer.sha256 = api::digest::sha256(&bytes);
    stored.slots.set(active, Some(newer));
    fs::write(&path, stored.encode()).unwrap();
    let refused = agent(&["--install"], &image);
    let words = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(1));
    assert!(words.contains("99.0.0") && words.contains("--force"), "{words}");
    assert!(fs::read(slot(active.name())).unwrap() == bytes, "untouched");
    said(&agent(&["--install", "--force"], &image));
    let (_, stored) = record(&image);
    assert_eq!(stored.slots.active, Some(active.other()), "the newer one stays as the way back");
    assert_eq!(stored.slots.spare().unwrap().version, "99.0.0");
}

#[test]
fn what_cannot_be_installed_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("image");
    let lonely = folder.path().join(AGENT);
    test_executables::copy(&find(AGENT).unwrap(), &lonely).unwrap();
    let refused = Command::new(&lonely).args(["--install", "--into"]).arg(&image).output().unwrap();
    let words = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && words.contains("--launcher FILE"), "{words}");
    assert_eq!(files(&image), Vec::<PathBuf>::new(), "nothing was begun");
    let refused = agent(&["--install", "--root", "/my data"], &image);
    let words = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && words.contains("/my data"), "{words}");
    assert_eq!(files(&image), Vec::<PathBuf>::new());
}

/// A device that is installed by the script, below a folder.
struct Bare<'a> {
    world: &'a World,
    image: PathBuf,
    script: PathBuf,
}

impl Bare<'_> {
    /// Runs the script with these variables.
    fn install(&self, variables: &[(&str, &str)]) -> Output {
        let mut command = Command::new("/bin/sh");
        command.arg(&self.script).arg("--into").arg(&self.image);
        for name in ["PLATFORM_API_KEY_ID", "PLATFORM_API_KEY", "PLATFORM_PART_ID", "PLATFORM_VERSION"] {
            command.env_remove(name);
        }
        command.envs(variables.iter().copied()).output().expect("a shell")
    }

    fn install_as_owner(&self) -> Output {
        let (owner, part) = (&self.world.owner, &self.world.device.part_id);
        self.install(&[
            ("PLATFORM_API_KEY_ID", &owner.key_id),
            ("PLATFORM_API_KEY", owner.key.expose()),
            ("PLATFORM_PART_ID", part),
        ])
    }

    #[track_caller]
    fn refused(&self, output: &Output, why: &str) {
        let words = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && words.contains(why), "{why}: {words}");
        assert!(!self.image.join("opt").exists(), "nothing was installed: {words}");
    }
}

/// The script of the fleet server, with another address in it where one is given. Nothing without openssl 3 and curl.
fn bare<'a>(world: &'a World, address: Option<&str>) -> Option<Bare<'a>> {
    let works = |program: &str, words: &[&str]| Command::new(program).args(words).output().is_ok();
    let verifies = Command::new("openssl").args(["pkeyutl", "-help"]).output();
    let verifies =
        verifies.is_ok_and(|help| String::from_utf8_lossy(&[help.stdout, help.stderr].concat()).contains("-rawin"));
    if !verifies || !works("curl", &["--version"]) {
        println!("SKIPPED curl and OpenSSL 3 are needed to run the script");
        return None;
    }
    let (status, text) = http::get(&format!("{}/install.sh", world.url)).expect("an answer");
    assert_eq!(status, 200, "{text}");
    let text = match address {
        Some(address) => text.replace(&format!("ADDRESS=\"{}\"", world.url), &format!("ADDRESS=\"{address}\"")),
        None => text,
    };
    let script = world.path("install.sh");
    fs::write(&script, text).unwrap();
    Some(Bare { world, image: world.path("image"), script })
}

fn publish(factory: &Factory) {
    factory.publish(AGENT, VERSION, 1, &find(AGENT).unwrap()).expect("a release");
    factory.publish(LAUNCHER, VERSION, 1, &find(LAUNCHER).unwrap()).expect("a release");
}

#[test]
fn the_script_makes_a_device_and_may_be_run_twice() {
    let world = World::new(&[("1.0.0", &[])]);
    publish(&world.factory);
    let Some(bare) = bare(&world, None) else { return };
    // Nothing of the script is secret.
    let script = fs::read_to_string(&bare.script).unwrap();
    assert!(!script.contains(world.owner.key.expose()));

    let first = said(&bare.install_as_owner());
    assert!(first.contains("fetching platform-agent") && first.contains("enabled"), "{first}");
    assert!(!first.contains(world.device.part_secret.expose()), "no secret is shown");
    let credentials = bare.image.join("etc/platform.json");
    assert_eq!(mode(&credentials), 0o600);
    let identity = platform_agent::identity::read(&credentials, false).expect("the agent reads it");
    assert_eq!(identity.part_id, world.device.part_id);
    assert_eq!(record(&bare.image).1.slots.active().unwrap().version, VERSION);

    let again = said(&bare.install_as_owner());
    assert!(again.contains("is up to date") && again.contains("kept"), "{again}");
    // Later without a key: the file that is there is the identity.
    let third = said(&bare.install(&[("PLATFORM_VERSION", VERSION)]));
    assert!(third.contains("is used"), "{third}");

    // With the identity it got, it is live.
    let mut command = Command::new(bare.image.join("opt/platform/bin/platform-launcher"));
    command.arg("--root").arg(bare.image.join("opt/platform")).arg("--config").arg(&credentials);
    command.arg("--defaults").arg(world.options.defaults()).args(["--dev-mode", "--minute", "1"]);
    let log = world.path("installed.log");
    let (running, _) = test_harness::real::process::Running::start(command, AGENT, &log, false).expect("it starts");
    eventually("a live device", || world.part_status().live.then_some(())).unwrap_or_else(|trouble| {
        panic!("{trouble}\n{}", fs::read_to_string(&log).unwrap_or_default());
    });
    assert_eq!(running.stop().expect("it ends"), Some(0));
}

#[test]
fn the_script_gives_no_identity_to_who_may_not_have_it() {
    let world = World::new(&[("1.0.0", &[])]);
    publish(&world.factory);
    let Some(bare) = bare(&world, None) else { return };
    bare.refused(&bare.install(&[]), "PLATFORM_API_KEY_ID, PLATFORM_API_KEY and PLATFORM_PART_ID");
    let (id, part) = (&*world.owner.key_id, &*world.device.part_id);
    let with = |key: &str, part: &str| {
        bare.install(&[("PLATFORM_API_KEY_ID", id), ("PLATFORM_API_KEY", key), ("PLATFORM_PART_ID", part)])
    };
    bare.refused(&with("wrong", part), "the id or the secret is wrong");
    bare.refused(&with(world.owner.key.expose(), "00000000-0000-4000-8000-000000000000"), "there is no");
    bare.refused(&with(world.owner.key.expose(), "x&y=z"), "signs that no id");
    // Another device's identity is not overwritten.
    fs::create_dir_all(bare.image.join("etc")).unwrap();
    fs::write(bare.image.join("etc/platform.json"), "{\"cloud\":{\"id\":\"another\"}}").unwrap();
    bare.refused(&bare.install_as_owner(), "names another part");
    let bare_hands = |path: &str| http::get(&format!("{}{path}", world.url)).expect("an answer").0;
    assert_eq!(bare_hands(&format!("/install/credentials?part={part}")), 401, "no key, no secret");
}

#[test]
fn the_script_runs_nothing_that_is_not_signed() {
    let world = World::new(&[("1.0.0", &[])]);
    publish(&world.factory);
    let mirror = Mirror::start(Some(&world.url)).unwrap();
    let Some(bare) = bare(&world, Some(&mirror.url())) else { return };
    let get = |path: &str| http::get(&format!("{}{path}", world.url)).expect("an answer").1;
    let release = format!("/releases/v1/release/{AGENT}/{VERSION}.json");
    let (document, channel) = (get(&release), get("/releases/v1/channel/stable.json"));
    let body = |text: String| Lie::Body(200, text.into_bytes());
    let digits = document.split("\"sig\":\"").nth(1).unwrap().split('"').next().unwrap().to_owned();
    let flipped = format!("{}{}", if digits.starts_with('0') { '1' } else { '0' }, &digits[1..]);
    let of_launcher = get(&format!("/releases/v1/release/{LAUNCHER}/{VERSION}.json"));
    let rows = [
        (
            "other bytes",
            "/releases/v1/artifact/",
            body("#!/bin/sh\ntouch /tmp/pwned\n".into()),
            "does not match its signed digest",
        ),
        ("a changed document", &release, body(document.replace("\"length\":", "\"length\":1")), "is not genuine"),
        ("a forged signature", &release, body(document.replace(&digits, &flipped)), "is not genuine"),
        (
            "no signature",
            &release,
            body(format!(
                "{{\"signatures\":[],\"signed\":{}",
                &document[document.find("],\"signed\":").unwrap() + 11..]
            )),
            "is not genuine",
        ),
        ("another product's", &release, body(of_launcher), "something else"),
        ("a channel in its place", &release, body(channel), "not genuine"),
        ("a page of a captive portal", &release, body("<html>Please log in</html>".into()), "no signed document"),
        ("nothing there", &release, Lie::Body(404, Vec::new()), "could not be fetched"),
    ];
    for (case, path, lie, why) in rows {
        mirror.lie(path, lie);
        let output = bare.install_as_owner();
        let words = String::from_utf8_lossy(&output.stderr).into_owned();
        // One channel is signed by the same key as the releases here: then its kind is what gives it away.
        let told =
            words.contains(why) || (case == "a channel in its place" && words.contains("another kind of document"));
        assert!(!output.status.success() && told, "{case}: {words}");
        assert!(!bare.image.join("opt").exists(), "{case}: nothing was installed");
        mirror.be_honest();
    }
    said(&bare.install_as_owner());
}

#[test]
fn a_stopped_service_ends_the_machine_server_and_a_crashed_one_does_not() {
    let mut world = World::running(&[("1.0.0", &[("children", "1")])]);
    let pid = world.server_pid();
    let root = world.options.root();
    let end_server = |result: &str| {
        let mut command = Command::new(find(LAUNCHER).unwrap());
        command.arg("end-server").arg("--root").arg(&root).env("SERVICE_RESULT", result).output().unwrap()
    };
    let refused = end_server("success");
    let words = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && words.contains("another agent runs"), "it is the agent's: {words}");
    assert!(is_alive(pid));

    world.kill_agent();
    for crash in ["signal", "core-dump", "watchdog", "exit-code"] {
        assert!(said(&end_server(crash)).contains("stays"), "{crash}");
        assert!(is_alive(pid), "{crash}");
    }
    let words = said(&end_server("timeout"));
    assert!(words.contains(&format!("process {pid} ended")), "{words}");
    until_gone(pid);
    assert!(said(&end_server("success")).contains("no machine server runs"));

    // The next agent does not take that for a crash.
    world.start_agent();
    let server = world.until_ready();
    assert_eq!(server.crashes, 0);
    assert_ne!(world.server_pid(), pid);
}

#[test]
fn an_agent_that_is_killed_while_it_stops_was_stopped_all_the_same() {
    // It is killed after two minutes: not before the agent is.
    let mut world = World::running_at(5.0, &[("1.0.0", &[("ignore-sigterm", "true")])]);
    let pid = world.server_pid();
    let root = world.options.root();
    let mark = root.join("state/platform-agent.stopping");
    assert!(!mark.exists());
    let end_server = || {
        let mut command = Command::new(find(LAUNCHER).unwrap());
        command.arg("end-server").arg("--root").arg(&root).env("SERVICE_RESULT", "signal").output().unwrap()
    };
    let agent = fs::read_to_string(root.join("agent.lock")).unwrap();
    let agent: u32 = agent.strip_prefix("process ").and_then(|number| number.parse().ok()).unwrap();
    crate::world::signal(agent, crate::world::Signal::TERM);
    world.until_said("asked to stop");
    eventually("the mark", || mark.exists().then_some(())).unwrap();
    world.kill_agent();
    assert!(is_alive(pid));
    // Of another boot it says nothing.
    let boot = fs::read(&mark).unwrap();
    fs::write(&mark, "00000000-0000-4000-8000-000000000000").unwrap();
    assert!(said(&end_server()).contains("stays"));
    fs::write(&mark, boot).unwrap();
    // It does not hear SIGTERM and has two minutes, which this test has not.
    let ending = std::thread::spawn({
        let root = root.clone();
        move || {
            let mut command = Command::new(find(LAUNCHER).unwrap());
            command.arg("end-server").arg("--root").arg(&root).env("SERVICE_RESULT", "signal").output().unwrap()
        }
    });
    eventually("the end of the mark", || (!mark.exists()).then_some(())).unwrap();
    crate::world::signal(pid, crate::world::Signal::KILL);
    let words = said(&ending.join().unwrap());
    // The kill may come before the look, which then finds nobody: either way it was not left alone.
    let is_ended = words.contains(&format!("process {pid} ended")) || words.contains("no machine server runs");
    assert!(is_ended, "{words}");
    assert!(said(&end_server()).contains("stays"), "the mark held once");

    // And a start takes one away that was left.
    fs::write(&mark, "left").unwrap();
    world.options.minute = Some(1.0);
    world.start_agent();
    eventually("the mark of the agent before to be gone", || (!mark.exists()).then_some(())).unwrap();
}

#[test]
fn only_a_launcher_of_this_machine_takes_the_place_of_the_launcher() {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("image");
    let installed = image.join("opt/platform/bin/platform-launcher");
    let previous = image.join("opt/platform/bin/platform-launcher.previous");
    let good = fs::read(find(LAUNCHER).unwrap()).unwrap();
    let mut other_machine = good.clone();
    other_machine[18..20].copy_from_slice(&[183, 0]);
    let rows: [(&str, &[u8], &str); 4] = [
        ("a text", b"#!/bin/sh\necho platform-launcher 9\n", "no executable"),
        ("the agent", &fs::read(find(AGENT).unwrap()).unwrap(), "it is platform-agent"),
        ("one of another processor", &other_machine, "another processor"),
        ("half of one", &good[..40], "no executable"),
    ];
    let file = folder.path().join("candidate");
    let refuses = |case: &str, why: &str| {
        let refused = agent(&["--install", "--launcher", file.to_str().unwrap()], &image);
        let words = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(!refused.status.success() && words.contains(why), "{case}: {words}");
    };
    for (case, content, why) in rows {
        fs::write(&file, content).unwrap();
        refuses(case, why);
        assert!(!installed.exists(), "{case}");
    }
    said(&agent(&["--install"], &image));
    assert!(same(&installed, &previous), "a second copy, for the day when the first is spoilt");
    for (case, content, why) in rows {
        fs::write(&file, content).unwrap();
        refuses(case, why);
        assert!(fs::read(&installed).unwrap() == good, "{case}: untouched");
    }
    // Another one: what was there stays as the way back.
    let mut newer = good.clone();
    newer.extend_from_slice(b"newer");
    fs::write(&file, &newer).unwrap();
    let words = said(&agent(&["--install", "--launcher", file.to_str().unwrap()], &image));
    assert!(words.contains("copied"), "{words}");
    assert!(fs::read(&installed).unwrap() == newer && fs::read(&previous).unwrap() == good);
    assert_eq!((mode(&installed), mode(&previous)), (0o755, 0o755));
    // A spoilt one is not kept over one that works.
    fs::write(&installed, &good[..40]).unwrap();
    said(&agent(&["--install"], &image));
    assert!(fs::read(&installed).unwrap() == good && fs::read(&previous).unwrap() == good);
    let left: Vec<_> = files(&image.join("opt/platform/bin"));
    assert_eq!(left.len(), 2, "{left:?}");
}

#[test]
fn the_launcher_before_takes_the_place_of_one_that_does_not_work() {
    let folder = tempfile::tempdir().unwrap();
    let (installed, previous) = (folder.path().join(LAUNCHER), folder.path().join("platform-launcher.previous"));
    test_executables::copy(&find(LAUNCHER).unwrap(), &previous).unwrap();
    let restore = || Command::new(&previous).arg("restore").output().unwrap();
    let put = |content: &[u8], mode: u32| {
        test_executables::write(&installed, content).unwrap();
        fs::set_permissions(&installed, fs::Permissions::from_mode(mode)).unwrap();
    };
    // One that works stays, whatever it is.
    put(b"#!/bin/sh\necho platform-launcher 9.9.9\n", 0o755);
    assert_eq!(said(&restore()), "");
    assert!(!same(&installed, &previous));
    let whole = fs::read(&previous).unwrap();
    let rows: [(&str, &[u8], u32); 4] = [
        ("the beginning of one", &whole[..5000], 0o755),
        ("of another processor", b"\x7fELF\x02\x01\x01 and so on", 0o755),
        ("without its mode", &whole, 0o600),
        ("empty", b"", 0o755),
    ];
    for (case, content, mode_before) in rows {
        put(content, mode_before);
        let words = said(&restore());
        assert!(words.contains("The one before takes its place"), "{case}: {words}");
        assert!(same(&installed, &previous) && mode(&installed) == 0o755, "{case}");
        assert_eq!(said(&restore()), "", "{case}");
    }
    fs::remove_file(&installed).unwrap();
    said(&restore());
    assert!(same(&installed, &previous), "missing");
    // A folder in its place cannot be replaced, and that is said.
    fs::remove_file(&installed).unwrap();
    fs::create_dir_all(installed.join("inside")).unwrap();
    let refused = restore();
    assert!(!refused.status.success() && String::from_utf8_lossy(&refused.stderr).contains("cannot take its place"));
    assert!(previous.is_file(), "the one that works is kept");
}

#[test]
fn a_narrow_umask_closes_nothing_that_others_need_and_open_secrets_are_closed() {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("image");
    fs::create_dir_all(image.join("etc")).unwrap();
    fs::create_dir_all(image.join("opt/platform/state")).unwrap();
    fs::set_permissions(image.join("opt/platform/state"), fs::Permissions::from_mode(0o755)).unwrap();
    fs::write(image.join("etc/platform.json"), "{}").unwrap();
    fs::set_permissions(image.join("etc/platform.json"), fs::Permissions::from_mode(0o644)).unwrap();
    let mut command = Command::new("/bin/sh");
    command.args(["-c", "umask 077; exec \"$0\" --install --into \"$1\""]).arg(find(AGENT).unwrap()).arg(&image);
    let words = said(&command.output().unwrap());
    assert!(words.contains("closed"), "{words}");
    for name in
        ["etc/systemd", "etc/systemd/system", "usr", "usr/local/bin", "opt/platform/bin", "opt/platform/versions"]
    {
        assert_eq!(mode(&image.join(name)), 0o755, "{name}");
    }
    assert_eq!(mode(&image.join("opt/platform/state")), 0o700);
    assert_eq!(mode(&image.join("etc/platform.json")), 0o600);
    assert!(!said(&agent(&["--install"], &image)).contains("closed"), "once");
}

#[test]
fn to_install_a_service_needs_root() {
    use std::os::unix::process::CommandExt as _;
    let folder = tempfile::tempdir().unwrap();
    let place = crate::world::for_everybody(folder.path(), &[AGENT, LAUNCHER]);
    for wish in ["--install", "--uninstall"] {
        let mut command = Command::new(place.join(AGENT));
        command.arg(wish);
        if crate::world::is_root() {
            command.uid(65534).gid(65534);
        }
        let refused = command.output().unwrap();
        let words = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert_eq!(refused.status.code(), Some(77), "{wish}: {words}");
        assert!(words.contains("sudo"), "{wish}: {words}");
    }
}

#[test]
fn the_script_says_what_a_machine_lacks_before_it_touches_anything() {
    let world = World::new(&[("1.0.0", &[])]);
    publish(&world.factory);
    let Some(bare) = bare(&world, None) else { return };
    // Programs in front of the machine's own, which say that it is another one.
    let stubs = world.path("stubs");
    fs::create_dir_all(&stubs).unwrap();
    let stub = |name: &str, script: &str| {
        let path = stubs.join(name);
        test_executables::write(&path, format!("#!/bin/sh\n{script}\n").as_bytes()).unwrap();
    };
    let uname = |machine: &str| format!("case $1 in -s) echo Linux ;; -r) echo 6.1.0 ;; *) echo {machine} ;; esac");
    let path = format!("{}:{}", stubs.display(), std::env::var("PATH").unwrap_or_default());
    let (id, key, part) = (&*world.owner.key_id, world.owner.key.expose(), &*world.device.part_id);
    let variables =
        [("PATH", &*path), ("PLATFORM_API_KEY_ID", id), ("PLATFORM_API_KEY", key), ("PLATFORM_PART_ID", part)];
    /// The case, the programs that stand in for the system's, and what the script says.
    type Row<'a> = (&'a str, &'a [(&'a str, &'a str)], &'a str);
    let rows: [Row<'_>; 8] = [
        ("64 bits of arm", &[("uname", &uname("aarch64")), ("od", "echo ' 2'")], "was not made for linux/arm64"),
        ("32 bits on 64", &[("uname", &uname("aarch64")), ("od", "echo ' 1'")], "was not made for linux/arm"),
        ("armv7", &[("uname", &uname("armv7l")), ("od", "echo ' 1'")], "was not made for linux/arm"),
        ("unknown", &[("uname", &uname("riscv64")), ("od", "echo ' 2'")], "no programs for riscv64 with a 64-bit"),
        ("no Linux", &[("uname", "echo Darwin")], "this is Darwin"),
        ("an old C library", &[("getconf", "echo glibc 2.5")], "this system has glibc 2.5"),
        ("after the documents' time", &[("date", "echo 2999-01-01T00:00:00Z")], "has expired"),
        ("an old OpenSSL", &[("openssl", "echo OpenSSL 1.1.1")], "cannot verify ed25519"),
    ];
    for (case, programs, why) in rows {
        for (name, script) in programs {
            stub(name, script);
        }
        let output = bare.install(&variables);
        let words = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && words.contains(why), "{case}: {words}");
        assert!(!bare.image.join("opt").exists(), "{case}: nothing was installed");
        for (name, _) in programs {
            fs::remove_file(stubs.join(name)).unwrap();
        }
    }
    // A clock that has not been set says nothing about documents; its own certificates are TLS's business.
    stub("date", "echo 1970-01-01T00:00:00Z");
    said(&bare.install(&variables));
    // Plain http to another machine is refused before a key is sent.
    let text = fs::read_to_string(&bare.script).unwrap();
    let plain = text.replace(&format!("ADDRESS=\"{}\"", world.url), "ADDRESS=\"http://fleet.example.com\"");
    assert_ne!(plain, text);
    fs::write(&bare.script, plain).unwrap();
    let output = bare.install(&variables);
    assert!(!output.status.success() && String::from_utf8_lossy(&output.stderr).contains("plain http"), "{output:?}");
}
