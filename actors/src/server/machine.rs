//! The machine server: stopped → starting → running → stopping, and every reason to move.
//!
//! Owns the decisions. Processes, questions, files and clocks are the shell's; the environment and the command line are
//! built in `launch`. A crash is answered by a start within the same step, so that nothing lies between death and exec.

use std::{rc::Rc, time::Duration};

use api::device_config::Advanced;
use board::{
    Mono, Wall,
    process::{Exit, ProcessId},
};

use super::{
    Command, Phase, Program, Report, WindowState,
    launch::{fingerprint, status_url},
    pending::{Patience, Pending, Rules, Situation, Verdict},
    permission::Answer,
    readiness::Serving,
    record::{Note, Record, Recorded},
};
use crate::kit::backoff::Backoff;

/// The first question to a machine server that was just started.
const FIRST_PROBE: Duration = Duration::from_millis(250);
/// The longest pause between questions to one that does not answer yet.
const PROBE_PAUSE_MAX: Duration = Duration::from_secs(5);
/// How often a ready one is asked whether it looks after restarts itself, until it says so.
const INTRODUCTIONS: u8 = 3;
/// What a machine server is asked to end with.
const SIGTERM: i32 = 15;

/// Limits and lengths of time.
#[derive(Clone, Debug)]
pub struct Policy {
    /// How long a minute is; shorter for tests.
    pub minute: Duration,
    /// From SIGTERM to SIGKILL: two minutes.
    pub stop_limit: Duration,
    /// How long the update actor may take to answer an opening before what ran last is started.
    pub answer_limit: Duration,
    /// The same after it asked for more time: 1 minute for a network, 10 for check and download, 1 spare.
    pub hold_limit: Duration,
    /// The second crash in a row waits for about this long, the next ones twice as long as before.
    pub backoff_first: Duration,
    /// No crash waits longer.
    pub backoff_max: Duration,
    /// A machine server that lived this long had not crashed in a row.
    pub stable: Duration,
    /// Patience with operators and silence.
    pub patience: Patience,
    /// Differs per device.
    pub seed: u64,
}

impl Policy {
    /// The usual lengths, where a minute lasts `minute`.
    #[must_use]
    pub fn new(minute: Duration, seed: u64) -> Self {
        Policy {
            minute,
            stop_limit: minute * 2,
            answer_limit: Duration::from_secs(2),
            hold_limit: Duration::from_secs(12 * 60),
            backoff_first: Duration::from_secs(1),
            backoff_max: Duration::from_secs(60),
            stable: minute * 5,
            patience: Patience { with_silence: minute * 15, of_operator: minute * 15, ask_again: minute / 6 },
            seed,
        }
    }
}

/// Both clocks, and what the calendar says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Now {
    /// For deadlines.
    pub mono: Mono,
    /// For people.
    pub wall: Wall,
    /// The maintenance windows of the settings, these the newest; `None` when none is configured.
    pub window: Option<WindowState>,
}

/// What can happen.
#[derive(Clone, Debug)]
pub enum Event {
    /// The settings in force.
    Settings(Rc<Advanced>),
    /// The update actor says something.
    Command(Command),
    /// Restarts that operators have asked for, counted.
    RestartsWanted(u64),
    /// Answers [`Effect::Start`]: it runs.
    Started(ProcessId),
    /// Answers [`Effect::Start`]: it does not.
    NotStarted(String),
    /// The process has ended.
    Exited(Exit),
    /// It announced where it serves.
    Serving(Serving),
    /// Answers [`Effect::Ask`].
    Answered {
        /// Which question.
        question: u64,
        /// What came back.
        answer: Answer,
    },
    /// Time has come for something.
    DeadlinePassed,
    /// The agent ends, and the machine server with it.
    Stop,
}

/// What is to be done, in this order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Start this; the answer comes before any other event.
    Start(Program),
    /// SIGTERM to the leader.
    Terminate,
    /// SIGKILL to the group.
    Kill,
    /// End what the leader left behind.
    EndOrphans(ProcessId),
    /// Ask `/restart_status` at these addresses, the first answer counts.
    Ask {
        /// Told back with the answer.
        question: u64,
        /// Where.
        urls: Vec<String>,
    },
    /// Write [`Machine::record`].
    Store,
}

/// No step asks for more: a death is followed by a start, the end of its orphans, a record and a question.
pub type Effects = heapless::Vec<Effect, 6>;

#[derive(Clone, Debug, PartialEq, Eq)]
enum State {
    /// Stands still until the update actor has said what to run.
    Opening {
        /// What ran last is started then.
        answer_by: Option<Mono>,
        /// It is known what to run, but not yet how: there are no settings.
        answered: bool,
    },
    NoVersion,
    Disabled,
    /// Enabled again: looks whether somebody else has taken its place meanwhile.
    Looking {
        /// Asked then; `None` while an answer is on its way.
        ask_at: Option<Mono>,
        /// This address was answered by whom nobody here started.
        foreign: Option<String>,
    },
    /// A start was asked for; its answer is the next event.
    Launching,
    Starting {
        /// Not ready then: killed.
        kill_at: Mono,
        /// Asked then; `None` while an answer is on its way.
        probe_at: Option<Mono>,
        probes: u32,
    },
    Running {
        /// Asked then whether it looks after restarts itself.
        introduce_at: Option<Mono>,
        introductions: u8,
    },
    Stopping {
        then: Then,
        kill_at: Option<Mono>,
        /// Its end was announced as a failed start already.
        timed_out: bool,
    },
    Waiting {
        until: Mono,
    },
    Ended,
}

/// What comes after the end of a process that was asked to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Then {
    StartAgain,
    Open,
    Disable,
    End,
}

/// The process that runs.
#[derive(Clone, Debug)]
struct Server {
    recorded: Recorded,
    /// Since when it is known to live.
    since: Mono,
}

/// The decisions about one machine server.
pub struct Machine {
    policy: Policy,
    boot: u64,
    settings: Option<Rc<Advanced>>,
    /// Fingerprint of the environment in the settings.
    environment: u64,
    state: State,
    /// Runs, or will be started next.
    program: Option<Program>,
    /// Was started last.
    ran: Option<Program>,
    server: Option<Server>,
    opening: u64,
    pending: Pending,
    restarts_wanted: u64,
    operator_restarts: u64,
    starts: u64,
    crashes: u64,
    crashes_of_program: u64,
    backoff: Backoff,
    /// The next crash is the first in a row.
    first_crash: bool,
    question: u64,
    asking: bool,
    handles_needs_restart: bool,
    last_exit: String,
}

impl Machine {
    /// Continues where the last agent stopped. `boot` is the fingerprint of this boot; `adopted` says that the recorded
    /// process lives and is watched.
    #[must_use]
    pub fn resume(policy: Policy, boot: u64, record: Record, adopted: bool, now: Now) -> Machine {
        let backoff = Backoff::new(policy.backoff_first, policy.backoff_max, policy.seed);
        let server = record.running.filter(|_| adopted).map(|recorded| Server { recorded, since: now.mono });
        let state = match &server {
            None => State::Opening { answer_by: Some(now.mono + policy.answer_limit), answered: false },
            Some(server) if server.recorded.ready_at.is_some() => {
                State::Running { introduce_at: Some(now.mono), introductions: 0 }
            }
            // How long it may still take is in settings that are not known yet.
            Some(_) => State::Starting { kill_at: Mono::NEVER, probe_at: Some(now.mono + FIRST_PROBE), probes: 0 },
        };
        Machine {
            boot,
            settings: None,
            environment: 0,
            state,
            program: record.program.clone(),
            ran: record.program,
            opening: u64::from(server.is_none()),
            server,
            pending: Pending::default(),
            restarts_wanted: record.operator_restarts,
            operator_restarts: record.operator_restarts,
            starts: record.starts,
            crashes: record.crashes,
            crashes_of_program: record.crashes_of_program,
            backoff,
            first_crash: true,
            question: 0,
            asking: false,
            handles_needs_restart: false,
            last_exit: String::new(),
            policy,
        }
    }

    /// The only place where anything changes.
    pub fn step(&mut self, now: Now, event: Event) -> Effects {
        let mut effects = Effects::new();
        match event {
            Event::Settings(settings) => self.settings_changed(now, settings, &mut effects),
            Event::Command(command) => self.commanded(now, command, &mut effects),
            Event::RestartsWanted(wanted) => self.restarts_wanted(now, wanted),
            Event::Started(id) => self.started(now, id, &mut effects),
            Event::NotStarted(reason) => self.not_started(now, reason, &mut effects),
            Event::Exited(exit) => self.exited(now, exit, &mut effects),
            Event::Serving(serving) => self.serves(now, serving.urls, &mut effects),
            Event::Answered { question, answer } => self.answered(now, question, answer, &mut effects),
            Event::DeadlinePassed => self.deadline_passed(now, &mut effects),
            Event::Stop => self.end(now, &mut effects),
        }
        self.think_about_restart(now, &mut effects);
        effects
    }

    /// The moment at which time alone would change something.
    #[must_use]
    pub fn deadline(&self) -> Option<Mono> {
        let own = match &self.state {
            State::Opening { answer_by, .. } => *answer_by,
            // An adopted server cannot be asked before it is known where.
            State::Starting { .. } | State::Running { .. } if self.settings.is_none() => None,
            State::Starting { kill_at, probe_at, .. } => {
                Some(probe_at.map_or(*kill_at, |probe_at| probe_at.min(*kill_at))).filter(|at| *at != Mono::NEVER)
            }
            State::Running { introduce_at, .. } => introduce_at.filter(|_| !self.asking),
            State::Stopping { kill_at, .. } => *kill_at,
            State::Waiting { until } => Some(*until),
            State::Looking { ask_at, .. } => *ask_at,
            State::NoVersion | State::Disabled | State::Launching | State::Ended => None,
        };
        [own, self.pending.deadline()].into_iter().flatten().min()
    }

    /// Nothing runs any more and nothing will.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.state == State::Ended
    }

    /// The settings in force.
    #[must_use]
    pub fn settings(&self) -> Option<&Advanced> {
        self.settings.as_deref()
    }

    /// What the next agent must know.
    #[must_use]
    pub fn record(&self) -> Record {
        Record {
            running: self.server.as_ref().map(|server| server.recorded.clone()),
            program: self.ran.clone(),
            starts: self.starts,
            crashes: self.crashes,
            crashes_of_program: self.crashes_of_program,
            operator_restarts: self.operator_restarts,
        }
    }

    /// What [`Machine::record`] will say when `program` has been started now.
    #[must_use]
    pub fn note(&self, program: Program, wall: Wall) -> Note {
        Note {
            crashes_of_program: if self.ran.as_ref() == Some(&program) { self.crashes_of_program } else { 0 },
            program,
            started_at: wall,
            environment: self.environment,
            starts: self.starts + 1,
            crashes: self.crashes,
            operator_restarts: self.restarts_wanted,
        }
    }

    /// See [`Report::crashes`].
    #[must_use]
    pub const fn crashes(&self) -> u64 {
        self.crashes
    }

    /// What others may know.
    #[must_use]
    pub fn report(&self) -> Report {
        let recorded = self.server.as_ref().map(|server| &server.recorded);
        Report {
            phase: match self.state {
                State::Opening { .. } | State::NoVersion => Phase::NoVersion,
                State::Disabled => Phase::Disabled,
                State::Looking { .. } => Phase::WaitingToRestart,
                State::Launching | State::Starting { .. } => Phase::Starting,
                State::Running { .. } => Phase::Running,
                State::Stopping { .. } | State::Ended => Phase::Stopping,
                State::Waiting { .. } => Phase::WaitingToRestart,
            },
            opening: self.opening,
            program: self.ran.clone(),
            process: recorded.map(|recorded| recorded.id),
            started_at: recorded.map(|recorded| recorded.started_at),
            ready_at: recorded.and_then(|recorded| recorded.ready_at),
            crashes: self.crashes,
            crashes_of_program: self.crashes_of_program,
            last_exit: self.last_exit.clone(),
            last_lines: Vec::new(),
            trouble: Vec::new(),
            restart_pending: match &self.state {
                State::Looking { foreign: Some(url), .. } => {
                    format!("not started: a program that this agent did not start answers at {url}; stop that one")
                }
                _ => self.pending.sentence(),
            },
            url: recorded.and_then(|recorded| recorded.urls.first()).cloned().unwrap_or_default(),
            operator_restarts: self.operator_restarts,
            handles_needs_restart: self.handles_needs_restart,
        }
    }

    fn settings_changed(&mut self, now: Now, settings: Rc<Advanced>, effects: &mut Effects) {
        let disabled = settings.disable_server;
        if let (State::Starting { kill_at, .. }, Some(server)) = (&mut self.state, &self.server) {
            // Adopted while starting: counted from the adoption.
            *kill_at = server.since + settings.server_start_timeout.times(self.policy.minute);
        }
        self.environment = fingerprint(&settings);
        self.settings = Some(settings);
        match (&mut self.state, disabled) {
            (State::Starting { .. } | State::Running { .. }, true) => self.stop(now, Then::Disable, effects),
            (State::Stopping { then: then @ (Then::StartAgain | Then::Open), .. }, true) => *then = Then::Disable,
            (State::Opening { .. } | State::NoVersion | State::Waiting { .. } | State::Looking { .. }, true) => {
                self.state = State::Disabled;
            }
            (State::Disabled, false) => {
                self.state = State::Looking { ask_at: None, foreign: None };
                self.ask(effects);
            }
            (State::Opening { answered: true, .. }, false) => self.begin(effects),
            (State::Stopping { then: then @ Then::Disable, .. }, false) => *then = Then::StartAgain,
            (
                State::Opening { .. }
                | State::NoVersion
                | State::Disabled
                | State::Looking { .. }
                | State::Launching
                | State::Starting { .. }
                | State::Running { .. }
                | State::Stopping { .. }
                | State::Waiting { .. }
                | State::Ended,
                _,
            ) => {}
        }
    }

    fn commanded(&mut self, now: Now, command: Command, effects: &mut Effects) {
        match command {
            Command::Hold { opening } => {
                if let State::Opening { answer_by: Some(answer_by), .. } = &mut self.state
                    && opening == self.opening
                {
                    *answer_by = now.mono + self.policy.hold_limit;
                }
            }
            Command::Run { opening, .. } if opening != self.opening => {}
            Command::Run { program, .. } => match self.state {
                State::Opening { .. } | State::NoVersion => {
                    self.program = program;
                    self.begin(effects);
                }
                State::Disabled | State::Looking { .. } => self.program = program,
                // An adopted server was no opening; otherwise the answer came too late to be had without asking.
                State::Launching
                | State::Starting { .. }
                | State::Running { .. }
                | State::Stopping { .. }
                | State::Waiting { .. } => {
                    if let Some(program) = program.filter(|_| self.opening > 0) {
                        self.switch(program, false);
                    }
                }
                State::Ended => {}
            },
            Command::Switch { program } => self.other(program, false, effects),
            Command::Back { program } => self.other(program, true, effects),
        }
    }

    /// Another program is to run: the next one that is started, or instead of the one that runs.
    fn other(&mut self, program: Program, back: bool, effects: &mut Effects) {
        match self.state {
            State::Opening { .. } | State::NoVersion | State::Disabled | State::Looking { .. } => {
                self.program = Some(program);
                if self.state == State::NoVersion {
                    self.begin(effects);
                }
            }
            _ => self.switch(program, back),
        }
    }

    /// Wants `program` to run, unless that is what runs.
    fn switch(&mut self, program: Program, back: bool) {
        self.pending.switch = Some(program).filter(|program| self.program.as_ref() != Some(program));
        self.pending.back = back;
    }

    fn restarts_wanted(&mut self, now: Now, wanted: u64) {
        self.restarts_wanted = wanted;
        // A counter that went back was begun anew: what was wanted before is over.
        self.operator_restarts = self.operator_restarts.min(wanted);
        if wanted > self.operator_restarts {
            self.pending.operator.get_or_insert(now.mono);
        } else {
            self.pending.operator = None;
        }
    }

    /// Starts what is to run, if anything is and may.
    fn begin(&mut self, effects: &mut Effects) {
        self.state = match (&self.settings, &self.program) {
            (None, _) => State::Opening { answer_by: None, answered: true },
            (Some(settings), _) if settings.disable_server => State::Disabled,
            (Some(_), None) => State::NoVersion,
            (Some(_), Some(program)) => {
                add(effects, Effect::Start(program.clone()));
                State::Launching
            }
        };
    }

    fn started(&mut self, now: Now, id: ProcessId, effects: &mut Effects) {
        if self.ran != self.program {
            self.crashes_of_program = 0;
        }
        self.ran = self.program.clone();
        self.starts += 1;
        let Some(settings) = &self.settings else { return };
        self.server = Some(Server {
            recorded: Recorded {
                id,
                boot: self.boot,
                started_at: now.wall,
                ready_at: None,
                environment: self.environment,
                urls: Vec::new(),
            },
            since: now.mono,
        });
        self.state = State::Starting {
            kill_at: now.mono + settings.server_start_timeout.times(self.policy.minute),
            probe_at: Some(now.mono + FIRST_PROBE),
            probes: 0,
        };
        // A start answers every wish for one, an operator's too.
        self.operator_restarts = self.restarts_wanted;
        self.pending.operator = None;
        let program = &self.program;
        self.pending.switch.take_if(|wanted| Some(&*wanted) == program.as_ref());
        self.pending.forget_words();
        self.handles_needs_restart = false;
        add(effects, Effect::Store);
    }

    fn not_started(&mut self, now: Now, reason: String, effects: &mut Effects) {
        if self.ran != self.program {
            self.crashes_of_program = 0;
        }
        self.ran = self.program.clone();
        self.count_crash(reason);
        self.first_crash = false;
        self.state = State::Waiting { until: now.mono + self.backoff.next_delay() };
        add(effects, Effect::Store);
    }

    fn count_crash(&mut self, how: String) {
        self.crashes += 1;
        self.crashes_of_program += 1;
        self.last_exit = how;
    }

    fn exited(&mut self, now: Now, exit: Exit, effects: &mut Effects) {
        let Some(server) = self.server.take() else { return };
        self.asking = false;
        self.pending.forget_words();
        match self.state {
            State::Stopping { then, timed_out, .. } => {
                // An end as asked is no news; it would hide the reason of the last crash.
                if !timed_out && !matches!(exit, Exit::Code(0) | Exit::Signal(SIGTERM)) {
                    self.last_exit = describe(exit);
                }
                match then {
                    Then::Open => self.open(now),
                    Then::StartAgain if self.pending.operator.is_some() => self.open(now),
                    // Dead now, so that the other version may be let in instead.
                    Then::StartAgain if self.pending.switch.is_some() => {
                        self.state = State::Waiting { until: now.mono }
                    }
                    Then::StartAgain => self.begin(effects),
                    Then::Disable => self.state = State::Disabled,
                    Then::End => self.state = State::Ended,
                }
            }
            _ => {
                self.count_crash(describe(exit));
                if now.mono.since(server.since) >= self.policy.stable {
                    self.backoff.reset();
                    self.first_crash = true;
                }
                if self.pending.operator.is_some() {
                    self.open(now);
                } else if self.pending.back && self.pending.switch.is_some() {
                    // Dead now, so that the version before it may be let in instead.
                    self.state = State::Waiting { until: now.mono };
                } else if std::mem::take(&mut self.first_crash) {
                    self.begin(effects);
                } else {
                    self.state = State::Waiting { until: now.mono + self.backoff.next_delay() };
                }
            }
        }
        if self.state != State::Launching {
            // A start stores by itself, once it has happened.
            add(effects, Effect::Store);
        }
        add(effects, Effect::EndOrphans(server.recorded.id));
    }

    /// Stands still for the update actor to say what to run.
    fn open(&mut self, now: Now) {
        self.opening += 1;
        self.pending.operator = None;
        self.pending.forget_words();
        self.state = State::Opening { answer_by: Some(now.mono + self.policy.answer_limit), answered: false };
    }

    fn serves(&mut self, now: Now, urls: Vec<String>, effects: &mut Effects) {
        let Some(server) = &mut self.server else { return };
        let news = server.recorded.urls != urls;
        server.recorded.urls = urls;
        if let State::Starting { .. } = self.state {
            server.recorded.ready_at = Some(now.wall);
            self.state = State::Running { introduce_at: Some(now.mono), introductions: 0 };
        } else if !news {
            return;
        }
        add(effects, Effect::Store);
    }

    fn answered(&mut self, now: Now, question: u64, answer: Answer, effects: &mut Effects) {
        if !self.asking || question != self.question {
            return;
        }
        self.asking = false;
        if let Some(handles) = answer.handles_needs_restart {
            self.handles_needs_restart = handles;
        }
        self.pending.answered(now.mono, answer.word, &self.policy.patience);
        match &mut self.state {
            State::Starting { probe_at, probes, .. } => match answer.from {
                Some(url) => {
                    self.serves(now, vec![url], effects);
                    if let (State::Running { introduce_at, .. }, Some(_)) =
                        (&mut self.state, answer.handles_needs_restart)
                    {
                        *introduce_at = None;
                    }
                }
                None => {
                    *probes += 1;
                    let pause = FIRST_PROBE.saturating_mul(1 << (*probes).min(8)).min(PROBE_PAUSE_MAX);
                    *probe_at = Some(now.mono + pause);
                }
            },
            State::Running { introduce_at, introductions } => {
                let enough = answer.handles_needs_restart.is_some() || *introductions >= INTRODUCTIONS;
                *introduce_at = (!enough).then_some(now.mono + self.policy.patience.ask_again);
            }
            State::Looking { ask_at, foreign } => match answer.from {
                Some(url) => {
                    *foreign = Some(url);
                    *ask_at = Some(now.mono + self.policy.minute);
                }
                None => self.begin(effects),
            },
            _ => {}
        }
    }

    fn deadline_passed(&mut self, now: Now, effects: &mut Effects) {
        let due = |at: Option<Mono>| at.is_some_and(|at| at <= now.mono);
        match &mut self.state {
            State::Opening { answer_by, .. } if due(*answer_by) => self.begin(effects),
            State::Starting { kill_at, .. } if due(Some(*kill_at)) => {
                let limit = self.settings.as_ref().map_or(0, |settings| settings.server_start_timeout.0);
                self.count_crash(format!("not ready {limit} minutes after its start: killed"));
                self.state = State::Stopping { then: Then::StartAgain, kill_at: None, timed_out: true };
                add(effects, Effect::Kill);
            }
            State::Starting { probe_at, .. } if due(*probe_at) => {
                *probe_at = None;
                self.ask(effects);
            }
            State::Running { introduce_at, introductions } if due(*introduce_at) && !self.asking => {
                *introduce_at = None;
                *introductions += 1;
                self.ask(effects);
            }
            State::Stopping { kill_at, .. } if due(*kill_at) => {
                *kill_at = None;
                add(effects, Effect::Kill);
            }
            State::Waiting { until } if due(Some(*until)) => self.begin(effects),
            State::Looking { ask_at, .. } if due(*ask_at) => {
                *ask_at = None;
                self.ask(effects);
            }
            State::Opening { .. }
            | State::NoVersion
            | State::Disabled
            | State::Looking { .. }
            | State::Launching
            | State::Starting { .. }
            | State::Running { .. }
            | State::Stopping { .. }
            | State::Waiting { .. }
            | State::Ended => {}
        }
    }

    /// Asks it to end.
    fn stop(&mut self, now: Now, then: Then, effects: &mut Effects) {
        self.state = State::Stopping { then, kill_at: Some(now.mono + self.policy.stop_limit), timed_out: false };
        add(effects, Effect::Terminate);
    }

    fn end(&mut self, now: Now, effects: &mut Effects) {
        match &mut self.state {
            State::Starting { .. } | State::Running { .. } => self.stop(now, Then::End, effects),
            State::Stopping { then, .. } => *then = Then::End,
            State::Opening { .. }
            | State::NoVersion
            | State::Disabled
            | State::Looking { .. }
            | State::Launching
            | State::Waiting { .. }
            | State::Ended => self.state = State::Ended,
        }
    }

    fn ask(&mut self, effects: &mut Effects) {
        let Some(settings) = &self.settings else { return };
        let mut urls = self.server.as_ref().map(|server| server.recorded.urls.clone()).unwrap_or_default();
        let usual = status_url(settings);
        if !urls.iter().any(|url| url == usual) {
            urls.push(usual.to_owned());
        }
        self.question += 1;
        self.asking = true;
        add(effects, Effect::Ask { question: self.question, urls });
    }

    /// Whether a restart that is wanted may happen now.
    fn think_about_restart(&mut self, now: Now, effects: &mut Effects) {
        let Some(settings) = &self.settings else { return };
        self.pending.environment =
            self.server.as_ref().is_some_and(|server| server.recorded.environment != self.environment);
        let situation = match self.state {
            State::Running { .. } => Situation::Ready,
            State::Starting { .. } if self.crashes_of_program > 0 => Situation::Faltering,
            State::Starting { .. } => Situation::NotReady,
            State::Waiting { .. } => Situation::Dead,
            State::Opening { .. }
            | State::NoVersion
            | State::Disabled
            | State::Looking { .. }
            | State::Launching
            | State::Stopping { .. }
            | State::Ended => Situation::Settled,
        };
        let rules = match &settings.maintenance {
            Some(maintenance) => Rules { window: now.window, word_counts: maintenance.use_server_word },
            None => Rules { window: None, word_counts: true },
        };
        match self.pending.decide(now, situation, rules, &self.policy.patience, self.asking) {
            Verdict::Wait => {}
            Verdict::Ask => self.ask(effects),
            Verdict::Restart => {
                if let Some(program) = self.pending.switch.take() {
                    self.program = Some(program);
                }
                if situation == Situation::Dead {
                    self.begin(effects)
                } else {
                    self.stop(now, Then::StartAgain, effects)
                }
            }
            Verdict::Open => {
                if situation == Situation::Dead {
                    self.open(now)
                } else {
                    self.stop(now, Then::Open, effects)
                }
            }
        }
    }
}

fn add(effects: &mut Effects, effect: Effect) {
    let room = effects.push(effect).is_ok();
    debug_assert!(room, "no step asks for more than {} effects", effects.capacity());
}

/// For people.
fn describe(exit: Exit) -> String {
    match exit {
        Exit::Code(code) => format!("exit code {code}"),
        Exit::Signal(signal) => match signal_name(signal) {
            "" => format!("signal {signal}"),
            name => format!("signal {signal} ({name})"),
        },
        Exit::Unknown => "ended while another agent was its parent: how is not known".to_owned(),
    }
}

const fn signal_name(signal: i32) -> &'static str {
    match signal {
        1 => "SIGHUP",
        2 => "SIGINT",
        3 => "SIGQUIT",
        4 => "SIGILL",
        6 => "SIGABRT",
        8 => "SIGFPE",
        9 => "SIGKILL",
        11 => "SIGSEGV",
        13 => "SIGPIPE",
        SIGTERM => "SIGTERM",
        _ => "",
    }
}
