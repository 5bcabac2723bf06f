//! Gathers log lines from the agent and the machine server, and delivers them once online: in order, without loss or
//! repetition as long as the disk holds them, and with a counted gap when it does not.
//!
//! `machine` decides when lines are written and when a batch is cut; `spool` keeps both on disk; `frame` is what one
//! write consists of; `line` is one log line as bytes.

pub mod actor;
pub mod frame;
pub mod line;
pub mod machine;
pub mod spool;
#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, rc::Rc};

use api::{brand, pb::platform::common::v1::LogEntry};
use prost_types::{Struct, Timestamp, Value, value::Kind};

use frame::Lost;
use line::{Level, Line};

/// Logger of the lines about lines.
fn logs_logger() -> String {
    format!("{}.logs", brand::AGENT)
}

/// A batch that waits for delivery: cut once, numbered and stored before it is first offered.
#[derive(Clone, Debug)]
pub struct Offered {
    /// The spool it belongs to.
    pub spool_id: Rc<str>,
    /// Its number there, rising by one.
    pub number: u64,
    /// Name of this device, for every entry.
    pub host: Rc<str>,
    /// What is missing before it.
    pub lost: Lost,
    /// Its lines, packed: a batch waits for hours, so it stays small until it is sent.
    pub lines: Rc<[u8]>,
}

impl PartialEq for Offered {
    /// A number carries the same lines for ever.
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number && self.spool_id == other.spool_id
    }
}

impl Offered {
    /// Its entries, as they are sent; the same at every call.
    #[must_use]
    pub fn entries(&self) -> Vec<LogEntry> {
        let lines: Vec<Line> = frame::unpack(&self.lines).filter_map(Line::decode).collect();
        let gap = (!self.lost.is_none()).then(|| Line {
            at: lines.first().map(|line| line.at).unwrap_or_default(),
            level: Level::Warn,
            logger: logs_logger(),
            file: String::new(),
            line: 0,
            text: gap(self.lost),
        });
        gap.into_iter().chain(lines).map(|line| entry(line, &self.host)).collect()
    }
}

/// A gap in words.
fn gap(lost: Lost) -> String {
    match lost {
        Lost { lines, bytes: 0 } => format!("{lines} lines lost: the queue on disk was full"),
        Lost { lines: 0, bytes } => format!("lines lost: {bytes} bytes of the queue on disk were damaged"),
        Lost { lines, bytes } => {
            format!("{lines} lines lost: the queue on disk was full; and {bytes} bytes of it were damaged")
        }
    }
}

/// A line as it is sent.
fn entry(line: Line, host: &str) -> LogEntry {
    let millis = line.at.as_millis();
    let caller = (!line.file.is_empty()).then(|| Struct {
        fields: BTreeMap::from([
            ("File".to_owned(), Value { kind: Some(Kind::StringValue(line.file)) }),
            ("Line".to_owned(), Value { kind: Some(Kind::NumberValue(f64::from(line.line))) }),
        ]),
    });
    LogEntry {
        host: host.to_owned(),
        level: line.level.name().to_owned(),
        time: Some(Timestamp {
            seconds: millis.div_euclid(1_000),
            nanos: i32::try_from(millis.rem_euclid(1_000) * 1_000_000).unwrap_or_default(),
        }),
        logger_name: line.logger,
        message: line.text,
        caller,
        ..LogEntry::default()
    }
}

/// How full the spool is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpoolStatus {
    /// Bytes that wait for delivery.
    pub queued_bytes: u64,
    /// Lines lost to bounds since the agent started.
    pub dropped_lines: u64,
}
