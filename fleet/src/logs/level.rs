//! Levels: the words a device uses, as bits, so that a block says which of them are in it.

/// The level of an entry, as far as a search tells them apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Levels(pub i64);

/// Word (in lower case) and bit. `warning` is what some loggers write for `warn`.
const TABLE: [(&str, i64); 9] = [
    ("debug", 1),
    ("info", 2),
    ("warn", 4),
    ("warning", 4),
    ("error", 8),
    ("fatal", 16),
    ("dpanic", 32),
    ("panic", 32),
    ("trace", 64),
];
/// A level with a word of its own: found only by that word.
const OTHER: i64 = 1 << 20;

impl Levels {
    /// No level asked for: all of them.
    pub const ANY: Self = Self(-1);
    /// What `errors_only` means.
    pub const ERRORS: Self = Self(8 | 16 | 32);

    /// The bit of one entry's level, whatever case it is written in.
    pub fn of(level: &str) -> Self {
        let known = TABLE.iter().find(|(word, _)| word.eq_ignore_ascii_case(level));
        Self(known.map_or(OTHER, |(_, bit)| *bit))
    }

    /// The levels a reader named; none named means any.
    pub fn named<'a>(levels: impl IntoIterator<Item = &'a str>) -> Self {
        let bits = levels.into_iter().filter(|level| !level.is_empty()).fold(0, |bits, level| bits | Self::of(level).0);
        if bits == 0 { Self::ANY } else { Self(bits) }
    }

    /// Whether the two have a level in common.
    pub fn meet(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// Both together.
    pub fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}
