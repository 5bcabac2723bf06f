//! Behind TCP balancers that say by the PROXY protocol whom they bring.

use std::{
    fs,
    io::Write as _,
    net::{IpAddr, Ipv6Addr, SocketAddr},
    os::fd::OwnedFd,
    process::{Child, Command, Stdio},
    sync::Arc,
};

use api::pb::platform::app::v1::{CreateLocationRequest, CreateLocationResponse};
use fleet::edge::throttle::Limits;
use serde_json::json;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::{TcpSocket, TcpStream},
};
use tokio_rustls::{TlsConnector, rustls};

use super::world::{Client, Owner, PATIENCE, World, metric};

/// Where the balancer is; the tests themselves come from 127.0.0.1.
const BALANCER: [u8; 4] = [127, 0, 0, 2];

fn line(from: &str) -> Vec<u8> {
    let (family, to) = if from.contains(':') { ("TCP6", "fd00::1") } else { ("TCP4", "10.0.0.1") };
    format!("PROXY {family} {from} {to} 40000 443\r\n").into_bytes()
}

fn binary(from: &str, notes: usize) -> Vec<u8> {
    let (kind, from) = match from.parse().unwrap() {
        IpAddr::V4(from) => (0x11, [&from.octets()[..], &[10, 0, 0, 1]].concat()),
        IpAddr::V6(from) => (0x21, [from.octets(), Ipv6Addr::LOCALHOST.octets()].concat()),
    };
    let rest = [&from[..], &[0x9c, 0x40, 1, 0xbb], &vec![0xea; notes]].concat();
    let length = u16::try_from(rest.len()).unwrap().to_be_bytes();
    [b"\r\n\r\n\0\r\nQUIT\n\x21", &[kind][..], &length, &rest].concat()
}

const LOCAL: &[u8] = b"\r\n\r\n\0\r\nQUIT\n\x20\x00\x00\x00";

async fn connect(to: SocketAddr, from: [u8; 4]) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(SocketAddr::from((from, 0))).unwrap();
    let stream = socket.connect(to).await.unwrap();
    stream.set_nodelay(true).unwrap();
    stream
}

/// Says that and hears everything. A server that hangs up may do so in the middle of what is said.
async fn conversation(mut stream: impl AsyncRead + AsyncWrite + Unpin, said: &[u8]) -> String {
    let mut heard = Vec::new();
    if stream.write_all(said).await.is_ok() {
        let _ = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut heard)).await.expect("an end");
    }
    String::from_utf8_lossy(&heard).into_owned()
}

/// A call that makes a location of this name.
fn making(owner: &Owner, name: &str) -> Vec<u8> {
    let body = json!({"organizationId": owner.organization, "name": name});
    post("platform.app.v1.AppService/CreateLocation", owner.client.token.as_deref().unwrap(), &body)
}

fn post(operation: &str, token: &str, body: &serde_json::Value) -> Vec<u8> {
    let body = body.to_string();
    format!(
        "POST /{operation} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Type: application/json\r\n\
         Authorization: Bearer {token}\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

/// From where the audit says that the last change came.
async fn audited(world: &World) -> String {
    let mut out = Vec::new();
    let all = fleet::audit_export::Range::default();
    fleet::audit_export::export(&world.server.context.store, &all, &mut out).await.unwrap();
    let last = String::from_utf8(out).unwrap().lines().last().unwrap().to_owned();
    let event: serde_json::Value = serde_json::from_str(&last).unwrap();
    event["from"].as_str().unwrap().to_owned()
}

async fn behind_a_balancer() -> World {
    World::with(|options| options.balancers = vec![IpAddr::from(BALANCER).to_string().parse().unwrap()]).await
}

#[tokio::test]
async fn the_audit_tells_whom_the_balancer_brought() {
    let world = behind_a_balancer().await;
    let owner = world.owner("Acme").await;
    let balancer = IpAddr::from(BALANCER).to_string();
    // What comes before the call, how many bytes at once, where it comes from.
    let table: [(Vec<u8>, usize, &str); 8] = [
        (line("203.0.113.7"), usize::MAX, "203.0.113.7"),
        (line("203.0.113.8"), 1, "203.0.113.8"),
        (line("2001:db8::7"), 5, "2001:db8::7"),
        (binary("203.0.113.9", 0), usize::MAX, "203.0.113.9"),
        (binary("::ffff:203.0.113.10", 0), 1, "203.0.113.10"),
        (binary("2001:db8::8", 600), 100, "2001:db8::8"),
        (b"PROXY UNKNOWN\r\n".to_vec(), usize::MAX, &balancer),
        (LOCAL.to_vec(), usize::MAX, &balancer),
    ];
    for (number, (header, piece, from)) in table.into_iter().enumerate() {
        let mut stream = connect(world.server.address, BALANCER).await;
        let said = [header, making(&owner, &format!("{number}"))].concat();
        let (slowly, rest) = said.split_at(said.len().min(if piece == usize::MAX { 0 } else { 200 }));
        for piece in slowly.chunks(piece) {
            stream.write_all(piece).await.unwrap();
            tokio::task::yield_now().await;
        }
        let answer = conversation(stream, rest).await;
        assert!(answer.starts_with("HTTP/1.1 200"), "{from}: {answer}");
        assert_eq!(audited(&world).await, from);
    }
    assert_eq!(metric(&world.server, "fleet_balancer_headers_missed_total"), 0);
    world.end().await;
}

#[tokio::test]
async fn a_balancer_that_does_not_say_it_and_somebody_else_who_does_are_not_served() {
    let world = behind_a_balancer().await;
    let owner = world.owner("Acme").await;
    let missed = || metric(&world.server, "fleet_balancer_headers_missed_total");
    let table: [&[u8]; 5] = [
        b"",
        b"PROXY TCP4 203.0.113.7 10.0.0.1 40000\r\n",
        b"PROXY TCP4 203.0.113.7 2001:db8::7 40000 443\r\n",
        b"\r\n\r\n\0\r\nQUIT\n\x21\x11\xff\xff",
        &[7; 4096],
    ];
    for (number, wrong) in table.into_iter().enumerate() {
        let said = [wrong, &making(&owner, "nowhere")[..]].concat();
        assert_eq!(conversation(connect(world.server.address, BALANCER).await, &said).await, "");
        assert_eq!(missed(), number as u64 + 1);
    }
    // Whoever looks whether the port is there, and goes, has missed nothing.
    for header in [&b""[..], LOCAL] {
        let mut stream = connect(world.server.address, BALANCER).await;
        stream.write_all(header).await.unwrap();
        stream.shutdown().await.unwrap();
        assert_eq!(conversation(stream, b"").await, "");
    }
    assert_eq!(missed(), table.len() as u64);
    // Who is no balancer has no header to send, and makes nothing under another's name.
    for header in [line("203.0.113.7"), binary("203.0.113.7", 0)] {
        let said = [header, making(&owner, "nowhere")].concat();
        let answer = conversation(connect(world.server.address, [127, 0, 0, 3]).await, &said).await;
        assert!(!answer.contains("200 OK"), "{answer}");
    }
    assert_ne!(audited(&world).await, "203.0.113.7");
    let plain = conversation(connect(world.server.address, [127, 0, 0, 3]).await, &making(&owner, "somewhere")).await;
    assert!(plain.starts_with("HTTP/1.1 200"), "{plain}");
    assert_eq!(audited(&world).await, "127.0.0.3");
    assert_eq!(missed(), table.len() as u64);
    world.end().await;
}

#[tokio::test]
async fn strangers_behind_a_balancer_are_counted_one_by_one() {
    let world = World::with(|options| {
        options.balancers = vec![IpAddr::from(BALANCER).to_string().parse().unwrap()];
        options.limits = Limits { open_calls_per_address: 1, ..Limits::default() };
    })
    .await;
    let ask = async |from: &str| {
        let request = b"GET /invite/none HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
        conversation(connect(world.server.address, BALANCER).await, &[&line(from)[..], request].concat()).await
    };
    let refused = async { while !ask("203.0.113.7").await.starts_with("HTTP/1.1 429") {} };
    tokio::time::timeout(PATIENCE, refused).await.expect("a burst has an end");
    let other = ask("203.0.113.8").await;
    assert!(other.starts_with("HTTP/1.1 404"), "{other}");
    // It is not this machine that asks, whatever the balancer calls it.
    for header in [line("127.0.0.1"), LOCAL.to_vec()] {
        let said = [&header[..], b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"].concat();
        let answer = conversation(connect(world.server.address, BALANCER).await, &said).await;
        assert!(answer.starts_with("HTTP/1.1 401"), "{answer}");
    }
    world.end().await;
}

/// A server with TLS, and what trusts it.
async fn with_tls() -> (World, rustls::pki_types::CertificateDer<'static>) {
    let pair = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let files = tempfile::tempdir().unwrap();
    let (certificate, key) = (files.path().join("cert.pem"), files.path().join("key.pem"));
    fs::write(&certificate, pair.cert.pem()).unwrap();
    fs::write(&key, pair.signing_key.serialize_pem()).unwrap();
    let world = World::with(|options| {
        options.tls = Some((certificate, key));
        options.balancers = vec![IpAddr::from(BALANCER).to_string().parse().unwrap()];
    })
    .await;
    (world, pair.cert.der().clone())
}

async fn tls(
    stream: TcpStream,
    trusted: &rustls::pki_types::CertificateDer<'static>,
) -> tokio_rustls::client::TlsStream<TcpStream> {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(trusted.clone()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let settings = rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let settings = settings.with_root_certificates(roots).with_no_client_auth();
    let name = "localhost".try_into().unwrap();
    TlsConnector::from(Arc::new(settings)).connect(name, stream).await.unwrap()
}

#[tokio::test]
async fn tls_begins_behind_the_header() {
    let (world, trusted) = with_tls().await;
    let created = fleet::init::organization(&world.server.context, "Acme", "owner@example.org").await.unwrap();
    let credentials = json!({"type": "api-key", "payload": created.key});
    let sign_in = json!({"entity": created.key_id, "credentials": credentials});
    for (header, from) in [(line("203.0.113.7"), "203.0.113.7"), (binary("2001:db8::7", 300), "2001:db8::7")] {
        let call = async |said: &[u8]| {
            let mut stream = connect(world.server.address, BALANCER).await;
            stream.write_all(&header).await.unwrap();
            let answer = conversation(tls(stream, &trusted).await, said).await;
            assert!(answer.starts_with("HTTP/1.1 200"), "{from}: {answer}");
            let (_, body) = answer.split_once("\r\n\r\n").unwrap();
            serde_json::from_str::<serde_json::Value>(body).unwrap()
        };
        let signed_in = call(&post("proto.rpc.v1.AuthService/Authenticate", "", &sign_in)).await;
        let token = signed_in["accessToken"].as_str().unwrap();
        let location = json!({"organizationId": created.organization_id, "name": from});
        call(&post("platform.app.v1.AppService/CreateLocation", token, &location)).await;
        assert_eq!(audited(&world).await, from);
    }
    // TLS at once, from the balancer: the header is missing.
    let hello = connect(world.server.address, BALANCER).await;
    assert_eq!(conversation(hello, b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03").await, "");
    assert_eq!(metric(&world.server, "fleet_balancer_headers_missed_total"), 1);
    world.end().await;
}

/// A real HAProxy in front of that server; killed when dropped.
struct HaProxy {
    process: Child,
    address: SocketAddr,
    _folder: tempfile::TempDir,
}

impl HaProxy {
    /// Passes connections on from the balancer's address. Nothing where it is not installed.
    fn start(server: SocketAddr, sends: &str) -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let settings = folder.path().join("haproxy.cfg");
        // Its port is the standard input, so that nobody has to guess a free one or wait for it.
        let text = format!(
            "defaults\n mode tcp\n timeout connect 60s\n timeout client 60s\n timeout server 60s\n timeout check 60s\n\
             listen fleet\n bind fd@0\n source {}\n option httpchk GET /healthz\n\
             server one {server} {sends} check inter 20ms\n",
            IpAddr::from(BALANCER)
        );
        fs::write(&settings, text).unwrap();
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        port.set_nonblocking(true).unwrap();
        let address = port.local_addr().unwrap();
        // Where Debian has it is on root's path only.
        let process = ["haproxy", "/usr/sbin/haproxy"].into_iter().find_map(|program| {
            let port = OwnedFd::from(port.try_clone().unwrap());
            let mut command = Command::new(program);
            command.arg("-db").arg("-f").arg(&settings).stdin(port).stdout(Stdio::null()).stderr(Stdio::null());
            command.spawn().ok()
        })?;
        Some(Self { process, address, _folder: folder })
    }
}

impl Drop for HaProxy {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_real_haproxy_brings_whom_it_says() {
    for sends in ["send-proxy", "send-proxy-v2", "send-proxy-v2 proxy-v2-options crc32c,unique-id"] {
        let world = behind_a_balancer().await;
        let owner = world.owner("Acme").await;
        let taken = || metric(&world.server, "fleet_connections_total");
        let before = taken();
        let Some(haproxy) = HaProxy::start(world.server.address, sends) else {
            let _ = writeln!(std::io::stderr(), "SKIPPED a real HAProxy: haproxy is not installed");
            return;
        };
        // It looks whether the server is well, with headers of its own …
        let looked = async {
            while taken() < before + 3 {
                tokio::time::sleep(std::time::Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(PATIENCE, looked).await.expect("HAProxy looks after its server");
        // … and what it brings, over HTTP/2 too, comes from where it comes from.
        let channel = tonic::transport::Channel::from_shared(format!("http://{}", haproxy.address)).unwrap();
        let client = Client { channel: channel.connect().await.unwrap(), ..owner.client.clone() };
        let request = CreateLocationRequest {
            organization_id: owner.organization.clone(),
            name: "North".into(),
            ..Default::default()
        };
        client.app::<_, CreateLocationResponse>("CreateLocation", request).await.unwrap();
        assert_eq!(audited(&world).await, "127.0.0.1", "{sends}");
        let said = making(&owner, "South");
        let answer = conversation(connect(haproxy.address, [127, 0, 0, 9]).await, &said).await;
        assert!(answer.starts_with("HTTP/1.1 200"), "{sends}: {answer}");
        assert_eq!(audited(&world).await, "127.0.0.9", "{sends}");
        assert_eq!(metric(&world.server, "fleet_balancer_headers_missed_total"), 0, "{sends}");
        drop((client, haproxy));
        world.end().await;
    }
}
