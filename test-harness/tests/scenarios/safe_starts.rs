//! An agent that had to begin without its stored state still knows what it must know.

use api::pb::platform::fleet::v1::{Product, UpdateStatus};
use board::process::Exit;
use board_sim::process::Script;
use test_harness::world::{Hands, World, cloud::Mood, hours, launch::Conduct, minutes, seconds};

use crate::{an_agent_updates_itself::settled, assert_serves};

/// The agent does not live three times in a row, and is then started with `--safe`, as often as it takes.
fn started_safely(world: &mut World, times: usize) {
    world.agents.script("1.0.0", Conduct::DiesAfter(seconds(30)));
    world.kill_agent();
    let safe = |hands: &Hands| hands.agents.starts().iter().filter(|start| start.safe).count();
    assert!(world.run_until(hours(2), |hands| safe(hands) >= times), "{}", world.chronicle.tail(40));
    world.agents.script("1.0.0", Conduct::Lives);
    world.run_for(minutes(30));
    assert_eq!(world.agents.version().as_deref(), Some("1.0.0"));
}

fn update(hands: &Hands) -> UpdateStatus {
    let updates = hands.cloud.status().updates;
    updates.into_iter().find(|update| update.product() == Product::MachineServer).expect("it is reported")
}

#[test]
fn a_version_that_failed_here_is_not_tried_again() {
    let mut world = settled(1);
    let dies = Script { ready_after: None, ends: Some((seconds(0), Exit::Signal(11))), ..Script::default() };
    world.board.processes.script("2.0.0", dies);
    world.factory.release("2.0.0");
    world.factory.channel("stable", "2.0.0");
    world.run_for(hours(1));
    world.restart_agent();
    assert_serves(&mut world, "1.0.0", hours(1));
    world.run_for(minutes(5));
    assert_eq!(update(&world).bad_versions, ["2.0.0"]);
    let tried = |world: &World| world.board.processes.started().iter().filter(|start| start.version == "2.0.0").count();
    let before = tried(&world);
    assert!(before > 0);
    // One start with `--safe`, and two: the second sets aside what the first has stored.
    for times in [1, 3] {
        started_safely(&mut world, times);
        world.run_for(hours(2));
        world.restart_agent();
        assert_serves(&mut world, "1.0.0", minutes(10));
        world.run_for(hours(2));
        assert_eq!((tried(&world), update(&world).bad_versions), (before, vec!["2.0.0".to_owned()]));
    }
}

#[test]
fn the_machine_server_starts_after_a_power_cut_with_nobody_to_ask() {
    let mut world = settled(2);
    world.cloud.set_mood(Mood::Silent);
    started_safely(&mut world, 1);
    world.cut_power();
    assert_serves(&mut world, "1.0.0", minutes(15));
}
