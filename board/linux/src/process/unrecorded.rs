//! Machine servers of which nobody has written down that they run, found by what they carry with them.
//!
//! An agent writes a name down after the start it belongs to, so that nothing lies between a death and the next start.
//! One that is killed in between leaves a process behind that its successor must find, or there would be two. Such a
//! process is recognised by all of these, the cheap ones first:
//!
//! - it leads its group and not its session: so are they started; a daemon leads both, an ordinary child none.
//! - its standard output is our pipe, which nobody else may open: no other user can pretend to be one. Or it was, before
//!   somebody removed the pipe. Or it lives in a control group that only machine servers of this agent live in.
//! - its environment has the variable: it was started by an agent that hands it on, or by who was.
//!
//! What it executes says nothing: a script may have become another program. A child of it in a group of its own has
//! inherited all the rest, but is younger.
//!
//! A child between fork and exec shows none of this yet. It cannot be missed, because it still holds the lock of the
//! agent's root folder, a descriptor that only exec closes: the next agent does not come as far as looking.

use std::{
    fs,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    time::Duration,
};

use board::process::{ProcessId, Stream, Unrecorded};

use super::{cgroup::Unit, pipes::NAMED, stat, theirs::Theirs};

/// How often, and with what pause, one is looked at again that is in the middle of exec: a matter of microseconds.
const EXEC_LOOKS: usize = 20;
const EXEC_LOOK: Duration = Duration::from_millis(1);

/// Every one of them; `pipe` is device and inode number of the pipe for standard output, which lies in `run_folder`
/// unless it was removed.
pub(super) fn find(
    pipe: Option<(u64, u64)>,
    run_folder: &Path,
    unit: Option<&Unit>,
    variable: &str,
) -> Vec<Unrecorded> {
    let [(_, out), _] = NAMED;
    let path = real(run_folder).join(out);
    let leaves: Vec<u32> = unit.iter().flat_map(|unit| unit.leaves()).flat_map(|leaf| leaf.members()).collect();
    let is_ours = |pid: u32, output: (u64, u64)| {
        pipe == Some(output)
            || leaves.contains(&pid)
            || Theirs::of(pid, Stream::Out).is_some_and(|theirs| theirs.was(&path))
    };
    let leaders = stat::all().filter(|&(pid, stat)| stat.group == pid && stat.session != pid);
    let found = leaders.filter_map(|(pid, leader)| {
        let folder = Path::new("/proc").join(pid.to_string());
        let output = fs::metadata(folder.join("fd/1")).ok()?;
        is_ours(pid, (output.dev(), output.ino())).then_some(())?;
        let note = value(&environment(&folder)?, variable)?;
        // The same process still, so that all of this was said of one.
        let same = stat::of(pid).is_some_and(|now| now.start_ticks == leader.start_ticks);
        same.then_some(Unrecorded { id: ProcessId { pid, start_ticks: leader.start_ticks }, note })
    });
    let mut found: Vec<_> = found.collect();
    found.sort_by_key(|found| (found.id.start_ticks, found.id.pid));
    found
}

/// The folder as the kernel names it, also when it is gone.
fn real(folder: &Path) -> PathBuf {
    let above = || Some(fs::canonicalize(folder.parent()?).ok()?.join(folder.file_name()?));
    fs::canonicalize(folder).ok().or_else(above).unwrap_or_else(|| folder.to_owned())
}

/// A process in the middle of exec has let go of the lock and shows no environment yet: it is looked at again. One that was
/// started without any is looked at in vain.
fn environment(process: &Path) -> Option<Vec<u8>> {
    let read = || fs::read(process.join("environ")).ok();
    for _ in 0..EXEC_LOOKS {
        match read() {
            Some(none) if none.is_empty() => std::thread::sleep(EXEC_LOOK),
            done => return done,
        }
    }
    read()
}

fn value(environment: &[u8], variable: &str) -> Option<String> {
    let mut entries = environment.split(|&byte| byte == 0);
    let value = entries.find_map(|entry| entry.strip_prefix(variable.as_bytes())?.strip_prefix(b"="))?;
    String::from_utf8(value.to_vec()).ok()
}
