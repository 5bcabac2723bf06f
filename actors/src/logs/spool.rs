//! The queue on disk: bounded segments, appended to and removed whole.
//!
//! Owns the files of the spool and what survives in them: lines in order, the number of the batch cut last, how far the
//! server has acknowledged, what was lost. A batch is cut once: its number and its place are in the same write as (or a
//! later one than) its lines, and it is offered only when that write has returned, so the same number carries the same
//! lines for ever. Refuses to guess: bytes that cannot be read back are counted, and where the numbers themselves may
//! have been lost the spool takes a new name, because a repeated line is better than a silently dropped one.
//!
//! An acknowledgement is stored with the next write and at the end; a batch offered once more after a crash in between
//! is known to the server and dropped there. Segments go oldest first when the bound is reached, never the one that
//! holds the batch being delivered, and what went is counted in the batch that follows the gap.

use std::{
    collections::VecDeque,
    path::{Path, PathBuf},
    rc::Rc,
};

use board::files::{Access, FileError, Files};

use super::frame::{self, Books, Cut, EMPTY_BYTES, FRAME_BYTES_MAX, Frame, Lost, Place, SpoolId};

/// Ends the name of a segment's file.
const SUFFIX: &str = ".spool";
/// Bytes of frames in one batch (one frame may exceed it): small, because a batch being delivered lies in memory.
const BATCH_BYTES_MAX: u32 = 32 * 1024;
/// Bytes read of one segment at a time, whatever its length claims.
const SCAN_BYTES_MAX: u32 = 4 << 20;

/// How large the spool may become.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Bytes of all segments together.
    pub total: u64,
    /// Bytes of one segment: what is lost at once when the total is reached.
    pub segment: u32,
}

impl Default for Limits {
    /// Days of an ordinary machine, and a part of the smallest flash that nobody misses.
    fn default() -> Self {
        Limits { total: 16 << 20, segment: 256 << 10 }
    }
}

/// A cut batch, read back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    /// Its number.
    pub number: u64,
    /// What is missing before its first line.
    pub lost: Lost,
    /// Its lines, packed.
    pub lines: Vec<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Segment {
    index: u64,
    len: u32,
}

/// The spool.
pub struct Spool {
    files: Rc<dyn Files>,
    folder: PathBuf,
    limits: Limits,
    fresh_id: Rc<dyn Fn() -> SpoolId>,
    books: Books,
    /// The books as the disk has them.
    stored: Books,
    /// Oldest first, never empty; the last one is written to.
    segments: VecDeque<Segment>,
    /// Where the last frame with lines in the last segment ends.
    lines_end: u32,
    /// A failed write may have left a part of a frame behind.
    ragged: bool,
    dropped_lines: u64,
}

impl Spool {
    /// Continues the spool in `folder`, or begins one.
    pub fn open(
        files: Rc<dyn Files>,
        folder: PathBuf,
        limits: Limits,
        fresh_id: Rc<dyn Fn() -> SpoolId>,
    ) -> Result<Spool, FileError> {
        let mut segments: VecDeque<Segment> = files
            .list(&folder)?
            .into_iter()
            .filter_map(|entry| {
                let index = entry.name.strip_suffix(SUFFIX)?.parse().ok()?;
                Some(Segment { index, len: u32::try_from(entry.len).unwrap_or(u32::MAX) })
            })
            .collect();
        segments.make_contiguous().sort_unstable_by_key(|segment| segment.index);
        let mut spool = Spool {
            files,
            folder,
            limits,
            fresh_id,
            books: Books::default(),
            stored: Books::default(),
            segments,
            lines_end: 0,
            ragged: false,
            dropped_lines: 0,
        };
        spool.recover()?;
        Ok(spool)
    }

    /// Appends packed lines; with `cut`, the same write cuts the next batch, unless one is being delivered. Nothing has
    /// changed when it fails.
    pub async fn keep(&mut self, lines: &[u8], cut: bool) -> Result<Option<Batch>, FileError> {
        let len = EMPTY_BYTES.saturating_add(u32::try_from(lines.len()).unwrap_or(u32::MAX));
        let mut books = self.books;
        let cut = cut && books.unfinished().is_none();
        if lines.is_empty() && !cut && books.acknowledged == self.stored.acknowledged {
            return Ok(None);
        }
        if self.active().len.saturating_add(len) > self.limits.segment && self.lines_end > 0 {
            self.begin_segment()?;
            books = self.books;
        }
        let dropped = self.drop_oldest(&mut books, len);
        let active = self.active();
        let was = books.cut.number;
        if cut {
            let found = self.find(&mut books);
            let own =
                Cut { segment: active.index, from: active.len, to: active.len.saturating_add(len), ..Cut::default() };
            let range = match found {
                Some(found) if found.segment == own.segment && found.to == own.from && !lines.is_empty() => {
                    let whole = own.to.saturating_sub(found.from) <= BATCH_BYTES_MAX;
                    Some(Cut { to: if whole { own.to } else { found.to }, ..found })
                }
                Some(found) => Some(found),
                None if lines.is_empty() => None,
                None => Some(own),
            };
            if let Some(range) = range {
                books.cut = Cut { number: was.saturating_add(1), lost: books.lost, ..range };
                books.lost = Lost::default();
                books.next = Place { segment: range.segment, offset: range.to };
            }
        }
        if lines.is_empty() && books.cut.number == was && books.acknowledged == self.stored.acknowledged {
            // Only steps over what holds no lines: found again when they are looked for again.
            self.books = books;
            return Ok(None);
        }
        self.append(&books, lines, len).await?;
        self.dropped_lines = self.dropped_lines.saturating_add(u64::from(dropped));
        self.remove_finished();
        Ok(if books.cut.number == was { None } else { self.unfinished() })
    }

    /// The batch that was cut and is not acknowledged, as it was cut.
    pub fn unfinished(&mut self) -> Option<Batch> {
        let cut = self.books.unfinished()?;
        let want = cut.to.saturating_sub(cut.from);
        let bytes = self.read(cut.segment, cut.from, want);
        let (mut lines, mut rest) = (Vec::new(), bytes.as_slice());
        while let Some(frame) = Frame::read(rest) {
            lines.extend(frame.packed());
            rest = rest.get(frame.len as usize..).unwrap_or_default();
        }
        if rest.is_empty() && bytes.len() == want as usize {
            return Some(Batch { number: cut.number, lost: cut.lost, lines });
        }
        log::warn!("log batch {} cannot be read back: what is unreadable of it will be counted", cut.number);
        self.rename();
        None
    }

    /// The server keeps everything up to `number` of the spool `id`.
    pub fn acknowledge(&mut self, id: &str, number: u64) {
        if id != self.id() || number < self.books.cut.number {
            return;
        }
        if number > self.books.cut.number {
            log::warn!(
                "the fleet server knows later log batches of this spool than this device: has its disk been copied?"
            );
            self.rename();
            return;
        }
        self.books.acknowledged = number;
        self.remove_finished();
    }

    /// The spool's name, as the server knows it.
    #[must_use]
    pub fn id(&self) -> String {
        use std::fmt::Write as _;
        self.books.id.iter().fold(String::with_capacity(32), |mut text, byte| {
            // Writing to a string cannot fail.
            let _ = write!(text, "{byte:02x}");
            text
        })
    }

    /// Whether lines wait that are in no batch yet.
    #[must_use]
    pub fn waiting(&self) -> bool {
        let next = self.books.next;
        next.segment < self.active().index || next.offset < self.lines_end
    }

    /// Bytes that wait for delivery.
    #[must_use]
    pub fn queued_bytes(&self) -> u64 {
        let next = self.books.next;
        let after = self.segments.iter().filter(|segment| segment.index >= next.segment).map(|segment| {
            let end = if segment.index == self.active().index { self.lines_end } else { segment.len };
            u64::from(if segment.index == next.segment { end.saturating_sub(next.offset) } else { end })
        });
        let cut = self.books.unfinished().map_or(0, |cut| u64::from(cut.to.saturating_sub(cut.from)));
        after.sum::<u64>().saturating_add(cut)
    }

    /// Lines dropped for want of room since this spool was opened.
    #[must_use]
    pub fn dropped_lines(&self) -> u64 {
        self.dropped_lines
    }
}

impl Spool {
    #[allow(clippy::expect_used, reason = "an invariant of this file")]
    fn active(&self) -> Segment {
        *self.segments.back().expect("recover() leaves at least one segment, and the last is never removed")
    }

    fn path(&self, index: u64) -> PathBuf {
        segment_path(&self.folder, index)
    }

    /// Fewer bytes than asked for where the disk does not give them back: for the caller they are unreadable, for ever.
    fn read(&self, index: u64, from: u32, len: u32) -> Vec<u8> {
        self.files.read_at(&self.path(index), u64::from(from), len as usize).unwrap_or_else(|error| {
            log::warn!("{error}: {}", error.source);
            Vec::new()
        })
    }

    /// Takes a new name; what was not acknowledged under the old one is cut and numbered afresh.
    fn rename(&mut self) {
        if let Some(cut) = self.books.unfinished() {
            self.books.next = Place { segment: cut.segment, offset: cut.from };
            self.books.lost = cut.lost.and(self.books.lost);
        }
        self.books = Books { id: (self.fresh_id)(), cut: Cut::default(), acknowledged: 0, ..self.books };
    }

    /// Reads the books from the newest segment and cuts off what a power cut left half written.
    fn recover(&mut self) -> Result<(), FileError> {
        let newest = self.segments.back().map(|segment| segment.index);
        let mut sound = true;
        let mut found = None;
        for segment in self.segments.iter().rev() {
            let scan = Scan::of(&self.read(segment.index, 0, segment.len.min(SCAN_BYTES_MAX)));
            let tail = segment.len.saturating_sub(scan.end);
            // The first frame of a segment is written atomically: without it this is no torn tail.
            sound &= Some(segment.index) == newest && (tail == 0 || (tail <= FRAME_BYTES_MAX && scan.books.is_some()));
            if let Some(books) = scan.books {
                found = Some((segment.index, books, scan, tail));
                break;
            }
        }
        // Until shown otherwise, everything in the newest segment waits.
        self.lines_end = self.segments.back().map_or(0, |newest| newest.len);
        match &found {
            Some((index, books, scan, tail)) => {
                (self.books, self.stored) = (*books, *books);
                if sound {
                    if *tail > 0 {
                        self.files.truncate(&self.path(*index), u64::from(scan.end))?;
                    }
                    if let Some(active) = self.segments.back_mut() {
                        active.len = scan.end;
                    }
                    self.lines_end = scan.lines_end;
                }
            }
            None => {
                self.books.id = (self.fresh_id)();
                self.books.next.segment = self.segments.front().map_or(1, |oldest| oldest.index);
            }
        }
        if let Some(cut) = self.books.unfinished()
            && !self.segments.iter().any(|segment| segment.index == cut.segment)
        {
            // Its segment was removed, which happens after the acknowledgement only.
            self.books.acknowledged = cut.number;
        }
        if found.is_none() || !sound {
            if !self.segments.is_empty() {
                log::warn!("the log spool is damaged: what can be read is kept, the rest is counted");
                self.rename();
            }
            self.begin_segment()?;
        }
        self.remove_finished();
        Ok(())
    }

    /// Starts the next segment with a frame that holds nothing but the books.
    fn begin_segment(&mut self) -> Result<(), FileError> {
        let index = self.segments.back().map_or(1, |active| active.index.saturating_add(1));
        let mut books = self.books;
        if !self.segments.is_empty() && !self.waiting() {
            books.next = Place { segment: index, offset: EMPTY_BYTES };
        }
        self.files.write(&self.path(index), &frame::write(&books, &[]), Access::Private)?;
        self.segments.push_back(Segment { index, len: EMPTY_BYTES });
        (self.books, self.stored, self.lines_end, self.ragged) = (books, books, 0, false);
        Ok(())
    }

    async fn append(&mut self, books: &Books, lines: &[u8], len: u32) -> Result<(), FileError> {
        let active = self.active();
        let path = self.path(active.index);
        if self.ragged {
            self.files.truncate(&path, u64::from(active.len))?;
        }
        self.ragged = true;
        let end = active.len.saturating_add(len);
        if self.files.append(&path, &frame::write(books, lines)).await? != u64::from(end) {
            // Somebody else was at the file: where its bytes lie is not known any more, so it goes.
            let _ = self.files.remove(&path);
            let gone = active.len.saturating_sub(self.books.next.offset);
            if self.books.next.segment == active.index {
                self.books.lost = self.books.lost.and(Lost { lines: 0, bytes: gone });
                self.books.next = Place { segment: active.index.saturating_add(1), offset: 0 };
            }
            self.begin_segment()?;
            self.segments.retain(|segment| segment.index != active.index);
            let source = std::io::Error::other("the file was changed by somebody else");
            return Err(FileError { attempted: "append to", path, source });
        }
        self.ragged = false;
        (self.books, self.stored) = (*books, *books);
        if let Some(active) = self.segments.back_mut() {
            active.len = end;
        }
        if !lines.is_empty() {
            self.lines_end = end;
        }
        Ok(())
    }

    /// Plans which segments go so that `len` more bytes fit: they are behind `books.next` afterwards, and removed once
    /// the books are stored. Returns how many lines went.
    fn drop_oldest(&self, books: &mut Books, len: u32) -> u32 {
        let mut total: u64 = self.segments.iter().map(|segment| u64::from(segment.len)).sum();
        total = total.saturating_add(u64::from(len));
        let (active, pinned) = (self.active().index, books.unfinished().map(|cut| cut.segment));
        let mut dropped = 0_u32;
        let mut segments = self.segments.iter().peekable();
        while let Some(segment) = segments.next() {
            if total <= self.limits.total || segment.index == active {
                break;
            }
            if Some(segment.index) != pinned {
                total = total.saturating_sub(u64::from(segment.len));
            }
            // What waits in the pinned segment behind the batch would leave its place in the order: it goes too.
            if segment.index >= books.next.segment {
                let from = if segment.index == books.next.segment { books.next.offset } else { 0 };
                let left = segment.len.saturating_sub(from);
                let scan = Scan::of(&self.read(segment.index, from, left.min(SCAN_BYTES_MAX)));
                let unread = left.saturating_sub(scan.end);
                dropped = dropped.saturating_add(scan.lines);
                books.lost = books.lost.and(Lost { lines: scan.lines, bytes: unread });
                let following = segments.peek().map_or(active, |segment| segment.index);
                books.next = Place { segment: following, offset: 0 };
            }
        }
        dropped
    }

    /// The place of the next batch: whole frames of one segment. Steps over what holds no lines and counts what cannot
    /// be read.
    fn find(&self, books: &mut Books) -> Option<Cut> {
        loop {
            let segment = self.segments.iter().find(|segment| segment.index >= books.next.segment)?;
            if segment.index > books.next.segment {
                books.next = Place { segment: segment.index, offset: 0 };
            }
            let from = books.next.offset;
            let window = (BATCH_BYTES_MAX + FRAME_BYTES_MAX).min(segment.len.saturating_sub(from));
            let bytes = self.read(segment.index, from, window);
            let short = bytes.len() < window as usize;
            let (mut rest, mut at, mut range) = (bytes.as_slice(), from, None::<(u32, u32)>);
            let unreadable = loop {
                let Some(frame) = Frame::read(rest) else { break short || !rest.is_empty() };
                let end = at.saturating_add(frame.len);
                let first = range.map_or(at, |(first, _)| first);
                if end.saturating_sub(first) > BATCH_BYTES_MAX && range.is_some() {
                    break false;
                }
                if frame.has_lines() {
                    range = Some((first, end));
                }
                at = end;
                rest = rest.get(frame.len as usize..).unwrap_or_default();
                if rest.len() < FRAME_BYTES_MAX as usize
                    && end < segment.len
                    && from.saturating_add(window) < segment.len
                {
                    // The window ends inside the next frame: that is not damage.
                    break false;
                }
            };
            if let Some((from, to)) = range {
                return Some(Cut { segment: segment.index, from, to, ..Cut::default() });
            }
            let last = segment.index == self.active().index;
            match unreadable {
                true => {
                    books.lost = books.lost.and(Lost { lines: 0, bytes: segment.len.saturating_sub(at) });
                    books.next.offset = segment.len;
                }
                false => books.next.offset = at,
            }
            if books.next.offset >= segment.len {
                if last {
                    return None;
                }
                books.next = Place { segment: segment.index.saturating_add(1), offset: 0 };
            }
        }
    }

    /// Removes segments of which nothing is needed any more. One that cannot be removed now is tried again.
    fn remove_finished(&mut self) {
        let (active, pinned) = (self.active(), self.books.unfinished().map(|cut| cut.segment));
        let next = &mut self.books.next;
        let at_its_end = |segment: &Segment| segment.index == next.segment && next.offset >= segment.len;
        if next.segment != active.index && self.segments.iter().any(at_its_end) {
            *next = Place { segment: next.segment.saturating_add(1), offset: 0 };
        }
        let next = self.books.next;
        let (files, folder) = (&self.files, &self.folder);
        self.segments.retain(|segment| {
            let needed =
                segment.index >= next.segment || Some(segment.index) == pinned || segment.index == active.index;
            needed || files.remove(&segment_path(folder, segment.index)).is_err()
        });
    }
}

/// Sorted by name is sorted by number.
fn segment_path(folder: &Path, index: u64) -> PathBuf {
    folder.join(format!("{index:012}{SUFFIX}"))
}

/// What the whole frames at the beginning of some bytes say.
struct Scan {
    books: Option<Books>,
    lines: u32,
    end: u32,
    lines_end: u32,
}

impl Scan {
    fn of(bytes: &[u8]) -> Scan {
        let mut scan = Scan { books: None, lines: 0, end: 0, lines_end: 0 };
        let mut rest = bytes;
        while let Some(frame) = Frame::read(rest) {
            scan.books = Some(frame.books);
            scan.end = scan.end.saturating_add(frame.len);
            if frame.has_lines() {
                scan.lines_end = scan.end;
                scan.lines = scan.lines.saturating_add(u32::try_from(frame.lines().count()).unwrap_or(u32::MAX));
            }
            rest = rest.get(frame.len as usize..).unwrap_or_default();
        }
        scan
    }
}
