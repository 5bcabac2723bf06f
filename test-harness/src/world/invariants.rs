//! What must be true at every moment of every world.
//!
//! Checked whenever no task can move. Cheap where it is asked often: files are only looked at after they changed.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    time::Duration,
};

use actors::update::{
    record::{Record, State},
    slots::Pointer,
};
use api::{brand, pb::platform::fleet::v1::server_status};
use board::Wall;
use board_sim::{SimBoard, image};

use super::{
    cloud::{Kept, SimCloud},
    launch, minutes,
};

/// An agent that has a version of the machine server starts one within this time, unless it is switched off. Longer than
/// any reason to wait: an opening is held for 12 minutes, and crashes back off for one.
const WITHOUT_SERVER_MINUTES: u64 = 20;

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
    /// When it is looked next whether a machine server runs.
    next_count: Duration,
    /// Since when none has been started although one could be, and how many starts there were then.
    without_server: Option<(Duration, usize)>,
}

impl Watcher {
    /// What was only in memory may be missing from now on.
    pub(super) fn interrupted(&mut self) {
        self.interrupted = true;
    }

    /// Time has passed in which the agent could do nothing.
    pub(super) fn excused(&mut self) {
        self.without_server = None;
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
            if let Some(version) = kept_unproven(board) {
                return Err(format!("agent {version} has not proved itself, and the launcher would keep it"));
            }
        }
        self.look_for_server(board, cloud)?;
        self.look_at_lines(cloud)
    }

    /// A machine server that is installed is started, again and again if need be.
    fn look_for_server(&mut self, board: &SimBoard, cloud: &SimCloud) -> Result<(), String> {
        let now = board.clock.elapsed();
        if now < self.next_count {
            return Ok(());
        }
        self.next_count = now + minutes(1);
        let is_off = || {
            let report = cloud.report().and_then(|(_, status)| status.server);
            cloud.has_told_off() || report.is_some_and(|server| server.phase() == server_status::Phase::Disabled)
        };
        if !self.installed || !self.startable || self.rotten || board.processes.is_running() || is_off() {
            self.without_server = None;
            return Ok(());
        }
        let (starts, _) = board.processes.starts();
        let (since, before) = *self.without_server.get_or_insert((now, starts));
        if starts > before {
            self.without_server = Some((now, starts));
        } else if now - since > minutes(WITHOUT_SERVER_MINUTES) {
            return Err(format!("no machine server was started for {:?}", now - since));
        }
        Ok(())
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

/// The version of the agent that is on probation, as the agent has stored it, and proven as the launcher knows it. Then
/// nobody would go back from one that does not live.
fn kept_unproven(board: &SimBoard) -> Option<String> {
    let layout = launch::layout();
    let record = Record::decode(&board.files.content(layout.record())?).ok()?;
    let pointer = Pointer::read(&board.files.content(layout.pointer())?)?;
    let unproven = matches!(record.state, State::Switching | State::Probation { .. });
    let kept = unproven && !pointer.trial && record.slots.active == Some(pointer.slot);
    kept.then(|| record.slots.active().map(|content| content.version.clone()).unwrap_or_default())
}

/// `line 7 of 3`: what a chatty machine server of the simulation says.
fn numbered(message: &str) -> Option<(u64, u64)> {
    let (number, process) = message.strip_prefix("line ")?.split_once(" of ")?;
    Some((number.parse().ok()?, process.parse().ok()?))
}

fn is_startable(board: &SimBoard, path: &Path) -> bool {
    board.files.content(path).is_some_and(|content| image::version(&content, &board.platform()).is_some())
}
