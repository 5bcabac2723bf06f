//! How the bucket's library reaches the network: our own sockets and TLS, one connection for each request.
//!
//! A request is a part of megabytes, or rare; so a connection is not worth keeping, and none has to be found dead.
//! Everything has an end: connecting, the answer's head, and (in `mod.rs`) each piece of a body.

use std::{fmt, io, path::Path, pin::Pin, sync::Arc, time::Duration};

use http::{HeaderValue, Uri, header, uri::PathAndQuery, uri::Scheme};
use http_body_util::BodyExt;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use object_store::{
    ClientOptions,
    client::{
        HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpResponseBody, HttpService,
    },
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
    time::timeout,
};
use tokio_rustls::{
    TlsConnector,
    rustls::{ClientConfig, RootCertStore, crypto::ring, pki_types::ServerName},
};

use super::BucketError;
use crate::authorities::{self, AuthoritiesError};

/// For a host that does not answer.
const CONNECT_WITHIN: Duration = Duration::from_secs(5);
/// For a part that is on its way, and the head of the answer: 5 MiB over a slow line.
const HEAD_WITHIN: Duration = Duration::from_secs(120);

/// Makes connections. Cheap to clone.
#[derive(Clone)]
pub(super) struct Connector {
    tls: TlsConnector,
}

impl Connector {
    /// Believes the certificates in `file`, or those that the system trusts.
    pub(super) fn new(file: Option<&Path>) -> Result<Self, BucketError> {
        let roots = match authorities::roots(file) {
            Ok(roots) => roots,
            // A bucket by http needs none.
            Err(AuthoritiesError::None) => RootCertStore::empty(),
            Err(source) => return Err(BucketError::Authorities(source)),
        };
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|why| BucketError::Tls(why.to_string()))?
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(Self { tls: TlsConnector::from(Arc::new(config)) })
    }

    async fn send(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let (host, port, safe) = goal(request.uri())?;
        let connecting = async {
            let stream = TcpStream::connect((&*host, port)).await?;
            stream.set_nodelay(true)?;
            Ok(stream)
        };
        let stream = within(CONNECT_WITHIN, HttpErrorKind::Connect, connecting).await?;
        if !safe {
            return exchange(stream, request).await;
        }
        let name = ServerName::try_from(host).map_err(|why| HttpError::new(HttpErrorKind::Unknown, why))?;
        let stream = within(CONNECT_WITHIN, HttpErrorKind::Connect, self.tls.connect(name, stream)).await?;
        exchange(stream, request).await
    }
}

impl fmt::Debug for Connector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Connector")
    }
}

impl HttpConnector for Connector {
    fn connect(&self, _: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(self.clone()))
    }
}

impl HttpService for Connector {
    // As the library's macro writes it.
    fn call<'s, 'f>(
        &'s self,
        request: HttpRequest,
    ) -> Pin<Box<dyn Future<Output = Result<HttpResponse, HttpError>> + Send + 'f>>
    where
        's: 'f,
        Self: 'f,
    {
        Box::pin(self.send(request))
    }
}

/// Host, port, and whether by TLS.
fn goal(uri: &Uri) -> Result<(String, u16, bool), HttpError> {
    let nowhere = || HttpError::new(HttpErrorKind::Unknown, io::Error::other("the bucket's address has no host"));
    let safe = uri.scheme() != Some(&Scheme::HTTP);
    let host = uri.host().ok_or_else(nowhere)?.trim_matches(['[', ']']).to_owned();
    Ok((host, uri.port_u16().unwrap_or(if safe { 443 } else { 80 }), safe))
}

async fn exchange(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    mut request: HttpRequest,
) -> Result<HttpResponse, HttpError> {
    let failed = |why: hyper::Error| {
        let kind = if why.is_incomplete_message() || why.is_closed() || why.is_canceled() {
            HttpErrorKind::Request
        } else {
            HttpErrorKind::Interrupted
        };
        HttpError::new(kind, why)
    };
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(failed)?;
    // Ends with the answer's body.
    tokio::spawn(connection);
    if let Some(host) = request.uri().authority().and_then(|host| HeaderValue::from_str(host.as_str()).ok()) {
        request.headers_mut().insert(header::HOST, host);
    }
    request.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    let path = request.uri().path_and_query().cloned().unwrap_or_else(|| PathAndQuery::from_static("/"));
    *request.uri_mut() = Uri::from(path);
    let answered = timeout(HEAD_WITHIN, sender.send_request(request)).await;
    let answer = answered.map_err(|late| HttpError::new(HttpErrorKind::Timeout, late))?.map_err(failed)?;
    Ok(answer.map(|body| HttpResponseBody::new(body.map_err(failed))))
}

async fn within<T>(
    limit: Duration,
    kind: HttpErrorKind,
    work: impl Future<Output = io::Result<T>>,
) -> Result<T, HttpError> {
    match timeout(limit, work).await {
        Ok(done) => done.map_err(|why| HttpError::new(kind, why)),
        Err(late) => Err(HttpError::new(HttpErrorKind::Timeout, late)),
    }
}
