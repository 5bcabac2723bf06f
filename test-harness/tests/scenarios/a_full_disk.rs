//! A full disk stops what needs room, says so, and never stops the machine server.

use std::io;

use board_sim::process::Script;
use serde_json::json;
use test_harness::world::{hours, minutes, seconds};

use crate::{assert_serves, serving, started_with, starts, variable};

#[test]
fn an_update_that_does_not_fit_waits_and_somebody_is_told() {
    let mut world = serving(1);
    world.board.files.leave_free(100_000);
    world.factory.channel("stable", "1.1.0");
    world.run_for(hours(12));
    assert_eq!((starts(&world), world.board.processes.serving().as_deref()), (1, Some("1.0.0")));
    let update = world.cloud.status().updates.into_iter().next().expect("it is reported");
    assert!(update.last_error.contains("disk") || update.last_error.contains("free"), "{}", update.last_error);
    world.board.files.set_capacity(board_sim::files::CAPACITY);
    world.run_for(hours(7));
    world.restart_agent();
    assert_serves(&mut world, "1.1.0", minutes(2));
}

#[test]
fn without_any_room_the_machine_server_lives_and_follows_its_configuration() {
    let mut world = started_with(2, "1.0.0", Script { chatter: Some(seconds(10)), ..Script::default() });
    assert_serves(&mut world, "1.0.0", minutes(2));
    world.board.files.leave_free(0);
    world.run_for(hours(6));
    assert_eq!(starts(&world), 1);
    world.board.files.set_capacity(board_sim::files::CAPACITY);
    world.cloud.set_section("advanced_settings", &json!({"platform_server_env": {"GREETING": "hello"}}));
    assert!(world.run_until(minutes(30), |hands| variable(hands, "GREETING").is_some()));
}

#[test]
fn a_disk_that_nobody_can_write_to_does_not_end_the_agent() {
    let mut world = serving(3);
    world.board.files.refuse_writes("/", io::ErrorKind::ReadOnlyFilesystem);
    world.run_for(hours(6));
    world.crash_server(board::process::Exit::Code(1));
    world.run_for(minutes(5));
    assert_eq!(world.board.processes.serving().as_deref(), Some("1.0.0"), "a dead one is started all the same");
}
