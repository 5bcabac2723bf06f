//! A time zone as the system's database holds it: the compiled files of RFC 9636 (TZif), versions 2 to 4.

use super::posix_rule::PosixRule;

/// The largest compiled zone of the public database has under 4 KiB; a file beyond this is something else.
pub const ZONE_FILE_BYTES_MAX: usize = 64 * 1024;

/// What follows the six counts of a header, per entry.
const HEADER_BYTES: usize = 44;

/// Offsets from UTC over time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TimeZone {
    /// From this second on (ascending), this offset in seconds.
    transitions: Vec<(i64, i32)>,
    /// Before the first transition.
    first: i32,
    /// After the last transition.
    rule: Option<PosixRule>,
}

struct Counts {
    utc_indicators: usize,
    standard_indicators: usize,
    leaps: usize,
    times: usize,
    types: usize,
    characters: usize,
}

impl Counts {
    fn data_bytes(&self, time_bytes: usize) -> usize {
        self.times * (time_bytes + 1)
            + self.types * 6
            + self.characters
            + self.leaps * (time_bytes + 4)
            + self.standard_indicators
            + self.utc_indicators
    }
}

impl TimeZone {
    /// Offset zero for ever.
    #[must_use]
    pub const fn utc() -> Self {
        TimeZone { transitions: Vec::new(), first: 0, rule: None }
    }

    /// Reads a compiled zone; `None` when it is none. Leap seconds are not applied: no system that runs this counts them.
    #[must_use]
    pub fn parse(file: &[u8]) -> Option<TimeZone> {
        if file.len() > ZONE_FILE_BYTES_MAX {
            return None;
        }
        let (version, old) = header(file)?;
        // Version 1 holds 32-bit times only and has no rule; every system writes at least version 2 since 2014.
        (version >= b'2').then_some(())?;
        let second = file.get(HEADER_BYTES + old.data_bytes(4)..)?;
        let (_, counts) = header(second)?;
        let data = second.get(HEADER_BYTES..)?;

        let (times, rest) = data.split_at_checked(counts.times * 8)?;
        let (indices, rest) = rest.split_at_checked(counts.times)?;
        let (types, _) = rest.split_at_checked(counts.types * 6)?;
        let offset = |index: u8| {
            let entry = types.chunks_exact(6).nth(usize::from(index))?;
            let offset = i32::from_be_bytes(*entry.first_chunk()?);
            // Within a day and a bit, as RFC 9636 advises; also keeps sums from overflowing.
            (offset.unsigned_abs() < 26 * 3600).then_some(offset)
        };
        let transitions = times.chunks_exact(8).zip(indices).map(|(time, index)| {
            let at = i64::from_be_bytes(*time.first_chunk()?);
            Some((at, offset(*index)?))
        });
        let transitions = transitions.collect::<Option<Vec<_>>>()?;
        if !transitions.is_sorted_by(|one, next| matches!((one, next), ((a, _), (b, _)) if a < b)) {
            return None;
        }

        let footer = data.get(counts.data_bytes(8)..)?.strip_prefix(b"\n")?;
        let end = footer.iter().position(|byte| *byte == b'\n')?;
        let rule = std::str::from_utf8(footer.get(..end)?).ok()?;
        let rule = if rule.is_empty() { None } else { Some(PosixRule::parse(rule)?) };
        Some(TimeZone { transitions, first: offset(0)?, rule })
    }

    /// Seconds east of UTC at this second since 1970.
    #[must_use]
    pub fn offset_at(&self, utc: i64) -> i32 {
        let after = self.transitions.partition_point(|(at, _)| *at <= utc);
        if after == self.transitions.len()
            && let Some(rule) = &self.rule
        {
            return rule.offset_at(utc);
        }
        after.checked_sub(1).and_then(|index| self.transitions.get(index)).map_or(self.first, |(_, offset)| *offset)
    }
}

/// Version and counts; nothing when the bytes are no header or announce more than a file may hold.
fn header(bytes: &[u8]) -> Option<(u8, Counts)> {
    let rest = bytes.strip_prefix(b"TZif")?;
    let version = *rest.first()?;
    let mut counts = rest.get(16..40)?.chunks_exact(4).map(|count| {
        let count = u32::from_be_bytes(*count.first_chunk()?);
        usize::try_from(count).ok().filter(|count| *count <= ZONE_FILE_BYTES_MAX)
    });
    let mut next = || counts.next().flatten();
    let (utc_indicators, standard_indicators, leaps) = (next()?, next()?, next()?);
    let (times, types, characters) = (next()?, next()?, next()?);
    Some((version, Counts { utc_indicators, standard_indicators, leaps, times, types, characters }))
}
