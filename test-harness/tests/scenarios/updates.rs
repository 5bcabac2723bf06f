//! A new version is fetched at once and starts with the next opening; the old one runs undisturbed until then.

use expect_test::expect;
use serde_json::json;
use test_harness::world::{World, hours, minutes};

use crate::{assert_serves, serving, starts};

fn is_downloaded(world: &World, version: &str) -> bool {
    let url = world.factory.artifact(version);
    world.board.web.asked().iter().any(|asked| asked.url == url)
}

#[test]
fn it_is_staged_and_starts_with_the_next_agent() {
    let mut world = serving(1);
    world.factory.channel("stable", "1.1.0");
    world.run_for(hours(2));
    assert!(is_downloaded(&world, "1.1.0"));
    assert_eq!((starts(&world), world.board.processes.serving().as_deref()), (1, Some("1.0.0")));
    world.restart_agent();
    assert_serves(&mut world, "1.1.0", minutes(1));
    world.run_for(hours(1));
    assert_eq!(starts(&world), 2);
    let running = world.cloud.status().updates.first().map(|update| update.running_version.clone());
    assert_eq!(running.as_deref(), Some("1.1.0"));
}

#[test]
fn it_starts_with_a_restart_that_somebody_asked_for() {
    let mut world = serving(2);
    world.cloud.set_section("version_control", &json!({"platform-server": "1.1.0"}));
    world.run_for(hours(1));
    assert_eq!(world.board.processes.serving().as_deref(), Some("1.0.0"));
    world.cloud.mark_for_restart();
    assert_serves(&mut world, "1.1.0", minutes(2));
    assert_eq!(starts(&world), 2, "one restart for both");
}

#[test]
fn a_killed_agent_is_no_opening() {
    let mut world = serving(3);
    world.factory.channel("stable", "1.1.0");
    world.run_for(hours(1));
    let running = world.board.processes.running()[0].id;
    world.kill_agent();
    world.run_for(hours(1));
    assert_eq!(world.board.processes.running()[0].id, running, "a healthy machine server outlives the agent");
}

#[test]
fn every_way_to_name_a_version_works() {
    let mut world = serving(4);
    for (setting, version) in [("dev", "1.2.0-dev"), ("1.1.0", "1.1.0"), ("stable", "1.0.0")] {
        world.cloud.set_section("version_control", &json!({"platform-server": setting}));
        world.run_for(hours(1));
        world.restart_agent();
        assert_serves(&mut world, version, minutes(5));
        world.run_for(minutes(30));
    }
}

#[test]
fn a_second_version_replaces_one_that_was_only_staged() {
    let mut world = serving(5);
    world.factory.channel("stable", "1.1.0");
    world.run_for(hours(1));
    world.factory.channel("stable", "1.2.0-dev");
    world.run_for(hours(1));
    world.restart_agent();
    assert_serves(&mut world, "1.2.0-dev", minutes(2));
}

#[test]
fn its_story() {
    let mut world = serving(6);
    world.run_for(minutes(10));
    world.cloud.set_section("version_control", &json!({"platform-server": "1.1.0"}));
    world.run_for(minutes(10));
    world.restart_agent();
    world.run_for(minutes(10));
    world.expect_trace(&expect![[r#"
        00:00  config  revision none in force: versions, advanced, network, networks, system changed, 0 complaints
        00:00  cloud   configuration e3b0c442 fetched
        00:00  cloud   Reached
        00:00  config  revision e3b0c442 in force: nothing changed, 0 complaints
        00:00  network Unknown → Online
        00:00  update  platform-server idle → downloading   1.0.0
        00:00  update  platform-server downloading → verifying   1.0.0
        00:00  update  platform-server verifying → placing   1.0.0
        00:00  update  platform-server placing → switching   1.0.0
        00:00  server  NoVersion → Starting
        00:00  update  platform-server switching → probation   1.0.0
        00:02  server  Starting → Running
        05:00  update  platform-server probation → idle   stable
        10:04  cloud   configuration e0b5cb63 fetched
        10:04  config  revision e0b5cb63 in force: versions changed, 0 complaints
        10:04  update  platform-server idle → downloading   1.1.0
        10:04  update  platform-server downloading → verifying   1.1.0
        10:04  update  platform-server verifying → placing   1.1.0
        10:04  update  platform-server placing → staged   1.1.0
        20:03  world   agent asked to stop
        20:03  server  Running → Stopping
        20:03  world   agent ended: as asked
        20:03  config  revision e0b5cb63 in force: versions, advanced, network, networks, system changed, 0 complaints
        20:03  update  platform-server staged → switching   1.1.0
        20:03  server  NoVersion → Starting
        20:03  update  platform-server switching → probation   1.1.0
        20:03  cloud   configuration e0b5cb63 fetched
        20:03  cloud   Reached
        20:03  network Unknown → Online
        20:05  server  Starting → Running
        25:03  update  platform-server probation → idle   1.1.0
    "#]]);
}
