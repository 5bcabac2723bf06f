//! A bad field costs that field and nothing else; the value accepted before stays, and somebody is told.

use serde_json::json;
use test_harness::world::minutes;

use crate::{serving, starts, variable};

#[test]
fn the_good_fields_are_taken_and_the_bad_ones_are_named() {
    let mut world = serving(1);
    world.cloud.set_section(
        "advanced_settings",
        &json!({
            "platform_server_env": {"GREETING": "hello"},
            "platform_server_start_timeout_minutes": "ten",
            "disable_platform_server": "perhaps",
            "wait_for_update_check": true,
        }),
    );
    assert!(world.run_until(minutes(1), |hands| variable(hands, "GREETING").as_deref() == Some("hello")));
    world.run_for(minutes(1));
    let complaints = world.cloud.status().complaints;
    let mut paths: Vec<_> = complaints.iter().map(|complaint| complaint.path.as_str()).collect();
    paths.sort_unstable();
    let expected =
        ["advanced_settings.disable_platform_server", "advanced_settings.platform_server_start_timeout_minutes"];
    assert_eq!(paths, expected);
    assert!(complaints.iter().all(|complaint| !complaint.allowed.is_empty()), "it is said what is allowed");
}

#[test]
fn what_was_accepted_before_stays_also_over_a_power_cut() {
    let mut world = serving(2);
    world.cloud.set_section("advanced_settings", &json!({"disable_platform_server": true}));
    assert!(world.run_until(minutes(3), |hands| hands.board.processes.running().is_empty()));
    world.cloud.set_section("advanced_settings", &json!({"disable_platform_server": 3}));
    world.run_for(minutes(2));
    world.board.web.set_online(false);
    let before = starts(&world);
    world.cut_power();
    world.run_for(minutes(30));
    assert_eq!(starts(&world), before, "a bad value never fails open");
}

#[test]
fn a_healed_field_is_no_longer_complained_about() {
    let mut world = serving(3);
    world.cloud.set_section("advanced_settings", &json!({"disk_reserve_megabytes": -1}));
    assert!(world.run_until(minutes(2), |hands| hands.cloud.status().complaints.len() == 1));
    world.cloud.set_section("advanced_settings", &json!({"disk_reserve_megabytes": 100}));
    assert!(world.run_until(minutes(2), |hands| hands.cloud.status().complaints.is_empty()));
}
