//! The uplink against a server of a few lines on a loopback socket.

use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{Shutdown, TcpListener, TcpStream},
    path::Path,
    sync::{
        atomic::{AtomicBool, AtomicUsize, Ordering},
        mpsc,
    },
};

use api::pb::proto::rpc::v1 as auth;
use prost_types::{ListValue, Struct, Value, value::Kind};
use smol::future::FutureExt as _;

use super::*;

/// What the server does with a call.
type Handler = dyn Fn(&str, &[u8]) -> Reply + Send + Sync;

enum Reply {
    Message(Vec<u8>),
    Status(u32),
    /// Says nothing until the peer is gone, then tells.
    Silence(mpsc::Sender<()>),
    HangUp,
}

struct Server {
    address: String,
    connections: Arc<AtomicUsize>,
    over: Arc<AtomicBool>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Server {
    fn start(handler: impl Fn(&str, &[u8]) -> Reply + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = format!("http://{}", listener.local_addr().expect("bound"));
        let (connections, over) = (Arc::<AtomicUsize>::default(), Arc::<AtomicBool>::default());
        let handler: Arc<Handler> = Arc::new(handler);
        let (seen, stop) = (Arc::clone(&connections), Arc::clone(&over));
        let thread = thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                if stop.load(Ordering::SeqCst) {
                    return;
                }
                seen.fetch_add(1, Ordering::SeqCst);
                let handler = Arc::clone(&handler);
                thread::spawn(move || converse(stream, &*handler));
            }
        });
        Server { address, connections, over, thread: Some(thread) }
    }

    fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.over.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect(self.address.trim_start_matches("http://"));
        if let Some(thread) = self.thread.take() {
            thread.join().expect("the listener only listens");
        }
    }
}

fn converse(stream: TcpStream, handler: &Handler) {
    let mut reader = BufReader::new(stream.try_clone().expect("a socket"));
    let mut writer = stream;
    loop {
        let (mut path, mut length) = (String::new(), 0);
        let mut line = String::new();
        while reader.read_line(&mut line).is_ok_and(|read| read > 2) {
            if let Some(rest) = line.strip_prefix("POST ") {
                path = rest.split(' ').next().unwrap_or_default().to_owned();
            }
            if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().unwrap_or(0);
            }
            line.clear();
        }
        if path.is_empty() {
            return;
        }
        let mut body = vec![0; length];
        if reader.read_exact(&mut body).is_err() {
            return;
        }
        let framed = |flag: u8, content: &[u8]| {
            let length = u32::try_from(content.len()).expect("small");
            [&[flag][..], &length.to_be_bytes(), content].concat()
        };
        let body = match handler(&path, body.get(5..).unwrap_or_default()) {
            Reply::Message(message) => [framed(0, &message), framed(0x80, b"grpc-status:0\r\n")].concat(),
            Reply::Status(code) => framed(0x80, format!("grpc-status:{code}\r\ngrpc-message:no\r\n").as_bytes()),
            Reply::Silence(gone) => {
                let _ = reader.read(&mut [0]);
                let _ = gone.send(());
                return;
            }
            Reply::HangUp => {
                let _ = writer.shutdown(Shutdown::Both);
                return;
            }
        };
        let head = format!(
            "HTTP/1.1 200 OK\r\ncontent-type: application/grpc-web+proto\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        if writer.write_all(&[head.as_bytes(), &body].concat()).is_err() {
            return;
        }
    }
}

fn is_authenticate(path: &str) -> bool {
    path == "/proto.rpc.v1.AuthService/Authenticate"
}

fn token() -> Reply {
    Reply::Message(auth::AuthenticateResponse { access_token: "token".into() }.encode_to_vec())
}

fn uplink(path: &Path) -> Uplink {
    Uplink::new(Settings {
        credentials: path.to_owned(),
        plain_http: false,
        tls: Tls::default(),
        proxy: ProxyChoice::Direct,
        program: "test/1".into(),
    })
}

fn write_identity(path: &Path, address: &str, part_id: &str) {
    // Replaced as an editor does: another file under the same name.
    let other = path.with_extension("new");
    let text = format!(r#"{{"cloud": {{"app_address": "{address}", "id": "{part_id}", "secret": "s"}}}}"#);
    fs::write(&other, text).expect("written");
    fs::rename(&other, path).expect("renamed");
}

fn config(uplink: &Uplink) -> Result<DeviceAgentConfigResponse, CloudError> {
    smol::block_on(uplink.device_config(DeviceAgentConfigRequest::default()))
}

#[test]
fn calls_share_one_connection_and_one_token_and_the_thread_ends_when_idle() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("platform.json");
    let exchanges = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&exchanges);
    let server = Server::start(move |path, body| {
        if is_authenticate(path) {
            counted.fetch_add(1, Ordering::SeqCst);
            return token();
        }
        match path.rsplit('/').next() {
            Some("DeviceAgentConfig") => {
                let request = DeviceAgentConfigRequest::decode(body).expect("it was encoded so");
                let interval = prost_types::Duration { seconds: i64::from(request.id == "p"), nanos: 0 };
                let check_interval = Some(interval);
                Reply::Message(DeviceAgentConfigResponse { check_interval, ..Default::default() }.encode_to_vec())
            }
            Some("NeedsRestart") => {
                Reply::Message(NeedsRestartResponse { must_restart: true, ..Default::default() }.encode_to_vec())
            }
            Some("UploadLogs") => Reply::Message(UploadLogsResponse { acknowledged: 4 }.encode_to_vec()),
            _ => Reply::Message(Vec::new()),
        }
    });
    write_identity(&path, &server.address, "p");
    let uplink = uplink(&path);
    assert_eq!(uplink.part_id().as_deref(), Some("p"));
    smol::block_on(async {
        for _ in 0..3 {
            let request = DeviceAgentConfigRequest { id: "p".into(), ..Default::default() };
            let response = uplink.device_config(request).await.expect("answered");
            assert_eq!(response.check_interval.map(|interval| interval.seconds), Some(1));
            assert!(uplink.needs_restart(NeedsRestartRequest::default()).await.expect("answered").must_restart);
            uplink.report(ReportRequest::default()).await.expect("answered");
            let logs = uplink.upload_logs(UploadLogsRequest::default()).await.expect("answered");
            assert_eq!(logs.acknowledged, 4);
        }
    });
    assert_eq!((server.connections(), exchanges.load(Ordering::SeqCst)), (1, 1));
    // Ends by itself; another call starts another thread on the same connection.
    while uplink.bridge.shared.queue().served {
        thread::yield_now();
    }
    config(&uplink).expect("answered");
    assert_eq!(server.connections(), 1);
    // Another identity: another connection.
    write_identity(&path, &server.address, "q");
    assert_eq!(uplink.part_id().as_deref(), Some("q"));
    config(&uplink).expect("answered");
    assert_eq!((server.connections(), exchanges.load(Ordering::SeqCst)), (2, 2));
}

#[test]
fn what_goes_wrong_is_told_apart() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("platform.json");
    let uplink = uplink(&path);
    let missing = config(&uplink).expect_err("there is no identity");
    assert!(matches!(&missing, CloudError::NoIdentity { reason } if reason.contains("does not exist")), "{missing}");
    assert_eq!(uplink.part_id(), None);
    fs::write(&path, "{").expect("written");
    assert!(matches!(config(&uplink), Err(CloudError::NoIdentity { .. })));

    type Expected = fn(&CloudError) -> bool;
    type Answers = fn(&str) -> Reply;
    let table: [(&str, Answers, Expected); 6] = [
        (
            "the secret is not known",
            |_| Reply::Status(16),
            |error| matches!(error, CloudError::CredentialsRefused { .. }),
        ),
        (
            "the token is refused again and again",
            |path| if is_authenticate(path) { token() } else { Reply::Status(16) },
            |error| matches!(error, CloudError::CredentialsRefused { .. }),
        ),
        (
            "an operation that is not there",
            |path| if is_authenticate(path) { token() } else { Reply::Status(12) },
            |error| matches!(error, CloudError::Refused { code: 12, .. }),
        ),
        (
            "a server that goes down",
            |path| if is_authenticate(path) { token() } else { Reply::Status(14) },
            |error| matches!(error, CloudError::Unreachable { .. }),
        ),
        ("a connection that breaks", |_| Reply::HangUp, |error| matches!(error, CloudError::Unreachable { .. })),
        (
            "garbage",
            |path| if is_authenticate(path) { token() } else { Reply::Message(vec![0xff; 9]) },
            |error| matches!(error, CloudError::Unreachable { .. }),
        ),
    ];
    for (case, reply, expected) in table {
        let server = Server::start(move |path, _| reply(path));
        write_identity(&path, &server.address, "p");
        let error = config(&uplink).expect_err(case);
        assert!(expected(&error), "{case}: {error:?}");
        assert!(!format!("{error}{error:?}").contains("token"), "{case}: {error:?}");
    }
    let gone = Server::start(|_, _| Reply::HangUp).address.clone();
    write_identity(&path, &gone, "p");
    assert!(matches!(config(&uplink), Err(CloudError::Unreachable { .. })), "nobody listens there any more");
}

#[test]
fn a_dropped_wait_cuts_the_call_off_and_the_next_one_works() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("platform.json");
    let (arrived, arrivals) = mpsc::channel();
    let (gone, departures) = mpsc::channel();
    let silent = Arc::new(AtomicBool::new(true));
    let is_silent = Arc::clone(&silent);
    let server = Server::start(move |path, _| {
        if is_authenticate(path) {
            return token();
        }
        let _ = arrived.send(());
        match is_silent.load(Ordering::SeqCst) {
            true => Reply::Silence(gone.clone()),
            false => Reply::Message(Vec::new()),
        }
    });
    write_identity(&path, &server.address, "p");
    let uplink = uplink(&path);
    smol::block_on(async {
        let answered = async { uplink.device_config(DeviceAgentConfigRequest::default()).await.map(drop) };
        let given_up = async {
            smol::unblock(move || arrivals.recv()).await.expect("the call arrives");
            Err(CloudError::Unreachable { reason: "given up".into() })
        };
        assert!(answered.or(given_up).await.is_err());
    });
    departures.recv().expect("the connection is closed, not kept for the whole limit");
    silent.store(false, Ordering::SeqCst);
    config(&uplink).expect("answered");
}

#[test]
fn calls_that_nobody_waits_for_are_not_made_and_the_queue_is_bounded() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("platform.json");
    let (gone, _departures) = mpsc::channel();
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&calls);
    let (arrived, arrivals) = mpsc::channel();
    let server = Server::start(move |path, _| {
        if is_authenticate(path) {
            return token();
        }
        counted.fetch_add(1, Ordering::SeqCst);
        let _ = arrived.send(());
        Reply::Silence(gone.clone())
    });
    write_identity(&path, &server.address, "p");
    let uplink = uplink(&path);
    let first = uplink.device_config(DeviceAgentConfigRequest::default());
    let mut first = Box::pin(first);
    smol::block_on(async {
        assert!(smol::future::poll_once(&mut first).await.is_none());
        arrivals.recv().expect("the first call arrives");
        let mut waiting: Vec<_> = (0..QUEUE_MAX).map(|_| Box::pin(uplink.report(ReportRequest::default()))).collect();
        for call in &mut waiting {
            assert!(smol::future::poll_once(call).await.is_none());
        }
        let full = uplink.report(ReportRequest::default()).await.expect_err("the queue is full");
        assert!(full.to_string().contains("waiting"), "{full}");
        drop(waiting);
        assert_eq!(uplink.bridge.shared.queue().jobs.len(), 0);
    });
    drop(first);
    while uplink.bridge.shared.queue().served {
        thread::yield_now();
    }
    assert_eq!(calls.load(Ordering::SeqCst), 1);
}

#[test]
fn the_deepest_message_fits_onto_the_stack_of_the_thread() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("platform.json");
    let server = Server::start(|path, _| {
        if is_authenticate(path) {
            return token();
        }
        let mut value = Value { kind: Some(Kind::BoolValue(true)) };
        // As deep as messages may lie in each other when they are decoded.
        for _ in 0..48 {
            value = Value { kind: Some(Kind::ListValue(ListValue { values: vec![value] })) };
        }
        let advanced_settings = Some(Struct { fields: [("a".to_owned(), value)].into() });
        Reply::Message(DeviceAgentConfigResponse { advanced_settings, ..Default::default() }.encode_to_vec())
    });
    write_identity(&path, &server.address, "p");
    let response = config(&uplink(&path)).expect("answered");
    assert!(response.advanced_settings.is_some());
}
