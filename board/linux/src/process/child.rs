//! One process, watched through a pidfd.

use std::{
    cell::{Cell, RefCell},
    io,
    os::fd::OwnedFd,
    rc::Rc,
};

use async_trait::async_trait;
use board::process::{Exit, Process, ProcessId};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, WaitIdStatus, kill_process_group, pidfd_open, pidfd_send_signal,
    waitid,
};
use smol::Async;

use super::{
    cgroup::{Leaf, Unit},
    members, stat,
};

/// A process that was started or found by this agent.
pub(super) struct Child {
    id: ProcessId,
    home: Option<Home>,
    /// Readable once the process has ended.
    handle: Async<OwnedFd>,
    end: Cell<Option<Exit>>,
    /// The last leader whose group was asked to end.
    dismissed: Dismissed,
}

/// Whose group and leaf have been asked to end when the leader was found dead; to be asked twice means "at once" to some.
pub(super) type Dismissed = Rc<RefCell<Option<(ProcessId, Option<Leaf>)>>>;

/// Where a machine server lives.
pub(super) struct Home {
    unit: Rc<Unit>,
    leaf: Leaf,
    /// How often the kernel had ended one of its kind for want of memory before.
    ended_for_memory: u64,
}

impl Home {
    pub(super) fn new(unit: &Rc<Unit>, leaf: Leaf) -> Home {
        Home { unit: Rc::clone(unit), leaf, ended_for_memory: unit.ended_for_memory().unwrap_or(0) }
    }
}

impl Child {
    /// Watches a child that was just started and not waited for by anybody else.
    pub(super) fn started(pid: u32, home: Option<Home>, dismissed: &Dismissed) -> io::Result<Child> {
        let handle = open(pid)?;
        let stat = stat::of(pid).ok_or(io::ErrorKind::NotFound)?;
        Ok(Child {
            id: ProcessId { pid, start_ticks: stat.start_ticks },
            home,
            handle: Async::new_nonblocking(handle)?,
            end: Cell::new(None),
            dismissed: Rc::clone(dismissed),
        })
    }

    /// Watches a process that some agent started; `None` when it has ended, or its number means another process now.
    ///
    /// One that has ended keeps its number until its parent has asked how. To take it for a running one would be to
    /// overlook what the agent before, which had seen its end, has started in its place.
    pub(super) fn found(id: ProcessId, home: Option<Home>, dismissed: &Dismissed) -> Option<Child> {
        // The handle first: whoever has the number after this, the handle is for who had it when it was opened.
        let handle = open(id.pid).ok()?;
        let stat = stat::of(id.pid)?;
        if stat.start_ticks != id.start_ticks || has_ended(&handle) {
            return None;
        }
        let handle = Async::new_nonblocking(handle).ok()?;
        Some(Child { id, home, handle, end: Cell::new(None), dismissed: Rc::clone(dismissed) })
    }

    /// How it ended; `None` while it runs.
    fn look(&self) -> Option<Exit> {
        if let Some(end) = self.end.get() {
            return Some(end);
        }
        use std::os::fd::AsFd as _;
        let ask = |how| waitid(WaitId::PidFd(self.handle.get_ref().as_fd()), WaitIdOptions::EXITED | how);
        if let Ok(Some(_)) = ask(WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT) {
            self.dismiss_group();
        }
        let end = match ask(WaitIdOptions::NOHANG) {
            Ok(None) => return None,
            Ok(Some(status)) => exit(&status),
            // Adopted: its end is told to whoever is its parent now. The handle still knows that it ended.
            Err(_) if self.is_gone() => {
                self.dismiss_group();
                Exit::Unknown
            }
            Err(_) => return None,
        };
        let end = match end {
            Exit::Signal(SIGKILL) | Exit::Unknown if self.is_ended_for_memory() => Exit::OutOfMemory,
            end => end,
        };
        self.end.set(Some(end));
        Some(end)
    }

    /// Asks what is left of its group to end, before anything is started in its place that may want the same ports. In
    /// time because it costs one system call, and certain because the number is nobody else's until it is waited for.
    fn dismiss_group(&self) {
        let leaf = self.home.as_ref().map(|home| home.leaf.clone());
        members::ask(self.id, leaf.as_ref());
        self.dismissed.replace(Some((self.id, leaf)));
    }

    fn is_ended_for_memory(&self) -> bool {
        let home = self.home.as_ref();
        home.is_some_and(|home| home.unit.ended_for_memory().is_some_and(|now| now > home.ended_for_memory))
    }

    /// Only asked about a process that is no child of ours.
    fn is_gone(&self) -> bool {
        stat::of(self.id.pid).is_none_or(|stat| stat.zombie || stat.start_ticks != self.id.start_ticks)
    }
}

const SIGKILL: i32 = 9;

/// How a child ended.
pub(super) fn exit(status: &WaitIdStatus) -> Exit {
    match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => Exit::Code(code),
        (None, Some(signal)) => Exit::Signal(signal),
        (None, None) => Exit::Unknown,
    }
}

/// Whether all threads of a process have ended. Its state alone would only tell of the first one.
fn has_ended(handle: &OwnedFd) -> bool {
    let mut ask = [PollFd::new(handle, PollFlags::IN)];
    poll(&mut ask, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
}

fn open(pid: u32) -> io::Result<OwnedFd> {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).ok_or(io::ErrorKind::InvalidInput)?;
    // Closed on exec by the kernel's own rule for pidfds.
    Ok(pidfd_open(pid, PidfdFlags::empty())?)
}

#[async_trait(?Send)]
impl Process for Child {
    fn id(&self) -> ProcessId {
        self.id
    }

    async fn exited(&self) -> Exit {
        // Looks at the first wake-up: the reactor reports an event that came before its question a second time, and the
        // next machine server would start later by that.
        let end = self.handle.read_with(|_| self.look().ok_or_else(|| io::ErrorKind::WouldBlock.into())).await;
        match end {
            Ok(exit) => exit,
            Err(error) => {
                log::error!("process {} cannot be watched: {error}", self.id.pid);
                std::future::pending().await
            }
        }
    }

    fn terminate(&self) {
        // Fails only when it has ended already, which is what was asked for.
        let _ = pidfd_send_signal(self.handle.get_ref(), Signal::TERM);
    }

    fn kill(&self) {
        if let Some(home) = &self.home
            && !home.leaf.kill()
        {
            members::kill_leaf(&home.leaf);
        }
        if self.look().is_some() {
            // Nobody keeps the number for us any more: only members that are certainly ours are ended.
            members::kill(self.id);
            return;
        }
        if let Some(group) = i32::try_from(self.id.pid).ok().and_then(Pid::from_raw) {
            let _ = kill_process_group(group, Signal::KILL);
        }
        // Also when it has left its group.
        let _ = pidfd_send_signal(self.handle.get_ref(), Signal::KILL);
    }
}
