//! A machine server that dies runs again at once; one that keeps dying is given longer and longer pauses.

use std::time::Duration;

use board::process::{Exit, Stream};
use board_sim::process::Script;
use test_harness::world::{hours, minutes, seconds};

use crate::{serving, started_with, starts};

#[test]
fn the_first_crash_is_answered_at_once() {
    let mut world = serving(1);
    world.run_for(hours(1));
    world.board.processes.say(Stream::Err, "panic: the motor is on fire");
    let died = world.board.clock.elapsed();
    world.crash_server(Exit::Signal(11));
    world.run_for(seconds(30));
    let started = world.board.processes.started();
    assert_eq!(started.len(), 2);
    assert!(started[1].at - died < Duration::from_millis(5), "{:?}", started[1].at - died);
    let server = world.cloud.status().server.expect("it is reported");
    assert_eq!(server.crashes, 1);
    assert!(server.last_exit.contains("signal 11"), "{}", server.last_exit);
    assert!(server.last_lines.iter().any(|line| line.contains("on fire")), "{:?}", server.last_lines);
}

#[test]
fn a_crash_loop_is_slowed_down_and_never_given_up() {
    let dies = Script { ready_after: None, ends: Some((seconds(1), Exit::Code(3))), ..Script::default() };
    let mut world = started_with(2, "1.0.0", dies);
    world.run_for(hours(6));
    let started = world.board.processes.started();
    let pauses: Vec<_> = started.windows(2).map(|pair| pair[1].at - pair[0].at).collect();
    assert!(pauses.len() > 100, "it is tried again and again: {}", pauses.len());
    assert!(pauses.iter().skip(10).all(|&pause| pause >= seconds(10)), "and not in a frenzy");
    assert!(pauses.iter().all(|&pause| pause <= minutes(3)), "and never given up");
    assert!(world.cloud.status().server.is_some_and(|server| server.crashes > 100));
}

#[test]
fn one_that_recovers_is_answered_at_once_again() {
    let mut world = serving(3);
    for _ in 0..5 {
        world.crash_server(Exit::Code(1));
        world.run_for(minutes(2));
    }
    world.run_for(hours(1));
    let before = starts(&world);
    world.crash_server(Exit::Code(1));
    world.run_for(Duration::from_millis(5));
    assert_eq!(starts(&world), before + 1);
}
