//! Maintenance windows.

use super::*;

/// Open from 01:00 to 02:00 of each day of the story.
fn each_night(at: Wall) -> WindowState {
    const HOUR: i64 = 3_600_000;
    let (day, time) = (at.as_millis().div_euclid(24 * HOUR), at.as_millis().rem_euclid(24 * HOUR));
    let open = (HOUR..2 * HOUR).contains(&time);
    let next = if open {
        2 * HOUR
    } else if time < HOUR {
        HOUR
    } else {
        25 * HOUR
    };
    WindowState { open, changes: Some(Wall::from_millis(day * 24 * HOUR + next)) }
}

fn nightly(use_server_word: bool, environment: &[(&str, &str)]) -> Event {
    let maintenance = Some(Maintenance { windows: [].into(), use_server_word });
    Event::Settings(Rc::new(Advanced { maintenance, ..settings(environment) }))
}

#[test]
fn a_window_and_the_server_must_both_agree() {
    let mut story = Story::from(adopted(true), true, Some(each_night));
    story.happens(nightly(true, &[]), "", Phase::Running);
    story.time("ask", Phase::Running);
    story.answers(Word::Allowed, "", Phase::Running);
    story.happens(switch("1.1.0"), "", Phase::Running);
    assert_eq!(story.machine.report().restart_pending, "version 1.1.0 is to run; waiting for the maintenance window");
    story.time("ask", Phase::Running);
    assert_eq!(story.now.since(Mono::BOOT), Duration::from_secs(3600), "opens at 01:00");
    story.answers(Word::Refused, "", Phase::Running);
    story.time("ask", Phase::Running);
    // The yes comes when the window has just closed.
    story.now = Mono::BOOT + Duration::from_secs(2 * 3600 + 1);
    story.answers(Word::Allowed, "", Phase::Running);
    let mut woken = 0;
    while story.now.since(Mono::BOOT) < Duration::from_secs(25 * 3600) {
        story.now = story.machine.deadline().unwrap();
        woken += 1;
        match story.step(Event::DeadlinePassed).as_str() {
            "" => {}
            "ask" => break,
            other => panic!("{other}"),
        }
    }
    assert!(woken <= 25, "{woken}");
    story.answers(Word::Allowed, "term", Phase::Stopping);
    story.happens(Event::Exited(Exit::Code(0)), "start 1.1.0, orphans 77, store", Phase::Starting);
}

#[test]
fn crashes_and_operators_do_not_wait_for_a_window() {
    let mut story = Story::from(adopted(true), true, Some(each_night));
    story.happens(nightly(true, &[]), "", Phase::Running);
    story.happens(switch("1.1.0"), "", Phase::Running);
    story.happens(crash(), "start 1.0.0, orphans 77, store", Phase::Starting);
    story.happens(serving(), "store", Phase::Running);
    story.happens(Event::RestartsWanted(4), "ask", Phase::Running);
    story.answers(Word::Allowed, "term", Phase::Stopping);
}

#[test]
fn the_way_back_from_a_failed_version_does_not_wait_for_a_window() {
    let story = || {
        let mut story = Story::from(Record::default(), false, Some(each_night));
        story.tell(&[
            (0.0, nightly(true, &[]), "", Phase::NoVersion),
            (0.1, run(1, "1.1.0"), "start 1.1.0, store", Phase::Starting),
        ]);
        story
    };
    let ready = || {
        let mut story = story();
        story.tell(&[(1.0, serving(), "store", Phase::Running)]);
        story.time("ask", Phase::Running);
        story.answers(Word::Allowed, "", Phase::Running);
        story
    };

    // It never got ready, and has not even ended once.
    let mut never_ready = story();
    never_ready.happens(switch("1.0.0"), "", Phase::Starting);
    never_ready.happens(back("1.0.0"), "term", Phase::Stopping);
    never_ready.happens(Event::Exited(Exit::Signal(15)), "start 1.0.0, orphans 1, store", Phase::Starting);
    assert_eq!(never_ready.machine.report().restart_pending, "");

    // It has been started again after a crash.
    let mut again = story();
    again.happens(crash(), "start 1.1.0, orphans 1, store", Phase::Starting);
    again.happens(back("1.0.0"), "term", Phase::Stopping);
    again.happens(Event::Exited(Exit::Signal(15)), "start 1.0.0, orphans 2, store", Phase::Starting);

    // It waits in its back-off.
    let mut dead = story();
    dead.happens(crash(), "start 1.1.0, orphans 1, store", Phase::Starting);
    dead.happens(crash(), "store, orphans 2", Phase::WaitingToRestart);
    dead.happens(switch("1.0.0"), "", Phase::WaitingToRestart);
    dead.happens(back("1.0.0"), "start 1.0.0, store", Phase::Starting);

    // It runs and is ready: it is asked, and what it says counts.
    let mut asked = ready();
    asked.happens(back("1.0.0"), "ask", Phase::Running);
    asked.answers(Word::Refused, "", Phase::Running);
    assert_eq!(
        asked.machine.report().restart_pending,
        "the present version has failed, and version 1.0.0 is to run; the machine server does not allow a restart now"
    );
    asked.time("ask", Phase::Running);
    asked.answers(Word::Allowed, "term", Phase::Stopping);
    asked.happens(Event::Exited(Exit::Code(0)), "start 1.0.0, orphans 1, store", Phase::Starting);

    // It ends before it has agreed.
    let mut ended = ready();
    ended.happens(back("1.0.0"), "ask", Phase::Running);
    ended.answers(Word::Refused, "", Phase::Running);
    ended.happens(crash(), "store, orphans 1, start 1.0.0, store", Phase::Starting);

    // Called off, and a wish that is no way back waits as it always did.
    let mut off = ready();
    off.happens(back("1.0.0"), "ask", Phase::Running);
    off.happens(switch("1.1.0"), "", Phase::Running);
    assert_eq!(off.machine.report().restart_pending, "");
    off.answers(Word::Allowed, "", Phase::Running);
    off.happens(switch("1.2.0"), "", Phase::Running);
    assert!(off.machine.report().restart_pending.ends_with("waiting for the maintenance window"));
    off.happens(crash(), "start 1.1.0, orphans 1, store", Phase::Starting);
}

#[test]
fn the_server_s_word_may_be_left_out() {
    let mut story = Story::from(adopted(true), true, Some(each_night));
    story.happens(nightly(false, &[("GREETING", "hi")]), "", Phase::Running);
    story.now = Mono::BOOT + Duration::from_secs(3600);
    story.happens(Event::DeadlinePassed, "ask, term", Phase::Stopping);
}

#[test]
fn a_window_that_stays_shut_is_reported() {
    let shut = |_: Wall| WindowState { open: false, changes: None };
    let mut story = Story::from(adopted(true), true, Some(shut));
    story.happens(nightly(true, &[]), "", Phase::Running);
    story.time("ask", Phase::Running);
    story.answers(Word::Allowed, "", Phase::Running);
    story.happens(switch("1.1.0"), "", Phase::Running);
    for _ in 0..=14 * 24 {
        story.time("", Phase::Running);
    }
    assert!(story.machine.report().restart_pending.ends_with("has been shut for over 14 days"));
}

#[test]
fn a_window_that_stays_shut_is_reported_also_by_an_agent_that_was_started_again() {
    const DAY: u64 = 24 * 3600;
    let shut = |_: Wall| WindowState { open: false, changes: None };
    let lives = |record: Record, after_days: u64, days: u64| {
        let mut story = Story::from(record, true, Some(shut));
        story.epoch = 1_760_000_000_000 + i64::try_from(after_days * DAY * 1000).unwrap();
        story.happens(nightly(true, &[]), "", Phase::Running);
        story.time("ask", Phase::Running);
        story.answers(Word::Allowed, "", Phase::Running);
        let first = if after_days == 0 { "store" } else { "" };
        story.happens(switch("1.1.0"), first, Phase::Running);
        while story.now.since(Mono::BOOT) < Duration::from_secs(days * DAY) {
            story.time("", Phase::Running);
        }
        story
    };
    let mut record = adopted(true);
    for (after_days, days, long) in [(0, 6, false), (6, 6, false), (12, 1, false), (13, 2, true)] {
        let story = lives(record, after_days, days);
        let pending = story.machine.report().restart_pending;
        assert_eq!(pending.ends_with("has been shut for over 14 days"), long, "after {after_days} days: {pending}");
        // What every record says goes through the file.
        record = Record::decode(&story.machine.record().encode()).expect("its own");
        assert_eq!(record.shut_since.map(|at| at.as_millis() / 10_000), Some(176_000_000), "since the first wish");
    }
    // It opens, or nothing waits any more: forgotten, on the disk too.
    let mut story = lives(record.clone(), 15, 0);
    story.calendar = Some(|_| WindowState { open: true, changes: None });
    story.time("ask, store", Phase::Running);
    assert_eq!(story.machine.record().shut_since, None);
    let mut story = lives(record, 15, 0);
    story.happens(switch("1.0.0"), "store", Phase::Running);
    assert_eq!(story.machine.record().shut_since, None);
}
