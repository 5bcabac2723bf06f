//! Which servers are believed: certificate authorities, the moment at which certificates are judged, and TLS itself.
//!
//! Wraps rustls for the HTTP client with a connector of our own, because only so the caller can say what time it is:
//! a board without a battery boots in 1970, where every certificate is "not yet valid". Authorities are read at the first
//! encrypted connection, not before: 140 of them cost memory that an agent with a CA file or plain http never needs.

use std::{
    fmt,
    fs::File,
    io::{self, BufReader, Read, Write},
    path::{Path, PathBuf},
    sync::{Arc, OnceLock},
    time::{SystemTime, UNIX_EPOCH},
};

use rustls::{
    ClientConfig, ClientConnection, RootCertStore, StreamOwned,
    client::Resumption,
    pki_types::{CertificateDer, ServerName, UnixTime, pem::PemObject},
    time_provider::TimeProvider,
};
use ureq::unversioned::transport::{
    Buffers, ConnectionDetails, Connector, Either, LazyBuffers, NextTimeout, Transport, TransportAdapter,
};

/// A system's whole bundle has a quarter of this.
const AUTHORITIES_BYTES_MAX: u64 = 4 * 1024 * 1024;
/// Sessions kept for a quick second handshake: there is one server.
const SESSIONS_MAX: usize = 2;
/// Where the systems we run on keep their authorities; the first that exists is taken.
const SYSTEM_BUNDLES: [&str; 6] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
    "/etc/ssl/certs/ca-bundle.crt",
];

/// Tells the time for judging certificates.
pub type Now = Arc<dyn Fn() -> SystemTime + Send + Sync>;

/// Whose signature on a server's certificate is believed.
#[derive(Clone, Debug, Default)]
pub enum Trust {
    /// The authorities of this system (or of the file named by `SSL_CERT_FILE`).
    #[default]
    System,
    /// Only those in this PEM file.
    File(PathBuf),
    /// Only those in this PEM text.
    Pem(Arc<[u8]>),
}

impl Trust {
    fn authorities(&self) -> Result<RootCertStore, String> {
        match self {
            Self::System => {
                let path = system_bundle().ok_or(
                    "this system has no list of them in a usual place; install ca-certificates or give a CA file",
                )?;
                authorities_of_file(&path)
            }
            Self::File(path) => authorities_of_file(path),
            Self::Pem(text) => authorities_of(&**text, "the given PEM text"),
        }
    }
}

fn system_bundle() -> Option<PathBuf> {
    let named = std::env::var_os("SSL_CERT_FILE").filter(|name| !name.is_empty()).map(PathBuf::from);
    named.or_else(|| SYSTEM_BUNDLES.iter().map(PathBuf::from).find(|path| path.exists()))
}

fn authorities_of_file(path: &Path) -> Result<RootCertStore, String> {
    let file = File::open(path).map_err(|error| format!("cannot read {}: {error}", path.display()))?;
    authorities_of(file, &path.display().to_string())
}

fn authorities_of(pem: impl Read, place: &str) -> Result<RootCertStore, String> {
    let mut store = RootCertStore::empty();
    // One certificate at a time: a bundle is read without ever lying in memory as a whole.
    for certificate in CertificateDer::pem_reader_iter(BufReader::new(pem.take(AUTHORITIES_BYTES_MAX))) {
        let certificate = certificate.map_err(|error| format!("{place} is not a list of PEM certificates: {error}"))?;
        // System bundles contain oddities that rustls does not parse; they are simply not trusted.
        if let Err(error) = store.add(certificate) {
            log::debug!("an authority in {place} is left out: {error}");
        }
    }
    match store.is_empty() {
        true => Err(format!("{place} contains no usable certificate")),
        false => Ok(store),
    }
}

/// Adds TLS to connections that ask for it. Clones share the authorities and the sessions.
#[derive(Clone)]
pub struct Tls {
    shared: Arc<Shared>,
}

struct Shared {
    trust: Trust,
    now: Option<Now>,
    /// Made at the first encrypted connection.
    config: OnceLock<Arc<ClientConfig>>,
}

/// Carried through the HTTP client's errors so that the call can tell it from a network fault.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct NoTrust(pub String);

impl Tls {
    /// Nothing is read yet. Certificates are judged at `now`, by the system's clock unless given.
    #[must_use]
    pub fn new(trust: Trust, now: Option<Now>) -> Self {
        Self { shared: Arc::new(Shared { trust, now, config: OnceLock::new() }) }
    }

    fn config(&self) -> Result<Arc<ClientConfig>, NoTrust> {
        if let Some(config) = self.shared.config.get() {
            return Ok(config.clone());
        }
        let authorities = self.shared.trust.authorities().map_err(NoTrust)?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = ClientConfig::builder_with_details(provider, Arc::new(Clock(self.shared.now.clone())))
            .with_safe_default_protocol_versions()
            .map_err(|error| NoTrust(error.to_string()))?
            .with_root_certificates(authorities)
            .with_no_client_auth();
        config.resumption = Resumption::in_memory_sessions(SESSIONS_MAX);
        // Two threads may both have made one; the first is kept and the other forgotten.
        Ok(self.shared.config.get_or_init(|| Arc::new(config)).clone())
    }
}

impl Default for Tls {
    /// The system's authorities and clock.
    fn default() -> Self {
        Tls::new(Trust::System, None)
    }
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tls")
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

impl<In: Transport> Connector<In> for Tls {
    type Out = Either<In, TlsTransport>;

    fn connect(&self, details: &ConnectionDetails<'_>, chained: Option<In>) -> Result<Option<Self::Out>, ureq::Error> {
        let Some(transport) = chained else { return Err(ureq::Error::ConnectionFailed) };
        if !details.needs_tls() || transport.is_tls() {
            return Ok(Some(Either::A(transport)));
        }
        let config = self.config().map_err(|error| ureq::Error::Other(Box::new(error)))?;
        let host = crate::bare(details.uri.host().unwrap_or_default());
        let name = ServerName::try_from(host)
            .map_err(|_| ureq::Error::Tls("the server's name cannot stand in a certificate"))?
            .to_owned();
        let mut tls = ClientConnection::new(config, name)?;
        let mut socket = TransportAdapter::new(transport.boxed(), details.current_time.clone());
        socket.set_timeout(details.timeout);
        tls.complete_io(&mut socket).map_err(refused_or_broken)?;
        let buffers = LazyBuffers::new(details.config.input_buffer_size(), details.config.output_buffer_size());
        Ok(Some(Either::B(TlsTransport { buffers, stream: StreamOwned::new(tls, socket) })))
    }
}

/// rustls hides its own errors inside io errors; brought out, a refused certificate differs from a broken line.
fn refused_or_broken(error: io::Error) -> ureq::Error {
    match error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
        Some(refused) => ureq::Error::Rustls(refused.clone()),
        None => error.into(),
    }
}

/// An encrypted connection.
pub struct TlsTransport {
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
        self.stream.write_all(output).map_err(refused_or_broken)
    }

    fn await_input(&mut self, timeout: NextTimeout) -> Result<bool, ureq::Error> {
        self.stream.sock.set_timeout(timeout);
        let input = self.buffers.input_append_buf();
        let amount = self.stream.read(input).map_err(refused_or_broken)?;
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
