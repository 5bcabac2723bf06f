//! The door behind the hotspot: bytes of the page, requests beside a bare answerer, memory of a connection; and what a
//! device costs that is offline for a month.
//!
//! Doorway and page are the agent's; the device behind them is played (`test-harness/examples/portal.rs`), because this
//! machine has no radio. What the whole agent costs with its doors open, the virtual boards say (docs/lab.md).

use std::{
    fs,
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    path::Path,
    process::Command,
    time::{Duration, Instant},
};

use api::brand;
use board::files::Access;
use board_sim::radio::{Beyond, Cable, any_cable};
use limits::cpu_seconds;
use serde_json::json;
use test_harness::{
    real::{process::Running, programs},
    world::{Seed, World, hours, minutes},
};

use crate::{
    Trouble,
    table::{Table, rounded},
};

/// Connections that ask at once: as many as one visitor may have.
const ASKING: usize = board::doorway::EACH_MAX;
/// Before counting.
const WARM_UP: Duration = Duration::from_millis(300);
/// Silent connections whose memory is counted: as many as the door takes of one visitor, less the first.
const SILENT: usize = board::doorway::EACH_MAX - 1;

/// What was asked for.
struct Asked {
    /// Answers for a second of the server's CPU time.
    per_cpu_second: f64,
    /// Answers for a second.
    per_second: f64,
    /// Bytes of an answer, head and body.
    bytes: usize,
}

/// Measures all of it.
pub(crate) fn measure(folder: &Path, secs: u64, table: &mut Table) -> Result<(), Trouble> {
    let length = Duration::from_secs(secs);
    let (door, address) = start(programs::find("examples/portal")?.as_path(), &["--port", "0"], folder)?;
    // Before there is memory left over from a load.
    let each = silent_connection(address, door.pid())?;
    let phones = ask(address, door.pid(), "/generate_204", length)?;
    let pages = ask(address, door.pid(), "/", length)?;
    drop(door);
    table.row(
        "portal, page with ten networks",
        format!("{:.1} KB", pages.bytes as f64 / 1e3),
        "≤ 30 KB",
        "one answer, nothing else is fetched",
    );
    for (what, asked) in [("a phone's question", phones), ("the page", pages)] {
        let bytes = asked.bytes.to_string();
        let (bare, address) = start(&programs::find("http_limit")?, &["--bytes", &bytes], folder)?;
        let limit = ask(address, bare.pid(), "/", length)?;
        table.row(
            &format!("portal, {what}, answers per CPU-second"),
            format!(
                "{} = {:.0} % of the limit",
                rounded(asked.per_cpu_second),
                100.0 * asked.per_cpu_second / limit.per_cpu_second
            ),
            "",
            format!(
                "limit {}: as many bytes from a loop of read and write; {} a second on {ASKING} connections",
                rounded(limit.per_cpu_second),
                rounded(asked.per_second)
            ),
        );
    }
    table.row(
        "portal, memory of a silent connection",
        format!("{each} bytes"),
        "≤ 4096",
        format!("private dirty memory of {SILENT} that have asked once"),
    );
    offline(table)
}

/// Starts a server that prints its address first.
fn start(program: &Path, arguments: &[&str], folder: &Path) -> Result<(Running, SocketAddr), Trouble> {
    let mut command = Command::new(program);
    command.args(arguments);
    let (running, url) = Running::start(command, "door", &folder.join("door.log"), true)?;
    let address = url.trim_start_matches("http://").trim_end_matches('/').parse()?;
    Ok((running, address))
}

/// Asks again and again on [`ASKING`] connections, each when it has its answer.
fn ask(address: SocketAddr, pid: u32, path: &str, length: Duration) -> Result<Asked, Trouble> {
    let begin = Instant::now();
    let asking: Vec<_> = (0..ASKING)
        .map(|_| {
            let request = request(address, path);
            std::thread::spawn(move || -> std::io::Result<(u64, usize)> {
                let mut stream = TcpStream::connect(address)?;
                stream.set_nodelay(true)?;
                let (mut count, mut bytes) = (0, 0);
                while begin.elapsed() < WARM_UP + length {
                    stream.write_all(request.as_bytes())?;
                    bytes = answer(&mut stream)?;
                    count += u64::from(begin.elapsed() >= WARM_UP);
                }
                Ok((count, bytes))
            })
        })
        .collect();
    std::thread::sleep(WARM_UP);
    let (cpu, since) = (cpu_seconds(pid), Instant::now());
    std::thread::sleep(length);
    let (cpu, wall) = (cpu_seconds(pid) - cpu, since.elapsed().as_secs_f64());
    let (mut calls, mut bytes) = (0, 0);
    for one in asking {
        let (count, of_each) = one.join().map_err(|_| "an asking thread died")??;
        (calls, bytes) = (calls + count, of_each);
    }
    let calls = calls as f64;
    Ok(Asked { per_cpu_second: calls / cpu.max(0.01), per_second: calls / wall, bytes })
}

fn request(address: SocketAddr, path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: {}\r\nAccept: text/html\r\n\r\n", address.ip())
}

/// Reads one answer and says how long it was.
fn answer(stream: &mut TcpStream) -> std::io::Result<usize> {
    let (mut said, mut piece) = (Vec::with_capacity(32 * 1024), [0; 16 * 1024]);
    loop {
        let read = stream.read(&mut piece)?;
        if read == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        said.extend_from_slice(&piece[..read]);
        let Some(end) = said.windows(4).position(|four| four == b"\r\n\r\n") else { continue };
        let head = String::from_utf8_lossy(&said[..end]).to_ascii_lowercase();
        let length = head.split("content-length: ").nth(1).and_then(|rest| rest.lines().next()?.parse().ok());
        if said.len() >= end + 4 + length.unwrap_or(0) {
            return Ok(said.len());
        }
    }
}

/// What each connection adds that has been answered once and is silent since.
fn silent_connection(address: SocketAddr, pid: u32) -> Result<u64, Trouble> {
    let silent = || -> std::io::Result<TcpStream> {
        let mut stream = TcpStream::connect(address)?;
        stream.write_all(request(address, "/generate_204").as_bytes())?;
        answer(&mut stream)?;
        Ok(stream)
    };
    // The first one also pays for what is there once.
    let first = silent()?;
    let before = private_dirty(pid)?;
    let others = (0..SILENT).map(|_| silent()).collect::<Result<Vec<_>, _>>()?;
    let more = private_dirty(pid)?.saturating_sub(before) / others.len() as u64;
    drop((first, others));
    Ok(more)
}

/// In bytes.
fn private_dirty(pid: u32) -> Result<u64, Trouble> {
    let memory = fs::read_to_string(format!("/proc/{pid}/smaps_rollup"))?;
    let line = memory.lines().find_map(|line| line.strip_prefix("Private_Dirty:")).ok_or("no figure of memory")?;
    Ok(line.trim().trim_end_matches(" kB").parse::<u64>()? * 1024)
}

/// A simulated week of a device that knows two networks, of which neither is there, with its doors closed and with the
/// hotspot that comes and goes: the whole agent on simulated ports, so the counts are exact and the same each time.
fn offline(table: &mut Table) -> Result<(), Trouble> {
    /// What one of the field's agents does: a scan every 15 seconds, for ever.
    const OF_OTHERS: u64 = 240;
    const HOURS: u64 = 24 * 7;
    for (doors, closed) in [("doors closed", true), ("the hotspot coming and going", false)] {
        let mut world = World::new(Seed(14));
        world.board.networks.install();
        world.board.networks.plug_radio("wlan0", false);
        world.board.networks.cable("eth0", Cable { plugged: true, dhcp: true, beyond: Beyond::Internet });
        world.board.networks.by_admin(any_cable());
        let defaults = json!({
            "advanced_settings": {"release_keys": [world.factory.public_key()]},
            "network_configuration": {"disable_wifi_provisioning": closed, "disable_bt_provisioning": true}
        });
        world.board.files.put(brand::DEFAULTS_FILE, defaults.to_string(), Access::Readable);
        let network = |name: &str, priority: i16| json!({"type": "wifi", "ssid": name, "psk": "correct horse", "priority": priority});
        world
            .cloud
            .set_section("additional_networks", &json!({"house": network("house", 0), "shed": network("shed", 1)}));
        world.start();
        if !world.run_until(minutes(5), |hands| hands.board.networks.ours().len() == 2) {
            return Err("the simulated device did not take its networks".into());
        }
        world.board.networks.cable("eth0", Cable { plugged: false, dhcp: true, beyond: Beyond::Internet });
        world.run_for(hours(1));
        let (scans, wakes) = (world.board.networks.counts().scans, world.board.clock.wakes());
        world.run_for(hours(HOURS));
        let scans = world.board.networks.counts().scans - scans;
        let wakes = world.board.clock.wakes() - wakes;
        table.row(
            &format!("offline device, {doors}, scans an hour"),
            format!(
                "{:.1} = {:.0} % of one every 15 s",
                scans as f64 / HOURS as f64,
                100.0 * scans as f64 / (OF_OTHERS * HOURS) as f64
            ),
            "< 100 %",
            format!(
                "simulated week; {:.0} moments an hour at which anybody in the agent is woken",
                wakes as f64 / HOURS as f64
            ),
        );
    }
    Ok(())
}
