//! The fleet server under everything that nobody should send, beside callers who behave.
//!
//! Those who behave are timed alone, and while ten thousand connections say nothing, a thousand tails are not read, and
//! others send frames that are none, messages of 64 MiB, documents that are too deep and texts that are no texts, as fast
//! as they are answered. Whoever does that has a processor of its own and here there is none to give away, so the abusers
//! run where nobody else wants to; and the same is measured while they say the same as fast to a program that only listens:
//! what callers feel then is the machine, and what is beyond it is the server. A second time the abusers are programs like
//! any other. One more tail is read, and must see every line. What is refused must be refused in so many words; nothing may
//! be a fault of the server.

use std::{
    collections::BTreeMap,
    io::{BufRead as _, BufReader, Write as _},
    net::TcpStream,
    path::Path,
    process::{Command, Stdio},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use api::{
    client::Client,
    pb::platform::{
        app::v1::{
            Authorization, CreateKeyRequest, GetRobotPartRequest, LogRequest, TailRobotPartLogsRequest, app_service,
        },
        common::v1::LogEntry,
    },
};
use limits::arg;
use prost::Message as _;
use test_harness::real::{
    device::Device,
    fleet::{Fleet, Owner, call, init},
    programs,
};

use crate::{
    Trouble,
    fleet::{resident_mb, token},
    nonsense::{calls, garbage, huge},
    reader::{self, Reader, Seen},
    table::Table,
    web::{ask, framed, head, opened, post},
};

/// Connections that never say anything.
const IDLE: usize = 10_000;
/// Tails that are never read: as many as one part may have, of several parts.
const TAILS: usize = 1_000;
const TAILS_PER_PART: usize = 64;
/// A tail is open, however much else goes on.
const ANSWERED_WITHIN: Duration = Duration::from_secs(20);
/// Connections opened without a pause.
const AT_ONCE: usize = 32;
/// Callers who behave, and how long each waits between two calls.
const CALLERS: usize = 4;
const PAUSE: Duration = Duration::from_millis(5);
/// Lines that each part writes, by second, which one of their readers reads: many times what a talkative device does.
const LINES: u64 = 1_000;
/// Threads that do not behave.
const ABUSERS: usize = 4;

/// Each is alone, beside abuse, and beside a neighbour that is told the same: what changes from minute to minute changes
/// all three.
const ROUNDS: usize = 5;
/// Between two of these: what the last one left behind is done.
const SETTLES: Duration = Duration::from_millis(500);

/// What those who do not behave get of the machine.
#[derive(Clone, Copy, PartialEq)]
enum Processors {
    /// What nobody else wants.
    LeftOver,
    /// As much as everybody.
    Shared,
}

/// Adds rows for time, one for callers and one for who reads a log, with either share of the processors; one for memory,
/// and one that counts what the abusers heard.
pub(crate) async fn measure(folder: &Path, secs: u64, table: &mut Table) -> Result<(), Trouble> {
    raise_descriptors();
    let data = folder.join("abuse");
    let fleet = Fleet::start(&data, "127.0.0.1:0", None, &folder.join("abuse.log"))?;
    let owner = init(&data, None)?;
    let client = fleet.client(&owner)?;
    let mut parts = Vec::new();
    for number in 0..TAILS.div_ceil(TAILS_PER_PART) {
        let name = format!("machine-{number}");
        parts.push(Device::create(&client, &owner.organization_id, &name, &name)?.part_id);
    }
    let abusing = token(&client, &owner.key_id, "api-key", owner.key.expose())?;
    // Those who behave have a key of their own: limits are by key.
    let other = other_owner(&client, &owner.organization_id)?;
    let behaving = token(&client, &other.key_id, "api-key", other.key.expose())?;
    let reading = fleet.client(&other)?;
    let mut sink = Command::new(programs::find("sink")?).stdout(Stdio::piped()).spawn()?;
    let mut line = String::new();
    BufReader::new(sink.stdout.take().ok_or("no output")?).read_line(&mut line)?;
    let at = |address: &str, pid, reading| Target {
        address: address.to_owned(),
        pid,
        reading,
        token: abusing.clone(),
        behaving: behaving.clone(),
        parts: parts.clone(),
        organization: owner.organization_id.clone(),
    };
    let server = at(fleet.url.strip_prefix("http://").ok_or("not http")?, fleet.process.pid(), Some(reading));
    let listener = at(line.trim(), sink.id(), None);
    let callers = || callers(&server, Duration::from_secs(secs));

    let (mut resident, mut open, mut lines) = (0, usize::MAX, 0);
    let mut heard = BTreeMap::<String, u64>::new();
    for processors in [Processors::LeftOver, Processors::Shared] {
        let (mut rounds, mut seen) = (Vec::new(), Seen::default());
        for _ in 0..arg("rounds", ROUNDS).max(1) {
            tokio::time::sleep(SETTLES).await;
            let alone = callers().await?;
            let length = Duration::from_secs(secs);
            let usual = Pace { turns: None, lines: LINES * secs * parts.len() as u64, length };
            let abuse = Abuse::begin(&server, processors, usual)?;
            let beside = callers().await;
            let done = abuse.end()?;
            let beside = beside?;
            tokio::time::sleep(SETTLES).await;
            let same = Pace { turns: Some(done.turns), lines: done.lines, length };
            let abuse = Abuse::begin(&listener, processors, same)?;
            let elsewhere = callers().await;
            let turns_elsewhere = abuse.end()?.turns;
            lines += done.lines;
            rounds.push(Round {
                alone,
                beside,
                elsewhere: elsewhere?,
                turns: done.turns,
                lines: done.lines,
                turns_elsewhere,
            });
            seen.add(done.seen);
            resident = resident.max(done.resident_mb);
            open = open.min(done.open);
            done.heard.into_iter().for_each(|(said, count)| *heard.entry(said).or_default() += count);
        }
        report(table, processors, &rounds);
        told(table, processors, seen)?;
    }
    table.row(
        "abused: RSS at most",
        format!("{resident} MB"),
        "≤ 512 MB",
        format!(
            "{open} of {IDLE} silent connections open at the end, {TAILS} unread tails of {} parts, {lines} lines meanwhile",
            parts.len()
        ),
    );
    table.row(
        "abused: what the abusers heard",
        heard.iter().map(|(said, count)| format!("{said}: {count}")).collect::<Vec<_>>().join(", "),
        "no fault of the server (13)",
        "gRPC status; \"cut off\" where the connection was closed without one".to_owned(),
    );
    sink.kill()?;
    sink.wait()?;
    fleet.process.stop()?;
    Ok(())
}

/// p50 and p99.
type Times = (Duration, Duration);

/// The same callers three times.
struct Round {
    alone: Times,
    beside: Times,
    /// While the neighbour is abused.
    elsewhere: Times,
    turns: u64,
    lines: u64,
    turns_elsewhere: u64,
}

impl Processors {
    fn said(self) -> &'static str {
        match self {
            Self::LeftOver => "abusers on what processors have left",
            Self::Shared => "abusers with as much of the processors as the server",
        }
    }
}

/// What became of the lines of one who read them.
fn told(table: &mut Table, processors: Processors, seen: Seen) -> Result<(), Trouble> {
    let (p50, p99) = seen.late().ok_or("who reads a log saw no line of it")?;
    table.row(
        &format!("abused: one who reads, {}", processors.said()),
        format!("{} of {} lines", seen.lines(), seen.written),
        "all",
        format!("the median {} ms after it was made, one of a hundred {} ms", p50.as_millis(), p99.as_millis()),
    );
    Ok(())
}

fn report(table: &mut Table, processors: Processors, rounds: &[Round]) {
    let who = processors.said();
    let goal = if processors == Processors::LeftOver { "≤ 2" } else { "" };
    let times = |other: fn(&Round) -> Times| {
        let (low, median, high) =
            spread(rounds.iter().map(|one| one.beside.1.as_secs_f64() / other(one).1.as_secs_f64()));
        format!("{median:.1} times ({low:.1} … {high:.1})")
    };
    let said = |which: fn(&Round) -> Times| {
        let p50 = spread(rounds.iter().map(|one| which(one).0)).1;
        let (low, p99, high) = spread(rounds.iter().map(|one| which(one).1));
        format!("{p50:.2?} {p99:.2?} ({low:.2?} … {high:.2?})")
    };
    let all = |which: fn(&Round) -> u64| rounds.iter().map(which).sum::<u64>();
    table.row(
        &format!("abused: p99 of other callers, {who}"),
        format!("{} that of before; {} that of a machine as busy", times(|one| one.alone), times(|one| one.elsewhere)),
        goal,
        format!(
            "{CALLERS} callers, {} rounds, medians (and all); p50 and p99 before {}, then {} ({} turns of {ABUSERS}, {} lines); while \
             another program is told the same {} ({} turns)",
            rounds.len(),
            said(|one| one.alone),
            said(|one| one.beside),
            all(|one| one.turns),
            all(|one| one.lines),
            said(|one| one.elsewhere),
            all(|one| one.turns_elsewhere),
        ),
    );
}

/// The lowest, the one in the middle, the highest.
fn spread<T: PartialOrd + Copy + Default>(values: impl Iterator<Item = T>) -> (T, T, T) {
    let mut values: Vec<T> = values.collect();
    values.sort_by(|one, other| one.partial_cmp(other).unwrap_or(std::cmp::Ordering::Equal));
    let at = |place: usize| values.get(place).copied().unwrap_or_default();
    (at(0), at(values.len() / 2), at(values.len().saturating_sub(1)))
}

/// Who is abused, and by whom.
#[derive(Clone)]
struct Target {
    address: String,
    pid: u32,
    token: String,
    /// Of those who behave.
    behaving: String,
    /// Who reads the log of the last part; nobody where there is none.
    reading: Option<Client>,
    parts: Vec<String>,
    organization: String,
}

/// Not faster than this.
#[derive(Clone, Copy)]
struct Pace {
    /// As fast as they are answered without.
    turns: Option<u64>,
    lines: u64,
    length: Duration,
}

impl Pace {
    /// Until `done` of `whole` are due, or it is over.
    fn wait(self, over: &AtomicBool, begun: Instant, done: u64, whole: u64) {
        let due = self.length.mul_f64(done as f64 / whole.max(1) as f64);
        while !over.load(Relaxed)
            && let Some(left) = due.checked_sub(begun.elapsed())
        {
            std::thread::sleep(left.min(Duration::from_millis(50)));
        }
    }
}

/// All that nobody should do, under way.
struct Abuse {
    over: Arc<AtomicBool>,
    idle: Vec<TcpStream>,
    tails: Vec<TcpStream>,
    reader: Option<Reader>,
    resident: JoinHandle<u64>,
    abusers: Vec<JoinHandle<u64>>,
    flood: JoinHandle<Result<Flooded, String>>,
    heard: Arc<Mutex<BTreeMap<String, u64>>>,
}

/// What became of it.
struct Done {
    resident_mb: u64,
    /// Silent connections that the other end has not closed.
    open: usize,
    turns: u64,
    lines: u64,
    seen: Seen,
    heard: BTreeMap<String, u64>,
}

impl Abuse {
    fn begin(target: &Target, processors: Processors, pace: Pace) -> Result<Self, Trouble> {
        let over = Arc::new(AtomicBool::new(false));
        let idle = open_idle(&target.address);
        let tails = open_tails(target)?;
        let followed = target.parts.last().map(String::as_str).unwrap_or_default();
        let reader = target.reading.clone().map(|client| Reader::begin(client, followed)).transpose()?;
        let heard = Arc::new(Mutex::new(BTreeMap::<String, u64>::new()));
        let resident = std::thread::spawn({
            let (over, pid) = (over.clone(), target.pid);
            move || {
                let mut most = 0;
                while !over.load(Relaxed) {
                    most = most.max(resident_mb(pid) as u64);
                    std::thread::sleep(Duration::from_millis(20));
                }
                most
            }
        });
        let turns = Arc::new(AtomicU64::new(0));
        let abuser = |number: usize| {
            let (over, heard, turns, target) = (over.clone(), heard.clone(), turns.clone(), target.clone());
            move || {
                if processors == Processors::LeftOver {
                    give_way();
                }
                let (sent, begun) = (calls(&target.parts, &target.organization), Instant::now());
                for turn in number.. {
                    if over.load(Relaxed) {
                        return (turn - number) as u64;
                    }
                    let turns = turns.fetch_add(1, Relaxed);
                    if let Some(all) = pace.turns {
                        pace.wait(&over, begun, turns, all);
                    }
                    let said = match turn % 4 {
                        0 => garbage(&target.address, turn),
                        1 => huge(&target.address, &target.token),
                        _ => match sent.get(turn % sent.len().max(1)) {
                            Some((path, body)) => match post(&target.address, path, &target.token, body).as_str() {
                                // Whose fault it is has to be found.
                                "13" => format!("13 for request {}", turn % sent.len()),
                                said => said.to_owned(),
                            },
                            None => return 0,
                        },
                    };
                    *heard.lock().unwrap_or_else(PoisonError::into_inner).entry(said).or_default() += 1;
                }
                0
            }
        };
        let abusers = (0..ABUSERS).map(|number| std::thread::spawn(abuser(number))).collect();
        // What the tails do not read.
        let flood = std::thread::spawn({
            let (target, over) = (target.clone(), over.clone());
            move || {
                if processors == Processors::LeftOver {
                    give_way();
                }
                flood(&target, &over, pace)
            }
        });
        Ok(Self { over, idle, tails, reader, resident, abusers, flood, heard })
    }

    fn end(self) -> Result<Done, Trouble> {
        self.over.store(true, Relaxed);
        let mut turns = 0;
        for abuser in self.abusers {
            turns += abuser.join().map_err(|_| "an abuser panicked")?;
        }
        let Flooded { lines, of_last } = self.flood.join().map_err(|_| "the flood panicked")??;
        let seen = self.reader.map(|reader| reader.end(of_last)).transpose()?.unwrap_or_default();
        let resident_mb = self.resident.join().map_err(|_| "who looks at memory panicked")?;
        let open = self.idle.iter().filter(|stream| is_open(stream)).count();
        drop(self.tails);
        let heard = self.heard.lock().unwrap_or_else(PoisonError::into_inner).clone();
        Ok(Done { resident_mb, open, turns, lines, seen, heard })
    }
}

/// From now on this thread runs when no other wants to, and leaves at once when one does.
fn give_way() {
    let this = std::fs::read_link("/proc/thread-self").unwrap_or_default();
    let given = Command::new("chrt").args(["--idle", "--pid", "0"]).args(this.file_name()).status();
    if !given.is_ok_and(|status| status.success()) {
        eprintln!("chrt (util-linux) does not work: the abusers take as much of the processors as anybody");
    }
}

/// Another key that owns the organization.
fn other_owner(client: &Client, organization: &str) -> Result<Owner, Trouble> {
    let authorization = Authorization {
        authorization_type: "role".into(),
        authorization_id: "organization_owner".into(),
        resource_type: "organization".into(),
        resource_id: organization.into(),
        organization_id: organization.into(),
        identity_type: "api-key".into(),
        ..Default::default()
    };
    let request = CreateKeyRequest { authorizations: vec![authorization], name: "behaves".into() };
    let made = call(client, app_service::CREATE_KEY, &request)?;
    Ok(Owner { organization_id: organization.to_owned(), key_id: made.id, key: api::Secret::new(made.key) })
}

/// 20,000 ends of connections are here.
pub(crate) fn raise_descriptors() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
}

/// p50 and p99 of calls that are made at a steady pace.
async fn callers(target: &Target, length: Duration) -> Result<Times, Trouble> {
    let Target { address, behaving: token, parts, .. } = target.clone();
    let work = move || -> Result<Vec<Duration>, Trouble> {
        let body = GetRobotPartRequest { id: parts.first().cloned().unwrap_or_default() }.encode_to_vec();
        let one = || -> Result<Vec<Duration>, String> {
            let mut times = Vec::new();
            let (begin, mut stream) = (Instant::now(), None);
            while begin.elapsed() < length {
                let asked = Instant::now();
                let said =
                    ask(&mut stream, &address, "/platform.app.v1.AppService/GetRobotPart", &token, &framed(&body));
                if said != "0" {
                    return Err(format!("a caller who behaves heard {said}"));
                }
                times.push(asked.elapsed());
                std::thread::sleep(PAUSE);
            }
            Ok(times)
        };
        let times = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..CALLERS).map(|_| scope.spawn(one)).collect();
            threads
                .into_iter()
                .map(|thread| thread.join().map_err(|_| "panicked".to_owned())?)
                .collect::<Result<Vec<_>, _>>()
        })?;
        let mut times: Vec<Duration> = times.into_iter().flatten().collect();
        times.sort();
        Ok(times)
    };
    let times = tokio::task::spawn_blocking(work).await??;
    let at = |part: usize| times.get(times.len() * part / 100).copied().ok_or("no calls");
    Ok((at(50)?, at(99)?))
}

/// As many at once as a listener takes: one more, and the system tries again a second later.
fn open_idle(address: &str) -> Vec<TcpStream> {
    let mut open = Vec::new();
    for number in 1..=IDLE {
        open.extend(TcpStream::connect(address).ok());
        if number % AT_ONCE == 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    open
}

/// The other end said nothing, and no farewell either.
fn is_open(stream: &TcpStream) -> bool {
    stream.set_nonblocking(true).is_ok()
        && stream.peek(&mut [0]).is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock)
}

/// Tails by gRPC-Web: each is answered, and never read from then on.
fn open_tails(Target { address, token, parts, .. }: &Target) -> Result<Vec<TcpStream>, Trouble> {
    let mut open = Vec::new();
    for number in 0..TAILS {
        let id = parts.get(number / TAILS_PER_PART).cloned().unwrap_or_default();
        let body = framed(&TailRobotPartLogsRequest { id, ..Default::default() }.encode_to_vec());
        let mut stream = TcpStream::connect(address)?;
        write!(stream, "{}", head("/platform.app.v1.AppService/TailRobotPartLogs", token, address, body.len()))?;
        stream.write_all(&body)?;
        open.push(stream);
    }
    for stream in &mut open {
        stream.set_read_timeout(Some(ANSWERED_WITHIN))?;
        opened(stream)?;
    }
    Ok(open)
}

/// Lines that were written: of all parts, and of the last of them.
struct Flooded {
    lines: u64,
    of_last: u64,
}

/// Lines for every part that has tails, until it is over.
fn flood(
    Target { address, behaving: token, parts, .. }: &Target,
    over: &AtomicBool,
    pace: Pace,
) -> Result<Flooded, String> {
    let (mut stream, mut lines, mut of_last, begun) = (None, 0, 0, Instant::now());
    for part in parts.iter().cycle() {
        if over.load(Relaxed) {
            break;
        }
        pace.wait(over, begun, lines, pace.lines);
        let entry = |n| LogEntry {
            level: "info".into(),
            time: Some(reader::now()),
            message: format!("{lines} {n} {}", "x".repeat(200)),
            ..Default::default()
        };
        let body = LogRequest { id: part.clone(), logs: (0..100).map(entry).collect() }.encode_to_vec();
        let said = ask(&mut stream, address, "/platform.app.v1.RobotService/Log", token, &framed(&body));
        if said != "0" {
            return Err(format!("a device heard {said}"));
        }
        lines += 100;
        if Some(part) == parts.last() {
            of_last += 100;
        }
    }
    Ok(Flooded { lines, of_last })
}
