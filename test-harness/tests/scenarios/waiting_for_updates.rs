//! Told to wait, the agent starts the machine server only after it has looked for a newer one; and never for ever.

use serde_json::json;
use test_harness::world::{Seed, World, hours, minutes, seconds};

use crate::{assert_serves, serving, starts};

#[test]
fn the_newest_version_is_the_first_that_starts() {
    let mut world = World::waiting(Seed(1), true);
    world.start();
    assert_serves(&mut world, "1.0.0", minutes(2));
    world.run_for(hours(1));
    world.board.web.set_online(false);
    world.factory.channel("stable", "1.1.0");
    world.after(seconds(40), |hands| hands.board.web.set_online(true));
    world.cut_power();
    assert_serves(&mut world, "1.1.0", minutes(3));
    let versions: Vec<_> = world.board.processes.started().into_iter().map(|start| start.version).collect();
    assert_eq!(versions, ["1.0.0", "1.1.0"], "the old one was not started in between");
}

#[test]
fn without_a_network_what_is_installed_starts_after_a_minute() {
    let mut world = World::waiting(Seed(2), true);
    world.start();
    assert_serves(&mut world, "1.0.0", minutes(2));
    world.run_for(hours(1));
    world.board.web.set_online(false);
    world.cut_power();
    assert!(!world.run_until(seconds(40), |hands| starts(hands) == 2), "it waits for a network");
    assert!(world.run_until(seconds(60), |hands| starts(hands) == 2), "and not for ever");
}

#[test]
fn a_download_that_takes_too_long_is_not_waited_for() {
    let mut world = World::waiting(Seed(3), true);
    world.start();
    assert_serves(&mut world, "1.0.0", minutes(2));
    world.run_for(hours(1));
    world.factory.channel("stable", "1.1.0");
    world.board.web.set_bandwidth(100);
    world.cut_power();
    assert!(!world.run_until(minutes(8), |hands| starts(hands) == 2));
    assert_serves(&mut world, "1.0.0", minutes(6));
}

#[test]
fn the_configuration_can_ask_for_it_and_the_command_line_overrules() {
    let mut world = serving(4);
    world.cloud.set_section("advanced_settings", &json!({"wait_for_update_check": true}));
    world.run_for(hours(1));
    world.board.web.set_online(false);
    world.cut_power();
    assert!(!world.run_until(seconds(40), |hands| starts(hands) == 2), "it waits");

    let mut world = World::waiting(Seed(5), false);
    world.start();
    assert_serves(&mut world, "1.0.0", minutes(2));
    world.cloud.set_section("advanced_settings", &json!({"wait_for_update_check": true}));
    world.run_for(hours(1));
    world.board.web.set_online(false);
    world.cut_power();
    assert!(world.run_until(seconds(10), |hands| starts(hands) == 2), "it was told not to");
}
