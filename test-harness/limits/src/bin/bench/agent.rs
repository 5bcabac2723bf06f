//! The agent as it is shipped: its size, its memory, its silence between polls, and how fast it reacts.

use std::{
    collections::HashMap,
    fs,
    os::unix::net::UnixDatagram,
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use api::{
    client::{Client, Credentials, Tls, Trust},
    pb::platform::fleet::v1::{DeviceStatus, update_status},
};
use limits::arg;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use test_harness::real::{
    agent::AgentOptions,
    eventually,
    fleet::{Fleet, init},
    process::Running,
    releases::Factory,
    stand_in,
};

use crate::{
    Trouble,
    subject::{Certificate, Site, Subject, child, next_child, tasks},
    table::{Table, rounded},
    updates,
};

/// Bytes of the large update that is streamed.
const LARGE_BYTES: u64 = 200 << 20;
/// Starts for the start figure, crashes for the crash figure.
const REPEATS: usize = 7;
/// Seconds in a minute of settings for the agent whose machine server crashes again and again: only a server that lived
/// for five minutes is started at once.
const SHORT_MINUTE: f64 = 0.2;
/// Five short minutes, and time for the agent to notice.
const STABLE_AFTER: Duration = Duration::from_secs(2);
/// How long threads and their switches are counted as fast as the kernel tells: six polls.
const WATCHED_CLOSELY: Duration = Duration::from_secs(31);
/// Samples of the context switches a second.
const SAMPLES_PER_SECOND: u64 = 20;

/// What the kernel says of a process's memory, in KiB.
#[derive(Clone, Copy)]
struct Memory {
    rss: u64,
    pss: u64,
    private_dirty: u64,
}

/// Measures the agent at `--agent PATH` (default: the one in the `device` profile's folder).
pub(crate) fn measure(folder: &Path, idle_secs: u64, table: &mut Table) -> Result<(), Trouble> {
    // It is started in a folder of its own.
    let program = std::path::absolute(arg("agent", PathBuf::from("target/device/platform-agent")))?;
    let size = fs::metadata(&program).map_err(|error| format!("{}: {error}", program.display()))?.len();
    table.row("agent, stripped", format!("{:.2} MB", size as f64 / 1e6), "≤ 3.0 MB", "profile device, glibc");

    let data = folder.join("agent-fleet");
    let owner = init(&data, None)?;
    let factory = Factory::open(&folder.join("factory"), &data)?;
    let artifact = folder.join("stand-in");
    stand_in::build("1.0.0", &artifact)?;
    factory.release("1.0.0", 1, &artifact)?;
    let large = folder.join("large");
    stand_in::build_padded("2.0.0-dev", &[], LARGE_BYTES, &large)?;
    factory.release("2.0.0-dev", 2, &large)?;
    factory.channels(&[("stable", "1.0.0"), ("dev", "2.0.0-dev")])?;
    let certificate = Certificate::make(folder)?;
    let [chain, key] = [&certificate.chain, &certificate.key].map(|path| path.display().to_string());
    let encrypted = ["--tls-cert", &chain, "--tls-key", &key];
    let fleet = Fleet::start_with(&data, "127.0.0.1:0", None, &folder.join("agent-fleet.log"), &encrypted)?;
    let credentials = Credentials::ApiKey { id: owner.key_id, key: owner.key };
    let tls = Tls::new(Trust::File(certificate.chain), None);
    let client = Client::builder(fleet.url.parse()?).credentials(credentials).tls(tls).build()?;
    let site = Site { client, organization_id: owner.organization_id, url: fleet.url.clone() };
    // Read by the agent in place of the system's list, which is in it: a device believes all of that.
    let environment = vec![("SSL_CERT_FILE".to_owned(), certificate.authorities.display().to_string())];
    let options = |name: &str| AgentOptions {
        program: Some(program.clone()),
        environment: environment.clone(),
        ..AgentOptions::new(&folder.join(name))
    };

    let usual = Subject::new(&site, "usual", options("usual"))?;
    usual.configure(json!({}))?;
    let mut starts = Vec::new();
    for number in 0..REPEATS {
        starts.push(cpu_ms_until_ready(&usual.options, &folder.join(format!("notify-{number}")))?);
    }
    table.row(
        "CPU time from exec to READY=1",
        format!("{:.1} ms", median(&mut starts)),
        "≤ 5 ms",
        format!("median of {REPEATS} starts"),
    );

    let mut agent = usual.options.start()?;
    usual.wait_until_running()?;
    std::thread::sleep(Duration::from_secs(3));
    idle(&agent, idle_secs, table)?;
    changes(&usual, &agent, table)?;
    streaming(&usual, &mut agent, table)?;
    agent.stop()?;

    let hasty = Subject::new(&site, "hasty", AgentOptions { minute: Some(SHORT_MINUTE), ..options("hasty") })?;
    hasty.configure(json!({}))?;
    crashes(&hasty, table)?;
    let updated = Subject::new(&site, "updated", AgentOptions { minute: Some(SHORT_MINUTE), ..options("updated") })?;
    updates::of_the_server(folder, &factory, &updated, table)?;
    let mut renewed =
        Subject::new(&site, "renewed", AgentOptions { minute: Some(SHORT_MINUTE / 10.0), ..options("renewed") })?;
    updates::of_the_agent(folder, &factory, &program, &mut renewed, table)?;
    fleet.process.stop()?;
    Ok(())
}

/// CPU milliseconds that all threads have used when the service manager is told that the agent is ready.
fn cpu_ms_until_ready(options: &AgentOptions, socket: &Path) -> Result<f64, Trouble> {
    let listener = UnixDatagram::bind(socket)?;
    listener.set_read_timeout(Some(Duration::from_secs(20)))?;
    let mut options = options.clone();
    options.environment.push(("NOTIFY_SOCKET".into(), socket.display().to_string()));
    let agent = options.start()?;
    let mut buffer = [0; 512];
    loop {
        let length = listener.recv(&mut buffer)?;
        if buffer.get(..length).is_some_and(|said| said.windows(7).any(|window| window == b"READY=1")) {
            break;
        }
    }
    let used = cpu_ms(agent.pid());
    agent.stop()?;
    Ok(used)
}

fn cpu_ms(pid: u32) -> f64 {
    let nanos: u64 = tasks(pid)
        .filter_map(|task| fs::read_to_string(task.join("schedstat")).ok())
        .filter_map(|text| text.split_whitespace().next()?.parse::<u64>().ok())
        .sum();
    nanos as f64 / 1e6
}

/// Memory and silence of a connected agent with nothing to do.
fn idle(agent: &Running, secs: u64, table: &mut Table) -> Result<(), Trouble> {
    let pid = agent.pid();
    let mut threads = Vec::new();
    let (mut quiet_samples, mut bursts, mut last_was_quiet) = (0, 0, true);
    let samples = secs * SAMPLES_PER_SECOND;
    let mut before = switches(pid);
    for _ in 0..samples {
        std::thread::sleep(Duration::from_millis(1000 / SAMPLES_PER_SECOND));
        let now = switches(pid);
        let quiet = now == before;
        before = now;
        if quiet {
            quiet_samples += 1;
            threads.push(tasks(pid).count());
        } else if last_was_quiet {
            bursts += 1;
        }
        last_was_quiet = quiet;
    }
    let (during, mut bursts_closely) = closely(pid);
    let memory = memory(pid);
    let mb = |kib: u64| format!("{:.2} MB", kib as f64 * 1024.0 / 1e6);
    table.row(
        "agent idle, PSS",
        mb(memory.pss),
        "≤ 3.5 MB",
        format!("connected by TLS, machine server running; RSS {}", mb(memory.rss)),
    );
    table.row("agent idle, private dirty", mb(memory.private_dirty), "≤ 0.7 MB", "");
    let most = threads.iter().max().copied().unwrap_or(0);
    let usual = threads.iter().filter(|count| **count == 2).count() * 100 / threads.len().max(1);
    table.row(
        "agent, threads between polls",
        format!("{most} at most"),
        "2",
        format!("2 in {usual} % of the quiet samples"),
    );
    let how = format!("the most in {} s, counted every 100 µs", WATCHED_CLOSELY.as_secs());
    table.row("agent, threads during a poll", during.to_string(), "3", how);
    table.row(
        "agent, context switches per poll",
        format!("{:.0}", median(&mut bursts_closely)),
        "≤ 10",
        format!(
            "median of {} polls, at most {:.0}; voluntary and not, all threads, those that ended too",
            bursts_closely.len(),
            bursts_closely.last().copied().unwrap_or(f64::NAN)
        ),
    );
    table.row(
        "agent, samples with context switches",
        format!("{} in {} bursts", samples - quiet_samples, bursts),
        "0 between polls",
        format!("of {samples} samples of {} ms: {secs} s, a poll every 5 s", 1000 / SAMPLES_PER_SECOND),
    );
    Ok(())
}

/// The most threads at a time, and the context switches of each poll. Looks often enough to see what threads did that
/// live for a few milliseconds only.
fn closely(pid: u32) -> (usize, Vec<f64>) {
    /// What lies this far apart are two bursts.
    const APART: Duration = Duration::from_secs(1);
    let by_task = || tasks(pid).filter_map(|task| Some((task.clone(), switches_of(&task)?)));
    let mut seen: HashMap<PathBuf, u64> = by_task().collect();
    let (begin, mut last_change) = (Instant::now(), None::<Instant>);
    let (mut threads, mut bursts) = (0, Vec::new());
    while begin.elapsed() < WATCHED_CLOSELY {
        let mut count = 0;
        for (task, switches) in by_task() {
            count += 1;
            let before = seen.insert(task, switches).unwrap_or(0);
            if switches > before {
                let new = (switches - before) as f64;
                match bursts.last_mut() {
                    Some(burst) if last_change.is_some_and(|at| at.elapsed() <= APART) => *burst += new,
                    _ => bursts.push(new),
                }
                last_change = Some(Instant::now());
            }
        }
        threads = threads.max(count);
        std::thread::sleep(Duration::from_micros(100));
    }
    (threads, bursts)
}

/// How long a machine server that was stable stays dead.
fn crashes(subject: &Subject<'_>, table: &mut Table) -> Result<(), Trouble> {
    let agent = subject.options.start()?;
    subject.wait_until_running()?;
    let mut delays = Vec::new();
    for _ in 0..REPEATS {
        std::thread::sleep(STABLE_AFTER);
        let server = eventually("a machine server", || child(agent.pid()))?;
        let begin = Instant::now();
        kill(server)?;
        next_child(agent.pid(), server)?;
        delays.push(begin.elapsed().as_secs_f64() * 1e3);
    }
    agent.stop()?;
    let middle = median(&mut delays);
    let (least, most) = (delays.first().copied().unwrap_or(f64::NAN), delays.last().copied().unwrap_or(f64::NAN));
    table.row(
        "machine server killed to the next one's exec",
        format!("{middle:.2} ms"),
        "≤ 5 ms",
        format!("median of {REPEATS} crashes of a stable server by SIGKILL; {least:.2} to {most:.2} ms"),
    );
    Ok(())
}

/// How long a changed setting takes to reach the machine server.
fn changes(subject: &Subject<'_>, agent: &Running, table: &mut Table) -> Result<(), Trouble> {
    let mut delays = Vec::new();
    for number in 0..5 {
        subject.wait_until_running()?;
        // A device that runs has just said so: without this every change would come right after a poll.
        std::thread::sleep(Duration::from_secs(number));
        let server = eventually("a machine server", || child(agent.pid()))?;
        let env = json!({"NUMBER": number.to_string()});
        subject.configure(json!({"advanced_settings": {"platform_server_env": env}}))?;
        let begin = Instant::now();
        next_child(agent.pid(), server)?;
        delays.push(begin.elapsed().as_secs_f64() * 1e3);
    }
    let how = "acknowledged UpdateRobotPart to exec, median of 5, made 0 to 4 s after a poll; polls come every 5 s";
    table.row("changed environment to restart", format!("{:.0} ms", median(&mut delays)), "", how);
    Ok(())
}

/// Memory while a large version is downloaded, verified and staged.
fn streaming(subject: &Subject<'_>, agent: &mut Running, table: &mut Table) -> Result<(), Trouble> {
    let before = memory(agent.pid());
    subject.configure(json!({"version_control": {"platform-server": "dev"}}))?;
    let (mut most, begin) = (before, Instant::now());
    let done = |status: &DeviceStatus| {
        status.updates.iter().any(|update| {
            update.target_version == "2.0.0-dev" && update.phase >= i32::from(update_status::Phase::Staged)
        })
    };
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let sampler = scope.spawn(|| {
            let mut most = before;
            while !over.load(Ordering::Relaxed) {
                let now = memory(agent.pid());
                most.pss = most.pss.max(now.pss);
                most.private_dirty = most.private_dirty.max(now.private_dirty);
                std::thread::sleep(Duration::from_millis(5));
            }
            most
        });
        let staged = subject.status_when("the large version to be staged", done);
        over.store(true, Ordering::Relaxed);
        most = sampler.join().map_err(|_| "the sampler panicked")?;
        staged
    })?;
    table.row(
        "agent, memory added while 200 MB stream",
        format!("{:.2} MB", most.pss.saturating_sub(before.pss) as f64 * 1024.0 / 1e6),
        "≤ 0.5 MB",
        format!(
            "PSS, most of all samples; private dirty +{:.2} MB; staged after {} s",
            most.private_dirty.saturating_sub(before.private_dirty) as f64 * 1024.0 / 1e6,
            rounded(begin.elapsed().as_secs_f64())
        ),
    );
    Ok(())
}

/// Context switches so far of the threads that live.
fn switches(pid: u32) -> u64 {
    tasks(pid).filter_map(|task| switches_of(&task)).sum()
}

fn switches_of(task: &Path) -> Option<u64> {
    let status = fs::read_to_string(task.join("status")).ok()?;
    let lines = status.lines().filter(|line| line.contains("ctxt_switches"));
    Some(lines.filter_map(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok()).sum())
}

fn memory(pid: u32) -> Memory {
    let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap_or_default();
    let field = |name: &str| -> u64 {
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(0)
    };
    Memory { rss: field("Rss:"), pss: field("Pss:"), private_dirty: field("Private_Dirty:") }
}

fn kill(pid: u32) -> Result<(), Trouble> {
    let pid = Pid::from_raw(i32::try_from(pid)?).ok_or("no process")?;
    Ok(kill_process(pid, Signal::KILL)?)
}

pub(crate) fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}
