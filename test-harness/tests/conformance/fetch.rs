//! Fetching: the same resources, healthy and spoiled, over a real socket and over the simulated web.

use std::{
    collections::BTreeMap,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{TcpListener, TcpStream},
    path::PathBuf,
    rc::Rc,
    sync::{Arc, Mutex},
    thread,
    time::Duration,
};

use board::{
    fetch::{Download, Downloaded, Fetch, FetchError, Progress, Validator},
    files::{Access, Files},
};
use board_portable::{PortableFetch, PortableFiles};
use board_sim::{
    Driver, SimBoard,
    fetch::{Resource, Spoiled},
};
use test_harness::real::port::Port;

/// What a thread can serve of a [`Resource`].
#[derive(Clone)]
struct Served {
    status: u16,
    body: Vec<u8>,
    etag: Option<String>,
    says_length: bool,
    spoiled: Option<Spoiled>,
}

/// A small HTTP server on loopback; its thread ends with the process.
struct Server {
    address: String,
    resources: Arc<Mutex<BTreeMap<String, Served>>>,
}

impl Server {
    fn start() -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let resources = Arc::new(Mutex::new(BTreeMap::<String, Served>::new()));
        let shared = Arc::clone(&resources);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let shared = Arc::clone(&shared);
                thread::spawn(move || answer(stream, &shared));
            }
        });
        Server { address, resources }
    }

    fn serve(&self, path: &str, resource: &Resource) {
        let served = Served {
            status: resource.status,
            body: resource.body.to_vec(),
            etag: resource.validator.clone().map(|validator| validator.0),
            says_length: resource.says_length,
            spoiled: resource.spoiled.clone(),
        };
        self.resources.lock().unwrap().insert(path.to_owned(), served);
    }
}

fn answer(mut stream: TcpStream, resources: &Mutex<BTreeMap<String, Served>>) -> Option<()> {
    let mut lines = BufReader::new(stream.try_clone().ok()?).lines();
    let path = lines.next()?.ok()?.split(' ').nth(1)?.to_owned();
    let headers: Vec<String> = lines.map_while(Result::ok).take_while(|line| !line.is_empty()).collect();
    let header = |name: &str| {
        let found =
            headers.iter().filter_map(|line| line.split_once(':')).find(|(key, _)| key.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.trim().to_owned())
    };
    let missing = Served { status: 404, body: b"no".to_vec(), etag: None, says_length: true, spoiled: None };
    let served = resources.lock().unwrap().get(&path).cloned().unwrap_or(missing);
    let wanted =
        header("range").and_then(|range| range.strip_prefix("bytes=")?.strip_suffix('-')?.parse::<usize>().ok());
    let same = header("if-range").is_none() || header("if-range") == served.etag;
    let from = wanted.filter(|&from| same && from < served.body.len() && served.status == 200).unwrap_or(0);
    let length = served.body.len();
    let mut head = match from {
        0 => format!("HTTP/1.1 {} it\r\n", served.status),
        _ => format!("HTTP/1.1 206 part\r\nContent-Range: bytes {from}-{}/{length}\r\n", length - 1),
    };
    if served.says_length {
        head += &format!("Content-Length: {}\r\n", length - from);
    }
    if let Some(etag) = &served.etag {
        head += &format!("ETag: {etag}\r\n");
    }
    stream.write_all(format!("{head}Connection: close\r\n\r\n").as_bytes()).ok()?;
    let until = match served.spoiled {
        Some(Spoiled::EndsAfter(at) | Spoiled::StallsAfter(at)) => usize::try_from(at).ok()?.clamp(from, length),
        _ => length,
    };
    stream.write_all(served.body.get(from..until)?).ok()?;
    if let Some(Spoiled::StallsAfter(_)) = served.spoiled {
        // Until the client has had enough.
        let _ = stream.read(&mut [0; 1]);
    }
    Some(())
}

/// What came of an attempt, in words that both sides share.
fn outcome(result: Result<Downloaded, FetchError>) -> String {
    match result {
        Ok(Downloaded { len, resumed }) => format!("{len} bytes{}", if resumed { ", resumed" } else { "" }),
        Err(FetchError::BadUrl { .. }) => "bad url".into(),
        Err(FetchError::Unreachable { .. }) => "unreachable".into(),
        Err(FetchError::Refused { status, .. }) => format!("refused with {status}"),
        Err(FetchError::Stalled { have, .. }) => format!("stalled at {have}"),
        Err(FetchError::Truncated { have, expected, .. }) => format!("ended at {have} of {expected}"),
        Err(FetchError::TooLong { limit, .. }) => format!("longer than {limit}"),
        Err(FetchError::NoSpace { .. }) => "no space".into(),
        Err(FetchError::File(error)) => format!("{error}"),
    }
}

/// One row: what the file holds before, what is served, and what is left afterwards.
struct Row {
    case: &'static str,
    held: usize,
    validator: Option<&'static str>,
    served: Resource,
    outcome: &'static str,
    left: usize,
    stall: Duration,
}

const LENGTH: usize = 150_000;
/// Longer than a busy machine takes to answer.
const STALL: Duration = Duration::from_secs(20);

fn body() -> Vec<u8> {
    (0..LENGTH).map(|at| at.to_le_bytes()[1] ^ at.to_le_bytes()[0]).collect()
}

fn rows() -> Vec<Row> {
    let healthy = Resource { validator: Some(Validator("\"v1\"".into())), ..Resource::of(body()) };
    let served = |how: Spoiled| healthy.clone().spoiled(how);
    let row = |case, held, validator, served, outcome, left| {
        let stall = STALL;
        Row { case, held, validator, served, outcome, left, stall }
    };
    let stalling = served(Spoiled::StallsAfter(60_000));
    let unsaid = Resource { says_length: false, ..healthy.clone() };
    let nameless = Resource { validator: None, ..healthy.clone() };
    vec![
        row("whole", 0, None, healthy.clone(), "150000 bytes", LENGTH),
        row("without a length", 0, None, unsaid, "150000 bytes", LENGTH),
        row("old bytes without a validator are replaced", 500, None, healthy.clone(), "150000 bytes", LENGTH),
        row("goes on", 70_000, Some("\"v1\""), healthy.clone(), "150000 bytes, resumed", LENGTH),
        row("another resource by now", 70_000, Some("\"v0\""), healthy.clone(), "150000 bytes", LENGTH),
        row("a server that names nothing", 70_000, Some("\"v1\""), nameless, "150000 bytes", LENGTH),
        row("refused", 100, Some("\"v1\""), Resource::refusal(503), "refused with 503", 100),
        row("ends early", 0, None, served(Spoiled::EndsAfter(60_000)), "ended at 60000 of 150000", 60_000),
        Row { stall: Duration::from_secs(1), ..row("stalls", 0, None, stalling, "stalled at 60000", 60_000) },
        row("too long", 0, None, Resource::of(vec![1; 300_000]), "longer than 200000", 0),
    ]
}

fn request(url: String, into: PathBuf, validator: Option<&str>) -> Download {
    Download {
        url,
        into,
        validator: validator.map(|text| Validator(text.to_owned())),
        bytes_max: 200_000,
        stall: STALL,
        total: Duration::from_secs(30),
        rate: None,
        reserve: 0,
    }
}

/// What an attempt came to: the outcome, what is left, and what the progress said.
type Seen = (String, Vec<u8>, u64);

fn on_the_real_board(server: &Server, row: &Row) -> Seen {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("part");
    if row.held > 0 {
        PortableFiles.write(&path, &body()[..row.held], Access::Private).unwrap();
    }
    server.serve("/file", &row.served);
    let (fetch, progress) = (PortableFetch::new(String::new(), web::Tls::default()), Progress::default());
    let url = format!("{}/file", server.address);
    let what = Download { stall: row.stall, ..request(url, path.clone(), row.validator) };
    let came = outcome(smol::block_on(fetch.download(&what, &progress)));
    (came, std::fs::read(&path).unwrap_or_default(), progress.have.get())
}

fn on_the_simulated_board(row: &Row) -> Seen {
    let sim = SimBoard::new(1);
    let path = PathBuf::from("/root/part");
    if row.held > 0 {
        sim.files.put(&path, &body()[..row.held], Access::Private);
    }
    sim.web.serve("http://mirror/file", row.served.clone());
    let (board, driver) = (sim.switch_on(), Driver::new(&sim));
    let what = Download { stall: row.stall, ..request("http://mirror/file".into(), path.clone(), row.validator) };
    let (came, have) = driver.block_on(async move {
        let progress = Progress::default();
        let came = outcome(board.fetch.download(&what, &progress).await);
        (came, progress.have.get())
    });
    (came, sim.files.content(&path).unwrap_or_default(), have)
}

#[test]
fn downloads_end_alike() {
    let server = Server::start();
    for row in rows() {
        for (side, (came, left, have)) in
            [("real", on_the_real_board(&server, &row)), ("simulated", on_the_simulated_board(&row))]
        {
            assert_eq!(came, row.outcome, "{}, {side}", row.case);
            assert_eq!(left.len(), row.left, "{}, {side}: what is left", row.case);
            assert!(row.served.status != 200 || left == body()[..row.left], "{}, {side}: the bytes", row.case);
            if row.left > 0 && row.served.status == 200 {
                assert_eq!(have, row.left as u64, "{}, {side}: the progress", row.case);
            }
        }
    }
}

#[test]
fn what_cannot_be_fetched_is_told_alike() {
    let nobody = Port::reserve().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("part");
    let real: Rc<dyn Fetch> = Rc::new(PortableFetch::new(String::new(), web::Tls::default()));
    let sim = SimBoard::new(1);
    sim.web.set_online(false);
    let (board, driver) = (sim.switch_on(), Driver::new(&sim));
    for (url, expected) in [
        (format!("{}/file", nobody.url()), "unreachable"),
        ("file:///etc/passwd".to_owned(), "bad url"),
        ("nonsense".to_owned(), "bad url"),
    ] {
        let what = request(url.clone(), path.clone(), None);
        assert_eq!(outcome(smol::block_on(real.download(&what, &Progress::default()))), expected, "{url}");
        let fetch = Rc::clone(&board.fetch);
        let came = driver.block_on(async move { outcome(fetch.download(&what, &Progress::default()).await) });
        assert_eq!(came, expected, "{url}");
    }
    assert!(std::fs::read(&path).unwrap_or_default().is_empty(), "nothing came");
}

#[test]
fn small_answers_come_with_their_status_or_not_at_all() {
    let server = Server::start();
    let sim = SimBoard::new(1);
    let (board, driver) = (sim.switch_on(), Driver::new(&sim));
    for (resource, expected) in [
        (Resource::of("hello"), "200 hello"),
        (Resource::refusal(404), "404 no"),
        (Resource::of(vec![b'x'; 2000]), "longer than 1000"),
    ] {
        server.serve("/small", &resource);
        sim.web.serve("http://mirror/small", resource);
        let seen = |reply: Result<board::fetch::Reply, FetchError>| match reply {
            Ok(reply) => format!("{} {}", reply.status, String::from_utf8_lossy(&reply.body)),
            Err(error) => outcome(Err(error)),
        };
        let limit = Duration::from_secs(30);
        let real = PortableFetch::new(String::new(), web::Tls::default());
        let url = format!("{}/small", server.address);
        assert_eq!(seen(smol::block_on(real.get(&url, true, limit, 1000))), expected);
        let fetch = Rc::clone(&board.fetch);
        let came = driver.block_on(async move { fetch.get("http://mirror/small", false, limit, 1000).await });
        assert_eq!(seen(came), expected);
    }
}

#[test]
fn an_error_shows_no_secret_of_an_address() {
    let server = Server::start();
    let host = server.address.trim_start_matches("http://").to_owned();
    let sim = SimBoard::new(1);
    let (board, driver) = (sim.switch_on(), Driver::new(&sim));
    let folder = tempfile::tempdir().unwrap();
    for host in [host, "127.0.0.1:1".to_owned()] {
        let what = request(format!("http://user:planted@{host}/none?token=planted"), folder.path().join("part"), None);
        let real = PortableFetch::new(String::new(), web::Tls::default());
        let error = smol::block_on(real.download(&what, &Progress::default())).unwrap_err();
        assert!(!format!("{error} {error:?}").contains("planted"), "{error:?}");
        let (fetch, online) = (Rc::clone(&board.fetch), !host.ends_with(":1"));
        sim.web.set_online(online);
        let error = driver.block_on(async move { fetch.download(&what, &Progress::default()).await.unwrap_err() });
        assert!(!format!("{error} {error:?}").contains("planted"), "{error:?}");
    }
}
