//! An installed agent that becomes the next version, dies, or cannot become it, while its machine server talks.

use std::fs;

use api::pb::platform::fleet::v1::{DeviceStatus, Product, UpdateStatus};
use serde_json::json;
use test_harness::real::agents;

use crate::world::{Signal, UpdatePhase, World, eventually, is_alive, server};

/// A machine server that prints as fast as a timer of a millisecond lets it.
const TALKS: &[(&str, &str)] = &[("chatter-ms", "1")];
/// What it says, before the number.
const CHATTER: &str = "line ";
/// What the agent says where it had no time for them, after their number.
const LOST: &str = " lines lost: they came faster than they could be kept";
/// Lines that pass in a few polls.
const WHILE: u64 = 3_000;

/// A device with agent 1.0.0 installed behind its launcher, and a machine server that talks. Agent 2.0.0 is published.
fn installed() -> World {
    let mut world = World::new(&[("1.0.0", TALKS)]);
    for (number, version) in [(1, "1.0.0"), (2, "2.0.0")] {
        let agent = world.path(&format!("agent-{version}"));
        agents::build(version, &agent).expect("an agent");
        world.factory.release_agent(version, number, &agent).expect("a release");
    }
    agents::install(&world.path("agent-1.0.0"), &mut world.options).expect("installed");
    want(&world, "1.0.0");
    world.start_agent();
    world.until_ready();
    until_talked(&world, WHILE);
    world
}

fn want(world: &World, version: &str) {
    world.configure(&json!({"version_control": {"agent": version}}));
}

fn own_update(status: &DeviceStatus) -> UpdateStatus {
    let of_agent = |update: &&UpdateStatus| update.product() == Product::Agent;
    status.updates.iter().find(of_agent).cloned().unwrap_or_default()
}

/// The number of a line, if it is one of the chatter.
fn number(message: &str) -> Option<u64> {
    message.strip_prefix(CHATTER)?.parse().ok()
}

/// How far it has talked, as far as the fleet server knows.
fn talked(world: &World) -> u64 {
    let newest = world.newest_line(CHATTER);
    newest.and_then(|line| number(&line.message)).unwrap_or(0)
}

/// Waits until so many more lines have arrived.
#[track_caller]
fn until_talked(world: &World, more: u64) -> u64 {
    let goal = talked(world) + more;
    let seen = eventually("more lines", || Some(talked(world)).filter(|talked| *talked >= goal));
    seen.unwrap_or_else(|trouble| panic!("{trouble}\n{}", world.agent_said()))
}

/// Numbers of all lines, in the order in which they were delivered; and how many lines the agent says are lost, because
/// this machine was too busy for it.
fn delivered(world: &World) -> (Vec<u64>, u64) {
    let lines = world.lines_by("line", 1_000);
    let told = |text: &str| text.strip_suffix(LOST)?.parse::<u64>().ok();
    let numbers = lines.iter().filter_map(|line| number(&line.message)).collect();
    (numbers, lines.iter().filter_map(|line| told(&line.message)).sum())
}

/// Each line once and in order, and none missing that is not told as lost.
#[track_caller]
fn assert_whole(world: &World) {
    let (numbers, told) = delivered(world);
    println!("{} lines arrived, {told} are told as lost", numbers.len());
    let missing = missing(&numbers);
    assert!(missing <= told, "{missing} are missing, {told} are told as lost");
}

/// Each line once and in order; how many are missing.
#[track_caller]
fn missing(numbers: &[u64]) -> u64 {
    let wrong = numbers.windows(2).find(|pair| pair[0] >= pair[1]);
    assert_eq!(wrong, None, "once and in order");
    assert_eq!(numbers.first(), Some(&1));
    numbers.last().unwrap_or(&0) - numbers.len() as u64
}

/// The longest pause between two questions of the device that begin while `ask` has no answer yet, in seconds. Nobody
/// who looks meanwhile is told that it is gone.
#[track_caller]
fn longest_pause(world: &World, what: &str, mut answer: impl FnMut() -> Option<()>) -> f64 {
    let access = || {
        let status = world.part_status();
        assert!(status.live, "{status:#?}\n{}", world.agent_said());
        let at = status.last_access.expect("it has asked");
        at.seconds as f64 + f64::from(at.nanos) / 1e9
    };
    let (mut last, mut longest) = (access(), 0.0_f64);
    let seen = eventually(what, || {
        let now = access();
        longest = longest.max(now - last);
        last = now;
        answer()
    });
    seen.unwrap_or_else(|trouble| panic!("{trouble}\n{:#?}\n{}", world.status(), world.agent_said()));
    longest
}

#[test]
fn a_machine_server_does_not_notice_that_its_agent_becomes_the_next_one() {
    let mut world = installed();
    let (pid, agent) = (world.server_pid(), world.agent.as_ref().expect("it runs").pid());
    for name in ["LAUNCHER", "SLOT", "LAUNCH_NOTE", "HAND_OVER"] {
        assert_eq!(world.page(&format!("/env/PLATFORM_AGENT_{name}")).expect("it serves").0, 404, "{name}");
    }
    let usual = longest_pause(&world, "a while", {
        let goal = talked(&world) + WHILE;
        let world = &world;
        move || (talked(world) >= goal).then_some(())
    });
    want(&world, "2.0.0");
    let pause = longest_pause(&world, "agent 2.0.0", || {
        let own = own_update(&world.status());
        (own.running_version == "2.0.0" && own.phase() == UpdatePhase::Committed).then_some(())
    });
    println!("longest pause between two polls: {usual:.2} s, with a hand-over {pause:.2} s");
    until_talked(&world, WHILE);
    let status = world.status();
    assert_eq!((world.server_pid(), server(&status).pid, server(&status).crashes), (pid, pid, 0));
    assert_eq!(world.starts().len(), 1);
    assert!(world.agent.as_mut().expect("it runs").is_running(), "process {agent} is the next agent");
    assert_whole(&world);

    // It is still the agent's child, and how it ends is known.
    world.behave("crash", "7");
    world.until_other_than(pid);
    let status = world.until("a crash that is told", |status| server(status).crashes == 1);
    assert_eq!(server(&status).last_exit, "exit code 7");
    for name in ["LAUNCHER", "SLOT", "LAUNCH_NOTE", "HAND_OVER"] {
        assert_eq!(world.page(&format!("/env/PLATFORM_AGENT_{name}")).expect("it serves").0, 404, "{name}");
    }
}

#[test]
fn an_agent_that_is_killed_or_aborts_leaves_one_machine_server_to_the_next() {
    let mut world = installed();
    let pid = world.server_pid();
    let mut lost = 0;
    for signal in [Signal::KILL, Signal::ABORT] {
        let agent = world.agent.take().expect("it runs");
        assert_eq!(agent.end_by(signal).expect("it ends"), None, "{signal:?}");
        assert!(is_alive(pid));
        world.start_agent();
        until_talked(&world, WHILE);
        // What it reports first may be from before it has looked.
        let status = world.until("an adopted server", |status| server(status).pid != 0);
        assert_eq!((world.server_pid(), server(&status).pid, server(&status).crashes), (pid, pid, 0), "{signal:?}");
        assert_eq!(world.starts().len(), 1, "{signal:?}");
        let (numbers, told) = delivered(&world);
        let untold = missing(&numbers).saturating_sub(told);
        let now = untold.saturating_sub(lost);
        println!("{signal:?}: {now} lines were in the memory of the agent");
        // What it had read and not yet stored: it stores once a second.
        assert!(now < 8_000, "{now}");
        lost = untold;
    }
}

#[test]
fn an_agent_whose_launcher_cannot_be_executed_goes_on_and_says_so() {
    let mut world = installed();
    let (pid, agent) = (world.server_pid(), world.agent.as_ref().expect("it runs").pid());
    let launcher = world.options.program.clone().expect("installed");
    let whole = fs::read(&launcher).expect("read");
    // Looks like a program until it is executed: what is removed between the last look and exec ends the same way.
    let replace = |content: &[u8]| {
        test_executables::write(&launcher, content).expect("written");
    };
    replace(b"no program");
    want(&world, "2.0.0");
    let status = world.until("a hand-over that fails", |status| own_update(status).last_error.contains("handed over"));
    let own = own_update(&status);
    assert!(own.last_error.contains("could not be executed") && own.last_error.contains("install it again"), "{own:?}");
    assert_eq!((own.running_version.as_str(), own.bad_versions.len()), ("1.0.0", 0), "{own:?}");
    let is_same = |world: &mut World| {
        let runs = world.agent.as_mut().expect("started").is_running();
        runs && world.agent.as_ref().expect("started").pid() == agent
    };
    assert!(is_same(&mut world));
    until_talked(&world, WHILE);

    // Once it is mended the same wish comes true.
    replace(&whole);
    world.until("agent 2.0.0", |status| own_update(status).running_version == "2.0.0");
    assert!(is_same(&mut world));
    until_talked(&world, WHILE);
    assert_eq!((world.server_pid(), server(&world.status()).crashes, world.starts().len()), (pid, 0, 1));
    assert_whole(&world);
}
