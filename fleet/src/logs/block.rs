//! Blocks: a batch of entries as it is stored.
//!
//! Entries are made acceptable once (length, time), sorted by time, and cut into blocks that are short enough to be
//! read one at a time: in bytes for the sake of memory, in time so that a page in the middle of a part's history finds
//! its blocks by their index.

use api::pb::platform::common::v1::LogEntry;
use bytes::Bytes;
use prost::{DecodeError, Message as _};
use prost_types::{Struct, Value, value::Kind};

use super::level::Levels;
use crate::{
    clock::{Millis, millis, timestamp},
    hex,
};

/// A message or stack of a person's patience; a device splits its lines at 1 KiB, other callers send what they have.
pub const TEXT_MAX_BYTES: usize = 32 << 10;
/// The short texts: host, level, logger.
pub const NAME_MAX_BYTES: usize = 256;
/// Structured fields of one entry, and of all of them together.
pub const FIELDS_MAX: usize = 64;
/// See [`FIELDS_MAX`].
pub const FIELDS_MAX_BYTES: usize = 32 << 10;
/// One block: read whole, so a page costs at most a few of these in memory.
pub const BLOCK_MAX_BYTES: usize = 256 << 10;
/// From the first to the last entry of a block. A batch that was hours in a spool becomes several blocks.
pub const BLOCK_SPAN_MAX: Millis = 3_600_000;

/// Entries that are stored together, oldest first.
#[derive(Debug, Clone, PartialEq)]
pub struct Block {
    /// Time of the first entry.
    pub first: Millis,
    /// Time of the last one.
    pub last: Millis,
    /// Every level that occurs.
    pub levels: Levels,
    /// The entries, encoded.
    pub body: Vec<u8>,
}

/// The encoded form. What is read from it are parts of it, without a copy.
#[derive(Clone, PartialEq, prost::Message)]
struct Body {
    #[prost(bytes = "bytes", repeated, tag = "1")]
    entries: Vec<Bytes>,
}

/// Of an entry, what it says and nothing else.
#[derive(Clone, PartialEq, prost::Message)]
struct Said {
    #[prost(bytes = "bytes", tag = "5")]
    message: Bytes,
}

/// The time of an accepted entry.
pub fn time_of(entry: &LogEntry) -> Millis {
    entry.time.as_ref().map_or(0, millis)
}

/// Entries fit to be stored: with a time in whole milliseconds, cut where they are too long, sorted by time.
pub fn accept(mut entries: Vec<LogEntry>, now: Millis) -> Vec<LogEntry> {
    for entry in &mut entries {
        let at = entry.time.as_ref().map(millis).filter(|at| (0..=LAST_TIME).contains(at)).unwrap_or(now);
        entry.time = Some(timestamp(at));
        for name in [&mut entry.host, &mut entry.level, &mut entry.logger_name] {
            cut(name, NAME_MAX_BYTES);
        }
        cut(&mut entry.message, TEXT_MAX_BYTES);
        cut(&mut entry.stack, TEXT_MAX_BYTES);
        let mut bytes = 0;
        let within = entry.fields.iter().take(FIELDS_MAX).take_while(|field| {
            bytes += field.encoded_len();
            bytes <= FIELDS_MAX_BYTES
        });
        let within = within.count();
        entry.fields.truncate(within);
        if entry.caller.as_ref().is_some_and(|caller| caller.encoded_len() > NAME_MAX_BYTES * 4) {
            entry.caller = None;
        }
    }
    // Stable: what came in one millisecond stays in the order it came.
    entries.sort_by_key(time_of);
    entries
}

/// The last moment a Timestamp can name: the end of the year 9999.
const LAST_TIME: Millis = 253_402_300_799_999;

fn cut(text: &mut String, limit: usize) {
    if text.len() <= limit {
        return;
    }
    let mark = format!(" … (cut by the server: {} bytes)", text.len());
    let end = (0..=limit.saturating_sub(mark.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    text.truncate(end);
    text.push_str(&mark);
}

/// Cuts accepted entries into blocks.
pub fn pack(entries: Vec<LogEntry>) -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::with_capacity(1);
    for entry in entries {
        let (at, level, bytes) = (time_of(&entry), Levels::of(&entry.level), entry.encoded_len());
        let fits = |block: &&mut Block| {
            block.body.len() + bytes + KEY_MAX_BYTES <= BLOCK_MAX_BYTES && at - block.first <= BLOCK_SPAN_MAX
        };
        match blocks.last_mut().filter(fits) {
            Some(block) => {
                block.last = at;
                block.levels = block.levels.and(level);
                append(&mut block.body, &entry);
            }
            None => {
                let mut body = Vec::with_capacity(bytes + KEY_MAX_BYTES);
                append(&mut body, &entry);
                blocks.push(Block { first: at, last: at, levels: level, body });
            }
        }
    }
    blocks
}

/// The tag and the length before an encoded entry.
const KEY_MAX_BYTES: usize = 8;

/// Appends one element of [`Body`]: encoded messages of one field can be laid end to end.
fn append(body: &mut Vec<u8>, entry: &LogEntry) {
    prost::encoding::message::encode(1, entry, body);
}

/// The entries of a block as they lie in it, oldest first, without a copy. A damaged body is logged and reads as empty: the
/// rest stays readable.
pub fn entries(id: i64, body: Vec<u8>) -> Vec<Bytes> {
    Body::decode(Bytes::from(body)).map(|body| body.entries).unwrap_or_else(|cause| unreadable(id, &cause))
}

fn unreadable<T>(id: i64, cause: &DecodeError) -> Vec<T> {
    tracing::error!(block = id, %cause, "a block of log entries cannot be read and is left out");
    Vec::new()
}

/// The same, decoded, with each entry's index in the block, of those only whose message passes the filter. The others are not
/// decoded: who looks for a rare word in a long log pays for reading it, and for nothing else.
pub fn find(id: i64, body: Vec<u8>, filter: Option<&dyn Fn(&str) -> bool>) -> Vec<(i64, LogEntry)> {
    found(body.into(), filter).unwrap_or_else(|cause| unreadable(id, &cause))
}

fn found(body: Bytes, filter: Option<&dyn Fn(&str) -> bool>) -> Result<Vec<(i64, LogEntry)>, DecodeError> {
    let mut found = Vec::new();
    for (index, entry) in Body::decode(body)?.entries.into_iter().enumerate() {
        if let Some(passes) = filter
            && !std::str::from_utf8(&Said::decode(entry.clone())?.message).is_ok_and(passes)
        {
            continue;
        }
        found.push((index as i64, LogEntry::decode(entry)?));
    }
    Ok(found)
}

/// What tells one batch of an unnumbered caller from the next.
pub fn digest(entries: &[LogEntry]) -> String {
    let mut context = ring::digest::Context::new(&ring::digest::SHA256);
    let mut bytes = Vec::new();
    for entry in entries {
        bytes.clear();
        // Cannot fail: a Vec grows.
        let _ = entry.encode_length_delimited(&mut bytes);
        context.update(&bytes);
    }
    hex::encode(context.finish().as_ref())
}

/// An entry as clients expect it: they read `File` and `Line` of every caller.
pub fn shown(mut entry: LogEntry) -> LogEntry {
    let caller = entry.caller.get_or_insert_with(Struct::default);
    let mut put = |key: &str, value| {
        if !caller.fields.contains_key(key) {
            caller.fields.insert(key.to_owned(), Value { kind: Some(value) });
        }
    };
    put("File", Kind::StringValue(String::new()));
    put("Line", Kind::NumberValue(0.0));
    entry
}
