//! Machine servers that behave as a script says: they start slowly, hang, crash, refuse to restart, ignore signals.
//!
//! Owns the process table, the output pipe and the local status page. What runs is what lies on the simulated disk: a
//! missing, unreadable, foreign or broken program fails as the system would let it fail. Processes outlive the agent
//! that started them and end with the power.

use std::{
    cell::{Cell, RefCell},
    collections::{BTreeMap, VecDeque},
    future::poll_fn,
    io,
    path::PathBuf,
    rc::{Rc, Weak},
    task::{Poll, Waker},
    time::Duration,
};

use async_trait::async_trait;
use board::process::{Exit, Launch, Limits, PassedOn, Process, ProcessId, Processes, SpawnError, Stream, Unrecorded};

use crate::{
    clock::SimClock,
    files::SimFiles,
    image::{Runs, runs},
    power::Alive,
};

/// What the kernel keeps of output that nobody has read; a process that writes more waits.
const PIPE_BYTES: usize = 64 << 10;
/// Most that one read returns.
const PIECE_BYTES_MAX: usize = 8 << 10;
/// The kernel's clock tick.
const TICK: Duration = Duration::from_millis(10);
/// The first process number after a boot; the same after each, so that a number alone means nothing.
const FIRST_PID: u32 = 1000;

const SIGKILL: i32 = 9;
const SIGSEGV: i32 = 11;
const SIGTERM: i32 = 15;

/// What the status page says about restarting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Permission {
    /// Restart whenever you like.
    Allowed,
    /// Not now.
    Refused,
    /// It takes the question and never answers.
    Silent,
    /// It answers with an error.
    Error,
    /// It does not know the question (404), as an old version would.
    Unknown,
    /// It answers with something that is no answer.
    Garbage,
}

/// How a version of the machine server behaves. The default is a healthy one.
#[derive(Clone, Debug)]
pub struct Script {
    /// Serves this long after it was started; never, if `None`.
    pub ready_after: Option<Duration>,
    /// Says on its output that it serves, and where; else only its status page tells.
    pub says_serving: Option<String>,
    /// Ends by itself.
    pub ends: Option<(Duration, Exit)>,
    /// Stops answering, without ending.
    pub hangs_after: Option<Duration>,
    /// Needs this long to end when asked to.
    pub stop_takes: Duration,
    /// Does not hear SIGTERM.
    pub ignores_sigterm: bool,
    /// What it says about restarts until told otherwise.
    pub permission: Permission,
    /// Asks the fleet server itself whether it shall restart.
    pub handles_needs_restart: bool,
    /// Processes in its group that do not end with it.
    pub children: usize,
    /// Shows to nobody what it was given in its environment.
    pub hides_note: bool,
    /// Lines it prints: how long after its start, where, what.
    pub says: Vec<(Duration, Stream, String)>,
    /// Prints `line 7 of 3` again and again: its seventh line, and it is the third machine server of this world.
    pub chatter: Option<Duration>,
}

impl Default for Script {
    fn default() -> Self {
        Script {
            ready_after: Some(Duration::from_secs(2)),
            says_serving: Some("serving http://127.0.0.1:8080".into()),
            ends: None,
            hangs_after: None,
            stop_takes: Duration::from_millis(300),
            ignores_sigterm: false,
            permission: Permission::Allowed,
            handles_needs_restart: false,
            children: 0,
            hides_note: false,
            says: Vec::new(),
            chatter: None,
        }
    }
}

/// One start, for tests to look at.
#[derive(Clone)]
pub struct Started {
    /// How long after the beginning of the world.
    pub at: Duration,
    /// Its name.
    pub id: ProcessId,
    /// What the program on the disk says it is; empty when it was broken.
    pub version: String,
    /// What was asked for.
    pub launch: Launch,
}

struct Body {
    id: ProcessId,
    /// Which agent's process started it and is told how it ends.
    parent: u32,
    number: usize,
    version: String,
    script: RefCell<Script>,
    /// Where it answers: where it was told to, and where it says it does.
    addresses: Vec<String>,
    serving: Cell<bool>,
    hung: Cell<bool>,
    stopping: Cell<bool>,
    said: Cell<u64>,
    exit: Cell<Option<Exit>>,
    waiting: RefCell<Vec<Waker>>,
    orphans: Cell<usize>,
    /// Output that found the pipe full.
    held_back: RefCell<VecDeque<(Stream, Vec<u8>)>>,
}

#[derive(Default)]
struct Pipe {
    pieces: VecDeque<(Stream, Vec<u8>)>,
    bytes: usize,
    reader: Option<Waker>,
    /// Readers that are waiting; a second one is a mistake of the caller.
    readers: usize,
}

struct Table {
    me: Weak<Table>,
    clock: SimClock,
    disk: SimFiles,
    platform: RefCell<String>,
    scripts: RefCell<BTreeMap<String, Script>>,
    bodies: RefCell<Vec<Rc<Body>>>,
    next_pid: Cell<u32>,
    pipe: RefCell<Pipe>,
    started: RefCell<Vec<Started>>,
    most_at_once: Cell<usize>,
    limits: Cell<Limits>,
    agent_is_there: Cell<bool>,
    /// The agent is about to become the next one and leaves the pipes open.
    passed_on: Cell<bool>,
    /// Which process the agent is: another after each end but an `exec`.
    agent: Cell<u32>,
    /// A service manager keeps the pipes for whichever agent it starts next.
    keeper: Cell<bool>,
}

/// The process table, as the test sees it.
#[derive(Clone)]
pub struct SimProcesses {
    table: Rc<Table>,
}

impl SimProcesses {
    pub(crate) fn new(clock: &SimClock, disk: &SimFiles, platform: &str) -> Self {
        SimProcesses {
            table: Rc::new_cyclic(|me| Table {
                me: me.clone(),
                clock: clock.clone(),
                disk: disk.clone(),
                platform: RefCell::new(platform.to_owned()),
                scripts: RefCell::default(),
                bodies: RefCell::default(),
                next_pid: Cell::new(FIRST_PID),
                pipe: RefCell::default(),
                started: RefCell::default(),
                most_at_once: Cell::new(0),
                limits: Cell::default(),
                agent_is_there: Cell::new(false),
                passed_on: Cell::new(false),
                agent: Cell::new(0),
                keeper: Cell::new(false),
            }),
        }
    }

    /// How a version behaves from its next start on.
    pub fn script(&self, version: &str, script: Script) {
        self.table.scripts.borrow_mut().insert(version.to_owned(), script);
    }

    /// Every start so far.
    #[must_use]
    pub fn started(&self) -> Vec<Started> {
        self.table.started.borrow().clone()
    }

    /// How many starts there were, and how many of them were of bytes that are no whole program.
    #[must_use]
    pub fn starts(&self) -> (usize, usize) {
        let started = self.table.started.borrow();
        (started.len(), started.iter().filter(|start| start.version.is_empty()).count())
    }

    /// The leaders that run now.
    #[must_use]
    pub fn running(&self) -> Vec<Started> {
        let alive: Vec<_> = self.table.alive().map(|body| body.id).collect();
        self.table.started.borrow().iter().filter(|start| alive.contains(&start.id)).cloned().collect()
    }

    /// Whether a leader runs now.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.table.alive().next().is_some()
    }

    /// The version that runs and serves.
    #[must_use]
    pub fn serving(&self) -> Option<String> {
        self.table.alive().find(|body| body.serving.get() && !body.hung.get()).map(|body| body.version.clone())
    }

    /// What the machine server may have now.
    #[must_use]
    pub fn limits(&self) -> Limits {
        self.table.limits.get()
    }

    /// The most leaders that ever ran at one time.
    #[must_use]
    pub fn most_at_once(&self) -> usize {
        self.table.most_at_once.get()
    }

    /// Processes that outlived their leader and have not been ended.
    #[must_use]
    pub fn orphans(&self) -> usize {
        let bodies = self.table.bodies.borrow();
        bodies.iter().filter(|body| body.exit.get().is_some()).map(|body| body.orphans.get()).sum()
    }

    /// What runs ends now, like this.
    ///
    /// # Panics
    /// When nothing runs.
    pub fn crash(&self, exit: Exit) {
        let body = self.table.alive().next().expect("only what runs can crash");
        self.table.end(&body, exit);
    }

    /// What runs stops answering, without ending.
    pub fn hang(&self) {
        self.table.alive().for_each(|body| body.hung.set(true));
    }

    /// What runs says this about restarting from now on.
    pub fn permit(&self, permission: Permission) {
        self.table.alive().for_each(|body| body.script.borrow_mut().permission = permission);
    }

    /// What runs prints this now; the line break is added.
    ///
    /// # Panics
    /// When nothing runs.
    pub fn say(&self, stream: Stream, line: &str) {
        let body = self.table.alive().next().expect("only what runs can speak");
        self.table.say(&body, stream, line);
    }

    /// Output that nobody has read yet.
    #[must_use]
    pub fn unread(&self) -> usize {
        self.table.pipe.borrow().bytes
    }

    pub(crate) fn set_platform(&self, platform: &str) {
        platform.clone_into(&mut self.table.platform.borrow_mut());
    }

    /// From now on a service manager keeps the output pipes for whichever agent it starts next.
    pub fn pipes_are_kept(&self) {
        self.table.keeper.set(true);
    }

    pub(crate) fn agent_came(&self) {
        self.table.agent_is_there.set(true);
        if !self.table.passed_on.take() {
            self.table.agent.set(self.table.agent.get() + 1);
        }
    }

    /// The agent is gone: nobody holds the pipe any more, except what still runs.
    pub(crate) fn agent_went(&self) {
        self.table.agent_is_there.set(false);
        self.table.pipe.borrow_mut().readers = 0;
        self.table.forget_unheld_output();
    }

    pub(crate) fn power_went(&self) {
        for body in self.table.alive() {
            self.table.end(&body, Exit::Signal(SIGKILL));
        }
        self.table.bodies.borrow_mut().clear();
        *self.table.pipe.borrow_mut() = Pipe::default();
        self.table.agent_is_there.set(false);
        self.table.passed_on.set(false);
        self.table.next_pid.set(FIRST_PID);
    }

    /// The local status page: what it says, or `None` when nobody answers. `Err` is silence.
    pub(crate) fn status_page(&self, url: &str) -> Result<Option<(u16, String)>, ()> {
        let found = self.table.alive().find_map(|body| body.path_of(url).map(|path| (body, path)));
        let Some((body, path)) = found else { return Ok(None) };
        if body.hung.get() {
            return Err(());
        }
        let script = body.script.borrow();
        let known = (path == "/restart_status").then_some(script.permission);
        let answer = |allowed: bool| {
            let handles = script.handles_needs_restart;
            format!(r#"{{"restart_allowed": {allowed}, "does_not_handle_needs_restart": {}}}"#, !handles)
        };
        Ok(Some(match known {
            _ if !body.serving.get() => return Ok(None),
            None | Some(Permission::Unknown) => (404, "no such page".into()),
            Some(Permission::Silent) => return Err(()),
            Some(Permission::Error) => (500, "something is broken".into()),
            Some(Permission::Garbage) => (200, "<html>{\"restart_allowed\": maybe</html>".into()),
            Some(Permission::Allowed) => (200, answer(true)),
            Some(Permission::Refused) => (200, answer(false)),
        }))
    }
}

impl Body {
    /// What is asked of it, if this address is one of its own.
    fn path_of(&self, url: &str) -> Option<String> {
        let path = self.addresses.iter().find_map(|address| url.strip_prefix(address.as_str()))?;
        (path.is_empty() || path.starts_with('/')).then(|| path.to_owned())
    }
}

impl Table {
    fn alive(&self) -> impl Iterator<Item = Rc<Body>> + use<> {
        let bodies: Vec<_> = self.bodies.borrow().iter().filter(|body| body.exit.get().is_none()).cloned().collect();
        bodies.into_iter()
    }

    fn end(&self, body: &Rc<Body>, exit: Exit) {
        if body.exit.get().is_some() {
            return;
        }
        body.exit.set(Some(exit));
        body.serving.set(false);
        body.waiting.take().into_iter().for_each(Waker::wake);
        self.forget_unheld_output();
    }

    fn forget_unheld_output(&self) {
        let held = self.agent_is_there.get() || self.passed_on.get() || self.keeper.get();
        if !held && self.alive().next().is_none() {
            let mut pipe = self.pipe.borrow_mut();
            pipe.pieces.clear();
            pipe.bytes = 0;
        }
    }

    /// Lets something happen to one process, later, if it still runs then.
    fn later(&self, body: &Rc<Body>, after: Duration, what: impl FnOnce(&Table, &Rc<Body>) + 'static) {
        let (table, body) = (self.me.clone(), Rc::downgrade(body));
        self.clock.happens_after(after, move || {
            if let (Some(table), Some(body)) = (table.upgrade(), body.upgrade())
                && body.exit.get().is_none()
            {
                what(&table, &body);
            }
        });
    }

    fn say(&self, body: &Rc<Body>, stream: Stream, line: &str) {
        let mut text = line.as_bytes().to_vec();
        text.push(b'\n');
        body.held_back.borrow_mut().extend(text.chunks(PIECE_BYTES_MAX).map(|piece| (stream, piece.to_vec())));
        self.flush();
    }

    /// Moves held back output into the pipe as far as it has room.
    fn flush(&self) {
        let mut pipe = self.pipe.borrow_mut();
        for body in self.alive() {
            let mut held_back = body.held_back.borrow_mut();
            while let Some(piece) = held_back.pop_front_if(|piece| pipe.bytes + piece.1.len() <= PIPE_BYTES) {
                pipe.bytes += piece.1.len();
                pipe.pieces.push_back(piece);
            }
        }
        if !pipe.pieces.is_empty()
            && let Some(reader) = pipe.reader.take()
        {
            reader.wake();
        }
    }

    fn chatter(&self, body: &Rc<Body>, every: Duration) {
        self.later(body, every, move |table, body| {
            // A process whose output nobody takes stands still.
            if body.held_back.borrow().is_empty() && !body.hung.get() {
                body.said.set(body.said.get() + 1);
                table.say(body, Stream::Out, &format!("line {} of {}", body.said.get(), body.number));
            }
            table.chatter(body, every);
        });
    }

    fn start(&self, launch: &Launch) -> Result<Rc<Body>, SpawnError> {
        let refused = |reason: io::Error| SpawnError::NotRunnable { program: launch.program.clone(), reason };
        let image = self.disk.program(&launch.program).map_err(refused)?;
        let version = match runs(&image, &self.platform.borrow()) {
            Runs::As(version) => Some(version),
            Runs::Broken => None,
            Runs::NotAtAll => return Err(refused(io::Error::from_raw_os_error(8))),
        };
        let script = match &version {
            Some(version) => self.scripts.borrow().get(version).cloned().unwrap_or_default(),
            None => Script { ends: Some((Duration::ZERO, Exit::Signal(SIGSEGV))), ..Script::default() },
        };
        let ticks = self.clock.mono().as_nanos() / u64::try_from(TICK.as_nanos()).unwrap_or(1);
        let pid = self.next_pid.get();
        self.next_pid.set(pid + 7);
        let variable = |name: &str| {
            let found = launch.environment.iter().rev().find(|(key, _)| key == name);
            found.map(|(_, value)| value.trim_end_matches('/').to_owned())
        };
        let told = variable("PLATFORM_SERVER_STATUS_URL").unwrap_or_else(|| "http://127.0.0.1:8081".into());
        let said = script.says_serving.iter().flat_map(|line| line.split_whitespace());
        let said = said.filter(|word| word.starts_with("http")).map(|url| url.trim_end_matches('/').to_owned());
        let addresses = said.chain([told]).collect();
        let body = Rc::new(Body {
            id: ProcessId { pid, start_ticks: ticks },
            parent: self.agent.get(),
            number: self.started.borrow().len() + 1,
            version: version.unwrap_or_default(),
            addresses,
            serving: Cell::new(false),
            hung: Cell::new(false),
            stopping: Cell::new(false),
            said: Cell::new(0),
            exit: Cell::new(None),
            waiting: RefCell::default(),
            orphans: Cell::new(script.children),
            held_back: RefCell::default(),
            script: RefCell::new(script.clone()),
        });
        self.bodies.borrow_mut().push(Rc::clone(&body));
        let (version, at) = (body.version.clone(), self.clock.elapsed());
        self.started.borrow_mut().push(Started { at, id: body.id, version, launch: launch.clone() });
        self.most_at_once.set(self.most_at_once.get().max(self.alive().count()));
        self.play(&body, script);
        Ok(body)
    }

    fn play(&self, body: &Rc<Body>, script: Script) {
        for (after, stream, line) in script.says {
            self.later(body, after, move |table, body| table.say(body, stream, &line));
        }
        if let Some(every) = script.chatter {
            self.chatter(body, every);
        }
        if let Some((after, exit)) = script.ends {
            self.later(body, after, move |table, body| table.end(body, exit));
        }
        if let Some(after) = script.hangs_after {
            self.later(body, after, |_, body| body.hung.set(true));
        }
        if let Some(after) = script.ready_after {
            self.later(body, after, move |table, body| {
                if body.hung.get() || body.stopping.get() {
                    return;
                }
                body.serving.set(true);
                if let Some(line) = script.says_serving {
                    table.say(body, Stream::Out, &line);
                }
            });
        }
    }
}

/// The process table as the agent of one boot sees it.
pub(crate) struct ProcessesPort {
    pub(crate) processes: SimProcesses,
    pub(crate) alive: Alive,
}

impl ProcessesPort {
    fn handle(&self, body: Rc<Body>) -> Rc<dyn Process> {
        let is_child = body.parent == self.processes.table.agent.get();
        Rc::new(Handle { table: Rc::clone(&self.processes.table), alive: self.alive.clone(), body, is_child })
    }
}

#[async_trait(?Send)]
impl Processes for ProcessesPort {
    fn limit(&self, limits: &Limits) -> Vec<String> {
        if self.alive.get() {
            self.processes.table.limits.set(*limits);
        }
        Vec::new()
    }

    fn spawn(&self, launch: &Launch) -> Result<Rc<dyn Process>, SpawnError> {
        if !self.alive.get() {
            let reason = io::Error::from(io::ErrorKind::NetworkDown);
            return Err(SpawnError::NotRunnable { program: launch.program.clone(), reason });
        }
        assert!(
            launch.program.is_absolute() && launch.folder.is_absolute(),
            "paths may not depend on the working folder"
        );
        let body = self.processes.table.start(launch)?;
        Ok(self.handle(body))
    }

    fn adopt(&self, id: ProcessId) -> Option<Rc<dyn Process>> {
        let body = self.processes.table.alive().find(|body| body.id == id)?;
        self.alive.get().then(|| self.handle(body))
    }

    fn unrecorded(&self, variable: &str) -> Vec<Unrecorded> {
        let running = if self.alive.get() { self.processes.running() } else { Vec::new() };
        let table = &self.processes.table;
        let told = |id| !table.alive().any(|body| body.id == id && body.script.borrow().hides_note);
        let found =
            running.into_iter().filter(|started| told(started.id)).filter_map(|Started { id, launch, .. }| {
                let (_, note) = launch.environment.into_iter().rev().find(|(name, _)| name == variable)?;
                Some(Unrecorded { id, note })
            });
        found.collect()
    }

    async fn end_orphans(&self, leader: ProcessId, grace: Duration) -> usize {
        self.alive.or_for_ever().await;
        let table = &self.processes.table;
        let body = table.bodies.borrow().iter().find(|body| body.id == leader).cloned();
        let Some(body) = body else { return 0 };
        assert!(body.exit.get().is_some(), "the group of a leader that runs is ended by ending the leader");
        let there = body.orphans.get();
        if there > 0 {
            let takes = if body.script.borrow().ignores_sigterm { grace } else { grace.min(TICK) };
            table.clock.until(table.clock.mono() + takes).await;
            body.orphans.set(0);
        }
        there
    }

    async fn end_strays(&self, grace: Duration) -> usize {
        self.alive.or_for_ever().await;
        let table = &self.processes.table;
        let strays: Vec<_> = table.alive().map(|body| self.handle(body)).collect();
        for stray in &strays {
            stray.terminate();
            table.clock.until(table.clock.mono() + grace).await;
            stray.kill();
        }
        strays.len()
    }

    fn pass_on(&self) -> PassedOn {
        let (table, alive) = (Rc::clone(&self.processes.table), self.alive.clone());
        table.passed_on.set(alive.get());
        // An agent that is gone has become the next one, and changes its mind no more.
        PassedOn::new(vec![("MACHINE_SERVER_PIPES".into(), "passed on".into())], move || {
            if alive.get() {
                table.passed_on.set(false);
            }
        })
    }

    async fn output(&self) -> (Stream, Vec<u8>) {
        /// Counts a reader for as long as it waits.
        struct Waiting<'a>(&'a RefCell<Pipe>);
        impl Drop for Waiting<'_> {
            fn drop(&mut self) {
                let mut pipe = self.0.borrow_mut();
                pipe.readers = pipe.readers.saturating_sub(1);
            }
        }
        self.alive.or_for_ever().await;
        let table = &self.processes.table;
        {
            let mut pipe = table.pipe.borrow_mut();
            assert_eq!(pipe.readers, 0, "only one may read the output at a time");
            pipe.readers = 1;
        }
        let waiting = Waiting(&table.pipe);
        let piece = poll_fn(|context| {
            let mut pipe = table.pipe.borrow_mut();
            match pipe.pieces.pop_front() {
                Some(piece) => {
                    pipe.bytes -= piece.1.len();
                    Poll::Ready(piece)
                }
                None => {
                    pipe.reader = Some(context.waker().clone());
                    Poll::Pending
                }
            }
        })
        .await;
        drop(waiting);
        table.flush();
        piece
    }
}

struct Handle {
    table: Rc<Table>,
    alive: Alive,
    body: Rc<Body>,
    is_child: bool,
}

#[async_trait(?Send)]
impl Process for Handle {
    fn id(&self) -> ProcessId {
        self.body.id
    }

    async fn exited(&self) -> Exit {
        let exit = poll_fn(|context| {
            if let Some(exit) = self.body.exit.get() {
                return Poll::Ready(exit);
            }
            let mut waiting = self.body.waiting.borrow_mut();
            if !waiting.iter().any(|waker| waker.will_wake(context.waker())) {
                waiting.push(context.waker().clone());
            }
            Poll::Pending
        })
        .await;
        self.alive.or_for_ever().await;
        if self.is_child { exit } else { Exit::Unknown }
    }

    fn terminate(&self) {
        let (ignores, takes) = {
            let script = self.body.script.borrow();
            (script.ignores_sigterm, script.stop_takes)
        };
        if self.alive.get() && !ignores && !self.body.hung.get() && !self.body.stopping.replace(true) {
            self.table.later(&self.body, takes, |table, body| {
                let exit = if body.serving.get() { Exit::Code(0) } else { Exit::Signal(SIGTERM) };
                table.end(body, exit);
            });
        }
    }

    fn kill(&self) {
        if self.alive.get() {
            self.body.orphans.set(0);
            self.table.end(&self.body, Exit::Signal(SIGKILL));
        }
    }
}

/// A machine server's place on the disk, for tests that install one by hand.
#[must_use]
pub fn launch_of(program: impl Into<PathBuf>) -> Launch {
    Launch { program: program.into(), arguments: Vec::new(), environment: Vec::new(), folder: "/".into() }
}
