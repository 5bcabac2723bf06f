//! Rows for the machine server's machine: what happens, when, and what is done about it.
//!
//! A story is a list of rows `(seconds, what happens, what is done, phase afterwards)`. Time in a story is the machine's
//! own: a row "time" asserts that the machine wanted to be woken exactly then.

use std::{rc::Rc, time::Duration};

use api::device_config::{Advanced, Maintenance, Minutes, ServerLimits, Settings};
use board::{
    Mono, Wall,
    process::{Exit, ProcessId},
};

use super::{
    Command, Phase, Program, WindowState,
    machine::{Effect, Event, Machine, Now, Policy},
    permission::{Answer, Word},
    readiness::Serving,
    record::{Record, Recorded},
};

pub(super) fn settings(environment: &[(&str, &str)]) -> Advanced {
    let environment = environment.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
    Advanced { server_env: environment, ..Rc::unwrap_or_clone(Settings::default().advanced) }
}

const MINUTE: Duration = Duration::from_secs(60);
const BOOT: u64 = 42;
const SERVES: &str = "http://127.0.0.1:8080";

fn program(version: &str) -> Program {
    Program { version: version.into(), path: format!("/opt/{version}").into() }
}

fn set(change: impl FnOnce(&mut Advanced)) -> Event {
    let mut settings = settings(&[]);
    change(&mut settings);
    Event::Settings(Rc::new(settings))
}

fn plain() -> Event {
    set(|_| {})
}

fn disabled() -> Event {
    set(|settings| settings.disable_server = true)
}

fn environment(value: &str) -> Event {
    Event::Settings(Rc::new(settings(&[("GREETING", value)])))
}

fn run(opening: u64, version: &str) -> Event {
    Event::Command(Command::Run { opening, program: Some(program(version)) })
}

fn switch(version: &str) -> Event {
    Event::Command(Command::Switch { program: program(version) })
}

fn back(version: &str) -> Event {
    Event::Command(Command::Back { program: program(version) })
}

fn serving() -> Event {
    Event::Serving(Serving { urls: vec![SERVES.into()] })
}

fn crash() -> Event {
    Event::Exited(Exit::Code(3))
}

/// An operator who sees the new process may ask for a restart before the agent goes on: that wish is later than the start.
#[test]
fn a_start_is_as_old_as_the_decision_to_make_it() {
    let mut machine = Machine::resume(Policy::new(MINUTE, 7), BOOT, Record::default(), false, Now::default());
    let at = |seconds: u32| Now {
        mono: Mono::BOOT + Duration::from_secs(seconds.into()),
        wall: Wall::from_millis(i64::from(seconds) * 1000),
        window: None,
    };
    machine.step(at(1), plain());
    assert_eq!(machine.step(at(2), run(1, "1.0.0"))[..], [Effect::Start(program("1.0.0"))]);
    let id = ProcessId { pid: 1, start_ticks: 100 };
    machine.step(at(9), Event::Started { id, at: at(2).wall, identity: 0 });
    assert_eq!(machine.report().started_at, Some(at(2).wall));
    assert_eq!(machine.record().running.map(|recorded| recorded.started_at), Some(at(2).wall));
}

/// One machine and its clock. Starts succeed at once with the next process number, unless told otherwise.
struct Story {
    machine: Machine,
    /// The calendar at a moment, where one is configured.
    calendar: Option<fn(Wall) -> WindowState>,
    now: Mono,
    /// What the wall clock showed when the story began, in milliseconds.
    epoch: i64,
    next_pid: u32,
    starts_fail: bool,
    limited: bool,
    question: u64,
    /// Who the device is when something is started.
    identity: u64,
}

impl Story {
    fn from(record: Record, adopted: bool, calendar: Option<fn(Wall) -> WindowState>) -> Story {
        let machine = Machine::resume(Policy::new(MINUTE, 7), BOOT, record, adopted, Now::default());
        Story {
            machine,
            calendar,
            now: Mono::BOOT,
            epoch: 0,
            next_pid: 1,
            starts_fail: false,
            limited: false,
            question: 0,
            identity: 0,
        }
    }

    fn new() -> Story {
        Story::from(Record::default(), false, None)
    }

    /// A story in which 1.0.0 runs, has said where it serves, and what it says about itself.
    fn running() -> Story {
        Story::running_as(0)
    }

    /// The same, started with this identity.
    fn running_as(identity: u64) -> Story {
        let mut story = Story { identity, ..Story::new() };
        story.tell(&[
            (0.0, plain(), "", Phase::NoVersion),
            (0.1, run(1, "1.0.0"), "start 1.0.0, store", Phase::Starting),
        ]);
        story.tell(&[(1.0, serving(), "store", Phase::Running)]);
        story.time("ask", Phase::Running);
        story.answers(Word::Allowed, "", Phase::Running);
        story
    }

    fn mono(&self) -> Now {
        let millis = self.epoch + i64::try_from(self.now.as_nanos() / 1_000_000).unwrap();
        let wall = Wall::from_millis(millis);
        Now { mono: self.now, wall, window: self.calendar.map(|calendar| calendar(wall)) }
    }

    fn step(&mut self, event: Event) -> String {
        let mut done = Vec::new();
        let mut next = Some(event);
        while let Some(event) = next.take() {
            for effect in self.machine.step(self.mono(), event) {
                done.push(match effect {
                    // What the system gives by itself is asked for once, by each agent.
                    Effect::Limit(limits) if limits == ServerLimits::default() && !self.limited => continue,
                    Effect::Limit(limits) => {
                        self.limited = true;
                        format!("limit to {:?} MB", limits.memory_max_megabytes.unwrap_or(0))
                    }
                    Effect::Start(program) => {
                        let id = ProcessId { pid: self.next_pid, start_ticks: 100 };
                        self.next_pid += 1;
                        next = Some(match self.starts_fail {
                            true => Event::NotStarted("no such file".into()),
                            false => Event::Started { id, at: self.mono().wall, identity: self.identity },
                        });
                        format!("start {}", program.version)
                    }
                    Effect::Terminate => "term".into(),
                    Effect::Kill => "kill".into(),
                    Effect::EndOrphans(leader) => format!("orphans {}", leader.pid),
                    Effect::Ask { question, .. } => {
                        self.question = question;
                        "ask".into()
                    }
                    Effect::Store => "store".into(),
                });
            }
        }
        done.join(", ")
    }

    /// Rows with absolute seconds.
    #[track_caller]
    fn tell(&mut self, rows: &[(f64, Event, &str, Phase)]) {
        for (seconds, event, done, phase) in rows {
            self.now = self.now.max(Mono::BOOT + Duration::from_secs_f64(*seconds));
            self.happens(event.clone(), done, *phase);
        }
    }

    #[track_caller]
    fn happens(&mut self, event: Event, done: &str, phase: Phase) {
        let what = format!("{event:?}").chars().take(60).collect::<String>();
        assert_eq!(self.step(event), done, "{what} at {:?}", self.now.since(Mono::BOOT));
        assert_eq!(self.machine.report().phase, phase, "{what} at {:?}", self.now.since(Mono::BOOT));
        if let Some(deadline) = self.machine.deadline() {
            assert!(deadline > self.now || self.machine.deadline().is_some(), "{what}");
        }
    }

    /// Lets time pass until the machine wants to be woken.
    #[track_caller]
    fn time(&mut self, done: &str, phase: Phase) {
        let before = self.machine.deadline().expect("the machine waits for something");
        self.now = self.now.max(before);
        self.happens(Event::DeadlinePassed, done, phase);
        assert!(self.machine.deadline().is_none_or(|after| after != before), "the deadline stays where it was");
    }

    #[track_caller]
    fn wait(&mut self, length: Duration) {
        assert!(self.machine.deadline().is_none_or(|at| at > self.now + length), "something happens before");
        self.now = self.now + length;
    }

    #[track_caller]
    fn answers(&mut self, word: Word, done: &str, phase: Phase) {
        let (from, handles) = match word {
            Word::Silent => (None, None),
            _ => (Some(SERVES.into()), Some(false)),
        };
        let answer = Answer { from, word, handles_needs_restart: handles };
        self.happens(Event::Answered { question: self.question, answer }, done, phase);
    }
}

#[test]
fn nothing_starts_before_settings_and_program_are_known() {
    for settings_first in [true, false] {
        let mut story = Story::new();
        let rows = [(0.1, plain(), "", Phase::NoVersion), (0.2, run(1, "1.0.0"), "", Phase::NoVersion)];
        let [first, second] = if settings_first {
            rows
        } else {
            let [a, b] = rows;
            [b, a]
        };
        story.tell(&[first]);
        story.now = story.now + Duration::from_millis(200);
        story.happens(second.1, "start 1.0.0, store", Phase::Starting);
        let report = story.machine.report();
        assert_eq!((report.opening, report.program), (1, Some(program("1.0.0"))));
        assert_eq!(report.process, Some(ProcessId { pid: 1, start_ticks: 100 }));
    }
}

#[test]
fn an_opening_that_is_not_answered_runs_what_ran_before() {
    let before = Record { program: Some(program("0.9.0")), ..Record::default() };
    let mut story = Story::from(before, false, None);
    story.tell(&[(0.0, plain(), "", Phase::NoVersion)]);
    story.time("start 0.9.0, store", Phase::Starting);
    assert_eq!(story.now.since(Mono::BOOT), Duration::from_secs(2));
    // Late, and it names another: that one has to wait for permission.
    story.tell(&[(3.0, run(1, "1.0.0"), "", Phase::Starting), (4.0, serving(), "store, ask", Phase::Running)]);
    assert_eq!(
        story.machine.report().restart_pending,
        "version 1.0.0 is to run; waiting for the machine server's permission"
    );
    story.answers(Word::Allowed, "term", Phase::Stopping);
    story.happens(crash(), "start 1.0.0, orphans 1, store", Phase::Starting);
    assert_eq!(story.machine.report().restart_pending, "");
}

#[test]
fn an_update_check_before_the_start_is_waited_for() {
    let before = Record { program: Some(program("0.9.0")), ..Record::default() };
    let mut story = Story::from(before, false, None);
    story.tell(&[
        (0.0, plain(), "", Phase::NoVersion),
        (0.5, Event::Command(Command::Hold { opening: 0 }), "", Phase::NoVersion),
        (0.5, Event::Command(Command::Hold { opening: 1 }), "", Phase::NoVersion),
        (600.0, run(1, "1.0.0"), "start 1.0.0, store", Phase::Starting),
    ]);
}

#[test]
fn without_any_version_it_waits_for_the_first() {
    let mut story = Story::new();
    story.tell(&[
        (0.0, plain(), "", Phase::NoVersion),
        (0.1, Event::Command(Command::Run { opening: 1, program: None }), "", Phase::NoVersion),
    ]);
    assert_eq!(story.machine.deadline(), None);
    story.tell(&[(500.0, run(1, "1.0.0"), "start 1.0.0, store", Phase::Starting)]);
}

#[test]
fn readiness_is_said_or_found_by_asking() {
    let mut story = Story::new();
    story.tell(&[(0.0, plain(), "", Phase::NoVersion), (0.0, run(1, "1.0.0"), "start 1.0.0, store", Phase::Starting)]);
    for _ in 0..5 {
        story.time("ask", Phase::Starting);
        story.answers(Word::Silent, "", Phase::Starting);
    }
    story.time("ask", Phase::Starting);
    story.answers(Word::Refused, "store", Phase::Running);
    assert_eq!(story.machine.report().url, SERVES);
    assert_eq!(story.machine.deadline(), None, "a healthy server costs no wake-up");
    // A line names better addresses later.
    story.happens(Event::Serving(Serving { urls: vec!["https://better".into()] }), "store", Phase::Running);
    assert_eq!(story.machine.report().url, "https://better");
    story.happens(Event::Serving(Serving { urls: vec!["https://better".into()] }), "", Phase::Running);
}

#[test]
fn an_answer_meant_for_a_dead_server_means_nothing() {
    let mut story = Story::new();
    story.tell(&[(0.0, plain(), "", Phase::NoVersion), (0.0, run(1, "1.0.0"), "start 1.0.0, store", Phase::Starting)]);
    story.time("ask", Phase::Starting);
    story.happens(crash(), "start 1.0.0, orphans 1, store", Phase::Starting);
    story.answers(Word::Allowed, "", Phase::Starting);
    let old = story.question;
    story.time("ask", Phase::Starting);
    story.question = old;
    story.answers(Word::Allowed, "", Phase::Starting);
}

#[test]
fn the_first_crash_restarts_at_once_and_later_ones_wait_longer_up_to_the_cap() {
    let mut story = Story::running();
    story.happens(crash(), "start 1.0.0, orphans 1, store", Phase::Starting);
    let mut pid = 2;
    let mut waits = Vec::new();
    for _ in 0..10 {
        story.happens(crash(), &format!("store, orphans {pid}"), Phase::WaitingToRestart);
        let died = story.now;
        story.time("start 1.0.0, store", Phase::Starting);
        waits.push(story.now.since(died));
        pid += 1;
    }
    assert!(waits[0] <= Duration::from_secs(1));
    assert!(waits.iter().all(|wait| *wait <= Duration::from_secs(60)));
    assert!(waits[9] >= Duration::from_secs(30), "{waits:?}");
    let report = story.machine.report();
    assert_eq!((report.crashes, report.crashes_of_program, report.last_exit.as_str()), (11, 11, "exit code 3"));
    // Stable for five minutes: the next crash is the first again.
    story.happens(serving(), "store", Phase::Running);
    story.time("ask", Phase::Running);
    story.answers(Word::Allowed, "", Phase::Running);
    story.wait(MINUTE * 5);
    story.happens(crash(), &format!("start 1.0.0, orphans {pid}, store"), Phase::Starting);
}

#[test]
fn what_cannot_be_started_is_tried_again_with_back_off() {
    let mut story = Story::new();
    story.starts_fail = true;
    story.tell(&[
        (0.0, plain(), "", Phase::NoVersion),
        (0.0, run(1, "1.0.0"), "start 1.0.0, store", Phase::WaitingToRestart),
    ]);
    story.time("start 1.0.0, store", Phase::WaitingToRestart);
    assert_eq!(story.machine.report().last_exit, "no such file");
    assert_eq!(story.machine.report().crashes_of_program, 2);
    // A better version needs nobody's permission then.
    story.starts_fail = false;
    story.happens(switch("1.1.0"), "start 1.1.0, store", Phase::Starting);
    assert_eq!(story.machine.report().crashes_of_program, 0);
    assert_eq!(story.machine.report().crashes, 2);
}

#[test]
fn who_does_not_get_ready_is_killed_with_its_group_and_started_again() {
    let mut story = Story::new();
    let short = set(|settings| settings.server_start_timeout = Minutes(1));
    story.tell(&[(0.0, short, "", Phase::NoVersion), (0.0, run(1, "1.0.0"), "start 1.0.0, store", Phase::Starting)]);
    loop {
        story.now = story.machine.deadline().unwrap();
        match story.step(Event::DeadlinePassed).as_str() {
            "ask" => story.answers(Word::Silent, "", Phase::Starting),
            "kill" => break,
            other => panic!("{other}"),
        }
    }
    assert_eq!(story.now.since(Mono::BOOT), MINUTE);
    assert_eq!(story.machine.report().phase, Phase::Stopping);
    story.happens(Event::Exited(Exit::Signal(9)), "start 1.0.0, orphans 1, store", Phase::Starting);
    let report = story.machine.report();
    assert_eq!((report.crashes, report.last_exit.as_str()), (1, "not ready 1 minutes after its start: killed"));
}

#[test]
fn disabling_stops_ours_and_enabling_starts_it() {
    let mut story = Story::running();
    story.happens(disabled(), "term", Phase::Stopping);
    story.happens(Event::Exited(Exit::Code(0)), "store, orphans 1", Phase::Disabled);
    assert_eq!(story.machine.deadline(), None);
    assert_eq!(story.machine.report().crashes, 0, "asked to end is no crash");
    story.happens(environment("hi"), "ask", Phase::WaitingToRestart);
    story.answers(Word::Silent, "start 1.0.0, store", Phase::Starting);

    // Changed mind while stopping.
    story.happens(disabled(), "term", Phase::Stopping);
    story.happens(plain(), "", Phase::Stopping);
    story.happens(Event::Exited(Exit::Code(0)), "start 1.0.0, orphans 2, store", Phase::Starting);

    // While it waits after a crash there is nothing to stop.
    story.happens(crash(), "start 1.0.0, orphans 3, store", Phase::Starting);
    story.happens(crash(), "store, orphans 4", Phase::WaitingToRestart);
    story.happens(disabled(), "", Phase::Disabled);
    story.happens(run(1, "2.0.0"), "", Phase::Disabled);
    story.happens(plain(), "ask", Phase::WaitingToRestart);
    story.answers(Word::Silent, "start 2.0.0, store", Phase::Starting);
}

#[test]
fn a_stranger_that_took_its_place_meanwhile_is_reported_and_left_alone() {
    let mut story = Story::running();
    story.happens(disabled(), "term", Phase::Stopping);
    story.happens(Event::Exited(Exit::Code(0)), "store, orphans 1", Phase::Disabled);
    story.happens(plain(), "ask", Phase::WaitingToRestart);
    for _ in 0..3 {
        story.answers(Word::Refused, "", Phase::WaitingToRestart);
        let report = story.machine.report();
        assert!(report.restart_pending.contains("did not start answers at http://127.0.0.1:8080"));
        assert_eq!(report.process, None);
        story.time("ask", Phase::WaitingToRestart);
    }
    story.answers(Word::Silent, "start 1.0.0, store", Phase::Starting);
    assert_eq!(story.machine.report().restart_pending, "");
}

#[test]
fn who_ignores_sigterm_is_killed_after_the_limit() {
    let mut story = Story::running();
    story.happens(disabled(), "term", Phase::Stopping);
    let asked = story.now;
    story.time("kill", Phase::Stopping);
    assert_eq!(story.now.since(asked), Duration::from_secs(120));
    assert_eq!(story.machine.deadline(), None, "SIGKILL cannot be ignored");
    story.happens(Event::Exited(Exit::Signal(9)), "store, orphans 1", Phase::Disabled);
    assert_eq!(story.machine.report().last_exit, "signal 9 (SIGKILL)");
}

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

fn adopted(ready: bool) -> Record {
    Record {
        running: Some(Recorded {
            id: ProcessId { pid: 77, start_ticks: 5 },
            boot: BOOT,
            started_at: Wall::from_millis(-1000),
            ready_at: ready.then_some(Wall::from_millis(-500)),
            environment: super::launch::fingerprint(&settings(&[])),
            identity: 5,
            urls: vec![SERVES.into()],
        }),
        program: Some(program("1.0.0")),
        starts: 9,
        crashes: 7,
        crashes_of_program: 2,
        operator_restarts: 3,
        shut_since: None,
    }
}

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

fn megabytes(limit: u32) -> Event {
    set(move |settings| settings.server_limits.memory_max_megabytes = Some(limit))
}

#[test]
fn limits_are_put_in_force_before_the_start_and_changed_without_a_restart() {
    let mut story = Story::new();
    story.tell(&[
        (0.1, run(1, "1.0.0"), "", Phase::NoVersion),
        (0.2, megabytes(64), "limit to 64 MB, start 1.0.0, store", Phase::Starting),
        (1.0, serving(), "store", Phase::Running),
        (2.0, megabytes(64), "", Phase::Running),
        (3.0, megabytes(32), "limit to 32 MB", Phase::Running),
        (4.0, Event::Exited(Exit::OutOfMemory), "start 1.0.0, orphans 1, store", Phase::Starting),
    ]);
    let report = story.machine.report();
    assert_eq!((report.crashes, &*report.last_exit), (1, "killed for want of memory: memory_max_megabytes is 32"));
    story.tell(&[(5.0, plain(), "limit to 0 MB", Phase::Starting)]);
    story.step(Event::Exited(Exit::OutOfMemory));
    assert_eq!(story.machine.report().last_exit, "killed for want of memory: the machine had none left");
}

#[test]
fn stopping_the_agent_stops_the_server() {
    let mut story = Story::running();
    story.happens(Event::Stop, "term", Phase::Stopping);
    assert!(!story.machine.has_ended());
    story.time("kill", Phase::Stopping);
    story.happens(Event::Exited(Exit::Signal(9)), "store, orphans 1", Phase::Stopping);
    assert!(story.machine.has_ended());
    assert_eq!(story.machine.record().running, None);

    for nothing_runs in [
        vec![],
        vec![plain()],
        vec![disabled()],
        vec![disabled(), plain()],
        vec![plain(), run(1, "1.0.0"), crash(), crash()],
    ] {
        let mut story = Story::new();
        for event in nothing_runs {
            story.step(event);
        }
        story.happens(Event::Stop, "", Phase::Stopping);
        assert!(story.machine.has_ended());
    }

    // While it is being restarted, the restart is over.
    let mut story = Story::running();
    story.happens(environment("hi"), "ask", Phase::Running);
    story.answers(Word::Allowed, "term", Phase::Stopping);
    story.happens(Event::Stop, "", Phase::Stopping);
    story.happens(disabled(), "", Phase::Stopping);
    story.happens(plain(), "", Phase::Stopping);
    story.happens(Event::Exited(Exit::Code(0)), "store, orphans 1", Phase::Stopping);
    assert!(story.machine.has_ended());
}

#[test]
fn whatever_happens_one_process_runs_at_most_and_time_never_stands() {
    // Not a story: every short sequence of events from a small alphabet, with the invariants after each step.
    let alphabet: [fn(&Story) -> Event; 12] = [
        |_| plain(),
        |_| disabled(),
        |_| environment("hi"),
        |story| run(story.machine.report().opening, "1.0.0"),
        |_| switch("1.1.0"),
        |_| back("1.0.0"),
        |story| Event::RestartsWanted(story.machine.report().operator_restarts + 1),
        |_| crash(),
        |_| serving(),
        |story| Event::Answered {
            question: story.question,
            answer: Answer { from: Some(SERVES.into()), word: Word::Allowed, handles_needs_restart: None },
        },
        |story| Event::Answered { question: story.question, answer: Answer::SILENCE },
        |_| Event::DeadlinePassed,
    ];
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    for seed in 0..2_000_u64 {
        let mut story = if seed % 3 == 0 { Story::from(adopted(seed % 2 == 0), true, None) } else { Story::new() };
        let mut alive = story.machine.report().process.is_some();
        for _ in 0..60 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let event = alphabet[usize::try_from(random >> 33).unwrap() % alphabet.len()](&story);
            if matches!(event, Event::Exited(_)) {
                if !alive {
                    continue;
                }
                alive = false;
            }
            if matches!(event, Event::DeadlinePassed) {
                let Some(deadline) = story.machine.deadline() else { continue };
                story.now = story.now.max(deadline);
                let done = story.step(event);
                assert!(done.contains("start") || story.machine.deadline() != Some(deadline), "seed {seed}: {done}");
                assert!(!(done.contains("start") && alive), "seed {seed}: two at once");
                alive |= done.contains("start");
            } else {
                let done = story.step(event);
                assert!(!(done.contains("start") && alive), "seed {seed}: two at once");
                alive |= done.contains("start");
            }
            assert_eq!(story.machine.report().process.is_some(), alive, "seed {seed}");
        }
    }
}
