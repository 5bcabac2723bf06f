//! Servers and proxies that mean harm: each attempt ends, in bounded time, memory and disk, with a reason.

use std::time::{SystemTime, UNIX_EPOCH};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use web::{Trust, rustls};

use super::*;

/// Sends this and hangs up.
fn raw(text: impl Into<Vec<u8>>) -> Play {
    let text = text.into();
    Box::new(move |_, stream| drop(stream.write_all(&text)))
}

/// Sends this, and then that for as long as somebody listens.
fn for_ever(begin: &'static str, again: &'static [u8], pause: Duration) -> Play {
    Box::new(move |_, stream| {
        let _ = stream.write_all(begin.as_bytes());
        while stream.write_all(again).is_ok() {
            thread::sleep(pause);
        }
    })
}

const SLOWLY: Duration = Duration::from_millis(20);
const AT_ONCE: Duration = Duration::ZERO;
const LONG: &str = "HTTP/1.1 200 OK\r\ncontent-length: 900\r\n\r\n";
const CHUNKED: &str = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";

#[test]
fn no_answer_holds_an_attempt_for_longer_than_its_limits() {
    // The stall limit is never reached by these: something arrives all the time.
    let table: Vec<(&str, Play, &str)> = vec![
        ("slow-loris in the body", for_ever(LONG, b"x", SLOWLY), "stopped sending after"),
        (
            "slow-loris in the head",
            for_ever("HTTP/1.1 200 OK\r\nx-slow: ", b"x", SLOWLY),
            "stopped sending after 0 bytes",
        ),
        ("slow-loris in the status", for_ever("HTTP/1.1 2", b"0", SLOWLY), ""),
        ("slow-loris in chunks", for_ever(CHUNKED, b"1\r\nx\r\n", SLOWLY), "stopped sending after"),
        ("go on, and never an answer", for_ever("", b"HTTP/1.1 100 Continue\r\n\r\n", SLOWLY), ""),
    ];
    for (case, role, message) in table {
        let folder = tempfile::tempdir().unwrap();
        let server = Server::playing(vec![role]);
        let what = Download {
            stall: Duration::from_secs(3600),
            total: Duration::from_millis(600),
            ..download(&server.url("/file"), &folder.path().join("partial"), None)
        };
        let error = run(&what).0.unwrap_err();
        assert!(error.to_string().contains(message), "{case}: {error}");
    }
}

#[test]
fn no_answer_takes_more_than_it_was_allowed() {
    let header = format!("x-header: {}\r\n", "y".repeat(1000));
    let table: Vec<(&str, Play, &str, u64)> = vec![
        (
            "an endless stream",
            for_ever("HTTP/1.1 200 OK\r\n\r\n", &[b'x'; 4096], AT_ONCE),
            "longer than the 1000 bytes",
            1000,
        ),
        (
            "endless chunks",
            for_ever(CHUNKED, b"10\r\nxxxxxxxxxxxxxxxx\r\n", AT_ONCE),
            "longer than the 1000 bytes",
            1000,
        ),
        ("endless headers", for_ever("HTTP/1.1 200 OK\r\n", b"x-more: of it\r\n", AT_ONCE), "could not reach", 0),
        ("large headers", raw(format!("HTTP/1.1 200 OK\r\n{}\r\n", header.repeat(100))), "could not reach", 0),
        ("a header without an end", for_ever("HTTP/1.1 200 OK\r\nx: ", &[b'x'; 4096], AT_ONCE), "could not reach", 0),
    ];
    for (case, role, message, kept) in table {
        let folder = tempfile::tempdir().unwrap();
        let into = folder.path().join("partial");
        let server = Server::playing(vec![role]);
        let error = run(&download(&server.url("/file"), &into, None)).0.unwrap_err().to_string();
        assert!(error.contains(message), "{case}: {error}");
        assert!(error.len() < 500, "{case}: what somebody sent is not repeated at length: {error}");
        assert!(fs::metadata(&into).unwrap().len() <= kept, "{case}");
    }
}

#[test]
fn answers_that_contradict_themselves_are_no_file() {
    let table: Vec<(&str, Play, &str)> = vec![
        ("a chunk that is no number", raw(format!("{CHUNKED}zz\r\n0123\r\n0\r\n\r\n")), ""),
        ("a chunk below nothing", raw(format!("{CHUNKED}-4\r\n0123\r\n0\r\n\r\n")), ""),
        ("a chunk beyond all numbers", raw(format!("{CHUNKED}fffffffffffffffff\r\n0123\r\n")), ""),
        ("a chunk that is longer than it said", raw(format!("{CHUNKED}2\r\n0123\r\n0\r\n\r\n")), ""),
        ("a chunk that is shorter than it said", raw(format!("{CHUNKED}8\r\n0123\r\n")), ""),
        ("no end of chunks", raw(format!("{CHUNKED}4\r\n0123\r\n")), ""),
        ("a length that is none", raw("HTTP/1.1 200 OK\r\ncontent-length: many\r\n\r\n0123"), ""),
        ("a negative length", raw("HTTP/1.1 200 OK\r\ncontent-length: -4\r\n\r\n0123"), ""),
        (
            "packed on its way",
            raw("HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: 4\r\n\r\n0123"),
            "encoded (gzip)",
        ),
        ("no version of HTTP", raw("ICY 200 OK\r\n\r\n0123"), ""),
        ("a status that is none", raw("HTTP/1.1 999999 OK\r\n\r\n"), ""),
        ("TLS where none was expected", raw(b"\x15\x03\x01\x00\x02\x02\x16".to_vec()), ""),
        ("to a file", answer("302 Found", &["location: file:///etc/passwd"], b""), ""),
        ("to another protocol", answer("302 Found", &["location: ftp://127.0.0.1/file"], b""), ""),
        ("to nowhere", answer("302 Found", &[], b""), ""),
        ("to no address", answer("302 Found", &["location: http://["], b""), ""),
    ];
    for (case, role, message) in table {
        let folder = tempfile::tempdir().unwrap();
        let into = folder.path().join("partial");
        let server = Server::playing(vec![role]);
        let error =
            run(&download(&server.url("/file"), &into, None)).0.map(|done| panic!("{case}: {done:?}")).unwrap_err();
        assert!(error.to_string().contains(message), "{case}: {error}");
        assert!(fs::metadata(&into).unwrap().len() <= 8, "{case}");
    }
}

#[test]
fn a_part_that_lies_is_not_put_behind_what_is_there() {
    let whole = || answer("200 OK", &["etag: \"v2\""], b"abcdefghij");
    let part = |headers: &'static [&'static str]| answer("206 Partial Content", headers, b"456789");
    type Row = (&'static str, Vec<Play>, Result<&'static [u8], &'static str>);
    let table: Vec<Row> = vec![
        ("If-Range ignored", vec![part(&["content-range: bytes 4-9/10", "etag: \"v2\""]), whole()], Ok(b"abcdefghij")),
        ("a range that is none", vec![part(&["content-range: bytes four-nine/ten"]), whole()], Ok(b"abcdefghij")),
        ("no range at all", vec![part(&[]), whole()], Ok(b"abcdefghij")),
        ("from the beginning", vec![part(&["content-range: bytes 0-9/10"]), whole()], Ok(b"abcdefghij")),
        ("a whole shorter than its part", vec![part(&["content-range: bytes 4-9/3"]), whole()], Ok(b"abcdefghij")),
        (
            "a whole beyond all bounds",
            vec![part(&["content-range: bytes 4-9/99999999999999"])],
            Err("longer than the 1000"),
        ),
        ("of another unit", vec![part(&["content-range: lines 4-9/10"]), whole()], Ok(b"abcdefghij")),
        ("out of range, of no length", vec![answer("416 Range Not Satisfiable", &[], b""), whole()], Ok(b"abcdefghij")),
        (
            "out of range, twice",
            vec![answer("416 Range Not Satisfiable", &[], b""), answer("416 Range Not Satisfiable", &[], b"")],
            Err("status 416"),
        ),
        (
            "parts for ever",
            vec![part(&["content-range: bytes 0-9/10"]), part(&["content-range: bytes 0-9/10"])],
            Err("status 206"),
        ),
    ];
    for (case, roles, expected) in table {
        let folder = tempfile::tempdir().unwrap();
        let into = folder.path().join("partial");
        fs::write(&into, b"0123").unwrap();
        let server = Server::playing(roles);
        match (run(&download(&server.url("/file"), &into, Some("\"v1\""))).0, expected) {
            (Ok(_), Ok(content)) => assert_eq!(fs::read(&into).unwrap(), content, "{case}"),
            (Err(error), Err(part)) => assert!(error.to_string().contains(part), "{case}: {error}"),
            (got, _) => panic!("{case}: {got:?}"),
        }
    }
}

/// A server for 127.0.0.1 that answers one encrypted request, and its authority.
fn encrypted(answer: &'static str) -> (SocketAddr, Tls) {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    let key = KeyPair::generate().unwrap();
    let certificate =
        CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap().signed_by(&key, &authority).unwrap();
    let config = rustls::ServerConfig::builder_with_provider(rustls::crypto::ring::default_provider().into())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], key.serialize_der().try_into().unwrap())
        .unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        let (mut socket, _) = listener.accept().unwrap();
        let mut session = rustls::ServerConnection::new(config.into()).unwrap();
        let mut stream = rustls::Stream::new(&mut session, &mut socket);
        let mut request = Vec::new();
        let mut byte = [0];
        while !request.ends_with(b"\r\n\r\n") && stream.read(&mut byte).unwrap_or(0) > 0 {
            request.push(byte[0]);
        }
        let _ = stream.write_all(answer.as_bytes());
        session.send_close_notify();
        let _ = session.write_tls(&mut socket);
    });
    let now = SystemTime::now().max(UNIX_EPOCH);
    (address, Tls::new(Trust::Pem(authority.pem().into_bytes().into()), Some(Arc::new(move || now))))
}

#[test]
fn what_was_asked_for_in_private_is_not_taken_from_the_open() {
    let folder = tempfile::tempdir().unwrap();
    let get = |address: SocketAddr, tls: &Tls, name: &str| {
        let what = download(&format!("https://{address}/file?token=hunter2"), &folder.path().join(name), None);
        let fetch = PortableFetch::new("test/1".into(), tls.clone());
        smol::block_on(fetch.download(&what, &Progress::default()))
    };
    let (address, tls) = encrypted("HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\n0123");
    assert_eq!(get(address, &tls, "private").unwrap().len, 4, "an honest one, to know that TLS works here");
    let (address, tls) =
        encrypted("HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:9/file\r\ncontent-length: 0\r\n\r\n");
    let error = get(address, &tls, "open").unwrap_err().to_string();
    assert!(error.contains("redirects from https to plain http") && !error.contains("hunter2"), "{error}");
    let (address, _) = encrypted("HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\n0123");
    let error = get(address, &tls, "strange").unwrap_err().to_string();
    assert!(error.contains("certificate is not trusted"), "somebody in the middle: {error}");
}

#[test]
fn downloads_take_the_proxy_of_the_environment_and_nothing_of_this_machine_does() {
    static PROXY: std::sync::OnceLock<String> = std::sync::OnceLock::new();
    let folder = tempfile::tempdir().unwrap();
    // Connects everybody to itself: the file comes through the tunnel.
    let proxy = Server::playing(vec![Box::new(|request, stream| {
        assert!(request.starts_with("CONNECT fleet.invalid:80 "), "{request}");
        let _ = stream.write_all(b"HTTP/1.1 200 Connected\r\n\r\n");
        let mut asked = String::new();
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        while reader.read_line(&mut asked).unwrap_or(0) > 0 && !asked.ends_with("\r\n\r\n") {}
        assert!(asked.starts_with("GET /file "), "{asked}");
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\n0123");
    })]);
    PROXY.set(proxy.url("")).unwrap();
    let fetch = PortableFetch {
        environment: |name| (name == "HTTP_PROXY").then(|| PROXY.get().cloned()).flatten(),
        ..PortableFetch::new("test/1".into(), Tls::default())
    };
    let get = |url: &str, name: &str| {
        let what = download(url, &folder.path().join(name), None);
        smol::block_on(fetch.download(&what, &Progress::default()))
    };
    // Its name is nobody's: only the proxy can have answered.
    assert_eq!(get("http://fleet.invalid/file", "through").unwrap().len, 4);
    let own = Server::playing(vec![answer("200 OK", &[], b"own")]);
    assert_eq!(get(&own.url("/file"), "own").unwrap().len, 3);
    assert_eq!(proxy.asked.lock().unwrap().len(), 1);
}
