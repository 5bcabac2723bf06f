//! Gathers log lines from the agent and the machine server, and delivers them once online: in order, without loss or
//! repetition as long as the disk holds them, and with a counted gap when it does not.

pub mod line;

use std::rc::Rc;

use api::pb::platform::common::v1::LogEntry;

/// A batch that waits for delivery: cut once, numbered and stored before it is first offered.
#[derive(Clone, Debug)]
pub struct Offered {
    /// The spool it belongs to.
    pub spool_id: Rc<str>,
    /// Its number there, rising by one.
    pub number: u64,
    /// Its lines.
    pub entries: Rc<[LogEntry]>,
}

/// How full the spool is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpoolStatus {
    /// Bytes that wait for delivery.
    pub queued_bytes: u64,
    /// Lines lost to bounds since the agent started.
    pub dropped_lines: u64,
}
