//! What must be true at every moment of every world.
//!
//! Checked whenever no task can move. Cheap where it is asked often: files are only looked at after they changed.

use std::collections::BTreeMap;

use board::files::Access;
use board_sim::{SimBoard, image};

use super::cloud::{Kept, SimCloud};

/// What earlier looks have found.
#[derive(Default)]
pub(super) struct Watcher {
    writes_seen: u64,
    installed: bool,
    lines_seen: usize,
    last_said: BTreeMap<u64, u64>,
    interrupted: bool,
    rotten: bool,
}

impl Watcher {
    /// What was only in memory may be missing from now on.
    pub(super) fn interrupted(&mut self) {
        self.interrupted = true;
    }

    /// A program was changed on the disk behind the agent's back: it may run broken once.
    pub(super) fn rotten(&mut self) {
        self.rotten = true;
    }

    /// Says what is wrong, if anything is.
    pub(super) fn look(&mut self, board: &SimBoard, cloud: &SimCloud) -> Result<(), String> {
        if board.processes.most_at_once() > 1 {
            return Err("two machine servers ran at one time".into());
        }
        if !self.rotten && board.processes.started().iter().any(|start| start.version.is_empty()) {
            return Err("bytes that nobody verified were run".into());
        }
        if self.writes_seen != board.files.writes() {
            self.writes_seen = board.files.writes();
            let startable = one_is_startable(board);
            if self.installed && !startable && !self.rotten {
                return Err("no version can be started any more".into());
            }
            self.installed |= startable && !board.processes.started().is_empty();
        }
        self.look_at_lines(cloud)
    }

    /// Numbered lines of one process come in order, each once, and without a gap unless something was interrupted or
    /// the gap is told.
    fn look_at_lines(&mut self, cloud: &SimCloud) -> Result<(), String> {
        for Kept { entry, .. } in cloud.lines_from(self.lines_seen) {
            self.lines_seen += 1;
            if entry.message.contains("lines lost") {
                // What comes next may skip, as told.
                self.last_said.clear();
                continue;
            }
            let Some((number, process)) = numbered(&entry.message) else { continue };
            if let Some(last) = self.last_said.insert(process, number) {
                if number <= last {
                    return Err(format!("line {number} of {process} came after line {last}"));
                }
                if number != last + 1 && !self.interrupted {
                    return Err(format!("lines {} to {} of {process} are missing", last + 1, number - 1));
                }
            }
        }
        Ok(())
    }
}

/// `line 7 of 1000`: what a chatty machine server of the simulation says.
fn numbered(message: &str) -> Option<(u64, u64)> {
    let (number, process) = message.strip_prefix("line ")?.split_once(" of ")?;
    Some((number.parse().ok()?, process.parse().ok()?))
}

fn one_is_startable(board: &SimBoard) -> bool {
    let executable = |path: &std::path::PathBuf| board.files.access(path) == Some(Access::Executable);
    let platform = board.platform();
    board.files.paths().iter().filter(|path| executable(path)).any(|path| {
        let content = board.files.content(path).unwrap_or_default();
        image::version(&content, &platform).is_some()
    })
}
