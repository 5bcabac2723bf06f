//! Files that are missing, cut, changed, huge or no files, disks that take nothing, and programs that cannot be executed.

use super::*;

/// Everything that may lie where a small file should be.
fn poisons(good: &[u8]) -> Vec<(String, Option<Vec<u8>>)> {
    let mut poisons = vec![
        ("missing".to_owned(), None),
        ("empty".to_owned(), Some(vec![])),
        ("zeros".to_owned(), Some(vec![0; good.len()])),
        ("garbage".to_owned(), Some((0..=255).collect())),
        ("no text".to_owned(), Some(vec![0xFF; 40])),
        ("a folder".to_owned(), Some(b"folder".to_vec())),
        ("huge".to_owned(), Some(vec![b'a'; 3 << 20])),
        ("doubled".to_owned(), Some([good, good].concat())),
    ];
    poisons
        .extend((0..good.len()).step_by(7).map(|length| (format!("cut at {length}"), Some(good[..length].to_vec()))));
    poisons.extend((0..good.len()).step_by(5).map(|at| {
        let mut bytes = good.to_vec();
        bytes[at] ^= 0x41;
        (format!("byte {at} changed"), Some(bytes))
    }));
    poisons
}

#[test]
fn a_pointer_that_says_nothing_is_assumed_as_it_was() {
    for (poison, bytes) in poisons(Pointer::trial(Slot::B).text().as_bytes()) {
        if bytes.as_deref().and_then(Pointer::read).is_some() {
            continue;
        }
        // Nothing else is known: the first slot that holds something, as a kept version.
        for (slots, expected) in [(&BOTH[..], "a"), (&[Slot::B], "b")] {
            let disk = disk(slots, None);
            plant(&disk, files().pointer(), bytes.clone());
            let (started, choice) = start(&disk, &boot("one", 5));
            assert_eq!((&*started, choice.said.len()), (expected, 1), "{poison}: {:?}", choice.said);
            assert!(choice.said[0].starts_with("the pointer "), "{poison}: {:?}", choice.said);
            assert_eq!(starts(&disk, 3)[2], format!("{expected} safe"), "{poison}");
        }
        // A trial goes on being one.
        let disk = disk(&BOTH, Some(Pointer::trial(Slot::B)));
        starts(&disk, 2);
        plant(&disk, files().pointer(), bytes);
        assert_eq!(starts(&disk, 2), ["b", "a"], "{poison}");
        assert_eq!(pointer(&disk), "slot-pointer 1 a\n", "{poison}");
    }
}

#[test]
fn a_count_that_cannot_be_read_gives_a_trial_one_start_and_a_kept_version_all() {
    let disk = disk(&BOTH, Some(Pointer::trial(Slot::B)));
    starts(&disk, 2);
    let good = disk.files.borrow().get(&files().starts()).cloned().unwrap();
    assert_eq!(good.len(), STARTS_BYTES);
    for (poison, bytes) in poisons(&good) {
        let is_whole = bytes.as_deref().and_then(Starts::decode).is_some();
        for (at, expected) in
            [(Pointer::trial(Slot::B), ["b", "a", "a", "a"]), (Pointer::kept(Slot::A), ["a", "a", "a", "a safe"])]
        {
            let disk = self::disk(&BOTH, Some(at));
            plant(&disk, files().starts(), bytes.clone());
            let (first, choice) = start(&disk, &boot("one", 5));
            assert_eq!(
                choice.said.is_empty(),
                is_whole || (bytes.is_none() && !at.trial),
                "{poison}: {:?}",
                choice.said
            );
            let mut all = vec![first];
            all.extend(starts(&disk, 3));
            assert_eq!(all, expected, "{poison} with {at}");
        }
    }
}

#[test]
fn a_disk_that_takes_nothing_does_not_keep_the_agent_from_starting() {
    // Neither the count nor the pointer can be stored: the same choice again and again.
    let full = disk(&BOTH, Some(Pointer::kept(Slot::A)));
    full.refuses.borrow_mut().push("state/");
    for _ in 0..9 {
        let run = Run::new(&full, Path::new(ROOT), boot("one", 5));
        let choice = run.choose().unwrap();
        let (counted, said) = run.count(&choice);
        assert_eq!((choice.slot, choice.safe, counted), (Slot::A, false, false));
        assert!(said[0].contains("this start is not counted"), "{said:?}");
    }
    // Only the pointer cannot: the ladder is gone down all the same, and the pointer is tried each time.
    let stuck = disk(&BOTH, Some(Pointer::trial(Slot::B)));
    stuck.refuses.borrow_mut().push(".pointer");
    assert_eq!(starts(&stuck, 8), ["b", "b", "b", "a", "a", "a", "a safe", "a safe"]);
    assert_eq!(pointer(&stuck), "slot-pointer 1 b trial\n");
    stuck.refuses.borrow_mut().clear();
    assert_eq!(starts(&stuck, 1), ["a safe"]);
    assert_eq!(pointer(&stuck), "slot-pointer 1 a\n");
    assert_eq!(starts(&stuck, 1), ["b safe"]);
}

#[test]
fn what_cannot_be_executed_is_passed_over_in_the_same_run() {
    let table = [("on trial", Pointer::trial(Slot::B), "b", "a"), ("kept", Pointer::kept(Slot::A), "a", "b")];
    for (case, at, first, second) in table {
        let disk = disk(&BOTH, Some(at));
        let mut run = Run::new(&disk, Path::new(ROOT), boot("one", 5));
        let choice = run.choose().unwrap();
        assert_eq!(choice.slot.name(), first, "{case}");
        let _ = run.count(&choice);
        run.failed(choice.slot, "Exec format error".into());
        let choice = run.choose().unwrap();
        assert_eq!((choice.slot.name(), choice.safe), (second, false), "{case}");
        let told = format!("slot {first} cannot be started, Exec format error: back to slot {second}");
        assert_eq!(choice.note.as_deref(), Some(&*told), "{case}");
        let _ = run.count(&choice);
        assert_eq!(pointer(&disk), format!("slot-pointer 1 {second}\n"), "{case}");
        run.failed(choice.slot, "No such file or directory".into());
        let none = run.choose().unwrap_err();
        assert!(none.contains("Exec format error") && none.contains("No such file"), "{none}");
    }
    let nothing = disk(&[], Some(Pointer::kept(Slot::A)));
    let error = Run::new(&nothing, Path::new(ROOT), boot("one", 5)).choose().unwrap_err();
    assert_eq!(error, "no version of platform-agent can be started: slot a: it is missing; slot b: it is missing");
}

#[test]
fn a_mark_without_a_count_is_kept_with_the_pointer() {
    for poison in [None, Some(b"garbage".to_vec())] {
        let disk = disk(&BOTH, Some(Pointer::trial(Slot::B)));
        plant(&disk, files().starts(), poison);
        mark(&disk, Path::new(ROOT), Slot::B, Mark::Stopped).unwrap();
        assert_eq!(starts(&disk, 4), ["b", "b", "b", "a"]);
    }
}
