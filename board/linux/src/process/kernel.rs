//! Whether this kernel can watch processes as the agent needs it: handles (pidfd, Linux 5.3) that can be waited for
//! (`waitid`, Linux 5.4). Without them a machine server would be started and ended again, for ever.

use std::os::fd::AsFd as _;

use rustix::{
    io::Errno,
    process::{PidfdFlags, WaitId, WaitIdOptions, getpid, pidfd_open, waitid},
    system::uname,
};

/// What is missing, in words that say what to do; nothing on a kernel that will do.
#[must_use]
pub fn trouble() -> Option<String> {
    let handle = pidfd_open(getpid(), PidfdFlags::empty());
    let waited = match &handle {
        // Nobody is its own child, which a kernel that understands the question says.
        Ok(handle) => waitid(WaitId::PidFd(handle.as_fd()), WaitIdOptions::EXITED | WaitIdOptions::NOHANG).map(drop),
        Err(error) => Err(*error),
    };
    if will_do(waited) {
        return None;
    }
    let release = uname().release().to_string_lossy().into_owned();
    Some(format!(
        "this system (Linux {release}) has no handles of processes that can be waited for, without which no machine server \
         can be kept: Linux 5.4 or later is needed, and no sandbox that forbids pidfd_open"
    ))
}

fn will_do(waited: Result<(), Errno>) -> bool {
    !matches!(waited, Err(Errno::NOSYS | Errno::INVAL | Errno::PERM))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_kernels_are_told_from_answers() {
        let rows = [
            (Err(Errno::CHILD), true, "what a kernel says that understands"),
            (Ok(()), true, "the first process of a container"),
            (Err(Errno::MFILE), true, "no handle left today says nothing about the kernel"),
            (Err(Errno::NOSYS), false, "before 5.3"),
            (Err(Errno::INVAL), false, "before 5.4"),
            (Err(Errno::PERM), false, "a sandbox"),
        ];
        for (waited, expected, case) in rows {
            assert_eq!(will_do(waited), expected, "{case}");
        }
        assert_eq!(trouble(), None, "the tests' own kernel");
    }
}
