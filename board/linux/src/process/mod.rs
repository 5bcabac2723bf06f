//! The machine server as a process: pidfd, process groups and named pipes.
//!
//! Owns starting, finding, hearing and ending. Never tells the kernel to end a child with its parent (PDEATHSIG): a
//! machine server outlives the agent that started it. Never waits on SIGCHLD: a pidfd wakes exactly who waits for it.

mod child;
pub mod ending;
mod members;
pub(crate) mod passing;
mod pipes;
mod stat;
mod unrecorded;

use std::{
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
    process::{Launch, PassedOn, Process, ProcessId, Processes, SpawnError, Stream, Unrecorded},
};

use child::{Child, Dismissed};
use pipes::Pipes;

/// The processes of this machine, as far as they concern the agent.
pub struct LinuxProcesses {
    pipes: Pipes,
    dismissed: Dismissed,
    clock: Rc<dyn Clock>,
}

impl LinuxProcesses {
    /// Opens the output pipes in `run_folder`, making both if need be, and takes over what the last agent left open.
    pub fn new(run_folder: &Path, clock: Rc<dyn Clock>, manager: Rc<crate::service::Notify>) -> io::Result<Self> {
        let pipes = Pipes::open(run_folder, passing::Inherited::take(), manager)?;
        Ok(LinuxProcesses { pipes, dismissed: Dismissed::default(), clock })
    }
}

#[async_trait(?Send)]
impl Processes for LinuxProcesses {
    fn spawn(&self, launch: &Launch) -> Result<Rc<dyn Process>, SpawnError> {
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
        for name in crate::service::OF_THE_MANAGER.into_iter().chain([passing::VARIABLE]) {
            command.env_remove(name);
        }
        command.envs(launch.environment.iter().map(|(name, value)| (name, value)));
        let not_runnable =
            |source| SpawnError::NotRunnable { program: launch.program.clone(), reason: explained(source, launch) };
        let child = command.spawn().map_err(not_runnable)?;
        // Not reaped before `Child` reaps it, so the number cannot have been given to anybody else.
        match Child::started(child.id(), &self.dismissed) {
            Ok(process) => Ok(Rc::new(process)),
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
        Some(Rc::new(Child::found(id, &self.dismissed)?))
    }

    fn unrecorded(&self, variable: &str) -> Vec<Unrecorded> {
        unrecorded::find(self.pipes.identity(), variable)
    }

    async fn end_orphans(&self, leader: ProcessId, grace: Duration) -> usize {
        let asked = self.dismissed.get() == Some(leader);
        members::end(leader, asked, grace, &*self.clock).await
    }

    fn pass_on(&self) -> PassedOn {
        self.pipes.pass_on()
    }

    async fn output(&self) -> (Stream, Vec<u8>) {
        self.pipes.next().await
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
