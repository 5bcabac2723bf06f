//! Every transition, as the specification has it.

use super::*;

const REACHED: Event = Event::Reach(Reach::Reached);
const TIME: Event = Event::DeadlinePassed;

#[test]
fn the_first_version_comes_and_runs_at_once() {
    let mut machine = resumed(policy(), Record::default(), at(0));
    walk(
        &mut machine,
        [
            (0, opens(1), "run 1 nothing"),
            (0, wants(wish("stable")), "store idle"),
            (1, REACHED, "check stable"),
            (2, found("1.0.0"), "store downloading, download 1.0.0"),
            (5, Event::Downloaded(Ok(())), "store verifying, verify 1.0.0"),
            (6, Event::Verified(Ok(installed("1.0.0"))), "store placing, place a"),
            (7, Event::Placed(Ok(())), "store switching, point a trial, run 1 1.0.0"),
            (8, runs(1, Slot::A, "1.0.0", Phase::Starting, 0), "store probation"),
            (9, runs(1, Slot::A, "1.0.0", Phase::Running, 0), ""),
        ],
    );
    assert_eq!(machine.deadline(), Some(at(9 + 60)), "it is looked at each minute");
    walk(&mut machine, [(8 + 5 * 60, TIME, "store idle, point a, check stable"), (309, found("1.0.0"), "")]);
    assert_eq!(outcome(&machine), Some(Outcome::Committed));
    assert_eq!(machine.progress().last_error, "");
}

/// 1.0.0 runs from slot A; 1.1.0 lies in slot B, verified.
fn staged() -> Machine {
    let start = record(State::Staged, slots(Some(Slot::A), Some("1.0.0"), Some("1.1.0")));
    let mut machine = resumed(policy(), start, at(0));
    walk(&mut machine, [(0, wants(wish("stable")), "")]);
    machine
}

#[test]
fn without_a_window_the_next_opening_starts_the_next_version() {
    let mut machine = staged();
    walk(
        &mut machine,
        [
            (1, runs(0, Slot::A, "1.0.0", Phase::Running, 0), ""),
            (2, opens(1), "store switching, point b trial, run 1 1.1.0"),
            // The report of the one before comes late.
            (3, runs(1, Slot::A, "1.0.0", Phase::Stopping, 0), ""),
            (4, runs(1, Slot::B, "1.1.0", Phase::Starting, 0), "store probation"),
            // A second opening during probation changes nothing.
            (5, runs(2, Slot::B, "1.1.0", Phase::Stopping, 0), "run 2 1.1.0"),
            (6, runs(2, Slot::B, "1.1.0", Phase::Running, 0), ""),
            (304, TIME, "store idle, point b"),
        ],
    );
    assert_eq!(outcome(&machine), Some(Outcome::Committed));
}

#[test]
fn with_a_window_the_keeper_is_told_and_an_opening_changes_nothing() {
    let start = record(State::Staged, slots(Some(Slot::A), Some("1.0.0"), Some("1.1.0")));
    let mut machine = resumed(policy(), start, at(0));
    let window = || Wish { has_window: true, ..wish("stable") };
    walk(
        &mut machine,
        [
            (0, wants(window()), "store waiting, switch 1.1.0"),
            (1, opens(1), "run 1 1.0.0, switch 1.1.0"),
            (2, runs(1, Slot::A, "1.0.0", Phase::Running, 0), ""),
            (9000, runs(1, Slot::B, "1.1.0", Phase::Starting, 0), "store probation, point b trial"),
        ],
    );
    // The owner takes the window away while the switch waits: it is called off until the next opening.
    let start = record(State::Staged, slots(Some(Slot::A), Some("1.0.0"), Some("1.1.0")));
    let mut machine = resumed(policy(), start, at(0));
    walk(
        &mut machine,
        [
            (0, wants(window()), "store waiting, switch 1.1.0"),
            (1, runs(1, Slot::A, "1.0.0", Phase::Running, 0), "run 1 1.0.0, switch 1.1.0"),
            (2, wants(wish("stable")), "store staged, switch 1.0.0"),
            (3, runs(2, Slot::A, "1.0.0", Phase::Running, 0), "store switching, point b trial, run 2 1.1.0"),
        ],
    );
}

/// 1.1.0 runs from slot B and is on probation, 1.0.0 lies in slot A.
fn on_probation() -> Machine {
    let start = record(State::Probation { restarts: 0 }, slots(Some(Slot::B), Some("1.0.0"), Some("1.1.0")));
    let mut machine = resumed(policy(), start, at(0));
    walk(&mut machine, [(0, wants(wish("stable")), "")]);
    machine.step(at(0), runs(1, Slot::B, "1.1.0", Phase::Running, 0));
    machine
}

#[test]
fn probation_ends_in_one_of_two_ways() {
    type Steps = Vec<(u64, Event)>;
    let run = |phase, crashes| runs(1, Slot::B, "1.1.0", phase, crashes);
    let table: [(&str, Steps, Option<Outcome>); 9] = [
        ("ready for five minutes", vec![(300, TIME)], Some(Outcome::Committed)),
        ("not quite", vec![(299, TIME)], None),
        ("a crash", vec![(100, run(Phase::WaitingToRestart, 1))], Some(Outcome::RolledBack)),
        ("never ready", vec![(0, run(Phase::Starting, 0)), (900, TIME)], Some(Outcome::RolledBack)),
        (
            "late, and ready",
            vec![(0, run(Phase::Starting, 0)), (899, run(Phase::Running, 0))],
            Some(Outcome::Committed),
        ),
        ("disabled: time stands still", vec![(100, run(Phase::Disabled, 0)), (9000, TIME)], None),
        (
            "disabled for a while",
            vec![(100, run(Phase::Disabled, 0)), (9000, run(Phase::Running, 0)), (9199, TIME), (9200, TIME)],
            Some(Outcome::Committed),
        ),
        ("another program's crash", vec![(10, runs(1, Slot::A, "1.0.0", Phase::Running, 3))], None),
        (
            "restarted for an operator",
            vec![
                (10, run(Phase::Stopping, 0)),
                (12, run(Phase::Starting, 0)),
                (13, run(Phase::Running, 0)),
                (300, TIME),
            ],
            Some(Outcome::Committed),
        ),
    ];
    for (case, steps, expected) in table {
        let mut machine = on_probation();
        let mut last = String::new();
        for (second, event) in steps {
            look_on(&mut machine, second);
            last = said(&machine.step(at(second), event));
        }
        assert_eq!(outcome(&machine), expected, "{case}");
        match expected {
            Some(Outcome::RolledBack) => {
                assert_eq!(last, "store idle, point a, back 1.0.0", "{case}");
                assert_eq!(machine.progress().bad_versions, ["1.1.0"], "{case}");
                assert!(machine.progress().last_error.contains("1.1.0 was rolled back"), "{case}");
            }
            Some(_) => assert_eq!(last, "store idle, point b", "{case}"),
            None => {}
        }
    }
}

#[test]
fn time_asleep_proves_nothing_and_condemns_nobody() {
    let run = |phase| runs(1, Slot::B, "1.1.0", phase, 0);
    let hours_later = 8 * 3600;
    for (phase, looks) in [(Phase::Running, 5), (Phase::Starting, 15)] {
        let mut machine = on_probation();
        machine.step(at(0), run(phase));
        // Each sleep counts for one look.
        for nap in 1..looks {
            assert_eq!(said(&machine.step(at(nap * hours_later), TIME)), "", "{phase:?} {nap}");
            assert_eq!(machine.deadline(), Some(at(nap * hours_later + 60)), "one look a minute");
        }
        assert!(said(&machine.step(at(looks * hours_later), TIME)).starts_with("store idle"), "{phase:?}");
    }
}

#[test]
fn a_version_that_failed_is_not_tried_again_until_the_wish_changes() {
    let mut machine = on_probation();
    walk(
        &mut machine,
        [
            (10, runs(1, Slot::B, "1.1.0", Phase::WaitingToRestart, 1), "store idle, point a, back 1.0.0"),
            (11, REACHED, "check stable"),
            (12, found("1.1.0"), ""),
            (13, runs(2, Slot::A, "1.0.0", Phase::Running, 0), "run 2 1.0.0"),
            // A newer release is welcome.
            (20, found("1.1.1"), "store downloading, download 1.1.1"),
            // The owner insists, and the bytes are still here.
            (21, wants(wish("1.1.0")), "store idle, cancel, discard, check 1.1.0"),
            (22, found("1.1.0"), "store staged"),
            (23, runs(3, Slot::A, "1.0.0", Phase::Running, 0), "store switching, point b trial, run 3 1.1.0"),
        ],
    );
    assert!(machine.progress().bad_versions.is_empty());
}

#[test]
fn a_failed_version_that_outlived_the_agent_is_gone_back_from_once_more() {
    let slots = || slots(Some(Slot::A), Some("1.0.0"), Some("1.1.0"));
    let mut rolled_back = record(State::Idle(Outcome::RolledBack), slots());
    rolled_back.remember_bad(&installed("1.1.0"));
    let mut machine = resumed(policy(), rolled_back.clone(), at(0));
    walk(
        &mut machine,
        [
            (0, runs(0, Slot::B, "1.1.0", Phase::Running, 1), "back 1.0.0"),
            (1, runs(0, Slot::B, "1.1.0", Phase::Stopping, 1), ""),
            (2, runs(0, Slot::B, "1.1.0", Phase::WaitingToRestart, 1), ""),
            (3, runs(0, Slot::A, "1.0.0", Phase::Starting, 0), ""),
        ],
    );
    // Dead, it is left behind by the opening; one that has not failed may stay.
    let mut machine = resumed(policy(), rolled_back, at(0));
    walk(&mut machine, [(0, runs(1, Slot::B, "1.1.0", Phase::NoVersion, 1), "run 1 1.0.0")]);
    let mut machine = resumed(policy(), record(State::Idle(Outcome::None), slots()), at(0));
    walk(&mut machine, [(0, runs(0, Slot::B, "1.1.0", Phase::Running, 1), "")]);
}

#[test]
fn an_operator_s_wish_for_another_try_is_carried_out_once() {
    let mut machine = on_probation();
    walk(
        &mut machine,
        [
            (10, runs(1, Slot::B, "1.1.0", Phase::WaitingToRestart, 1), "store idle, point a, back 1.0.0"),
            (11, REACHED, "check stable"),
            (12, found("1.1.0"), ""),
            // Its bytes are still here.
            (13, Event::Retry(1_000), "store idle, check stable"),
            (14, found("1.1.0"), "store staged"),
            // Said again until it was reported.
            (15, Event::Retry(1_000), ""),
        ],
    );
    let status = machine.progress();
    assert_eq!((status.retried, status.bad_versions.len(), &*status.last_error), (1_000, 0, ""));

    // Nor by the next agent, which finds it in the record.
    let bad = vec![Bad { version: "1.1.0".into(), sha256: installed("1.1.0").sha256 }];
    let start = record(State::default(), slots(Some(Slot::A), Some("1.0.0"), Some("1.1.0")));
    let start = Record { bad, retried: 1_000, ..start };
    let mut machine = resumed(policy(), start, at(0));
    walk(
        &mut machine,
        [
            (0, Event::Retry(1_000), ""),
            (0, wants(wish("stable")), ""),
            (1, REACHED, "check stable"),
            (2, found("1.1.0"), ""),
            (3, Event::Retry(1_001), "store idle, check stable"),
            (4, found("1.1.0"), "store staged"),
        ],
    );

    // It does not wait for the pause between downloads either.
    let mut machine = resumed(policy(), Record::default(), at(0));
    walk(
        &mut machine,
        [
            (0, wants(wish("stable")), "store idle"),
            (1, REACHED, "check stable"),
            (2, found("1.0.0"), "store downloading, download 1.0.0"),
            (3, Event::Downloaded(Err(Trouble::Bytes("garbage".into()))), "discard"),
            (4, Event::Retry(1), "store downloading, check stable, download 1.0.0"),
        ],
    );
}

#[test]
fn nothing_to_go_back_to_is_no_reason_to_run_nothing() {
    let start = record(State::Probation { restarts: 0 }, slots(Some(Slot::A), Some("1.0.0"), None));
    let mut machine = resumed(policy(), start, at(0));
    walk(
        &mut machine,
        [
            (0, wants(wish("stable")), ""),
            (0, runs(1, Slot::A, "1.0.0", Phase::Running, 0), "run 1 1.0.0"),
            (10, runs(1, Slot::A, "1.0.0", Phase::WaitingToRestart, 1), ""),
            (11, runs(1, Slot::A, "1.0.0", Phase::Running, 1), ""),
        ],
    );
    assert!(machine.progress().last_error.contains("no other version is here"), "{}", machine.progress().last_error);
    walk(&mut machine, [(11 + 300, TIME, "store idle, point a")]);
    assert_eq!((outcome(&machine), machine.progress().last_error), (Some(Outcome::Committed), String::new()));
    // While it fails, another version may come into the empty slot.
    let start = record(State::Probation { restarts: 0 }, slots(Some(Slot::A), Some("1.0.0"), None));
    let mut machine = resumed(policy(), start, at(0));
    walk(
        &mut machine,
        [
            (0, wants(wish("stable")), ""),
            (1, REACHED, "check stable"),
            (2, found("1.1.0"), "store downloading, download 1.1.0"),
        ],
    );
}

#[test]
fn the_proven_version_is_kept_until_the_new_one_is_proven() {
    let mut machine = on_probation();
    walk(
        &mut machine,
        [
            (1, REACHED, "check stable"),
            (2, found("1.2.0"), ""),
            (300, TIME, "store idle, point b, check stable"),
            (301, found("1.2.0"), "store downloading, download 1.2.0"),
        ],
    );
    // Back to the proven one is always possible.
    let mut machine = on_probation();
    walk(
        &mut machine,
        [
            (1, REACHED, "check stable"),
            (2, wants(wish("1.0.0")), "store probation, check 1.0.0"),
            (3, found("1.0.0"), "store staged"),
            (4, runs(2, Slot::B, "1.1.0", Phase::Running, 0), "store switching, point a trial, run 2 1.0.0"),
        ],
    );
}

#[test]
fn bad_bytes_are_fetched_afresh_later_and_later() {
    let start = record(State::Idle(Outcome::None), slots(Some(Slot::A), Some("1.0.0"), None));
    let mut machine = resumed(policy(), start, at(0));
    walk(&mut machine, [(0, wants(wish("stable")), ""), (0, REACHED, "check stable")]);
    walk(&mut machine, [(0, found("1.1.0"), "store downloading, download 1.1.0")]);
    let mut now = at(0);
    let mut pauses = Vec::new();
    for _ in 0..12 {
        assert_eq!(said(&machine.step(now, Event::Downloaded(Ok(())))), "store verifying, verify 1.1.0");
        assert_eq!(said(&machine.step(now, refused())), "store downloading, discard");
        assert!(machine.progress().last_error.contains("1.1.0 was refused: its digest"));
        let retry = loop {
            let due = machine.deadline().expect("it is tried again");
            let effects = said(&machine.step(due, TIME));
            match effects.as_str() {
                "check stable" => assert_eq!(said(&machine.step(due, found("1.1.0"))), "", "hourly, and nothing new"),
                "download 1.1.0" => break due,
                other => panic!("{other}"),
            }
        };
        pauses.push(retry.since(now));
        now = retry;
    }
    assert!(pauses[0] <= MINUTE, "{pauses:?}");
    assert!(pauses[11] > 3 * 60 * MINUTE && pauses[11] <= 6 * 60 * MINUTE, "{pauses:?}");
    // Good bytes in the end: the pauses are forgotten.
    machine.step(now, Event::Downloaded(Ok(())));
    machine.step(now, Event::Verified(Ok(installed("1.1.0"))));
    assert_eq!(said(&machine.step(now, Event::Placed(Ok(())))), "store staged");
    assert_eq!(machine.progress().last_error, "");
}

#[test]
fn a_download_goes_on_as_soon_as_the_network_is_back() {
    let start = record(State::Downloading(target("1.1.0")), slots(Some(Slot::A), Some("1.0.0"), None));
    let mut machine = resumed(policy(), start, at(0));
    walk(
        &mut machine,
        [
            (0, wants(wish("stable")), ""),
            (0, REACHED, "check stable, download 1.1.0"),
            (1, Event::Arrived(40), ""),
            (2, network_down(), ""),
            (2, Event::Reach(Reach::Unreachable), ""),
        ],
    );
    assert_eq!(machine.progress().percent, 40);
    assert_eq!(machine.deadline(), None, "nothing to try while nobody can be reached");
    walk(&mut machine, [(9999, REACHED, "download 1.1.0")]);
    // The same release from another mirror.
    let moved = Target { source: Source::Web("http://mirror/1.1.0".into()), ..target("1.1.0") };
    let answer = Event::Checked(Ok(Found { target: moved, warning: String::new() }));
    walk(&mut machine, [(10000, answer, "store downloading, cancel, discard, download 1.1.0")]);
}

#[test]
fn a_wish_that_changes_ends_what_was_for_the_old_one() {
    let running = || slots(Some(Slot::A), Some("1.0.0"), Some("1.1.0"));
    let table = [
        ("idle", State::Idle(Outcome::Committed), "store idle, check 1.0.0"),
        ("downloading", State::Downloading(target("1.2.0")), "store idle, cancel, discard, check 1.0.0"),
        ("verifying", State::Verifying(target("1.2.0")), "store idle, cancel, discard, check 1.0.0"),
        ("placing", State::Placing(target("1.2.0"), installed("1.2.0")), "store idle, cancel, discard, check 1.0.0"),
        ("staged", State::Staged, "store idle, check 1.0.0"),
        ("switching", State::Switching, "store switching, check 1.0.0"),
        ("probation", State::Probation { restarts: 0 }, "store probation, check 1.0.0"),
    ];
    for (case, state, expected) in table {
        let mut machine = resumed(policy(), record(state, running()), at(0));
        machine.step(at(0), REACHED);
        machine.step(at(0), wants(wish("stable")));
        assert_eq!(said(&machine.step(at(1), wants(wish("1.0.0")))), expected, "{case}");
    }
    // The keeper has to be told when it was told to switch.
    let window = |setting| Wish { has_window: true, ..wish(setting) };
    let mut machine = resumed(policy(), record(State::Staged, running()), at(0));
    walk(
        &mut machine,
        [
            (0, REACHED, ""),
            (0, wants(window("stable")), "store waiting, switch 1.1.0, check stable"),
            (1, wants(window("1.0.0")), "store idle, switch 1.0.0, check 1.0.0"),
        ],
    );
}

#[test]
fn where_each_stored_state_continues() {
    let two = || slots(Some(Slot::A), Some("1.0.0"), Some("1.1.0"));
    let bad = || slots(Some(Slot::B), Some("1.0.0"), Some("1.1.0"));
    let one = || slots(Some(Slot::A), Some("1.0.0"), None);
    let next = || target("1.2.0");
    // case, stored, at the start, when settings, network and the first opening are there
    let table = [
        ("idle", State::Idle(Outcome::Committed), two(), "discard, point a", "run 1 1.0.0, check stable"),
        ("downloading", State::Downloading(next()), two(), "point a", "run 1 1.0.0, check stable, download 1.2.0"),
        ("verifying", State::Verifying(next()), two(), "point a", "run 1 1.0.0, verify 1.2.0, check stable"),
        ("placing", State::Placing(next(), installed("1.2.0")), one(), "point a", "run 1 1.0.0, place b, check stable"),
        ("staged", State::Staged, two(), "point a", "store switching, point b trial, run 1 1.1.0, check stable"),
        ("staged, lost", State::Staged, one(), "store idle, point a", "run 1 1.0.0, check stable"),
        (
            "waiting",
            State::Waiting,
            two(),
            "store staged, point a",
            "store switching, point b trial, run 1 1.1.0, check stable",
        ),
        ("switching", State::Switching, bad(), "point b trial", "run 1 1.1.0, check stable"),
        (
            "probation",
            State::Probation { restarts: 0 },
            bad(),
            "store probation, point b trial",
            "run 1 1.1.0, check stable",
        ),
        (
            "probation, again and again",
            State::Probation { restarts: 8 },
            bad(),
            "store idle, point a",
            "run 1 1.0.0, check stable",
        ),
        (
            "probation, and nothing to go back to",
            State::Probation { restarts: 8 },
            one(),
            "store probation, point a trial",
            "run 1 1.0.0, check stable",
        ),
        (
            "nothing there",
            State::Probation { restarts: 0 },
            slots(None, None, None),
            "store idle",
            "run 1 nothing, check stable",
        ),
    ];
    for (case, state, slots, first, then) in table {
        let mut machine = Machine::new(policy(), record(state, slots), at(0));
        assert_eq!(said(&machine.resume()), first, "{case}");
        let mut brought = Vec::new();
        for event in [opens(1), wants(wish("stable")), REACHED] {
            let effects = said(&machine.step(at(0), event));
            brought.extend((!effects.is_empty()).then_some(effects));
        }
        assert_eq!(brought.join(", "), then, "{case}");
    }
}

#[test]
fn a_disk_that_refuses_leaves_everything_as_it_was() {
    let no_space = || Event::NotStored("no space left".into());
    let mut machine = staged();
    walk(
        &mut machine,
        [
            (0, opens(1), "store switching, point b trial, run 1 1.1.0"),
            // The shell did nothing behind the store. What can be started without the disk is started.
            (0, no_space(), "run 1 1.0.0"),
            (1, runs(1, Slot::A, "1.0.0", Phase::Running, 0), ""),
        ],
    );
    assert_eq!((machine.state(), machine.progress().last_error.as_str()), (&State::Staged, "no space left"));
    assert_eq!(machine.deadline(), Some(at(10)));
    walk(
        &mut machine,
        [
            (10, TIME, ""),
            // An opening that was answered with the old version is over; the next one counts.
            (11, runs(2, Slot::A, "1.0.0", Phase::Running, 0), "store switching, point b trial, run 2 1.1.0"),
        ],
    );
    // A wish that could not be stored is not forgotten.
    let mut machine = resumed(policy(), record(State::Idle(Outcome::None), Slots::default()), at(0));
    walk(
        &mut machine,
        [
            (0, REACHED, ""),
            (0, wants(wish("dev")), "store idle, check dev"),
            (0, no_space(), ""),
            (10, TIME, "store idle, check dev"),
            (10, no_space(), ""),
            (20, TIME, "store idle, check dev"),
            (21, found("1.0.0"), "store downloading, download 1.0.0"),
            (21, no_space(), ""),
        ],
    );
    assert_eq!(machine.deadline(), Some(at(31)));
}

#[test]
fn pins_are_fetched_once_and_checked() {
    let pin = "http://10.0.0.1/server";
    let pinned = Target::of_pin(&wish(pin).setting).expect("an address");
    let content = |url: &str| Installed { version: url.into(), pin: pinned.pin(), ..installed("pin") };
    let start = record(State::Idle(Outcome::None), slots(Some(Slot::A), Some("1.0.0"), None));
    let mut machine = resumed(policy(), start, at(0));
    walk(
        &mut machine,
        [
            // No fleet server is needed for it.
            (0, wants(wish(pin)), "store downloading, download http://10.0.0.1/server"),
            (1, Event::Downloaded(Ok(())), "store verifying, verify http://10.0.0.1/server"),
            (2, Event::Verified(Ok(content(pin))), "store placing, place b"),
            (3, Event::Placed(Ok(())), "store staged"),
            (4, opens(1), "store switching, point b trial, run 1 http://10.0.0.1/server"),
            (5, runs(1, Slot::B, pin, Phase::Running, 0), "store probation"),
            (6, REACHED, ""),
            (305, TIME, "store idle, point b"),
        ],
    );
    assert!(machine.progress().last_error.contains("plain http"), "{}", machine.progress().last_error);
    assert_eq!(machine.deadline(), None, "an address that does not change is not fetched again");
    let forbidden = Wish { pins: Pins::Never, ..wish("file:///opt/server") };
    walk(&mut machine, [(400, wants(forbidden), "store idle")]);
    assert!(machine.progress().last_error.contains("allow_unsigned_pins"), "{}", machine.progress().last_error);
    walk(
        &mut machine,
        [
            (401, wants(wish("file:///opt/server")), "store downloading, download file:///opt/server"),
            // Back to the release: its bytes are still in the other slot, and a check says so.
            (402, wants(wish("1.0.0")), "store idle, cancel, discard, check 1.0.0"),
            (403, found("1.0.0"), "store staged"),
        ],
    );
}

#[test]
fn the_first_start_waits_if_somebody_wants_that() {
    let two = || record(State::Idle(Outcome::Committed), slots(Some(Slot::A), Some("1.0.0"), None));
    let waits = Policy { wait: Some(true), ..policy() };
    // No network: a minute.
    let mut machine = resumed(waits.clone(), two(), at(0));
    walk(
        &mut machine,
        [(0, opens(1), "hold 1"), (0, wants(wish("stable")), ""), (59, TIME, ""), (60, TIME, "run 1 1.0.0")],
    );
    // A network and nothing new.
    let mut machine = resumed(waits.clone(), two(), at(0));
    walk(
        &mut machine,
        [
            (0, opens(1), "hold 1"),
            (0, wants(wish("stable")), ""),
            (30, REACHED, "check stable"),
            (31, found("1.0.0"), "run 1 1.0.0"),
        ],
    );
    // Something new, in time.
    let mut machine = resumed(waits.clone(), two(), at(0));
    walk(
        &mut machine,
        [
            (0, opens(1), "hold 1"),
            (0, wants(wish("stable")), ""),
            (30, REACHED, "check stable"),
            (31, found("1.1.0"), "store downloading, download 1.1.0"),
            (300, Event::Downloaded(Ok(())), "store verifying, verify 1.1.0"),
            (301, Event::Verified(Ok(installed("1.1.0"))), "store placing, place b"),
            (302, Event::Placed(Ok(())), "store switching, point b trial, run 1 1.1.0"),
        ],
    );
    // Something new, that takes too long.
    let mut machine = resumed(waits.clone(), two(), at(0));
    walk(
        &mut machine,
        [
            (0, opens(1), "hold 1"),
            (0, wants(wish("stable")), ""),
            (30, REACHED, "check stable"),
            (31, found("1.1.0"), "store downloading, download 1.1.0"),
            (629, TIME, ""),
            (630, TIME, "run 1 1.0.0"),
        ],
    );
    // A server that answers nonsense is not waited for.
    let mut machine = resumed(waits, two(), at(0));
    walk(
        &mut machine,
        [
            (0, opens(1), "hold 1"),
            (0, wants(wish("stable")), ""),
            (30, REACHED, "check stable"),
            (31, Event::Checked(Err("no channel".into())), "run 1 1.0.0"),
        ],
    );
    assert_eq!(machine.progress().last_error, "no channel");
}

#[test]
fn who_says_whether_to_wait() {
    let table = [
        ("option says no", Some(false), true, "run 1 1.0.0"),
        ("option says yes", Some(true), false, "hold 1"),
        ("configuration says yes", None, true, "hold 1"),
        ("configuration says no", None, false, "run 1 1.0.0"),
    ];
    for (case, option, configured, expected) in table {
        let start = record(State::Idle(Outcome::None), slots(Some(Slot::A), Some("1.0.0"), None));
        let mut machine = resumed(Policy { wait: option, ..policy() }, start, at(0));
        let mut brought = said(&machine.step(at(0), opens(1)));
        brought += &said(&machine.step(at(0), wants(Wish { wait: configured, ..wish("stable") })));
        assert_eq!(brought, expected, "{case}");
    }
    // Nobody tells: a second.
    let start = record(State::Idle(Outcome::None), slots(Some(Slot::A), Some("1.0.0"), None));
    let mut machine = resumed(Policy { wait: None, ..policy() }, start, at(0));
    walk(&mut machine, [(0, opens(1), ""), (1, TIME, "run 1 1.0.0")]);
}

#[test]
fn checks_come_hourly_on_hints_and_after_failures() {
    let start = record(State::Idle(Outcome::None), slots(Some(Slot::A), Some("1.0.0"), None));
    let mut machine = resumed(policy(), start, at(0));
    walk(
        &mut machine,
        [
            (0, wants(wish("stable")), ""),
            (5, REACHED, "check stable"),
            (6, Event::Hint, ""),
            (7, found("1.0.0"), ""),
            // A hint too soon after a check waits a little.
            (8, Event::Hint, ""),
        ],
    );
    assert_eq!(machine.deadline(), Some(at(17)));
    walk(&mut machine, [(17, TIME, "check stable"), (18, found("1.0.0"), "")]);
    assert_eq!(machine.deadline(), Some(at(18 + 3600)));
    walk(&mut machine, [(18 + 3600, TIME, "check stable"), (4000, Event::Checked(Err("expired".into())), "")]);
    let again = machine.deadline().expect("it asks again").since(at(4000));
    assert!(again <= MINUTE / 6, "{again:?}");
    assert_eq!(machine.progress().last_error, "expired");
    // Offline it does not even try.
    walk(&mut machine, [(4001, Event::Reach(Reach::Unreachable), "")]);
    assert_eq!(machine.deadline(), None);
}

#[test]
fn a_question_without_an_answer_is_asked_less_and_less_and_anew_when_the_network_returns() {
    let start = record(State::Idle(Outcome::None), slots(Some(Slot::A), Some("1.0.0"), None));
    let mut machine = resumed(policy(), start, at(0));
    walk(&mut machine, [(0, wants(wish("stable")), ""), (5, REACHED, "check stable")]);
    let (mut now, mut pauses) = (at(6), Vec::new());
    for _ in 0..20 {
        assert_eq!(machine.step(now, Event::Checked(Err("no root document".into())))[..], []);
        let due = machine.deadline().expect("it asks again");
        pauses.push(due.since(now));
        now = due;
        assert!(matches!(machine.step(now, TIME)[..], [Effect::Check(_)]));
    }
    assert!(pauses.iter().all(|pause| *pause <= MINUTE * 60), "{pauses:?}");
    assert!(pauses.iter().skip(10).all(|pause| *pause >= MINUTE * 30), "a few questions a day: {pauses:?}");
    machine.step(now, Event::Checked(Err("no root document".into())));
    machine.step(now, Event::Reach(Reach::Unreachable));
    machine.step(now, REACHED);
    let soon = Some(now + Duration::from_secs(10));
    assert_eq!(machine.deadline(), soon, "and not in a loop, however often it comes and goes");
}

#[test]
fn bytes_that_are_here_already_get_the_name_they_are_wanted_by() {
    let unknown = Installed { version: "unknown".into(), ..installed("1.0.0") };
    let start = record(State::Idle(Outcome::None), Slots { active: Some(Slot::A), a: Some(unknown), b: None });
    let mut machine = resumed(policy(), start, at(0));
    walk(
        &mut machine,
        [
            (0, wants(wish("stable")), ""),
            (0, REACHED, "check stable"),
            (1, found("1.0.0"), "store idle"),
            (2, opens(1), "run 1 1.0.0"),
        ],
    );
}
