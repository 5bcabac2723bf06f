//! A change of the configuration reaches whom it concerns, and nobody else.

use serde_json::json;
use test_harness::world::{cloud::Call, minutes, seconds};

use crate::{serving, starts, variable};

#[test]
fn a_new_variable_restarts_the_machine_server_once() {
    let mut world = serving(1);
    world.cloud.set_section("advanced_settings", &json!({"platform_server_env": {"GREETING": "hello"}}));
    assert!(world.run_until(minutes(1), |hands| variable(hands, "GREETING").as_deref() == Some("hello")));
    assert_eq!(starts(&world), 2);
    world.run_for(minutes(30));
    assert_eq!(starts(&world), 2, "once is enough");

    world.cloud.set_section("advanced_settings", &json!({}));
    assert!(world.run_until(minutes(1), |hands| starts(hands) == 3 && variable(hands, "GREETING").is_none()));
}

#[test]
fn what_does_not_concern_the_machine_server_does_not_restart_it() {
    let mut world = serving(2);
    world.cloud.set_section("network_configuration", &json!({"manufacturer": "acme", "user_idle_minutes": 7}));
    world.cloud.set_section("system_configuration", &json!({"forward_system_logs": "all"}));
    world.cloud.set_section(
        "advanced_settings",
        &json!({"debug": true, "platform_server_start_timeout_minutes": 5, "disk_reserve_megabytes": 32}),
    );
    let before = world.cloud.status().applied_revision;
    world.run_for(minutes(30));
    assert_ne!(world.cloud.status().applied_revision, before, "it is in force");
    assert_eq!(starts(&world), 1);
}

#[test]
fn an_unchanged_configuration_costs_a_question_and_nothing_else() {
    let mut world = serving(3);
    world.run_for(minutes(12));
    let (writes, asked) = (world.board.files.writes(), world.cloud.count(Call::Config));
    let looked_at = world.board.web.asked().len();
    world.run_for(seconds(60));
    assert!(world.cloud.count(Call::Config) >= asked + 10, "it asks as often as the server wants");
    assert_eq!(world.board.files.writes(), writes, "nothing is written");
    assert_eq!(world.board.web.asked().len(), looked_at, "nothing is fetched");
}
