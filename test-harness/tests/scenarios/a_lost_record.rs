//! The record of the running machine server is gone when the next agent starts: still there are never two of them.

use board_sim::process::Script;
use test_harness::world::{World, minutes, seconds};

use crate::{assert_serves, started_with, starts};

/// The agent dies, and its record of the machine server is removed before the next one looks for it.
fn after_the_record_was_lost(seed: u64, script: Script) -> World {
    let mut world = started_with(seed, "1.0.0", script);
    assert_serves(&mut world, "1.0.0", minutes(2));
    world.run_for(minutes(10));
    let record = world.board.files.paths().into_iter().find(|path| path.ends_with("state/machine-server.process"));
    world.board.files.lose(record.expect("it is there"));
    world.kill_agent();
    world
}

#[test]
fn one_that_shows_its_note_is_adopted() {
    let mut world = after_the_record_was_lost(1, Script::default());
    world.run_for(minutes(30));
    assert_eq!((starts(&world), world.board.processes.running().len()), (1, 1));
}

#[test]
fn one_that_shows_nothing_is_ended_before_another_is_started() {
    for ignores_sigterm in [false, true] {
        let script = Script { hides_note: true, ignores_sigterm, ..Script::default() };
        let mut world = after_the_record_was_lost(2, script);
        let first = world.board.processes.running()[0].id;
        let replaced = world.run_until(minutes(5), |hands| {
            hands.board.processes.serving().is_some() && hands.board.processes.running()[0].id != first
        });
        assert!(replaced, "{}", world.chronicle.tail(40));
        world.run_for(seconds(90));
        assert_eq!((starts(&world), world.board.processes.most_at_once()), (2, 1), "{ignores_sigterm}");
    }
}
