//! The spool against a simulated disk, a model of the server, and a power that goes at every write.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    panic::{AssertUnwindSafe, catch_unwind},
    path::{Path, PathBuf},
    pin::pin,
    rc::Rc,
    task::{Context, Poll, Waker},
    time::Duration,
};

use board::{Wall, files::FileError};
use board_sim::{Driver, Interruption, Random, Reached, SimBoard};

use super::{
    Offered, SpoolStatus,
    actor::{self, Inbox, Ports},
    frame,
    line::{Level, Line},
    machine::Machine,
    spool::{Batch, Limits, Spool},
};
use crate::{
    cloud::{Acknowledged, Reach},
    kit::{latest::Latest, lossy, supervise::Supervisor, trace::Trace},
    rank::Actor,
};

const FOLDER: &str = "/root/spool";
const ROOMY: Limits = Limits { total: 1 << 20, segment: 64 << 10 };
/// A few lines fill a segment and a few segments the spool.
const TIGHT: Limits = Limits { total: 4_000, segment: 1_000 };

fn record(number: u64) -> Vec<u8> {
    Line {
        at: Wall::from_millis(i64::try_from(number).unwrap()),
        level: Level::Info,
        logger: "test".into(),
        file: String::new(),
        line: 0,
        text: format!("line {number}"),
    }
    .encode()
}

fn packed(numbers: impl IntoIterator<Item = u64>) -> Vec<u8> {
    let mut lines = Vec::new();
    for number in numbers {
        assert!(frame::pack(&mut lines, &record(number)));
    }
    lines
}

fn numbers(batch: &Batch) -> Vec<u64> {
    frame::unpack(&batch.lines)
        .map(|record| Line::decode(record).expect("only lines were packed").at.as_millis() as u64)
        .collect()
}

/// What nothing has to be waited for: a simulated disk answers when it is asked.
fn at_once<T>(future: impl Future<Output = T>) -> T {
    let polled = pin!(future).poll(&mut Context::from_waker(Waker::noop()));
    let Poll::Ready(answer) = polled else { panic!("it waits for something") };
    answer
}

fn open(sim: &SimBoard, limits: Limits) -> Spool {
    try_open(sim, limits).expect("the disk works")
}

fn try_open(sim: &SimBoard, limits: Limits) -> Result<Spool, FileError> {
    if sim.is_on() {
        sim.end_life();
    }
    let random = Rc::clone(&sim.random);
    let fresh_id = move || {
        let mut id = [0; 16];
        id[..8].copy_from_slice(&random.any().to_le_bytes());
        id
    };
    Spool::open(sim.switch_on().files, FOLDER.into(), limits, Rc::new(fresh_id))
}

fn newest_segment(sim: &SimBoard) -> PathBuf {
    sim.files.paths().into_iter().rfind(|path| path.starts_with(FOLDER)).expect("a spool has a segment")
}

/// What a fleet server keeps, by the rule it promises: a number seen before is acknowledged and dropped.
#[derive(Default)]
struct Server {
    highest: BTreeMap<String, u64>,
    /// Lines in the order of arrival, with what each batch says is missing before it.
    kept: Vec<(u32, u32, Vec<u64>)>,
    seen: BTreeMap<(String, u64), Vec<u64>>,
}

impl Server {
    fn takes(&mut self, id: &str, batch: &Batch) -> u64 {
        let before = self.seen.insert((id.to_owned(), batch.number), numbers(batch));
        assert!(before.is_none_or(|before| before == numbers(batch)), "batch {} changed its lines", batch.number);
        let highest = self.highest.entry(id.to_owned()).or_default();
        if batch.number > *highest {
            assert_eq!(batch.number, *highest + 1, "numbers rise by one");
            *highest = batch.number;
            self.kept.push((batch.lost.lines, batch.lost.bytes, numbers(batch)));
        }
        *highest
    }

    fn lines(&self) -> Vec<u64> {
        self.kept.iter().flat_map(|(.., lines)| lines.iter().copied()).collect()
    }
}

/// Delivers until nothing waits.
fn deliver_all(spool: &mut Spool, server: &mut Server) {
    for _ in 0..10_000 {
        let batch = match spool.unfinished() {
            Some(batch) => Some(batch),
            None => at_once(spool.keep(&[], true)).expect("the disk works"),
        };
        let Some(batch) = batch else {
            assert!(!spool.waiting() && spool.queued_bytes() == 0, "{} bytes wait", spool.queued_bytes());
            return;
        };
        let acknowledged = server.takes(&spool.id(), &batch);
        spool.acknowledge(&spool.id(), acknowledged);
    }
    panic!("delivery never ends");
}

#[test]
fn lines_come_out_as_they_went_in_and_a_batch_keeps_its_lines_over_restarts() {
    let sim = SimBoard::new(1);
    let mut spool = open(&sim, ROOMY);
    let id = spool.id();
    assert_eq!(at_once(spool.keep(&packed(1..4), false)).unwrap(), None);
    assert_eq!(at_once(spool.keep(&packed(4..6), false)).unwrap(), None);
    assert!(spool.waiting());
    let first = at_once(spool.keep(&packed(6..7), true)).unwrap().expect("there are lines");
    assert_eq!((first.number, numbers(&first)), (1, vec![1, 2, 3, 4, 5, 6]));
    assert!(!spool.waiting());
    // One batch at a time.
    assert_eq!(at_once(spool.keep(&packed(7..9), true)).unwrap(), None);

    let mut spool = open(&sim, ROOMY);
    assert_eq!((spool.id(), spool.unfinished()), (id.clone(), Some(first)));
    assert!(spool.waiting());
    spool.acknowledge("somebody else", 1);
    assert!(spool.unfinished().is_some());
    spool.acknowledge(&id, 1);
    assert_eq!(spool.unfinished(), None);
    let second = at_once(spool.keep(&[], true)).unwrap().expect("two lines wait");
    assert_eq!((second.number, numbers(&second)), (2, vec![7, 8]));
    spool.acknowledge(&id, 2);
    assert_eq!(spool.queued_bytes(), 0);
    // Going down stores the acknowledgement; nothing is offered twice after that.
    at_once(spool.keep(&[], false)).unwrap();
    let writes = sim.files.writes();
    at_once(spool.keep(&[], false)).unwrap();
    at_once(spool.keep(&[], true)).unwrap();
    assert_eq!(sim.files.writes(), writes, "an idle spool writes nothing");
    let mut spool = open(&sim, ROOMY);
    assert_eq!((spool.unfinished(), spool.waiting(), spool.id()), (None, false, id));
    let paths = sim.files.paths();
    assert!(paths.iter().all(|path| sim.files.access(path) == Some(board::files::Access::Private)));
}

#[test]
fn a_tail_torn_at_any_byte_costs_what_was_being_written_and_nothing_else() {
    let sim = SimBoard::new(1);
    let mut spool = open(&sim, ROOMY);
    at_once(spool.keep(&packed(1..4), true)).unwrap().expect("cut");
    let (whole, id) = (sim.files.content(newest_segment(&sim)).unwrap(), spool.id());
    spool.acknowledge(&id, 1);
    let second = at_once(spool.keep(&packed(4..6), true)).unwrap().expect("cut");
    let longer = sim.files.content(newest_segment(&sim)).unwrap();
    for torn in whole.len()..=longer.len() {
        for zeros in [false, true] {
            let mut bytes = longer[..torn].to_vec();
            if zeros {
                bytes.resize(longer.len(), 0);
            }
            sim.files.put(newest_segment(&sim), bytes, board::files::Access::Private);
            let mut spool = open(&sim, ROOMY);
            assert_eq!(spool.id(), id, "torn at {torn}");
            let unfinished = spool.unfinished().expect("the first or the second is unfinished");
            if torn == longer.len() {
                assert_eq!(unfinished, second);
            } else {
                assert_eq!((unfinished.number, numbers(&unfinished)), (1, vec![1, 2, 3]), "torn at {torn}");
                spool.acknowledge(&id, 1);
                // What is written next is not spoilt by the rest of the torn frame.
                let next = at_once(spool.keep(&packed(10..11), true)).unwrap().expect("cut");
                assert_eq!((next.number, numbers(&next)), (2, vec![10]), "torn at {torn}");
                assert_eq!(open(&sim, ROOMY).unfinished(), Some(next));
            }
        }
    }
}

#[test]
fn a_full_spool_loses_its_oldest_lines_and_counts_them() {
    let sim = SimBoard::new(1);
    let mut spool = open(&sim, TIGHT);
    for number in 1..=200 {
        at_once(spool.keep(&packed([number]), false)).unwrap();
        let used: u64 = sim.files.used();
        assert!(used <= TIGHT.total + u64::from(frame::EMPTY_BYTES), "{used} bytes");
    }
    let dropped = spool.dropped_lines();
    let mut server = Server::default();
    deliver_all(&mut open(&sim, TIGHT), &mut server);
    assert_eq!(server.kept.first().map(|(lost, ..)| u64::from(*lost)), Some(dropped));
    assert!(dropped > 100, "{dropped}");
    assert_eq!(server.lines(), (dropped + 1..=200).collect::<Vec<_>>());
    assert!(server.kept.iter().skip(1).all(|(lost, ..)| *lost == 0), "the gap is told once");
}

#[test]
fn the_batch_being_delivered_is_never_dropped() {
    let sim = SimBoard::new(1);
    let mut spool = open(&sim, TIGHT);
    at_once(spool.keep(&packed(1..3), false)).unwrap();
    let flying = at_once(spool.keep(&packed(3..5), true)).unwrap().expect("cut");
    for number in 5..=100 {
        at_once(spool.keep(&packed([number]), true)).unwrap();
    }
    let mut spool = open(&sim, TIGHT);
    assert_eq!(spool.unfinished(), Some(flying));
    let mut server = Server::default();
    deliver_all(&mut spool, &mut server);
    let lines = server.lines();
    let first_after = lines[4];
    assert_eq!(server.kept[1].0 as u64, first_after - 5, "the gap lies behind the batch");
    assert_eq!(lines[..4], [1, 2, 3, 4]);
    assert_eq!(lines[4..], (first_after..=100).collect::<Vec<_>>());
}

#[test]
fn a_failed_write_changes_nothing_and_its_rest_is_cut_off() {
    let sim = SimBoard::new(1);
    let mut spool = open(&sim, TIGHT);
    at_once(spool.keep(&packed([1]), false)).unwrap();
    for nth in 1..12 {
        sim.files.fail_write(nth, io::ErrorKind::StorageFull);
    }
    for _ in 0..11 {
        assert!(at_once(spool.keep(&packed([2]), true)).is_err());
    }
    assert_eq!(numbers(&at_once(spool.keep(&packed([2]), true)).unwrap().expect("cut")), [1, 2]);
    // Fails exactly when a new segment is begun.
    let mut spool = open(&sim, TIGHT);
    for number in 3..40 {
        sim.files.fail_write(1, io::ErrorKind::StorageFull);
        assert!(at_once(spool.keep(&packed([number]), false)).is_err());
        at_once(spool.keep(&packed([number]), false)).unwrap();
    }
    let mut server = Server::default();
    deliver_all(&mut spool, &mut server);
    let (lost, lines) = (spool.dropped_lines(), server.lines());
    assert_eq!(lines.len() as u64 + lost, 39);
    assert_eq!(lines.iter().collect::<BTreeSet<_>>().len(), lines.len(), "nothing twice");
}

#[test]
fn rot_costs_the_rotten_part_and_is_told() {
    for (case, at_line, newest) in [("in an old segment", 1, false), ("in the newest one", 24, true)] {
        let sim = SimBoard::new(1);
        let mut spool = open(&sim, Limits { total: 1 << 20, segment: 1_000 });
        for number in 1..=25 {
            at_once(spool.keep(&packed([number]), false)).unwrap();
        }
        drop(spool);
        let segments: Vec<_> = sim.files.paths().into_iter().filter(|path| path.starts_with(FOLDER)).collect();
        let path = if newest { segments.last() } else { segments.first() }.unwrap();
        let place = sim.files.content(path).unwrap();
        let text = format!("line {at_line}");
        let at = place.windows(text.len()).position(|window| window == text.as_bytes()).expect(case);
        sim.files.corrupt(path, at);
        if newest {
            // Enough behind it that this cannot be a torn tail.
            let mut bytes = sim.files.content(path).unwrap();
            bytes.resize(bytes.len() + frame::FRAME_BYTES_MAX as usize, 7);
            sim.files.put(path, bytes, board::files::Access::Private);
        }
        let mut spool = open(&sim, Limits { total: 1 << 20, segment: 1_000 });
        at_once(spool.keep(&packed([26]), false)).unwrap();
        let mut server = Server::default();
        deliver_all(&mut spool, &mut server);
        let lines = server.lines();
        assert!(!lines.contains(&at_line) && lines.len() >= 15, "{case}: {lines:?}");
        assert!(lines.is_sorted() && lines.last() == Some(&26), "{case}: {lines:?}");
        assert!(server.kept.iter().any(|(_, bytes, _)| *bytes > 0), "{case}: the gap is told");
    }
}

#[test]
fn numbers_that_may_have_been_lost_are_never_used_again() {
    let sim = SimBoard::new(1);
    let mut spool = open(&sim, ROOMY);
    let old = spool.id();
    at_once(spool.keep(&packed([1]), true)).unwrap().expect("cut");
    // The server knows more of this spool than the device: its disk was copied or put back.
    spool.acknowledge(&old, 9);
    assert_ne!(spool.id(), old);
    let again = at_once(spool.keep(&[], true)).unwrap().expect("not acknowledged, so offered under the new name");
    assert_eq!((again.number, numbers(&again)), (1, vec![1]));
    // No frame of the newest segment can be read.
    let name = spool.id();
    let path = newest_segment(&sim);
    sim.files.corrupt(&path, 0);
    let mut spool = open(&sim, ROOMY);
    assert_ne!(spool.id(), name);
    let mut server = Server::default();
    at_once(spool.keep(&packed([2]), false)).unwrap();
    deliver_all(&mut spool, &mut server);
    assert_eq!(server.lines(), [2]);
    assert!(server.kept[0].1 > 0);
}

#[test]
fn files_that_vanish_while_the_agent_runs_cost_lines_not_the_logs() {
    let sim = SimBoard::new(1);
    let mut spool = open(&sim, ROOMY);
    at_once(spool.keep(&packed([1]), false)).unwrap();
    sim.files.lose(newest_segment(&sim));
    assert!(at_once(spool.keep(&packed([2]), true)).is_err());
    let mut server = Server::default();
    at_once(spool.keep(&packed([2]), true)).unwrap();
    deliver_all(&mut spool, &mut server);
    at_once(spool.keep(&packed([3]), true)).unwrap();
    deliver_all(&mut spool, &mut server);
    assert_eq!(server.lines(), [2, 3]);
}

/// One life of a spool at a time, with everything that can happen to it.
struct Trial {
    sim: SimBoard,
    random: Random,
    limits: Limits,
    server: Server,
    /// The last line that was handed over.
    handed: u64,
    /// Lines in a write of which nobody knows whether it happened.
    unsure: BTreeSet<u64>,
}

impl Trial {
    fn act(&mut self, spool: &mut Spool) {
        match self.random.below(10) {
            0..6 => {
                let first = self.handed + 1;
                self.handed += self.random.below(4);
                let lines = first..=self.handed;
                // Until it has returned.
                self.unsure.extend(lines.clone());
                let cut = self.random.chance(50);
                if at_once(spool.keep(&packed(lines.clone()), cut)).is_ok() {
                    lines.for_each(|line| {
                        self.unsure.remove(&line);
                    });
                }
            }
            6..8 => {
                if let Some(batch) = spool.unfinished() {
                    let acknowledged = self.server.takes(&spool.id(), &batch);
                    // The answer may get lost.
                    if self.random.chance(70) {
                        spool.acknowledge(&spool.id(), acknowledged);
                    }
                }
            }
            8 => {
                let _ = at_once(spool.keep(&[], true));
            }
            _ => {
                let _ = at_once(spool.keep(&[], false));
            }
        }
    }

    fn plan_trouble(&self) {
        let nth = 1 + self.random.below(6);
        let reached = *self.random.pick(&Reached::ALL);
        match self.random.below(4) {
            0 => self.sim.files.interrupt_at_write(nth, Interruption::PowerCut, reached),
            1 => self.sim.files.interrupt_at_write(nth, Interruption::Killed, reached),
            2 => self.sim.files.fail_write(nth, io::ErrorKind::StorageFull),
            _ => {}
        }
    }

    fn live(&mut self) {
        self.plan_trouble();
        let turns = self.random.below(30);
        let life = catch_unwind(AssertUnwindSafe(|| {
            let Ok(mut spool) = try_open(&self.sim, self.limits) else { return };
            for _ in 0..turns {
                self.act(&mut spool);
            }
        }));
        match (life, self.sim.files.take_interruption()) {
            (Ok(()), _) => self.sim.end_life(),
            (Err(_), Some(Interruption::PowerCut)) => self.sim.cut_power(),
            (Err(_), Some(Interruption::Killed)) => self.sim.end_life(),
            (Err(panic), None) => std::panic::resume_unwind(panic),
        }
        self.sim.files.heal();
    }

    /// In order, nothing twice, and each gap told with its size.
    fn judge(&self, seed: u64) {
        let mut last = 0;
        let sure = |lines: std::ops::Range<u64>| lines.filter(|line| !self.unsure.contains(line)).count();
        for (lost, bytes, lines) in &self.server.kept {
            assert_eq!(*bytes, 0, "seed {seed}: nothing rots here");
            let (&first, &end) = (lines.first().expect("no empty batch"), lines.last().expect("no empty batch"));
            assert!(first > last, "seed {seed}: line {first} came after {last}");
            let missing = last + 1..first;
            let (least, most) = (sure(missing.clone()), missing.count());
            let told = *lost as usize;
            assert!(
                (least..=most).contains(&told),
                "seed {seed}: {told} told lost before {first}, {least} to {most} are"
            );
            assert_eq!(
                lines.iter().filter(|line| !self.unsure.contains(line)).count(),
                sure(first..end + 1),
                "seed {seed}"
            );
            assert!(lines.is_sorted_by(|a, b| a < b), "seed {seed}: {lines:?}");
            last = end;
        }
        assert_eq!(sure(last + 1..self.handed + 1), 0, "seed {seed}: everything after {last} is missing");
    }
}

#[test]
fn whatever_happens_lines_arrive_in_order_without_loss_or_repetition() {
    for seed in 0..400 {
        let limits = if seed % 2 == 0 { ROOMY } else { TIGHT };
        let sim = SimBoard::new(seed);
        let random = sim.random.branch();
        let server = Server::default();
        let mut trial = Trial { sim, random, limits, server, handed: 0, unsure: BTreeSet::new() };
        for _ in 0..20 {
            trial.live();
        }
        let mut spool = open(&trial.sim, limits);
        deliver_all(&mut spool, &mut trial.server);
        assert_eq!(trial.server.highest.len(), 1, "seed {seed}: a power cut is no reason for a new name");
        trial.judge(seed);
    }
}

/// The actor on a simulated device.
struct Bench {
    sim: SimBoard,
    driver: Driver,
    writer: lossy::Writer,
    reach: Latest<Reach>,
    acknowledged: Latest<Acknowledged>,
    offered: Latest<Option<Offered>>,
    status: Latest<SpoolStatus>,
    supervisor: Rc<Supervisor>,
}

impl Bench {
    fn new(sim: &SimBoard) -> Self {
        let (writer, lines) = lossy::lossy(64 * 1024);
        let board = sim.switch_on();
        let (reach, acknowledged, offered, status) = (Latest::new(), Latest::new(), Latest::new(), Latest::new());
        let (driver, random) = (Driver::new(sim), Rc::clone(&sim.random));
        let supervisor = Rc::new(Supervisor::new(&driver.executor(), &board.clock));
        let (reached, kept) = (reach.watch(), acknowledged.watch());
        let ports = Ports {
            clock: board.clock,
            files: board.files,
            folder: FOLDER.into(),
            limits: ROOMY,
            fresh_id: Rc::new(move || [random.any() as u8; 16]),
            host: "bench-robot".into(),
            offered: offered.clone(),
            status: status.clone(),
            trace: Trace::default(),
        };
        supervisor.start(Actor::Logs, "logs", |lifeline| {
            let clock = Rc::clone(&ports.clock);
            let inbox = Inbox { lines, reach: reached, acknowledged: kept, clock, lifeline };
            actor::run(Machine::new(1), inbox, ports)
        });
        Bench { sim: sim.clone(), driver, writer, reach, acknowledged, offered, status, supervisor }
    }

    fn run(&self, seconds: u64) {
        self.driver.run_for(Duration::from_secs(seconds), || {});
    }

    fn say(&self, number: u64) {
        self.writer.push(&record(number));
    }

    fn offered(&self) -> Option<Offered> {
        self.offered.get().flatten()
    }

    fn acknowledge(&self) -> Vec<String> {
        let Offered { spool_id, number, .. } = self.offered().expect("a batch is offered");
        let texts = self.offered().unwrap().entries().into_iter().map(|entry| entry.message).collect();
        self.acknowledged.publish(Acknowledged { spool_id, number });
        self.run(0);
        texts
    }

    fn stop(self) {
        let supervisor = Rc::clone(&self.supervisor);
        self.driver.block_on(async move { supervisor.stop(Duration::from_secs(5)).await });
        self.sim.end_life();
    }
}

#[test]
fn the_actor_delivers_what_was_said_offline_and_across_a_restart() {
    let sim = SimBoard::new(1);
    let bench = Bench::new(&sim);
    bench.run(1);
    bench.say(1);
    bench.say(2);
    bench.run(2);
    assert_eq!(bench.offered(), None, "offline, nothing is cut");
    assert!(bench.status.get().unwrap().queued_bytes > 0);
    bench.say(3);
    // Stopped before the second is over: what was said is kept.
    bench.stop();

    let bench = Bench::new(&sim);
    bench.reach.publish(Reach::Reached);
    bench.run(0);
    bench.say(4);
    assert_eq!(bench.acknowledge(), ["line 1", "line 2", "line 3"]);
    bench.run(2);
    let entries = bench.offered().expect("the line said meanwhile").entries();
    assert_eq!(entries.len(), 1);
    assert_eq!((entries[0].level.as_str(), entries[0].logger_name.as_str()), ("info", "test"));
    assert_eq!(entries[0].host, "bench-robot");
    assert_eq!(bench.acknowledge(), ["line 4"]);
    assert_eq!(bench.offered(), None);
    assert_eq!(bench.status.get(), Some(SpoolStatus::default()));
    let writes = sim.files.writes();
    bench.run(3_600);
    assert_eq!(sim.files.writes(), writes, "an idle agent spares the flash");
    bench.stop();
}

#[test]
fn the_actor_survives_a_disk_that_takes_nothing() {
    let sim = SimBoard::new(1);
    sim.files.refuse_writes("spool", io::ErrorKind::StorageFull);
    let bench = Bench::new(&sim);
    bench.reach.publish(Reach::Reached);
    for number in 1..=3 {
        bench.say(number);
        bench.run(100);
    }
    assert_eq!(bench.offered(), None);
    sim.files.heal();
    bench.run(100);
    assert_eq!(bench.acknowledge(), ["line 1", "line 2", "line 3"]);
    bench.stop();
}

#[test]
fn a_folder_of_strangers_is_left_alone() {
    let sim = SimBoard::new(1);
    let stranger = Path::new(FOLDER).join("notes.txt");
    sim.files.put(&stranger, "mine", board::files::Access::Readable);
    let mut spool = open(&sim, ROOMY);
    at_once(spool.keep(&packed([1]), true)).unwrap();
    assert_eq!(sim.files.content(&stranger).as_deref(), Some(&b"mine"[..]));
}
