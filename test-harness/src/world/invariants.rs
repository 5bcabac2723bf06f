//! What must be true at every moment of every world.
//!
//! Checked whenever no task can move. Cheap where it is asked often: files are only looked at after they changed.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use api::brand;
use board::Wall;
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
    /// The executables of the last look, and whether one of the machine server and one of the agent was startable.
    executables: Vec<(PathBuf, u64, Wall)>,
    startable: bool,
    agent: bool,
    had_agent: bool,
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
        let (starts, broken) = board.processes.starts();
        if broken > 0 && !self.rotten {
            return Err("bytes that nobody verified were run".into());
        }
        if self.writes_seen != board.files.writes() {
            self.writes_seen = board.files.writes();
            let executables = board.files.executables();
            if executables != self.executables {
                let any = |product: &str| {
                    let mut slots = executables.iter().filter(|(path, ..)| path.ends_with(product));
                    slots.any(|(path, ..)| is_startable(board, path))
                };
                (self.startable, self.agent) = (any(brand::MACHINE_SERVER), any(brand::AGENT));
                self.executables = executables;
            }
            if self.installed && !self.startable && !self.rotten {
                return Err("no version can be started any more".into());
            }
            self.installed |= self.startable && starts > 0;
            if self.had_agent && !self.agent && !self.rotten {
                return Err("no agent can be started any more".into());
            }
            self.had_agent |= self.agent;
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

/// `line 7 of 3`: what a chatty machine server of the simulation says.
fn numbered(message: &str) -> Option<(u64, u64)> {
    let (number, process) = message.strip_prefix("line ")?.split_once(" of ")?;
    Some((number.parse().ok()?, process.parse().ok()?))
}

fn is_startable(board: &SimBoard, path: &Path) -> bool {
    board.files.content(path).is_some_and(|content| image::version(&content, &board.platform()).is_some())
}
