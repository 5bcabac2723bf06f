//! When this process makes way, as rows.

use std::time::Duration;

use board::{Mono, Wall};

use super::{
    Leave,
    machine::{Event, Machine, Now},
};
use crate::{
    maintenance::WindowState,
    server::{Command, Phase, Program},
};

const MINUTE: Duration = Duration::from_secs(60);

fn program(slot: &str) -> Program {
    Program { version: slot.into(), path: format!("/{slot}/agent").into() }
}

fn at(second: u64) -> Now {
    let mono = Mono::BOOT + Duration::from_secs(second);
    Now { mono, wall: Wall::from_millis(i64::try_from(second).unwrap() * 1000), window: None, alive: true }
}

fn in_window(second: u64, open: bool, changes: Option<u64>) -> Now {
    let changes = changes.map(|second| Wall::from_millis(i64::try_from(second).unwrap() * 1000));
    Now { window: Some(WindowState { open, changes }), ..at(second) }
}

fn switch(slot: &str) -> Event {
    Event::Command(Command::Switch { program: program(slot) })
}

fn run(opening: u64, slot: &str) -> Event {
    Event::Command(Command::Run { opening, program: Some(program(slot)) })
}

fn back() -> Event {
    Event::Command(Command::Back { program: program("b") })
}

fn machine() -> Machine {
    Machine::new(program("a"), MINUTE)
}

/// Steps, and says after each: the opening, and whether it leaves.
#[track_caller]
fn walk<const N: usize>(machine: &mut Machine, steps: [(Now, Event, u64, bool); N]) {
    for (index, (now, event, opening, leaves)) in steps.into_iter().enumerate() {
        let left = machine.step(now, event.clone()).is_some();
        assert_eq!((machine.report().opening, left), (opening, leaves), "step {index}: {event:?}");
    }
}

#[test]
fn without_a_window_the_update_is_asked_at_once_and_leaves_when_it_says_so() {
    let mut machine = machine();
    walk(
        &mut machine,
        [
            (at(0), run(0, "b"), 0, false),
            (at(1), switch("b"), 1, false),
            (at(2), Event::DeadlinePassed, 1, false),
            // Not the answer to this one.
            (at(3), run(7, "b"), 1, false),
            (at(4), run(1, "b"), 1, true),
            // It leaves once.
            (at(5), run(1, "b"), 1, false),
            (at(6), back(), 1, false),
        ],
    );
    assert_eq!(machine.deadline(), None);
}

#[test]
fn what_is_called_off_does_not_happen() {
    let mut machine = machine();
    walk(
        &mut machine,
        [
            (in_window(0, false, Some(600)), switch("b"), 0, false),
            (in_window(1, false, Some(600)), switch("a"), 0, false),
            (in_window(600, true, None), Event::DeadlinePassed, 0, false),
            (in_window(601, true, None), switch("b"), 1, false),
            (in_window(602, true, None), switch("a"), 1, false),
            (in_window(603, true, None), run(1, "b"), 1, false),
            (in_window(604, true, None), switch("b"), 2, false),
            // It stays with what runs.
            (in_window(605, true, None), run(2, "a"), 2, false),
            (in_window(606, true, None), Event::Settings, 2, false),
        ],
    );
}

#[test]
fn with_a_window_it_waits_and_a_failed_version_does_not() {
    let mut one = machine();
    walk(&mut one, [(in_window(0, false, Some(600)), switch("b"), 0, false)]);
    assert_eq!(one.deadline(), Some(at(600).mono), "when it opens");
    walk(&mut one, [(in_window(10, false, None), Event::Settings, 0, false)]);
    assert_eq!(one.deadline(), Some(at(10 + 3600).mono), "clocks are set");
    walk(&mut one, [(in_window(600, true, None), Event::DeadlinePassed, 1, false)]);
    // The window is gone from the settings.
    let mut two = machine();
    walk(&mut two, [(in_window(0, false, None), switch("b"), 0, false), (at(1), Event::Settings, 1, false)]);
    let mut three = machine();
    walk(&mut three, [(in_window(0, false, Some(600)), back(), 0, true)]);
    let mut four = machine();
    four.step(in_window(0, false, None), switch("b"));
    assert!(!four.report().shut_for_long);
    four.step(in_window(15 * 24 * 3600, false, None), Event::DeadlinePassed);
    assert!(four.report().shut_for_long);
}

#[test]
fn a_hand_over_that_fails_is_tried_again_in_ten_minutes() {
    let mut machine = machine();
    walk(
        &mut machine,
        [
            (at(0), switch("b"), 1, false),
            (at(1), run(1, "b"), 1, true),
            (at(2), Event::Refused("no launcher".into()), 1, false),
            (at(3), switch("b"), 1, false),
        ],
    );
    assert_eq!(machine.report().refused, Some((1, "no launcher".into())));
    assert_eq!(machine.deadline(), Some(at(602).mono));
    walk(&mut machine, [(at(602), Event::DeadlinePassed, 2, false)]);
    assert_eq!(machine.step(at(603), run(2, "b")), Some(Leave(2)));
    assert_eq!(machine.report().refused, None, "until it is known again");
    // The same for the way back; and what nobody tried cannot fail.
    let mut machine = self::machine();
    walk(
        &mut machine,
        [
            (at(0), Event::Refused("nothing".into()), 0, false),
            (at(1), back(), 0, true),
            (at(2), Event::Refused("no launcher".into()), 0, false),
            (at(3), back(), 0, false),
            (at(602), Event::DeadlinePassed, 0, true),
        ],
    );
}

#[test]
fn what_could_not_hand_over_and_started_anew_tries_it_again_in_ten_minutes() {
    let mut machine = machine().after_refusal(at(0).mono, "no launcher".into());
    assert_eq!(machine.report().refused, Some((0, "no launcher".into())));
    walk(&mut machine, [(at(1), switch("b"), 0, false)]);
    assert_eq!(machine.deadline(), Some(at(600).mono));
    walk(&mut machine, [(at(600), Event::DeadlinePassed, 1, false), (at(601), run(1, "b"), 1, true)]);
    assert_eq!(machine.report().refused, None, "a new one has begun");
}

#[test]
fn its_actors_are_looked_at_while_a_version_has_to_prove_itself() {
    let mut machine = machine();
    assert_eq!((machine.deadline(), machine.report().phase), (None, Phase::Running));
    walk(&mut machine, [(at(0), Event::OnTrial(true), 0, false)]);
    assert_eq!(machine.deadline(), Some(at(60).mono));
    machine.step(Now { alive: false, ..at(60) }, Event::DeadlinePassed);
    assert_eq!((machine.deadline(), machine.report().phase), (Some(at(120).mono), Phase::Starting));
    machine.step(at(120), Event::DeadlinePassed);
    assert_eq!(machine.report().phase, Phase::Running);
    walk(&mut machine, [(at(130), Event::OnTrial(false), 0, false)]);
    assert_eq!(machine.deadline(), None, "nobody wakes up for nothing");
}
