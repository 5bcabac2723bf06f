//! The fleet server under everything that nobody should send, beside callers who behave.
//!
//! Those who behave are timed alone, and while ten thousand connections say nothing, a thousand tails are not read, and
//! others send frames that are none, messages of 64 MiB, documents that are too deep and texts that are no texts, as fast
//! as they are answered. Whoever does that has a processor of its own and here there is none to give away, so the abusers
//! run where nobody else wants to; and the same is measured while they say the same as fast to a program that only listens:
//! what callers feel then is the machine, and what is beyond it is the server. A second time the abusers are programs like
//! any other. What is refused must be refused in so many words; nothing may be a fault of the server.

use std::{
    collections::BTreeMap,
    io::{BufRead as _, BufReader, Read as _, Write as _},
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
            Authorization, CreateKeyRequest, CreateLocationRequest, GetRobotPartLogsRequest, GetRobotPartRequest,
            LogRequest, TailRobotPartLogsRequest, UpdateRobotPartRequest, app_service,
        },
        common::v1::LogEntry,
    },
};
use limits::arg;
use prost::Message as _;
use test_harness::real::{
    device::Device,
    fleet::{Fleet, call, init},
    programs,
};

use crate::{
    Trouble,
    fleet::{resident_mb, token},
    table::Table,
};

/// Connections that never say anything.
const IDLE: usize = 10_000;
/// Tails that are never read: as many as one part may have, of several parts.
const TAILS: usize = 1_000;
const TAILS_PER_PART: usize = 64;
/// Connections opened without a pause.
const AT_ONCE: usize = 32;
/// Callers who behave, and how long each waits between two calls.
const CALLERS: usize = 4;
const PAUSE: Duration = Duration::from_millis(5);
/// Lines that each part writes, by second, while nobody reads them: many times what a talkative device does.
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

/// Adds a row for memory, two for time, and one that counts what the abusers heard.
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
    let behaving = own_key(&client, &owner.organization_id)?;
    let mut sink = Command::new(programs::find("sink")?).stdout(Stdio::piped()).spawn()?;
    let mut line = String::new();
    BufReader::new(sink.stdout.take().ok_or("no output")?).read_line(&mut line)?;
    let at = |address: &str, pid| Target {
        address: address.to_owned(),
        pid,
        token: abusing.clone(),
        behaving: behaving.clone(),
        parts: parts.clone(),
        organization: owner.organization_id.clone(),
    };
    let server = at(fleet.url.strip_prefix("http://").ok_or("not http")?, fleet.process.pid());
    let listener = at(line.trim(), sink.id());
    let callers = || callers(&server, Duration::from_secs(secs));

    let (mut memory, mut heard) = ((0, 0, 0), BTreeMap::<String, u64>::new());
    for processors in [Processors::LeftOver, Processors::Shared] {
        let mut rounds = Vec::new();
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
            let (turns, lines) = (done.turns, done.lines);
            rounds.push(Round { alone, beside, elsewhere: elsewhere?, turns, lines, turns_elsewhere });
            memory = memory.max((done.resident_mb, done.open, done.lines));
            done.heard.into_iter().for_each(|(said, count)| *heard.entry(said).or_default() += count);
        }
        report(table, processors, &rounds);
    }
    let (resident, open, lines) = memory;
    table.row(
        "abused: RSS at most",
        format!("{resident} MB"),
        "≤ 512 MB",
        format!("{open} silent connections, {TAILS} unread tails of {} parts, {lines} lines meanwhile", parts.len()),
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

fn report(table: &mut Table, processors: Processors, rounds: &[Round]) {
    let (who, goal) = match processors {
        Processors::LeftOver => ("abusers on what processors have left", "≤ 2"),
        Processors::Shared => ("abusers with as much of the processors as the server", ""),
    };
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
    resident: JoinHandle<u64>,
    abusers: Vec<JoinHandle<u64>>,
    flood: JoinHandle<Result<u64, String>>,
    heard: Arc<Mutex<BTreeMap<String, u64>>>,
}

/// What became of it.
struct Done {
    resident_mb: u64,
    open: usize,
    turns: u64,
    lines: u64,
    heard: BTreeMap<String, u64>,
}

impl Abuse {
    fn begin(target: &Target, processors: Processors, pace: Pace) -> Result<Self, Trouble> {
        let over = Arc::new(AtomicBool::new(false));
        let idle = open_idle(&target.address);
        let tails = open_tails(target)?;
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
        Ok(Self { over, idle, tails, resident, abusers, flood, heard })
    }

    fn end(self) -> Result<Done, Trouble> {
        self.over.store(true, Relaxed);
        let mut turns = 0;
        for abuser in self.abusers {
            turns += abuser.join().map_err(|_| "an abuser panicked")?;
        }
        let lines = self.flood.join().map_err(|_| "the flood panicked")??;
        let resident_mb = self.resident.join().map_err(|_| "who looks at memory panicked")?;
        drop(self.tails);
        let heard = self.heard.lock().unwrap_or_else(PoisonError::into_inner).clone();
        Ok(Done { resident_mb, open: self.idle.len(), turns, lines, heard })
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

/// A token of another key that owns the organization.
fn own_key(client: &Client, organization: &str) -> Result<String, Trouble> {
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
    token(client, &made.id, "api-key", &made.key)
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

/// Tails by gRPC-Web, opened and never read.
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
    Ok(open)
}

/// Lines for every part that has tails, until it is over; how many.
fn flood(
    Target { address, behaving: token, parts, .. }: &Target,
    over: &AtomicBool,
    pace: Pace,
) -> Result<u64, String> {
    let (mut stream, mut lines, begun) = (None, 0, Instant::now());
    for part in parts.iter().cycle() {
        if over.load(Relaxed) {
            break;
        }
        pace.wait(over, begun, lines, pace.lines);
        let entry = |n| LogEntry {
            level: "info".into(),
            message: format!("{lines} {n} {}", "x".repeat(200)),
            ..Default::default()
        };
        let body = LogRequest { id: part.clone(), logs: (0..100).map(entry).collect() }.encode_to_vec();
        let said = ask(&mut stream, address, "/platform.app.v1.RobotService/Log", token, &framed(&body));
        if said != "0" {
            return Err(format!("a device heard {said}"));
        }
        lines += 100;
    }
    Ok(lines)
}

/// Bytes that are no HTTP, or begin like HTTP/2 and go on like nothing.
fn garbage(address: &str, turn: usize) -> String {
    let Ok(mut stream) = TcpStream::connect(address) else { return "cut off".into() };
    let _ = stream.set_read_timeout(Some(Duration::from_millis(200)));
    let mut seed = turn as u64 | 1;
    let noise: Vec<u8> = (0..4096)
        .map(|_| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (seed >> 56) as u8
        })
        .collect();
    if turn % 8 < 4 {
        let _ = stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
    }
    let _ = stream.write_all(&noise);
    let _ = stream.read(&mut [0; 1024]);
    "cut off".into()
}

/// A message of 64 MiB, all of it sent as far as the server takes it.
fn huge(address: &str, token: &str) -> String {
    let Ok(mut stream) = TcpStream::connect(address) else { return "cut off".into() };
    let _ = stream.set_read_timeout(Some(Duration::from_secs(10)));
    let _ = stream.set_write_timeout(Some(Duration::from_secs(10)));
    let bytes: u32 = 64 << 20;
    let head = head("/platform.app.v1.AppService/UpdateRobotPart", token, address, bytes as usize + 5);
    let _ = stream.write_all(head.as_bytes());
    let mut prefix = vec![0];
    prefix.extend(bytes.to_be_bytes());
    let _ = stream.write_all(&prefix);
    // Some systems let nobody else run until a write is done.
    let chunk = vec![b'x'; 64 << 10];
    for _ in 0..bytes as usize / chunk.len() {
        if stream.write_all(&chunk).is_err() {
            break;
        }
    }
    answer(&mut stream).map_or("cut off".into(), |(said, _)| said)
}

/// Requests that are well-formed frames with something in them that is not acceptable.
fn calls(parts: &[String], organization: &str) -> Vec<(&'static str, Vec<u8>)> {
    let part = parts.first().cloned().unwrap_or_default();
    let update = |json: String| {
        let request = UpdateRobotPartRequest {
            id: part.clone(),
            name: "arm".into(),
            robot_config_json: Some(json),
            ..Default::default()
        };
        ("/platform.app.v1.AppService/UpdateRobotPart", request.encode_to_vec())
    };
    let logs = |request: GetRobotPartLogsRequest| {
        let request = GetRobotPartLogsRequest { id: part.clone(), ..request };
        ("/platform.app.v1.AppService/GetRobotPartLogs", request.encode_to_vec())
    };
    let location = |name: &str| {
        let request = CreateLocationRequest {
            organization_id: organization.to_owned(),
            name: name.into(),
            parent_location_id: Some("'; DROP TABLE parts; --".into()),
        };
        ("/platform.app.v1.AppService/CreateLocation", request.encode_to_vec())
    };
    // Messages in messages, deeper than any reader goes.
    let mut deep = Vec::new();
    for _ in 0..2_000 {
        let mut outer = vec![0x2a];
        prost::encoding::encode_varint(deep.len() as u64, &mut outer);
        outer.extend(&deep);
        deep = outer;
    }
    vec![
        update("[".repeat(500_000)),
        update("{\"a\":".repeat(100_000)),
        update(format!("{{\"a\": \"{}\"}}", "x".repeat(2 << 20))),
        update("{\"a\": \"\u{0}\"}".into()),
        logs(GetRobotPartLogsRequest { page_token: Some("9".repeat(100_000)), ..Default::default() }),
        logs(GetRobotPartLogsRequest {
            page_token: Some("'; DELETE FROM log_blocks; --".into()),
            ..Default::default()
        }),
        logs(GetRobotPartLogsRequest { limit: Some(i64::MIN), ..Default::default() }),
        logs(GetRobotPartLogsRequest { limit: Some(i64::MAX), filter: Some("%_\\'\"".into()), ..Default::default() }),
        logs(GetRobotPartLogsRequest { range: Some("999999999999999999d".into()), ..Default::default() }),
        location("a\0b"),
        location("%s%n${jndi:ldap://x}"),
        ("/platform.app.v1.AppService/UpdateRobotPart", deep),
        // A text that is no UTF-8, a length that goes beyond the message, a tag of no kind.
        ("/platform.app.v1.AppService/GetRobotPart", vec![0x0a, 0x04, 0xff, 0xfe, 0xc0, 0x80]),
        ("/platform.app.v1.AppService/GetRobotPart", vec![0x0a, 0xff, 0xff, 0xff, 0xff, 0x0f]),
        ("/platform.app.v1.AppService/GetRobotPart", vec![0x07, 0x00]),
        ("/platform.app.v1.AppService/NoSuchThing", vec![]),
        ("/../../etc/passwd", vec![]),
    ]
}

fn post(address: &str, path: &str, token: &str, body: &[u8]) -> String {
    ask(&mut None, address, path, token, &framed(body))
}

/// One call by gRPC-Web on a connection that is kept; its status.
fn ask(stream: &mut Option<TcpStream>, address: &str, path: &str, token: &str, body: &[u8]) -> String {
    let mut once = || -> std::io::Result<String> {
        let open = match stream.take() {
            Some(open) => open,
            None => {
                let new = TcpStream::connect(address)?;
                new.set_nodelay(true)?;
                new.set_read_timeout(Some(Duration::from_secs(20)))?;
                new
            }
        };
        let mut open = open;
        let mut request = head(path, token, address, body.len()).into_bytes();
        request.extend(body);
        open.write_all(&request)?;
        let (said, keeps) = answer(&mut open)?;
        if keeps {
            *stream = Some(open);
        }
        Ok(said)
    };
    once().unwrap_or_else(|_| "cut off".into())
}

pub(crate) fn head(path: &str, token: &str, address: &str, length: usize) -> String {
    format!(
        "POST {path} HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {token}\r\n\
         Content-Type: application/grpc-web+proto\r\nX-Grpc-Web: 1\r\nContent-Length: {length}\r\n\r\n"
    )
}

pub(crate) fn framed(message: &[u8]) -> Vec<u8> {
    let mut body = vec![0];
    body.extend((message.len() as u32).to_be_bytes());
    body.extend(message);
    body
}

/// The gRPC status of an answer, and whether the connection can be used again.
fn answer(stream: &mut TcpStream) -> std::io::Result<(String, bool)> {
    let (mut text, mut chunk) = (Vec::new(), [0; 16 << 10]);
    let whole = |text: &[u8]| -> Option<bool> {
        let text = String::from_utf8_lossy(text).to_ascii_lowercase();
        let (head, body) = text.split_once("\r\n\r\n")?;
        // In chunks until the empty one, or nothing at all.
        let chunked = head.contains("transfer-encoding: chunked");
        let ended =
            if chunked { body.ends_with("0\r\n\r\n") } else { head.contains("content-length: 0") || !body.is_empty() };
        ended.then_some(!head.contains("connection: close"))
    };
    let keeps = loop {
        if let Some(keeps) = whole(&text) {
            break keeps;
        }
        match stream.read(&mut chunk)? {
            0 if text.is_empty() => return Err(std::io::ErrorKind::UnexpectedEof.into()),
            0 => break false,
            count => text.extend(chunk.get(..count).unwrap_or_default()),
        }
    };
    let said = String::from_utf8_lossy(&text).to_ascii_lowercase();
    let status = said.rsplit("grpc-status:").next().filter(|_| said.contains("grpc-status:"));
    let status = status.map(|rest| rest.trim_start().chars().take_while(char::is_ascii_digit).collect::<String>());
    let http = || format!("http {}", said.split(' ').nth(1).unwrap_or("?"));
    Ok((status.unwrap_or_else(http), keeps))
}
