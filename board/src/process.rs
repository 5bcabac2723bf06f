//! The machine server as a process: started in a group of its own, watched without signals, outliving the agent.
//!
//! Output goes into named pipes in a run folder, which the agent holds open for reading and writing, so that a server
//! whose agent is gone never fails to write and the next agent reads what the last one did not.

use std::{path::PathBuf, rc::Rc, time::Duration};

use async_trait::async_trait;

/// What to start.
#[derive(Clone)]
pub struct Launch {
    /// The executable.
    pub program: PathBuf,
    /// Its arguments.
    pub arguments: Vec<String>,
    /// Added to, and winning over, the environment this agent inherited. Values may be secrets: no `Debug`.
    pub environment: Vec<(String, String)>,
    /// Its working directory.
    pub folder: PathBuf,
}

/// Names one process of this boot without ever meaning another: numbers are reused, start times are not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ProcessId {
    /// The process number, which is also the number of its group.
    pub pid: u32,
    /// When it started, in the kernel's clock ticks since boot.
    pub start_ticks: u64,
}

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// It returned this code.
    Code(i32),
    /// This signal ended it.
    Signal(i32),
    /// The kernel ended it because its memory, or the machine's, was used up.
    OutOfMemory,
    /// It ended while it was not our child (after an adoption): nobody was told how.
    Unknown,
}

/// What the operating system lets the machine server and everything it starts have; `None` is what it gives by itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Memory in bytes, of all its processes together.
    pub memory_max_bytes: Option<u64>,
    /// Share of the processor when others want it too, from 1 to 10,000; 100 is usual.
    pub cpu_weight: Option<u32>,
    /// Files that one process may have open at a time.
    pub open_files_max: Option<u32>,
}

/// Where a piece of output came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    /// Standard output.
    Out,
    /// Standard error.
    Err,
}

/// A process that tells by itself that an agent of this device has started it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unrecorded {
    /// Its name.
    pub id: ProcessId,
    /// The value of the variable.
    pub note: String,
}

/// Why a process could not be started.
#[derive(Debug, thiserror::Error)]
pub enum SpawnError {
    /// The executable is missing, not executable, or for another machine.
    #[error("could not run {}: {reason}", program.display())]
    NotRunnable {
        /// The executable.
        program: PathBuf,
        /// What the system answered.
        reason: std::io::Error,
    },
    /// The pipes for its output could not be made.
    #[error("could not make the output pipes in {}", folder.display())]
    Pipes {
        /// The run folder.
        folder: PathBuf,
        /// What the system answered.
        #[source]
        source: std::io::Error,
    },
}

/// The output pipes, open for the program that this process becomes. Closed to it again when this is dropped.
pub struct PassedOn {
    environment: Vec<(String, String)>,
    undo: Option<Box<dyn FnOnce()>>,
}

impl PassedOn {
    /// To be told in these variables; `undo` closes the pipes to other programs again.
    #[must_use]
    pub fn new(environment: Vec<(String, String)>, undo: impl FnOnce() + 'static) -> PassedOn {
        PassedOn { environment, undo: Some(Box::new(undo)) }
    }

    /// Variables for that program, to be added to those of this process.
    #[must_use]
    pub fn environment(&self) -> &[(String, String)] {
        &self.environment
    }
}

impl Drop for PassedOn {
    fn drop(&mut self) {
        if let Some(undo) = self.undo.take() {
            undo();
        }
    }
}

/// Starting and finding processes.
#[async_trait(?Send)]
pub trait Processes {
    /// Puts these limits in force, in place of all earlier ones: memory and processor at once, open files from the next
    /// start on. Says in sentences what cannot be.
    fn limit(&self, limits: &Limits) -> Vec<String>;

    /// Starts a process as the leader of a new group. Returns when the program runs (`exec` succeeded).
    fn spawn(&self, launch: &Launch) -> Result<Rc<dyn Process>, SpawnError>;

    /// The process an earlier agent started, if it still runs; its output is read from where that agent stopped.
    fn adopt(&self, id: ProcessId) -> Option<Rc<dyn Process>>;

    /// Processes that an agent of this device has started and that still run, as they tell by themselves: for an agent
    /// without a record of them, whose predecessor was killed after a start and before it could write the name down.
    ///
    /// Each leads a group, writes into this device's output pipes, and was given `variable` in its environment. The
    /// oldest comes first: what a process has started itself and put into a group of its own looks the same and comes
    /// after it. Costs a look at every process.
    fn unrecorded(&self, variable: &str) -> Vec<Unrecorded>;

    /// Ends what is left of a leader that is gone: SIGTERM, then SIGKILL after `grace`. That is its group, and where the
    /// system keeps a list of what it has started, everything on that list, daemons included. Members of the group are
    /// only taken for ours when they started after the leader did and before its end was seen. They may have been sent
    /// SIGTERM when the end of a child was seen, and are not sent it again then. Returns how many were still there.
    async fn end_orphans(&self, leader: ProcessId, grace: Duration) -> usize;

    /// For an agent that has found no machine server to adopt, before it starts one: ends whoever lives where only the
    /// machine servers of this device live, whatever it tells of itself. SIGTERM, then SIGKILL after `grace`. Nobody is
    /// found where the system has no such place. Returns how many there were.
    async fn end_strays(&self, grace: Duration) -> usize;

    /// Keeps the output pipes open for the program that this process is about to become (`exec`): what a machine server
    /// says while that program starts, and the last words of one that dies meanwhile, are read by the next agent. Give
    /// [`PassedOn::environment`] to that program, and drop the value when it could not be started.
    #[must_use = "everything is as before once it is dropped"]
    fn pass_on(&self) -> PassedOn;

    /// The next piece of output of the running or last process, at most 8 KiB, whole as it was written where the
    /// system allows. Waits while there is none. Cancel-safe. Only one caller at a time.
    async fn output(&self) -> (Stream, Vec<u8>);
}

/// One process.
#[async_trait(?Send)]
pub trait Process {
    /// Its name for the record.
    fn id(&self) -> ProcessId;

    /// Resolves when the leader has ended; again at once when asked again.
    async fn exited(&self) -> Exit;

    /// Asks it to end (SIGTERM to the leader).
    fn terminate(&self);

    /// Ends the whole group at once (SIGKILL).
    fn kill(&self);
}
