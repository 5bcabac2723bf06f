//! A machine server that stops answering blocks a wanted restart for a while, and not for ever.

use serde_json::json;
use test_harness::world::{minutes, seconds};

use crate::{serving, starts, variable};

#[test]
fn silence_is_respected_for_a_quarter_of_an_hour_and_then_it_is_killed() {
    let mut world = serving(1);
    world.board.processes.hang();
    world.cloud.set_section("advanced_settings", &json!({"platform_server_env": {"GREETING": "hello"}}));
    assert!(!world.run_until(minutes(14), |hands| starts(hands) > 1), "it might be busy with something dangerous");
    assert!(world.cloud.status().server.is_some_and(|server| !server.restart_pending.is_empty()), "somebody is told");
    // Until the silence is over, and then until it had its time to end.
    assert!(world.run_until(minutes(4) + seconds(30), |hands| variable(hands, "GREETING").is_some()));
    assert_eq!(starts(&world), 2);
}
