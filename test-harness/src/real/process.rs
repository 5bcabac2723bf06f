//! A child process in a group of its own, whose output goes to a file and which ends with its value.

use std::{
    fs::File,
    io::{BufRead as _, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use super::{PATIENCE, Trouble, eventually};

/// A running program.
pub struct Running {
    child: Child,
    name: String,
    output: PathBuf,
}

impl Running {
    /// Starts `command` with its output appended to the file `output`. With `first_line`, waits for the first line on
    /// standard output and gives it back; the rest of standard output goes to the file too.
    pub fn start(mut command: Command, name: &str, output: &Path, first_line: bool) -> Result<(Self, String), Trouble> {
        use std::os::unix::process::CommandExt as _;
        let log = File::options().create(true).append(true).open(output);
        let log = log.map_err(|error| Trouble::of(output.display(), error))?;
        let again = |error| Trouble::of(output.display(), error);
        command.stdin(Stdio::null()).stderr(log.try_clone().map_err(again)?).process_group(0);
        command.stdout(if first_line { Stdio::piped() } else { log.try_clone().map_err(again)?.into() });
        let mut child = command.spawn().map_err(|error| Trouble::of(format!("could not start {name}"), error))?;
        let out = child.stdout.take();
        let mut running = Running { child, name: name.to_owned(), output: output.to_owned() };
        let mut line = String::new();
        if let Some(out) = out {
            let mut out = BufReader::new(out);
            let read = out.read_line(&mut line);
            if read.is_err() || line.is_empty() {
                let _ = running.child.wait();
                return Err(Trouble(format!("{name} ended before it was ready; it said:\n{}", running.said())));
            }
            let mut log = log;
            std::thread::spawn(move || std::io::copy(&mut out, &mut log));
        }
        Ok((running, line.trim().to_owned()))
    }

    /// Process number.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Everything it printed so far.
    pub fn said(&self) -> String {
        String::from_utf8_lossy(&std::fs::read(&self.output).unwrap_or_default()).into_owned()
    }

    /// Where its output goes.
    pub fn output(&self) -> &Path {
        &self.output
    }

    /// Whether it still runs.
    pub fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Sends a signal to the process alone.
    pub fn signal(&self, signal: Signal) {
        if let Some(pid) = pid(&self.child) {
            let _ = kill_process(pid, signal);
        }
    }

    /// Sends it and waits for its end; its exit code, or nothing if a signal ended it.
    pub fn end_by(mut self, signal: Signal) -> Result<Option<i32>, Trouble> {
        self.signal(signal);
        self.wait()
    }

    /// Asks it to end and waits; its exit code, or nothing if a signal ended it.
    pub fn stop(mut self) -> Result<Option<i32>, Trouble> {
        self.signal(Signal::TERM);
        self.wait()
    }

    /// Ends it without asking, as a power cut would: its children live on.
    pub fn kill(mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Waits for its end.
    pub fn wait(&mut self) -> Result<Option<i32>, Trouble> {
        let name = self.name.clone();
        let status = eventually(&format!("the end of {name}"), || self.child.try_wait().ok().flatten())?;
        Ok(status.code())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if !self.is_running() {
            return;
        }
        self.signal(Signal::TERM);
        let begin = Instant::now();
        while self.is_running() {
            if begin.elapsed() > PATIENCE / 4 {
                if let Some(pid) = pid(&self.child) {
                    let _ = kill_process_group(pid, Signal::KILL);
                }
                let _ = self.child.wait();
                return;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

fn pid(child: &Child) -> Option<Pid> {
    Pid::from_raw(i32::try_from(child.id()).ok()?)
}
