//! Everything that is wrong: said in a sentence, survived, and over when it is put right.

use std::{
    fs,
    io::{Read as _, Write as _},
    net::{Shutdown, TcpStream},
    os::unix::{fs::PermissionsExt as _, process::CommandExt as _},
    path::Path,
    process::{Command, Output},
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
};

use api::pb::platform::{
    app::v1::{GetRobotPartRequest, GetRobotPartResponse, UpdateRobotPartRequest, app_service},
    fleet::v1::DeviceStatus,
};
use serde_json::{Value, json};
use test_harness::real::{mirror::Lie, programs};

use crate::world::{Mirror, NOBODY, Signal, World, attempt, eventually, for_everybody, is_root, server, signal};

/// Exit code and what was said.
fn told(output: Output) -> (Option<i32>, String) {
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    (output.status.code(), text(output.stdout) + &text(output.stderr))
}

fn run(program: &str, arguments: &[&str]) -> (Option<i32>, String) {
    told(Command::new(programs::find(program).unwrap()).args(arguments).output().unwrap())
}

#[test]
fn unknown_options_are_named() {
    let table: [(&str, &[&str], &str); 6] = [
        ("platform-agent", &["--frobnicate"], "--frobnicate"),
        ("platform-agent", &["--minute", "1"], "--dev-mode"),
        ("platform-agent", &["--dev-mode", "--minute", "soon"], "soon"),
        ("platform-fleet", &["serve", "--frobnicate"], "--frobnicate"),
        ("platform", &["machine", "frobnicate"], "frobnicate"),
        ("sandbox", &["--frobnicate"], "--frobnicate"),
    ];
    for (program, arguments, named) in table {
        let (code, said) = run(program, arguments);
        assert_eq!(code, Some(2), "{program} {arguments:?}: {said}");
        assert!(said.contains(named) && !said.contains("panicked"), "{program} {arguments:?}: {said}");
    }
}

#[test]
fn an_ordinary_user_needs_dev_mode() {
    let place = tempfile::tempdir().unwrap();
    let mut command = match is_root() {
        true => {
            let mut command = Command::new(for_everybody(place.path(), &["platform-agent"]).join("platform-agent"));
            command.uid(NOBODY).gid(NOBODY);
            command
        }
        false => Command::new(programs::find("platform-agent").unwrap()),
    };
    let (code, said) = told(command.args(["--root"]).arg(place.path().join("root")).output().unwrap());
    assert_eq!(code, Some(77), "{said}");
    assert!(said.contains("--dev-mode"), "{said}");
    assert!(!place.path().join("root").exists(), "nothing was touched");
}

#[test]
fn a_second_agent_in_the_same_folder_names_the_first_and_ends() {
    let mut world = World::running(&[("1.0.0", &[])]);
    let pid = world.server_pid();
    let mut second = world.options.start().unwrap();
    assert_eq!(second.wait().unwrap(), Some(75));
    let owner = format!("process {}", world.agent.as_ref().unwrap().pid());
    assert!(world.agent_said().contains(&owner), "{owner}: {}", world.agent_said());
    world.until_checked();
    assert_eq!(world.server_pid(), pid);
    assert!(world.agent.as_mut().unwrap().is_running());
}

#[test]
fn a_root_folder_that_cannot_be_used_is_said() {
    let (code, said) = run("platform-agent", &["--dev-mode", "--root", "/proc/none/here"]);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("/proc/none/here"), "{said}");
}

#[test]
fn wrong_credentials_are_said_and_taken_when_they_are_put_right() {
    let mut world = World::new(&[("1.0.0", &[])]);
    let credentials = world.options.credentials();
    let right = fs::read_to_string(&credentials).unwrap();
    let cloud = |change: &dyn Fn(&mut Value)| {
        let mut json: Value = serde_json::from_str(&right).unwrap();
        change(&mut json["cloud"]);
        json.to_string()
    };
    fs::remove_file(&credentials).unwrap();
    world.start_agent();
    world.until_said("does not exist");
    let table = [
        (r#"{"cloud": {"app_address": "#.to_owned(), "is not JSON"),
        (cloud(&|cloud| cloud["secret"] = json!(null)), "cloud.secret"),
        (cloud(&|cloud| cloud["app_address"] = json!("not an address")), "cloud.app_address"),
        (cloud(&|cloud| cloud["api_key"] = json!({"id": "x"})), "cloud.api_key.key"),
        (cloud(&|cloud| cloud["secret"] = json!("wrong-horse-battery")), "refused"),
        ("\u{0}".repeat(2_000_000), "is not JSON"),
    ];
    for (content, words) in &table {
        fs::write(&credentials, content).unwrap();
        world.until_said(words);
    }
    assert!(world.agent.as_mut().unwrap().is_running());
    assert!(!world.agent_said().contains("wrong-horse-battery"), "secrets are in no log");

    fs::write(&credentials, &right).unwrap();
    world.until_ready();
    let pid = world.server_pid();

    // Broken again while the machine runs: that goes on.
    fs::write(&credentials, "{}").unwrap();
    world.until_said("cloud is missing");
    fs::remove_file(&credentials).unwrap();
    // A pipe that nobody writes into is not waited for.
    assert!(Command::new("mkfifo").arg(&credentials).status().unwrap().success());
    world.until_said("is not a plain file");
    assert_eq!(world.server_pid(), pid);
    fs::remove_file(&credentials).unwrap();
    fs::write(&credentials, &right).unwrap();
    let is_exposed = |status: &DeviceStatus| status.warnings.iter().any(|warning| warning.contains("chmod 600"));
    for (mode, exposed) in [(0o644, true), (0o600, false)] {
        fs::set_permissions(&credentials, fs::Permissions::from_mode(mode)).unwrap();
        world.until("what others may read", |status| is_exposed(status) == exposed);
    }
    assert_eq!(world.server_pid(), pid);
    assert!(!world.agent_said().contains(world.device.part_secret.expose()), "secrets are in no log");
}

#[test]
fn a_broken_defaults_file_is_said_and_read_again_when_asked() {
    let mut world = World::new(&[("1.0.0", &[])]);
    let defaults = world.options.defaults();
    let right = fs::read_to_string(&defaults).unwrap();
    fs::write(&defaults, "{\"advanced_settings\": {").unwrap();
    world.start_agent();
    world.until_said("defaults file");
    world.until_ready();

    fs::write(&defaults, &right).unwrap();
    world.agent.as_ref().unwrap().signal(Signal::HUP);
    world.until_checked();
    let pid = server(&world.status()).pid;
    world.write_defaults(&json!({"platform_server_env": {"GREETING": "from the factory"}, "debug": "loud"}));
    world.agent.as_ref().unwrap().signal(Signal::HUP);
    world.until("another process", |status| !matches!(server(status).pid, 0) && server(status).pid != pid);
    // It serves where the defaults say from now on.
    assert_eq!(world.read("/env/GREETING"), "from the factory");
    let status = world.until("a complaint", |status| !status.complaints.is_empty());
    let complaint = &status.complaints[0];
    assert_eq!((complaint.path.as_str(), complaint.source.as_str()), ("advanced_settings.debug", "defaults file"));
}

#[test]
fn a_bad_field_costs_that_field_only() {
    let world = World::running(&[("1.0.0", &[])]);
    let pid = world.server_pid();
    world.configure(&json!({"advanced_settings": {
        "platform_server_env": {"GREETING": "still heard", "NUMBER": 7},
        "platform_server_start_timeout_minutes": "ten",
        "disable_platform_server": "yes",
        "no_such_setting": true,
    }}));
    world.until_other_than(pid);
    assert_eq!(world.read("/env/GREETING"), "still heard");
    let status = world.until("complaints", |status| status.complaints.len() >= 3);
    for path in ["platform_server_env.NUMBER", "platform_server_start_timeout_minutes", "disable_platform_server"] {
        let complaint = status.complaints.iter().find(|complaint| complaint.path.contains(path));
        let complaint = complaint.unwrap_or_else(|| panic!("{path}: {:?}", status.complaints));
        assert!(!complaint.found.is_empty() && !complaint.allowed.is_empty(), "{complaint:?}");
    }
    world.configure(&json!({}));
    world.until("no complaints", |status| status.complaints.is_empty());
}

#[test]
fn damaged_state_is_set_aside_and_the_machine_runs() {
    let mut world = World::running(&[("1.0.0", &[])]);
    world.until_checked();
    let state = world.options.root().join("state");
    for round in ["cut", "overwritten"] {
        world.stop_agent();
        world.stop_fleet();
        for file in fs::read_dir(&state).unwrap().flatten().filter(|file| file.file_name() != "platform-server.record")
        {
            let path = file.path();
            match round {
                "cut" => fs::File::options().write(true).open(&path).unwrap().set_len(3).unwrap(),
                _ => fs::write(&path, "no such thing").unwrap(),
            }
        }
        world.start_agent();
        assert_eq!(world.read("/version"), "1.0.0", "{round}");
        assert!(world.agent_said().contains("set aside"), "{round}: {}", world.agent_said());
        world.start_fleet();
        world.until_checked();
        world.until_ready();
    }
}

#[test]
fn a_port_in_use_and_a_closed_folder_end_the_fleet_server_with_their_codes() {
    let world = World::new(&[]);
    let address = world.url.trim_start_matches("http://").to_owned();
    let other = world.path("other");
    let (code, said) = run("platform-fleet", &["serve", "--listen", &address, "--data", other.to_str().unwrap()]);
    assert_eq!((code, said.contains("in use")), (Some(3), true), "{said}");

    let place = tempfile::tempdir().unwrap();
    let closed = place.path().join("closed");
    fs::create_dir(&closed).unwrap();
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o500)).unwrap();
    let mut command = match is_root() {
        true => {
            let mut command = Command::new(for_everybody(place.path(), &["platform-fleet"]).join("platform-fleet"));
            command.uid(NOBODY).gid(NOBODY);
            command
        }
        false => Command::new(programs::find("platform-fleet").unwrap()),
    };
    command.args(["serve", "--listen", "127.0.0.1:0", "--data"]).arg(closed.join("data"));
    let (code, said) = told(command.output().unwrap());
    assert_eq!((code, said.contains("data folder")), (Some(4), true), "{said}");
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o700)).unwrap();
}

/// Sends bytes, hangs up its own end if `and_no_more`, and takes whatever comes back until the server has enough of it.
fn shout(world: &World, bytes: &[u8], and_no_more: bool) -> String {
    let mut stream = TcpStream::connect(world.url.trim_start_matches("http://")).unwrap();
    // The server may hang up in the middle of it.
    let _ = stream.write_all(bytes);
    if and_no_more {
        let _ = stream.shutdown(Shutdown::Write);
    }
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

#[test]
fn garbage_on_the_port_disturbs_nobody() {
    let world = World::running(&[("1.0.0", &[])]);
    let fleet = world.fleet.as_ref().unwrap().process.pid();
    let operation = "/platform.app.v1.AppService/GetRobotPart";
    let web = format!(
        "POST {operation} HTTP/1.1\r\nHost: x\r\nContent-Type: application/grpc-web+proto\r\nConnection: close\r\n"
    );
    let table: [(&str, Vec<u8>, &str); 6] = [
        ("noise", (0..=255).cycle().take(100_000).collect(), ""),
        ("half a request", b"POST / HT".to_vec(), ""),
        ("HTTP/2 nonsense", [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".as_slice(), &[0xff; 300]].concat(), ""),
        (
            "plain HTTP to an operation",
            format!("GET {operation} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").into(),
            " 415 ",
        ),
        (
            "a frame of four gigabytes",
            [format!("{web}Content-Length: 6\r\n\r\n").as_bytes(), &[0, 255, 255, 255, 255, 1]].concat(),
            "grpc-status",
        ),
        (
            "a frame that is none",
            [format!("{web}Content-Length: 4\r\n\r\n").as_bytes(), b"none"].concat(),
            "grpc-status",
        ),
    ];
    for (what, bytes, expected) in table {
        // A whole request waits for its answer.
        let answer = shout(&world, &bytes, expected.is_empty());
        assert!(answer.contains(expected) && !answer.contains(" 200 OK\r\n\r\n"), "{what}: {answer}");
    }
    world.until_checked();
    assert!(world.part_status().live);
    assert_eq!(world.fleet.as_ref().unwrap().process.pid(), fleet);
}

#[test]
fn a_captive_page_instead_of_the_fleet_server_disturbs_nobody() {
    let mut world = World::new(&[("1.0.0", &[])]);
    let mirror = Mirror::start(Some(&world.url)).unwrap();
    world.write_credentials(&mirror.url());
    world.start_agent();
    world.until_ready();
    let pid = world.server_pid();
    mirror.lie("/", Lie::Body(200, b"<html>Welcome to our hotel</html>".to_vec()));
    world.until_said("the fleet server cannot be reached");
    mirror.lie("/", Lie::Redirect("http://127.0.0.1:9/login".into()));
    let asked = mirror.asked("");
    eventually("another try", || (mirror.asked("") > asked).then_some(())).unwrap();
    assert_eq!(world.server_pid(), pid);
    mirror.be_honest();
    world.until_checked();
    assert_eq!(world.server_pid(), pid);
}

#[test]
fn no_acknowledged_configuration_is_lost_by_kill_9() {
    let mut world = World::running(&[("1.0.0", &[])]);
    let acknowledged = Arc::new(AtomicU32::new(0));
    let mut number = 0_u32;
    // From when the writer begins; the last time from its first acknowledgement, so that there is one.
    for (pause, is_last) in [(5, false), (40, false), (90, false), (170, true)] {
        let client = world.client.clone();
        let device = world.device.clone();
        let write = move |number: u32| {
            let config =
                json!({"agent": {"advanced_settings": {"platform_server_env": {"NUMBER": number.to_string()}}}});
            let request = UpdateRobotPartRequest {
                id: device.part_id.clone(),
                name: device.part_name.clone(),
                robot_config_json: Some(config.to_string()),
                ..Default::default()
            };
            attempt(&client, app_service::UPDATE_ROBOT_PART, &request).is_ok()
        };
        let first = number + 1;
        let count = Arc::clone(&acknowledged);
        let writer = std::thread::spawn(move || {
            // Until the server is gone in the middle of one.
            for number in (first..).take_while(|&number| write(number)) {
                count.store(number, Ordering::SeqCst);
            }
        });
        if is_last {
            eventually("an acknowledgement", || (acknowledged.load(Ordering::SeqCst) >= first).then_some(())).unwrap();
        }
        std::thread::sleep(std::time::Duration::from_millis(pause));
        world.kill_fleet();
        writer.join().unwrap();
        world.start_fleet();
        let (acknowledged, found) = (acknowledged.load(Ordering::SeqCst), stored_number(&world));
        assert!(found >= acknowledged, "{acknowledged} was acknowledged, {found} is there");
        number = found.max(acknowledged);
    }
    let expected = stored_number(&world).to_string();
    eventually("the newest at the device", || world.page("/env/NUMBER").filter(|(_, value)| *value == expected))
        .unwrap();
}

fn stored_number(world: &World) -> u32 {
    let request = GetRobotPartRequest { id: world.device.part_id.clone() };
    let part: GetRobotPartResponse = attempt(&world.client, app_service::GET_ROBOT_PART, &request).unwrap();
    let config: Value = serde_json::from_str(&part.config_json).unwrap();
    let number = &config["agent"]["advanced_settings"]["platform_server_env"]["NUMBER"];
    number.as_str().and_then(|number| number.parse().ok()).unwrap_or(0)
}

/// A small disk of its own; nothing without the right to mount one, which is said aloud.
pub(crate) struct SmallDisk<'a>(&'a Path);

impl<'a> SmallDisk<'a> {
    pub(crate) fn mount(place: &'a Path, megabytes: u32) -> Option<SmallDisk<'a>> {
        fs::create_dir_all(place).unwrap();
        let size = format!("size={megabytes}m,mode=700");
        let mounted = is_root()
            && Command::new("mount")
                .args(["-t", "tmpfs", "-o", &size, "tmpfs"])
                .arg(place)
                .status()
                .is_ok_and(|status| status.success());
        if !mounted {
            // Past the capture of output: a test that did not happen must be seen. `packaging/test.sh` counts these.
            let _ = writeln!(std::io::stderr(), "SKIPPED a full disk: needs root and the right to mount");
        }
        mounted.then(|| SmallDisk(place))
    }

    /// Takes all that is left.
    pub(crate) fn fill(&self) {
        let mut file = fs::File::create(self.0.join("ballast")).unwrap();
        let piece = [0x5a; 64 * 1024];
        while file.write_all(&piece).is_ok() {}
        while file.write_all(&piece[..1]).is_ok() {}
    }

    fn free(&self) {
        fs::remove_file(self.0.join("ballast")).unwrap();
    }
}

impl Drop for SmallDisk<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0).status();
    }
}

#[test]
fn a_full_disk_of_the_fleet_server_refuses_writes_and_nothing_else() {
    let place = tempfile::tempdir().unwrap();
    let data = place.path().join("fleet");
    let Some(disk) = SmallDisk::mount(&data, 48) else { return };
    let mut world = World::at(place.path(), &[("1.0.0", &[])]);
    world.start_agent();
    world.until_ready();
    let pid = world.server_pid();
    world.configure(&json!({"advanced_settings": {"platform_server_env": {"NUMBER": "1"}}}));
    let pid = world.until_other_than(pid);
    disk.fill();
    let padding = "x".repeat(200_000);
    let write = |number: u32| {
        let config = json!({"padding": padding, "agent": {"advanced_settings": {"platform_server_env": {"NUMBER": number.to_string()}}}});
        world.device.configure(&world.client, &config)
    };
    let refused = (2..50).map(write).find_map(Result::err).expect("there is no room for ever");
    assert!(refused.0.contains("disk is full"), "{refused}");
    let kept = stored_number(&world);
    assert!(world.part_status().live, "devices are answered");
    disk.free();
    write(100).expect("there is room again");
    assert!(kept < 50 && stored_number(&world) == 100);
    world.until_other_than(pid);
    assert_eq!(world.read("/env/NUMBER"), "100");
}

#[test]
fn a_full_disk_of_the_device_does_not_stop_the_machine() {
    let place = tempfile::tempdir().unwrap();
    let root = place.path().join("device/root");
    let Some(disk) = SmallDisk::mount(&root, 40) else { return };
    let mut world = World::at(place.path(), &[("1.0.0", &[])]);
    world.write_defaults(&json!({"disk_reserve_megabytes": 0}));
    world.start_agent();
    world.until_ready();
    let pid = world.server_pid();
    disk.fill();
    // A new version finds no room, and says so.
    world.release("1.1.0", &[]);
    world.channel("stable", "1.1.0");
    let status = world.until("an update without room", |status| !crate::world::update(status).last_error.is_empty());
    let error = crate::world::update(&status).last_error;
    assert!(error.contains("space") || error.contains("room"), "{error}");
    assert_eq!(world.server_pid(), pid);
    // A crash is answered all the same, also under another agent.
    signal(pid, Signal::KILL);
    let pid = world.until_other_than(pid);
    world.kill_agent();
    world.start_agent();
    world.until_checked();
    signal(world.server_pid(), Signal::KILL);
    world.until_other_than(pid);
    disk.free();
    world.until("the update", |status| crate::world::update(status).phase() == crate::world::UpdatePhase::Staged);
    // Lines flow again.
    let _ = test_harness::real::http::post(&format!("{}/say/INFO/room-again", world.status_url)).unwrap();
    eventually("a line", || world.lines("room-again").pop()).unwrap();
}
