//! A device that sleeps: what a version was to prove it proves awake.

use api::pb::platform::fleet::v1::update_status::Phase;
use board_sim::process::Script;
use serde_json::json;
use test_harness::world::{World, hours, minutes, seconds};

use crate::{assert_serves, serving};

/// 1.1.0 has just been started.
fn on_probation(seed: u64, script: Script) -> World {
    let mut world = serving(seed);
    world.board.processes.script("1.1.0", script);
    world.cloud.set_section("advanced_settings", &json!({"platform_server_start_timeout_minutes": 120}));
    world.cloud.set_section("version_control", &json!({"platform-server": "1.1.0"}));
    world.run_for(minutes(10));
    world.restart_agent();
    world.run_for(seconds(10));
    world
}

fn phase(world: &World) -> Phase {
    world.cloud.status().updates[0].phase()
}

#[test]
fn a_night_asleep_is_no_probation() {
    let mut world = on_probation(1, Script::default());
    world.suspend(hours(8));
    world.run_for(minutes(3));
    assert_eq!(world.chronicle.count("update", "probation → idle   1.1.0"), 0, "{}", world.chronicle.tail(6));
    assert_eq!(phase(&world), Phase::Probation);
    world.run_for(minutes(2));
    assert_eq!(phase(&world), Phase::Committed);
}

#[test]
fn nor_is_it_a_reason_to_go_back() {
    let mut world = on_probation(2, Script { ready_after: Some(minutes(19)), ..Script::default() });
    world.suspend(minutes(18));
    world.run_for(minutes(10));
    assert_serves(&mut world, "1.1.0", minutes(1));
    assert_eq!(phase(&world), Phase::Committed, "{}", world.chronicle.tail(14));
}
