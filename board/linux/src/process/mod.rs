//! The machine server as a process: pidfd, process groups, control groups and named pipes.
//!
//! Owns starting, finding, hearing and ending. Never tells the kernel to end a child with its parent (PDEATHSIG): a
//! machine server outlives the agent that started it. Never waits on SIGCHLD: a pidfd wakes exactly who waits for it.

pub mod cgroup;
mod child;
pub mod ending;
pub mod kernel;
mod members;
pub(crate) mod passing;
mod pipes;
mod start;
mod stat;
mod theirs;
mod unrecorded;

use std::{
    cell::{Cell, RefCell},
    io,
    os::unix::process::CommandExt as _,
    path::Path,
    process::{Command, Stdio},
    rc::Rc,
    time::Duration,
};

use async_trait::async_trait;
use board::{
    Clock,
    process::{Exit, Launch, Limits, PassedOn, Process, ProcessId, Processes, SpawnError, Stream, Unrecorded},
};

use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};

use cgroup::{Leaf, Unit};
use child::{Child, Dismissed, Home};
use pipes::Pipes;

pub use start::become_program;

/// How the agent bounds its own threads. A machine server that uses the same pool has a limit of its own.
const OF_THE_POOL: &str = "BLOCKING_MAX_THREADS";

/// The processes of this machine, as far as they concern the agent.
pub struct LinuxProcesses {
    pipes: Pipes,
    dismissed: Dismissed,
    clock: Rc<dyn Clock>,
    /// Where machine servers live, where a service manager left a place to the agent.
    unit: Option<Rc<Unit>>,
    /// The newest machine server, and where it lives.
    newest: RefCell<Option<(ProcessId, Leaf)>>,
    open_files_max: Cell<Option<u32>>,
    /// Processes that the agent before `exec` had started, and that ended before this one looked.
    ended: Vec<(ProcessId, Exit)>,
}

impl LinuxProcesses {
    /// Opens the output pipes in `run_folder`, making both if need be, and takes over what the last agent left open.
    pub fn new(run_folder: &Path, clock: Rc<dyn Clock>, manager: Rc<crate::service::Notify>) -> io::Result<Self> {
        let inherited = passing::Inherited::take();
        let ended = if inherited.by_exec() { reap() } else { Vec::new() };
        Ok(LinuxProcesses {
            pipes: Pipes::open(run_folder, inherited, manager)?,
            dismissed: Dismissed::default(),
            clock,
            unit: Unit::find().map(Rc::new),
            newest: RefCell::default(),
            open_files_max: Cell::default(),
            ended,
        })
    }

    fn home(&self, leaf: Option<Leaf>) -> Option<Home> {
        Some(Home::new(self.unit.as_ref()?, leaf?))
    }

    fn watch(&self, id: ProcessId, leaf: Option<Leaf>) {
        self.newest.replace(leaf.map(|leaf| (id, leaf)));
    }
}

/// Takes note of children that have ended and that nobody watches: those of the agent that this process was before
/// `exec`, and as the first process of a container everybody's.
fn reap() -> Vec<(ProcessId, Exit)> {
    let found = stat::ended_children().filter_map(|(pid, stat)| {
        let number = Pid::from_raw(i32::try_from(pid).ok()?)?;
        let status = waitid(WaitId::Pid(number), WaitIdOptions::EXITED | WaitIdOptions::NOHANG).ok()??;
        Some((ProcessId { pid, start_ticks: stat.start_ticks }, child::exit(&status)))
    });
    found.collect()
}

#[async_trait(?Send)]
impl Processes for LinuxProcesses {
    fn limit(&self, limits: &Limits) -> Vec<String> {
        self.open_files_max.set(limits.open_files_max);
        let mut trouble = match &self.unit {
            Some(unit) => unit.limit(limits),
            None => {
                let wanted = [
                    (limits.memory_max_bytes.is_some(), "memory_max_megabytes"),
                    (limits.cpu_weight.is_some(), "cpu_weight"),
                ];
                let reason = "this agent has no control group of its own; a systemd service with Delegate=yes has one";
                let wanted = wanted.into_iter().filter(|(is_wanted, _)| *is_wanted);
                wanted.map(|(_, setting)| cgroup::not_in_force(setting, reason)).collect()
            }
        };
        trouble.extend(limits.open_files_max.and_then(start::open_files_trouble));
        trouble
    }

    fn spawn(&self, launch: &Launch) -> Result<Rc<dyn Process>, SpawnError> {
        if let Some(why) = kernel::trouble() {
            let reason = io::Error::new(io::ErrorKind::Unsupported, why);
            return Err(SpawnError::NotRunnable { program: launch.program.clone(), reason });
        }
        if std::process::id() == 1 {
            // Nobody else takes note of the ends of those whose parents are gone.
            reap();
        }
        let pipes = |source| SpawnError::Pipes { folder: self.pipes.folder().to_owned(), source };
        let (out, err) = self.pipes.for_child().map_err(pipes)?;
        let mut command = Command::new(&launch.program);
        command
            .args(&launch.arguments)
            .current_dir(&launch.folder)
            .stdin(Stdio::null())
            .stdout(out)
            .stderr(err)
            .process_group(0);
        for name in crate::service::OF_THE_MANAGER.into_iter().chain([passing::VARIABLE, OF_THE_POOL]) {
            command.env_remove(name);
        }
        command.envs(launch.environment.iter().map(|(name, value)| (name, value)));
        let leaf = self.unit.as_ref().and_then(|unit| start::leaf(unit));
        start::prepare(&mut command, leaf.as_ref(), self.open_files_max.get());
        let not_runnable = |source| {
            leaf.iter().for_each(Leaf::remove);
            SpawnError::NotRunnable { program: launch.program.clone(), reason: explained(source, launch) }
        };
        let child = command.spawn().map_err(not_runnable)?;
        // Not reaped before `Child` reaps it, so the number cannot have been given to anybody else.
        match Child::started(child.id(), self.home(leaf.clone()), &self.dismissed) {
            Ok(process) => {
                self.watch(process.id(), leaf);
                Ok(Rc::new(process))
            }
            Err(source) => {
                // Running but not watchable is worse than not running.
                let mut child = child;
                let _ = child.kill();
                let _ = child.wait();
                Err(not_runnable(source))
            }
        }
    }

    fn adopt(&self, id: ProcessId) -> Option<Rc<dyn Process>> {
        if let Some(&(id, exit)) = self.ended.iter().find(|(ended, _)| *ended == id) {
            return Some(Rc::new(Ended { id, exit }));
        }
        let leaf = self.unit.as_ref().and_then(|unit| unit.leaf_of(id.pid));
        let child = Child::found(id, self.home(leaf.clone()), &self.dismissed)?;
        self.watch(id, leaf);
        self.pipes.hear(id.pid);
        Some(Rc::new(child))
    }

    fn unrecorded(&self, variable: &str) -> Vec<Unrecorded> {
        unrecorded::find(self.pipes.identity(), self.pipes.folder(), self.unit.as_deref(), variable)
    }

    async fn end_orphans(&self, leader: ProcessId, grace: Duration) -> usize {
        let dismissed = self.dismissed.borrow().clone().filter(|(asked, _)| *asked == leader);
        let leaves = {
            let newest = self.newest.borrow();
            // The next one may run already, in its own leaf.
            let runs = newest.as_ref().filter(|(id, _)| *id != leader).map(|(_, leaf)| leaf);
            let leaves = self.unit.iter().flat_map(|unit| unit.leaves()).filter(|leaf| Some(leaf) != runs);
            let asked = dismissed.as_ref().and_then(|(_, leaf)| leaf.as_ref());
            leaves.map(|leaf| (leaf.clone(), asked == Some(&leaf))).collect::<Vec<_>>()
        };
        members::end(Some(leader), dismissed.is_some(), &leaves, grace, &*self.clock).await
    }

    async fn end_strays(&self, grace: Duration) -> usize {
        let leaves: Vec<_> = self.unit.iter().flat_map(|unit| unit.leaves()).map(|leaf| (leaf, false)).collect();
        members::end(None, false, &leaves, grace, &*self.clock).await
    }

    fn pass_on(&self) -> PassedOn {
        self.pipes.pass_on()
    }

    async fn output(&self) -> (Stream, Vec<u8>) {
        self.pipes.next().await
    }
}

/// A process that had ended before this agent looked, told by the kernel to its parent, which this agent is.
struct Ended {
    id: ProcessId,
    exit: Exit,
}

#[async_trait(?Send)]
impl Process for Ended {
    fn id(&self) -> ProcessId {
        self.id
    }

    async fn exited(&self) -> Exit {
        self.exit
    }

    fn terminate(&self) {}

    fn kill(&self) {
        members::kill(self.id);
    }
}

/// The system's answer in words that say what to do about it.
fn explained(source: io::Error, launch: &Launch) -> io::Error {
    let kind = source.kind();
    let sentence = match source.raw_os_error().map(rustix::io::Errno::from_raw_os_error) {
        Some(rustix::io::Errno::NOEXEC) => "it is not an executable for this machine".to_owned(),
        Some(rustix::io::Errno::ACCESS) => {
            "permission denied: it needs the execute bit, and its file system must not be mounted noexec".to_owned()
        }
        Some(rustix::io::Errno::TXTBSY) => "it is still open for writing".to_owned(),
        Some(rustix::io::Errno::NOENT) if !launch.folder.is_dir() => {
            format!("its working directory {} does not exist", launch.folder.display())
        }
        Some(rustix::io::Errno::NOENT) if launch.program.exists() => {
            "the loader or interpreter it names is not on this machine".to_owned()
        }
        Some(rustix::io::Errno::NOENT) => "there is no such file".to_owned(),
        _ => return source,
    };
    io::Error::new(kind, sentence)
}
