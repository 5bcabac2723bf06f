//! Against a small server that does on purpose what servers, proxies and login pages do by accident.

use std::{
    fmt::Write as _,
    fs,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{SocketAddr, TcpListener, TcpStream},
    path::Path,
    sync::{Arc, Mutex},
    thread,
    time::Instant,
};

use super::*;
use board::fetch::Validator;

mod hostile;

/// What the server does with its n-th connection.
type Play = Box<dyn FnMut(&str, &mut TcpStream) + Send>;

/// A server that plays one role per connection and remembers what it was asked.
struct Server {
    address: SocketAddr,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Server {
    fn playing(mut roles: Vec<Play>) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let heard = Arc::clone(&asked);
        thread::spawn(move || {
            for role in &mut roles {
                let Ok((mut stream, _)) = listener.accept() else { return };
                let mut request = String::new();
                let mut reader = BufReader::new(stream.try_clone().unwrap());
                while reader.read_line(&mut request).unwrap_or(0) > 0 && !request.ends_with("\r\n\r\n") {}
                heard.lock().unwrap().push(request.to_ascii_lowercase());
                role(&request, &mut stream);
            }
        });
        Server { address, asked }
    }

    fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    fn asked(&self, index: usize) -> String {
        self.asked.lock().unwrap()[index].clone()
    }
}

fn answer(status: &'static str, headers: &'static [&'static str], body: &'static [u8]) -> Play {
    Box::new(move |_, stream| {
        let mut head = format!("HTTP/1.1 {status}\r\nconnection: close\r\n");
        for header in headers {
            write!(head, "{header}\r\n").unwrap();
        }
        if !headers.iter().any(|header| header.starts_with("content-length")) {
            write!(head, "content-length: {}\r\n", body.len()).unwrap();
        }
        let _ = stream.write_all((head + "\r\n").as_bytes()).and_then(|()| stream.write_all(body));
    })
}

fn download(url: &str, into: &Path, validator: Option<&str>) -> Download {
    Download {
        url: url.to_owned(),
        into: into.to_owned(),
        validator: validator.map(|text| Validator(text.to_owned())),
        bytes_max: 1000,
        // Longer than a busy machine takes to answer.
        stall: Duration::from_secs(20),
        total: Duration::from_secs(20),
        rate: None,
        reserve: 0,
    }
}

fn run(what: &Download) -> (Result<Downloaded, FetchError>, Progress) {
    let progress = Progress::default();
    let fetch = PortableFetch::new("test/1".into(), Tls::default());
    (smol::block_on(fetch.download(what, &progress)), progress)
}

#[test]
fn a_whole_file_arrives_with_its_validator() {
    let folder = tempfile::tempdir().unwrap();
    let into = folder.path().join("deep/partial");
    let server = Server::playing(vec![answer("200 OK", &["etag: \"v1\""], b"0123456789")]);
    let (result, progress) = run(&download(&server.url("/file"), &into, None));
    assert_eq!(result.unwrap(), Downloaded { len: 10, resumed: false });
    assert_eq!(fs::read(&into).unwrap(), b"0123456789");
    assert_eq!((progress.have.get(), progress.expected.get()), (10, Some(10)));
    assert_eq!(progress.validator.take(), Some(Validator("\"v1\"".into())));
    let asked = server.asked(0);
    assert!(asked.contains("user-agent: test/1") && !asked.contains("range:"), "{asked}");
}

#[test]
fn what_is_there_is_continued_or_replaced_and_never_mixed() {
    const PART: &[&str] = &["content-range: bytes 4-9/10", "etag: \"v1\""];
    type Row = (&'static str, Option<&'static str>, Vec<Play>, Result<(&'static [u8], bool), &'static str>);
    let whole = || answer("200 OK", &["etag: \"v2\""], b"abcdefghij");
    let table: Vec<Row> = vec![
        ("continued", Some("\"v1\""), vec![answer("206 Partial Content", PART, b"456789")], Ok((b"0123456789", true))),
        ("changed since", Some("\"v1\""), vec![whole()], Ok((b"abcdefghij", false))),
        ("no validator", None, vec![whole()], Ok((b"abcdefghij", false))),
        (
            "complete already",
            Some("\"v1\""),
            vec![answer("416 Range Not Satisfiable", &["content-range: bytes */4"], b"")],
            Ok((b"0123", true)),
        ),
        (
            "longer than the resource",
            Some("\"v1\""),
            vec![answer("416 Range Not Satisfiable", &["content-range: bytes */3"], b""), whole()],
            Ok((b"abcdefghij", false)),
        ),
        (
            "another part than asked for",
            Some("\"v1\""),
            vec![answer("206 Partial Content", &["content-range: bytes 2-9/10"], b"23456789"), whole()],
            Ok((b"abcdefghij", false)),
        ),
        (
            "a part of something else",
            Some("\"v1\""),
            vec![answer("206 Partial Content", &["content-range: bytes 4-9/10", "etag: \"v2\""], b"efghij"), whole()],
            Ok((b"abcdefghij", false)),
        ),
        ("a part nobody asked for", None, vec![answer("206 Partial Content", PART, b"456789")], Err("status 206")),
        (
            "the part is cut",
            Some("\"v1\""),
            vec![answer("206 Partial Content", &["content-range: bytes 4-9/10", "content-length: 6"], b"45")],
            Err("ended after 6 of 10 bytes"),
        ),
    ];
    for (case, validator, roles, expected) in table {
        let folder = tempfile::tempdir().unwrap();
        let into = folder.path().join("partial");
        fs::write(&into, b"0123").unwrap();
        let server = Server::playing(roles);
        let (result, _) = run(&download(&server.url("/file"), &into, validator));
        match (result, expected) {
            (Ok(done), Ok((content, resumed))) => {
                assert_eq!(fs::read(&into).unwrap(), content, "{case}");
                assert_eq!((done.len, done.resumed), (content.len() as u64, resumed), "{case}");
            }
            (Err(error), Err(part)) => assert!(error.to_string().contains(part), "{case}: {error}"),
            (got, _) => panic!("{case}: {got:?}"),
        }
        if let Some(validator) = validator {
            let asked = server.asked(0);
            assert!(
                asked.contains("range: bytes=4-\r\n") && asked.contains(&format!("if-range: {validator}")),
                "{asked}"
            );
        }
    }
}

#[test]
fn what_goes_wrong_is_told_apart_and_keeps_what_arrived() {
    let unannounced: Play = Box::new(|_, stream| {
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n");
        while stream.write_all(b"1000\r\n").and_then(|()| stream.write_all(&[b'x'; 4096])).is_ok() {
            if stream.write_all(b"\r\n").is_err() {
                return;
            }
        }
    });
    let cut_chunks: Play = Box::new(|_, stream| {
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\n0123\r\n");
    });
    let table: Vec<(&str, Vec<Play>, &str, u64)> = vec![
        ("cut", vec![answer("200 OK", &["content-length: 10"], b"0123")], "ended after 4 of 10 bytes", 4),
        ("cut between chunks", vec![cut_chunks], "could not reach", 4),
        (
            "announced too long",
            vec![answer("200 OK", &["content-length: 1001"], b"0")],
            "longer than the 1000 bytes",
            0,
        ),
        ("too long, unannounced", vec![unannounced], "longer than the 1000 bytes", 0),
        ("not there", vec![answer("404 Not Found", &[], b"no")], "status 404", 0),
        ("no content", vec![answer("204 No Content", &[], b"")], "status 204", 0),
        (
            "garbage",
            vec![Box::new(|_, stream| drop(stream.write_all(b"\x16\x03\x01SSH-2.0\r\n\r\n")))],
            "could not reach",
            0,
        ),
    ];
    for (case, roles, message, kept) in table {
        let folder = tempfile::tempdir().unwrap();
        let into = folder.path().join("partial");
        let server = Server::playing(roles);
        let (result, _) = run(&download(&server.url("/file"), &into, None));
        let error = result.unwrap_err().to_string();
        assert!(error.contains(message), "{case}: {error}");
        assert_eq!(fs::metadata(&into).unwrap().len(), kept, "{case}");
    }
}

#[test]
fn a_server_that_says_nothing_more_is_given_up_and_what_arrived_is_kept() {
    let stalling: Play = Box::new(|_, stream| {
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n0123");
        // Until the other side gives up.
        let _ = stream.read(&mut [0]);
    });
    let silent: Play = Box::new(|_, stream| {
        let _ = stream.read(&mut [0]);
    });
    for (case, role, message, kept) in [
        ("stalled", stalling, "stopped sending after 4 bytes", 4),
        ("silent", silent, "stopped sending after 0 bytes", 0),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let into = folder.path().join("partial");
        let server = Server::playing(vec![role]);
        let what = Download { stall: Duration::from_secs(1), ..download(&server.url("/file"), &into, None) };
        let error = run(&what).0.unwrap_err().to_string();
        assert!(error.contains(message), "{case}: {error}");
        assert_eq!(fs::metadata(&into).unwrap().len(), kept, "{case}");
    }
}

#[test]
fn a_full_disk_is_seen_before_it_is_full() {
    let folder = tempfile::tempdir().unwrap();
    let into = folder.path().join("partial");
    let server = Server::playing(vec![answer("200 OK", &[], b"0123456789")]);
    let what = Download { reserve: u64::MAX / 2, ..download(&server.url("/file"), &into, None) };
    match run(&what).0 {
        Err(FetchError::NoSpace { needed: 10, reserve, .. }) => assert_eq!(reserve, u64::MAX / 2),
        other => panic!("{other:?}"),
    }
    assert_eq!(fs::metadata(&into).unwrap().len(), 0);
}

#[test]
fn redirects_are_followed_a_few_times() {
    let folder = tempfile::tempdir().unwrap();
    let into = folder.path().join("partial");
    let to = |path: &'static str| answer("302 Found", Box::leak(Box::new([path])), b"");
    let page = || answer("200 OK", &["content-type: text/html"], b"<html>sign in</html>");
    // A login page is bytes like any other here; it is the caller who knows the digest.
    let server = Server::playing(vec![to("location: /login"), page()]);
    assert_eq!(run(&download(&server.url("/file"), &into, None)).0.unwrap().len, 20);
    assert_eq!(fs::read(&into).unwrap(), b"<html>sign in</html>");
    let server = Server::playing((0..8).map(|_| to("location: /again")).collect());
    let error = run(&download(&server.url("/file"), &into, None)).0.unwrap_err();
    assert!(error.to_string().contains("redirect"), "{error}");
}

#[test]
fn addresses_that_are_none_are_refused_without_their_secrets() {
    let folder = tempfile::tempdir().unwrap();
    let into = folder.path().join("partial");
    for url in ["", "file:///etc/passwd", "ftp://a/b", "http://", "/just/a/path", "http://a b/"] {
        let error = run(&download(url, &into, None)).0.unwrap_err();
        assert!(matches!(error, FetchError::BadUrl { .. }), "{url}: {error}");
    }
    let server = Server::playing(vec![answer("403 Forbidden", &[], b"")]);
    let url = format!("http://me:hunter2@{}/file?token=hunter2", server.address);
    let error = run(&download(&url, &into, None)).0.unwrap_err().to_string();
    assert!(error.contains("status 403") && !error.contains("hunter2"), "{error}");
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let error = run(&download(&format!("http://{closed}/file"), &into, None)).0.unwrap_err();
    assert!(matches!(error, FetchError::Unreachable { .. }), "{error}");
}

#[test]
fn a_rate_is_kept() {
    let folder = tempfile::tempdir().unwrap();
    let into = folder.path().join("partial");
    let server = Server::playing(vec![answer("200 OK", &[], &[b'x'; 400])]);
    let what = Download { rate: Some(1000), ..download(&server.url("/file"), &into, None) };
    let started = Instant::now();
    assert_eq!(run(&what).0.unwrap().len, 400);
    assert!(started.elapsed() >= Duration::from_millis(400), "400 bytes at 1000 a second");
}

#[test]
fn dropping_the_future_hangs_up() {
    let folder = tempfile::tempdir().unwrap();
    let (hung_up, seen) = std::sync::mpsc::channel();
    let (begun, started) = smol::channel::bounded(1);
    let role: Play = Box::new(move |_, stream| {
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n0123");
        begun.try_send(()).unwrap();
        let _ = hung_up.send(stream.read(&mut [0]).unwrap_or(0));
    });
    let server = Server::playing(vec![role]);
    let what = Download {
        stall: Duration::from_secs(3600),
        total: Duration::from_secs(3600),
        ..download(&server.url("/file"), &folder.path().join("partial"), None)
    };
    let fetch = PortableFetch::new(String::new(), Tls::default());
    smol::block_on(async {
        let progress = Progress::default();
        let download = async {
            let _ = fetch.download(&what, &progress).await;
        };
        download.or(async { started.recv().await.unwrap() }).await;
    });
    assert_eq!(seen.recv_timeout(Duration::from_secs(10)), Ok(0), "the server sees the end, not an hour later");
}

#[test]
fn small_documents() {
    let server = Server::playing(vec![
        answer("200 OK", &[], b"{}"),
        answer("503 Service Unavailable", &[], b"later"),
        answer("200 OK", &[], b"123456"),
        answer("302 Found", &["location: /elsewhere"], b""),
        answer("200 OK", &["content-length: 9"], b"cut"),
    ]);
    let fetch = PortableFetch::new(String::new(), Tls::default());
    let get = |local| smol::block_on(fetch.get(&server.url("/doc"), local, Duration::from_secs(5), 5));
    assert_eq!(get(false).unwrap(), Reply { status: 200, body: b"{}".to_vec() });
    assert_eq!(get(false).unwrap(), Reply { status: 503, body: b"later".to_vec() });
    assert!(matches!(get(false), Err(FetchError::TooLong { limit: 5, .. })));
    assert_eq!(get(true).unwrap().status, 302, "a local server is not left");
    assert!(get(false).is_err(), "a cut document is no document");
}
