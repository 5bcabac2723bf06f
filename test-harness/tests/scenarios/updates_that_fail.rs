//! A version that does not prove itself is taken back, remembered as bad, and not tried again by itself.

use board::process::Exit;
use board_sim::process::Script;
use serde_json::json;
use test_harness::world::{World, hours, minutes, seconds};

use crate::{assert_serves, serving, starts};

/// Version 1.1.0 behaves like this, is staged, and the agent is started again.
fn switched_to(seed: u64, script: Script) -> World {
    let mut world = serving(seed);
    world.board.processes.script("1.1.0", script);
    world.factory.channel("stable", "1.1.0");
    world.run_for(hours(1));
    world.restart_agent();
    world
}

fn is_taken_back(mut world: World) {
    assert_serves(&mut world, "1.0.0", hours(1));
    world.run_for(minutes(2));
    let update = world.cloud.status().updates.into_iter().next().expect("it is reported");
    assert_eq!(update.bad_versions, ["1.1.0"]);
    let before = starts(&world);
    world.run_for(hours(24));
    world.restart_agent();
    world.run_for(hours(1));
    let tried_again = world.board.processes.started().iter().skip(before).any(|start| start.version == "1.1.0");
    assert!(!tried_again, "it is not tried again by itself");
    assert_eq!(world.board.processes.serving().as_deref(), Some("1.0.0"));

    world.factory.release("1.4.0");
    world.cloud.set_section("version_control", &json!({"platform-server": "1.4.0"}));
    world.run_for(hours(1));
    world.restart_agent();
    assert_serves(&mut world, "1.4.0", minutes(5));
}

#[test]
fn one_that_crashes() {
    is_taken_back(switched_to(1, Script { ends: Some((seconds(20), Exit::Code(1))), ..Script::default() }));
}

#[test]
fn one_that_never_gets_ready() {
    is_taken_back(switched_to(2, Script { ready_after: None, ..Script::default() }));
}

#[test]
fn one_that_dies_at_once() {
    let dies = Script { ready_after: None, ends: Some((seconds(0), Exit::Signal(11))), ..Script::default() };
    is_taken_back(switched_to(3, dies));
}

#[test]
fn one_that_an_operator_wants_tried_again() {
    let mut world = switched_to(7, Script { ready_after: None, ..Script::default() });
    assert_serves(&mut world, "1.0.0", hours(1));
    // What was missing on the device is there now.
    world.board.processes.script("1.1.0", Script::default());
    world.cloud.want_retry();
    world.run_for(minutes(2));
    let update = world.cloud.status().updates.into_iter().next().expect("it is reported");
    assert_eq!((update.retried, update.bad_versions.len()), (1, 0), "{update:?}");
    world.restart_agent();
    assert_serves(&mut world, "1.1.0", minutes(2));
}

#[test]
fn one_that_fails_while_the_maintenance_window_is_shut() {
    let fails = [
        Script { ends: Some((seconds(60), Exit::Code(1))), ..Script::default() },
        Script { ready_after: None, ..Script::default() },
    ];
    for (seed, script) in (5..).zip(fails) {
        let mut world = switched_to(seed, script);
        world.run_for(seconds(5));
        assert_eq!(world.board.processes.running().last().map(|start| start.version.clone()).as_deref(), Some("1.1.0"));
        // Worlds begin on a Monday.
        let windows = json!([{"days": ["sat"], "from": "01:00", "to": "02:00", "tz": "UTC"}]);
        world.cloud.set_section("advanced_settings", &json!({"maintenance": {"windows": windows}}));
        assert_serves(&mut world, "1.0.0", minutes(20));
        world.run_for(hours(24));
        assert_serves(&mut world, "1.0.0", seconds(1));
    }
}

#[test]
fn one_that_lived_through_its_probation_is_kept_whatever_comes_later() {
    let mut world = switched_to(4, Script::default());
    assert_serves(&mut world, "1.1.0", minutes(2));
    world.run_for(minutes(30));
    for _ in 0..5 {
        world.crash_server(Exit::Code(1));
        world.run_for(minutes(10));
    }
    assert_eq!(world.board.processes.serving().as_deref(), Some("1.1.0"));
}
