//! Logs: decides when lines are written to disk, when a batch is cut, and what goes when there is no room.
//!
//! Owns the lines that are not on disk yet. Files, rings and clocks live in `spool.rs` and `actor.rs`.
//!
//! Lines wait in memory for at most a second, then reach the disk in one write: flash wears by the write, and a crash
//! costs at most that second of lines, which nobody was promised yet. While the fleet server can be reached, the same
//! write cuts and numbers the batch; while it cannot, nothing is cut, so that a long silence is later told in few, full
//! batches. Without a writable disk the newest lines wait in memory and the older ones are counted.

use std::time::Duration;

use board::{Mono, Wall};

use super::{
    frame::{self, LINES_BYTES_MAX},
    line::{Level, Line},
    logs_logger,
};
use crate::{cloud::Acknowledged, kit::backoff::Backoff};

/// How long the oldest line waits in memory for company.
pub const GATHER: Duration = Duration::from_secs(1);
/// Bytes of lines that are written without waiting for more.
const GATHERED_BYTES: usize = 16 * 1024;
/// Bytes of lines held while the disk takes none; one line about lost lines still fits beside them into one frame.
const HELD_BYTES_MAX: usize = LINES_BYTES_MAX - 1024;
/// First wait after a write that failed.
const RETRY_FIRST: Duration = Duration::from_secs(2);
/// Longest wait after writes that fail: a full disk is emptied by people.
const RETRY_MAX: Duration = Duration::from_secs(60);

/// What happens to this machine.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// A line, as its record.
    Line(Vec<u8>),
    /// The ring of lines overflowed.
    Overrun {
        /// Lines that went.
        lines: u64,
        /// Now.
        at: Wall,
    },
    /// The fleet server can be reached, or not.
    Reach(bool),
    /// The fleet server keeps a batch.
    Acknowledged(Acknowledged),
    /// The spool carried out an effect, or was opened.
    Spooled {
        /// A batch is cut and not acknowledged.
        in_flight: bool,
        /// Lines on disk are in no batch yet.
        waiting: bool,
    },
    /// The disk did not take these lines.
    NotKept {
        /// They come back as they went.
        lines: Vec<u8>,
    },
    /// Time has come.
    DeadlinePassed,
    /// The agent is going down.
    Stop,
}

/// What this machine wants done; each is answered by [`Event::Spooled`] or [`Event::NotKept`].
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Append lines (there may be none), and cut the next batch in the same write.
    Keep {
        /// Packed lines.
        lines: Vec<u8>,
        /// Whether to cut.
        cut: bool,
    },
    /// Forget what the fleet server keeps.
    Settle(Acknowledged),
}

/// The decision maker.
#[derive(Clone, Debug, PartialEq)]
pub struct Machine {
    /// Packed lines that are not on disk.
    gathered: Vec<u8>,
    /// When the oldest of them came.
    since: Option<Mono>,
    /// Lines lost in memory and not told about yet, and when that was noticed.
    lost: u64,
    lost_at: Wall,
    /// All lines lost in memory since the agent started.
    lost_ever: u64,
    reachable: bool,
    in_flight: bool,
    waiting: bool,
    retry: Backoff,
    retry_at: Option<Mono>,
}

impl Machine {
    /// Nothing heard yet. `seed` spreads retries over devices.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Machine {
            gathered: Vec::new(),
            since: None,
            lost: 0,
            lost_at: Wall::default(),
            lost_ever: 0,
            reachable: false,
            in_flight: false,
            waiting: false,
            retry: Backoff::new(RETRY_FIRST, RETRY_MAX, seed),
            retry_at: None,
        }
    }

    /// The only place where the state changes.
    pub fn step(&mut self, now: Mono, event: Event) -> Option<Effect> {
        match event {
            Event::Line(record) => {
                if !frame::pack(&mut self.gathered, &record) {
                    self.lose(1, Line::decode(&record).map(|line| line.at).unwrap_or_default());
                }
                self.make_room();
                self.since.get_or_insert(now);
            }
            Event::Overrun { lines, at } => {
                self.lose(lines, at);
                self.since.get_or_insert(now);
            }
            Event::Reach(reachable) => self.reachable = reachable,
            Event::Acknowledged(number) => return Some(Effect::Settle(number)),
            Event::Spooled { in_flight, waiting } => {
                (self.in_flight, self.waiting) = (in_flight, waiting);
                self.retry_at = None;
                self.retry.reset();
            }
            Event::NotKept { lines } => {
                let newer = std::mem::replace(&mut self.gathered, lines);
                self.gathered.extend(newer);
                self.make_room();
                self.since.get_or_insert(now);
                self.retry_at = Some(now + self.retry.next_delay());
            }
            Event::DeadlinePassed => {}
            Event::Stop => return Some(self.keep(false)),
        }
        self.next(now)
    }

    /// The moment at which time alone would change something.
    #[must_use]
    pub fn deadline(&self) -> Option<Mono> {
        let gathered = self.since.map(|since| since + GATHER);
        match (gathered, self.retry_at) {
            (Some(gathered), Some(retry)) => Some(gathered.max(retry)),
            (None, Some(retry)) if self.waiting => Some(retry),
            (gathered, _) => gathered,
        }
    }

    /// Lines that never reached the disk.
    #[must_use]
    pub fn lost_ever(&self) -> u64 {
        self.lost_ever
    }

    /// One write at a time, and none while the disk refuses.
    fn next(&mut self, now: Mono) -> Option<Effect> {
        if self.retry_at.is_some_and(|at| now < at) {
            return None;
        }
        let old_enough = self.since.is_some_and(|since| now >= since + GATHER);
        let enough = self.gathered.len() >= GATHERED_BYTES;
        let may_cut = self.reachable && !self.in_flight;
        (old_enough || enough || (may_cut && self.waiting)).then(|| self.keep(may_cut))
    }

    fn keep(&mut self, cut: bool) -> Effect {
        let mut lines = std::mem::take(&mut self.gathered);
        if self.lost > 0 {
            let mut told = Vec::new();
            frame::pack(&mut told, &lost_line(std::mem::take(&mut self.lost), self.lost_at).encode());
            told.extend(lines);
            lines = told;
        }
        self.since = None;
        Effect::Keep { lines, cut }
    }

    /// Drops the oldest lines until the rest fits into one write.
    fn make_room(&mut self) {
        let mut excess = 0;
        let (mut dropped, mut at) = (0, Wall::default());
        for record in frame::unpack(&self.gathered) {
            if self.gathered.len() - excess <= HELD_BYTES_MAX {
                break;
            }
            excess += size_of::<u16>() + record.len();
            dropped += 1;
            at = Line::decode(record).map(|line| line.at).unwrap_or_default();
        }
        if dropped > 0 {
            self.gathered.drain(..excess);
            self.lose(dropped, at);
        }
    }

    fn lose(&mut self, lines: u64, at: Wall) {
        self.lost = self.lost.saturating_add(lines);
        self.lost_ever = self.lost_ever.saturating_add(lines);
        self.lost_at = at;
    }
}

fn lost_line(lines: u64, at: Wall) -> Line {
    Line {
        at,
        level: Level::Warn,
        logger: logs_logger(),
        file: String::new(),
        line: 0,
        text: format!("{lines} lines lost: they came faster than they could be kept"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Mono {
        Mono::from_nanos(millis * 1_000_000)
    }

    fn packed(records: &[&[u8]]) -> Vec<u8> {
        let mut lines = Vec::new();
        for record in records {
            assert!(frame::pack(&mut lines, record));
        }
        lines
    }

    fn keep(records: &[&[u8]], cut: bool) -> Option<Effect> {
        Some(Effect::Keep { lines: packed(records), cut })
    }

    fn line(text: &str) -> Event {
        Event::Line(text.into())
    }

    fn acknowledged(number: u64) -> Acknowledged {
        Acknowledged { spool_id: "s".into(), number }
    }

    #[test]
    fn lines_become_batches() {
        use Event::*;
        const IDLE: Event = Spooled { in_flight: false, waiting: false };
        const FLYING: Event = Spooled { in_flight: true, waiting: false };
        const BACKLOG: Event = Spooled { in_flight: false, waiting: true };
        let mut machine = Machine::new(1);
        let table = [
            // case                                  ms     event                       deadline     effect
            ("nothing on disk", 0, IDLE, None, None),
            ("offline, a line waits for company", 10, line("a"), Some(1_010), None),
            ("the second does not wait longer", 500, line("b"), Some(1_010), None),
            ("too early", 1_009, DeadlinePassed, Some(1_010), None),
            ("kept, not cut: nobody can be reached", 1_010, DeadlinePassed, None, keep(&[b"a", b"b"], false)),
            ("on disk", 1_010, BACKLOG, None, None),
            ("online: what waits is cut at once", 2_000, Reach(true), None, keep(&[], true)),
            ("the batch is offered", 2_000, FLYING, None, None),
            ("a line while it is delivered", 2_100, line("c"), Some(3_100), None),
            ("kept, not cut: one at a time", 3_100, DeadlinePassed, None, keep(&[b"c"], false)),
            ("on disk behind the batch", 3_100, Spooled { in_flight: true, waiting: true }, None, None),
            (
                "the batch has arrived",
                3_200,
                Acknowledged(acknowledged(1)),
                None,
                Some(Effect::Settle(acknowledged(1))),
            ),
            ("the next is cut at once", 3_200, BACKLOG, None, keep(&[], true)),
            ("and offered", 3_200, FLYING, None, None),
            ("the cloud is gone", 4_000, Reach(false), None, None),
            ("back: still the same batch", 5_000, Reach(true), None, None),
            ("it has arrived", 5_100, Acknowledged(acknowledged(2)), None, Some(Effect::Settle(acknowledged(2)))),
            ("nothing waits", 5_100, IDLE, None, None),
            ("online, a line", 6_000, line("d"), Some(7_000), None),
            ("written and cut by the same write", 7_000, DeadlinePassed, None, keep(&[b"d"], true)),
            ("offered", 7_000, FLYING, None, None),
            ("last words", 7_500, line("e"), Some(8_500), None),
            ("going down", 7_600, Stop, None, keep(&[b"e"], false)),
        ];
        for (case, ms, event, deadline, effect) in table {
            assert_eq!(machine.step(at(ms), event), effect, "{case}");
            assert_eq!(machine.deadline(), deadline.map(at), "{case}");
        }
    }

    #[test]
    fn a_flood_is_written_without_waiting() {
        let mut machine = Machine::new(1);
        let mut kept = 0;
        for _ in 0..64 {
            if let Some(Effect::Keep { lines, .. }) = machine.step(at(0), Event::Line(vec![b'x'; 1_024])) {
                assert!(lines.len() >= GATHERED_BYTES && lines.len() <= LINES_BYTES_MAX);
                kept += 1;
            }
        }
        assert_eq!(kept, 4);
    }

    #[test]
    fn without_a_disk_the_newest_lines_are_held_and_the_others_counted() {
        let mut machine = Machine::new(1);
        let record = |number: u32| [&number.to_le_bytes()[..], &[0; 996]].concat();
        machine.step(at(0), Event::Line(record(0)));
        let Some(Effect::Keep { lines, .. }) = machine.step(at(1_000), Event::DeadlinePassed) else { panic!("kept") };
        assert_eq!(machine.step(at(1_000), Event::NotKept { lines }), None);
        for number in 1..100 {
            let event = machine.step(at(1_001), Event::Line(record(number)));
            assert_eq!(event, None, "nothing is tried before the wait is over");
        }
        let retry = machine.deadline().expect("it is tried again");
        assert!(retry > at(1_999) && retry <= at(3_001));
        let Some(Effect::Keep { lines, .. }) = machine.step(retry, Event::DeadlinePassed) else {
            panic!("tried again")
        };
        let mut records = frame::unpack(&lines);
        let told = Line::decode(records.next().expect("there is a first")).expect("the first is a line");
        let held: Vec<_> = records.collect();
        assert_eq!(told.text, format!("{} lines lost: they came faster than they could be kept", 100 - held.len()));
        assert_eq!(machine.lost_ever(), 100 - held.len() as u64);
        assert_eq!(held.last().copied(), Some(record(99).as_slice()));
        assert!(lines.len() <= LINES_BYTES_MAX);
        // It fails again and again: nothing is counted twice and the waits grow to their cap.
        let mut lines = Some(lines);
        for _ in 0..20 {
            let before = machine.deadline().unwrap_or(retry);
            machine.step(before, Event::NotKept { lines: lines.take().expect("they went out") });
            let due = machine.deadline().expect("it is tried again");
            assert!(due.since(before) <= RETRY_MAX);
            if let Some(Effect::Keep { lines: again, .. }) = machine.step(due, Event::DeadlinePassed) {
                lines = Some(again);
            }
        }
        machine.step(at(10_000_000), Event::Spooled { in_flight: false, waiting: true });
        assert_eq!(machine.deadline(), None);
    }

    #[test]
    fn an_overrun_is_told_even_if_no_line_follows() {
        let mut machine = Machine::new(1);
        machine.step(at(0), Event::Overrun { lines: 3, at: Wall::from_millis(77) });
        machine.step(at(1), Event::Overrun { lines: 4, at: Wall::from_millis(78) });
        let Some(Effect::Keep { lines, .. }) = machine.step(at(1_000), Event::DeadlinePassed) else { panic!("kept") };
        let told: Vec<_> = frame::unpack(&lines).filter_map(Line::decode).map(|line| line.text).collect();
        assert_eq!(told, ["7 lines lost: they came faster than they could be kept"]);
    }
}
