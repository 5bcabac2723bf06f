//! The note in an agent's executable that says what it is: which program, of which vendor, in which version.
//!
//! An ELF note in a segment of its own: stripping keeps it, and it is found by the headers alone, wherever it lies.
//! Reading is bounded and pure: the caller reads the few regions that are asked for. Windows has no such notes; there
//! the same words become a resource, together with everything else that Windows needs.

/// Whose note it is. Not the vendor's name: that of another vendor is to be told from no note at all.
pub const OWNER: [u8; 16] = padded("device-agent");
/// What kind of note of that owner.
pub const KIND: u32 = 1;
/// Room for the program's name, and for its version, in bytes. Always filled up with zeros.
pub const FIELD_BYTES: usize = 32;

/// Largest ELF header.
const HEADER_BYTES: usize = 64;
/// Program headers that are looked at; programs have about ten.
const PROGRAM_HEADERS_MAX: usize = 64;
/// Bytes of a note segment that are looked at; ours has 92, and others may stand before it.
const SEGMENT_BYTES_MAX: usize = 4096;
/// Note segments that are looked at.
const SEGMENTS_MAX: usize = 8;
const PT_NOTE: u64 = 4;

/// What an executable says about itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// Name of the program, with the vendor's in it.
    pub program: String,
    /// Its version.
    pub version: String,
}

/// A text in a field of fixed size.
///
/// # Panics
/// When the text does not fit; as a constant it then does not compile.
#[must_use]
#[allow(clippy::indexing_slicing, reason = "evaluated when it compiles")]
pub const fn padded<const N: usize>(text: &str) -> [u8; N] {
    let (bytes, mut field, mut at) = (text.as_bytes(), [0; N], 0);
    while at < bytes.len() {
        field[at] = bytes[at];
        at += 1;
    }
    field
}

/// The text in such a field.
#[must_use]
pub fn text(field: &[u8]) -> &str {
    let end = field.iter().position(|byte| *byte == 0).unwrap_or(field.len());
    field.get(..end).and_then(|text| std::str::from_utf8(text).ok()).unwrap_or_default()
}

/// Finds the note. `read` gives up to so many bytes from an offset of the file, fewer only at its end, and is asked for
/// a few kilobytes at most, whatever the headers say.
pub fn find<E>(mut read: impl FnMut(u64, usize) -> Result<Vec<u8>, E>) -> Result<Option<Note>, E> {
    let head = read(0, HEADER_BYTES)?;
    let Some(table) = Table::of(&head) else { return Ok(None) };
    let headers = read(table.offset, table.size * table.count)?;
    for segment in headers.chunks_exact(table.size).filter_map(|header| table.note_segment(header)).take(SEGMENTS_MAX) {
        let (offset, length) = segment;
        let segment = read(offset, length)?;
        if let Some(note) = in_segment(&segment, table.big_endian) {
            return Ok(Some(note));
        }
    }
    Ok(None)
}

/// Where the program headers are, and how their numbers are written.
struct Table {
    offset: u64,
    size: usize,
    count: usize,
    wide: bool,
    big_endian: bool,
}

impl Table {
    fn of(head: &[u8]) -> Option<Table> {
        let [0x7F, b'E', b'L', b'F', class @ 1..=2, order @ 1..=2, ..] = head else { return None };
        let (wide, big_endian) = (*class == 2, *order == 2);
        let at = |wide_at, narrow_at| if wide { wide_at } else { narrow_at };
        let offset = number(head, at(32, 28), at(8, 4), big_endian)?;
        let size = usize::try_from(number(head, at(54, 42), 2, big_endian)?).ok()?;
        let count = usize::try_from(number(head, at(56, 44), 2, big_endian)?).ok()?;
        // Larger entries than we know would be of a later format.
        (size == at(56, 32)).then_some(Table { offset, size, count: count.min(PROGRAM_HEADERS_MAX), wide, big_endian })
    }

    /// Offset and bounded length of a note segment.
    fn note_segment(&self, header: &[u8]) -> Option<(u64, usize)> {
        let at = |wide_at, narrow_at| if self.wide { wide_at } else { narrow_at };
        let field = |from| number(header, from, at(8, 4), self.big_endian);
        (number(header, 0, 4, self.big_endian)? == PT_NOTE).then_some(())?;
        let length = usize::try_from(field(at(32, 16))?).unwrap_or(usize::MAX).min(SEGMENT_BYTES_MAX);
        Some((field(at(8, 4))?, length))
    }
}

/// Our note among those of a segment.
fn in_segment(segment: &[u8], big_endian: bool) -> Option<Note> {
    let mut rest = segment;
    loop {
        let [owner, length, kind] = [0, 4, 8].map(|at| number(rest, at, 4, big_endian));
        let [owner, length] = [owner?, length?].map(|bytes| usize::try_from(bytes).unwrap_or(usize::MAX));
        let (name, after) = rest.get(12..)?.split_at_checked(aligned(owner)?)?;
        let (fields, next) = after.split_at_checked(aligned(length)?)?;
        if kind? == u64::from(KIND) && name == OWNER && length == 2 * FIELD_BYTES {
            let (program, version) = fields.split_at_checked(FIELD_BYTES)?;
            return Some(Note { program: text(program).to_owned(), version: text(version).to_owned() });
        }
        rest = next;
    }
}

fn aligned(bytes: usize) -> Option<usize> {
    bytes.checked_next_multiple_of(4)
}

/// An unsigned number of so many bytes.
fn number(bytes: &[u8], from: usize, size: usize, big_endian: bool) -> Option<u64> {
    let bytes = bytes.get(from..from.checked_add(size)?)?;
    let add = |number: u64, byte: &u8| number << 8 | u64::from(*byte);
    Some(if big_endian { bytes.iter().fold(0, add) } else { bytes.iter().rev().fold(0, add) })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An executable with these program headers (kind, offset, length) and these bytes behind them.
    fn elf(wide: bool, big: bool, headers: &[(u32, u64, u64)], behind: &[u8]) -> Vec<u8> {
        let put = |into: &mut Vec<u8>, value: u64, size: usize| {
            let bytes = value.to_be_bytes();
            let bytes = &bytes[8 - size..];
            if big { into.extend(bytes) } else { into.extend(bytes.iter().rev()) }
        };
        let (word, header, entry) = if wide { (8, 64, 56) } else { (4, 52, 32) };
        let mut image = vec![0x7F, b'E', b'L', b'F', if wide { 2 } else { 1 }, if big { 2 } else { 1 }, 1];
        image.resize(24, 0);
        put(&mut image, 0, word);
        put(&mut image, header as u64, word);
        put(&mut image, 0, word);
        put(&mut image, 0, 4);
        for value in [header, entry, headers.len(), 0, 0, 0] {
            put(&mut image, value as u64, 2);
        }
        for (kind, offset, length) in headers {
            put(&mut image, u64::from(*kind), 4);
            let fields =
                if wide { [0, *offset, 0, 0, *length, *length, 4] } else { [*offset, 0, 0, *length, *length, 0, 4] };
            for (index, field) in fields.into_iter().enumerate() {
                put(&mut image, field, if wide && index == 0 { 4 } else { word });
            }
        }
        image.extend(behind);
        image
    }

    fn note(big: bool, owner: &[u8], kind: u32, fields: &[u8]) -> Vec<u8> {
        let number = |value: usize| if big { (value as u32).to_be_bytes() } else { (value as u32).to_le_bytes() };
        let mut note = [number(owner.len()), number(fields.len()), number(kind as usize)].concat();
        for part in [owner, fields] {
            note.extend(part);
            note.resize(note.len().next_multiple_of(4), 0);
        }
        note
    }

    fn fields(program: &str, version: &str) -> Vec<u8> {
        [padded::<FIELD_BYTES>(program), padded::<FIELD_BYTES>(version)].concat()
    }

    fn ours(big: bool) -> Vec<u8> {
        note(big, &OWNER, KIND, &fields("acme-agent", "1.2.3"))
    }

    /// The note, and how much was read for it.
    fn found(image: &[u8]) -> (Option<Note>, usize) {
        let mut bytes = 0;
        let read = |offset: u64, length: usize| {
            let rest = usize::try_from(offset).ok().and_then(|offset| image.get(offset..)).unwrap_or_default();
            let piece = rest[..length.min(rest.len())].to_vec();
            bytes += length;
            Ok::<_, ()>(piece)
        };
        (find(read).unwrap(), bytes)
    }

    #[test]
    fn the_note_is_found_in_every_kind_of_executable() {
        for (wide, big) in [(true, false), (false, false), (true, true), (false, true)] {
            let (size, entry) = if wide { (64, 56) } else { (52, 32) };
            let compiler = note(big, b"GNU\0", 3, &[7; 20]);
            let segment = [compiler.clone(), ours(big)].concat();
            let at = size + 3 * entry + compiler.len() as u64;
            let headers =
                [(1, 0, 9), (4, at - compiler.len() as u64, compiler.len() as u64), (4, at, segment.len() as u64)];
            let image = elf(wide, big, &headers, &[compiler, segment].concat());
            let expected = Note { program: "acme-agent".into(), version: "1.2.3".into() };
            assert_eq!(found(&image).0, Some(expected), "wide {wide}, big endian {big}");
            for length in 0..image.len() {
                assert_eq!(found(&image[..length]).0, None, "cut at {length}");
            }
        }
    }

    #[test]
    fn what_is_none_of_ours_is_not_found() {
        let one = |segment: &[u8]| elf(true, false, &[(4, 120, segment.len() as u64)], segment);
        let table = [
            ("no executable", b"#!/bin/sh\n".to_vec()),
            ("nothing", vec![]),
            ("no segment", elf(true, false, &[], &ours(false))),
            ("a segment of another kind", elf(true, false, &[(1, 120, 92)], &ours(false))),
            ("another owner", one(&note(false, b"somebody-else\0\0\0", KIND, &fields("a", "1")))),
            ("another kind", one(&note(false, &OWNER, 2, &fields("a", "1")))),
            ("another length", one(&note(false, &OWNER, KIND, b"1"))),
            ("the other byte order", one(&ours(true))),
            ("lengths beyond everything", one(&[255; 92])),
            ("behind the end", elf(true, false, &[(4, u64::MAX, u64::MAX)], &ours(false))),
        ];
        for (case, image) in table {
            assert_eq!(found(&image).0, None, "{case}");
        }
        let far = [vec![0; SEGMENT_BYTES_MAX], ours(false)].concat();
        assert_eq!(found(&one(&far)).0, None, "what would be read is bounded");
    }

    #[test]
    fn a_simulated_agent_carries_it() {
        let image = board_sim::image::agent("acme-agent", "1.2.3", board_sim::PLATFORM, 4000);
        assert_eq!(found(&image).0, Some(Note { program: "acme-agent".into(), version: "1.2.3".into() }));
        assert_eq!(found(&board_sim::image::program("1.2.3", board_sim::PLATFORM, 4000)).0, None);
        assert_eq!(board_sim::image::version(&image, board_sim::PLATFORM).as_deref(), Some("1.2.3"));
    }

    #[test]
    fn random_bytes_are_read_in_bounds() {
        let mut state = 0x1234_5678_9ABC_DEF1_u64;
        let mut chance = move || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state
        };
        let limit = HEADER_BYTES + 56 * PROGRAM_HEADERS_MAX + SEGMENTS_MAX * SEGMENT_BYTES_MAX;
        let good = elf(true, false, &[(4, 176, 92), (4, 120, 92)], &[ours(false), ours(false)].concat());
        let mut still = 0;
        for _ in 0..200_000 {
            let mut image = good.clone();
            for _ in 0..=chance() % 6 {
                let at = chance() as usize % image.len();
                image[at] = chance() as u8;
            }
            image.truncate(image.len() - (chance() as usize % 40));
            let (note, bytes) = found(&image);
            assert!(bytes <= limit, "{bytes}");
            still += u32::from(note.is_some());
        }
        assert!(still > 1000 && still < 199_000, "{still}: some survive and some do not");
    }
}
