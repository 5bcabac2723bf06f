//! The ladder, the marks and the pauses.

use std::time::Duration;

use super::*;
use crate::launcher::{
    ladder::{CUTS_MAX, PAUSE_MAX, choose},
    starts::{NOTE_BYTES_MAX, Rung},
};

#[test]
fn the_ladder_from_top_to_bottom_and_round_again() {
    let [a, a_safe, b, b_safe] = ["a", "a safe", "b", "b safe"];
    let table: [(&str, &[Slot], Pointer, &[&str]); 6] = [
        ("kept, both slots", &BOTH, Pointer::kept(Slot::A), &[a, a_safe, b_safe, a, a_safe, b_safe, a]),
        ("kept, the other way round", &BOTH, Pointer::kept(Slot::B), &[b, b_safe, a_safe, b, b_safe]),
        ("on trial", &BOTH, Pointer::trial(Slot::B), &[b, a, a_safe, b_safe, a, a_safe, b_safe]),
        ("kept and alone", &[Slot::A], Pointer::kept(Slot::A), &[a, a_safe, a, a_safe]),
        ("on trial and alone", &[Slot::B], Pointer::trial(Slot::B), &[b, b_safe, b, b_safe]),
        ("the pointer leads to nothing", &[Slot::B], Pointer::kept(Slot::A), &[b, b_safe, b, b_safe]),
    ];
    for (case, slots, at, rungs) in table {
        let disk = disk(slots, Some(at));
        let expected: Vec<String> = rungs.iter().flat_map(|rung| [rung, rung, rung]).map(|&rung| rung.into()).collect();
        assert_eq!(starts(&disk, expected.len()), expected, "{case}");
    }
}

#[test]
fn the_pointer_follows_what_is_started() {
    let disk = disk(&BOTH, Some(Pointer::trial(Slot::B)));
    starts(&disk, 3);
    assert_eq!(pointer(&disk), "slot-pointer 1 b trial\n");
    let (_, back) = start(&disk, &boot("one", 5));
    assert_eq!(pointer(&disk), "slot-pointer 1 a\n");
    let sentence = "slot b was started 3 times in a row and did not live for 60 s: back to slot a";
    assert_eq!((back.note.as_deref(), &*back.said), (Some(sentence), &[sentence.to_owned()][..]));
    // Told until somebody has lived with it.
    let (_, again) = start(&disk, &boot("one", 6));
    assert_eq!((again.note.as_deref(), &*again.said), (Some(sentence), &[][..]));
    mark(&disk, Path::new(ROOT), Slot::A, Mark::Stopped).unwrap();
    assert_eq!(start(&disk, &boot("one", 7)).1.note.as_deref(), Some(sentence));
    mark(&disk, Path::new(ROOT), Slot::A, Mark::Lived).unwrap();
    assert_eq!(start(&disk, &boot("one", 8)).1.note, None);
    // The last rung is the other slot: the agent there must not take its own slot for the spare one.
    starts(&disk, 2 + 3);
    assert_eq!(pointer(&disk), "slot-pointer 1 a\n");
    let (last, choice) = start(&disk, &boot("one", 9));
    assert_eq!((&*last, &*pointer(&disk)), ("b safe", "slot-pointer 1 b\n"));
    let told =
        "slot a was started with --safe 3 times in a row and did not live for 60 s: slot b is started with --safe";
    assert_eq!(choice.note.as_deref(), Some(told));
}

#[test]
fn a_trial_that_had_nothing_to_go_back_to_goes_back_as_soon_as_there_is_something() {
    for before in [4, 7] {
        let disk = disk(&[Slot::B], Some(Pointer::trial(Slot::B)));
        starts(&disk, before);
        disk.put(files().executable(Slot::A), "program");
        assert_eq!(starts(&disk, 1), ["a"], "after {before}");
        assert_eq!(pointer(&disk), "slot-pointer 1 a\n");
    }
}

#[test]
fn a_mark_ends_the_count() {
    for said in [Mark::Lived, Mark::Stopped] {
        for at in [Pointer::kept(Slot::A), Pointer::trial(Slot::B)] {
            let disk = disk(&BOTH, Some(at));
            for _ in 0..20 {
                let (started, choice) = start(&disk, &boot("one", 5));
                assert_eq!((&*started, choice.wait), (at.slot.name(), Duration::ZERO), "{said:?}");
                mark(&disk, Path::new(ROOT), at.slot, said).unwrap();
            }
        }
    }
    // Who has lived stays so, and is not written twice.
    let disk = disk(&BOTH, Some(Pointer::kept(Slot::A)));
    starts(&disk, 1);
    for said in [Mark::Lived, Mark::Stopped, Mark::Lived] {
        mark(&disk, Path::new(ROOT), Slot::A, said).unwrap();
    }
    assert_eq!(*disk.writes.borrow(), 2, "the count and one mark");
}

#[test]
fn a_safe_agent_that_lived_is_started_as_usual() {
    let disk = disk(&BOTH, Some(Pointer::kept(Slot::A)));
    assert_eq!(starts(&disk, 4)[3], "a safe");
    mark(&disk, Path::new(ROOT), Slot::A, Mark::Lived).unwrap();
    assert_eq!(starts(&disk, 4), ["a", "a", "a", "a safe"]);
}

#[test]
fn another_pointer_begins_anew() {
    let disk = disk(&BOTH, Some(Pointer::kept(Slot::A)));
    starts(&disk, 2);
    disk.put(files().pointer(), Pointer::trial(Slot::B).text());
    assert_eq!(starts(&disk, 4), ["b", "b", "b", "a"]);
    // Committed: what counted for the trial does not count against the kept version.
    disk.put(files().pointer(), Pointer::trial(Slot::B).text());
    starts(&disk, 2);
    disk.put(files().pointer(), Pointer::kept(Slot::B).text());
    assert_eq!(starts(&disk, 4), ["b", "b", "b", "b safe"]);
}

#[test]
fn starts_that_end_with_the_boot_are_counted_apart() {
    type Boots = fn(u64) -> Boot;
    let table: [(&str, Boots); 2] = [
        ("by the id of the boot", |n| boot(&n.to_string(), 5)),
        ("by time since boot, without ids", |n| boot("", 1000 - n)),
    ];
    for (case, boots) in table {
        let disk = disk(&BOTH, Some(Pointer::trial(Slot::B)));
        let limit = u64::from(CUTS_MAX);
        for n in 0..limit {
            let (started, choice) = start(&disk, &boots(n));
            assert_eq!((&*started, choice.wait), ("b", Duration::ZERO), "{case}: start {n}");
        }
        let (started, choice) = start(&disk, &boots(limit));
        assert_eq!(started, "a", "{case}");
        let told = "slot b was started 8 times in a row and the machine went down within 60 s of each: back to slot a";
        assert_eq!(choice.note.as_deref(), Some(told), "{case}");
    }
    // Both kinds, mixed: neither limit is reached by the sum.
    let disk = disk(&BOTH, Some(Pointer::trial(Slot::B)));
    let boots = ["1", "1", "2", "3", "4", "4"];
    let started: Vec<_> = boots.iter().map(|id| start(&disk, &boot(id, 5)).0).collect();
    assert_eq!(started, ["b"; 6], "2 crashes, 3 cuts, and the last is not over");
    assert_eq!(start(&disk, &boot("4", 5)).0, "a", "the third crash");
    // Without any sign of another boot each start counts as a crash.
    let (without, disk) = (boot("", 7), self::disk(&BOTH, Some(Pointer::trial(Slot::B))));
    let started: Vec<_> = (0..4).map(|_| start(&disk, &without).0).collect();
    assert_eq!(started, ["b", "b", "b", "a"]);
    assert!(boot("", 9).is_before(&boot("x", 5)) && !boot("x", 5).is_before(&boot("", 9)));
}

#[test]
fn pauses() {
    let disk = disk(&[Slot::A], Some(Pointer::kept(Slot::A)));
    let waits: Vec<u64> = (0..24).map(|_| start(&disk, &boot("one", 5)).1.wait.as_secs()).collect();
    let first = [0, 1, 2, 0, 1, 2];
    let later = [10, 20, 40].into_iter().flat_map(|wait| [wait; 6]);
    assert_eq!(waits, first.into_iter().chain(later).collect::<Vec<_>>());
    assert!((0..600).all(|_| start(&disk, &boot("one", 5)).1.wait <= PAUSE_MAX));
    assert_eq!(start(&disk, &boot("one", 5)).1.wait, PAUSE_MAX);
}

#[test]
fn what_is_stored_is_read_again() {
    for rung in [Rung::Usual, Rung::Safe, Rung::OtherSafe] {
        for mark in [None, Some(Mark::Lived), Some(Mark::Stopped)] {
            let starts = Starts {
                home: Slot::B,
                rung,
                starts: u32::MAX,
                cuts: u32::MAX,
                rounds: u32::MAX,
                boot: boot(&"b".repeat(64), u64::MAX),
                mark,
                note: "n".repeat(NOTE_BYTES_MAX),
                ..Starts::fresh(Pointer::trial(Slot::A))
            };
            let bytes = starts.encode();
            assert_eq!((bytes.len(), Starts::decode(&bytes)), (STARTS_BYTES, Some(starts)));
        }
    }
    let odd = Starts { note: "two\nlines\0 and \u{1b}[31m ".into(), ..Starts::fresh(Pointer::kept(Slot::A)) };
    assert_eq!(Starts::decode(&odd.encode()).unwrap().note, "two lines  and  [31m");
    let long = Starts { note: "ü".repeat(NOTE_BYTES_MAX), ..odd };
    assert_eq!(
        (long.encode().len(), Starts::decode(&long.encode()).unwrap().note.len()),
        (STARTS_BYTES, NOTE_BYTES_MAX)
    );
}

#[test]
fn to_explain_changes_nothing() {
    let disk = disk(&BOTH, Some(Pointer::kept(Slot::A)));
    starts(&disk, 3);
    let run = Run::new(&disk, Path::new(ROOT), boot("one", 5));
    let (before, first) = (starts_file(&disk), run.choose());
    assert_eq!((run.choose(), starts_file(&disk)), (first, before));
    assert_eq!(choose(&run.look()).map(|choice| choice.safe), Some(true));
}

#[test]
fn an_operator_may_give_a_slow_board_more_time() {
    let rows = [
        (None, 120),
        (Some("300"), 300),
        (Some(" 30 "), 30),
        (Some("0"), 1),
        (Some("86400"), 3600),
        (Some("soon"), 120),
        (Some("-1"), 120),
        (Some(""), 120),
    ];
    for (variable, expected) in rows {
        assert_eq!(start_limit(variable.map(OsStr::new)).as_secs(), expected, "{variable:?}");
    }
    assert_eq!(start_limit_variable(), "PLATFORM_AGENT_START_SECONDS");
}
