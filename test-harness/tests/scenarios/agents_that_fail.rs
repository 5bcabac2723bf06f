//! A version of the agent that does not prove itself is taken back, by itself or by the launcher, and not tried again.

use api::pb::platform::fleet::v1::update_status::Phase;
use serde_json::json;
use test_harness::world::{World, hours, launch::Conduct, minutes, seconds};

use crate::{
    an_agent_updates_itself::{assert_committed, own_update, settled},
    starts,
};

/// Version 2.0.0 behaves like this, and is wanted.
fn switched_to(seed: u64, conduct: Conduct) -> World {
    let mut world = settled(seed);
    world.agents.script("2.0.0", conduct);
    world.factory.release_agent("2.0.0");
    world.factory.agent_channel("stable", "2.0.0");
    world.run_for(hours(1));
    world
}

fn is_taken_back(mut world: World, reason: &str) {
    let process = world.board.processes.running()[0].id;
    let back = world.run_until(hours(3), |hands| own_update(hands).phase() == Phase::RolledBack);
    let update = own_update(&world);
    assert!(back, "{update:?}\n{}", world.chronicle.tail(60));
    assert_eq!((world.agents.version().as_deref(), update.running_version.as_str()), (Some("1.0.0"), "1.0.0"));
    assert_eq!(update.bad_versions, ["2.0.0"]);
    assert!(update.last_error.contains(reason), "{update:?}");
    world.run_for(hours(6));
    assert_eq!(world.agents.switches_to("2.0.0"), usize::from(world.agents.switches_to("1.0.0") > 0));
    assert_eq!(world.board.processes.running()[0].id, process, "the machine server has felt nothing");
    assert_eq!(starts(&world), 1);
    assert!(world.agents.starts().iter().all(|start| !start.safe), "nothing was forgotten for it");
    // The reason outlives the agent that found it.
    world.restart_agent();
    world.run_for(minutes(2));
    assert!(own_update(&world).last_error.contains(reason), "{:?}", own_update(&world));
    assert_eq!(world.agents.version().as_deref(), Some("1.0.0"));
    // Another version is another chance.
    world.factory.release_agent("2.1.0");
    world.factory.agent_channel("stable", "2.1.0");
    world.run_for(hours(2));
    assert_committed(&mut world, "2.1.0", minutes(15));
}

#[test]
fn one_that_cannot_be_executed() {
    is_taken_back(switched_to(1, Conduct::CannotStart), "cannot be started, exec format error");
}

#[test]
fn one_that_dies_at_once() {
    let world = switched_to(2, Conduct::DiesAtOnce);
    assert_eq!(world.agents.starts().iter().filter(|start| start.version == "2.0.0").count(), 3);
    is_taken_back(world, "did not live for 60 s");
}

#[test]
fn one_that_dies_before_it_counts_as_alive() {
    is_taken_back(switched_to(3, Conduct::DiesAfter(seconds(30))), "did not live for 60 s");
}

#[test]
fn one_that_dies_again_and_again_after_it_counts_as_alive() {
    is_taken_back(switched_to(4, Conduct::DiesAfter(minutes(4))), "the agent had to start 8 times meanwhile");
}

#[test]
fn one_that_never_reaches_the_fleet_server() {
    is_taken_back(switched_to(5, Conduct::NeverReachesCloud), "did not reach the fleet server in time");
}

#[test]
fn one_that_hangs() {
    is_taken_back(switched_to(6, Conduct::Hangs), "did not live for 60 s");
}

#[test]
fn one_that_an_operator_wants_tried_again() {
    let mut world = switched_to(7, Conduct::DiesAtOnce);
    assert_eq!(own_update(&world).phase(), Phase::RolledBack);
    world.agents.script("2.0.0", Conduct::Lives);
    world.cloud.want_retry();
    assert_committed(&mut world, "2.0.0", minutes(20));
    assert_eq!((own_update(&world).retried, own_update(&world).bad_versions.len()), (1, 0));
}

#[test]
fn one_that_is_recalled() {
    let mut world = switched_to(8, Conduct::Lives);
    world.run_for(minutes(30));
    assert_committed(&mut world, "2.0.0", minutes(1));
    // A newer channel document may name an older release.
    world.factory.agent_channel("stable", "1.0.0");
    world.run_for(hours(2));
    assert_committed(&mut world, "1.0.0", minutes(15));
    assert!(own_update(&world).bad_versions.is_empty());
}

#[test]
fn one_whose_board_loses_power_now_and_then() {
    let mut world = settled(9);
    world.factory.release_agent("2.0.0");
    world.cloud.set_section("version_control", &json!({"agent": "2.0.0"}));
    assert!(world.run_until(minutes(10), |hands| hands.agents.version().as_deref() == Some("2.0.0")));
    for _ in 0..5 {
        world.run_for(seconds(20));
        world.cut_power();
    }
    assert_committed(&mut world, "2.0.0", minutes(20));
    assert!(own_update(&world).bad_versions.is_empty(), "power cuts are not its fault");
}
