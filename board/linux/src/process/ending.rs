//! Ends processes that no agent keeps any more: for a command that runs after the service has ended.
//!
//! Waits by itself, without a reactor, because nothing else happens in that command. Asks first and then ends, always
//! in bounded time. A process is only ever signalled through a handle that was compared with who is meant.

use std::{
    fs,
    os::fd::{AsFd as _, OwnedFd},
    path::Path,
    time::{Duration, Instant},
};

use board::process::{ProcessId, Unrecorded};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open, pidfd_send_signal},
};

use super::{members, pipes, stat, unrecorded};

/// What SIGKILL may take; longer only for who waits inside the kernel, and that is not waited for.
const KILL_LIMIT: Duration = Duration::from_secs(5);

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// It did not run any more.
    WasGone,
    /// It ended when it was asked to.
    Asked,
    /// It had to be killed.
    Killed,
}

/// Ends a process and what is left of its group: SIGTERM, `grace`, SIGKILL.
#[must_use]
pub fn end(leader: ProcessId, grace: Duration) -> Ending {
    let ending = match handle(leader) {
        None => Ending::WasGone,
        Some(process) => {
            let process = [process];
            signal(&process, Signal::TERM);
            if gone(&process, grace) {
                Ending::Asked
            } else {
                // The group while its leader still holds the number.
                if let Some(group) = i32::try_from(leader.pid).ok().and_then(Pid::from_raw) {
                    let _ = kill_process_group(group, Signal::KILL);
                }
                signal(&process, Signal::KILL);
                gone(&process, KILL_LIMIT);
                Ending::Killed
            }
        }
    };
    // Children that outlived it.
    let left = members::of(leader);
    signal(&left, Signal::TERM);
    if !gone(&left, KILL_LIMIT) {
        let left = members::of(leader);
        signal(&left, Signal::KILL);
        gone(&left, KILL_LIMIT);
    }
    ending
}

/// Ends everything in the control group of a unit, if this process itself runs in it: SIGTERM, a few seconds, SIGKILL.
/// Returns how many processes there were.
#[must_use]
pub fn end_rest_of_unit(unit: &str) -> usize {
    let own = std::process::id();
    if !is_in(own, unit) {
        return 0;
    }
    end_all(|pid| pid != own && is_in(pid, unit))
}

/// The same from outside of it, for a unit of the system's own manager; this process and those it comes from stay.
#[must_use]
pub fn end_unit(unit: &str) -> usize {
    let first = fs::read_to_string("/proc/1/cgroup").unwrap_or_default();
    let spared = stat::line_of(std::process::id());
    end_all(|pid| {
        let groups = fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("cgroup")).unwrap_or_default();
        !spared.contains(&pid) && is_of_system(&groups, &first, unit)
    })
}

fn end_all(is_meant: impl Fn(u32) -> bool) -> usize {
    let rest = || -> Vec<OwnedFd> {
        let inside = stat::all().filter(|&(pid, _)| is_meant(pid));
        // Looked at again with the handle open: the number may have found another owner.
        let handles = inside.filter_map(|(pid, found)| {
            let handle = handle(ProcessId { pid, start_ticks: found.start_ticks })?;
            is_meant(pid).then_some(handle)
        });
        handles.collect()
    };
    let found = rest();
    signal(&found, Signal::TERM);
    if !gone(&found, KILL_LIMIT) {
        let left = rest();
        signal(&left, Signal::KILL);
        gone(&left, KILL_LIMIT);
    }
    found.len()
}

/// Machine servers that no record names, started by an agent with this run folder; see [`board::process::Processes`].
#[must_use]
pub fn unrecorded_in(run_folder: &Path, variable: &str) -> Vec<Unrecorded> {
    unrecorded::find(pipes::named_in(run_folder), run_folder, None, variable)
}

/// A handle of exactly this process, while it runs.
fn handle(id: ProcessId) -> Option<OwnedFd> {
    let handle = pidfd_open(Pid::from_raw(i32::try_from(id.pid).ok()?)?, PidfdFlags::empty()).ok()?;
    let found = stat::of(id.pid)?;
    (found.start_ticks == id.start_ticks && !found.zombie).then_some(handle)
}

fn signal(processes: &[OwnedFd], which: Signal) {
    for process in processes {
        // Fails only when it has ended already, which is what was asked for.
        let _ = pidfd_send_signal(process, which);
    }
}

/// Waits until all of them have ended; false when some have not within the limit.
fn gone(processes: &[OwnedFd], limit: Duration) -> bool {
    let begin = Instant::now();
    for process in processes {
        loop {
            let left = limit.saturating_sub(begin.elapsed());
            let wait =
                Timespec { tv_sec: i64::try_from(left.as_secs()).unwrap_or(0), tv_nsec: left.subsec_nanos().into() };
            let process = process.as_fd();
            match poll(&mut [PollFd::new(&process, PollFlags::IN)], Some(&wait)) {
                Ok(0) => return false,
                Ok(_) => break,
                Err(rustix::io::Errno::INTR) => {}
                Err(_) => return false,
            }
        }
    }
    true
}

/// Whether a process lies in the control group of a unit, in any of the hierarchies that this system has.
fn is_in(pid: u32, unit: &str) -> bool {
    let groups = fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("cgroup")).unwrap_or_default();
    names(&groups, unit)
}

fn names(groups: &str, unit: &str) -> bool {
    paths(groups).any(|(_, path)| path.split('/').any(|step| step == unit))
}

/// Whether these are groups of a unit that process 1 keeps, and not of one with the same name in a container below.
fn is_of_system(groups: &str, of_first: &str, unit: &str) -> bool {
    paths(groups).any(|(controllers, path)| {
        let of_first = paths(of_first).find(|(same, _)| *same == controllers).map(|(_, path)| path);
        let top = of_first.map(|path| path.trim_end_matches('/').trim_end_matches("/init.scope"));
        let below = top.and_then(|top| path.strip_prefix(top)?.strip_prefix("/system.slice/")?.strip_prefix(unit));
        below.is_some_and(|below| below.is_empty() || below.starts_with('/'))
    })
}

/// NUMBER:CONTROLLERS:PATH
fn paths(groups: &str) -> impl Iterator<Item = (&str, &str)> {
    groups.lines().filter_map(|line| line.split_once(':')?.1.split_once(':'))
}

#[cfg(test)]
mod tests {
    use std::{
        os::unix::process::CommandExt as _,
        process::{Child, Command, Stdio},
    };

    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    /// A shell in a group of its own that says when it is ready.
    fn shell(script: &str) -> (Child, ProcessId) {
        use std::io::Read as _;
        let mut child = Command::new("/bin/sh")
            .args(["-c", script])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .process_group(0)
            .spawn()
            .expect("a shell");
        let mut ready = [0];
        child.stdout.as_mut().expect("a pipe").read_exact(&mut ready).expect("it is ready");
        let start_ticks = stat::of(child.id()).expect("it runs").start_ticks;
        let id = ProcessId { pid: child.id(), start_ticks };
        (child, id)
    }

    #[test]
    fn one_that_listens_is_asked_and_one_that_does_not_is_killed() {
        let (mut polite, id) = shell("trap 'exit 3' TERM; echo; while :; do sleep 0.05; done");
        assert_eq!(end(id, LONG), Ending::Asked);
        assert_eq!(polite.wait().expect("it ended").code(), Some(3));

        let (mut deaf, id) = shell("trap '' TERM; sleep 1000 & echo; wait; wait");
        assert_eq!(end(id, Duration::from_millis(50)), Ending::Killed);
        assert_eq!(deaf.wait().expect("it ended").code(), None, "by a signal");
        assert!(stat::in_group(id.pid).is_empty(), "its child too");
    }

    #[test]
    fn children_that_outlive_their_leader_are_ended() {
        let (mut leader, id) = shell("trap 'exit 0' TERM; sleep 1000 & echo; wait");
        assert_eq!(end(id, LONG), Ending::Asked);
        leader.wait().expect("it ended");
        assert!(stat::in_group(id.pid).is_empty());
    }

    #[test]
    fn another_process_with_the_same_number_is_left_alone() {
        let (mut other, id) = shell("echo; sleep 1000");
        assert_eq!(end(ProcessId { start_ticks: id.start_ticks + 1, ..id }, LONG), Ending::WasGone);
        assert!(matches!(other.try_wait(), Ok(None)), "it lives");
        other.kill().expect("ended");
        other.wait().expect("ended");
        members::kill(id);
    }

    #[test]
    fn a_unit_is_found_in_every_hierarchy_and_by_its_whole_name() {
        let rows = [
            ("0::/system.slice/platform-agent.service\n", true),
            ("0::/system.slice/platform-agent.service/.control\n", true),
            ("3:cpu:/\n1:name=systemd:/system.slice/platform-agent.service/server\n0::/\n", true),
            ("0::/system.slice/my-platform-agent.service\n", false),
            ("0::/user.slice/user-0.slice/session-1.scope\n", false),
            ("", false),
        ];
        for (groups, inside) in rows {
            assert_eq!(names(groups, "platform-agent.service"), inside, "{groups}");
        }
        let plain = "0::/init.scope\n";
        let nested = "1:name=systemd:/machine.slice/box\n0::/\n";
        let system = [
            ("0::/system.slice/platform-agent.service/server-1\n", plain, true),
            ("0::/system.slice/platform-agent.service\n", plain, true),
            ("0::/system.slice/platform-agent.service-2\n", plain, false),
            ("0::/machine.slice/box/system.slice/platform-agent.service\n", plain, false),
            ("1:name=systemd:/machine.slice/box/system.slice/platform-agent.service\n0::/\n", nested, true),
            ("1:name=systemd:/system.slice/platform-agent.service\n0::/\n", nested, false),
            ("0::/user.slice/platform-agent.service\n", plain, false),
            ("", plain, false),
        ];
        for (groups, first, inside) in system {
            assert_eq!(is_of_system(groups, first, "platform-agent.service"), inside, "{groups}");
        }
        assert_eq!(end_unit("no-such.service"), 0);
        assert_eq!(end_rest_of_unit("no-such.service"), 0, "we do not run in it, so nothing of it is ours");
    }
}
