//! One log line on its way to the spool, as the bytes of one record in a [`crate::kit::lossy`] ring.

use board::Wall;

/// Bytes kept of one line's text. Longer lines are split by whoever makes them, never cut.
pub const TEXT_BYTES_MAX: usize = 1024;

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// For developers.
    Debug,
    /// For the record.
    Info,
    /// Somebody may want to look.
    Warn,
    /// Somebody has to look.
    Error,
}

impl Level {
    /// The word on the wire.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Level::Debug => "debug",
            Level::Info => "info",
            Level::Warn => "warn",
            Level::Error => "error",
        }
    }

    const fn code(self) -> u8 {
        match self {
            Level::Debug => 0,
            Level::Info => 1,
            Level::Warn => 2,
            Level::Error => 3,
        }
    }

    const fn from_code(code: u8) -> Option<Self> {
        match code {
            0 => Some(Level::Debug),
            1 => Some(Level::Info),
            2 => Some(Level::Warn),
            3 => Some(Level::Error),
            _ => None,
        }
    }
}

/// One line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// When it was said.
    pub at: Wall,
    /// How bad it is.
    pub level: Level,
    /// Who said it: "platform-agent.update", "platform-server", or the logger the machine server named.
    pub logger: String,
    /// Source file of the statement, empty when unknown.
    pub file: String,
    /// Line in that file, 0 when unknown.
    pub line: u32,
    /// What was said, at most [`TEXT_BYTES_MAX`] bytes.
    pub text: String,
}

impl Line {
    /// The record of this line: time, level, line number, then three length-prefixed texts, little-endian.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut record = Vec::with_capacity(32 + self.logger.len() + self.file.len() + self.text.len());
        record.extend(self.at.as_millis().to_le_bytes());
        record.push(self.level.code());
        record.extend(self.line.to_le_bytes());
        for text in [&self.logger, &self.file, &self.text] {
            let text = text.get(..floor(text, usize::from(u16::MAX))).unwrap_or_default();
            record.extend(u16::try_from(text.len()).unwrap_or(0).to_le_bytes());
            record.extend(text.as_bytes());
        }
        record
    }

    /// Reads a record back; `None` for bytes that are none.
    #[must_use]
    pub fn decode(record: &[u8]) -> Option<Line> {
        let mut rest = record;
        let at = i64::from_le_bytes(take(&mut rest)?);
        let [level] = take(&mut rest)?;
        let line = u32::from_le_bytes(take(&mut rest)?);
        let mut text = || {
            let length = usize::from(u16::from_le_bytes(take(&mut rest)?));
            let (text, after) = rest.split_at_checked(length)?;
            rest = after;
            String::from_utf8(text.to_vec()).ok()
        };
        let (logger, file, message) = (text()?, text()?, text()?);
        rest.is_empty().then_some(())?;
        Some(Line { at: Wall::from_millis(at), level: Level::from_code(level)?, logger, file, line, text: message })
    }
}

fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (taken, after) = rest.split_first_chunk()?;
    *rest = after;
    Some(*taken)
}

/// The largest character boundary not after `at`.
fn floor(text: &str, at: usize) -> usize {
    (0..=at.min(text.len())).rev().find(|&end| text.is_char_boundary(end)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_reads_back_and_anything_shorter_is_no_record() {
        let line = Line {
            at: Wall::from_millis(1_700_000_000_123),
            level: Level::Warn,
            logger: "platform-server.motor".into(),
            file: "motor.go".into(),
            line: 42,
            text: "grüße".into(),
        };
        let record = line.encode();
        assert_eq!(Line::decode(&record), Some(line));
        for shorter in 0..record.len() {
            assert_eq!(Line::decode(&record[..shorter]), None);
        }
    }
}
