//! The power may go, and the agent may be killed, at any write: afterwards everything ends as if it had not.

use api::pb::platform::fleet::v1::update_status::Phase;
use board::process::Exit;
use board_sim::process::Script;
use serde_json::json;
use test_harness::world::{Seed, World, interruptions::at_every_write, launch::Conduct, minutes, seconds};

use crate::{an_agent_updates_itself::own_update, variable};

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

/// Version 1.1.0 of the machine server is wanted, and has its chance to be started.
pub(crate) fn served_by_another(world: &mut World) {
    world.start();
    world.run_for(minutes(10));
    world.cloud.set_section("version_control", &json!({"platform-server": "1.1.0"}));
    world.run_for(minutes(10));
    // The first may be interrupted, and an agent that was killed finds its machine server running.
    for _ in 0..2 {
        world.restart_agent();
        world.run_for(minutes(10));
    }
}

#[test]
fn during_an_update_and_its_switch() {
    let runs = at_every_write(world, served_by_another, |world| {
        assert_eq!(world.board.processes.serving().as_deref(), Some("1.1.0"));
        let update = world.cloud.status().updates.into_iter().next().expect("it is reported");
        assert!(update.bad_versions.is_empty(), "an interruption is not the version's fault: {update:?}");
    });
    println!("{runs} runs");
}

#[test]
fn while_a_machine_server_is_taken_back() {
    let runs = at_every_write(
        || {
            let world = world();
            let ends = Some((seconds(30), Exit::Code(3)));
            world.board.processes.script("1.1.0", Script { ends, ..Script::default() });
            world
        },
        served_by_another,
        |world| {
            assert_eq!(world.board.processes.serving().as_deref(), Some("1.0.0"));
            let update = world.cloud.status().updates.into_iter().next().expect("it is reported");
            assert_eq!((update.phase(), update.bad_versions), (Phase::RolledBack, vec!["1.1.0".to_owned()]));
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

/// What must be true at the end whatever was interrupted: the agent that is wanted, or the one before, and nothing that
/// happened twice.
pub(crate) fn agent_is(world: &World, version: &str, phase: Phase, bad: &[&str]) {
    let update = own_update(world);
    let history: Vec<_> = world.agents.starts().into_iter().map(|start| (start.version, start.safe)).collect();
    assert_eq!((update.phase(), update.running_version.as_str()), (phase, version), "{update:?}");
    assert_eq!(world.agents.version().as_deref(), Some(version));
    assert_eq!(update.bad_versions, bad, "an interruption is not the version's fault: {update:?}");
    assert_eq!(world.agents.switches_to("2.0.0"), 1, "never two switches: {history:?}");
    assert!(history.iter().all(|(_, safe)| !safe), "nothing was set aside: {history:?}");
    assert_eq!(world.board.processes.serving().as_deref(), Some("1.0.0"));
    assert_eq!(world.board.processes.most_at_once(), 1);
}

pub(crate) fn updated_to(conduct: Conduct) -> impl Fn(&mut World) {
    move |world| {
        world.agents.script("2.0.0", conduct);
        world.factory.release_agent("2.0.0");
        world.start();
        world.run_for(minutes(6));
        world.cloud.set_section("version_control", &json!({"agent": "2.0.0"}));
        world.run_for(minutes(80));
    }
}

pub(crate) fn with_launcher() -> World {
    let world = World::launched(Seed(1));
    // Half a year of simulated time goes by in these runs: as seldom as a device of production asks.
    world.cloud.set_poll(minutes(1));
    world
}

#[test]
fn during_an_update_of_the_agent() {
    let runs = at_every_write(with_launcher, updated_to(Conduct::Lives), |world| {
        agent_is(world, "2.0.0", Phase::Committed, &[]);
    });
    println!("{runs} runs");
}

#[test]
fn while_the_agent_takes_itself_back() {
    let runs = at_every_write(with_launcher, updated_to(Conduct::NeverReachesCloud), |world| {
        agent_is(world, "1.0.0", Phase::RolledBack, &["2.0.0"]);
    });
    println!("{runs} runs");
}

#[test]
fn while_the_launcher_takes_the_agent_back() {
    for conduct in [Conduct::DiesAtOnce, Conduct::DiesAfter(minutes(1) / 2), Conduct::CannotStart] {
        let runs = at_every_write(with_launcher, updated_to(conduct), |world| {
            // One that cannot even be executed never ran.
            if conduct != Conduct::CannotStart {
                agent_is(world, "1.0.0", Phase::RolledBack, &["2.0.0"]);
            }
            assert_eq!(
                (own_update(world).phase(), own_update(world).bad_versions),
                (Phase::RolledBack, vec!["2.0.0".into()])
            );
        });
        println!("{conduct:?}: {runs} runs");
    }
}
