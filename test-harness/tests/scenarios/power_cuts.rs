//! The power may go, and the agent may be killed, at any write: afterwards everything ends as if it had not.

use serde_json::json;
use test_harness::world::{Seed, World, interruptions::at_every_write, minutes};

use crate::variable;

fn world() -> World {
    World::new(Seed(1))
}

#[test]
fn during_the_first_start() {
    let runs = at_every_write(
        world,
        |world| {
            world.start();
            world.run_for(minutes(20));
        },
        |world| assert_eq!(world.board.processes.serving().as_deref(), Some("1.0.0")),
    );
    println!("{runs} runs");
}

#[test]
fn during_an_update_and_its_switch() {
    let runs = at_every_write(
        world,
        |world| {
            world.start();
            world.run_for(minutes(10));
            world.cloud.set_section("version_control", &json!({"platform-server": "1.1.0"}));
            world.run_for(minutes(10));
            // The first may be interrupted, and an agent that was killed finds its machine server running.
            world.restart_agent();
            world.run_for(minutes(10));
            world.restart_agent();
            world.run_for(minutes(10));
        },
        |world| {
            assert_eq!(world.board.processes.serving().as_deref(), Some("1.1.0"));
            let update = world.cloud.status().updates.into_iter().next().expect("it is reported");
            assert!(update.bad_versions.is_empty(), "an interruption is not the version's fault: {update:?}");
        },
    );
    println!("{runs} runs");
}

#[test]
fn during_a_change_of_the_configuration() {
    let runs = at_every_write(
        world,
        |world| {
            world.start();
            world.run_for(minutes(10));
            world.cloud.set_section("advanced_settings", &json!({"platform_server_env": {"GREETING": "hello"}}));
            world.run_for(minutes(10));
        },
        |world| assert_eq!(variable(world, "GREETING").as_deref(), Some("hello")),
    );
    println!("{runs} runs");
}

#[test]
fn during_a_restart_that_somebody_asked_for() {
    let runs = at_every_write(
        world,
        |world| {
            world.start();
            world.run_for(minutes(10));
            world.cloud.mark_for_restart();
            world.run_for(minutes(30));
        },
        |world| {
            let last = world.board.processes.started().pop().expect("it was started");
            assert!(last.at >= minutes(10), "it was not restarted");
            assert!(!world.cloud.is_marked(), "somebody still waits");
        },
    );
    println!("{runs} runs");
}
