//! Whether a launcher's file works, seen by running it: what an installation asks before it replaces the only good path,
//! and what the one before asks about its successor at every start of the service.

use std::{
    io::{self, Read as _},
    path::Path,
    process::{Child, Command, ExitStatus, Stdio},
    thread,
    time::{Duration, Instant},
};

use api::brand;

/// It answers in milliseconds; a machine that is busy with its boot may take longer.
const LIMIT: Duration = Duration::from_secs(20);
const PAUSE: Duration = Duration::from_millis(5);
/// Longest answer that is read, in bytes.
const ANSWER_BYTES_MAX: u64 = 256;

/// What came of the question for its version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It is a launcher, and runs on this machine.
    Works,
    /// Why it is none, or does not run.
    Broken(String),
    /// It said nothing for [`LIMIT`] and was ended. Nothing is known then.
    Silent,
}

/// Asks this executable for its version. Takes up to [`LIMIT`].
#[must_use]
pub fn ask(program: &Path) -> Answer {
    let begin = Instant::now();
    let child = loop {
        let mut command = Command::new(program);
        command.arg("--version").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        match command.spawn() {
            Ok(child) => break child,
            // Somebody's child still has it open for writing, until it executes something.
            Err(error) if error.kind() == io::ErrorKind::ExecutableFileBusy && begin.elapsed() < LIMIT => {
                thread::sleep(PAUSE);
            }
            Err(error) => return Answer::Broken(format!("it cannot be executed, {error}")),
        }
    };
    answer(child, begin)
}

fn answer(mut child: Child, begin: Instant) -> Answer {
    let status: ExitStatus = loop {
        match child.try_wait() {
            Ok(Some(status)) => break status,
            Ok(None) if begin.elapsed() < LIMIT => thread::sleep(PAUSE),
            Ok(None) | Err(_) => {
                let _ = child.kill();
                let _ = child.wait();
                return Answer::Silent;
            }
        }
    };
    let mut said = Vec::new();
    if let Some(out) = child.stdout.take() {
        let _ = out.take(ANSWER_BYTES_MAX).read_to_end(&mut said);
    }
    let said = String::from_utf8_lossy(&said);
    match said.split_whitespace().next() {
        Some(name) if status.success() && name == brand::LAUNCHER => Answer::Works,
        _ if !status.success() => Answer::Broken(format!("asked for its version, it ended with {status}")),
        _ => Answer::Broken(format!("it does not say that it is {}", brand::LAUNCHER)),
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt as _};

    use super::*;

    #[test]
    fn only_a_launcher_that_runs_works() {
        let folder = tempfile::tempdir().expect("a folder");
        let rows: [(&str, u32, Option<&str>); 7] = [
            ("#!/bin/sh\necho platform-launcher 1.2.3\n", 0o755, None),
            ("#!/bin/sh\necho platform-agent 1.2.3\n", 0o755, Some("does not say")),
            ("#!/bin/sh\n", 0o755, Some("does not say")),
            ("#!/bin/sh\necho platform-launcher 1.2.3\nexit 3\n", 0o755, Some("ended with exit status: 3")),
            ("#!/bin/sh\nkill -SEGV $$\n", 0o755, Some("ended with signal: 11")),
            ("#!/bin/sh\necho platform-launcher 1.2.3\n", 0o644, Some("cannot be executed")),
            ("\u{7f}ELF and then nothing", 0o755, Some("cannot be executed")),
        ];
        for (number, (content, mode, expected)) in rows.into_iter().enumerate() {
            let file = folder.path().join(number.to_string());
            test_executables::write(&file, content.as_bytes()).expect("written");
            fs::set_permissions(&file, fs::Permissions::from_mode(mode)).expect("set");
            match (ask(&file), expected) {
                (Answer::Works, None) => {}
                (Answer::Broken(why), Some(words)) if why.contains(words) => {}
                (other, _) => panic!("{content:?}: {other:?}"),
            }
        }
        assert!(matches!(ask(&folder.path().join("missing")), Answer::Broken(_)));
    }
}
