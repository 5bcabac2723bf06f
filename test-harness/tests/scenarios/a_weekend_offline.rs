//! Two days without a network: the machine server runs from the cached configuration, and every line arrives afterwards.

use std::time::Duration;

use board_sim::process::Script;
use serde_json::json;
use test_harness::world::{
    World,
    cloud::{Call, Mood},
    hours, minutes, seconds,
};

use crate::{assert_serves, started_with, starts, variable};

fn chatty(every: Duration) -> Script {
    Script { chatter: Some(every), ..Script::default() }
}

/// Numbers of the lines of the machine server that arrived.
fn arrived(world: &World) -> Vec<u64> {
    let lines = world.cloud.lines();
    lines.iter().filter_map(|kept| kept.entry.message.strip_prefix("line ")?.split(' ').next()?.parse().ok()).collect()
}

#[test]
fn forty_eight_hours_of_lines_arrive_in_order_and_once() {
    let mut world = started_with(1, "1.0.0", chatty(seconds(20)));
    assert_serves(&mut world, "1.0.0", minutes(2));
    world.run_for(minutes(5));
    let before = arrived(&world).len();
    assert!(before > 0, "they arrive while the network is there");
    world.board.web.set_online(false);
    world.run_for(hours(48));
    assert_eq!(starts(&world), 1, "nothing else happened");
    let missing = arrived(&world).len();
    world.board.web.set_online(true);
    world.run_for(hours(1));
    let numbers = arrived(&world);
    assert!(numbers.len() > missing + 8_000, "48 hours, a line each 20 s: {}", numbers.len());
    assert!(numbers.iter().copied().eq(1..=numbers.len() as u64), "each line once, in order");
}

#[test]
fn the_cached_configuration_is_enough_also_after_a_restart_without_network() {
    let mut world = started_with(2, "1.0.0", Script::default());
    assert_serves(&mut world, "1.0.0", minutes(2));
    world.cloud.set_section("advanced_settings", &json!({"platform_server_env": {"GREETING": "hello"}}));
    assert!(world.run_until(minutes(1), |hands| variable(hands, "GREETING").is_some()));
    world.board.web.set_online(false);
    world.cut_power();
    assert_serves(&mut world, "1.0.0", minutes(2));
    assert_eq!(variable(&world, "GREETING").as_deref(), Some("hello"));
}

#[test]
fn lines_outlive_a_restart_of_the_agent_and_answers_that_get_lost() {
    let mut world = started_with(3, "1.0.0", chatty(seconds(5)));
    assert_serves(&mut world, "1.0.0", minutes(2));
    world.board.web.set_online(false);
    world.run_for(hours(3));
    world.restart_agent();
    world.run_for(hours(1));
    world.cloud.set_mood(Mood::LosesAnswers(Call::UploadLogs, 5));
    world.board.web.set_online(true);
    world.run_for(hours(1));
    assert!(world.cloud.repeats() > 0, "a batch whose answer was lost comes again, and is dropped");
    // The order and the single delivery of each line are invariants of every world.
    assert!(arrived(&world).len() > 2_000);
}
