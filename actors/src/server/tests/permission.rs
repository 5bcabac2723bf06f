//! Who is asked before a restart, and who need not wait for it.

use super::*;

#[test]
fn another_environment_waits_for_permission_and_other_settings_do_not_matter() {
    let mut story = Story::running();
    story.happens(set(|settings| settings.debug = true), "", Phase::Running);
    assert_eq!(story.machine.deadline(), None);
    story.happens(environment("hi"), "ask", Phase::Running);
    story.answers(Word::Refused, "", Phase::Running);
    assert_eq!(
        story.machine.report().restart_pending,
        "its environment has changed; the machine server does not allow a restart now"
    );
    story.time("ask", Phase::Running);
    story.answers(Word::Allowed, "term", Phase::Stopping);
    story.happens(Event::Exited(Exit::Signal(15)), "start 1.0.0, orphans 1, store", Phase::Starting);
    assert_eq!(story.machine.report().restart_pending, "");

    // Changed, and changed back before anybody agreed.
    story.happens(serving(), "store", Phase::Running);
    story.time("ask", Phase::Running);
    story.answers(Word::Allowed, "", Phase::Running);
    story.happens(environment("ho"), "ask", Phase::Running);
    story.answers(Word::Refused, "", Phase::Running);
    story.happens(environment("hi"), "", Phase::Running);
    assert_eq!((story.machine.report().restart_pending.as_str(), story.machine.deadline()), ("", None));
}

#[test]
fn silence_is_respected_for_fifteen_minutes_and_a_no_for_ever() {
    let mut story = Story::running();
    let begun = story.now;
    story.happens(environment("hi"), "ask", Phase::Running);
    loop {
        story.now = story.now + Duration::from_secs(10);
        let answer = Answer::SILENCE;
        let done = story.step(Event::Answered { question: story.question, answer });
        if done == "term" {
            break;
        }
        assert_eq!(done, "");
        story.time("ask", Phase::Running);
    }
    let waited = story.now.since(begun);
    assert!(waited >= MINUTE * 15 && waited <= MINUTE * 16, "{waited:?}");

    let mut story = Story::running();
    story.happens(environment("hi"), "ask", Phase::Running);
    for _ in 0..10_000 {
        story.answers(Word::Refused, "", Phase::Running);
        story.time("ask", Phase::Running);
    }
    // A no in between begins the count of silence anew.
    story.answers(Word::Silent, "", Phase::Running);
    story.time("ask", Phase::Running);
    story.answers(Word::Refused, "", Phase::Running);
    story.now = story.now + MINUTE * 20;
    story.happens(Event::DeadlinePassed, "ask", Phase::Running);
    story.answers(Word::Silent, "", Phase::Running);
}

#[test]
fn an_operator_waits_for_permission_but_not_for_ever() {
    let mut story = Story::running();
    story.happens(Event::RestartsWanted(1), "ask", Phase::Running);
    story.answers(Word::Allowed, "term", Phase::Stopping);
    assert_eq!(story.machine.report().opening, 1);
    story.happens(Event::Exited(Exit::Code(0)), "store, orphans 1", Phase::NoVersion);
    assert_eq!(story.machine.report().opening, 2, "another version may start now");
    story.happens(run(1, "0.1.0"), "", Phase::NoVersion);
    story.happens(run(2, "1.1.0"), "start 1.1.0, store", Phase::Starting);
    assert_eq!(story.machine.report().operator_restarts, 1);
    assert_eq!(story.machine.report().crashes_of_program, 0);

    // It says no for ever, and then not even that; while starting it cannot be asked at all.
    story.happens(Event::RestartsWanted(2), "", Phase::Starting);
    let wanted = story.now;
    story.happens(serving(), "store, ask", Phase::Running);
    loop {
        story.answers(Word::Refused, "", Phase::Running);
        story.now = story.machine.deadline().unwrap();
        match story.step(Event::DeadlinePassed).as_str() {
            "ask" => {}
            "term" => break,
            other => panic!("{other}"),
        }
    }
    assert_eq!(story.now.since(wanted), MINUTE * 15);
    story.happens(Event::Exited(Exit::Code(0)), "store, orphans 2", Phase::NoVersion);
    story.time("start 1.1.0, store", Phase::Starting);
    assert_eq!((story.machine.report().opening, story.machine.report().operator_restarts), (3, 2));
    assert_eq!(story.machine.report().restart_pending, "");
    story.happens(Event::RestartsWanted(2), "", Phase::Starting);
    assert_eq!(story.machine.report().restart_pending, "", "done once");
}

/// It would go on as the robot of whom the device belonged to before.
#[test]
fn another_identity_is_another_start() {
    let mut story = Story::running_as(5);
    story.happens(Event::Identity(5), "", Phase::Running);
    story.happens(Event::Identity(0), "", Phase::Running);
    assert_eq!(story.machine.report().restart_pending, "", "a file that is gone for a moment is nobody else's");
    story.happens(Event::Identity(6), "ask", Phase::Running);
    story.identity = 6;
    story.answers(Word::Refused, "", Phase::Running);
    let said = "this device has another identity; the machine server does not allow a restart now";
    assert_eq!(story.machine.report().restart_pending, said);
    // It says no for ever.
    let wanted = story.now;
    loop {
        story.now = story.machine.deadline().unwrap();
        match story.step(Event::DeadlinePassed).as_str() {
            "ask" => story.answers(Word::Refused, "", Phase::Running),
            "term" => break,
            other => panic!("{other}"),
        }
    }
    assert_eq!(story.now, wanted + Policy::new(MINUTE, 7).patience.of_operator);
    story.happens(Event::Exited(Exit::Code(0)), "store, orphans 1", Phase::NoVersion);
    story.happens(run(2, "1.1.0"), "start 1.1.0, store", Phase::Starting);
    story.happens(Event::Identity(6), "", Phase::Starting);
    assert_eq!(story.machine.report().restart_pending, "", "once");

    // Given while no agent ran, and while nobody had said who the device was.
    let mut story = Story { identity: 6, ..Story::from(adopted(true), true, None) };
    story.happens(plain(), "", Phase::Running);
    story.happens(Event::Identity(6), "ask", Phase::Running);
    let mut story = Story::running_as(0);
    story.happens(Event::Identity(5), "", Phase::Running);
    story.happens(Event::Identity(6), "ask", Phase::Running);
}

#[test]
fn an_operator_s_wish_is_met_by_a_crash_and_lets_another_version_in() {
    let mut story = Story::running();
    story.happens(Event::RestartsWanted(1), "ask", Phase::Running);
    story.answers(Word::Refused, "", Phase::Running);
    story.happens(crash(), "store, orphans 1", Phase::NoVersion);
    story.happens(run(2, "1.1.0"), "start 1.1.0, store", Phase::Starting);
    assert_eq!(story.machine.report().operator_restarts, 1);
}

#[test]
fn restarts_that_were_wanted_before_the_start_are_met_by_it() {
    let before = Record { operator_restarts: 3, ..Record::default() };
    let mut story = Story::from(before, false, None);
    story.tell(&[
        (0.0, Event::RestartsWanted(4), "", Phase::NoVersion),
        (0.0, plain(), "", Phase::NoVersion),
        (0.1, run(1, "1.0.0"), "start 1.0.0, store", Phase::Starting),
    ]);
    assert_eq!(story.machine.record().operator_restarts, 4);
    // A counter that was begun anew asks for nothing, and its next step does.
    story.happens(Event::RestartsWanted(0), "", Phase::Starting);
    story.happens(serving(), "store", Phase::Running);
    story.happens(Event::RestartsWanted(1), "ask", Phase::Running);
}
