//! TLS to the database: the certificate is always verified, name included.

use std::{
    io,
    path::{Path, PathBuf},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::tls::{ChannelBinding, TlsConnect, TlsStream};
use tokio_rustls::{
    TlsConnector, client,
    rustls::{ClientConfig, crypto::ring, pki_types::ServerName},
};

use super::socket::Socket;
use crate::authorities::{self, AuthoritiesError};

/// Why no TLS can be offered. For the person who started the server.
#[derive(Debug, thiserror::Error)]
pub enum TlsSetupError {
    /// No file of the system, and none named.
    #[error("this system has no list of trusted certificates: name one with sslrootcert=FILE in --database")]
    NoRoots,
    /// No such file, no permission, no certificate in it.
    #[error("cannot read a PEM certificate from {path}")]
    Roots {
        /// Which.
        path: PathBuf,
    },
    /// The host is no name that a certificate can have.
    #[error("the host in --database is no name that a certificate can have")]
    Name,
    /// The library refuses its own defaults.
    #[error("TLS cannot be used")]
    Library,
}

/// Makes one connection safe.
#[derive(Clone)]
pub(super) struct Connect {
    connector: TlsConnector,
    name: ServerName<'static>,
}

impl Connect {
    pub(super) fn new(host: &str, roots: Option<&Path>) -> Result<Self, TlsSetupError> {
        let store = authorities::roots(roots).map_err(|why| match why {
            AuthoritiesError::None => TlsSetupError::NoRoots,
            AuthoritiesError::File { path, .. } => TlsSetupError::Roots { path },
        })?;
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|_| TlsSetupError::Library)?
            .with_root_certificates(store)
            .with_no_client_auth();
        let name = ServerName::try_from(host.to_owned()).map_err(|_| TlsSetupError::Name)?;
        Ok(Self { connector: TlsConnector::from(Arc::new(config)), name })
    }
}

/// The connection inside.
pub(super) struct Secured(client::TlsStream<Socket>);

impl TlsConnect<Socket> for Connect {
    type Stream = Secured;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Secured>> + Send>>;

    fn connect(self, socket: Socket) -> Self::Future {
        Box::pin(async move { self.connector.connect(self.name, socket).await.map(Secured) })
    }
}

impl TlsStream for Secured {
    fn channel_binding(&self) -> ChannelBinding {
        ChannelBinding::none()
    }
}

impl AsyncRead for Secured {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, buffer)
    }
}

impl AsyncWrite for Secured {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}
