//! A large version as devices fetch it, in plain text and by TLS, beside a program that only reads and writes.
//!
//! The server bounds what waits in the system for its turn on the line (ADR 46), so it is woken more often; the yardstick
//! is measured with that bound, for what the server adds, and without it, for what the bound takes. All of them take turns,
//! in rounds, the order reversed in every second one; the first is not counted: it brings the file into memory.

use std::{
    fs,
    io::{BufRead as _, BufReader, Read, Write},
    net::TcpStream,
    path::Path,
    process::{Child, Command, Stdio},
    time::Instant,
};

use limits::CpuTime;
use test_harness::real::{
    fleet::{Fleet, init},
    programs,
    releases::Factory,
    stand_in,
};

use crate::{
    Trouble,
    storm::Door,
    subject::Certificate,
    table::{Table, rounded},
};

/// Of the file, less the program in it.
const BYTES: u64 = 256 << 20;
/// Rounds that count; odd, so that one of them is the middle.
const ROUNDS: usize = 7;
/// The server's bound (`fleet/src/edge/serve.rs`).
const UNSENT: &str = "32768";

/// Somebody who sends the file.
struct Sender<'s> {
    pid: u32,
    address: String,
    path: String,
    door: Option<&'s Door>,
}

/// Bytes by one look: a second of processor time, and a second.
#[derive(Clone, Copy)]
struct Rates {
    per_cpu_second: f64,
    per_second: f64,
}

/// A program that is ended with this value.
struct Bare {
    process: Child,
    address: String,
}

/// Adds two rows for plain text and two for TLS.
pub(crate) fn measure(folder: &Path, table: &mut Table) -> Result<(), Trouble> {
    let file = folder.join("version");
    stand_in::build_padded("1.0.0", &[], BYTES, &file)?;
    let length = fs::metadata(&file)?.len();
    let certificate = Certificate::make(folder)?;
    let [chain, key] = [&certificate.chain, &certificate.key].map(|path| path.display().to_string());
    let door = Door::new(&certificate)?;
    for (what, door, [chain_name, key_name]) in
        [("plain text", None, ["", ""]), ("TLS", Some(&door), ["--tls-cert", "--tls-key"])]
    {
        let encrypted: &[&str] = if door.is_some() { &[chain_name, &chain, key_name, &key] } else { &[] };
        let data = folder.join("downloads");
        init(&data, None)?;
        Factory::open(&folder.join("downloads-factory"), &data)?.release("1.0.0", 1, &file)?;
        let fleet = Fleet::start_with(&data, "127.0.0.1:0", None, &folder.join("downloads.log"), encrypted)?;
        let artifact = fs::read_dir(data.join("releases/artifact"))?.next().ok_or("nothing was published")??;
        let bare = |unsent: &str| {
            let file = file.display().to_string();
            let encrypted: &[&str] = if door.is_some() { &["--chain", &chain, "--key", &key] } else { &[] };
            Bare::start(&[&["--file", &file, "--unsent", unsent], encrypted].concat())
        };
        let (bounded, unbounded) = (bare(UNSENT)?, bare("0")?);
        let senders = [
            Sender {
                pid: fleet.process.pid(),
                address: fleet.url.rsplit('/').next().unwrap_or_default().to_owned(),
                path: format!("/releases/v1/artifact/{}", artifact.file_name().to_string_lossy()),
                door,
            },
            bounded.sender(door),
            unbounded.sender(door),
        ];
        let mut rounds = Vec::new();
        for round in 0..=ROUNDS {
            let mut seen = [Rates { per_cpu_second: f64::NAN, per_second: f64::NAN }; 3];
            for place in 0..senders.len() {
                let place = if round % 2 == 0 { place } else { senders.len() - 1 - place };
                seen[place] = senders[place].fetch(length)?;
            }
            if round > 0 {
                rounds.push(seen);
            }
        }
        report(what, &rounds, table);
        fleet.process.stop()?;
        for folder in [data, folder.join("downloads-factory")] {
            fs::remove_dir_all(folder)?;
        }
    }
    Ok(())
}

fn report(what: &str, rounds: &[[Rates; 3]], table: &mut Table) {
    let middle = |of: &dyn Fn(&[Rates; 3]) -> f64| -> [f64; 3] {
        let mut all: Vec<f64> = rounds.iter().map(of).collect();
        all.sort_by(f64::total_cmp);
        [all.len() / 2, 0, all.len() - 1].map(|place| all[place])
    };
    let megabytes = |of: &dyn Fn(&[Rates; 3]) -> f64| rounded(middle(of)[0] / 1e6);
    let [part, least, most] = middle(&|[fleet, bare, _]| 100.0 * fleet.per_cpu_second / bare.per_cpu_second);
    table.row(
        &format!("a version of {} MiB by {what}, MB per CPU-second of the server", BYTES >> 20),
        format!("{} = {part:.0} % of a bare read and write", megabytes(&|[fleet, ..]| fleet.per_cpu_second)),
        "",
        format!(
            "{least:.0} to {most:.0} % in {} rounds; bare {}; one download at a time, {} MB a second, bare {}",
            rounds.len(),
            megabytes(&|[_, bare, _]| bare.per_cpu_second),
            megabytes(&|[fleet, ..]| fleet.per_second),
            megabytes(&|[_, bare, _]| bare.per_second),
        ),
    );
    let [cpu, cpu_least, cpu_most] = middle(&|[_, with, without]| 100.0 * with.per_cpu_second / without.per_cpu_second);
    let [rate, rate_least, rate_most] = middle(&|[_, with, without]| 100.0 * with.per_second / without.per_second);
    table.row(
        &format!("the same by {what}: what the bound of unsent bytes leaves"),
        format!("{cpu:.0} % of what a CPU-second sends, {rate:.0} % of the rate"),
        "",
        format!(
            "bare read and write with the bound, as part of the same without: {cpu_least:.0} to {cpu_most:.0} % and \
             {rate_least:.0} to {rate_most:.0} %; without {} MB per CPU-second and {} MB a second",
            megabytes(&|[.., without]| without.per_cpu_second),
            megabytes(&|[.., without]| without.per_second),
        ),
    );
}

impl Bare {
    fn start(arguments: &[&str]) -> Result<Self, Trouble> {
        let mut command = Command::new(programs::find("file_limit")?);
        let process = command.args(arguments).stdout(Stdio::piped()).spawn()?;
        let mut bare = Self { process, address: String::new() };
        let output = bare.process.stdout.take().ok_or("no output")?;
        BufReader::new(output).read_line(&mut bare.address)?;
        Ok(bare)
    }

    fn sender<'s>(&self, door: Option<&'s Door>) -> Sender<'s> {
        let address = self.address.trim().to_owned();
        Sender { pid: self.process.id(), address, path: "/".to_owned(), door }
    }
}

impl Drop for Bare {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Sender<'_> {
    /// All of the file, which has that many bytes.
    fn fetch(&self, length: u64) -> Result<Rates, Trouble> {
        let request = format!("GET {} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", self.path);
        // Opened before counting begins, with the handshake.
        let mut stream: Box<dyn Stream> = match self.door {
            Some(door) => {
                let mut stream = door.open(&self.address)?;
                stream.conn.complete_io(&mut stream.sock)?;
                Box::new(stream)
            }
            None => Box::new(TcpStream::connect(&self.address)?),
        };
        let (cpu, begin) = (CpuTime::of(self.pid), Instant::now());
        stream.write_all(request.as_bytes())?;
        let received = received(&mut stream)?;
        let (cpu, wall) = (cpu.seconds(), begin.elapsed().as_secs_f64());
        if received != length {
            return Err(format!("{received} bytes of {length} came from {}", self.address).into());
        }
        Ok(Rates { per_cpu_second: length as f64 / cpu.max(1e-9), per_second: length as f64 / wall })
    }
}

trait Stream: Read + Write {}
impl<S: Read + Write> Stream for S {}

/// Bytes of an answer's body, whose length stands in its head.
fn received(stream: &mut impl Read) -> Result<u64, Trouble> {
    let mut stream = BufReader::with_capacity(256 << 10, stream);
    let (mut line, mut length) = (String::new(), None);
    stream.read_line(&mut line)?;
    if !line.starts_with("HTTP/1.1 200") {
        return Err(format!("the answer was {line:?}").into());
    }
    while line.trim() != "" {
        line.clear();
        stream.read_line(&mut line)?;
        if let Some((name, value)) = line.split_once(':')
            && name.eq_ignore_ascii_case("content-length")
        {
            length = Some(value.trim().parse()?);
        }
    }
    let mut left: u64 = length.ok_or("an answer without a length")?;
    let mut received = 0;
    while left > 0 {
        let count = stream.fill_buf()?.len();
        if count == 0 {
            break;
        }
        stream.consume(count);
        received += count as u64;
        left = left.saturating_sub(count as u64);
    }
    Ok(received)
}
