//! The machine server: stopped → starting → running → stopping, and every reason to move.
//!
//! Owns the decisions. Processes, questions, files and clocks are the shell's; the environment and the command line are
//! built in `launch`. A crash is answered by a start within the same step, so that nothing lies between death and exec.
//!
//! | file | owns |
//! |---|---|
//! | `life` | starts and ends, and what an end is followed by |
//! | `wishes` | settings, commands, restarts that are wanted |
//! | `questions` | readiness and permission: what is asked, and what answers mean |
//! | `words` | what others are told |

mod life;
mod questions;
mod wishes;
mod words;

use std::{rc::Rc, time::Duration};

use api::device_config::{Advanced, ServerLimits};
use board::{
    Mono, Wall,
    process::{Exit, ProcessId},
};

use super::{
    Command, Program, WindowState,
    pending::{Patience, Pending},
    permission::Answer,
    readiness::Serving,
    record::{Record, Recorded},
};
use crate::kit::backoff::Backoff;

/// The first question to a machine server that was just started.
const FIRST_PROBE: Duration = Duration::from_millis(250);

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
    /// Who the device is now, see [`super::launch::fingerprint_of`]; 0 where it is nobody.
    Identity(u64),
    /// Answers [`Effect::Start`]: it runs.
    Started {
        /// What was started.
        id: ProcessId,
        /// The time before it was: who asked for a restart since then may have spoken with this very process.
        at: Wall,
        /// Who the device was by then, as in [`Event::Identity`].
        identity: u64,
    },
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
    /// Put these limits in force, for what runs and what will be started.
    Limit(ServerLimits),
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
    /// Who the device is, once somebody said so.
    identity: u64,
    /// Limits that were asked for.
    limited: Option<ServerLimits>,
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
            identity: 0,
            limited: None,
            state,
            program: record.program.clone(),
            ran: record.program,
            opening: u64::from(server.is_none()),
            server,
            pending: Pending::resume(record.shut_since),
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
            Event::Identity(identity) => self.identified(identity),
            Event::Started { id, at, identity } => self.started(now, id, at, identity, &mut effects),
            Event::NotStarted(reason) => self.not_started(now, reason, &mut effects),
            Event::Exited(exit) => self.exited(now, exit, &mut effects),
            Event::Serving(serving) => self.serves(now, serving.urls, &mut effects),
            Event::Answered { question, answer } => self.answered(now, question, answer, &mut effects),
            Event::DeadlinePassed => self.deadline_passed(now, &mut effects),
            Event::Stop => self.end(now, &mut effects),
        }
        let shut_since = self.pending.shut_since();
        self.think_about_restart(now, &mut effects);
        if self.pending.shut_since() != shut_since && !effects.contains(&Effect::Store) {
            add(&mut effects, Effect::Store);
        }
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

    /// Limits of the settings in force.
    fn limits(&self) -> ServerLimits {
        self.settings.as_ref().map(|settings| settings.server_limits).unwrap_or_default()
    }

    /// The settings in force.
    #[must_use]
    pub fn settings(&self) -> Option<&Advanced> {
        self.settings.as_deref()
    }
}

fn add(effects: &mut Effects, effect: Effect) {
    let room = effects.push(effect).is_ok();
    debug_assert!(room, "no step asks for more than {} effects", effects.capacity());
}
