//! Programs and scripts that tests write and then run.
//!
//! Linux refuses to run a file that somebody has open for writing. A test that writes one itself may have closed it and
//! still be refused: a process that another thread started meanwhile has the open file too, until it has become its own
//! program. So a process of its own writes here, and nothing that the test starts can inherit the file.

use std::{
    fs::{self, File, Permissions},
    io::{self, Read, Write as _},
    os::unix::fs::PermissionsExt as _,
    path::Path,
    process::{Command, Stdio},
};

/// Puts an executable of this content at `path`, in the place of what is there, which may be running.
pub fn write(path: &Path, content: &[u8]) -> io::Result<()> {
    write_from(path, content)
}

/// The same with content that is read piece by piece.
pub fn write_from(path: &Path, mut content: impl Read) -> io::Result<()> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".new");
    let new = path.with_file_name(name);
    let mut cat = Command::new("/bin/sh").args(["-c", "exec cat >\"$0\""]).arg(&new).stdin(Stdio::piped()).spawn()?;
    let copied = cat.stdin.take().map(|mut to| io::copy(&mut content, &mut to).and_then(|_| to.flush()));
    let status = cat.wait()?;
    if !status.success() {
        return Err(io::Error::other(format!("{} could not be written: {status}", new.display())));
    }
    copied.transpose()?;
    fs::set_permissions(&new, Permissions::from_mode(0o755))?;
    fs::rename(&new, path)
}

/// Puts a copy of the program `from` at `to`.
pub fn copy(from: &Path, to: &Path) -> io::Result<()> {
    write_from(to, File::open(from)?)
}

#[cfg(test)]
mod tests {
    use std::{
        os::unix::{fs::MetadataExt as _, process::CommandExt as _},
        sync::atomic::{AtomicBool, Ordering},
        thread,
    };

    use super::*;

    #[test]
    fn what_was_written_can_be_run_whatever_is_started_meanwhile() {
        let folder = tempfile::tempdir().expect("a folder");
        let done = AtomicBool::new(false);
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    // To name a user is to be started the slow way, by `fork`.
                    let user = fs::metadata("/proc/self").map(|folder| folder.uid()).unwrap_or_default();
                    while !done.load(Ordering::Relaxed) {
                        let _ = Command::new("/bin/true").uid(user).status();
                    }
                });
            }
            let runs = |number: u32| {
                let script = folder.path().join(number.to_string());
                let mut text = format!("#!/bin/sh\nexit {number}\n").into_bytes();
                text.resize(1 << 20, b'#');
                write(&script, &text)?;
                Command::new(&script).status()
            };
            let refused =
                (0..100).find_map(|number| runs(number).map_or_else(|error| Some(error.to_string()), |_| None));
            done.store(true, Ordering::Relaxed);
            assert_eq!(refused, None);
        });
    }

    #[test]
    fn one_that_runs_is_replaced() {
        let folder = tempfile::tempdir().expect("a folder");
        let program = folder.path().join("program");
        copy(Path::new("/bin/cat"), &program).expect("written");
        let mut running = Command::new(&program).stdin(Stdio::piped()).spawn().expect("started");
        write(&program, b"#!/bin/sh\nexit 7\n").expect("written in its place");
        assert_eq!(Command::new(&program).status().expect("run").code(), Some(7));
        drop(running.stdin.take());
        assert!(running.wait().expect("ended").success());
        assert!(write(&folder.path().join("no/such/folder"), b"").is_err());
    }
}
