//! What is left of a machine server that is gone: children that nobody waits for any more.
//!
//! A process number is not given away while a group of that number has members, so members are ours unless the number
//! has found a new owner, which is looked at first, or a member is older than the leader was. Daemons leave the group;
//! where there are control groups they are found in the leaf of the machine server that started them.

use std::{os::fd::OwnedFd, time::Duration};

use board::{Clock, process::ProcessId};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open, pidfd_send_signal},
};
use smol::{Async, future::FutureExt as _};

use super::{cgroup::Leaf, stat};

/// What SIGKILL may take; longer only for who waits inside the kernel, and that is not waited for.
const KILL_LIMIT: Duration = Duration::from_secs(1);

/// A member and its number.
type Member = (u32, OwnedFd);

/// Handles of every member of the group that is certainly ours.
pub(super) fn of(leader: ProcessId) -> Vec<OwnedFd> {
    numbered(leader).into_iter().map(|(_, handle)| handle).collect()
}

/// The same with their numbers.
fn numbered(leader: ProcessId) -> Vec<Member> {
    let taken = stat::of(leader.pid).is_some_and(|owner| owner.start_ticks != leader.start_ticks);
    if taken {
        return Vec::new();
    }
    stat::in_group(leader.pid)
        .into_iter()
        .filter(|(_, member)| member.start_ticks >= leader.start_ticks)
        .filter_map(|(pid, member)| {
            let handle = open(pid)?;
            // Looked at again with the handle open: it is the same process, so the signal reaches the right one.
            (stat::of(pid)? == member).then_some((pid, handle))
        })
        .collect()
}

/// Handles of everything in a leaf.
fn in_leaf(leaf: &Leaf) -> Vec<Member> {
    let handles: Vec<Member> = leaf.members().into_iter().filter_map(|pid| Some((pid, open(pid)?))).collect();
    if handles.is_empty() {
        return handles;
    }
    // Looked at again with the handles open, as above.
    let still = leaf.members();
    handles.into_iter().filter(|(pid, _)| still.contains(pid)).collect()
}

fn open(pid: u32) -> Option<OwnedFd> {
    pidfd_open(Pid::from_raw(i32::try_from(pid).ok()?)?, PidfdFlags::empty()).ok()
}

/// Asks what is left of a leader to end that is dead and has not been waited for.
pub(super) fn ask(leader: ProcessId, leaf: Option<&Leaf>) {
    if let Some(leaf) = leaf {
        // The rest is asked as a group, each once.
        let in_group = |pid: u32| stat::of(pid).is_none_or(|stat| stat.group == leader.pid);
        send(in_leaf(leaf).iter().filter(|(pid, _)| !in_group(*pid)), Signal::TERM);
    }
    if stat::of(leader.pid).is_some_and(|owner| owner.start_ticks == leader.start_ticks)
        && let Some(group) = i32::try_from(leader.pid).ok().and_then(Pid::from_raw)
    {
        let _ = kill_process_group(group, Signal::TERM);
    }
}

/// Ends a group at once.
pub(super) fn kill(leader: ProcessId) -> Vec<Member> {
    let members = numbered(leader);
    send(&members, Signal::KILL);
    members
}

/// Ends everything in a leaf at once.
pub(super) fn kill_leaf(leaf: &Leaf) -> Vec<Member> {
    let members = in_leaf(leaf);
    if !leaf.kill() {
        send(&members, Signal::KILL);
    }
    members
}

/// Asks the members of the leader's group and of these leaves to end unless they have been asked, and ends whoever is there
/// after `grace`. Empty leaves are removed. Returns how many there were.
pub(super) async fn end(
    leader: Option<ProcessId>,
    asked: bool,
    leaves: &[(Leaf, bool)],
    grace: Duration,
    clock: &dyn Clock,
) -> usize {
    let mut members = leader.map(numbered).unwrap_or_default();
    if !asked {
        send(&members, Signal::TERM);
    }
    for (leaf, asked) in leaves {
        let mut others = in_leaf(leaf);
        others.retain(|(pid, _)| !members.iter().any(|(known, _)| known == pid));
        if !asked {
            send(&others, Signal::TERM);
        }
        members.extend(others);
    }
    let count = members.len();
    if count > 0 {
        gone(members).or(clock.sleep_until(clock.now() + grace)).await;
        let mut left = leader.map(kill).unwrap_or_default();
        left.extend(leaves.iter().flat_map(|(leaf, _)| kill_leaf(leaf)));
        gone(left).or(clock.sleep_until(clock.now() + KILL_LIMIT)).await;
    }
    leaves.iter().for_each(|(leaf, _)| leaf.remove());
    count
}

fn send<'a>(members: impl IntoIterator<Item = &'a Member>, signal: Signal) {
    for (_, member) in members {
        // Fails only when it has ended already, which is what was asked for.
        let _ = pidfd_send_signal(member, signal);
    }
}

async fn gone(members: Vec<Member>) {
    for (_, member) in members {
        if let Ok(member) = Async::new_nonblocking(member) {
            // Looks by itself at the first wake-up, as `Child::exited` does.
            let look =
                |member: &OwnedFd| if has_ended(member) { Ok(()) } else { Err(std::io::ErrorKind::WouldBlock.into()) };
            let _ = member.read_with(look).await;
        }
    }
}

fn has_ended(member: &OwnedFd) -> bool {
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut [PollFd::new(member, PollFlags::IN)], Some(&now)).is_ok_and(|ready| ready > 0)
}
