//! Waits for the machine server, its output and everybody who wants something of it; does what the machine decides.
//!
//! The end of the process is looked at before everything else, and the start that follows it happens in the same turn
//! without waiting for anything.

use std::{cell::Cell, cmp::Reverse, collections::VecDeque, rc::Rc, time::Duration};

use api::{brand, device_config::Advanced};
use board::{
    Clock,
    fetch::Fetch,
    files::Files,
    process::{Limits, Process, ProcessId, Processes, Stream},
};
use smol::{
    LocalExecutor,
    future::{FutureExt as _, poll_once},
};

use super::{
    Command, Report, Windows,
    launch::{Places, Presented, launch, note_variable},
    lines::Lines,
    machine::{Effect, Event, Machine, Now, Policy},
    permission::{ANSWER_BYTES_MAX, Answer, PATH},
    readiness::Readiness,
    record::{self, Note, Record},
};
use crate::{
    cloud::RestartsWanted,
    kit::{
        background::{Background, Results},
        latest::{Latest, Watch},
        lossy::Writer,
        mailbox::Mail,
        planted::{self, Bug},
        step::next_event,
        supervise::Lifeline,
        trace::Trace,
    },
    rank::Actor,
};

/// One address is given this long to answer.
const ASK_LIMIT: Duration = Duration::from_secs(10);
/// What a dead server left behind is asked to end, and given this long.
const ORPHAN_GRACE: Duration = Duration::from_secs(10);
/// Pieces of output read at once after an end: what the pipes can hold, 2 MiB in pieces of at least one page.
const LAST_PIECES_MAX: usize = 512;
/// Lines kept for the report of a crash.
const LAST_LINES: usize = 10;
/// Bytes kept of each of them.
const LAST_LINE_BYTES: usize = 256;

/// What the actor hears.
pub struct Inbox {
    /// Section `advanced_settings`.
    pub settings: Watch<Rc<Advanced>>,
    /// From the update actor.
    pub commands: Mail<Command>,
    /// From the cloud actor.
    pub restarts: Watch<RestartsWanted>,
    /// Who the device is, from the cloud actor.
    pub identity: Watch<u64>,
    /// From the supervisor.
    pub lifeline: Lifeline,
}

/// What the actor can do.
pub struct Ports {
    /// Time.
    pub clock: Rc<dyn Clock>,
    /// The process.
    pub processes: Rc<dyn Processes>,
    /// Questions to its status address.
    pub fetch: Rc<dyn Fetch>,
    /// The record.
    pub files: Rc<dyn Files>,
    /// For what takes longer than a turn.
    pub executor: Rc<LocalExecutor<'static>>,
    /// Where things are.
    pub places: Places,
    /// Who the device is, as the credentials file says now.
    pub identity: Rc<dyn Fn() -> Option<Presented>>,
    /// [`board::host::Facts::boot_id`].
    pub boot_id: String,
    /// Maintenance windows.
    pub windows: Rc<dyn Windows>,
    /// Where output goes.
    pub lines: Writer,
    /// How it is.
    pub report: Latest<Report>,
    /// Set before the actor is stopped: the machine server stays, for the agent that comes.
    pub hand_over: Rc<Cell<bool>>,
    /// What was done.
    pub trace: Trace,
}

/// Runs until it is told to stop and the machine server has ended, or was handed over.
pub async fn run(policy: Policy, inbox: Inbox, ports: Ports) {
    let (questions, answers) = Background::new(&ports.executor);
    let (process, machine) = resume(policy, &ports).await;
    let mut ears = Ears { inbox, processes: Rc::clone(&ports.processes), process, answers };
    let mut shell = Shell {
        machine,
        out: Lines::new(Stream::Out),
        err: Lines::new(Stream::Err),
        readiness: Readiness::default(),
        recent: VecDeque::new(),
        last_lines: Vec::new(),
        unlimited: Vec::new(),
        questions,
        ports,
    };
    shell.publish();
    while !shell.machine.has_ended() {
        let deadline = shell.machine.deadline();
        let Some(heard) = next_event(&mut ears, &*shell.ports.clock, deadline).await else { return };
        ears.inbox.lifeline.turn_begins();
        match heard {
            Heard::Event(Event::Stop) if shell.ports.hand_over.get() => {
                shell.note(format_args!("the machine server is handed over"));
                return;
            }
            Heard::Event(event) => shell.turn(event, &mut ears.process).await,
            Heard::Output(stream, piece) => shell.output(stream, &piece, &mut ears.process).await,
        }
        ears.inbox.lifeline.turn_ends();
    }
}

/// Finds the machine server of the last agent, or what it left behind.
async fn resume(policy: Policy, ports: &Ports) -> (Option<Rc<dyn Process>>, Machine) {
    let mut record = record::load(&*ports.files, &ports.places.record);
    let boot = record::boot(&ports.boot_id);
    let leader = record.running.as_ref().filter(|recorded| recorded.boot == boot).map(|recorded| recorded.id);
    let mut process = leader.and_then(|id| ports.processes.adopt(id));
    if let (Some(leader), None) = (leader, &process) {
        ports.executor.spawn(end_orphans(Rc::clone(&ports.processes), leader)).detach();
    }
    if process.is_none()
        && let Some((found, known)) = unrecorded(ports, &record, boot)
    {
        (process, record) = (Some(found), known);
        store(ports, &record);
    }
    if process.is_none() && leader.is_none() {
        // Without a record nobody knows who that is, only that two must not run.
        let count = ports.processes.end_strays(ORPHAN_GRACE).await;
        if count > 0 {
            log::warn!("{count} processes of a {} that nobody had recorded were ended", brand::MACHINE_SERVER);
        }
    }
    if let Some(process) = &process {
        log::info!("{} runs as process {} and is adopted", brand::MACHINE_SERVER, process.id().pid);
    }
    let now = Now { mono: ports.clock.now(), wall: ports.clock.wall(), window: None };
    let machine = Machine::resume(policy, boot, record, process.is_some(), now);
    (process, machine)
}

/// The machine server of an agent that did not live to write its name down, and what that agent would have written.
///
/// What earlier ones left behind in groups of their own carries their notes, which count fewer starts; what this one
/// has started is younger.
fn unrecorded(ports: &Ports, record: &Record, boot: u64) -> Option<(Rc<dyn Process>, Record)> {
    let found = ports.processes.unrecorded(&note_variable());
    let notes = found.into_iter().filter_map(|found| Some((found.id, Note::decode(&found.note)?)));
    let newer = notes.filter(|(_, note)| note.starts > record.starts && !planted::is(Bug::UnrecordedForgotten));
    // The first of several equal ones, which is the oldest.
    let (id, note) = newer.min_by_key(|(_, note)| Reverse(note.starts))?;
    Some((ports.processes.adopt(id)?, note.record(id, boot)))
}

fn store(ports: &Ports, record: &Record) {
    if let Err(error) = record::store(&*ports.files, &ports.places.record, record) {
        log::warn!("a next agent would not find this {}: {error}", brand::MACHINE_SERVER);
    }
}

async fn end_orphans(processes: Rc<dyn Processes>, leader: ProcessId) {
    let count = processes.end_orphans(leader, ORPHAN_GRACE).await;
    if count > 0 {
        log::info!("{count} processes that {} {} had left behind were ended", brand::MACHINE_SERVER, leader.pid);
    }
}

/// What was heard.
enum Heard {
    Event(Event),
    Output(Stream, Vec<u8>),
}

struct Ears {
    inbox: Inbox,
    processes: Rc<dyn Processes>,
    process: Option<Rc<dyn Process>>,
    answers: Results<(u64, Answer)>,
}

impl crate::kit::step::Inbox for Ears {
    type Event = Heard;

    async fn next(&mut self) -> Option<Heard> {
        let Ears { inbox: Inbox { settings, commands, restarts, identity, lifeline }, processes, process, answers } =
            self;
        let exited = async {
            match process {
                Some(process) => Event::Exited(process.exited().await),
                None => std::future::pending().await,
            }
        };
        let stopped = async {
            lifeline.stopped().await;
            Event::Stop
        };
        let restarts = async {
            let RestartsWanted(wanted) = restarts.changed().await;
            Event::RestartsWanted(wanted)
        };
        let answered = async {
            let (question, answer) = answers.next().await;
            Event::Answered { question, answer }
        };
        let event = exited
            .or(stopped)
            .or(restarts)
            .or(async { Event::Settings(settings.changed().await) })
            .or(async { Event::Identity(identity.changed().await) })
            .or(async { Event::Command(commands.next().await) })
            .or(answered);
        let output = async {
            let (stream, piece) = processes.output().await;
            Heard::Output(stream, piece)
        };
        Some(async { Heard::Event(event.await) }.or(output).await)
    }

    fn deadline_passed(&self) -> Heard {
        Heard::Event(Event::DeadlinePassed)
    }
}

struct Shell {
    machine: Machine,
    out: Lines,
    err: Lines,
    readiness: Readiness,
    /// The newest lines, shortened.
    recent: VecDeque<String>,
    last_lines: Vec<String>,
    /// Limits that are not in force, in sentences.
    unlimited: Vec<String>,
    questions: Background<(u64, Answer)>,
    ports: Ports,
}

impl Shell {
    /// As of this event, which may bring other windows.
    fn now(&self, event: &Event) -> Now {
        let wall = self.ports.clock.wall();
        let settings = match event {
            Event::Settings(settings) => Some(&**settings),
            _ => self.machine.settings(),
        };
        let maintenance = settings.and_then(|settings| settings.maintenance.as_ref());
        let window = maintenance.map(|maintenance| self.ports.windows.look(maintenance, wall));
        Now { mono: self.ports.clock.now(), wall, window }
    }

    /// One event, and what follows from it at once.
    async fn turn(&mut self, event: Event, process: &mut Option<Rc<dyn Process>>) {
        let crashes = self.machine.crashes();
        let has_ended = matches!(event, Event::Exited(_));
        if has_ended {
            *process = None;
        }
        let mut next = Some(event);
        let mut dead = has_ended;
        while let Some(event) = next.take() {
            let now = self.now(&event);
            for effect in self.machine.step(now, event) {
                next = self.perform(effect, process).await.or(next);
            }
            // After the next one was started, so that nothing lies between death and exec, and before anything slow, so
            // that it has not spoken yet.
            if std::mem::take(&mut dead) {
                self.last_words().await;
            }
        }
        if has_ended {
            if self.machine.crashes() > crashes {
                self.last_lines = self.recent.drain(..).collect();
            }
            self.recent.clear();
        }
        self.publish();
    }

    async fn perform(&mut self, effect: Effect, process: &mut Option<Rc<dyn Process>>) -> Option<Event> {
        match effect {
            Effect::Start(program) => {
                let settings = self.machine.settings()?;
                let identity = (self.ports.identity)();
                let whose = identity.as_ref().map_or(0, |identity| identity.fingerprint);
                let note = self.machine.note(program, self.ports.clock.wall(), whose);
                let api_key = identity.as_ref().and_then(|identity| identity.api_key.as_ref());
                let launch = launch(&note, settings, &self.ports.places, api_key);
                return Some(match self.ports.processes.spawn(&launch) {
                    Ok(started) => {
                        let id = started.id();
                        log::info!("{} {} runs as process {}", brand::MACHINE_SERVER, note.program.version, id.pid);
                        *process = Some(started);
                        self.readiness.start_over();
                        Event::Started { id, at: note.started_at, identity: whose }
                    }
                    Err(error) => {
                        log::error!("{error}");
                        Event::NotStarted(error.to_string())
                    }
                });
            }
            Effect::Limit(limits) => {
                let limits = Limits {
                    memory_max_bytes: limits.memory_max_megabytes.map(|megabytes| u64::from(megabytes) << 20),
                    cpu_weight: limits.cpu_weight,
                    open_files_max: limits.open_files_max,
                };
                self.unlimited = self.ports.processes.limit(&limits);
                self.unlimited.iter().for_each(|sentence| log::warn!("{sentence}"));
            }
            Effect::Terminate => process.iter().for_each(|process| process.terminate()),
            Effect::Kill => process.iter().for_each(|process| process.kill()),
            Effect::EndOrphans(leader) => {
                let ending = end_orphans(Rc::clone(&self.ports.processes), leader);
                if self.machine.has_ended() { ending.await } else { self.ports.executor.spawn(ending).detach() }
            }
            Effect::Ask { question, urls } => {
                let fetch = Rc::clone(&self.ports.fetch);
                self.questions.start(async move { (question, ask(&*fetch, &urls).await) });
            }
            Effect::Store => store(&self.ports, &self.machine.record()),
        }
        None
    }

    async fn output(&mut self, stream: Stream, piece: &[u8], process: &mut Option<Rc<dyn Process>>) {
        self.log(stream, piece);
        if stream == Stream::Out
            && let Some(serving) = self.readiness.feed(piece)
        {
            self.turn(Event::Serving(serving), process).await;
        }
    }

    /// What a dead process had written and nobody had read.
    async fn last_words(&mut self) {
        for _ in 0..LAST_PIECES_MAX {
            let Some((stream, piece)) = poll_once(self.ports.processes.output()).await else { break };
            self.log(stream, &piece);
        }
        let (now, lines, recent) = (self.ports.clock.wall(), &self.ports.lines, &mut self.recent);
        for stream in [&mut self.out, &mut self.err] {
            stream.flush(now, |line| {
                lines.push(&line.encode());
                remember(recent, &line.text);
            });
        }
        self.readiness.start_over();
    }

    fn log(&mut self, stream: Stream, piece: &[u8]) {
        let (now, lines, recent) = (self.ports.clock.wall(), &self.ports.lines, &mut self.recent);
        let cut = match stream {
            Stream::Out => &mut self.out,
            Stream::Err => &mut self.err,
        };
        cut.feed(piece, now, |line| {
            lines.push(&line.encode());
            remember(recent, &line.text);
        });
    }

    fn publish(&self) {
        let mut report = self.machine.report();
        report.last_lines.clone_from(&self.last_lines);
        if self.machine.settings().is_some_and(|settings| settings.maintenance.is_some()) {
            report.trouble = self.ports.windows.trouble();
        }
        report.trouble.extend_from_slice(&self.unlimited);
        let before = self.ports.report.get();
        if !self.ports.report.publish_if_changed(report.clone()) {
            return;
        }
        let before = before.unwrap_or_else(|| Report { crashes: report.crashes, ..Report::default() });
        if before.phase != report.phase {
            self.note(format_args!("{:?} → {:?}", before.phase, report.phase));
        }
        if report.crashes > before.crashes {
            log::warn!("{} ended unasked: {}", brand::MACHINE_SERVER, report.last_exit);
        }
        if report.restart_pending != before.restart_pending && !report.restart_pending.is_empty() {
            log::info!("{} is not restarted yet: {}", brand::MACHINE_SERVER, report.restart_pending);
        }
    }

    fn note(&self, text: std::fmt::Arguments<'_>) {
        self.ports.trace.note(self.ports.clock.now(), Actor::Server, text);
    }
}

/// Asks one address after the other; the first that answers counts.
async fn ask(fetch: &dyn Fetch, urls: &[String]) -> Answer {
    for url in urls {
        if let Ok(reply) = fetch.get(&format!("{url}{PATH}"), true, ASK_LIMIT, ANSWER_BYTES_MAX).await {
            let answer = Answer::read(url, &reply);
            if answer.from.is_some() {
                return answer;
            }
        }
    }
    Answer::SILENCE
}

fn remember(recent: &mut VecDeque<String>, text: &str) {
    if recent.len() == LAST_LINES {
        recent.pop_front();
    }
    let end = (0..=LAST_LINE_BYTES.min(text.len())).rev().find(|&end| text.is_char_boundary(end)).unwrap_or(0);
    recent.push_back(text.get(..end).unwrap_or_default().to_owned());
}
