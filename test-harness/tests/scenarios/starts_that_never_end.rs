//! A machine server that never gets ready is killed after its limit and started again.

use std::time::Duration;

use board_sim::process::Script;
use serde_json::json;
use test_harness::world::{hours, minutes};

use crate::{started_with, starts};

fn never_ready() -> Script {
    Script { ready_after: None, ignores_sigterm: true, children: 2, ..Script::default() }
}

#[test]
fn it_is_killed_with_its_children_after_ten_minutes() {
    let mut world = started_with(1, "1.0.0", never_ready());
    assert!(world.run_until(minutes(2), |hands| starts(hands) == 1));
    assert!(!world.run_until(minutes(9), |hands| starts(hands) > 1), "not before its time");
    assert!(world.run_until(minutes(5), |hands| starts(hands) > 1), "not later either");
    assert_eq!(world.board.processes.orphans(), 0);
    world.run_for(hours(5));
    let started = world.board.processes.started();
    let pauses = started.windows(2).map(|pair| pair[1].at - pair[0].at);
    assert!(pauses.into_iter().all(|pause| pause >= minutes(10)), "each start is given its time");
}

#[test]
fn the_limit_can_be_changed_while_it_starts() {
    let mut world = started_with(2, "1.0.0", never_ready());
    assert!(world.run_until(minutes(2), |hands| starts(hands) == 1));
    world.cloud.set_section("advanced_settings", &json!({"platform_server_start_timeout_minutes": 2}));
    assert!(world.run_until(minutes(4), |hands| starts(hands) == 2));
}

#[test]
fn one_that_says_nothing_and_answers_is_ready() {
    let silent = Script { says_serving: None, ready_after: Some(Duration::from_secs(30)), ..Script::default() };
    let mut world = started_with(3, "1.0.0", silent);
    world.run_for(hours(2));
    assert_eq!(starts(&world), 1);
    assert!(world.cloud.status().server.is_some_and(|server| server.ready_at.is_some()));
}
