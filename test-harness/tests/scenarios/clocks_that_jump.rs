//! The wall clock may jump and may be wrong: nothing that runs notices.

use board_sim::process::Script;
use serde_json::json;
use test_harness::world::{hours, minutes, seconds};

use crate::{assert_serves, serving, started_with, starts, variable};

const DAY: i64 = 24 * 3600 * 1000;

#[test]
fn nothing_restarts_and_polling_goes_on() {
    for jump in [-20 * 365 * DAY, -DAY, -3_600_000, 3_600_000, 30 * DAY] {
        let mut world = started_with(1, "1.0.0", Script { chatter: Some(seconds(30)), ..Script::default() });
        assert_serves(&mut world, "1.0.0", minutes(2));
        world.run_for(minutes(20));
        world.board.clock.jump_wall(jump);
        let polls = world.cloud.calls().len();
        world.run_for(hours(1));
        assert_eq!(starts(&world), 1, "{jump}");
        assert!(world.cloud.calls().len() > polls + 600, "{jump}: it asks as often as before");
        world.cloud.set_section("advanced_settings", &json!({"platform_server_env": {"GREETING": "hello"}}));
        assert!(world.run_until(minutes(2), |hands| variable(hands, "GREETING").is_some()), "{jump}");
    }
}

#[test]
fn a_clock_at_zero_that_nobody_vouches_for_still_updates() {
    let mut world = serving(2);
    let zero = -world.board.clock.wall_clock().as_millis();
    world.board.clock.jump_wall(zero);
    world.board.clock.set_synchronised(false);
    world.cut_power();
    assert_serves(&mut world, "1.0.0", minutes(2));
    world.factory.channel("stable", "1.1.0");
    world.run_for(hours(2));
    world.restart_agent();
    assert_serves(&mut world, "1.1.0", minutes(2));
}

#[test]
fn a_synchronised_clock_that_was_wrong_once_is_not_believed_for_ever() {
    let mut world = serving(3);
    let time = |hands: &test_harness::world::Hands| {
        let bytes = hands.board.files.content("/opt/platform/trust/numbers").expect("kept");
        let text = String::from_utf8(bytes).expect("text");
        let (_, time) = text.split_once("\"time\":").expect("it holds the time");
        time.trim_end_matches(['}', '\n']).parse::<i64>().expect("seconds")
    };
    let now = |hands: &test_harness::world::Hands| hands.board.clock.wall_clock().as_millis() / 1000;
    world.run_for(hours(2));
    assert!((now(&world) - time(&world)).abs() <= 86_400);
    world.board.clock.jump_wall(60 * DAY);
    world.run_for(hours(2));
    assert!(time(&world) > now(&world) - 86_400, "it is certain");
    world.board.clock.jump_wall(-60 * DAY);
    world.run_for(hours(2));
    assert!(time(&world) <= now(&world), "it is certain again");
    // By this one every document has expired.
    let (before, jump) = (time(&world), 3650 * DAY);
    world.board.clock.jump_wall(jump);
    world.run_for(hours(2));
    assert_eq!(time(&world), before, "nothing is fresh by a time that is to be kept");
    world.board.clock.jump_wall(-jump);
    // Without anybody who vouches for it, time does not go back.
    world.board.clock.set_synchronised(false);
    world.board.clock.jump_wall(-DAY);
    world.run_for(hours(2));
    assert_eq!(time(&world), before);
}
