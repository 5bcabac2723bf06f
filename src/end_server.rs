//! Ends the machine server that an agent left running: what the service manager runs after the service has ended.
//!
//! A stopped service leaves no machine server behind, also when its agent was hung or was only waiting for its next
//! start, or died while it was stopping. A crashed agent leaves it to the next one. Bounded: the machine server gets as long as the agent gives it.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use actors::server::{launch, record};
use api::brand;
use board::{
    files::{Access, FileError, Files as _},
    process::ProcessId,
};
use board_linux::process::{
    cgroup,
    ending::{self, Ending},
};
use board_portable::PortableFiles;

use crate::lock::{self, LockError};

/// What the machine server may take after SIGTERM, as from the agent (`server::machine::Policy::stop_limit`). The unit
/// allows more.
const GRACE: Duration = Duration::from_secs(120);
/// Largest record that is read.
const RECORD_BYTES_MAX: usize = 8 * 1024;
/// In which variable systemd says how the service ended.
pub const SERVICE_RESULT: &str = "SERVICE_RESULT";
/// Where Linux names the present boot.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// What is said when there was nothing to end.
const NOTHING_RUNS: &str = "no machine server runs";
/// Longest boot id that is read back, in bytes.
const BOOT_BYTES_MAX: usize = 256;

/// The mark of an agent that was asked to stop: the boot in which that was.
fn stopping(root: &Path) -> PathBuf {
    root.join("state").join(format!("{}.stopping", brand::AGENT))
}

fn present_boot() -> String {
    fs::read_to_string(BOOT_ID).unwrap_or_default().trim().to_owned()
}

/// Notes that this agent was asked to stop, so that the machine server is ended also if the agent dies on the way.
pub fn say_stopping(root: &Path) -> Result<(), FileError> {
    PortableFiles.write(&stopping(root), present_boot().as_bytes(), Access::Private)
}

/// Takes the mark of an earlier agent away: this one was not asked to stop.
pub fn forget_stopping(root: &Path) {
    // One that cannot be removed costs a machine server that is started anew after a crash.
    let _ = fs::remove_file(stopping(root));
}

fn was_stopping(root: &Path) -> bool {
    let mark = PortableFiles.read(&stopping(root), BOOT_BYTES_MAX).ok().flatten();
    mark.is_some_and(|mark| mark == present_boot().as_bytes())
}

/// Why nothing was ended, or could not be.
#[derive(Debug, thiserror::Error)]
pub enum EndError {
    /// An agent runs, and the machine server is its.
    #[error(transparent)]
    Agent(#[from] LockError),
}

/// Does it and says in a sentence what was done. `service_result` is what systemd says about the end of the service;
/// without it, as for a person at a shell, the machine server is ended.
pub fn run(root: &Path, service_result: Option<&str>) -> Result<String, EndError> {
    // However the service ended: the next agent could not be started beside a machine server with limits.
    if let Err(error) = cgroup::free_unit() {
        eprintln!("{}: the control group of the service could not be freed: {error}", brand::AGENT);
    }
    if let Some(result) = service_result.filter(|result| !ends(result) && !was_stopping(root)) {
        return Ok(format!("the service ended by {result}: the machine server stays for the next agent"));
    }
    end(root, || ending::end_rest_of_unit(&unit()))
}

/// The same for whoever takes the agent away: whatever has become of the service. With `is_service`, everything that is
/// left in the service's control group ends too. Nothing when there was nothing to end.
pub fn run_from_outside(root: &Path, is_service: bool) -> Result<Option<String>, LockError> {
    let said = end(root, || if is_service { ending::end_unit(&unit()) } else { 0 });
    match said {
        Ok(said) => Ok(Some(said).filter(|said| said != NOTHING_RUNS)),
        Err(EndError::Agent(error)) => Err(error),
    }
}

fn unit() -> String {
    format!("{}.service", brand::AGENT)
}

fn end(root: &Path, end_rest: impl FnOnce() -> usize) -> Result<String, EndError> {
    if !root.is_dir() {
        return Ok(format!("{} does not exist, so no machine server runs there", root.display()));
    }
    // Held until the end, so that no agent starts another one meanwhile.
    let _lock = lock::take(root)?;
    let place = root.join("state").join("machine-server.process");
    let stored = PortableFiles.read(&place, RECORD_BYTES_MAX).ok().flatten();
    let record = stored.as_deref().and_then(record::Record::decode);
    let boot = record::boot(&present_boot());
    let running = record.as_ref().and_then(|record| record.running.as_ref()).filter(|running| running.boot == boot);

    forget_stopping(root);
    let mut said = Vec::new();
    let mut end = |id: ProcessId| match ending::end(id, GRACE) {
        Ending::WasGone => {}
        Ending::Asked => said.push(format!("process {} ended when it was asked to", id.pid)),
        Ending::Killed => said.push(format!("process {} was killed after {} s", id.pid, GRACE.as_secs())),
    };
    if let Some(running) = running {
        end(running.id);
    }
    for found in ending::unrecorded_in(&root.join("run"), &launch::note_variable()) {
        end(found.id);
    }
    let rest = end_rest();
    if rest > 0 {
        said.push(format!("{rest} more processes of the service were ended"));
    }
    if let Some(record) = record.filter(|record| record.running.is_some()) {
        // It did not crash. Whoever cannot store that finds it gone and counts one crash too many.
        let ended = record::Record { running: None, ..record };
        let _ = PortableFiles.write(&place, &ended.encode(), Access::Private);
    }
    Ok(if said.is_empty() { NOTHING_RUNS.to_owned() } else { format!("machine server: {}", said.join("; ")) })
}

/// Whether the service was meant to end: it was stopped, or had to be killed while it was.
fn ends(service_result: &str) -> bool {
    matches!(service_result, "success" | "timeout")
}
