//! A changed environment restarts the machine server when that permits it, and not before.

use board_sim::process::{Permission, Script};
use serde_json::json;
use test_harness::world::{hours, minutes};

use crate::{serving, started_with, starts, variable};

#[test]
fn a_refusal_is_respected_as_long_as_it_is_said() {
    let mut world = serving(1);
    world.board.processes.permit(Permission::Refused);
    world.cloud.set_section("advanced_settings", &json!({"platform_server_env": {"GREETING": "hello"}}));
    world.run_for(hours(8));
    assert_eq!(starts(&world), 1);
    assert!(world.cloud.status().server.is_some_and(|server| !server.restart_pending.is_empty()));
    world.board.processes.permit(Permission::Allowed);
    assert!(world.run_until(minutes(2), |hands| variable(hands, "GREETING").as_deref() == Some("hello")));
}

#[test]
fn a_change_taken_back_wants_no_restart() {
    let mut world = serving(2);
    world.board.processes.permit(Permission::Refused);
    world.cloud.set_section("advanced_settings", &json!({"platform_server_env": {"GREETING": "hello"}}));
    world.run_for(minutes(5));
    world.cloud.set_section("advanced_settings", &json!({}));
    world.run_for(minutes(5));
    world.board.processes.permit(Permission::Allowed);
    world.run_for(hours(1));
    assert_eq!(starts(&world), 1);
    assert!(world.cloud.status().server.is_some_and(|server| server.restart_pending.is_empty()));
}

#[test]
fn a_server_that_does_not_know_the_question_permits() {
    let old = Script { permission: Permission::Unknown, ..Script::default() };
    let mut world = started_with(3, "1.0.0", old);
    world.run_for(minutes(1));
    world.cloud.set_section("advanced_settings", &json!({"platform_server_env": {"GREETING": "hello"}}));
    assert!(world.run_until(minutes(1), |hands| variable(hands, "GREETING").is_some()));
}

#[test]
fn an_answer_that_is_none_counts_as_silence() {
    for permission in [Permission::Error, Permission::Garbage, Permission::Silent] {
        let mut world = serving(4);
        world.board.processes.permit(permission);
        world.cloud.set_section("advanced_settings", &json!({"platform_server_env": {"GREETING": "hello"}}));
        assert!(!world.run_until(minutes(13), |hands| starts(hands) > 1), "{permission:?}");
        assert!(world.run_until(minutes(5), |hands| variable(hands, "GREETING").is_some()), "{permission:?}");
    }
}
