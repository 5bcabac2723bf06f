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

mod adopted;
mod permission;
mod windows;

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
