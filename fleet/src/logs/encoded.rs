//! TailRobotPartLogs' message, put together from lines that were encoded before.
//!
//! A part may have 64 readers, and each of its lines goes to all of them: what a line costs is paid once, and what a reader
//! costs is a copy of bytes.

use api::pb::platform::common::v1::LogEntry;
use bytes::Bytes;
use prost::{
    DecodeError, Message,
    bytes::{Buf, BufMut},
    encoding::{DecodeContext, WireType, skip_field},
};

use super::block;

/// Field number of the contract: TailRobotPartLogsResponse.logs.
const LOGS: u32 = 1;

/// An entry as readers expect it, as one element of the message's list: such elements can be laid end to end.
pub(super) fn line(entry: &LogEntry) -> Bytes {
    let shown = block::shown(entry.clone());
    let mut bytes = Vec::with_capacity(prost::encoding::message::encoded_len(LOGS, &shown));
    prost::encoding::message::encode(LOGS, &shown, &mut bytes);
    bytes.into()
}

/// A TailRobotPartLogsResponse that is only written.
#[derive(Debug, Default)]
pub struct EncodedLines(Vec<Bytes>);

impl FromIterator<Bytes> for EncodedLines {
    fn from_iter<T: IntoIterator<Item = Bytes>>(lines: T) -> Self {
        Self(lines.into_iter().collect())
    }
}

impl Message for EncodedLines {
    fn encode_raw(&self, buf: &mut impl BufMut) {
        self.0.iter().for_each(|line| buf.put_slice(line));
    }

    fn encoded_len(&self) -> usize {
        self.0.iter().map(Bytes::len).sum()
    }

    /// Nobody decodes answers here; whoever tried would get an empty one.
    fn merge_field(
        &mut self,
        tag: u32,
        wire_type: WireType,
        buf: &mut impl Buf,
        ctx: DecodeContext,
    ) -> Result<(), DecodeError> {
        skip_field(wire_type, tag, buf, ctx)
    }

    fn clear(&mut self) {
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use api::pb::platform::app::v1::TailRobotPartLogsResponse;

    use super::*;

    #[test]
    fn it_reads_as_the_message_it_stands_for() {
        let entries: Vec<LogEntry> = ["one", "", "ü and more"]
            .map(|message| LogEntry { level: "info".into(), message: message.into(), ..LogEntry::default() })
            .into();
        let message: EncodedLines = entries.iter().map(line).collect();
        let bytes = message.encode_to_vec();
        assert_eq!(bytes.len(), message.encoded_len());
        let logs = entries.into_iter().map(block::shown).collect();
        assert_eq!(TailRobotPartLogsResponse::decode(&*bytes).unwrap(), TailRobotPartLogsResponse { logs });
        assert_eq!(EncodedLines::default().encoded_len(), 0);
    }
}
