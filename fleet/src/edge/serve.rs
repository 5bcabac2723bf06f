//! Sockets: accept, TLS, HTTP/1.1 or HTTP/2, and an orderly end.
//!
//! A connection that breaks, says nothing or talks nonsense is that connection's end and nobody's error: clients probe
//! a port with a TLS hello before they talk to it in plain text.

use std::{
    convert::Infallible,
    io,
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use http::Request;
use hyper::{body::Incoming, service::service_fn};
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::{conn::auto, graceful::GracefulShutdown},
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream},
    sync::{Semaphore, watch},
    time::timeout,
};
use tokio_rustls::TlsAcceptor;
use tonic::body::Body;
use tonic_health::server::{HealthReporter, HealthService};

use super::{Services, answer};
use crate::{
    context::Context,
    limits::{
        CALLS_PER_CONNECTION_MAX, CONNECTIONS_MAX, DRAIN_WITHIN, FIRST_BYTE_WITHIN, HEADER_BYTES_MAX, HEADERS_WITHIN,
        KEEP_ALIVE_EVERY, KEEP_ALIVE_WITHIN,
    },
};

/// After the system refused a connection (no descriptors left): trying at once would spin.
const ACCEPT_AGAIN_AFTER: Duration = Duration::from_millis(100);

/// What the port is.
pub struct Edge {
    /// Already listening.
    pub listener: TcpListener,
    /// Plain text without.
    pub tls: Option<TlsAcceptor>,
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
}

impl Edge {
    /// Takes the port.
    pub async fn bind(address: SocketAddr, tls: Option<TlsAcceptor>) -> Result<Self, ServeError> {
        let listener = TcpListener::bind(address).await.map_err(|source| match source.kind() {
            io::ErrorKind::AddrInUse => ServeError::InUse { address },
            _ => ServeError::Listen { address, source },
        })?;
        Ok(Self { listener, tls })
    }
}

/// Serves until `stop` becomes true, then lets running calls finish for a limited time.
pub async fn serve(edge: Edge, context: Arc<Context>, mut stop: watch::Receiver<bool>) {
    let health = HealthReporter::new();
    for service in SERVICES {
        health.set_service_status(service, tonic_health::ServingStatus::Serving).await;
    }
    let services = Services::new(context.clone(), HealthService::from_health_reporter(health.clone()));
    let connections = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let graceful = GracefulShutdown::new();
    let http = Arc::new(http());
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
        // Full: the newcomer is closed at once, which clients take for "try again", instead of waiting without a word.
        let Ok(permit) = connections.clone().try_acquire_owned() else { continue };
        let (services, http, tls, watcher) = (services.clone(), http.clone(), edge.tls.clone(), graceful.watcher());
        tokio::spawn(async move {
            let _permit = permit;
            let context = services.context.clone();
            context.metrics.connected();
            let from = peer.ip().to_canonical();
            match (opened(&stream).await, tls) {
                (false, _) => {}
                (true, None) => connection(stream, services, &http, watcher, from).await,
                (true, Some(tls)) => match timeout(HEADERS_WITHIN, tls.accept(stream)).await {
                    Ok(Ok(stream)) => connection(stream, services, &http, watcher, from).await,
                    Ok(Err(problem)) => tracing::debug!(%from, %problem, "TLS was not agreed"),
                    Err(_) => tracing::debug!(%from, "TLS was not agreed in time"),
                },
            }
            context.metrics.disconnected();
        });
    }
    drop(edge.listener);
    for service in SERVICES {
        health.set_service_status(service, tonic_health::ServingStatus::NotServing).await;
    }
    if timeout(DRAIN_WITHIN, graceful.shutdown()).await.is_err() {
        tracing::warn!("some calls did not end in time and are cut off");
    }
}

async fn told(stop: &mut watch::Receiver<bool>) {
    // An error means that the sender is gone, which is a way of being told.
    let _ = stop.wait_for(|stop| *stop).await;
}

/// What the health service knows by name; "" is the server as a whole.
const SERVICES: [&str; 14] = [
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

fn http() -> auto::Builder<TokioExecutor> {
    let mut http = auto::Builder::new(TokioExecutor::new());
    http.http1().timer(TokioTimer::new()).header_read_timeout(HEADERS_WITHIN).max_buf_size(64 * 1024);
    http.http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(CALLS_PER_CONNECTION_MAX)
        .max_header_list_size(HEADER_BYTES_MAX)
        .keep_alive_interval(KEEP_ALIVE_EVERY)
        .keep_alive_timeout(KEEP_ALIVE_WITHIN);
    http
}

/// Whether the peer says anything at all.
async fn opened(stream: &TcpStream) -> bool {
    // A device's small messages must not wait for each other.
    let _ = stream.set_nodelay(true);
    let mut first = [0];
    matches!(timeout(FIRST_BYTE_WITHIN, stream.peek(&mut first)).await, Ok(Ok(1)))
}

async fn connection(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    services: Services,
    http: &auto::Builder<TokioExecutor>,
    watcher: hyper_util::server::graceful::Watcher,
    from: IpAddr,
) {
    let calls = service_fn(move |request: Request<Incoming>| {
        let services = services.clone();
        async move { Ok::<_, Infallible>(answer(services, request.map(Body::new), from).await) }
    });
    let connection = http.serve_connection(TokioIo::new(stream), calls).into_owned();
    if let Err(problem) = watcher.watch(connection).await {
        tracing::debug!(%from, problem, "a connection ended in disorder");
    }
}
