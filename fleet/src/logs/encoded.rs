//! A line of TailRobotPartLogs' message, encoded once for all who follow.
//!
//! A part may have 64 readers, and each of its lines goes to all of them: what a line costs is paid once, and what a reader
//! costs is a copy of bytes.

use api::pb::platform::common::v1::LogEntry;
use bytes::Bytes;

use super::block;

/// Field number of the contract: TailRobotPartLogsResponse.logs.
const LOGS: u32 = 1;

/// An entry as readers expect it, as one element of the message's list.
pub(super) fn line(entry: &LogEntry) -> Bytes {
    let shown = block::shown(entry.clone());
    let mut bytes = Vec::with_capacity(prost::encoding::message::encoded_len(LOGS, &shown));
    prost::encoding::message::encode(LOGS, &shown, &mut bytes);
    bytes.into()
}

#[cfg(test)]
mod tests {
    use api::pb::platform::app::v1::TailRobotPartLogsResponse;
    use prost::Message as _;

    use super::*;
    use crate::written::Written;

    #[test]
    fn it_reads_as_the_message_it_stands_for() {
        let entries: Vec<LogEntry> = ["one", "", "ü and more"]
            .map(|message| LogEntry { level: "info".into(), message: message.into(), ..LogEntry::default() })
            .into();
        let message: Written<TailRobotPartLogsResponse> = entries.iter().map(line).collect();
        let logs = entries.into_iter().map(block::shown).collect();
        let bytes = message.encode_to_vec();
        assert_eq!(TailRobotPartLogsResponse::decode(&*bytes).unwrap(), TailRobotPartLogsResponse { logs });
    }
}
