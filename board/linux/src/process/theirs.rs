//! Where the output of a process goes that some agent has started.
//!
//! A machine server keeps the pipes that it was started with, whatever happens to the run folder. Through `/proc` they
//! are found again, also when they have no name any more, or never had one.

use std::{
    fs, io,
    os::unix::fs::{FileTypeExt as _, MetadataExt as _},
    path::{Path, PathBuf},
};

use board::process::Stream;

use super::pipes::{End, NAMED, open_end};

/// What the kernel adds to the name of a file that was removed.
const REMOVED: &str = " (deleted)";
/// What it calls a pipe without a name.
const NAMELESS: &str = "pipe:";

/// A pipe that an agent made, as a process holds it.
pub(super) struct Theirs {
    /// The way to it, named or not.
    door: PathBuf,
    /// Device and inode number.
    pub(super) identity: (u64, u64),
    /// As the kernel names it.
    name: PathBuf,
}

impl Theirs {
    /// What process `pid` has as this stream; `None` when it is nothing that an agent gave it.
    ///
    /// Agents give ends that are open for reading and writing, which nobody else does. A program that has turned its
    /// output into a pipe of its own keeps that for itself.
    pub(super) fn of(pid: u32, stream: Stream) -> Option<Theirs> {
        let number = match stream {
            Stream::Out => 1,
            Stream::Err => 2,
        };
        let process = Path::new("/proc").join(pid.to_string());
        let door = process.join("fd").join(number.to_string());
        let (name, there) = (fs::read_link(&door).ok()?, fs::metadata(&door).ok()?);
        let own = there.file_type().is_fifo() && there.uid() == rustix::process::geteuid().as_raw();
        let theirs = Theirs { door, identity: (there.dev(), there.ino()), name };
        let text = theirs.name.to_str()?;
        let known = text.starts_with(NAMELESS)
            || NAMED.into_iter().any(|(of, name)| {
                let file = Path::new(text.strip_suffix(REMOVED).unwrap_or(text)).file_name();
                of == stream && file.is_some_and(|file| file == name)
            });
        let info = fs::read_to_string(process.join("fdinfo").join(number.to_string())).ok()?;
        (own && known && is_for_both(&info)).then_some(theirs)
    }

    /// Whether it was this file, which was removed.
    pub(super) fn was(&self, path: &Path) -> bool {
        let name = self.name.to_str().and_then(|name| name.strip_suffix(REMOVED));
        name.is_some_and(|name| Path::new(name) == path)
    }

    /// An agent's end of it.
    pub(super) fn open(&self) -> io::Result<End> {
        open_end(&self.door)
    }
}

/// Whether a descriptor is open for reading and writing, by what the kernel says of it.
fn is_for_both(info: &str) -> bool {
    let flags = info.lines().find_map(|line| line.strip_prefix("flags:"));
    flags.and_then(|flags| u32::from_str_radix(flags.trim(), 8).ok()).is_some_and(|flags| flags & 3 == 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_ends_for_both_ways_are_an_agents() {
        let rows = [
            ("pos:\t0\nflags:\t02\nmnt_id:\t13\n", true),
            ("pos:\t0\nflags:\t02102002\nmnt_id:\t13\n", true),
            ("pos:\t0\nflags:\t01\nmnt_id:\t13\n", false),
            ("pos:\t0\nflags:\t0100000\n", false),
            ("pos:\t0\nflags:\t09\n", false),
            ("", false),
        ];
        for (info, both) in rows {
            assert_eq!(is_for_both(info), both, "{info}");
        }
    }
}
