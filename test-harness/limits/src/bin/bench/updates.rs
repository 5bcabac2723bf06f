//! What an update costs: time, flash, and the machine server's absence.

use std::{
    fs,
    io::{Read as _, Write as _},
    net::TcpStream,
    path::Path,
    process::Command,
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use api::{
    brand,
    pb::platform::fleet::v1::{Product, update_status},
};
use serde_json::json;
use test_harness::real::{agents, eventually, process::Running, releases::Factory, stand_in};

use crate::{
    Trouble,
    agent::median,
    subject::{Subject, child, next_child},
    table::Table,
};

/// Size of an executable as machine servers are.
const USUAL_BYTES: u64 = 20 << 20;
/// Updates for each figure.
const REPEATS: u64 = 5;
/// How often the machine server is asked whether it is there.
const ASK_EVERY: Duration = Duration::from_millis(1);

/// Updates of the machine server to versions of [`USUAL_BYTES`], one after the other.
pub(crate) fn of_the_server(
    folder: &Path,
    factory: &Factory,
    subject: &Subject<'_>,
    table: &mut Table,
) -> Result<(), Trouble> {
    // At any time: what is measured is the way, not the waiting.
    let window = json!({"windows": [{
        "days": ["mon", "tue", "wed", "thu", "fri", "sat", "sun"], "from": "00:00", "to": "24:00", "tz": "UTC"
    }]});
    let configure = |version: &str| {
        subject.configure(json!({
            "version_control": {"platform-server": version},
            "advanced_settings": {"maintenance": window},
        }))
    };
    let mut bytes = 0;
    for number in 0..=REPEATS {
        let path = folder.join(format!("usual-{number}"));
        stand_in::build_padded(&format!("4.{number}.0"), &[], USUAL_BYTES, &path)?;
        bytes = fs::metadata(&path)?.len();
        factory.release(&format!("4.{number}.0"), 10 + number, &path)?;
    }
    configure("4.0.0")?;
    let agent = subject.options.start()?;
    subject.wait_until_running()?;
    let (mut times, mut written, mut gaps) = (Vec::new(), Vec::new(), Vec::new());
    for number in 1..=REPEATS {
        // Probation is over: the next one waits for nothing.
        subject.status_when("the version before to be kept", |status| {
            status.updates.iter().any(|update| update.phase == i32::from(update_status::Phase::Committed))
        })?;
        let server = eventually("a machine server", || child(agent.pid()))?;
        let before = bytes_written(agent.pid())?;
        let over = AtomicBool::new(false);
        let gap = std::thread::scope(|scope| -> Result<Duration, Trouble> {
            let asker = scope.spawn(|| longest_absence(&subject.status_url, &over));
            configure(&format!("4.{number}.0"))?;
            agent.signal(rustix::process::Signal::HUP);
            let begin = Instant::now();
            next_child(agent.pid(), server)?;
            eventually("the new version to serve", || serves(&subject.status_url).then_some(()))?;
            times.push(begin.elapsed().as_secs_f64() * 1e3);
            over.store(true, Ordering::Relaxed);
            asker.join().map_err(|_| "the asker panicked".into())
        })?;
        gaps.push(gap.as_secs_f64() * 1e3);
        written.push((bytes_written(agent.pid())? - before) as f64 / bytes as f64);
    }
    agent.stop()?;
    let own_start = own_start(&folder.join("usual-0"), subject)?;
    let mb = bytes as f64 / 1e6;
    table.row(
        "update of the machine server: told of it to serving",
        format!("{:.0} ms", median(&mut times)),
        "",
        format!(
            "median of {REPEATS} releases of {mb:.0} MB over TLS on loopback; SIGHUP in place of the wait for a poll"
        ),
    );
    table.row(
        "bytes that an update writes, part of its size",
        format!("{:.2}", median(&mut written)),
        "1",
        format!("median of {REPEATS}, as the kernel counts them for the agent (write_bytes), status and logs included"),
    );
    table.row(
        "machine server away during its update, beyond its own start",
        format!("{:.0} ms", median(&mut gaps) - own_start),
        "≤ 150 ms",
        format!("longest time without an answer, asked every ms; its own start takes {own_start:.0} ms"),
    );
    Ok(())
}

/// Updates of the agent by itself, back and forth between versions that differ in nothing but the name.
pub(crate) fn of_the_agent(
    folder: &Path,
    factory: &Factory,
    program: &Path,
    subject: &mut Subject<'_>,
    table: &mut Table,
) -> Result<(), Trouble> {
    for number in 1..=REPEATS + 1 {
        let path = folder.join(format!("agent-{number}"));
        agents::build_from(program, &format!("5.0.{number}"), &path)?;
        factory.release_agent(&format!("5.0.{number}"), number, &path)?;
    }
    let launcher = program.with_file_name(brand::LAUNCHER);
    agents::install_with(&launcher, &folder.join("agent-1"), &mut subject.options)?;
    subject.configure(json!({"version_control": {"agent": "5.0.1"}}))?;
    let agent = subject.options.start()?;
    subject.wait_until_running()?;
    let server = eventually("a machine server", || child(agent.pid()))?;
    let (mut times, mut absences, mut written) = (Vec::new(), Vec::new(), Vec::new());
    let at_rest = usual_absence(&subject.status_url);
    for number in 2..=REPEATS + 1 {
        let version = format!("5.0.{number}");
        let before = bytes_written(agent.pid())?;
        let over = AtomicBool::new(false);
        let absence = std::thread::scope(|scope| -> Result<Duration, Trouble> {
            let asker = scope.spawn(|| longest_absence(&subject.status_url, &over));
            subject.configure(json!({"version_control": {"agent": version}}))?;
            agent.signal(rustix::process::Signal::HUP);
            let begin = Instant::now();
            subject.status_when("the next agent", |status| status.agent_version == version)?;
            times.push(begin.elapsed().as_secs_f64() * 1e3);
            over.store(true, Ordering::Relaxed);
            asker.join().map_err(|_| "the asker panicked".into())
        })?;
        absences.push(absence.as_secs_f64() * 1e3);
        written.push((bytes_written(agent.pid())? - before) as f64 / 1e6);
        if child(agent.pid()) != Some(server) {
            return Err("the machine server did not survive an update of the agent".into());
        }
        subject.status_when("the version to be kept", |status| {
            let mut of_agent = status.updates.iter().filter(|update| update.product() == Product::Agent);
            of_agent.any(|update| update.phase() == update_status::Phase::Committed)
        })?;
    }
    agent.stop()?;
    table.row(
        "update of the agent: told of it to reporting as the next version",
        format!("{:.0} ms", median(&mut times)),
        "",
        format!("median of {REPEATS}; the machine server keeps its process in all of them"),
    );
    table.row(
        "bytes that an update of the agent writes",
        format!("{:.2} MB", median(&mut written)),
        "",
        format!("median of {REPEATS}; the executable has {:.2} MB", fs::metadata(program)?.len() as f64 / 1e6),
    );
    table.row(
        "machine server away during an update of the agent",
        format!("{:.0} ms", (median(&mut absences) - at_rest).max(0.0)),
        "0",
        format!(
            "longest time without an answer, median of {REPEATS}, beyond the {at_rest:.0} ms between two questions"
        ),
    );
    Ok(())
}

/// Milliseconds between two answers, at most, while nothing happens.
fn usual_absence(url: &str) -> f64 {
    let over = AtomicBool::new(false);
    let absence = std::thread::scope(|scope| {
        let asker = scope.spawn(|| longest_absence(url, &over));
        std::thread::sleep(Duration::from_secs(2));
        over.store(true, Ordering::Relaxed);
        asker.join().unwrap_or_default()
    });
    absence.as_secs_f64() * 1e3
}

/// Bytes that a process has had the kernel write to storage.
fn bytes_written(pid: u32) -> Result<u64, Trouble> {
    let text = fs::read_to_string(format!("/proc/{pid}/io"))?;
    let line = text.lines().find_map(|line| line.strip_prefix("write_bytes: ")).ok_or("no write_bytes")?;
    Ok(line.trim().parse()?)
}

/// Whether the status page answers.
fn serves(url: &str) -> bool {
    let ask = || -> Option<bool> {
        let address = url.strip_prefix("http://")?;
        let mut stream = TcpStream::connect_timeout(&address.parse().ok()?, Duration::from_millis(200)).ok()?;
        stream.set_read_timeout(Some(Duration::from_secs(2))).ok()?;
        write!(stream, "GET /restart_status HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n").ok()?;
        let mut head = [0; 12];
        stream.read_exact(&mut head).ok()?;
        Some(head.starts_with(b"HTTP/1.1 200"))
    };
    ask().unwrap_or(false)
}

/// The longest time in which nobody answered, until `over`.
pub(crate) fn longest_absence(url: &str, over: &AtomicBool) -> Duration {
    let (mut last, mut longest) = (Instant::now(), Duration::ZERO);
    while !over.load(Ordering::Relaxed) {
        if serves(url) {
            longest = longest.max(last.elapsed());
            last = Instant::now();
        }
        std::thread::sleep(ASK_EVERY);
    }
    longest
}

/// Milliseconds from the start of a machine server to its first answer, without an agent.
fn own_start(program: &Path, subject: &Subject<'_>) -> Result<f64, Trouble> {
    let mut times = Vec::new();
    for _ in 0..REPEATS {
        let mut command = Command::new(program);
        command.env("PLATFORM_SERVER_STATUS_URL", &subject.status_url);
        let begin = Instant::now();
        let (server, _) = Running::start(command, "stand-in", &subject.options.folder.join("alone.log"), false)?;
        let limit = begin + Duration::from_secs(20);
        while !serves(&subject.status_url) {
            if Instant::now() > limit {
                return Err("the stand-in does not serve by itself".into());
            }
            std::thread::sleep(ASK_EVERY);
        }
        times.push(begin.elapsed().as_secs_f64() * 1e3);
        server.stop()?;
    }
    Ok(median(&mut times))
}
