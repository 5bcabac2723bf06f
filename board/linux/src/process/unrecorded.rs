//! Machine servers of which nobody has written down that they run, found by what they carry with them.
//!
//! An agent writes a name down after the start it belongs to, so that nothing lies between a death and the next start.
//! One that is killed in between leaves a process behind that its successor must find, or there would be two. Such a
//! process is recognised by all of these, the cheap ones first:
//!
//! - it leads its group and not its session: so are they started; a daemon leads both, an ordinary child none.
//! - its standard output is our pipe, which nobody else may open: no other user can pretend to be one.
//! - its environment has the variable: it was started by an agent that hands it on.
//! - its program, or the script that its interpreter was given, lies below the folder: what it started itself has
//!   inherited all the rest.
//!
//! A child between fork and exec shows none of this yet. It cannot be missed, because it still holds the lock of the
//! agent's root folder, a descriptor that only exec closes: the next agent does not come as far as looking.

use std::{
    ffi::OsStr,
    fs,
    os::unix::{ffi::OsStrExt as _, fs::MetadataExt as _},
    path::{Path, PathBuf},
};

use board::process::{ProcessId, Unrecorded};

use super::stat;

/// What the kernel says behind the name of a file that was removed or replaced since.
const REPLACED: &str = " (deleted)";
/// An interpreter, its one option, the script.
const WORDS: usize = 3;

/// Every one of them; `pipe` is device and inode number of the pipe for standard output.
pub(super) fn find(pipe: Option<(u64, u64)>, programs: &Path, variable: &str) -> Vec<Unrecorded> {
    let leaders = stat::all().filter(|&(pid, stat)| stat.group == pid && stat.session != pid);
    let found = leaders.filter_map(|(pid, leader)| {
        let folder = Path::new("/proc").join(pid.to_string());
        let output = fs::metadata(folder.join("fd/1")).ok()?;
        (pipe == Some((output.dev(), output.ino()))).then_some(())?;
        let note = value(&fs::read(folder.join("environ")).ok()?, variable)?;
        let program = program(&folder, programs)?;
        // The same process still, so that all of this was said of one.
        let same = stat::of(pid).is_some_and(|now| now.start_ticks == leader.start_ticks);
        same.then_some(Unrecorded { id: ProcessId { pid, start_ticks: leader.start_ticks }, program, note })
    });
    found.collect()
}

fn value(environment: &[u8], variable: &str) -> Option<String> {
    let mut entries = environment.split(|&byte| byte == 0);
    let value = entries.find_map(|entry| entry.strip_prefix(variable.as_bytes())?.strip_prefix(b"="))?;
    String::from_utf8(value.to_vec()).ok()
}

/// What it runs, if that lies below `programs`, and named as from there.
fn program(folder: &Path, programs: &Path) -> Option<PathBuf> {
    let image = fs::read_link(folder.join("exe")).ok()?;
    let image = image.as_os_str().as_bytes();
    let image = Path::new(OsStr::from_bytes(image.strip_suffix(REPLACED.as_bytes()).unwrap_or(image)));
    // The kernel names files without symbolic links.
    if let Ok(below) = image.strip_prefix(fs::canonicalize(programs).ok()?) {
        return Some(programs.join(below));
    }
    let words = fs::read(folder.join("cmdline")).ok()?;
    let mut words = words.split(|&byte| byte == 0).take(WORDS).map(|word| Path::new(OsStr::from_bytes(word)));
    words.find(|word| word.starts_with(programs)).map(Path::to_owned)
}
