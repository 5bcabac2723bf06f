//! A record that is damaged or cannot be read, and a start with `--safe`, cost no device its machine server, and keep no
//! version that has not proved itself.

use std::io;

use api::pb::platform::fleet::v1::update_status::Phase;
use board::{files::Access, process::Exit};
use board_sim::process::Script;
use serde_json::json;
use test_harness::world::{
    World,
    cloud::Mood,
    hours,
    launch::{self, Conduct},
    minutes, seconds,
};

use crate::{
    an_agent_updates_itself::{own_update, settled},
    assert_serves,
};

const SERVER_RECORD: &str = "/opt/platform/state/platform-server.record";
const SERVER_POINTER: &str = "/opt/platform/state/platform-server.pointer";

fn take_offline(world: &mut World) {
    world.board.web.set_online(false);
    world.cloud.set_mood(Mood::Error(14));
}

/// The agent dies so often that it is started with `--safe`.
fn until_safe(world: &mut World) {
    for _ in 0..5 {
        if !world.agents.starts().last().is_some_and(|start| start.safe) {
            world.run_for(seconds(5));
            world.kill_agent();
        }
    }
    assert!(world.agents.starts().last().is_some_and(|start| start.safe), "{:?}", world.agents.starts());
}

/// The fleet server names another machine server, and it is started.
fn switched_server(seed: u64, script: Script) -> World {
    let mut world = settled(seed);
    world.board.processes.script("1.1.0", script);
    world.cloud.set_section("version_control", &json!({"platform-server": "1.1.0"}));
    world.run_for(minutes(10));
    world.restart_agent();
    assert_serves(&mut world, "1.1.0", minutes(2));
    world
}

/// Version 2.0.0 of the agent runs, on trial.
fn switched_agent(seed: u64, conduct: Conduct) -> World {
    let mut world = settled(seed);
    world.agents.script("2.0.0", conduct);
    world.factory.release_agent("2.0.0");
    world.factory.agent_channel("stable", "2.0.0");
    assert!(world.run_until(hours(2), |hands| hands.agents.version().as_deref() == Some("2.0.0")));
    world
}

#[test]
fn a_safe_start_far_from_any_network_has_a_machine_server() {
    let mut world = settled(1);
    take_offline(&mut world);
    world.run_for(minutes(2));
    until_safe(&mut world);
    world.cut_power();
    assert_serves(&mut world, "1.0.0", minutes(5));
    world.cut_power();
    world.run_for(hours(24));
    assert_eq!(world.board.processes.serving().as_deref(), Some("1.0.0"));
}

#[test]
fn a_safe_start_knows_which_of_two_machine_servers_is_kept() {
    for (seed, rest) in [(2, seconds(0)), (3, minutes(10))] {
        let mut world = switched_server(seed, Script::default());
        world.run_for(minutes(20));
        until_safe(&mut world);
        world.run_for(rest);
        take_offline(&mut world);
        world.cut_power();
        world.run_for(hours(24));
        assert_eq!(world.board.processes.serving().as_deref(), Some("1.1.0"));
    }
}

#[test]
fn a_safe_start_ends_no_probation() {
    let mut world = switched_server(4, Script::default());
    until_safe(&mut world);
    world.run_for(seconds(30));
    world.crash_server(Exit::Code(3));
    assert_serves(&mut world, "1.0.0", minutes(2));
    let update = world.cloud.status().updates.into_iter().next().expect("it is reported");
    assert_eq!((update.phase(), update.bad_versions), (Phase::RolledBack, vec!["1.1.0".to_owned()]));
}

#[test]
fn a_safe_start_remembers_which_versions_failed() {
    let mut world = switched_agent(5, Conduct::DiesAtOnce);
    world.run_for(minutes(5));
    assert_eq!(own_update(&world).bad_versions, ["2.0.0"]);
    until_safe(&mut world);
    world.run_for(hours(24));
    assert_eq!((world.agents.switches_to("2.0.0"), world.agents.version().as_deref()), (1, Some("1.0.0")));
    assert_eq!(own_update(&world).bad_versions, ["2.0.0"]);
}

#[test]
fn a_machine_server_without_any_record_is_started_all_the_same() {
    for (seed, pointer) in [(6, true), (7, false)] {
        let mut world = settled(seed);
        take_offline(&mut world);
        world.board.files.lose(SERVER_RECORD);
        if !pointer {
            world.board.files.lose(SERVER_POINTER);
        }
        world.cut_power();
        assert_serves(&mut world, "1.0.0", minutes(2));
        world.run_for(hours(1));
        assert_serves(&mut world, "1.0.0", minutes(2));
    }
}

#[test]
fn a_record_lost_on_trial_keeps_no_machine_server() {
    let mut world = switched_server(8, Script { ends: Some((seconds(90), Exit::Code(3))), ..Script::default() });
    world.run_for(seconds(20));
    world.board.files.corrupt(SERVER_RECORD, 100);
    world.kill_agent();
    world.run_for(hours(24));
    assert_eq!(world.board.processes.serving().as_deref(), Some("1.0.0"), "{}", world.chronicle.tail(20));
    assert!(world.board.processes.started().len() < 5, "it is not tried again and again");
}

#[test]
fn with_two_machine_servers_and_no_record_the_one_that_lives_is_kept() {
    let mut world = switched_server(9, Script::default());
    world.run_for(minutes(20));
    take_offline(&mut world);
    world.board.files.lose(SERVER_RECORD);
    world.board.files.lose(SERVER_POINTER);
    // The first slot, which nobody knows anything about.
    world.board.processes.script("1.0.0", Script { ends: Some((seconds(30), Exit::Code(3))), ..Script::default() });
    world.cut_power();
    world.run_for(minutes(10));
    assert_eq!(world.board.processes.serving().as_deref(), Some("1.1.0"), "{}", world.chronicle.tail(20));
}

#[test]
fn a_record_lost_on_trial_keeps_no_agent() {
    let mut world = switched_agent(10, Conduct::NeverReachesCloud);
    world.run_for(seconds(30));
    world.board.files.corrupt(launch::layout().record(), 100);
    world.cut_power();
    world.run_for(hours(48));
    assert_eq!(world.agents.version().as_deref(), Some("1.0.0"), "{}", world.chronicle.tail(20));
    assert_eq!(world.agents.switches_to("2.0.0"), 1);
}

#[test]
fn a_record_that_cannot_be_read_on_trial_keeps_no_agent() {
    let mut world = switched_agent(11, Conduct::NeverReachesCloud);
    world.run_for(seconds(30));
    world.board.files.refuse_reads("platform-agent.record", io::ErrorKind::Other);
    world.cut_power();
    world.board.files.heal();
    world.run_for(hours(48));
    assert_eq!(world.agents.version().as_deref(), Some("1.0.0"), "{}", world.chronicle.tail(20));
    assert_eq!(world.agents.switches_to("2.0.0"), 1);
}

#[test]
fn a_version_that_makes_the_record_unreadable_is_not_switched_to_in_a_loop() {
    let mut world = switched_agent(12, Conduct::DiesAfter(seconds(20)));
    let record = launch::layout().record();
    for _ in 0..(6 * 3600 / 5) {
        if world.agents.version().as_deref() == Some("2.0.0") {
            world.board.files.put(&record, "update-record 2 a later format\n{}\n", Access::Private);
        }
        world.run_for(seconds(5));
    }
    let update = own_update(&world);
    assert_eq!((world.agents.switches_to("2.0.0"), update.bad_versions.len()), (1, 1), "{update:?}");
    assert!(update.last_error.contains("did not live for 60 s"), "{update:?}");
}
