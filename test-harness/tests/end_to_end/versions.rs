//! Which version of the machine server runs: what is asked for, what is refused, and that nothing is fetched in a loop.

use std::fs;

use serde_json::json;
use test_harness::real::{
    mirror::{Lie, Mirror},
    releases::{Factory, this_platform},
};

use crate::world::{UpdatePhase, World, eventually, server, update};

/// Minutes: who is not ready within three times as long goes back, also on a busy machine that has not failed.
const PROBATION: u32 = 2;

fn pin(version: &str) -> serde_json::Value {
    json!({"version_control": {"platform-server": version}, "advanced_settings": {"probation_minutes": PROBATION}})
}

/// Asks for a version, and waits until it lies ready while the other one runs on.
fn stage(world: &World, wanted: &str) {
    let pid = world.server_pid();
    world.configure(&pin(wanted));
    world.until(&format!("{wanted} to be staged"), |status| {
        update(status).wanted == wanted && update(status).phase() == UpdatePhase::Staged
    });
    assert_eq!(world.server_pid(), pid, "{wanted} waits for the next start");
}

/// Has the staged version started, and waits until it may stay.
fn start_by_mark(world: &World, version: &str) {
    let before = world.starts();
    world.mark_for_restart();
    started_next(world, &before, version);
    kept(world, version);
}

/// Waits until this version serves, and sees that it was started next. A disk that takes nothing for two seconds holds
/// no start up: then it comes after one more start of the version before, and never otherwise.
#[track_caller]
fn started_next(world: &World, before: &[(String, u32)], version: &str) {
    let serves = eventually(version, || world.page("/version").filter(|(_, body)| body == version));
    serves.unwrap_or_else(|trouble| panic!("{trouble}; {:?}\n{}", world.starts(), world.agent_said()));
    let starts: Vec<_> = world.starts().into_iter().map(|(started, _)| started).skip(before.len()).collect();
    let last = before.last().expect("something ran").0.as_str();
    assert!(starts == [version] || starts == [last, version], "{starts:?}\n{}", world.agent_said());
}

fn kept(world: &World, version: &str) {
    world.until(&format!("{version} to be kept"), |status| {
        update(status).phase() == UpdatePhase::Committed && server(status).version.contains(version)
    });
}

#[test]
fn channels_exact_versions_and_pins_run_after_the_next_start() {
    let mut world = World::new(&[("1.0.0", &[]), ("1.1.0", &[])]);
    world.release("1.2.0-dev", &[]);
    world.channel("dev", "1.2.0-dev");
    world.configure(&json!({"advanced_settings": {"probation_minutes": PROBATION}}));
    world.start_agent();
    world.until_ready();
    assert_eq!(world.read("/version"), "1.1.0", "stable, because nothing else was said");
    world.until("1.1.0 to be kept", |status| update(status).phase() == UpdatePhase::Committed);

    stage(&world, "1.0.0");
    start_by_mark(&world, "1.0.0");

    // After the agent's own next start.
    stage(&world, "dev");
    let before = world.starts();
    world.stop_agent();
    world.start_agent();
    started_next(&world, &before, "1.2.0-dev");
    kept(&world, "1.2.0-dev");

    let file = world.build("7.0.0-file", &[]);
    let url = format!("file://{}", file.display());
    stage(&world, &url);
    let before = world.starts();
    world.mark_for_restart();
    started_next(&world, &before, "7.0.0-file");
    world.until("the file to be kept", |status| update(status).phase() == UpdatePhase::Committed);

    let web = Mirror::start(None).unwrap();
    web.lie("/server", Lie::Body(200, fs::read(world.build("8.0.0-web", &[])).unwrap()));
    let url = format!("{}/server", web.url());
    stage(&world, &url);
    let warned = world.until("a warning", |status| !update(status).last_error.is_empty());
    assert!(update(&warned).last_error.contains("plain http"), "{}", update(&warned).last_error);
    let before = world.starts();
    world.mark_for_restart();
    started_next(&world, &before, "8.0.0-web");
    world.until("the web's to be kept", |status| update(status).phase() == UpdatePhase::Committed);
    // Fetched once, although the agent has started since.
    world.stop_agent();
    world.start_agent();
    world.until_ready();
    world.until_checked();
    assert_eq!((world.read("/version").as_str(), web.asked("/server")), ("8.0.0-web", 1));

    // A path of another system parses, and is not there.
    world.configure(&pin("file:///C:/Program Files/server.exe"));
    let missing = world.until("a report", |status| update(status).last_error.contains("server.exe"));
    assert_eq!(server(&missing).pid, world.server_pid());
}

#[test]
fn another_meaning_of_stable_runs_after_the_next_start() {
    let mut world = World::running(&[("1.0.0", &[])]);
    assert_eq!(world.read("/version"), "1.0.0");
    world.configure(&json!({"advanced_settings": {"probation_minutes": PROBATION}}));
    world.release("1.1.0", &[]);
    world.channel("stable", "1.1.0");
    world.until("1.1.0 to be staged", |status| {
        update(status).target_version == "1.1.0" && update(status).phase() == UpdatePhase::Staged
    });
    assert_eq!(world.read("/version"), "1.0.0");
    start_by_mark(&world, "1.1.0");
    // A recall: a newer signed document may name an older release.
    world.channel("stable", "1.0.0");
    world.until("1.0.0 to be staged", |status| update(status).phase() == UpdatePhase::Staged);
    start_by_mark(&world, "1.0.0");
}

/// A device behind a mirror, on which 1.0.0 runs; and a signed 1.1.0 that it does not know yet. Its minute is a real one,
/// so that a second try within the test would be a loop.
fn behind_a_mirror() -> (World, Mirror) {
    let mut world = World::new(&[("1.1.0", &[]), ("1.0.0", &[])]);
    let mirror = Mirror::start(Some(&world.url)).unwrap();
    world.write_credentials(&mirror.url());
    world.options.minute = Some(60.0);
    world.start_agent();
    assert_eq!(world.until_ready().version, "1.0.0");
    (world, mirror)
}

/// Waits for a report with these words, and sees that nothing else happens.
#[track_caller]
fn refused(world: &World, mirror: &Mirror, counted: &str, words: &[&str]) {
    let pid = world.server_pid();
    world.configure(&json!({"version_control": {"platform-server": "1.1.0"}}));
    let first_word = words[0];
    let status = world.until(first_word, |status| update(status).last_error.contains(first_word));
    for word in words {
        assert!(update(&status).last_error.contains(word), "{word}: {}", update(&status).last_error);
    }
    let (tries, questions) = (mirror.asked(counted), mirror.asked("/DeviceAgentConfig"));
    eventually("five more questions of the device", || {
        (mirror.asked("/DeviceAgentConfig") >= questions + 5).then_some(())
    })
    .unwrap();
    assert!(mirror.asked(counted) <= tries + 1, "{} tries", mirror.asked(counted));
    assert!(tries <= 2, "{tries} tries at once");
    assert_eq!((world.server_pid(), world.read("/version").as_str()), (pid, "1.0.0"), "the old version runs on");
    assert_eq!(server(&world.status()).crashes, 0);
}

#[test]
fn bytes_of_another_digest_are_refused() {
    let (world, mirror) = behind_a_mirror();
    let mut bytes = fs::read(world.path("stand-in-1.1.0")).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    mirror.lie("/releases/v1/artifact/", Lie::Body(200, bytes));
    refused(&world, &mirror, "/artifact/", &["1.1.0 was refused", "digest"]);
}

#[test]
fn a_captive_page_is_refused_and_the_good_bytes_are_taken_afterwards() {
    let (mut world, mirror) = behind_a_mirror();
    mirror.lie("/login", Lie::Body(200, b"<html>Welcome to our hotel</html>".to_vec()));
    mirror.lie("/releases/v1/artifact/", Lie::Redirect(format!("{}/login", mirror.url())));
    refused(&world, &mirror, "/artifact/", &["1.1.0"]);
    // It must not block a good release for ever: whoever starts the agent again has it tried again.
    mirror.be_honest();
    world.kill_agent();
    world.start_agent();
    world.until("1.1.0 to be staged", |status| update(status).phase() == UpdatePhase::Staged);
    world.mark_for_restart();
    world.until_version("1.1.0");
}

#[test]
fn a_truncated_download_is_refused() {
    let (world, mirror) = behind_a_mirror();
    let bytes = fs::read(world.path("stand-in-1.1.0")).unwrap();
    let half = bytes[..bytes.len() / 2].to_vec();
    mirror.lie("/releases/v1/artifact/", Lie::Truncated(bytes.len() as u64, half));
    refused(&world, &mirror, "/artifact/", &["1.1.0 could not be downloaded"]);
}

#[test]
fn a_release_signed_by_somebody_else_is_refused() {
    let (world, mirror) = behind_a_mirror();
    let other = Factory::open(&world.path("other-factory"), &world.path("other-data")).unwrap();
    let document = other.sign(&this_platform(), "1.1.0", 9, &world.path("stand-in-1.1.0")).unwrap();
    let path = "/releases/v1/release/platform-server/1.1.0.json";
    mirror.lie(path, Lie::Body(200, fs::read(document).unwrap()));
    refused(&world, &mirror, path, &["release platform-server 1.1.0", "sign"]);
    assert_eq!(mirror.asked("/artifact/"), 1, "only that of 1.0.0");
}

#[test]
fn a_program_for_another_machine_is_refused() {
    let (world, mirror) = behind_a_mirror();
    let mut bytes = fs::read(world.path("stand-in-1.1.0")).unwrap();
    // e_machine of an ELF header: that of AArch64 on x86-64, and the other way round.
    let other: [u8; 2] = if cfg!(target_arch = "aarch64") { [62, 0] } else { [183, 0] };
    bytes[18..20].copy_from_slice(&other);
    let file = world.path("for-another-machine");
    fs::write(&file, bytes).unwrap();
    let pid = world.server_pid();
    world.configure(&pin(&format!("file://{}", file.display())));
    let status = world.until("a refusal", |status| update(status).last_error.contains("was refused"));
    assert!(update(&status).last_error.contains(&this_platform()), "{}", update(&status).last_error);
    assert_eq!((world.server_pid(), mirror.asked("/artifact/")), (pid, 1));
}

#[test]
fn a_new_version_that_dies_on_probation_is_taken_back_once_and_for_all() {
    let mut world = World::running(&[("1.0.0", &[])]);
    world.configure(&json!({"advanced_settings": {"probation_minutes": 3}}));
    world.release("1.1.0", &[("crash-after-ms", "300")]);
    world.channel("stable", "1.1.0");
    world.until("1.1.0 to be staged", |status| update(status).phase() == UpdatePhase::Staged);
    world.mark_for_restart();
    let status = world.until("1.0.0 to be back", |status| {
        update(status).phase() == UpdatePhase::RolledBack
            && server(status).phase == 4
            && server(status).version == "1.0.0"
    });
    assert!(update(&status).last_error.contains("1.1.0 was rolled back"), "{}", update(&status).last_error);
    assert_eq!(update(&status).bad_versions.len(), 1, "{:?}", update(&status).bad_versions);
    // Not tried again, neither by a check nor by a start.
    world.stop_agent();
    world.start_agent();
    world.until_ready();
    world.until_checked();
    assert_eq!(world.read("/version"), "1.0.0");
}
