//! Encrypted connections: whom to believe, and what time it is while judging that.
//!
//! A connector of our own, because only so the time can be told: a board without a battery boots in 1970, where every
//! certificate is "not yet valid". Authorities are read at the first encrypted connection, never before.

use std::{
    fmt,
    fs::File,
    io::{self, BufReader, Read as _, Write as _},
    path::{Path, PathBuf},
    sync::{Arc, OnceLock},
    time::{SystemTime, UNIX_EPOCH},
};

use rustls::{
    ClientConfig, ClientConnection, RootCertStore, StreamOwned,
    client::Resumption,
    pki_types::{CertificateDer, ServerName, UnixTime, pem::PemObject as _},
    time_provider::TimeProvider,
};
use ureq::unversioned::transport::{
    Buffers, ConnectionDetails, Connector, Either, LazyBuffers, NextTimeout, Transport, TransportAdapter,
};

/// A system's whole list has a quarter of this.
const AUTHORITIES_BYTES_MAX: u64 = 4 * 1024 * 1024;
/// Where systems keep their authorities; the first that exists is taken.
const SYSTEM_LISTS: [&str; 5] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// The time at which certificates are judged.
pub(super) type Now = Arc<dyn Fn() -> SystemTime + Send + Sync>;

/// Adds TLS to connections that ask for it.
#[derive(Clone)]
pub(super) struct TlsConnector {
    shared: Arc<Shared>,
}

struct Shared {
    authorities: Option<PathBuf>,
    now: Option<Now>,
    config: OnceLock<Arc<ClientConfig>>,
}

impl TlsConnector {
    pub(super) fn new(authorities: Option<PathBuf>, now: Option<Now>) -> Self {
        TlsConnector { shared: Arc::new(Shared { authorities, now, config: OnceLock::new() }) }
    }

    fn config(&self) -> io::Result<Arc<ClientConfig>> {
        if let Some(config) = self.shared.config.get() {
            return Ok(Arc::clone(config));
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = ClientConfig::builder_with_details(provider, Arc::new(Clock(self.shared.now.clone())))
            .with_safe_default_protocol_versions()
            .map_err(io::Error::other)?
            .with_root_certificates(authorities(self.shared.authorities.as_deref())?)
            .with_no_client_auth();
        // One large file at a time: there is no second handshake to shorten.
        config.resumption = Resumption::disabled();
        Ok(Arc::clone(self.shared.config.get_or_init(|| Arc::new(config))))
    }
}

fn authorities(file: Option<&Path>) -> io::Result<RootCertStore> {
    let named = std::env::var_os("SSL_CERT_FILE").filter(|name| !name.is_empty()).map(PathBuf::from);
    let system = || SYSTEM_LISTS.iter().map(PathBuf::from).find(|path| path.exists());
    let Some(path) = file.map(Path::to_owned).or(named).or_else(system) else {
        return Err(io::Error::other("this system has no list of certificate authorities: install ca-certificates"));
    };
    let explained = |error: &dyn fmt::Display| io::Error::other(format!("{}: {error}", path.display()));
    let file = File::open(&path).map_err(|error| explained(&error))?.take(AUTHORITIES_BYTES_MAX);
    let mut store = RootCertStore::empty();
    // One at a time: the list never lies in memory as a whole.
    for certificate in CertificateDer::pem_reader_iter(BufReader::new(file)) {
        // Lists of systems hold oddities that cannot be read; they are simply not trusted.
        if let Err(error) = store.add(certificate.map_err(|error| explained(&error))?) {
            log::debug!("an authority in {} is left out: {error}", path.display());
        }
    }
    if store.is_empty() { Err(explained(&"no usable certificate in it")) } else { Ok(store) }
}

impl fmt::Debug for TlsConnector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TlsConnector")
    }
}

struct Clock(Option<Now>);

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Clock")
    }
}

impl TimeProvider for Clock {
    fn current_time(&self) -> Option<UnixTime> {
        let now = self.0.as_ref().map_or_else(SystemTime::now, |now| now());
        now.duration_since(UNIX_EPOCH).ok().map(UnixTime::since_unix_epoch)
    }
}

impl<In: Transport> Connector<In> for TlsConnector {
    type Out = Either<In, TlsTransport>;

    fn connect(&self, details: &ConnectionDetails<'_>, chained: Option<In>) -> Result<Option<Self::Out>, ureq::Error> {
        let Some(transport) = chained else { return Err(ureq::Error::ConnectionFailed) };
        if !details.needs_tls() || transport.is_tls() {
            return Ok(Some(Either::A(transport)));
        }
        let host = details.uri.host().unwrap_or_default().trim_start_matches('[').trim_end_matches(']');
        let name = ServerName::try_from(host)
            .map_err(|_| ureq::Error::Tls("the server's name cannot stand in a certificate"))?
            .to_owned();
        let mut tls = ClientConnection::new(self.config()?, name)?;
        let mut socket = TransportAdapter::new(transport.boxed(), details.current_time.clone());
        socket.set_timeout(details.timeout);
        tls.complete_io(&mut socket).map_err(brought_out)?;
        let buffers = LazyBuffers::new(details.config.input_buffer_size(), details.config.output_buffer_size());
        Ok(Some(Either::B(TlsTransport { buffers, stream: StreamOwned::new(tls, socket) })))
    }
}

/// rustls hides its own errors inside io errors; brought out, a refused certificate differs from a broken line.
fn brought_out(error: io::Error) -> ureq::Error {
    match error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
        Some(refused) => ureq::Error::Rustls(refused.clone()),
        None => error.into(),
    }
}

/// An encrypted connection.
pub(super) struct TlsTransport {
    buffers: LazyBuffers,
    stream: StreamOwned<ClientConnection, TransportAdapter>,
}

impl Transport for TlsTransport {
    fn buffers(&mut self) -> &mut dyn Buffers {
        &mut self.buffers
    }

    fn transmit_output(&mut self, amount: usize, timeout: NextTimeout) -> Result<(), ureq::Error> {
        self.stream.sock.set_timeout(timeout);
        let output = self.buffers.output().get(..amount).unwrap_or_default();
        self.stream.write_all(output).map_err(brought_out)
    }

    fn await_input(&mut self, timeout: NextTimeout) -> Result<bool, ureq::Error> {
        self.stream.sock.set_timeout(timeout);
        let input = self.buffers.input_append_buf();
        let amount = self.stream.read(input).map_err(brought_out)?;
        self.buffers.input_appended(amount);
        Ok(amount > 0)
    }

    fn is_open(&mut self) -> bool {
        self.stream.sock.get_mut().is_open()
    }

    fn is_tls(&self) -> bool {
        true
    }
}

impl fmt::Debug for TlsTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TlsTransport")
    }
}
