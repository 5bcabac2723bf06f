//! What is left of a group whose leader is gone: children of the machine server that nobody waits for any more.
//!
//! A process number is not given away while a group of that number has members, so members are ours unless the number
//! has found a new owner, which is looked at first, or a member is older than the leader was.

use std::{os::fd::OwnedFd, time::Duration};

use board::{Clock, process::ProcessId};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use smol::{Async, future::FutureExt as _};

use super::stat;

/// Handles of every member that is certainly ours.
pub(super) fn of(leader: ProcessId) -> Vec<OwnedFd> {
    let taken = stat::of(leader.pid).is_some_and(|owner| owner.start_ticks != leader.start_ticks);
    if taken {
        return Vec::new();
    }
    stat::in_group(leader.pid)
        .into_iter()
        .filter(|(_, member)| member.start_ticks >= leader.start_ticks)
        .filter_map(|(pid, member)| {
            let handle = pidfd_open(Pid::from_raw(i32::try_from(pid).ok()?)?, PidfdFlags::empty()).ok()?;
            // Looked at again with the handle open: it is the same process, so the signal reaches the right one.
            (stat::of(pid)? == member).then_some(handle)
        })
        .collect()
}

/// What SIGKILL may take; longer only for who waits inside the kernel, and that is not waited for.
const KILL_LIMIT: Duration = Duration::from_secs(1);

/// Ends them at once.
pub(super) fn kill(leader: ProcessId) -> Vec<OwnedFd> {
    let members = of(leader);
    send(&members, Signal::KILL);
    members
}

/// Asks them to end unless they have been asked, and ends whoever is there after `grace`. Returns how many there were.
pub(super) async fn end(leader: ProcessId, asked: bool, grace: Duration, clock: &dyn Clock) -> usize {
    let members = of(leader);
    let count = members.len();
    if count == 0 {
        return 0;
    }
    if !asked {
        send(&members, Signal::TERM);
    }
    gone(members).or(clock.sleep_until(clock.now() + grace)).await;
    gone(kill(leader)).or(clock.sleep_until(clock.now() + KILL_LIMIT)).await;
    count
}

fn send(members: &[OwnedFd], signal: Signal) {
    for member in members {
        // Fails only when it has ended already, which is what was asked for.
        let _ = pidfd_send_signal(member, signal);
    }
}

async fn gone(members: Vec<OwnedFd>) {
    for member in members {
        if let Ok(member) = Async::new_nonblocking(member) {
            let _ = member.readable().await;
        }
    }
}
