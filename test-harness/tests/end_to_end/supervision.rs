//! A machine server that dies, hangs, or does not listen.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::world::{ServerPhase, Signal, UpdatePhase, World, eventually, is_alive, server, signal, until_gone, update};

/// Turns knobs of the stand-in from its start on.
fn knobs(knobs: &[(&str, &str)]) -> serde_json::Value {
    let variable = |name: &str| format!("STAND_IN_{}", name.replace('-', "_").to_uppercase());
    let environment: serde_json::Map<String, serde_json::Value> =
        knobs.iter().map(|(name, value)| (variable(name), json!(value))).collect();
    json!({"platform_server_env": environment})
}

/// The number at the end of the newest line that contains these words.
fn numbered(world: &World, words: &str) -> u32 {
    let number = eventually(words, || {
        let lines = world.lines(words);
        let mut text = lines.last()?.message.split(' ').rev();
        text.find_map(|word| word.parse().ok())
    });
    number.unwrap_or_else(|trouble| panic!("{trouble}\n{}", world.agent_said()))
}

#[test]
fn a_killed_server_runs_again_and_its_orphans_end() {
    let world = World::running(&[("1.0.0", &[("children", "1")])]);
    let (pid, child) = (world.server_pid(), numbered(&world, "lingers"));
    assert!(is_alive(child));
    signal(pid, Signal::KILL);
    world.until_other_than(pid);
    let status = world.until("a crash that is told", |status| server(status).crashes == 1);
    assert_eq!(server(&status).last_exit, "signal 9 (SIGKILL)");
    assert!(server(&status).last_lines.iter().any(|line| line.contains("serving")), "{:?}", server(&status).last_lines);
    until_gone(child);

    // Also one that ends as if all were well.
    let pid = world.server_pid();
    world.behave("crash", "0");
    world.until_other_than(pid);
    let status = world.until("the second crash", |status| server(status).crashes == 2);
    assert_eq!(server(&status).last_exit, "exit code 0");
}

#[test]
fn a_crash_loop_is_slowed_down_and_left_by_another_configuration() {
    let world = World::running(&[("1.0.0", &[])]);
    let pid = world.server_pid();
    world.configure(&json!({"advanced_settings": knobs(&[("crash-after-ms", "50"), ("crash-with", "SEGV")])}));
    until_gone(pid);
    // At once the first time, after a pause from then on.
    let status = world.until("a pause", |status| {
        server(status).crashes >= 3 && server(status).phase() == ServerPhase::WaitingToRestart
    });
    assert_eq!(server(&status).last_exit, "signal 11 (SIGSEGV)");
    world.configure(&json!({}));
    // Before the device asks, one more may start that crashes.
    let sound = || world.page("/env/STAND_IN_CRASH_AFTER_MS").filter(|(status, _)| *status == 404);
    eventually("one that does not crash", sound).unwrap();
    world.until_ready();
    let pid = world.server_pid();
    world.until_checked();
    assert_eq!(world.server_pid(), pid);
}

#[test]
fn one_that_never_gets_ready_is_killed_with_its_group_and_started_again() {
    let world = World::running(&[("1.0.0", &[])]);
    let first = world.server_pid();
    let mut advanced = knobs(&[("never-ready", "true"), ("children", "1"), ("ignore-sigterm", "true")]);
    advanced["platform_server_start_timeout_minutes"] = json!(2);
    world.configure(&json!({"advanced_settings": advanced}));
    let hung = world.until_started_after(first);
    let child = numbered(&world, "lingers");
    let status = world.until("a start that took too long", |status| server(status).crashes >= 1);
    assert_eq!(server(&status).last_exit, "not ready 2 minutes after its start: killed");
    until_gone(hung);
    until_gone(child);
    world.until_started_after(hung);
    world.configure(&json!({}));
    world.until_ready();
}

#[test]
fn switched_off_it_ends_and_stays_off_until_it_is_switched_on() {
    let mut world = World::running(&[("1.0.0", &[])]);
    let pid = world.server_pid();
    world.configure(&json!({"advanced_settings": {"disable_platform_server": true}}));
    world.until("a server that is switched off", |status| server(status).phase() == ServerPhase::Disabled);
    until_gone(pid);
    world.stop_agent();
    let before = world.starts();
    world.start_agent();
    world.until_checked();
    world.until("a server that is still off", |status| server(status).phase() == ServerPhase::Disabled);
    assert_eq!(world.starts(), before);
    world.configure(&json!({"advanced_settings": {"disable_platform_server": false}}));
    world.until_ready();
    assert_eq!(server(&world.status()).crashes, 0);
}

#[test]
fn neither_a_silent_fleet_server_nor_a_stalled_download_delays_a_restart() {
    let mut world = World::running(&[("1.0.0", &[])]);
    world.configure(&json!({"advanced_settings": {"update_bandwidth_kilobytes_per_second": 1}}));
    world.until_checked();
    world.release("1.1.0", &[]);
    world.channel("stable", "1.1.0");
    world.until("a download", |status| update(status).phase() == UpdatePhase::Downloading);
    let pid = world.server_pid();
    let fleet = &world.fleet.as_ref().expect("it runs").process;
    // Connections are accepted, and nobody answers, in the middle of the download. It is asked every second.
    fleet.signal(Signal::STOP);
    std::thread::sleep(Duration::from_millis(2_500));
    let died = Instant::now();
    signal(pid, Signal::KILL);
    world.until_started_after(pid);
    let took = died.elapsed();
    fleet.signal(Signal::CONT);
    println!("started again after {} ms", took.as_millis());
    // Whatever waits for the fleet server by now does so for longer: a call may take 15 seconds, a download more.
    assert!(took < Duration::from_secs(9), "{took:?}");
    world.until("a crash that is told", |status| server(status).crashes == 1);
}

#[test]
fn one_that_says_nothing_is_ready_once_its_status_url_answers() {
    let world = World::running(&[("1.0.0", &[("says-serving", "false"), ("ready-after-ms", "300")])]);
    let status = server(&world.status());
    assert!(status.ready_at.is_some(), "{status:?}");
    assert_eq!((status.pid, status.crashes), (world.server_pid(), 0));
    assert!(status.last_lines.is_empty() && world.lines("serving").is_empty());
}

#[test]
fn one_that_does_not_hear_sigterm_is_killed_after_the_stop_limit() {
    let world = World::running(&[("1.0.0", &[("ignore-sigterm", "true"), ("children", "1")])]);
    let (pid, child) = (world.server_pid(), numbered(&world, "lingers"));
    signal(pid, Signal::TERM);
    world.configure(&json!({"advanced_settings": {"disable_platform_server": true}}));
    let status = world.until("a server that is switched off", |status| server(status).phase() == ServerPhase::Disabled);
    assert_eq!((server(&status).last_exit.as_str(), server(&status).crashes), ("signal 9 (SIGKILL)", 0));
    until_gone(pid);
    until_gone(child);
}

#[test]
fn the_server_outlives_a_crash_of_the_agent_and_ends_with_its_service() {
    let mut world = World::running(&[("1.0.0", &[("children", "1")])]);
    let (pid, child) = (world.server_pid(), numbered(&world, "lingers"));
    world.kill_agent();
    assert!(is_alive(pid));
    world.start_agent();
    world.until_said("is adopted");
    // What it reports first may be from before it has looked.
    let status = world.until("an adopted server", |status| server(status).pid != 0);
    assert_eq!((world.server_pid(), server(&status).pid, server(&status).crashes), (pid, pid, 0));

    // Dead while nobody looked: started by the next agent, its orphans ended.
    world.kill_agent();
    signal(pid, Signal::KILL);
    until_gone(pid);
    world.start_agent();
    let second = world.until_other_than(pid);
    until_gone(child);

    // The adopted one is watched like any other.
    world.kill_agent();
    world.start_agent();
    world.until_checked();
    signal(second, Signal::KILL);
    let third = world.until_other_than(second);
    let child = numbered(&world, "lingers");
    world.stop_agent();
    until_gone(third);
    until_gone(child);
}
