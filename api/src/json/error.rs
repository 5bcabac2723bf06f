//! Why a document is not JSON, and where: always with line and column, so that a person finds the place.

use std::fmt;

/// A place in a text, counted as editors do: from 1, columns in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// Line, the first is 1.
    pub line: u32,
    /// Character in the line, the first is 1.
    pub column: u32,
}

impl Position {
    /// The position of byte `offset` in `text`, which is valid UTF-8 up to there.
    pub(super) fn of(text: &[u8], offset: usize) -> Position {
        let before = text.get(..offset).unwrap_or(text);
        let line = before.iter().filter(|&&byte| byte == b'\n').count();
        let start = before.iter().rposition(|&byte| byte == b'\n').map_or(0, |newline| newline + 1);
        // A byte 10xxxxxx continues the character before it.
        let column = before.get(start..).unwrap_or_default().iter().filter(|&&byte| byte & 0xC0 != 0x80).count();
        Position { line: as_count(line), column: as_count(column) }
    }
}

/// From a zero-based offset to what a person counts.
fn as_count(zero_based: usize) -> u32 {
    u32::try_from(zero_based).unwrap_or(u32::MAX).saturating_add(1)
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}, column {}", self.line, self.column)
    }
}

/// A document that was refused as a whole.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{position}: {problem}")]
pub struct JsonError {
    /// Where reading stopped.
    pub position: Position,
    /// What was wrong there.
    pub problem: Problem,
}

impl JsonError {
    pub(super) fn new(text: &[u8], offset: usize, problem: Problem) -> JsonError {
        JsonError { position: Position::of(text, offset), problem }
    }

    pub(super) fn at_start(problem: Problem) -> JsonError {
        JsonError { position: Position { line: 1, column: 1 }, problem }
    }
}

/// What can be wrong with a document.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// The text is longer than its limit.
    #[error("the document has {bytes} bytes, allowed are {allowed}")]
    TooLong {
        /// What was given.
        bytes: usize,
        /// What is allowed.
        allowed: usize,
    },
    /// Objects or lists lie too deep in each other.
    #[error("objects and lists inside each other more than {allowed} deep")]
    TooDeep {
        /// What is allowed.
        allowed: u32,
    },
    /// Bytes that are no text.
    #[error("the document is not UTF-8")]
    NotUtf8,
    /// A byte order mark, which some editors put before the first character.
    #[error("a byte order mark is before the document; save it as UTF-8 without one")]
    ByteOrderMark,
    /// A comment.
    #[error("comments are not allowed in JSON; expected {expected}")]
    Comment {
        /// What could have stood there.
        expected: &'static str,
    },
    /// Something else than what must come here.
    #[error("expected {expected}, found {found}")]
    Unexpected {
        /// What could have stood there.
        expected: &'static str,
        /// What stood there.
        found: Found,
    },
    /// A key that may be given once was given again.
    #[error("the key is given more than once")]
    KeyTwice,
}

/// What stood where something else was expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// A character.
    Char(char),
    /// Nothing: the text ends.
    End,
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Found::Char(character) => write!(f, "{character:?}"),
            Found::End => f.write_str("the end of the document"),
        }
    }
}
