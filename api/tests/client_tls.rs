//! The blocking client over TLS and through proxies, with authorities made for the test.

mod server;

use std::{
    fs,
    io::{self, BufRead, BufReader, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{Arc, mpsc},
    thread,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use api::{
    Secret,
    client::{Address, CallError, CallOptions, Client, ProxyChoice, Tls, Trust},
    pb::platform::app::v1::{NeedsRestartRequest, NeedsRestartResponse, robot_service},
};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair};
use rustls::pki_types::CertificateDer;
use server::{Server, answer, message, status};

const YEAR: Duration = Duration::from_secs(365 * 24 * 3600);

/// An authority under a name of its own.
struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    fn new(name: &str) -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.not_before = rcgen::date_time_ymd(2020, 1, 1);
        params.not_after = rcgen::date_time_ymd(2124, 1, 1);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    /// One that this one vouches for.
    fn below(&self, name: &str) -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        Self(CertifiedIssuer::signed_by(params, KeyPair::generate().unwrap(), &self.0).unwrap())
    }

    fn pem(&self) -> String {
        self.0.pem()
    }

    fn trust(&self) -> Trust {
        Trust::Pem(self.pem().into_bytes().into())
    }

    /// A server for this name, valid from 2020 to the beginning of that year.
    fn server(&self, name: &str, until: i32) -> Server {
        self.server_showing(name, until, &[])
    }

    /// A server that shows these authorities' certificates after its own.
    fn server_showing(&self, name: &str, until: i32, between: &[&Authority]) -> Server {
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        params.not_before = rcgen::date_time_ymd(2020, 1, 1);
        params.not_after = rcgen::date_time_ymd(until, 1, 1);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.0).unwrap();
        let shown = [certificate.der()].into_iter().chain(between.iter().map(|one| one.0.der())).cloned().collect();
        serving(shown, &key)
    }
}

/// A server that shows these certificates, of which the first has this key.
fn serving(shown: Vec<CertificateDer<'static>>, key: &KeyPair) -> Server {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(shown, key.serialize_der().try_into().unwrap())
        .unwrap();
    Server::start_with(Some(Arc::new(config)), |_, line| answer(line, &[message(&yes()), status(0, "")]))
}

fn yes() -> NeedsRestartResponse {
    NeedsRestartResponse { must_restart: true, ..Default::default() }
}

fn ask(client: &Client) -> Result<NeedsRestartResponse, CallError> {
    client.unary(robot_service::NEEDS_RESTART, &NeedsRestartRequest::default(), CallOptions::default())
}

fn address(scheme: &str, server: SocketAddr) -> Address {
    format!("{scheme}://{server}").parse().unwrap()
}

fn client(server: &Server, trust: Trust) -> Client {
    Client::builder(address("https", server.address)).tls(Tls::new(trust, None)).build().unwrap()
}

#[test]
fn a_given_authority_is_trusted_and_nobody_else() {
    let (ours, theirs) = (Authority::new("ours"), Authority::new("theirs"));
    let server = ours.server("127.0.0.1", 2120);
    let trusting = client(&server, ours.trust());
    assert_eq!(ask(&trusting).unwrap(), yes());
    assert_eq!(ask(&trusting).unwrap(), yes());
    assert_eq!(*server.connections.lock().unwrap(), 1, "the encrypted connection is kept");

    let error = ask(&client(&server, theirs.trust())).unwrap_err();
    assert!(
        matches!(&error, CallError::Untrusted { reason, .. } if reason.contains("nobody who is trusted")),
        "{error:?}"
    );
    assert!(error.to_string().contains("give the CA that signed it"), "{error}");
}

#[test]
fn an_authority_from_a_file() {
    let ours = Authority::new("ours");
    let server = ours.server("127.0.0.1", 2120);
    let folder = tempfile::tempdir().unwrap();
    let (good, empty) = (folder.path().join("ca.pem"), folder.path().join("empty.pem"));
    fs::write(&good, ours.pem()).unwrap();
    fs::write(&empty, "no certificate here").unwrap();
    assert_eq!(ask(&client(&server, Trust::File(good))).unwrap(), yes());
    for (path, expected) in [(empty, "contains no usable certificate"), (folder.path().join("none.pem"), "cannot read")]
    {
        let error = ask(&client(&server, Trust::File(path.clone()))).unwrap_err();
        assert!(matches!(&error, CallError::NoTrust(reason) if reason.contains(expected)), "{error:?}");
        assert!(error.to_string().contains(path.to_str().unwrap()), "{error}");
    }
}

/// Only authorities whose name stands in the certificates shown are held while they are judged.
#[test]
fn one_authority_among_many_through_another_one() {
    let (root, stranger) = (Authority::new("root"), Authority::new("stranger"));
    let between = root.below("between");
    let list = |last: &Authority| {
        let others = (0..20).map(|n| Authority::new(&format!("other {n}")).pem());
        Trust::Pem(others.chain([last.pem()]).collect::<String>().into_bytes().into())
    };
    let whole = between.server_showing("127.0.0.1", 2120, &[&between]);
    assert_eq!(ask(&client(&whole, list(&root))).unwrap(), yes());
    let refused = |server: &Server, trust: Trust| match ask(&client(server, trust)).unwrap_err() {
        CallError::Untrusted { reason, .. } => assert!(reason.contains("nobody who is trusted"), "{reason}"),
        other => panic!("{other:?}"),
    };
    refused(&whole, list(&stranger));
    refused(&between.server("127.0.0.1", 2120), list(&root));
    assert_eq!(ask(&client(&between.server("127.0.0.1", 2120), list(&between))).unwrap(), yes());
}

#[test]
fn a_name_alone_is_no_authority() {
    let (ours, namesake) = (Authority::new("ours"), Authority::new("ours"));
    let server = ours.server("127.0.0.1", 2120);
    let error = ask(&client(&server, namesake.trust())).unwrap_err();
    assert!(matches!(&error, CallError::Untrusted { reason, .. } if reason.contains("did not sign it")), "{error:?}");
    let both = Trust::Pem([namesake.pem(), ours.pem()].concat().into_bytes().into());
    assert_eq!(ask(&client(&server, both)).unwrap(), yes());
}

#[test]
fn a_renewed_list_counts_at_the_next_connection() {
    let (ours, theirs) = (Authority::new("ours"), Authority::new("theirs"));
    let server = ours.server("127.0.0.1", 2120);
    let folder = tempfile::tempdir().unwrap();
    let list = folder.path().join("ca.pem");
    fs::write(&list, theirs.pem()).unwrap();
    let client = client(&server, Trust::File(list.clone()));
    assert!(matches!(ask(&client), Err(CallError::Untrusted { .. })));
    fs::write(&list, ours.pem()).unwrap();
    assert_eq!(ask(&client).unwrap(), yes());
}

/// What keeps the list out of a device's polls.
#[test]
fn a_resumed_session_asks_for_no_list() {
    let ours = Authority::new("ours");
    let server = ours.server("127.0.0.1", 2120);
    let folder = tempfile::tempdir().unwrap();
    let list = folder.path().join("ca.pem");
    fs::write(&list, ours.pem()).unwrap();
    let tls = Tls::new(Trust::File(list.clone()), None);
    let connect = |tls: &Tls| Client::builder(address("https", server.address)).tls(tls.clone()).build().unwrap();
    assert_eq!(ask(&connect(&tls)).unwrap(), yes());
    fs::remove_file(&list).unwrap();
    assert_eq!(ask(&connect(&tls)).unwrap(), yes());
    assert_eq!(*server.connections.lock().unwrap(), 2);
    let without_a_session = Tls::new(Trust::File(list), None);
    assert!(matches!(ask(&connect(&without_a_session)), Err(CallError::NoTrust(_))));
}

#[test]
fn an_authority_is_not_looked_for_without_encryption() {
    let server = Server::start(|_, line| answer(line, &[message(&yes()), status(0, "")]));
    let client = Client::builder(address("http", server.address))
        .tls(Tls::new(Trust::File("/nowhere".into()), None))
        .build()
        .unwrap();
    assert_eq!(ask(&client).unwrap(), yes());
}

#[test]
fn a_certificate_for_another_name() {
    let ours = Authority::new("ours");
    let error = ask(&client(&ours.server("fleet.example.com", 2120), ours.trust())).unwrap_err();
    assert!(matches!(&error, CallError::Untrusted { reason, .. } if reason.contains("another name")), "{error:?}");
}

/// What people make for a first try: a certificate that vouches for itself, and is the server's too.
#[test]
fn a_certificate_that_nobody_else_signed() {
    let ca = || IsCa::Ca(BasicConstraints::Unconstrained);
    let alone = "it is one that signs others (CA:TRUE), and not one of a server; make one with \
        `openssl req -x509 ... -addext basicConstraints=critical,CA:FALSE`";
    let clients = "it is not meant for servers; its extendedKeyUsage has to name serverAuth";
    let table = [
        ("one that signs others", ca(), vec![], Some(alone)),
        ("for clients", IsCa::ExplicitNoCa, vec![ExtendedKeyUsagePurpose::ClientAuth], Some(clients)),
        ("for the server alone", IsCa::ExplicitNoCa, vec![], None),
    ];
    for (case, is_ca, extended_key_usages, refused) in table {
        let mut params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
        params.is_ca = is_ca;
        params.extended_key_usages = extended_key_usages;
        let key = KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap();
        let server = serving(vec![certificate.der().clone()], &key);
        let trust = Trust::Pem(certificate.pem().into_bytes().into());
        let answered = ask(&client(&server, trust)).map_err(|error| error.to_string());
        let address = address("https", server.address);
        let expected = match refused {
            None => Ok(yes()),
            Some(reason) => Err(format!("the certificate of {address} is not trusted: {reason}")),
        };
        assert_eq!(answered, expected, "{case}");
    }
}

/// A board without a battery boots in 1970; what counts is the time its agent says it is.
#[test]
fn certificates_are_judged_at_the_callers_time() {
    let ours = Authority::new("ours");
    let server = ours.server("127.0.0.1", 2024);
    let table = [("1970", 0, Some("not valid yet")), ("2022", 52, None), ("2060", 90, Some("has expired"))];
    for (case, years, refused) in table {
        let now = move || UNIX_EPOCH + YEAR * years;
        let client = Client::builder(address("https", server.address))
            .tls(Tls::new(ours.trust(), Some(Arc::new(now))))
            .build()
            .unwrap();
        match (ask(&client), refused) {
            (Ok(answer), None) => assert_eq!(answer, yes(), "{case}"),
            (Err(CallError::Untrusted { reason, .. }), Some(expected)) => {
                assert!(reason.contains(expected), "{case}: {reason}")
            }
            (other, _) => panic!("{case}: {other:?}"),
        }
    }
    assert!(SystemTime::now() > UNIX_EPOCH + YEAR * 54, "and this machine's own clock would refuse it");
}

#[test]
fn no_tls_where_it_was_expected() {
    let server = Server::start(|_, line| line.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").unwrap());
    let error = ask(&client(&server, Authority::new("ours").trust())).unwrap_err();
    assert!(error.to_string().contains("cannot reach the server https://127.0.0.1"), "{error}");
}

#[test]
fn a_handshake_that_never_ends_is_cancelled() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = Client::builder(address("https", listener.local_addr().unwrap()))
        .tls(Tls::new(Authority::new("ours").trust(), None))
        .build()
        .unwrap();
    let there = client.clone();
    let hanging = thread::spawn(move || ask(&there));
    let (mut socket, _) = listener.accept().unwrap();
    // The hello has arrived: the call is in the handshake.
    io::Read::read_exact(&mut socket, &mut [0; 5]).unwrap();
    client.cancel();
    assert!(matches!(hanging.join().unwrap(), Err(CallError::Cancelled)));
}

/// Sends every tunnel to `target` and tells what was asked for.
fn proxy(target: SocketAddr, verdict: &'static str) -> (SocketAddr, mpsc::Receiver<Vec<String>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (asked, heard) = mpsc::channel();
    thread::spawn(move || {
        for socket in listener.incoming() {
            let socket = socket.unwrap();
            let mut reader = BufReader::new(socket.try_clone().unwrap());
            let head: Vec<String> = reader.by_ref_lines();
            asked.send(head).unwrap();
            let mut writer = socket.try_clone().unwrap();
            write!(writer, "HTTP/1.1 {verdict}\r\n\r\n").unwrap();
            if verdict.starts_with("200") {
                let there = TcpStream::connect(target).unwrap();
                let (mut out, mut back) = (there.try_clone().unwrap(), there);
                thread::spawn(move || io::copy(&mut reader, &mut out));
                thread::spawn(move || io::copy(&mut back, &mut writer));
            }
        }
    });
    (address, heard)
}

trait HeadLines {
    fn by_ref_lines(&mut self) -> Vec<String>;
}

impl<R: BufRead> HeadLines for R {
    fn by_ref_lines(&mut self) -> Vec<String> {
        self.lines().map(Result::unwrap).take_while(|line| !line.is_empty()).collect()
    }
}

fn through(proxy: SocketAddr) -> ProxyChoice {
    ProxyChoice::Through(Secret::from(format!("http://user:pass%21@{proxy}")))
}

#[test]
fn encrypted_and_plain_calls_go_through_a_proxy() {
    let ours = Authority::new("ours");
    let encrypted = ours.server("fleet.test", 2120);
    let plain = Server::start(|_, line| answer(line, &[message(&yes()), status(0, "")]));
    for (scheme, server, port) in [("https", encrypted.address, 443), ("http", plain.address, 80)] {
        let (proxy, heard) = proxy(server, "200 Connection established");
        // A name that only the proxy could resolve.
        let address = format!("{scheme}://fleet.test").parse().unwrap();
        let client = Client::builder(address).tls(Tls::new(ours.trust(), None)).proxy(through(proxy)).build().unwrap();
        assert_eq!(ask(&client).unwrap(), yes(), "{scheme}");
        let head = heard.recv().unwrap();
        assert_eq!(head[0], format!("CONNECT fleet.test:{port} HTTP/1.1"));
        assert!(head.contains(&"Proxy-Authorization: Basic dXNlcjpwYXNzIQ==".to_owned()), "{head:?}");
    }
}

#[test]
fn a_proxy_that_refuses() {
    let (proxy, _heard) = proxy("127.0.0.1:1".parse().unwrap(), "407 Proxy Authentication Required");
    let client = Client::builder("https://fleet.test".parse().unwrap()).proxy(through(proxy)).build().unwrap();
    let error = ask(&client).unwrap_err().to_string();
    assert!(error.contains("the proxy refused") && error.contains("407") && !error.contains("pass"), "{error}");
}
