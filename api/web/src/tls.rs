//! TLS for the HTTP client, with a connector of our own, because only so the caller can say what time it is: a board
//! without a battery boots in 1970, where every certificate is "not yet valid".

use std::{
    fmt,
    io::{self, Read, Write},
    sync::{Arc, OnceLock},
    time::{SystemTime, UNIX_EPOCH},
};

use rustls::{
    ClientConfig, ClientConnection, StreamOwned,
    client::Resumption,
    pki_types::{ServerName, UnixTime},
    time_provider::TimeProvider,
};
use ureq::unversioned::transport::{
    Buffers, ConnectionDetails, Connector, Either, LazyBuffers, NextTimeout, Transport, TransportAdapter,
};

use crate::trust::{Judge, NoTrust, Trust};

/// Sessions kept for a quick second handshake: there is one server.
const SESSIONS_MAX: usize = 2;

/// Tells the time for judging certificates.
pub type Now = Arc<dyn Fn() -> SystemTime + Send + Sync>;

/// Adds TLS to connections that ask for it. Clones share the sessions.
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

impl Tls {
    /// Nothing is read yet. Certificates are judged at `now`, by the system's clock unless given.
    #[must_use]
    pub fn new(trust: Trust, now: Option<Now>) -> Self {
        Self { shared: Arc::new(Shared { trust, now, config: OnceLock::new() }) }
    }

    fn config(&self) -> Result<Arc<ClientConfig>, rustls::Error> {
        if let Some(config) = self.shared.config.get() {
            return Ok(config.clone());
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let judge = Arc::new(Judge::new(self.shared.trust.clone(), provider.clone()));
        let mut config = ClientConfig::builder_with_details(provider, Arc::new(Clock(self.shared.now.clone())))
            .with_safe_default_protocol_versions()?
            .dangerous()
            .with_custom_certificate_verifier(judge)
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
        let config = self.config()?;
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
        Some(refused) => match NoTrust::within(refused) {
            Some(no_trust) => ureq::Error::Other(Box::new(no_trust)),
            None => ureq::Error::Rustls(refused.clone()),
        },
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
