//! Who comes in drop by drop: what it hears, and that it is cut off.

use std::{convert::Infallible, fs, time::Duration};

use api::{
    Secret,
    pb::platform::app::v1::{upload_module_file_request::ModuleFile, *},
};
use bytes::Bytes;
use fleet::{limits::Waits, sign_in::Settings};
use http::{HeaderMap, HeaderName, HeaderValue, Request};
use http_body_util::StreamBody;
use hyper::{body::Frame, client::conn::http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message;
use serde_json::json;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    sync::mpsc,
    time::{sleep, timeout},
};
use tokio_stream::{StreamExt, wrappers::ReceiverStream};
use tonic::{Code, Status};
use tonic_types::StatusExt;

use super::world::{PATIENCE, World, http::Answer};

const OPERATION: &str = "/platform.app.v1.AppService/UpdateRobotPart";
/// What is promised, of which a byte comes at a time.
const PROMISED: u32 = 1_000_000;
const DROP_EVERY: Duration = Duration::from_millis(5);
/// For callers that say so, and for all where a server is told.
const SHORT: Duration = Duration::from_millis(200);

/// The first bytes of a message in gRPC's framing.
fn frame() -> Vec<u8> {
    [&[0][..], &PROMISED.to_be_bytes(), b"x"].concat()
}

/// An operation over HTTP/2. Waits until the server says that it takes no more of it, too.
async fn by_grpc(world: &World, path: &str, token: &str, limit: Option<&str>, begin: Vec<u8>) -> Status {
    let socket = TcpStream::connect(world.server.address).await.unwrap();
    let (mut client, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(socket)).await.unwrap();
    let connection = tokio::spawn(connection);
    let (drops, came) = mpsc::channel(1);
    let dripping = tokio::spawn(async move {
        let mut next = Bytes::from(begin);
        while drops.send(next).await.is_ok() {
            next = Bytes::from_static(b"x");
            sleep(DROP_EVERY).await;
        }
    });
    let body = StreamBody::new(ReceiverStream::new(came).map(|piece| Ok::<_, Infallible>(Frame::data(piece))));
    let mut request = Request::post(format!("http://fleet.test{path}"))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .header("authorization", format!("Bearer {token}"));
    if let Some(limit) = limit {
        request = request.header("grpc-timeout", limit);
    }
    let answer = client.send_request(request.body(body).unwrap());
    let answer = timeout(PATIENCE, answer).await.expect("it is answered").unwrap();
    timeout(PATIENCE, dripping).await.expect("nobody takes more of it").unwrap();
    connection.abort();
    Status::from_header_map(answer.headers()).expect("a status")
}

/// Over HTTP/1.1: drips until the server closes, and returns what it said.
async fn dripped(socket: TcpStream, begin: &[u8], drop: &[u8]) -> Vec<u8> {
    let (mut reading, mut writing) = socket.into_split();
    let dripping = async {
        let mut next = begin;
        // Who does not listen any more may still have said something.
        while writing.write_all(next).await.is_ok() {
            next = drop;
            sleep(DROP_EVERY).await;
        }
        std::future::pending::<()>().await;
    };
    let mut said = Vec::new();
    tokio::select! {
        read = timeout(PATIENCE, reading.read_to_end(&mut said)) => drop_error(read.expect("it is cut off")),
        () = dripping => {}
    }
    said
}

/// A connection that is reset has ended like one that is closed.
fn drop_error(_: std::io::Result<usize>) {}

async fn by_http(world: &World, path: &str, headers: &[(&str, &str)], begin: &[u8]) -> Answer {
    let mut head = format!("POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n", PROMISED + 5);
    headers.iter().for_each(|(name, value)| head += &format!("{name}: {value}\r\n"));
    let socket = TcpStream::connect(world.server.address).await.unwrap();
    let said = dripped(socket, &[head.as_bytes(), b"\r\n", begin].concat(), b"x").await;
    let end = said.windows(4).position(|four| four == b"\r\n\r\n").expect("an answer, and not only the end");
    let head = String::from_utf8_lossy(&said[..end]).into_owned();
    let answer =
        Answer { status: head.split(' ').nth(1).unwrap().parse().unwrap(), head, body: said[end + 4..].into() };
    assert!(answer.head.to_lowercase().contains("connection: close"), "{}", answer.head);
    answer
}

async fn by_web(world: &World, token: &str, limit: Option<&str>) -> Status {
    let token = format!("Bearer {token}");
    let mut headers = vec![("Content-Type", "application/grpc-web+proto"), ("Authorization", &*token)];
    headers.extend(limit.map(|limit| ("grpc-timeout", limit)));
    let answer = by_http(world, OPERATION, &headers, &frame()).await;
    assert_eq!(answer.status, 200, "{}", answer.head);
    let mut headers = HeaderMap::new();
    for (name, value) in answer.head.lines().filter_map(|line| line.split_once(": ")) {
        headers.insert(HeaderName::try_from(name).unwrap(), HeaderValue::try_from(value).unwrap());
    }
    Status::from_header_map(&headers).unwrap_or_else(|| panic!("{}", answer.head))
}

async fn by_json(world: &World, token: &str, limit: Option<&str>) -> Answer {
    let token = format!("Bearer {token}");
    let mut headers = vec![("Content-Type", "application/json"), ("Authorization", &*token)];
    headers.extend(limit.map(|limit| ("connect-timeout-ms", limit)));
    by_http(world, OPERATION, &headers, br#"{"name": ""#).await
}

/// Every form of a call that does not come to its end, and what it hears.
async fn all_hear_that_it_took_too_long(world: &World, token: &str, said: Option<[&str; 3]>) {
    let [grpc, web, json] = said.map_or([None; 3], |limits| limits.map(Some));
    let grpc = by_grpc(world, OPERATION, token, grpc, frame());
    let (grpc, web, json) = tokio::join!(grpc, by_web(world, token, web), by_json(world, token, json));
    let text = "this was not done within 0.2 seconds: look whether it was, and try again";
    for status in [grpc, web] {
        assert_eq!((status.code(), status.message()), (Code::DeadlineExceeded, text));
        assert_eq!(status.get_details_error_info().unwrap().reason, "TOO_SLOW");
    }
    let told = json.json();
    assert_eq!((json.status, &told["code"], &told["message"]), (504, &json!("deadline_exceeded"), &json!(text)));
    assert_eq!(told["details"][0]["debug"]["reason"], json!("TOO_SLOW"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_does_not_come_to_its_end_hears_so_in_the_callers_time_and_in_the_servers() {
    let world = World::new().await;
    let token = world.owner("Acme").await.client.token.unwrap();
    all_hear_that_it_took_too_long(&world, &token, Some(["200m", "200m", "200"])).await;
    let World { folder, server } = world;
    server.stop().await;
    let people = Settings {
        issuer: "http://127.0.0.1:1".into(),
        client_id: "fleet".into(),
        client_secret: Some(Secret::new("s3cret")),
        authorities: None,
        address: "http://fleet.example.org".into(),
        key_lives: Duration::from_secs(60),
    };
    let world = World::again(folder, |options| {
        options.waits = Waits { call: SHORT, ..Waits::default() };
        options.sign_in = Some(people);
    });
    let world = world.await;
    all_hear_that_it_took_too_long(&world, &token, None).await;
    // A caller may wait for less than the server does, and not for more.
    all_hear_that_it_took_too_long(&world, &token, Some(["9H", "9H", "99999999"])).await;
    // What is read of strangers who speak plain HTTP.
    let answer = by_http(&world, "/sign-in/token", &[("Content-Type", "application/json")], br#"{"code": ""#).await;
    assert_eq!(answer.status, 504, "{}", answer.head);
    world.end().await;
}

/// An upload has all the time it needs, as long as it comes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_upload_of_which_hardly_anything_comes_is_given_up() {
    let world = World::with(|options| options.upload_idle = SHORT).await;
    let owner = world.owner("Acme").await;
    let create = CreateModuleRequest { organization_id: owner.organization.clone(), name: "camera".into() };
    let module: CreateModuleResponse = owner.client.app("CreateModule", create).await.unwrap();
    let info = ModuleFileInfo {
        module_id: module.module_id,
        version: "1.0.0".into(),
        platform: "any".into(),
        platform_tags: Vec::new(),
    };
    let info = UploadModuleFileRequest { module_file: Some(ModuleFile::ModuleFileInfo(info)) }.encode_to_vec();
    let info = [&[0][..], &u32::try_from(info.len()).unwrap().to_be_bytes(), &info].concat();
    // The beginning of a file of a megabyte, as a field of the next message.
    let file = [&[0][..], &(PROMISED + 4).to_be_bytes(), &[0x12, 0xc0, 0x84, 0x3d]].concat();
    let path = "/platform.app.v1.AppService/UploadModuleFile";
    let token = owner.client.token.as_deref().unwrap();
    let refused = by_grpc(&world, path, token, None, [&*info, &*file, b"x"].concat()).await;
    let told = refused.message();
    assert_eq!(refused.code(), Code::Unavailable, "{told}");
    assert!(told.contains("hardly anything arrived for 0.2 seconds: nothing was kept"), "{told}");
    assert_eq!(refused.get_details_error_info().unwrap().reason, "TRY_AGAIN");
    world.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_does_not_come_to_the_point_is_hung_up_on() {
    let folder = tempfile::tempdir().unwrap();
    let (certificate, key) = (folder.path().join("cert.pem"), folder.path().join("key.pem"));
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    fs::write(&certificate, made.cert.pem()).unwrap();
    fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    let waits = Waits { first_byte: SHORT, headers: SHORT, ..Waits::default() };
    let plain = World::with(|options| options.waits = waits).await;
    let balanced = World::with(|options| {
        options.waits = waits;
        options.balancers = vec!["127.0.0.1/32".parse().unwrap()];
    });
    let balanced = balanced.await;
    let tls = World::with(|options| {
        options.waits = waits;
        options.tls = Some((certificate, key));
    });
    let tls = tls.await;
    // A record that says how long the hello in it is, as far as it goes.
    let hello = [0x16, 3, 1, 0x3f, 0xff, 1, 0, 0x3f, 0xfb, 3, 3];
    let table: [(&str, &World, &[u8], &[u8]); 7] = [
        ("nothing", &plain, b"", b""),
        ("a method without end", &plain, b"G", b"E"),
        ("headers without end", &plain, b"GET /healthz HTTP/1.1\r\nHost: x\r\nX-Long: ", b"x"),
        ("the first words of HTTP/2", &plain, b"PRI * HTTP/2.0\r\n\r\nSM\r\n", b""),
        ("a TLS hello", &tls, &hello, b"\0"),
        ("nothing where TLS is spoken", &tls, b"", b""),
        ("whom a balancer brings", &balanced, b"PROXY TCP4 1", b"1"),
    ];
    for (what, world, begin, drop) in table {
        let socket = TcpStream::connect(world.server.address).await.unwrap();
        let said = dripped(socket, begin, drop).await;
        assert!(!String::from_utf8_lossy(&said).contains("200 OK"), "{what}");
    }
    // The next request of a connection that is used again; on a machine that stood still the first one is late as well.
    let again = async {
        loop {
            let mut socket = TcpStream::connect(plain.server.address).await.unwrap();
            let _ = socket.write_all(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n").await;
            let mut said = [0; 15];
            if socket.read_exact(&mut said).await.is_ok() {
                assert_eq!(&said, b"HTTP/1.1 200 OK");
                return socket;
            }
        }
    };
    let socket = timeout(PATIENCE, again).await.expect("an answer");
    dripped(socket, b"GET /healthz HTTP/1.1\r\nHost: x\r\nX-Long: ", b"x").await;
    for world in [plain, balanced, tls] {
        world.end().await;
    }
}

/// Bytes that are no message are the caller's mistake, in whatever form they come: status 13 is kept for faults of ours.
#[tokio::test]
async fn what_is_no_message_is_the_callers_fault_in_every_form() {
    let world = World::new().await;
    let owner = world.owner("Acme").await;
    let refused = |status: &Status| {
        assert_eq!(status.code(), Code::InvalidArgument, "{status:?}");
        assert!(status.message().starts_with("the request cannot be read: "), "{}", status.message());
        assert_eq!(status.get_details_error_info().unwrap().reason, "INVALID_FIELD");
    };
    let broken: [(&str, &[u8]); 3] = [
        ("a length beyond the end", &[0x0a, 0xff, 0xff]),
        ("text that is not UTF-8", &[0x0a, 2, 0xc3, 0x28]),
        ("no field", &[0xff; 8]),
    ];
    for (what, bytes) in broken {
        for operation in ["GetRobot", "TailRobotPartLogs"] {
            let path = format!("/viam.app.v1.AppService/{operation}");
            let status = owner.client.raw(&path, Bytes::from_static(bytes)).await.expect_err(what);
            refused(&status);
        }
    }
    // Frames that are none: a flag that does not exist, a compressed one, one that breaks off, none at all.
    let whole = ListOrganizationsRequest {}.encode_to_vec();
    assert!(whole.is_empty());
    let token = format!("Bearer {}", owner.client.token.clone().unwrap());
    let frames: [&[u8]; 4] = [&[7, 0, 0, 0, 0], &[1, 0, 0, 0, 1, 0], &[0, 0, 0, 0, 9, 0x0a], &[]];
    for bytes in frames {
        let path = "/platform.app.v1.AppService/ListOrganizations";
        let headers = [("Content-Type", "application/grpc-web+proto"), ("Authorization", &*token)];
        let answer = super::world::http::ask(&world, "POST", path, &headers, bytes).await;
        assert_eq!(answer.header("grpc-status"), Some("3"), "{bytes:?}: {}", answer.head);
    }
    let headers = [("Content-Type", "application/proto"), ("Authorization", &*token)];
    let path = "/platform.app.v1.AppService/GetRobot";
    let answer = super::world::http::ask(&world, "POST", path, &headers, &[0x0a, 0xff, 0xff]).await;
    assert_eq!((answer.status, &answer.json()["code"]), (400, &json!("invalid_argument")));
    world.end().await;
}
