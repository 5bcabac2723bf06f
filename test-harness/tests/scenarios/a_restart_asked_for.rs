//! Somebody marks the part for restart: it is restarted once, and the mark goes away.

use board_sim::process::{Permission, Script};
use test_harness::world::{
    cloud::{Call, Mood},
    hours, minutes, seconds,
};

use crate::{serving, started_with, starts};

#[test]
fn once() {
    let mut world = serving(1);
    world.cloud.mark_for_restart();
    assert!(world.run_until(minutes(1), |hands| starts(hands) == 2));
    world.run_for(hours(2));
    assert_eq!(starts(&world), 2);
    assert!(!world.cloud.is_marked());
    assert!(world.cloud.status().server.is_some_and(|server| server.operator_restarts == 1));
}

#[test]
fn once_also_when_answers_get_lost_and_the_agent_is_killed() {
    for call in Call::ALL {
        let mut world = serving(2);
        world.cloud.mark_for_restart();
        world.cloud.set_mood(Mood::LosesAnswers(call, 3));
        world.run_for(seconds(7));
        world.kill_agent();
        world.run_for(hours(1));
        assert_eq!(starts(&world), 2, "{call:?}");
        assert!(!world.cloud.is_marked(), "{call:?}");
    }
}

#[test]
fn a_refusal_holds_it_up_for_a_quarter_of_an_hour_at_most() {
    let mut world = serving(3);
    world.board.processes.permit(Permission::Refused);
    world.cloud.mark_for_restart();
    assert!(!world.run_until(minutes(13), |hands| starts(hands) == 2));
    assert!(world.run_until(minutes(4), |hands| starts(hands) == 2));
}

#[test]
fn a_server_that_asks_itself_is_left_alone() {
    let mut world = started_with(4, "1.0.0", Script { handles_needs_restart: true, ..Script::default() });
    world.run_for(minutes(5));
    world.cloud.mark_for_restart();
    world.run_for(hours(1));
    assert_eq!(starts(&world), 1);
}
