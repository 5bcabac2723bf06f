//! A machine server that an earlier agent has started.

use super::*;

#[test]
fn an_adopted_server_is_not_restarted_and_is_no_opening() {
    let mut story = Story::from(adopted(true), true, None);
    assert_eq!((story.machine.report().opening, story.machine.deadline()), (0, None));
    story.happens(plain(), "", Phase::Running);
    story.happens(run(0, "1.1.0"), "", Phase::Running);
    story.happens(Event::RestartsWanted(3), "", Phase::Running);
    story.time("ask", Phase::Running);
    story.answers(Word::Allowed, "", Phase::Running);
    let report = story.machine.report();
    assert_eq!((report.crashes, report.url.as_str(), report.program), (7, SERVES, Some(program("1.0.0"))));
    assert_eq!(report.restart_pending, "");
    story.happens(Event::Exited(Exit::Unknown), "start 1.0.0, orphans 77, store", Phase::Starting);
    assert_eq!(story.machine.report().crashes, 8);
}

#[test]
fn one_that_never_got_ready_gives_way_to_another_version_without_being_asked() {
    let minutes = |minutes| set(move |settings| settings.server_start_timeout = Minutes(minutes));
    let started = |story: &mut Story| {
        story.tell(&[
            (0.0, minutes(10), "", Phase::NoVersion),
            (0.1, run(1, "1.1.0"), "start 1.1.0, store", Phase::Starting),
        ]);
    };
    // The wish comes while the killed one ends.
    let mut story = Story::new();
    started(&mut story);
    story.tell(&[
        (30.0, minutes(1), "", Phase::Starting),
        (60.1, Event::DeadlinePassed, "kill", Phase::Stopping),
        (60.1, switch("1.0.0"), "", Phase::Stopping),
        (60.2, Event::Exited(Exit::Signal(9)), "store, orphans 1, start 1.0.0, store", Phase::Starting),
    ]);
    // The wish comes when it has been started again.
    let mut story = Story::new();
    started(&mut story);
    story.tell(&[
        (30.0, minutes(1), "", Phase::Starting),
        (60.1, Event::DeadlinePassed, "kill", Phase::Stopping),
        (60.2, Event::Exited(Exit::Signal(9)), "start 1.1.0, orphans 1, store", Phase::Starting),
        (60.3, switch("1.0.0"), "term", Phase::Stopping),
        (60.4, Event::Exited(Exit::Signal(15)), "start 1.0.0, orphans 2, store", Phase::Starting),
    ]);
    // One that has not failed is given its time.
    let mut story = Story::new();
    started(&mut story);
    story.tell(&[(30.0, switch("1.0.0"), "", Phase::Starting)]);
}

#[test]
fn an_adopted_server_with_another_environment_or_switched_off_meanwhile() {
    let mut story = Story::from(adopted(true), true, None);
    story.happens(environment("hi"), "ask", Phase::Running);
    story.answers(Word::Allowed, "term", Phase::Stopping);

    let mut story = Story::from(adopted(true), true, None);
    story.happens(disabled(), "term", Phase::Stopping);
    story.happens(Event::Exited(Exit::Unknown), "store, orphans 77", Phase::Disabled);
}

#[test]
fn a_server_adopted_while_starting_still_has_a_limit() {
    let mut story = Story::from(adopted(false), true, None);
    assert_eq!(story.machine.deadline(), None, "nobody knows yet where to ask");
    story.happens(plain(), "", Phase::Starting);
    story.time("ask", Phase::Starting);
    loop {
        story.answers(Word::Silent, "", Phase::Starting);
        story.now = story.machine.deadline().unwrap();
        if story.step(Event::DeadlinePassed) == "kill" {
            break;
        }
    }
    assert_eq!(story.now.since(Mono::BOOT), MINUTE * 10);
}

#[test]
fn a_record_of_a_process_that_is_gone_is_an_opening() {
    let mut story = Story::from(adopted(true), false, None);
    assert_eq!((story.machine.report().opening, story.machine.report().process), (1, None));
    story.tell(&[(0.0, plain(), "", Phase::NoVersion), (0.1, run(1, "1.0.0"), "start 1.0.0, store", Phase::Starting)]);
    assert_eq!(story.machine.report().crashes_of_program, 2, "the same program is still judged");
}
