//! The blocking client against a server that behaves, misbehaves and disappears.

mod server;

use std::{
    io,
    net::TcpListener,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
        mpsc,
    },
    thread,
    time::Duration,
};

use api::{
    Secret,
    client::{CallError, CallOptions, Client, Code, Credentials, ProxyChoice},
    pb::{
        google::rpc,
        platform::{
            app::v1::{self as app, app_service, robot_service, upload_module_file_request::ModuleFile},
            common::v1::LogEntry,
        },
        proto::rpc::v1 as auth,
    },
};
use prost::Message;
use server::{CLOSE, Line, Request, Server, answer, begin, frame, http, message, piece, status, trailers_only};

fn client(server: &Server) -> Client {
    Client::builder(server.url().parse().unwrap()).proxy(ProxyChoice::Direct).build().unwrap()
}

fn with_key(server: &Server) -> Client {
    let credentials = Credentials::ApiKey { id: "id".into(), key: Secret::from("key") };
    Client::builder(server.url().parse().unwrap()).credentials(credentials).proxy(ProxyChoice::Direct).build().unwrap()
}

fn ask(client: &Client, options: CallOptions) -> Result<app::NeedsRestartResponse, CallError> {
    client.unary(robot_service::NEEDS_RESTART, &app::NeedsRestartRequest { id: "part".into() }, options)
}

fn yes() -> app::NeedsRestartResponse {
    app::NeedsRestartResponse { id: "part".into(), must_restart: true, restart_check_interval: None }
}

fn tail() -> app::TailRobotPartLogsRequest {
    app::TailRobotPartLogsRequest { id: "part".into(), ..Default::default() }
}

fn line_of_log(text: &str) -> app::TailRobotPartLogsResponse {
    app::TailRobotPartLogsResponse { logs: vec![LogEntry { message: text.into(), ..Default::default() }] }
}

#[test]
fn a_question_is_answered() {
    let server = Server::start(|_, line| answer(line, &[message(&yes()), status(0, "")]));
    let client = client(&server);
    for _ in 0..3 {
        assert_eq!(ask(&client, CallOptions::default()).unwrap(), yes());
    }
    let seen = server.seen.lock().unwrap();
    assert_eq!(seen[0].line, "POST /platform.app.v1.RobotService/NeedsRestart");
    assert_eq!(seen[0].messages::<app::NeedsRestartRequest>(), [app::NeedsRestartRequest { id: "part".into() }]);
    assert_eq!(seen[0].header("content-type"), Some("application/grpc-web+proto"));
    assert_eq!(seen[0].header("x-grpc-web"), Some("1"));
    assert_eq!(seen[0].header("authorization"), None);
    let timeout = seen[0].header("grpc-timeout").and_then(|text| text.strip_suffix('m')).unwrap();
    assert!((1..=30_000).contains(&timeout.parse::<u32>().unwrap()), "{timeout}");
    assert_eq!(*server.connections.lock().unwrap(), 1, "one connection serves one call after the other");
}

#[test]
fn a_chunked_answer_keeps_the_connection_too() {
    let server = Server::start(|_, line| {
        begin(line);
        piece(line, &message(&yes()));
        piece(line, &status(0, ""));
        piece(line, b"");
    });
    let client = client(&server);
    for _ in 0..3 {
        assert_eq!(ask(&client, CallOptions::default()).unwrap(), yes());
    }
    assert_eq!(*server.connections.lock().unwrap(), 1);
}

type Answers = fn(&mut dyn Line);

/// What a server sends, and what the caller hears of it.
#[test]
fn every_answer_has_a_meaning() {
    let table: [(&str, Answers, &str, Code); 23] = [
        (
            "status in the headers",
            |l| trailers_only(l, 5, "no%20such%20part%21"),
            "no such part! (NOT_FOUND)",
            Code::NotFound,
        ),
        (
            "status in the last frame",
            |l| answer(l, &[status(9, "not%0Anow")]),
            "not\nnow (FAILED_PRECONDITION)",
            Code::FailedPrecondition,
        ),
        (
            "refused after a message",
            |l| answer(l, &[message(&yes()), status(13, "oh")]),
            "oh (INTERNAL)",
            Code::Internal,
        ),
        ("a code of the future", |l| trailers_only(l, 99, "new"), "new (UNKNOWN)", Code::Unknown),
        ("no message", |l| answer(l, &[status(0, "")]), "it contains no message", Code::Internal),
        ("OK in the headers and nothing else", |l| trailers_only(l, 0, ""), "it contains no message", Code::Internal),
        (
            "two messages",
            |l| answer(l, &[message(&yes()), message(&yes()), status(0, "")]),
            "more than one message",
            Code::Internal,
        ),
        ("no last frame", |l| answer(l, &[message(&yes())]), "it ends without a status", Code::Internal),
        ("nothing at all", |l| answer(l, &[]), "it ends without a status", Code::Internal),
        (
            "not protobuf",
            |l| answer(l, &[frame(0, b"\xff\xff\xff"), status(0, "")]),
            "a message cannot be read",
            Code::Internal,
        ),
        (
            "too large",
            |l| answer(l, &[vec![0, 0x7f, 0, 0, 0]]),
            "2130706432 bytes; at most 4194304",
            Code::ResourceExhausted,
        ),
        ("compressed", |l| answer(l, &[frame(1, b"x")]), "compressed", Code::Internal),
        (
            "cut by length",
            |l| {
                l.write_all(b"HTTP/1.1 200 OK\r\ncontent-type: application/grpc-web\r\ncontent-length: 50\r\n\r\n\0\0\0\0\x09ab").unwrap();
                l.write_all(CLOSE).unwrap();
            },
            "the connection ended in the middle",
            Code::Internal,
        ),
        (
            "cut between chunks",
            |l| {
                begin(l);
                piece(l, &message(&yes()));
                l.write_all(CLOSE).unwrap();
            },
            "the connection ended in the middle",
            Code::Internal,
        ),
        ("hung up", |l| l.write_all(CLOSE).unwrap(), "it closed the connection", Code::Unavailable),
        (
            "captive portal",
            |l| http(l, "200 OK", "content-type: text/html\r\n", b"<html>Welcome to the hotel"),
            "does not answer like a fleet server (it sent text/html)",
            Code::Unavailable,
        ),
        (
            "captive portal, elsewhere",
            |l| http(l, "302 Found", "location: http://hotel.example/\r\n", b""),
            "it redirects to http://hotel.example/",
            Code::Unavailable,
        ),
        (
            "not HTTP",
            |l| {
                l.write_all(b"SSH-2.0-OpenSSH_9.2\r\n\r\n").unwrap();
                l.write_all(CLOSE).unwrap();
            },
            "does not answer like a fleet server",
            Code::Unavailable,
        ),
        ("HTTP 401", |l| http(l, "401 Unauthorized", "", b""), "HTTP status 401", Code::Unauthenticated),
        (
            "HTTP 403",
            |l| http(l, "403 Forbidden", "content-type: text/html\r\n", b"<html>"),
            "HTTP status 403",
            Code::PermissionDenied,
        ),
        ("HTTP 404", |l| http(l, "404 Not Found", "", b""), "HTTP status 404", Code::Unimplemented),
        ("HTTP 503", |l| http(l, "503 Service Unavailable", "", b""), "HTTP status 503", Code::Unavailable),
        (
            "gRPC status wins over HTTP's",
            |l| http(l, "503 Service Unavailable", "grpc-status: 8\r\ngrpc-message: later\r\n", b""),
            "later (RESOURCE_EXHAUSTED)",
            Code::ResourceExhausted,
        ),
    ];
    for (case, write, expected, code) in table {
        let server = Server::start(move |_, line| write(line));
        let error = ask(&client(&server), CallOptions::default()).expect_err(case);
        assert!(error.to_string().contains(expected), "{case}: {error}");
        assert_eq!(error.code(), code, "{case}: {error:?}");
    }
}

/// Somebody in between answers with pages for browsers; a person at a terminal gets a sentence.
#[test]
fn a_download_that_somebody_else_answers() {
    let table: [(&str, Answers, &str); 3] = [
        (
            "elsewhere",
            |l| http(l, "301 Moved Permanently", "location: https://fleet.example/x\r\n", b"<html>"),
            "does not answer like a fleet server (it redirects to https://fleet.example/x)",
        ),
        (
            "a page",
            |l| http(l, "502 Bad Gateway", "content-type: text/html\r\n", b"<html>"),
            "HTTP status 502 Bad Gateway from http://127.0.0.1",
        ),
        ("a word of the server", |l| http(l, "403 Forbidden", "", b"not yours\n"), "not yours (PERMISSION_DENIED)"),
    ];
    for (case, write, expected) in table {
        let server = Server::start(move |_, line| write(line));
        let refused = client(&server).download("/x", 0, "", CallOptions::default()).err().expect(case).to_string();
        assert!(refused.contains(expected) && !refused.contains("<html>"), "{case}: {refused}");
    }
}

#[test]
fn details_of_a_refusal_are_kept() {
    let detail = prost_types::Any { type_url: "type.googleapis.com/x".into(), value: vec![1, 2, 255] };
    let encoded = rpc::Status { code: 3, message: "bad".into(), details: vec![detail.clone()] }.encode_to_vec();
    let text = base64(&encoded);
    let server = Server::start(move |_, line| {
        http(
            line,
            "200 OK",
            &format!("content-type: application/grpc-web\r\ngrpc-status: 3\r\ngrpc-status-details-bin: {text}\r\n"),
            b"",
        );
    });
    let error = ask(&client(&server), CallOptions::default()).unwrap_err();
    assert_eq!(error.status().unwrap().details, [detail]);
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for three in bytes.chunks(3) {
        let bits = three.iter().fold(0_u32, |bits, byte| bits << 8 | u32::from(*byte)) << (8 * (3 - three.len()));
        text.extend((0..=three.len()).map(|at| char::from(DIGITS[(bits >> (18 - 6 * at) & 63) as usize])));
    }
    text
}

#[test]
fn nobody_there() {
    // Bound and dropped: the port is free and nobody listens.
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let client = Client::builder(format!("http://{free}").parse().unwrap()).build().unwrap();
    let error = ask(&client, CallOptions::default()).unwrap_err();
    assert_eq!(
        error.to_string(),
        format!("cannot reach the server http://{free}: nothing listens there; check the address and the network")
    );
}

/// A handler that never answers, until the returned end is dropped.
fn silent() -> (mpsc::Sender<()>, mpsc::Receiver<()>, impl Fn(&Request, &mut dyn Line) + Send + Sync + 'static) {
    let (hold, held) = mpsc::channel::<()>();
    let (asked, heard) = mpsc::channel();
    let held = Mutex::new(held);
    (hold, heard, move |_: &Request, _: &mut dyn Line| {
        let _ = asked.send(());
        let _ = held.lock().unwrap().recv();
    })
}

#[test]
fn a_slow_server_meets_the_deadline() {
    let (_hold, heard, handler) = silent();
    let server = Server::start(handler);
    let options = CallOptions::idempotent().within(Duration::from_secs(2));
    let error = ask(&client(&server), options).unwrap_err();
    assert!(matches!(error, CallError::Deadline { limit, .. } if limit == Duration::from_secs(2)), "{error:?}");
    heard.recv().unwrap();
    assert_eq!(server.methods(), ["NeedsRestart"], "a missed deadline is not tried again");
}

#[test]
fn a_slow_body_meets_the_deadline() {
    let (hold, held) = mpsc::channel::<()>();
    let held = Mutex::new(held);
    let server = Server::start(move |_, line| {
        begin(line);
        piece(line, &message(&yes()));
        let _ = held.lock().unwrap().recv();
    });
    let error = ask(&client(&server), CallOptions::default().within(Duration::from_millis(100))).unwrap_err();
    assert!(matches!(error, CallError::Deadline { .. }), "{error:?}");
    drop(hold);
}

#[test]
fn an_idle_stream_is_given_up() {
    let (hold, held) = mpsc::channel::<()>();
    let held = Mutex::new(held);
    let server = Server::start(move |_, line| {
        begin(line);
        piece(line, &message(&line_of_log("one")));
        let _ = held.lock().unwrap().recv();
    });
    let options = CallOptions::lasting().idle_at_most(Duration::from_secs(2));
    let mut stream = client(&server).server_stream(app_service::TAIL_ROBOT_PART_LOGS, &tail(), options).unwrap();
    assert_eq!(stream.next().unwrap().unwrap(), line_of_log("one"));
    let error = stream.next().unwrap().unwrap_err();
    assert!(matches!(error, CallError::Deadline { limit, .. } if limit == Duration::from_secs(2)), "{error:?}");
    assert!(stream.next().is_none());
    drop(hold);
}

#[test]
fn a_stream_gives_each_message_when_it_comes() {
    let (received, next) = mpsc::channel::<()>();
    let next = Mutex::new(next);
    let server = Server::start(move |_, line| {
        begin(line);
        for text in ["one", "two", "three"] {
            let bytes = message(&line_of_log(text));
            // In two pieces, cut inside the header: frames need not fit chunks.
            piece(line, &bytes[..3]);
            piece(line, &bytes[3..]);
            // Nothing more is sent before the test has the message in its hands.
            next.lock().unwrap().recv().unwrap();
        }
        piece(line, &status(0, ""));
        piece(line, b"");
    });
    let stream =
        client(&server).server_stream(app_service::TAIL_ROBOT_PART_LOGS, &tail(), CallOptions::lasting()).unwrap();
    let mut texts = Vec::new();
    for response in stream {
        texts.push(response.unwrap().logs.remove(0).message);
        received.send(()).unwrap();
    }
    assert_eq!(texts, ["one", "two", "three"]);
    assert_eq!(server.seen.lock().unwrap()[0].header("grpc-timeout"), None);
}

#[test]
fn a_stream_may_end_badly() {
    let server = Server::start(|_, line| answer(line, &[message(&line_of_log("one")), status(7, "no longer yours")]));
    let mut stream =
        client(&server).server_stream(app_service::TAIL_ROBOT_PART_LOGS, &tail(), CallOptions::lasting()).unwrap();
    assert!(stream.next().unwrap().is_ok());
    assert_eq!(stream.next().unwrap().unwrap_err().code(), Code::PermissionDenied);
    assert!(stream.next().is_none());
}

#[test]
fn a_refused_stream_is_refused_at_once() {
    let server = Server::start(|_, line| trailers_only(line, 5, "no%20part"));
    let refused = client(&server).server_stream(app_service::TAIL_ROBOT_PART_LOGS, &tail(), CallOptions::lasting());
    assert_eq!(refused.err().unwrap().code(), Code::NotFound);
}

fn upload(pieces: usize) -> impl Iterator<Item = io::Result<app::UploadModuleFileRequest>> {
    (0..pieces).map(|number| {
        let file = ModuleFile::File(vec![u8::try_from(number % 251).unwrap(); 10_000].into());
        Ok(app::UploadModuleFileRequest { module_file: Some(file) })
    })
}

#[test]
fn many_messages_one_answer() {
    let server = Server::start(|_, line| {
        answer(line, &[message(&app::UploadModuleFileResponse { url: "there".into() }), status(0, "")]);
    });
    let response = client(&server).client_stream(app_service::UPLOAD_MODULE_FILE, upload(50), CallOptions::default());
    assert_eq!(response.unwrap().url, "there");
    let seen = server.seen.lock().unwrap();
    let sent = seen[0].messages::<app::UploadModuleFileRequest>();
    assert_eq!(sent, upload(50).map(Result::unwrap).collect::<Vec<_>>());
}

#[test]
fn an_unreadable_source_ends_the_upload_unfinished() {
    let server = Server::start(|_, line| answer(line, &[status(0, "")]));
    let messages = upload(2).chain([Err(io::Error::other("the disk is gone"))]);
    let error =
        client(&server).client_stream(app_service::UPLOAD_MODULE_FILE, messages, CallOptions::default()).unwrap_err();
    let CallError::Input(cause) = error else { panic!("{error:?}") };
    assert_eq!(cause.to_string(), "the disk is gone");
    assert_eq!(server.methods(), Vec::<String>::new(), "the server saw no end of the stream, so no request");
}

/// Calls that hang are ended from another thread, and the client is as good as new afterwards.
#[test]
fn cancelling() {
    let (_hold, heard, handler) = silent();
    let first = AtomicUsize::new(0);
    let server = Server::start(move |request, line| match first.fetch_add(1, Ordering::SeqCst) {
        0 => handler(request, line),
        1 => {
            begin(line);
            piece(line, &message(&line_of_log("one")));
            handler(request, line);
        }
        _ => answer(line, &[message(&yes()), status(0, "")]),
    });
    let client = client(&server);

    let (there, call) = (client.clone(), CallOptions::idempotent());
    let hanging = thread::spawn(move || ask(&there, call));
    heard.recv().unwrap();
    client.cancel();
    assert!(matches!(hanging.join().unwrap(), Err(CallError::Cancelled)));

    let mut stream = client.server_stream(app_service::TAIL_ROBOT_PART_LOGS, &tail(), CallOptions::lasting()).unwrap();
    assert!(stream.next().unwrap().is_ok());
    let hanging = thread::spawn(move || stream.next());
    heard.recv().unwrap();
    client.cancel();
    assert!(matches!(hanging.join().unwrap(), Some(Err(CallError::Cancelled))));

    assert_eq!(ask(&client, CallOptions::default()).unwrap(), yes());
}

#[test]
fn cancelling_ends_the_pause_before_a_repetition() {
    let (asked, heard) = mpsc::channel();
    let server = Server::start(move |_, line| {
        asked.send(()).unwrap();
        trailers_only(line, 14, "starting");
    });
    let client = client(&server);
    let there = client.clone();
    let hanging = thread::spawn(move || ask(&there, CallOptions::idempotent()));
    heard.recv().unwrap();
    client.cancel();
    assert!(matches!(hanging.join().unwrap(), Err(CallError::Cancelled)));
}

/// Accepts tokens of the given number and above, and gives out rising ones.
fn keeper(valid_from: Arc<AtomicUsize>) -> impl Fn(&Request, &mut dyn Line) + Send + Sync + 'static {
    let given = AtomicUsize::new(0);
    move |request, line| {
        if request.is("Authenticate") {
            let token = given.fetch_add(1, Ordering::SeqCst).to_string();
            return answer(line, &[message(&auth::AuthenticateResponse { access_token: token }), status(0, "")]);
        }
        let token = request
            .header("authorization")
            .and_then(|text| text.strip_prefix("Bearer "))
            .and_then(|text| text.parse().ok());
        match token {
            Some(token) if valid_from.load(Ordering::SeqCst) <= token => {
                answer(line, &[message(&yes()), status(0, "")])
            }
            _ => trailers_only(line, 16, "token%20unknown"),
        }
    }
}

#[test]
fn one_token_serves_many_calls_and_a_refused_one_is_renewed() {
    let valid_from = Arc::new(AtomicUsize::new(0));
    let server = Server::start(keeper(valid_from.clone()));
    let client = with_key(&server);
    for _ in 0..2 {
        ask(&client, CallOptions::default()).unwrap();
    }
    valid_from.store(1, Ordering::SeqCst);
    ask(&client, CallOptions::default()).expect("renewed, although not idempotent: the server looked at nothing else");
    assert_eq!(
        server.methods(),
        ["Authenticate", "NeedsRestart", "NeedsRestart", "NeedsRestart", "Authenticate", "NeedsRestart"]
    );
    let seen = server.seen.lock().unwrap();
    let login = &seen[0].messages::<auth::AuthenticateRequest>()[0];
    let credentials = login.credentials.as_ref().unwrap();
    assert_eq!(
        (login.entity.as_str(), credentials.r#type.as_str(), credentials.payload.as_str()),
        ("id", "api-key", "key")
    );
    assert_eq!(seen[0].header("authorization"), None);
}

#[test]
fn a_token_is_renewed_once_and_not_for_ever() {
    let server = Server::start(keeper(Arc::new(AtomicUsize::new(usize::MAX))));
    let client = with_key(&server);
    for expected in [2, 3] {
        let before = server.methods().len();
        let error = ask(&client, CallOptions::idempotent()).unwrap_err();
        assert_eq!(error.code(), Code::Unauthenticated);
        // First call: exchange and try. Later ones: try, exchange, try.
        assert_eq!(server.methods().len() - before, expected);
    }
}

#[test]
fn refused_credentials_are_told_apart() {
    let server = Server::start(|_, line| trailers_only(line, 16, "no%20such%20key"));
    let error = ask(&with_key(&server), CallOptions::idempotent()).unwrap_err();
    assert!(
        matches!(&error, CallError::CredentialsRefused { status, .. } if status.message == "no such key"),
        "{error:?}"
    );
    assert_eq!(server.methods(), ["Authenticate"]);
    assert_eq!(with_key(&server).authenticate(CallOptions::default()).unwrap_err().code(), Code::Unauthenticated);
}

#[test]
fn repetition_is_the_callers_word() {
    let table: [(&str, Answers, bool, usize); 5] = [
        ("unavailable, may repeat", |l| trailers_only(l, 14, ""), true, 4),
        ("unavailable, may not", |l| trailers_only(l, 14, ""), false, 1),
        ("hung up, may repeat", |l| l.write_all(CLOSE).unwrap(), true, 4),
        ("hung up, may not", |l| l.write_all(CLOSE).unwrap(), false, 1),
        ("refused for good", |l| trailers_only(l, 3, ""), true, 1),
    ];
    for (case, write, idempotent, tries) in table {
        let server = Server::start(move |_, line| write(line));
        let options = CallOptions { idempotent, ..CallOptions::default() };
        ask(&client(&server), options).expect_err(case);
        assert_eq!(server.methods().len(), tries, "{case}");
    }
}

#[test]
fn a_server_that_comes_back_is_found() {
    let times = AtomicUsize::new(0);
    let server = Server::start(move |_, line| match times.fetch_add(1, Ordering::SeqCst) {
        0 => line.write_all(CLOSE).unwrap(),
        1 => trailers_only(line, 14, "starting"),
        _ => answer(line, &[message(&yes()), status(0, "")]),
    });
    assert_eq!(ask(&client(&server), CallOptions::idempotent()).unwrap(), yes());
}

#[test]
fn the_largest_message_is_the_callers_choice() {
    let server = Server::start(|_, line| answer(line, &[message(&yes()), status(0, "")]));
    let size = yes().encoded_len() as u64;
    for (limit, fits) in [(size, true), (size - 1, false)] {
        let client = Client::builder(server.url().parse().unwrap()).message_bytes_max(limit).build().unwrap();
        assert_eq!(ask(&client, CallOptions::default()).is_ok(), fits, "{limit}");
    }
}

#[test]
fn nothing_secret_is_printed() {
    let server = Server::start(|_, line| trailers_only(line, 16, "no"));
    let error = ask(&with_key(&server), CallOptions::default()).unwrap_err();
    assert!(!format!("{error:?} {error}").contains("key\""), "{error:?}");
}
