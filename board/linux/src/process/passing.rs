//! Open ends of the output pipes on their way from one agent to the next.
//!
//! A named pipe forgets what is in it when nobody holds it open. While a machine server lives, it does. One that dies
//! while no agent lives would lose its last words, so an agent hands its ends on: to the program it becomes by `exec`,
//! and to the store of a service manager, which gives them to whichever agent it starts next.
//!
//! What arrives is only held until the pipes were opened by their paths: from then on it is as if it never came. Unless
//! those are others, because somebody has cleaned the run folder up: then what arrives is what the machine server uses.

use std::{
    env, fs,
    os::{
        fd::{FromRawFd as _, OwnedFd, RawFd},
        unix::fs::{FileTypeExt as _, MetadataExt as _},
    },
};

use board::process::{PassedOn, Stream};
use rustix::io::{FdFlags, fcntl_setfd};

/// Numbers of the open ends, behind the number of the process that they are meant for: exec keeps it, and nobody who
/// inherits the variable by accident has it.
pub(crate) const VARIABLE: &str = "MACHINE_SERVER_PIPES";
/// The first descriptor that a service manager passes.
const FIRST_OF_THE_MANAGER: RawFd = 3;
/// More is nothing that an agent has passed.
const PASSED_MAX: usize = 8;

/// Ends that an earlier agent held.
pub(super) struct Inherited {
    ends: Vec<(Stream, OwnedFd)>,
    /// This process was another agent before.
    by_exec: bool,
    /// They came out of the service manager's store and are still in there.
    stored: bool,
}

impl Inherited {
    /// As the environment says. To be called once, before this process opens pipes of its own.
    pub(super) fn take() -> Inherited {
        let variable = |name: &str| env::var(name).ok();
        let own = std::process::id();
        // The manager's variables stay in the environment when the agent becomes another: they mean nothing then.
        if let Some(numbers) = variable(VARIABLE).and_then(|value| passed(&value, own)) {
            let ends = open([Stream::Out, Stream::Err].into_iter().zip(numbers));
            return Inherited { ends, by_exec: true, stored: false };
        }
        let [pid, count, names] = ["LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"].map(variable);
        let numbers = kept(pid.as_deref(), count.as_deref(), names.as_deref(), own);
        Inherited { ends: open(numbers), by_exec: false, stored: true }
    }

    /// Device and inode numbers of the pipes of which the store holds an end.
    pub(super) fn stored(&self) -> Vec<(u64, u64)> {
        let ends = self.stored.then_some(&self.ends).into_iter().flatten();
        ends.filter_map(|(_, end)| identity(end)).collect()
    }

    /// The end for this stream, unless it is one of the pipe that `end` is of.
    pub(super) fn other_than(&mut self, stream: Stream, end: &OwnedFd) -> Option<OwnedFd> {
        let index = self.ends.iter().position(|(of, other)| *of == stream && identity(other) != identity(end))?;
        Some(self.ends.swap_remove(index).1)
    }

    /// Whether this process was another agent before, whose children are its own now.
    pub(super) const fn by_exec(&self) -> bool {
        self.by_exec
    }

    /// Whether nothing came.
    pub(super) fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }
}

fn open(numbers: impl IntoIterator<Item = (Stream, RawFd)>) -> Vec<(Stream, OwnedFd)> {
    numbers.into_iter().filter_map(|(stream, number)| Some((stream, pipe(number)?))).collect()
}

/// Device and inode number.
pub(super) fn identity(end: &OwnedFd) -> Option<(u64, u64)> {
    let stat = rustix::fs::fstat(end).ok()?;
    #[allow(clippy::unnecessary_cast, clippy::useless_conversion, reason = "the width differs between architectures")]
    let identity = (stat.st_dev as u64, stat.st_ino as u64);
    Some(identity)
}

/// Leaves these ends open for the program that this process becomes.
pub(super) fn pass_on(ends: [OwnedFd; 2]) -> PassedOn {
    use std::os::fd::AsRawFd as _;
    let [out, err] = &ends;
    let value = format!("{} {} {}", std::process::id(), out.as_raw_fd(), err.as_raw_fd());
    for end in &ends {
        if let Err(error) = fcntl_setfd(end, FdFlags::empty()) {
            log::warn!("last words of the machine server may be lost in the hand-over: {error}");
        }
    }
    // Duplicates, so to close them is to close nothing else.
    PassedOn::new(vec![(VARIABLE.to_owned(), value)], move || drop(ends))
}

/// What the last agent passed to the process of number `own`.
fn passed(value: &str, own: u32) -> Option<Vec<RawFd>> {
    let mut fields = value.split(' ');
    (fields.next()?.parse() == Ok(own)).then_some(())?;
    Some(fields.filter_map(|field| field.parse().ok()).take(PASSED_MAX).collect())
}

/// What came out of a service manager's store under our names.
fn kept(pid: Option<&str>, count: Option<&str>, names: Option<&str>, own: u32) -> Vec<(Stream, RawFd)> {
    if pid.and_then(|pid| pid.parse().ok()) != Some(own) {
        return Vec::new();
    }
    let count: usize = count.and_then(|count| count.parse().ok()).unwrap_or(0);
    let names = names.unwrap_or_default().split(':');
    let numbered = (FIRST_OF_THE_MANAGER..).zip(names).take(count.min(PASSED_MAX));
    let stream = |name: &str| super::pipes::NAMED.into_iter().find(|(_, of)| *of == name).map(|(stream, _)| stream);
    numbered.filter_map(|(number, name)| Some((stream(name)?, number))).collect()
}

/// The descriptor of this number, when it is a pipe and not one of the standard streams.
#[expect(unsafe_code, reason = "a descriptor that was inherited has no owner yet, and this is how it gets one")]
fn pipe(number: RawFd) -> Option<OwnedFd> {
    if number <= 2 {
        return None;
    }
    let there = fs::metadata(format!("/proc/self/fd/{number}")).ok()?;
    let known = there.file_type().is_fifo() && there.ino() > 0;
    // SAFETY: it is open, and nobody in this process owns it: it is named as inherited, no part of this program opens
    // pipes before this is called (the reactor uses eventfd), and each number is taken once.
    let end = known.then(|| unsafe { OwnedFd::from_raw_fd(number) })?;
    // Until it is closed, also not for children.
    let _ = fcntl_setfd(&end, FdFlags::CLOEXEC);
    Some(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_meant_for_this_process_is_taken() {
        let rows: [(&str, Option<Vec<RawFd>>); 6] = [
            ("77 8 9", Some(vec![8, 9])),
            ("78 8 9", None),
            ("", None),
            ("77", Some(vec![])),
            ("77 x -1 9", Some(vec![-1, 9])),
            ("9 8 77", None),
        ];
        for (value, expected) in rows {
            assert_eq!(passed(value, 77), expected, "{value}");
        }
        assert_eq!(pipe(-1).map(drop), None);
        assert_eq!(pipe(1).map(drop), None, "standard output, whatever it is");
    }

    #[test]
    fn the_store_gives_back_what_has_our_names() {
        let ours = "server.stdout:server.stderr";
        use Stream::{Err, Out};
        let rows = [
            (Some("77"), Some("2"), Some(ours), vec![(Out, 3), (Err, 4)]),
            (Some("77"), Some("3"), Some("http:server.stdout:server.stderr"), vec![(Out, 4), (Err, 5)]),
            (Some("77"), Some("1"), Some(ours), vec![(Out, 3)]),
            (Some("77"), Some("2"), Some("server.stderr:server.stdout"), vec![(Err, 3), (Out, 4)]),
            (Some("77"), Some("2"), None, vec![]),
            (Some("77"), Some("2"), Some("a:b"), vec![]),
            (Some("77"), Some("x"), Some(ours), vec![]),
            (Some("78"), Some("2"), Some(ours), vec![]),
            (None, Some("2"), Some(ours), vec![]),
            (Some("77"), Some("99999999999"), Some(ours), vec![(Out, 3), (Err, 4)]),
        ];
        for (pid, count, names, expected) in rows {
            assert_eq!(kept(pid, count, names, 77), expected, "{pid:?} {count:?} {names:?}");
        }
    }
}
