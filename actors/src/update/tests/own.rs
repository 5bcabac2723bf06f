//! The agent as its own product: the same walk with another keeper, and a launcher that may have gone back before.

use super::*;
use crate::update::kind::Launched;

const REACHED: Event = Event::Reach(Reach::Reached);
const TIME: Event = Event::DeadlinePassed;

fn own(slot: Slot, note: Option<&str>) -> Policy {
    let layout = Layout::new(Path::new("/root"), brand::AGENT);
    let launched = Launched { slot, note: note.map(str::to_owned), refused: None, version: "1.0.0".into() };
    Policy { layout, kind: Kind::Agent(launched), ..policy() }
}

/// This process, as its keeper reports it.
fn is(opening: u64, slot: Slot, phase: Phase) -> Event {
    let path = own(slot, None).layout.executable(slot);
    let program = Some(Program { version: "whatever it says".into(), path });
    Event::Server(Sight { opening, program, phase, ..Sight::default() })
}

fn refused(opening: u64, slot: Slot, count: u64) -> Event {
    let Event::Server(sight) = is(opening, slot, Phase::Running) else { unreachable!() };
    Event::Server(Sight { refused: Some((count, "no launcher".into())), ..sight })
}

fn both() -> Slots {
    slots(Some(Slot::A), Some("1.0.0"), Some("1.1.0"))
}

/// 1.0.0 runs from slot A, 1.1.0 lies in slot B; the fleet server is reached.
fn staged() -> Machine {
    let mut machine = resumed(own(Slot::A, None), record(State::Staged, both()), at(0));
    walk(&mut machine, [(0, wants(wish("stable")), "store waiting, switch 1.1.0"), (0, REACHED, "check stable")]);
    machine
}

#[test]
fn record_and_pointer_are_stored_before_it_makes_way() {
    let mut machine = staged();
    walk(
        &mut machine,
        [
            (1, is(0, Slot::A, Phase::Running), ""),
            (2, is(1, Slot::A, Phase::Running), "store switching, point b trial, run 1 1.1.0"),
        ],
    );
    assert!(!machine.record.waived);
    // The next life, in the new version.
    let next = Machine::new(own(Slot::B, None), machine.record.clone(), at(10));
    let mut machine = next;
    assert_eq!(said(&machine.resume()), "point b trial");
    walk(
        &mut machine,
        [
            (10, wants(wish("stable")), ""),
            (11, is(0, Slot::B, Phase::Running), "store probation"),
            // Ten minutes with everything alive, but nobody was reached.
            (611, TIME, ""),
            (700, REACHED, "store idle, point b, check stable"),
        ],
    );
    assert_eq!(outcome(&machine), Some(Outcome::Committed));
}

#[test]
fn what_was_out_of_reach_before_need_not_be_reached() {
    let start = || record(State::Staged, both());
    let mut machine = resumed(own(Slot::A, None), start(), at(0));
    walk(
        &mut machine,
        [
            (0, wants(wish("stable")), "store waiting, switch 1.1.0"),
            // Nobody knows yet; and a network that is slow is not one that is not there.
            (1, is(1, Slot::A, Phase::Running), ""),
            (20, Event::Reach(Reach::Unreachable), ""),
        ],
    );
    assert_eq!(machine.deadline(), Some(at(600)));
    walk(&mut machine, [(600, TIME, "store switching, point b trial, run 1 1.1.0")]);
    assert!(machine.record.waived);
    let mut machine = resumed(own(Slot::B, None), machine.record.clone(), at(610));
    walk(
        &mut machine,
        [
            (610, wants(wish("stable")), ""),
            (611, is(0, Slot::B, Phase::Running), "store probation"),
            (1211, TIME, "store idle, point b"),
        ],
    );
    assert!(!machine.record.waived, "once for one switch");
    // Reached in time: not waived.
    let mut machine = resumed(own(Slot::A, None), start(), at(0));
    machine.step(at(0), wants(wish("stable")));
    machine.step(at(1), is(1, Slot::A, Phase::Running));
    assert_eq!(said(&machine.step(at(60), REACHED)), "store switching, check stable, point b trial, run 1 1.1.0");
    assert!(!machine.record.waived);
}

#[test]
fn it_goes_back_by_itself_at_once() {
    let start = || record(State::Probation { restarts: 0 }, slots(Some(Slot::B), Some("1.0.0"), Some("1.1.0")));
    let mut machine = resumed(own(Slot::B, None), start(), at(0));
    walk(
        &mut machine,
        [
            (0, wants(wish("stable")), ""),
            (0, is(0, Slot::B, Phase::Running), ""),
            (600, TIME, ""),
            (1800, TIME, "store idle, point a, back 1.0.0"),
        ],
    );
    assert!(machine.record.reason.contains("1.1.0 was rolled back: it did not reach the fleet server in time"));
    // Whatever is found meanwhile: it is on its way out.
    walk(&mut machine, [(1801, REACHED, "check stable"), (1802, found("1.2.0"), "")]);
    // The way out is shut: it is tried again, pointer first.
    walk(&mut machine, [(1803, refused(0, Slot::B, 1), "point a, back 1.0.0")]);
    assert!(machine.progress().last_error.contains("could not be handed over"), "{:?}", machine.progress());
    // An actor that hangs.
    let mut machine = resumed(own(Slot::B, None), start(), at(0));
    walk(
        &mut machine,
        [
            (0, wants(wish("stable")), ""),
            (0, REACHED, "check stable"),
            (0, is(0, Slot::B, Phase::Starting), ""),
            (1800, TIME, "store idle, point a, back 1.0.0, check stable"),
        ],
    );
    assert!(machine.record.reason.contains("it did not become ready in time"));
}

#[test]
fn what_the_launcher_did_is_believed() {
    let switched = || slots(Some(Slot::B), Some("1.0.0"), Some("1.1.0"));
    let note = Some("slot b did not live: back to slot a");
    let idle = State::Idle(Outcome::Committed);
    let trial = State::Probation { restarts: 1 };
    // case, stored, started from, with this note, at the start, bad, what an operator reads
    let table = [
        ("as it should be", State::Switching, Slot::B, None, "point b trial", false, ""),
        ("on probation", trial.clone(), Slot::B, None, "store probation, point b trial", false, ""),
        ("kept", idle.clone(), Slot::B, None, "discard, point b", false, ""),
        ("kept, with --safe", idle.clone(), Slot::B, note, "discard, point b", false, "slot b did not live"),
        ("it fell back", State::Switching, Slot::A, note, "store idle, discard, point a", true, "back to slot a"),
        ("it fell back later", trial.clone(), Slot::A, note, "store idle, discard, point a", true, "back to slot a"),
        ("its note got lost", trial, Slot::A, None, "store idle, discard, point a", true, "the launcher went back"),
        ("a kept version died", idle.clone(), Slot::A, note, "store idle, discard, point a", true, "back to slot a"),
        ("somebody chose another", idle, Slot::A, None, "store idle, discard, point a", false, ""),
        ("the power went before the pointer", State::Switching, Slot::A, None, "store staged, point a", false, ""),
        ("while it waited", State::Waiting, Slot::A, None, "store idle, discard, point a", false, ""),
    ];
    for (case, state, slot, note, first, bad, reads) in table {
        let mut machine = Machine::new(own(slot, note), record(state, switched()), at(0));
        assert_eq!(said(&machine.resume()), first, "{case}");
        assert_eq!(machine.record.slots.active, Some(slot), "{case}");
        let progress = machine.progress();
        assert_eq!(progress.bad_versions, if bad { vec!["1.1.0"] } else { vec![] }, "{case}");
        assert!(progress.last_error.contains(reads) && progress.last_error.is_empty() == reads.is_empty(), "{case}");
        assert_eq!(outcome(&machine) == Some(Outcome::RolledBack), bad, "{case}");
    }
    // One that went back and could not leave leaves now, and nothing is said of it twice.
    let mut back = record(State::Idle(Outcome::RolledBack), both());
    back.remember_bad(&installed("1.1.0"));
    let mut machine = Machine::new(own(Slot::B, None), back, at(0));
    assert_eq!(said(&machine.resume()), "discard, point a");
    walk(
        &mut machine,
        [(0, is(0, Slot::B, Phase::Running), "point a, back 1.0.0"), (1, is(0, Slot::B, Phase::Running), "")],
    );
}

#[test]
fn a_switch_that_comes_to_nothing_again_and_again_is_given_up() {
    let mut stored = record(State::Switching, slots(Some(Slot::B), Some("1.0.0"), Some("1.1.0")));
    for _ in 0..3 {
        let mut machine = Machine::new(own(Slot::A, None), stored, at(0));
        machine.resume();
        assert_eq!(machine.state(), &State::Staged);
        machine.step(at(0), wants(wish("stable")));
        machine.step(at(0), REACHED);
        assert_eq!(
            said(&machine.step(at(1), is(1, Slot::A, Phase::Running))),
            "store switching, point b trial, run 1 1.1.0"
        );
        stored = machine.record.clone();
    }
    let machine = resumed(own(Slot::A, None), stored, at(0));
    assert_eq!(outcome(&machine), Some(Outcome::RolledBack));
    assert!(machine.progress().last_error.contains("never came to life"));
}

#[test]
fn what_keeps_it_here_is_said_and_tried_again() {
    // The keeper could not carry it out.
    let mut machine = staged();
    walk(
        &mut machine,
        [
            (1, is(1, Slot::A, Phase::Running), "store switching, point b trial, run 1 1.1.0"),
            (2, refused(1, Slot::A, 1), "store waiting, point a, switch 1.1.0"),
            (602, is(2, Slot::A, Phase::Running), "store switching, point b trial, run 2 1.1.0"),
        ],
    );
    assert_eq!(machine.record.unseen, 0, "nothing of that is the version's fault");
    // Nor could whoever ends this process: it was to become the launcher, and became itself again.
    let Kind::Agent(launched) = own(Slot::A, None).kind else { unreachable!() };
    let kind = Kind::Agent(Launched { refused: Some("no launcher".into()), ..launched });
    let policy = Policy { kind, ..own(Slot::A, None) };
    let switched = record(State::Switching, slots(Some(Slot::B), Some("1.0.0"), Some("1.1.0")));
    let mut machine = Machine::new(policy, switched, at(0));
    assert_eq!(said(&machine.resume()), "store staged, point a");
    walk(
        &mut machine,
        [
            (0, wants(wish("stable")), "store waiting, switch 1.1.0"),
            (0, REACHED, "check stable"),
            (0, refused(0, Slot::A, 0), ""),
        ],
    );
    assert!(machine.progress().last_error.contains("no launcher"), "{:?}", machine.progress());
    assert!(machine.progress().bad_versions.is_empty());
    walk(&mut machine, [(600, is(1, Slot::A, Phase::Running), "store switching, point b trial, run 1 1.1.0")]);
    assert_eq!(machine.record.unseen, 0);
    // The pointer could not be written; what is behind it was not done.
    let mut machine = staged();
    walk(
        &mut machine,
        [
            (1, is(1, Slot::A, Phase::Running), "store switching, point b trial, run 1 1.1.0"),
            (1, Event::NotPointed("no space".into()), ""),
        ],
    );
    assert_eq!((machine.deadline(), machine.progress().last_error.as_str()), (Some(at(11)), "no space"));
    walk(
        &mut machine,
        [
            (11, TIME, "store waiting, point a, switch 1.1.0, check stable"),
            (12, is(2, Slot::A, Phase::Running), "store switching, point b trial, run 2 1.1.0"),
        ],
    );
    // The pointer could not be put back either: the keeper is told once it is.
    let mut machine = staged();
    walk(
        &mut machine,
        [
            (1, is(1, Slot::A, Phase::Running), "store switching, point b trial, run 1 1.1.0"),
            (2, refused(1, Slot::A, 1), "store waiting, point a, switch 1.1.0"),
            (2, Event::NotPointed("no space".into()), ""),
            (12, TIME, "point a, switch 1.1.0, check stable"),
        ],
    );
    // Nor could the record: it goes on once the disk takes it.
    let mut machine = staged();
    walk(
        &mut machine,
        [
            (1, is(1, Slot::A, Phase::Running), "store switching, point b trial, run 1 1.1.0"),
            (2, refused(1, Slot::A, 1), "store waiting, point a, switch 1.1.0"),
            (2, Event::NotStored("no space".into()), ""),
            (12, TIME, "store waiting, point a, switch 1.1.0, check stable"),
        ],
    );
    // Nor the record: the same opening is answered once the disk takes it.
    let mut machine = staged();
    walk(
        &mut machine,
        [
            (1, is(1, Slot::A, Phase::Running), "store switching, point b trial, run 1 1.1.0"),
            (1, Event::NotStored("no space".into()), ""),
            (11, TIME, "store switching, check stable, point b trial, run 1 1.1.0"),
        ],
    );
    // Back is not told before the pointer is there.
    let start = record(State::Probation { restarts: 0 }, slots(Some(Slot::B), Some("1.0.0"), Some("1.1.0")));
    let mut machine = resumed(own(Slot::B, None), start, at(0));
    walk(
        &mut machine,
        [
            (0, wants(wish("stable")), ""),
            (0, is(0, Slot::B, Phase::Running), ""),
            (1800, TIME, "store idle, point a, back 1.0.0"),
            (1800, Event::NotPointed("no space".into()), ""),
            (1810, TIME, "point a, back 1.0.0"),
        ],
    );
}

#[test]
fn what_the_launcher_did_is_stored_once_the_disk_takes_it() {
    let stored = record(State::Switching, slots(Some(Slot::B), Some("1.0.0"), Some("1.1.0")));
    let mut machine = Machine::new(own(Slot::A, Some("back to slot a")), stored, at(0));
    assert_eq!(said(&machine.resume()), "store idle, discard, point a");
    walk(
        &mut machine,
        [
            (0, Event::NotStored("no space".into()), ""),
            (1, is(0, Slot::A, Phase::Running), ""),
            (10, TIME, "store idle, discard, point a"),
            (10, wants(wish("stable")), ""),
            (11, REACHED, "check stable"),
            (12, found("1.1.0"), ""),
            (13, found("1.2.0"), "store downloading, download 1.2.0"),
        ],
    );
    assert_eq!(machine.progress().bad_versions, ["1.1.0"]);
}

#[test]
fn a_wish_that_changes_calls_it_off() {
    let mut machine = staged();
    walk(
        &mut machine,
        [
            (1, wants(wish("1.0.0")), "store idle, switch 1.0.0, check 1.0.0"),
            // The keeper had opened already.
            (2, is(1, Slot::A, Phase::Running), "run 1 1.0.0"),
        ],
    );
}

#[test]
fn unsigned_bytes_are_for_local_files() {
    let of = |pins, setting: &str| {
        let mut machine =
            resumed(own(Slot::A, None), record(State::default(), slots(Some(Slot::A), Some("1"), None)), at(0));
        let effects = said(&machine.step(at(0), wants(Wish { pins, ..wish(setting) })));
        (effects.contains("download"), machine.progress().last_error)
    };
    for web in ["http://10.0.0.1/agent", "https://10.0.0.1/agent"] {
        let (taken, said) = of(Pins::LocalFiles, web);
        assert!(!taken && said.contains("from a local file only"), "{said}");
        assert!(of(Pins::Any, web).0, "--dev-mode");
    }
    assert!(of(Pins::LocalFiles, "file:///media/agent").0);
    let (taken, said) = of(Pins::Never, "file:///media/agent");
    assert!(!taken && said.contains("allow_unsigned_pins"), "{said}");
}
