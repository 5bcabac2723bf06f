//! Sockets: accept, TLS, HTTP/1.1 or HTTP/2, and an orderly end.
//!
//! A connection that breaks, says nothing or talks nonsense is that connection's end and nobody's error: clients probe
//! a port with a TLS hello before they talk to it in plain text.

use std::{
    convert::Infallible,
    io,
    net::{IpAddr, SocketAddr},
    pin::{Pin, pin},
    sync::Arc,
    task::{Context as Poller, Poll},
    time::{Duration, Instant},
};

use http::{Request, Response, Version};
use hyper::{body::Incoming, service::service_fn};
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::conn::auto,
};
use socket2::SockRef;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf},
    net::{TcpListener, TcpStream},
    sync::watch,
    time::{Sleep, timeout},
};
use tokio_rustls::{TlsAcceptor, server::TlsStream};
use tonic::body::Body;
use tonic_health::server::{HealthReporter, HealthService};

use super::{
    Peer, Services, answer,
    balancer::{self, NoHeader},
    places::{Places, Seat},
    proxy::Network,
    rest, time_limit,
    tls::{Certificate, TlsError, keep_current},
};
use crate::{
    context::Context,
    limits::{
        CALLS_PER_CONNECTION_MAX, DRAIN_WITHIN, HEADER_BYTES_MAX, KEEP_ALIVE_EVERY, KEEP_ALIVE_WITHIN, LEAVE_WITHIN,
        Waits,
    },
};

/// After the system refused a connection (no descriptors left): trying at once would spin.
const ACCEPT_AGAIN_AFTER: Duration = Duration::from_millis(100);

/// Connections that may wait to be taken, as far as the system allows so many. After a power cut 50,000 devices come at
/// once; one that finds no room tries again a second later, and then two.
const BACKLOG: i32 = 4096;

/// Of what is written to a connection, as much as this waits in the system for its turn on the line; what the peer has not
/// acknowledged yet comes on top. Without a bound the system takes megabytes for a peer that reads nothing, and work is
/// done, and memory held, for whoever opens streams and looks away.
const UNSENT_MAX: u32 = 32 * 1024;

/// What the port is.
pub struct Edge {
    /// Already listening.
    pub listener: TcpListener,
    /// Plain text without.
    tls: Option<(Arc<Certificate>, TlsAcceptor)>,
    connections_max: usize,
    stranger_for: Duration,
    balancers: Vec<Network>,
}

/// Why the port could not be opened. For the person who started the server.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// Somebody else has it.
    #[error("{address} is in use by another program: stop it, or choose another address with --listen")]
    InUse {
        /// Where.
        address: SocketAddr,
    },
    /// No permission, no such address.
    #[error("cannot listen on {address}")]
    Listen {
        /// Where.
        address: SocketAddr,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// See [`TlsError`].
    #[error(transparent)]
    Tls(#[from] TlsError),
}

impl Edge {
    /// Takes the port, for so many connections. While more than half of them are there, one that has shown no good token
    /// and does nothing is closed after `stranger_for`; see `places.rs` for what happens when all are there. Connections of
    /// `balancers` begin with a header that says whose they are: `balancer.rs`.
    pub async fn bind(
        address: SocketAddr,
        tls: Option<Certificate>,
        connections_max: usize,
        stranger_for: Duration,
        balancers: Vec<Network>,
    ) -> Result<Self, ServeError> {
        let tls = match tls {
            Some(certificate) => Some((certificate.acceptor()?, certificate)),
            None => None,
        };
        let tls = tls.map(|(acceptor, certificate)| (Arc::new(certificate), acceptor));
        let listener = TcpListener::bind(address).await.map_err(|source| match source.kind() {
            io::ErrorKind::AddrInUse => ServeError::InUse { address },
            _ => ServeError::Listen { address, source },
        })?;
        // More than the listener came with.
        if let Err(problem) = SockRef::from(&listener).listen(BACKLOG) {
            tracing::warn!(%problem, "few connections may wait to be taken");
        }
        // Every connection has it from the port.
        if let Err(problem) = SockRef::from(&listener).set_tcp_notsent_lowat(UNSENT_MAX) {
            tracing::warn!(%problem, "the system does not bound what waits for peers that do not read");
        }
        Ok(Self { listener, tls, connections_max, stranger_for, balancers })
    }
}

/// Serves until `stop` becomes true, then lets running calls finish for a limited time. A change of `reload` has the
/// certificate read again.
pub async fn serve(edge: Edge, context: Arc<Context>, reload: watch::Receiver<u64>, mut stop: watch::Receiver<bool>) {
    let acceptor = edge.tls.as_ref().map(|(_, acceptor)| acceptor.clone());
    if let Some((certificate, _)) = edge.tls {
        tokio::spawn(keep_current(certificate, context.clone(), reload, stop.clone()));
    }
    let health = HealthReporter::new();
    for service in SERVICES {
        health.set_service_status(service, tonic_health::ServingStatus::Serving).await;
    }
    let services = Services::new(context.clone(), HealthService::from_health_reporter(health.clone()));
    let places = Places::new(edge.connections_max, edge.stranger_for);
    let waits = context.waits;
    let http = Arc::new(http(&waits));
    loop {
        let (stream, peer) = tokio::select! {
            accepted = edge.listener.accept() => match accepted {
                Ok(accepted) => accepted,
                Err(problem) => {
                    tracing::warn!(%problem, "could not accept a connection");
                    tokio::time::sleep(ACCEPT_AGAIN_AFTER).await;
                    continue;
                }
            },
            () = told(&mut stop) => break,
        };
        let from = peer.ip().to_canonical();
        let trusted = context.trusted_proxies.iter().any(|proxy| proxy.has(from));
        let balanced = edge.balancers.iter().any(|balancer| balancer.has(from));
        // Full: the newcomer is closed at once, which clients take for "try again", instead of waiting without a word.
        let Some(place) = places.take(from, trusted, &context.metrics) else { continue };
        let (services, http, tls, mut stop) = (services.clone(), http.clone(), acceptor.clone(), stop.clone());
        tokio::spawn(async move {
            let context = services.context.clone();
            let begun = async {
                let mut stream = stream;
                if !opened(&stream, &waits).await {
                    return None;
                }
                let from = match balanced {
                    true => Box::pin(brought(&mut stream, from, &place.seat, &context)).await?,
                    false => from,
                };
                let wire = match tls {
                    None => Wire::Plain(stream),
                    Some(tls) => match timeout(waits.headers, tls.accept(stream)).await {
                        Ok(Ok(stream)) => Wire::Tls(Box::new(stream)),
                        Ok(Err(problem)) => {
                            tracing::debug!(%from, %problem, "TLS was not agreed");
                            return None;
                        }
                        Err(_) => return None,
                    },
                };
                Some((from, Begun::new(wire, waits.headers).await?))
            };
            // Nothing was asked yet: nobody is told.
            let begun = tokio::select! {
                begun = begun => begun,
                () = place.seat.has_to_leave() => None,
                () = told(&mut stop) => None,
            };
            match begun {
                Some((ip, stream)) => {
                    let peer = Peer { ip, seat: place.seat.clone() };
                    connection(stream, services, &http, peer, stop).await;
                }
                None => tracing::debug!(%from, "a connection did not say in time what it wants"),
            }
            context.metrics.disconnected();
            drop(place);
        });
    }
    drop(edge.listener);
    for service in SERVICES {
        health.set_service_status(service, tonic_health::ServingStatus::NotServing).await;
    }
    if timeout(DRAIN_WITHIN, places.empty()).await.is_err() {
        tracing::warn!("some calls did not end in time and are cut off");
    }
}

async fn told(stop: &mut watch::Receiver<bool>) {
    // An error means that the sender is gone, which is a way of being told.
    let _ = stop.wait_for(|stop| *stop).await;
}

/// What the health service knows by name; "" is the server as a whole.
pub(super) const SERVICES: [&str; 14] = [
    "",
    "proto.rpc.v1.AuthService",
    "platform.app.v1.AppService",
    "platform.app.v1.RobotService",
    "platform.app.agent.v1.AgentDeviceService",
    "platform.app.packages.v1.PackageService",
    "platform.fleet.v1.DeviceService",
    "platform.fleet.v1.AdminService",
    "viam.app.v1.AppService",
    "viam.app.v1.RobotService",
    "viam.app.agent.v1.AgentDeviceService",
    "viam.app.packages.v1.PackageService",
    "viam.fleet.v1.DeviceService",
    "viam.fleet.v1.AdminService",
];

fn http(waits: &Waits) -> auto::Builder<TokioExecutor> {
    let mut http = auto::Builder::new(TokioExecutor::new());
    // Headers may be as long as that; and of an answer that is not read, as much and one piece more is buffered.
    http.http1().timer(TokioTimer::new()).header_read_timeout(waits.headers).max_buf_size(HEADER_BYTES_MAX as usize);
    http.http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(CALLS_PER_CONNECTION_MAX)
        .max_header_list_size(HEADER_BYTES_MAX)
        .keep_alive_interval(KEEP_ALIVE_EVERY)
        .keep_alive_timeout(KEEP_ALIVE_WITHIN);
    http
}

/// Whether the peer says anything at all.
async fn opened(stream: &TcpStream, waits: &Waits) -> bool {
    // A device's small messages must not wait for each other.
    let _ = stream.set_nodelay(true);
    let mut first = [0];
    matches!(timeout(waits.first_byte, stream.peek(&mut first)).await, Ok(Ok(1)))
}

/// Whom a balancer brings, from now on the one whose place it is; or the balancer itself. Nothing if it does not say so,
/// or if then nobody says anything.
async fn brought(stream: &mut TcpStream, balancer: IpAddr, seat: &Seat, context: &Context) -> Option<IpAddr> {
    let told = timeout(context.waits.headers, balancer::brought(stream)).await.unwrap_or(Err(NoHeader::Slow));
    let from = match told {
        Ok(told) => told.unwrap_or(balancer),
        Err(problem) => {
            // A balancer that is set up wrongly does so every time, and nobody looks for it among what is said quietly.
            match context.metrics.header_missed() {
                0 => {
                    tracing::warn!(%balancer, %problem, "a balancer does not say whom it brings; the next ones are counted")
                }
                _ => tracing::debug!(%balancer, %problem, "a balancer did not say whom it brings"),
            }
            return None;
        }
    };
    seat.brought(from, context.trusted_proxies.iter().any(|proxy| proxy.has(from)));
    opened(stream, &context.waits).await.then_some(from)
}

/// A connection, with TLS or without.
enum Wire {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

macro_rules! either {
    ($wire:expr, $inner:ident => $call:expr) => {
        match $wire.get_mut() {
            Wire::Plain(stream) => {
                let $inner = Pin::new(stream);
                $call
            }
            Wire::Tls(stream) => {
                let $inner = Pin::new(&mut **stream);
                $call
            }
        }
    };
}

impl AsyncRead for Wire {
    fn poll_read(self: Pin<&mut Self>, poller: &mut Poller<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        either!(self, stream => stream.poll_read(poller, buffer))
    }
}

impl AsyncWrite for Wire {
    fn poll_write(self: Pin<&mut Self>, poller: &mut Poller<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        either!(self, stream => stream.poll_write(poller, bytes))
    }

    fn poll_flush(self: Pin<&mut Self>, poller: &mut Poller<'_>) -> Poll<io::Result<()>> {
        either!(self, stream => stream.poll_flush(poller))
    }

    fn poll_shutdown(self: Pin<&mut Self>, poller: &mut Poller<'_>) -> Poll<io::Result<()>> {
        either!(self, stream => stream.poll_shutdown(poller))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        poller: &mut Poller<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        either!(self, stream => stream.poll_write_vectored(poller, pieces))
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Plain(stream) => stream.is_write_vectored(),
            Self::Tls(stream) => stream.is_write_vectored(),
        }
    }
}

/// A peer that has kept us waiting for this long, all in all …
const STALLED_WITHIN: Duration = Duration::from_secs(60);
/// … while it took less than this is given up: a kilobyte a second is less than any line has.
const STALLED_BYTES: usize = 64 * 1024;

/// What an HTTP/2 client says first.
const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// A stream whose first bytes were read already, to know what it speaks.
struct Begun<S> {
    stream: S,
    stalled: Stalled,
    first: [u8; PREFACE.len()],
    /// Read from the stream, and handed on.
    read: usize,
    given: usize,
}

impl<S: AsyncRead + Unpin> Begun<S> {
    /// Reads as far as it takes to tell HTTP/2 from anything else. Nothing if the peer does not say that much in time:
    /// what waits for these bytes further on waits without end.
    async fn new(stream: S, within: Duration) -> Option<Self> {
        let stalled = Stalled { within: STALLED_WITHIN, written: 0, waited: Duration::ZERO, since: None, timer: None };
        let mut begun = Self { stream, stalled, first: [0; PREFACE.len()], read: 0, given: 0 };
        let tell = async {
            while begun.read < PREFACE.len() && begun.first.get(..begun.read) == PREFACE.get(..begun.read) {
                match begun.stream.read(begun.first.get_mut(begun.read..).unwrap_or_default()).await {
                    Ok(length @ 1..) => begun.read += length,
                    Ok(0) | Err(_) => return begun.read > 0,
                }
            }
            true
        };
        matches!(timeout(within, tell).await, Ok(true)).then_some(begun)
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Begun<S> {
    fn poll_read(mut self: Pin<&mut Self>, poller: &mut Poller<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let (from, to) = (self.given, self.read);
        let rest = self.first.get(from..to).unwrap_or_default();
        if rest.is_empty() {
            return Pin::new(&mut self.stream).poll_read(poller, buffer);
        }
        let length = rest.len().min(buffer.remaining());
        buffer.put_slice(rest.get(..length).unwrap_or_default());
        self.given += length;
        Poll::Ready(Ok(()))
    }
}

/// How long a peer keeps us waiting that does not read.
struct Stalled {
    within: Duration,
    /// Bytes taken since it was looked at last.
    written: usize,
    /// How long was waited for them.
    waited: Duration,
    since: Option<Instant>,
    timer: Option<Pin<Box<Sleep>>>,
}

impl Stalled {
    /// What became of a write; an end where too little was taken for too long.
    fn after(&mut self, poller: &mut Poller<'_>, outcome: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        let Poll::Ready(done) = outcome else {
            let since = *self.since.get_or_insert_with(Instant::now);
            let left = self.within.saturating_sub(self.waited);
            let timer = self.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep_until((since + left).into())));
            return match timer.as_mut().poll(poller) {
                Poll::Ready(()) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
                Poll::Pending => Poll::Pending,
            };
        };
        // Usually nobody was waited for.
        if let Some(since) = self.since.take() {
            self.timer = None;
            self.waited += since.elapsed();
        }
        if !self.waited.is_zero() {
            self.written += done.as_ref().map_or(0, |bytes| *bytes);
            if self.written >= STALLED_BYTES {
                (self.written, self.waited) = (0, Duration::ZERO);
            }
        }
        Poll::Ready(done)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Begun<S> {
    fn poll_write(mut self: Pin<&mut Self>, poller: &mut Poller<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let outcome = Pin::new(&mut self.stream).poll_write(poller, bytes);
        self.stalled.after(poller, outcome)
    }

    fn poll_flush(mut self: Pin<&mut Self>, poller: &mut Poller<'_>) -> Poll<io::Result<()>> {
        let outcome = Pin::new(&mut self.stream).poll_flush(poller).map_ok(|()| 0);
        self.stalled.after(poller, outcome).map_ok(drop)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, poller: &mut Poller<'_>) -> Poll<io::Result<()>> {
        let outcome = Pin::new(&mut self.stream).poll_shutdown(poller).map_ok(|()| 0);
        self.stalled.after(poller, outcome).map_ok(drop)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        poller: &mut Poller<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let outcome = Pin::new(&mut self.stream).poll_write_vectored(poller, pieces);
        self.stalled.after(poller, outcome)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

/// The answer to one request.
type Answered = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

async fn connection(
    stream: Begun<Wire>,
    services: Services,
    http: &auto::Builder<TokioExecutor>,
    peer: Peer,
    mut stop: watch::Receiver<bool>,
) {
    let (from, seat): (_, Arc<Seat>) = (peer.ip, peer.seat.clone());
    let (stopped, most) = (stop.clone(), services.context.waits.call);
    let calls = service_fn(move |request: Request<Incoming>| -> Answered {
        let (services, peer) = (services.clone(), peer.clone());
        let answered = |request| async move {
            let _busy = peer.seat.busy();
            answer(services, request, peer).await
        };
        // On its own: a stream is open for long after what made its answer, which is large, has ended.
        match request.version() {
            Version::HTTP_2 => Box::pin(async move { Ok(answered(request.map(Body::new)).await) }),
            _ => {
                let mut stopped = stopped.clone();
                let within = time_limit(request.headers(), most);
                Box::pin(async move { Ok(rest::after_all(request, within, told(&mut stopped), answered).await) })
            }
        }
    });
    let mut connection = pin!(http.serve_connection(TokioIo::new(stream), calls).into_owned());
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = seat.has_to_leave() => {
            // Told, where the protocol has a word for it; waited for only as long as it takes to say so.
            connection.as_mut().graceful_shutdown();
            timeout(LEAVE_WITHIN, connection.as_mut()).await.unwrap_or(Ok(()))
        }
        () = told(&mut stop) => {
            connection.as_mut().graceful_shutdown();
            connection.as_mut().await
        }
    };
    if let Err(problem) = ended {
        tracing::debug!(%from, problem, "a connection ended in disorder");
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt;

    use super::*;

    #[tokio::test]
    async fn what_was_read_to_know_the_protocol_is_not_lost() {
        let long = [PREFACE, &[7_u8; 100][..]].concat();
        let table: [&[u8]; 5] =
            [b"GET / HTTP/1.1\r\n\r\n", b"PRI * HTTP/1.1\r\n\r\n", b"P", b"PRI * HTTP/2.0\r\n", &long];
        for said in table {
            let (mut client, server) = tokio::io::duplex(1024);
            client.write_all(said).await.unwrap();
            drop(client);
            let mut begun = Begun::new(server, Duration::from_secs(60)).await.expect("it said something");
            let mut heard = Vec::new();
            begun.read_to_end(&mut heard).await.unwrap();
            assert_eq!(heard, said);
        }
        let (client, server) = tokio::io::duplex(1024);
        drop(client);
        assert!(Begun::new(server, Duration::from_secs(60)).await.is_none(), "nothing was said");
    }

    #[tokio::test]
    async fn who_spells_out_its_first_words_is_not_waited_for() {
        let (mut client, server) = tokio::io::duplex(1024);
        // As much of an HTTP/2 preface as leaves the question open, and the connection stays open.
        client.write_all(&PREFACE[..20]).await.unwrap();
        assert!(Begun::new(server, Duration::from_millis(20)).await.is_none());
        assert!(client.write_all(b"x").await.is_err(), "it was hung up on");
    }

    #[tokio::test]
    async fn little_waits_in_the_system_for_who_does_not_read() {
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let edge = Edge::bind(any, None, 1, Duration::from_secs(60), Vec::new()).await.unwrap();
        let mut client = TcpStream::connect(edge.listener.local_addr().unwrap()).await.unwrap();
        client.write_all(b"GET / HTTP/1.1\r\n").await.unwrap();
        let (server, _) = edge.listener.accept().await.unwrap();
        let mut begun = Begun::new(server, Duration::from_secs(60)).await.unwrap();
        begun.stalled.within = Duration::from_millis(50);
        let mut written = 0;
        let ended = loop {
            match begun.write(&[7; 16 << 10]).await {
                Ok(bytes) => written += bytes,
                Err(why) => break why.kind(),
            }
        };
        assert_eq!(ended, io::ErrorKind::TimedOut);
        // What the client's system takes for it, and what waits here.
        assert!((64 << 10..1 << 20).contains(&written), "{written} bytes");
    }

    #[tokio::test]
    async fn who_does_not_read_is_not_written_to_for_ever() {
        let (mut client, server) = tokio::io::duplex(1024);
        client.write_all(b"GET / HTTP/1.1\r\n").await.unwrap();
        let mut begun = Begun::new(server, Duration::from_secs(60)).await.unwrap();
        begun.stalled.within = Duration::from_millis(50);
        // Who reads, however late, is written to.
        let reading = tokio::spawn(async move {
            let mut taken = vec![0; 1 << 20];
            client.read_exact(&mut taken).await.unwrap();
            client
        });
        begun.write_all(&vec![7; 1 << 20]).await.unwrap();
        let client = reading.await.unwrap();
        let why = begun.write_all(&[7; 4096]).await.unwrap_err();
        assert_eq!(why.kind(), io::ErrorKind::TimedOut);
        drop(client);
    }
}
