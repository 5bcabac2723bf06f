//! A disk that takes nothing for a while delays an update and its way back; afterwards everything ends as if it had not.

use std::io::ErrorKind::StorageFull;

use api::pb::platform::fleet::v1::update_status::Phase;
use board::{files::Access, process::Exit};
use board_sim::process::Script;
use serde_json::json;
use test_harness::world::{
    Seed, World, hours,
    interruptions::at_every_refusal,
    launch::{self, Conduct},
    minutes, seconds,
};

use crate::{
    an_agent_updates_itself::{assert_committed, own_update, settled},
    power_cuts::{agent_is, served_by_another, updated_to, with_launcher},
};

#[test]
fn at_any_step_of_an_update_of_the_machine_server() {
    let runs = at_every_refusal(
        || World::new(Seed(1)),
        served_by_another,
        |world| {
            assert_eq!(world.board.processes.serving().as_deref(), Some("1.1.0"));
            let update = world.cloud.status().updates.into_iter().next().expect("it is reported");
            assert!(update.bad_versions.is_empty(), "a full disk is not the version's fault: {update:?}");
        },
    );
    println!("{runs} runs");
}

#[test]
fn at_any_step_of_the_way_back_of_a_machine_server() {
    let runs = at_every_refusal(
        || {
            let world = World::new(Seed(1));
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
fn at_any_step_of_an_update_of_the_agent() {
    let runs = at_every_refusal(with_launcher, updated_to(Conduct::Lives), |world| {
        agent_is(world, "2.0.0", Phase::Committed, &[]);
    });
    println!("{runs} runs");
}

#[test]
fn at_any_step_of_the_way_back_of_the_agent() {
    for conduct in [Conduct::NeverReachesCloud, Conduct::DiesAtOnce] {
        let runs = at_every_refusal(with_launcher, updated_to(conduct), |world| {
            let update = own_update(world);
            let found = (update.phase(), update.running_version.as_str(), update.bad_versions.as_slice());
            assert_eq!(found, (Phase::RolledBack, "1.0.0", ["2.0.0".to_owned()].as_slice()), "{update:?}");
            // A wish that could not be stored is a new one at the next start, and so another chance.
            let switches = world.agents.switches_to("2.0.0");
            assert!((1..=2).contains(&switches), "{switches} switches");
            assert_eq!(world.board.processes.serving().as_deref(), Some("1.0.0"));
            assert_eq!(world.board.processes.most_at_once(), 1);
        });
        println!("{conduct:?}: {runs} runs");
    }
}

#[test]
fn what_the_launcher_went_back_from_is_remembered_once_it_can_be() {
    let mut world = settled(1);
    world.agents.script("2.0.0", Conduct::DiesAtOnce);
    world.factory.release_agent("2.0.0");
    world.factory.agent_channel("stable", "2.0.0");
    assert!(world.run_until(hours(2), |hands| hands.agents.version().as_deref() == Some("2.0.0")));
    world.board.files.refuse_writes("platform-agent.record", StorageFull);
    world.run_for(minutes(5));
    assert_eq!(world.agents.version().as_deref(), Some("1.0.0"));
    world.board.files.heal();
    world.run_for(hours(3));
    assert_eq!((world.agents.switches_to("2.0.0"), own_update(&world).bad_versions), (1, vec!["2.0.0".to_owned()]));
    world.factory.release_agent("2.1.0");
    world.factory.agent_channel("stable", "2.1.0");
    world.run_for(hours(2));
    assert_committed(&mut world, "2.1.0", minutes(15));
}

#[test]
fn a_switch_that_could_be_neither_made_nor_unmade_is_made_later() {
    let mut world = settled(2);
    world.board.files.refuse_writes("platform-agent.pointer", StorageFull);
    world.factory.release_agent("2.0.0");
    world.factory.agent_channel("stable", "2.0.0");
    let switches =
        world.run_until(hours(2), |hands| hands.chronicle.count("update", "platform-agent waiting → switching") > 0);
    assert!(switches);
    world.board.files.refuse_writes("platform-agent.record", StorageFull);
    world.run_for(minutes(5));
    world.board.files.heal();
    world.run_for(hours(1));
    assert_committed(&mut world, "2.0.0", minutes(15));
}

/// The launcher is away for a minute while version 2.0.0 is wanted; write number `fails` fails.
fn without_a_launcher(fails: Option<u64>) -> World {
    let mut world = settled(3);
    let launcher = launch::launcher();
    let image = world.board.files.content(&launcher).expect("it is there");
    world.board.files.lose(&launcher);
    world.factory.release_agent("2.0.0");
    if let Some(nth) = fails {
        world.board.files.fail_write(nth - world.board.files.writes(), StorageFull);
    }
    world.cloud.set_section("version_control", &json!({"agent": "2.0.0"}));
    world.run_for(seconds(60));
    world.board.files.put(&launcher, image, Access::Executable);
    world
}

#[test]
fn a_hand_over_that_was_refused_is_tried_again_whatever_could_not_be_stored() {
    let (first, last) = {
        let before = settled(3).board.files.writes();
        (before + 1, without_a_launcher(None).board.files.writes())
    };
    for nth in first..=last {
        let mut world = without_a_launcher(Some(nth));
        world.run_for(hours(2));
        assert_committed(&mut world, "2.0.0", minutes(15));
    }
    println!("{} writes", last + 1 - first);
    assert!(last - first > 5);
}
