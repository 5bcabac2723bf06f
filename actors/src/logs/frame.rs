//! What one append writes: the spool's books and some lines under one checksum.
//!
//! Owns the bytes of a frame. Every frame repeats the books (who the spool is, which batch was cut last, what is
//! acknowledged, what was lost), so that the last whole frame of the newest segment says everything, and a cut batch and
//! its number reach the disk in the same write as the lines themselves. Reads no files and decides nothing.
//!
//! ```text
//! length u32 │ checksum u32 │ books, fixed length │ (length u16 │ line record)*      all little-endian
//! ```

/// Bytes before the body: its length and its checksum.
const HEAD_BYTES: usize = 2 * size_of::<u32>();
/// Format of the books; another number is not read.
const FORMAT: u8 = 1;
/// Bytes of the books.
const BOOKS_BYTES: usize = 1 + 16 + (8 + 8 + 4 + 4 + 8) + 8 + (8 + 4) + 8;
/// Bytes of a frame without lines.
pub const EMPTY_BYTES: u32 = (HEAD_BYTES + BOOKS_BYTES) as u32;
/// Largest record of one line: its text, and generous names.
pub const LINE_BYTES_MAX: usize = 4 * 1024;
/// Bytes of lines in one frame. A torn tail is never longer than a frame, which is how it is told from damage.
pub const LINES_BYTES_MAX: usize = 24 * 1024;
/// Largest frame.
pub const FRAME_BYTES_MAX: u32 = EMPTY_BYTES + LINES_BYTES_MAX as u32;

/// Names a spool; random, made when the spool is created.
pub type SpoolId = [u8; 16];

/// A byte in the spool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// Number of the segment.
    pub segment: u64,
    /// Byte in that segment.
    pub offset: u32,
}

/// What could not be kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lost {
    /// Lines dropped because the spool was full.
    pub lines: u32,
    /// Bytes that could not be read back.
    pub bytes: u32,
}

impl Lost {
    /// Whether nothing was lost.
    #[must_use]
    pub fn is_none(self) -> bool {
        self == Lost::default()
    }

    /// Both together.
    #[must_use]
    pub fn and(self, other: Lost) -> Lost {
        Lost { lines: self.lines.saturating_add(other.lines), bytes: self.bytes.saturating_add(other.bytes) }
    }
}

/// A batch: whole frames of one segment, under one number for ever.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cut {
    /// Rises by one; 0 while none was cut.
    pub number: u64,
    /// The segment that holds it.
    pub segment: u64,
    /// Its first byte.
    pub from: u32,
    /// The byte after its last.
    pub to: u32,
    /// What is missing before its first line; becomes its first entry.
    pub lost: Lost,
}

/// Everything the spool has to remember.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Books {
    /// Whose numbers these are.
    pub id: SpoolId,
    /// The batch cut last.
    pub cut: Cut,
    /// The highest number known to be acknowledged. May lag: a batch offered again is dropped by the server.
    pub acknowledged: u64,
    /// Where the next batch begins.
    pub next: Place,
    /// What is missing before that.
    pub lost: Lost,
}

impl Books {
    /// The batch that was cut and not acknowledged.
    #[must_use]
    pub fn unfinished(&self) -> Option<Cut> {
        (self.cut.number > self.acknowledged).then_some(self.cut)
    }

    fn encode(&self, into: &mut Vec<u8>) {
        let Books { id, cut, acknowledged, next, lost } = self;
        into.push(FORMAT);
        into.extend(id);
        into.extend(cut.number.to_le_bytes());
        into.extend(cut.segment.to_le_bytes());
        into.extend(cut.from.to_le_bytes());
        into.extend(cut.to.to_le_bytes());
        into.extend(cut.lost.lines.to_le_bytes());
        into.extend(cut.lost.bytes.to_le_bytes());
        into.extend(acknowledged.to_le_bytes());
        into.extend(next.segment.to_le_bytes());
        into.extend(next.offset.to_le_bytes());
        into.extend(lost.lines.to_le_bytes());
        into.extend(lost.bytes.to_le_bytes());
    }

    fn decode(from: &mut &[u8]) -> Option<Books> {
        let [format] = take(from)?;
        (format == FORMAT).then_some(())?;
        let id = take(from)?;
        let mut long = || take(from).map(u64::from_le_bytes);
        let (number, segment) = (long()?, long()?);
        let mut short = || take(from).map(u32::from_le_bytes);
        let cut =
            Cut { number, segment, from: short()?, to: short()?, lost: Lost { lines: short()?, bytes: short()? } };
        let acknowledged = u64::from_le_bytes(take(from)?);
        let next = Place { segment: u64::from_le_bytes(take(from)?), offset: u32::from_le_bytes(take(from)?) };
        let lost = Lost { lines: u32::from_le_bytes(take(from)?), bytes: u32::from_le_bytes(take(from)?) };
        Some(Books { id, cut, acknowledged, next, lost })
    }
}

/// One frame, read back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// The books as of its writing.
    pub books: Books,
    /// Its lines, packed.
    lines: &'a [u8],
    /// Bytes it takes in its segment.
    pub len: u32,
}

impl<'a> Frame<'a> {
    /// The frame at the beginning of `bytes`; `None` when there is no whole one.
    #[must_use]
    pub fn read(bytes: &'a [u8]) -> Option<Frame<'a>> {
        let mut rest = bytes;
        let length = usize::try_from(u32::from_le_bytes(take(&mut rest)?)).ok()?;
        let checksum = u32::from_le_bytes(take(&mut rest)?);
        let len = HEAD_BYTES.checked_add(length).and_then(|len| u32::try_from(len).ok())?;
        (len <= FRAME_BYTES_MAX).then_some(())?;
        let mut body = rest.get(..length)?;
        (crc32(body) == checksum).then_some(())?;
        Some(Frame { books: Books::decode(&mut body)?, lines: body, len })
    }

    /// The records of its lines, in order.
    pub fn lines(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        unpack(self.lines)
    }

    /// Its lines, packed.
    #[must_use]
    pub fn packed(&self) -> &'a [u8] {
        self.lines
    }

    /// Whether it has lines.
    #[must_use]
    pub fn has_lines(&self) -> bool {
        !self.lines.is_empty()
    }
}

/// The frame of these books and these packed lines.
#[must_use]
pub fn write(books: &Books, lines: &[u8]) -> Vec<u8> {
    let mut frame = Vec::with_capacity(HEAD_BYTES + BOOKS_BYTES + lines.len());
    frame.extend([0; HEAD_BYTES]);
    books.encode(&mut frame);
    frame.extend(lines);
    if let Some((head, body)) = frame.split_at_mut_checked(HEAD_BYTES) {
        let length = u32::try_from(body.len()).unwrap_or(u32::MAX);
        for (byte, value) in head.iter_mut().zip(length.to_le_bytes().into_iter().chain(crc32(body).to_le_bytes())) {
            *byte = value;
        }
    }
    frame
}

/// Adds one line record to packed lines; says whether it fits into what one line may take.
pub fn pack(lines: &mut Vec<u8>, record: &[u8]) -> bool {
    let Some(length) = u16::try_from(record.len()).ok().filter(|_| record.len() <= LINE_BYTES_MAX) else {
        return false;
    };
    lines.extend(length.to_le_bytes());
    lines.extend(record);
    true
}

/// The records of packed lines, in order.
pub fn unpack(lines: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = lines;
    std::iter::from_fn(move || {
        let length = usize::from(u16::from_le_bytes(take(&mut rest)?));
        let (record, after) = rest.split_at_checked(length)?;
        rest = after;
        Some(record)
    })
}

fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (taken, after) = rest.split_first_chunk()?;
    *rest = after;
    Some(*taken)
}

/// CRC-32 (the one of zip and Ethernet), four bits at a time: 64 bytes of table, fast enough for a spool.
fn crc32(bytes: &[u8]) -> u32 {
    #[allow(clippy::indexing_slicing, reason = "done when this is compiled")]
    const TABLE: [u32; 16] = {
        let mut table = [0; 16];
        let mut row = 0;
        while row < 16 {
            let mut value = row as u32;
            let mut bit = 0;
            while bit < 4 {
                value = (value >> 1) ^ (0xedb8_8320 * (value & 1));
                bit += 1;
            }
            table[row] = value;
            row += 1;
        }
        table
    };
    let nibble =
        |sum: u32, value: u32| (sum >> 4) ^ TABLE.get(((sum ^ value) & 15) as usize).copied().unwrap_or_default();
    !bytes.iter().fold(!0, |sum, &byte| nibble(nibble(sum, u32::from(byte)), u32::from(byte) >> 4))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn books() -> Books {
        Books {
            id: *b"0123456789abcdef",
            cut: Cut { number: 7, segment: 3, from: 100, to: 900, lost: Lost { lines: 5, bytes: 6 } },
            acknowledged: 6,
            next: Place { segment: 3, offset: 900 },
            lost: Lost { lines: 1, bytes: 2 },
        }
    }

    #[test]
    fn the_checksum_is_the_common_one() {
        assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
        assert_eq!(crc32(b""), 0);
    }

    #[test]
    fn a_frame_reads_back_and_no_part_of_one_does() {
        let mut lines = Vec::new();
        assert!(pack(&mut lines, b"one") && pack(&mut lines, b"") && pack(&mut lines, b"three"));
        let written = write(&books(), &lines);
        let frame = Frame::read(&written).expect("it is whole");
        assert_eq!(frame.books, books());
        assert_eq!(frame.len as usize, written.len());
        assert_eq!(frame.lines().collect::<Vec<_>>(), [&b"one"[..], b"", b"three"]);
        for part in 0..written.len() {
            assert_eq!(Frame::read(&written[..part]), None, "{part} bytes");
        }
        assert_eq!(write(&books(), &[]).len(), EMPTY_BYTES as usize);
    }

    #[test]
    fn the_format_is_frozen() {
        let mut lines = Vec::new();
        pack(&mut lines, b"ab");
        let hex: String = write(&books(), &lines).iter().map(|byte| format!("{byte:02x}")).collect();
        let expected = "510000004ab908be\
            01\
            30313233343536373839616263646566\
            0700000000000000030000000000000064000000840300000500000006000000\
            0600000000000000\
            030000000000000084030000\
            0100000002000000\
            02006162";
        assert_eq!(
            hex, expected,
            "queues written by earlier agents must stay readable: another format needs another number"
        );
    }

    #[test]
    fn no_flipped_bit_goes_unnoticed() {
        let mut lines = Vec::new();
        pack(&mut lines, b"a line");
        let written = write(&books(), &lines);
        for bit in 0..written.len() * 8 {
            let mut damaged = written.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Frame::read(&damaged), None, "bit {bit}");
        }
        assert_eq!(Frame::read(&[0; 4096]), None, "zeros are no frame");
    }

    #[test]
    fn a_line_longer_than_allowed_is_not_packed() {
        let mut lines = Vec::new();
        assert!(!pack(&mut lines, &[b'x'; LINE_BYTES_MAX + 1]));
        assert!(lines.is_empty());
    }
}
