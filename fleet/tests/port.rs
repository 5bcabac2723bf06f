//! The one port: both framings, both names, plain HTTP, and what does not belong there.

mod world;

use std::{sync::Arc, time::Duration};

use api::pb::{platform::app::v1::*, proto::rpc::v1::AuthenticateRequest};
use prost::Message;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};
use tokio_rustls::{TlsConnector, rustls};
use tonic::Code;
use world::{Owner, PATIENCE, World, code};

/// Sends bytes as they are and returns what comes back until the server closes or falls silent.
async fn raw(world: &World, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(world.server.address).await.unwrap();
    // A server that has heard enough closes; what it said before is there all the same.
    let _ = stream.write_all(bytes).await;
    let mut said = Vec::new();
    let mut piece = [0; 4096];
    loop {
        let wait = if said.is_empty() { PATIENCE } else { Duration::from_millis(300) };
        match tokio::time::timeout(wait, stream.read(&mut piece)).await {
            Ok(Ok(0) | Err(_)) | Err(_) => break,
            Ok(Ok(length)) => said.extend_from_slice(&piece[..length]),
        }
    }
    String::from_utf8_lossy(&said).into_owned()
}

async fn http(world: &World, head: &str, body: &[u8]) -> String {
    let head = format!("{head}\r\nHost: x\r\nConnection: close\r\nContent-Length: {}\r\n\r\n", body.len());
    let mut stream = TcpStream::connect(world.server.address).await.unwrap();
    stream.write_all(&[head.as_bytes(), body].concat()).await.unwrap();
    let mut said = Vec::new();
    let _ = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut said)).await.expect("an end");
    String::from_utf8_lossy(&said).into_owned()
}

/// One gRPC frame.
fn frame(message: &impl Message) -> Vec<u8> {
    let body = message.encode_to_vec();
    [&[0][..], &u32::try_from(body.len()).unwrap().to_be_bytes(), &body].concat()
}

async fn still_serves(world: &World, owner: &Owner) {
    let list = owner.client.app::<_, ListOrganizationsResponse>("ListOrganizations", ListOrganizationsRequest {});
    assert_eq!(code(list.await), Code::Ok);
    assert!(http(world, "GET /healthz HTTP/1.1", b"").await.starts_with("HTTP/1.1 200"));
}

#[tokio::test]
async fn garbage_is_the_end_of_its_connection_and_of_nothing_else() {
    let world = World::new().await;
    let owner = world.owner("Acme").await;
    let tls_hello = [&[0x16, 0x03, 0x01, 0x00, 0xa5, 0x01, 0x00, 0x00, 0xa1, 0x03, 0x03][..], &[0x5a; 160]].concat();
    let big_header = format!("GET /healthz HTTP/1.1\r\nHost: x\r\nX-Big: {}\r\n\r\n", "x".repeat(1 << 20));
    let h2_nonsense = [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".as_slice(), &[0xff; 200]].concat();
    let garbage: [(&str, &[u8]); 6] = [
        ("a TLS hello", &tls_hello),
        ("zeros", &[0; 4096]),
        ("words", b"hello, is this the fleet?\r\n\r\n"),
        ("a header of a megabyte", big_header.as_bytes()),
        ("HTTP/2 nonsense", &h2_nonsense),
        ("a method of its own", b"BREW /coffee HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"),
    ];
    for (what, bytes) in garbage {
        let said = raw(&world, bytes).await;
        assert!(!said.contains("200 OK"), "{what}: {said}");
        still_serves(&world, &owner).await;
    }
    // A client that probes with a TLS hello must see an answer that is not TLS, and not silence.
    assert!(raw(&world, &tls_hello).await.starts_with("HTTP/1.1 400"), "the probe is told");
    // Opened and closed without a word.
    drop(TcpStream::connect(world.server.address).await.unwrap());
    still_serves(&world, &owner).await;
    world.end().await;
}

#[tokio::test]
async fn http_on_grpc_paths_is_answered_with_a_sentence() {
    let world = World::new().await;
    let operation = "/platform.app.v1.AppService/GetRobot";
    let table = [
        (format!("GET {operation} HTTP/1.1"), "415"),
        (format!("POST {operation} HTTP/1.1\r\nContent-Type: text/plain"), "415"),
        (format!("GET {operation} HTTP/1.1\r\nContent-Type: application/json"), "415"),
        (format!("POST {operation} HTTP/1.1\r\nContent-Type: application/grpc"), "400"),
        ("GET / HTTP/1.1".to_owned(), "404"),
        ("POST /healthz HTTP/1.1".to_owned(), "405"),
        ("GET /releases/../../etc/passwd HTTP/1.1".to_owned(), "404"),
        ("GET /healthz HTTP/1.1".to_owned(), "200"),
        ("HEAD /healthz HTTP/1.1".to_owned(), "200"),
    ];
    for (head, status) in table {
        let said = http(&world, &head, b"").await;
        assert!(said.starts_with(&format!("HTTP/1.1 {status}")), "{head}: {said}");
    }
    world.end().await;
}

#[tokio::test]
async fn oversized_and_broken_frames_are_refused_by_status() {
    let world = World::new().await;
    let owner = world.owner("Acme").await;
    let huge = CreateOrganizationRequest { name: "x".repeat(5 << 20) };
    let refused = owner.client.app::<_, CreateOrganizationResponse>("CreateOrganization", huge).await.unwrap_err();
    assert_eq!(refused.code(), Code::OutOfRange, "{}", refused.message());
    let broken = owner.client.raw("/platform.app.v1.AppService/GetRobot", vec![0x0a, 0xff, 0xff].into()).await;
    assert_eq!(code(broken), Code::InvalidArgument, "a message that is none");
    // A Struct in a Struct in …: as deep as a reader goes, and deeper than any stack is.
    let field = |tag: u8, inner: &[u8]| {
        let mut message = vec![tag];
        prost::encoding::encode_varint(inner.len() as u64, &mut message);
        [message, inner.to_vec()].concat()
    };
    let mut inner = Vec::new();
    for _ in 0..5_000 {
        // fields { key: "a" value { struct_value { … } } }
        inner = field(0x0a, &[field(0x0a, b"a"), field(0x12, &field(0x2a, &inner))].concat());
    }
    let deep = field(0x1a, &inner);
    let deep = owner.client.raw("/platform.app.v1.AppService/UpdateRobotPart", deep.into()).await;
    assert_eq!(code(deep), Code::InvalidArgument, "deeper than anybody reads");

    // A frame that promises four gigabytes, over gRPC-Web.
    let token = owner.client.token.clone().unwrap();
    let head = format!(
        "POST /platform.app.v1.AppService/GetRobot HTTP/1.1\r\nContent-Type: application/grpc-web+proto\r\nAuthorization: Bearer {token}"
    );
    let said = http(&world, &head, &[0, 0xff, 0xff, 0xff, 0xff, 1]).await;
    assert!(said.contains("grpc-status: 11") || said.contains("grpc-status:11"), "{said}");
    still_serves(&world, &owner).await;
    world.end().await;
}

#[tokio::test]
async fn grpc_web_over_http_1_works_under_both_names_and_from_other_origins() {
    let world = World::new().await;
    let owner = world.owner("Acme").await;
    let token = owner.client.token.clone().unwrap();
    for name in ["platform", "viam"] {
        let head = format!(
            "POST /{name}.app.v1.AppService/ListOrganizations HTTP/1.1\r\nContent-Type: application/grpc-web+proto\r\n\
             viam_client: typescript;v0.61.1;v0.1.512\r\nX-Grpc-Web: 1\r\nOrigin: http://elsewhere.test\r\nAuthorization: Bearer {token}"
        );
        let said = http(&world, &head, &frame(&ListOrganizationsRequest {})).await;
        assert!(said.starts_with("HTTP/1.1 200") && said.contains("Acme"), "{said}");
        assert!(said.contains("grpc-status:0"), "the trailers' frame: {said}");
        assert!(said.contains("access-control-allow-origin: *"), "{said}");
    }
    // An error at once is in the headers, which a script of another origin may read.
    let head = "POST /viam.app.v1.AppService/ListOrganizations HTTP/1.1\r\nContent-Type: application/grpc-web+proto\r\nOrigin: http://elsewhere.test";
    let said = http(&world, head, &frame(&ListOrganizationsRequest {})).await;
    assert!(said.contains("grpc-status: 16") && said.contains("access-control-expose-headers: grpc-status"), "{said}");

    let preflight = http(
        &world,
        "OPTIONS /viam.app.v1.AppService/ListOrganizations HTTP/1.1\r\nOrigin: http://elsewhere.test\r\n\
         Access-Control-Request-Method: POST\r\nAccess-Control-Request-Headers: authorization,content-type,viam_client,x-grpc-web",
        b"",
    )
    .await;
    assert!(preflight.starts_with("HTTP/1.1 204"), "{preflight}");
    for header in ["authorization", "content-type", "viam_client", "x-grpc-web", "x-user-agent", "grpc-timeout"] {
        assert!(preflight.contains(header), "{header}: {preflight}");
    }
    world.end().await;
}

#[tokio::test]
async fn health_answers_without_a_key_and_metrics_count_what_was_done() {
    let world = World::new().await;
    let owner = world.owner("Acme").await;
    let nobody = world.nobody().await;
    for (service, expected) in [("", Code::Ok), ("viam.app.v1.AppService", Code::Ok), ("unknown", Code::NotFound)] {
        // HealthCheckRequest has the service's name in field 1.
        let mut message = Vec::new();
        prost::encoding::string::encode(1, &service.to_owned(), &mut message);
        assert_eq!(code(nobody.raw("/grpc.health.v1.Health/Check", message.into()).await), expected, "{service:?}");
    }
    let wrong = AuthenticateRequest { entity: "x".into(), credentials: None };
    let refused = nobody.call::<_, ListOrganizationsResponse>("/proto.rpc.v1.AuthService/Authenticate", wrong).await;
    assert_eq!(code(refused), Code::InvalidArgument);
    owner.location("North", None).await;
    let page = http(&world, "GET /metrics HTTP/1.1", b"").await;
    for line in [
        "fleet_calls_total{operation=\"proto.rpc.v1.AuthService/Authenticate\",code=\"3\"} 1",
        "fleet_calls_total{operation=\"platform.app.v1.AppService/CreateLocation\",code=\"0\"} 1",
        "fleet_call_seconds_count{operation=\"platform.app.v1.AppService/CreateLocation\"} 1",
        "fleet_call_seconds_bucket{operation=\"platform.app.v1.AppService/CreateLocation\",le=\"+Inf\"} 1",
        "fleet_refused_total{limit=\"calls_per_key\"} 0",
        "fleet_streams_open 0",
        "kind=\"write\"} ",
        "fleet_store_writes_waiting{database=\"logs\"} ",
        "fleet_connections_open ",
    ] {
        assert!(page.contains(line), "{line}: {page}");
    }
    let forwarded = http(&world, "GET /metrics HTTP/1.1\r\nX-Forwarded-For: 203.0.113.9", b"").await;
    assert!(forwarded.starts_with("HTTP/1.1 401"), "{forwarded}");
    let by = async |world: &World, token: &str| {
        let head = format!("GET /metrics HTTP/1.1\r\nX-Forwarded-For: 203.0.113.9\r\nAuthorization: Bearer {token}");
        http(world, &head, b"").await.split(' ').nth(1).unwrap().to_owned()
    };
    let part = owner.main_part(&owner.machine("", "arm").await).await;
    let device = world.login("robot-secret", &part.id, &part.secret).await.unwrap();
    assert_eq!(by(&world, owner.client.token.as_deref().unwrap()).await, "200");
    assert_eq!(by(&world, device.token.as_deref().unwrap()).await, "401", "devices stand anywhere");
    world.end().await;

    // Behind a proxy on the same machine everybody comes from this machine: only the token counts.
    let world = World::with(|options| options.metrics_token = Some("correct horse battery".into())).await;
    let owner = world.owner("Acme").await;
    assert!(http(&world, "GET /metrics HTTP/1.1", b"").await.starts_with("HTTP/1.1 401"));
    assert_eq!(by(&world, "correct horse battery").await, "200");
    assert_eq!(by(&world, "correct horse batterx").await, "401");
    assert_eq!(by(&world, owner.client.token.as_deref().unwrap()).await, "401");
    world.end().await;
}

#[tokio::test]
async fn tls_speaks_both_http_versions() {
    let folder = tempfile::tempdir().unwrap();
    let (certificate, key) = (folder.path().join("cert.pem"), folder.path().join("key.pem"));
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    std::fs::write(&certificate, made.cert.pem()).unwrap();
    std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    let options = fleet::wiring::Options {
        folder: folder.path().join("data"),
        database: world::engine::database(folder.path()),
        tls: Some((certificate.clone(), key)),
        ..Default::default()
    };
    let server = fleet::wiring::start(options).await.unwrap();
    assert!(server.url.starts_with("https://"));
    let trust = tonic::transport::ClientTlsConfig::new()
        .ca_certificate(tonic::transport::Certificate::from_pem(made.cert.pem()))
        .domain_name("localhost");
    let channel = tonic::transport::Channel::from_shared(server.url.clone()).unwrap().tls_config(trust).unwrap();
    let client = world::Client { channel: channel.connect().await.unwrap(), token: None };
    let answer = client.app::<_, ListOrganizationsResponse>("ListOrganizations", ListOrganizationsRequest {}).await;
    assert_eq!(code(answer), Code::Unauthenticated);
    let mut roots = rustls::RootCertStore::empty();
    roots.add(made.cert.der().clone()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let settings = rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let mut settings = settings.with_root_certificates(roots).with_no_client_auth();
    settings.alpn_protocols = vec![b"http/1.1".to_vec()];
    let stream = TcpStream::connect(server.address).await.unwrap();
    let connector = TlsConnector::from(Arc::new(settings));
    let mut stream = connector.connect("localhost".try_into().unwrap(), stream).await.unwrap();
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"http/1.1"[..]));
    stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await.unwrap();
    let mut said = Vec::new();
    let _ = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut said)).await.expect("an end");
    assert!(said.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&said));
    // Plain text on the TLS port ends that connection only.
    let mut plain = TcpStream::connect(server.address).await.unwrap();
    plain.write_all(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
    let mut said = Vec::new();
    let _ = tokio::time::timeout(PATIENCE, plain.read_to_end(&mut said)).await.unwrap();
    assert!(!said.starts_with(b"HTTP/1.1 200"));
    let answer = client.app::<_, ListOrganizationsResponse>("ListOrganizations", ListOrganizationsRequest {}).await;
    assert_eq!(code(answer), Code::Unauthenticated);
    server.stop().await;
}
