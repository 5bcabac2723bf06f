//! How often the agent has started, and why it did so last.
//!
//! One line that is replaced at each start and at each orderly end. It decides nothing: the launcher has a count of its
//! own, from which it chooses what to start.

use std::{path::PathBuf, rc::Rc};

use api::pb::platform::fleet::v1::AgentStatus;
use board::files::{Access, Files};

/// Longest line, in bytes: two numbers, the name of a boot, a word.
const LINE_BYTES_MAX: usize = 256;
const HEAD: &str = "agent-life 1 ";

/// How a life stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// It goes on, or nobody could say how it ended.
    Open,
    /// It ended as asked.
    Stopped,
    /// It made room for another version.
    HandedOver,
}

impl End {
    const ALL: [End; 3] = [End::Open, End::Stopped, End::HandedOver];

    const fn word(self) -> &'static str {
        match self {
            End::Open => "open",
            End::Stopped => "stopped",
            End::HandedOver => "handed-over",
        }
    }
}

/// One life of the agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Life {
    starts: u64,
    crashes: u64,
    boot: String,
    reason: &'static str,
}

impl Life {
    /// The life that begins after what was stored of the last one.
    #[must_use]
    pub fn after(stored: Option<&[u8]>, boot_id: &str) -> Life {
        // What separates the entries of the line is no part of one.
        let boot: String = boot_id.chars().filter(|character| character.is_ascii_graphic()).take(64).collect();
        let begin = |starts, crashes, reason| Life { starts, crashes, boot: boot.clone(), reason };
        let Some(stored) = stored else { return begin(1, 0, "its first start on this device") };
        let Some((starts, crashes, last_boot, end)) = read(stored) else {
            return begin(1, 0, "unknown: the record of its last start is damaged");
        };
        let starts = starts.saturating_add(1);
        match end {
            _ if last_boot != boot && !boot.is_empty() => begin(starts, crashes, "the device booted"),
            End::Stopped => begin(starts, crashes, "it was stopped and started again"),
            End::HandedOver => begin(starts, crashes, "another version of it made room"),
            End::Open => {
                begin(starts, crashes.saturating_add(1), "the one before ended unasked: it crashed or was killed")
            }
        }
    }

    /// What is stored.
    #[must_use]
    pub fn line(&self, end: End) -> String {
        let Life { starts, crashes, boot, .. } = self;
        let boot = if boot.is_empty() { "-" } else { boot };
        format!("{HEAD}{starts} {crashes} {boot} {}\n", end.word())
    }

    /// For the status; whoever started the agent adds what it knows.
    #[must_use]
    pub fn status(&self) -> AgentStatus {
        AgentStatus {
            starts: self.starts,
            crashes: self.crashes,
            start_reason: self.reason.to_owned(),
            ..AgentStatus::default()
        }
    }
}

fn read(stored: &[u8]) -> Option<(u64, u64, String, End)> {
    let line = std::str::from_utf8(stored).ok()?.strip_suffix('\n')?.strip_prefix(HEAD)?;
    let mut entries = line.split(' ');
    let (starts, crashes) = (entries.next()?.parse().ok()?, entries.next()?.parse().ok()?);
    let (boot, word) = (entries.next()?, entries.next()?);
    let end = End::ALL.into_iter().find(|end| end.word() == word)?;
    Some((starts, crashes, if boot == "-" { String::new() } else { boot.to_owned() }, end))
}

/// A life and the file that tells of it.
pub struct Diary {
    files: Rc<dyn Files>,
    path: PathBuf,
    life: Life,
}

impl Diary {
    /// Begins a life. What cannot be read or stored costs the count, not the start.
    #[must_use]
    pub fn begin(files: Rc<dyn Files>, path: PathBuf, boot_id: &str) -> Self {
        let stored = match files.read(&path, LINE_BYTES_MAX) {
            Ok(stored) => stored,
            Err(error) => {
                log::warn!("{error}: {}", error.source);
                Some(Vec::new())
            }
        };
        let diary = Diary { files, path, life: Life::after(stored.as_deref(), boot_id) };
        diary.note(End::Open);
        diary
    }

    /// The life.
    #[must_use]
    pub fn life(&self) -> &Life {
        &self.life
    }

    /// Says how it stands.
    pub fn note(&self, end: End) {
        if let Err(error) = self.files.write(&self.path, self.life.line(end).as_bytes(), Access::Private) {
            log::warn!("{error}: {}", error.source);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn why_it_was_started() {
        let line = |end| Life { starts: 7, crashes: 2, boot: "b-1".into(), reason: "" }.line(end).into_bytes();
        let table = [
            // stored                 boot   starts crashes reason
            (None, "b-1", 1, 0, "first"),
            (Some(line(End::Stopped)), "b-1", 8, 2, "stopped"),
            (Some(line(End::HandedOver)), "b-1", 8, 2, "another version"),
            (Some(line(End::Open)), "b-1", 8, 3, "unasked"),
            (Some(line(End::Open)), "b-2", 8, 2, "booted"),
            (Some(line(End::Stopped)), "b-2", 8, 2, "booted"),
            (Some(line(End::Open)), "", 8, 3, "unasked"),
            (Some(b"".to_vec()), "b-1", 1, 0, "damaged"),
            (Some(b"agent-life 1 7 2 b-1 stopp".to_vec()), "b-1", 1, 0, "damaged"),
            (Some(b"agent-life 2 7 2 b-1 stopped\n".to_vec()), "b-1", 1, 0, "damaged"),
            (Some(b"agent-life 1 18446744073709551615 0 b-1 open\n".to_vec()), "b-1", u64::MAX, 1, "unasked"),
        ];
        for (stored, boot, starts, crashes, reason) in table {
            let shown = stored.as_deref().map(String::from_utf8_lossy).unwrap_or_default().into_owned();
            let life = Life::after(stored.as_deref(), boot);
            assert_eq!((life.starts, life.crashes), (starts, crashes), "{shown:?} {boot}");
            assert!(life.reason.contains(reason), "{shown:?} {boot}: {}", life.reason);
            // What is stored then is read then.
            let (again, _, stored_boot, end) = read(life.line(End::Stopped).as_bytes()).expect("its own line");
            assert_eq!((again, stored_boot.as_str(), end), (starts, boot, End::Stopped));
        }
        assert!(Life::after(None, &"x y\n".repeat(10_000)).line(End::HandedOver).len() < LINE_BYTES_MAX);
    }
}
