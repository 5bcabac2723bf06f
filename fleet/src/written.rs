//! Answers that are bytes already.
//!
//! Some are encoded once and sent many times, some are encoded without building the message. The framework sends whatever
//! is a [`Message`]: this is the half of one that is asked for an answer.

use std::{fmt, marker::PhantomData};

use bytes::Bytes;
use prost::{
    DecodeError, Message,
    bytes::{Buf, BufMut},
    encoding::{DecodeContext, WireType, encode_key, encode_varint, encoded_len_varint, key_len, skip_field},
};

/// An `M` that is only written. It may be in pieces: fields of a message can be laid end to end.
pub struct Written<M> {
    pieces: Vec<Bytes>,
    stands_for: PhantomData<fn() -> M>,
}

impl<M> FromIterator<Bytes> for Written<M> {
    fn from_iter<T: IntoIterator<Item = Bytes>>(pieces: T) -> Self {
        Self { pieces: pieces.into_iter().collect(), stands_for: PhantomData }
    }
}

impl<M> From<Bytes> for Written<M> {
    fn from(whole: Bytes) -> Self {
        Self::from_iter([whole])
    }
}

/// Its length only: there may be a secret in it.
impl<M> fmt::Debug for Written<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Written").field("bytes", &self.pieces.iter().map(Bytes::len).sum::<usize>()).finish()
    }
}

impl<M> Message for Written<M> {
    fn encode_raw(&self, buf: &mut impl BufMut) {
        self.pieces.iter().for_each(|piece| buf.put_slice(piece));
    }

    fn encoded_len(&self) -> usize {
        self.pieces.iter().map(Bytes::len).sum()
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
        self.pieces.clear();
    }
}

/// Bytes of a field whose content is counted: a text or a message.
pub(crate) fn field_len(tag: u32, content: usize) -> usize {
    key_len(tag) + encoded_len_varint(content as u64) + content
}

/// What stands before such a content.
pub(crate) fn begin_field(tag: u32, content: usize, buf: &mut impl BufMut) {
    encode_key(tag, WireType::LengthDelimited, buf);
    encode_varint(content as u64, buf);
}

#[cfg(test)]
mod tests {
    use api::pb::platform::common::v1::LogEntry;

    use super::*;

    #[test]
    fn it_reads_as_the_message_it_stands_for() {
        let said = LogEntry { host: "arm".into(), message: "it moves".into(), ..LogEntry::default() };
        let bytes = Bytes::from(said.encode_to_vec());
        let cut = 2 + said.host.len();
        let table = [
            ("whole", Written::from(bytes.clone()), said),
            ("a part", bytes.slice(..cut).into(), LogEntry { host: "arm".into(), ..LogEntry::default() }),
            ("nothing", Written::from_iter([]), LogEntry::default()),
        ];
        for (case, written, meant) in table {
            let written: Written<LogEntry> = written;
            let sent = written.encode_to_vec();
            assert_eq!(sent.len(), written.encoded_len(), "{case}");
            assert_eq!(LogEntry::decode(&*sent).unwrap(), meant, "{case}");
            assert!(!format!("{written:?}").contains("moves"), "{case}");
        }
        let two = [bytes.slice(..cut), bytes.slice(cut..)].into_iter().collect::<Written<LogEntry>>();
        assert_eq!(two.encode_to_vec(), bytes);
    }
}
