//! Devices that all come back at once, and devices that stay: over TLS, as they do.
//!
//! The storm is full handshakes (a server that was restarted knows no tickets), each with the first call of a device that
//! has its token still; the yardstick is the same library accepting the same handshakes and saying a byte back. Both
//! are counted per second of the server's CPU time.

use std::{
    io::{BufRead as _, BufReader, Read, Write},
    net::TcpStream,
    path::Path,
    process::{Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    thread,
    time::Duration,
};

use api::{
    client::{Client, Credentials, Tls, Trust},
    pb::platform::app::{
        agent::v1::{DeviceAgentConfigRequest, agent_device_service},
        v1::{ListRobotsRequest, TailRobotPartLogsRequest, app_service},
    },
};
use limits::cpu_seconds;
use prost::Message as _;
use rusqlite::{Connection, params};
use rustls::{
    ClientConfig, ClientConnection, RootCertStore, StreamOwned,
    client::Resumption,
    pki_types::{CertificateDer, ServerName, pem::PemObject as _},
};
use test_harness::real::{
    device::Device,
    fleet::{Fleet, call, init},
    programs,
};

use crate::{
    Trouble,
    abuse::raise_descriptors,
    fleet::{resident_mb, token},
    subject::Certificate,
    table::{Table, rounded},
    web::{framed, head},
};

/// Threads that connect.
const THREADS: usize = 4;
/// Devices that come back, over and over.
const DEVICES: usize = 32;
/// Devices that stay, each with one stream.
const STAY: usize = 2_000;
/// Streams of one part.
const STREAMS_PER_PART: usize = 64;
/// Machines of one location that are listed.
const LISTED: u32 = 1_000;
/// How often.
const LISTS: u32 = 300;

/// What the server asks for a location's machines, with their main parts and when those were heard.
const QUERY: &str = "SELECT m.id, m.location_id, m.name, m.created_at, p.id, s.last_access FROM machines m
    LEFT JOIN parts p ON p.machine_id = m.id AND p.main = 1 LEFT JOIN part_presence s ON s.part_id = p.id
    WHERE m.location_id = ?1 ORDER BY m.created_at, m.id";
/// Its columns.
const COLUMNS: usize = 6;

pub(crate) type Secured = StreamOwned<ClientConnection, TcpStream>;

/// Adds a row for each of the three.
pub(crate) fn measure(folder: &Path, secs: u64, table: &mut Table) -> Result<(), Trouble> {
    raise_descriptors();
    let length = Duration::from_secs(secs);
    let certificate = Certificate::make(folder)?;
    let [chain, key] = [&certificate.chain, &certificate.key].map(|path| path.display().to_string());
    let data = folder.join("storm");
    let owner = init(&data, None)?;
    let arguments = ["--tls-cert", &chain, "--tls-key", &key, "--calls-per-key", "0"];
    let fleet = Fleet::start_with(&data, "127.0.0.1:0", None, &folder.join("storm.log"), &arguments)?;
    let credentials = Credentials::ApiKey { id: owner.key_id.clone(), key: owner.key.clone() };
    let tls = Tls::new(Trust::File(certificate.chain.clone()), None);
    let client = Client::builder(fleet.url.parse()?).credentials(credentials).tls(tls).build()?;
    let (address, pid) = (fleet.url.trim_start_matches("https://").to_owned(), fleet.process.pid());
    let door = Door::new(&certificate)?;

    let mut calls = Vec::new();
    let mut parts = Vec::new();
    for number in 0..DEVICES {
        let name = format!("machine-{number}");
        let device = Device::create(&client, &owner.organization_id, &name, &name)?;
        let token = token(&client, &device.part_id, "robot-secret", device.part_secret.expose())?;
        let body =
            framed(&DeviceAgentConfigRequest { id: device.part_id.clone(), ..Default::default() }.encode_to_vec());
        let mut request =
            head(agent_device_service::DEVICE_AGENT_CONFIG.path, &token, "localhost", body.len()).into_bytes();
        request.extend(body);
        calls.push((request, device.part_id.clone()));
        parts.push(device.part_id);
    }
    let connected = storm(&door, &address, pid, length, &|stream, number| {
        let (request, _) = calls.get(number % calls.len()).ok_or("no device")?;
        stream.write_all(request)?;
        until_said(stream, b"grpc-status:0")
    })?;

    let mut bare = Command::new(programs::find("tls_limit")?);
    let mut bare = bare.args(["--chain", &chain, "--key", &key]).stdout(Stdio::piped()).spawn()?;
    let mut line = String::new();
    BufReader::new(bare.stdout.take().ok_or("no output")?).read_line(&mut line)?;
    let accepted = storm(&door, line.trim(), bare.id(), length, &|stream, _| {
        stream.write_all(b"!")?;
        until_said(stream, b"!")
    });
    bare.kill()?;
    bare.wait()?;
    let accepted = accepted?;
    table.row(
        "reconnect storm: TLS handshake and a device's first call, per CPU-second",
        format!("{} = {:.0} % of bare accepts", rounded(connected), 100.0 * connected / accepted),
        "≥ 70 %",
        format!(
            "bare {}, which says one byte back; full handshakes, {THREADS} threads, {DEVICES} devices with their tokens",
            rounded(accepted)
        ),
    );

    let owner_token = token(&client, &owner.key_id, "api-key", owner.key.expose())?;
    // What the storm has left in its memory is not theirs who stay.
    fleet.process.stop()?;
    let fleet = Fleet::start_with(&data, "127.0.0.1:0", None, &folder.join("stay.log"), &arguments)?;
    let address = fleet.url.trim_start_matches("https://");
    stay(&door, address, &owner_token, &parts, fleet.process.pid(), table)?;
    fleet.process.stop()?;
    list(folder, table)
}

/// How to come in.
pub(crate) struct Door {
    config: Arc<ClientConfig>,
}

impl Door {
    pub(crate) fn new(certificate: &Certificate) -> Result<Door, Trouble> {
        let mut roots = RootCertStore::empty();
        for one in CertificateDer::pem_file_iter(&certificate.chain)? {
            roots.add(one?)?;
        }
        let mut config = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
        config.resumption = Resumption::disabled();
        Ok(Door { config: Arc::new(config) })
    }

    pub(crate) fn open(&self, address: &str) -> Result<Secured, Trouble> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(Duration::from_secs(20)))?;
        let name = ServerName::try_from("localhost")?;
        Ok(StreamOwned::new(ClientConnection::new(self.config.clone(), name)?, stream))
    }
}

/// Connections a second of the server's CPU time; each does `work`, with its number, and ends.
fn storm(
    door: &Door,
    address: &str,
    pid: u32,
    length: Duration,
    work: &(dyn Fn(&mut Secured, usize) -> Result<(), Trouble> + Sync),
) -> Result<f64, Trouble> {
    let (over, count) = (AtomicBool::new(false), AtomicU64::new(0));
    let one = |first: usize| -> Result<(), String> {
        for number in (first..).step_by(THREADS) {
            if over.load(Relaxed) {
                break;
            }
            let mut stream = door.open(address).map_err(|error| error.to_string())?;
            work(&mut stream, number).map_err(|error| error.to_string())?;
            count.fetch_add(1, Relaxed);
        }
        Ok(())
    };
    thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS).map(|first| scope.spawn(move || one(first))).collect();
        thread::sleep(Duration::from_secs(1));
        let (before, cpu) = (count.load(Relaxed), cpu_seconds(pid));
        thread::sleep(length);
        let figure = (count.load(Relaxed) - before) as f64 / (cpu_seconds(pid) - cpu).max(1e-9);
        over.store(true, Relaxed);
        for thread in threads {
            thread.join().map_err(|_| "a thread panicked")??;
        }
        Ok(figure)
    })
}

/// Reads until these bytes have come.
fn until_said(stream: &mut impl Read, wanted: &[u8]) -> Result<(), Trouble> {
    let (mut said, mut chunk) = (Vec::new(), [0; 4096]);
    while !said.windows(wanted.len()).any(|window| window == wanted) {
        match stream.read(&mut chunk)? {
            0 => return Err(format!("cut off after {:?}", String::from_utf8_lossy(&said)).into()),
            count => said.extend(chunk.get(..count).unwrap_or_default()),
        }
    }
    Ok(())
}

/// What a device costs that is connected by HTTP/2 over TLS and has one stream open, on which nothing comes.
fn stay(door: &Door, address: &str, token: &str, parts: &[String], pid: u32, table: &mut Table) -> Result<(), Trouble> {
    let before = resident_mb(pid);
    let mut open = Vec::with_capacity(STAY);
    for number in 0..STAY {
        let id = parts.get(number / STREAMS_PER_PART).cloned().ok_or("too few parts")?;
        let mut stream = door.open(address)?;
        stream.write_all(&first_call(
            app_service::TAIL_ROBOT_PART_LOGS.path,
            token,
            &TailRobotPartLogsRequest { id, ..Default::default() },
        ))?;
        until_headers(&mut stream)?;
        open.push(stream);
    }
    let each = (resident_mb(pid) - before) * 1024.0 / STAY as f64;
    table.row(
        "fleet server, an idle device by TLS with one stream",
        format!("{each:.1} KiB"),
        "≤ 48 KiB",
        format!("{STAY} of HTTP/2, each with a tail on which nothing comes"),
    );
    Ok(())
}

/// All that an HTTP/2 client says to begin one call: preface, settings, headers, one message, the end of its side.
fn first_call(path: &str, token: &str, message: &impl prost::Message) -> Vec<u8> {
    let frame = |kind: u8, flags: u8, stream: u32, payload: &[u8]| {
        let length = (payload.len() as u32).to_be_bytes();
        let mut frame = vec![length[1], length[2], length[3], kind, flags];
        frame.extend(stream.to_be_bytes());
        frame.extend(payload);
        frame
    };
    let bearer = format!("Bearer {token}");
    let headers = [
        (":method", "POST"),
        (":scheme", "https"),
        (":path", path),
        (":authority", "localhost"),
        ("content-type", "application/grpc"),
        ("te", "trailers"),
        ("authorization", &bearer),
    ];
    // RFC 7541, 6.2.2: literal, not indexed, a new name; nothing is compressed.
    let mut block = Vec::new();
    for (name, value) in headers {
        block.push(0);
        for text in [name, value] {
            length_of(text, &mut block);
            block.extend(text.as_bytes());
        }
    }
    let body = framed(&message.encode_to_vec());
    let frames = [frame(4, 0, 0, &[]), frame(1, 0x4, 1, &block), frame(0, 0x1, 1, &body)];
    [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(), frames.concat()].concat()
}

/// RFC 7541, 5.1: a number behind a prefix of seven bits.
fn length_of(text: &str, block: &mut Vec<u8>) {
    const PREFIX: usize = 127;
    if text.len() < PREFIX {
        block.push(text.len() as u8);
        return;
    }
    block.push(PREFIX as u8);
    let mut rest = text.len() - PREFIX;
    while rest >= 128 {
        block.push((rest % 128) as u8 | 0x80);
        rest /= 128;
    }
    block.push(rest as u8);
}

/// Reads frames until the headers of the answer: the stream is open then.
fn until_headers(stream: &mut impl Read) -> Result<(), Trouble> {
    loop {
        let mut head = [0; 9];
        stream.read_exact(&mut head)?;
        let [a, b, c, kind, flags, ..] = head;
        let mut payload = vec![0; u32::from_be_bytes([0, a, b, c]) as usize];
        stream.read_exact(&mut payload)?;
        match kind {
            1 if flags & 0x1 == 0 => return Ok(()),
            1 | 3 | 7 => return Err(format!("no stream: {:?}", String::from_utf8_lossy(&payload)).into()),
            _ => {}
        }
    }
}

/// ListRobots of a thousand machines, beside its query alone on the same rows.
fn list(folder: &Path, table: &mut Table) -> Result<(), Trouble> {
    let data = folder.join("listed");
    let owner = init(&data, None)?;
    let location = crate::scale::fill(&data.join("state.db"), &owner.organization_id, LISTED.into(), LISTED.into())?;
    let fleet = Fleet::start_with(&data, "127.0.0.1:0", None, &folder.join("listed.log"), &["--calls-per-key", "0"])?;
    let client = fleet.client(&owner)?;
    let request = ListRobotsRequest { location_id: location.clone() };
    let ask = || -> Result<(), Trouble> {
        let listed = call(&client, app_service::LIST_ROBOTS, &request)?.robots.len();
        if listed == LISTED as usize { Ok(()) } else { Err(format!("{listed} machines").into()) }
    };
    ask()?;
    let cpu = cpu_seconds(fleet.process.pid());
    for _ in 0..LISTS {
        ask()?;
    }
    let called = (cpu_seconds(fleet.process.pid()) - cpu) / f64::from(LISTS);
    fleet.process.stop()?;

    let connection = Connection::open(data.join("state.db"))?;
    let mut query = connection.prepare(QUERY)?;
    let mut bare = || -> Result<usize, Trouble> {
        let mut rows = query.query(params![location])?;
        let mut bytes = 0;
        while let Some(row) = rows.next()? {
            for column in 0..COLUMNS {
                bytes += match row.get_ref(column)? {
                    rusqlite::types::ValueRef::Text(text) => String::from_utf8(text.to_vec())?.len(),
                    _ => 8,
                };
            }
        }
        Ok(bytes)
    };
    bare()?;
    let cpu = cpu_seconds(std::process::id());
    for _ in 0..LISTS {
        bare()?;
    }
    let alone = (cpu_seconds(std::process::id()) - cpu) / f64::from(LISTS);
    table.row(
        "ListRobots of 1,000 machines",
        format!("{:.1} times its bare query", called / alone),
        "≤ 3",
        format!("CPU time of the server a call {:.2} ms, of the query alone {:.2} ms", called * 1e3, alone * 1e3),
    );
    std::fs::remove_dir_all(&data)?;
    Ok(())
}
