//! TLS for the port: one certificate chain and key, both HTTP versions by ALPN.
//!
//! The files are looked at every few seconds and on SIGHUP, and what is new in them is used from the next connection on:
//! certificates are renewed every few weeks by programs that know nothing of us. While the files do not belong together
//! (one of two was replaced), the old ones stay in use.

use std::{
    fmt, fs, io,
    path::{Path, PathBuf},
    sync::{Arc, PoisonError, RwLock},
    time::{Duration, SystemTime},
};

use tokio::sync::watch;
use tokio_rustls::{
    TlsAcceptor,
    rustls::{
        self, ServerConfig,
        crypto::ring,
        pki_types::{CertificateDer, PrivateKeyDer, pem, pem::PemObject},
        server::{ClientHello, ResolvesServerCert},
        sign::CertifiedKey,
    },
};

use crate::context::Context;

/// How often the files are looked at: a glance at two names.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// Why TLS cannot be offered. For the person who started the server.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// No such file, no permission, no PEM in it.
    #[error("cannot read a PEM certificate or key from {path}")]
    Pem {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: pem::Error,
    },
    /// The two do not belong together, or are of a kind rustls refuses.
    #[error("the certificate and its key cannot be used")]
    Unusable(#[source] rustls::Error),
}

/// Two files and what was last read from them.
pub struct Certificate {
    certificate: PathBuf,
    key: PathBuf,
    current: Arc<Current>,
    seen: RwLock<Looks>,
}

/// What the looks at the files have shown.
struct Looks {
    /// In the last one.
    last: Option<Seen>,
    /// In the one after which they were read.
    read: Option<Seen>,
}

/// What came of one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Look {
    /// There was nothing to read.
    Unread,
    /// What was read is in use.
    Used,
    /// What was read cannot be used: the old one stays.
    Refused,
}

/// What tells one state of the files from another.
type Seen = [(SystemTime, u64); 2];

struct Current(RwLock<Arc<CertifiedKey>>);

impl fmt::Debug for Current {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the current certificate")
    }
}

impl ResolvesServerCert for Current {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.0.read().unwrap_or_else(PoisonError::into_inner).clone())
    }
}

impl Certificate {
    /// Reads both files.
    pub fn read(certificate: &Path, key: &Path) -> Result<Self, TlsError> {
        let seen = seen(certificate, key).ok();
        let current = Arc::new(Current(RwLock::new(read(certificate, key)?)));
        Ok(Self {
            certificate: certificate.into(),
            key: key.into(),
            current,
            seen: RwLock::new(Looks { last: seen, read: seen }),
        })
    }

    /// For connections, of now and of later.
    pub fn acceptor(&self) -> Result<TlsAcceptor, TlsError> {
        let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(TlsError::Unusable)?
            .with_no_client_auth()
            .with_cert_resolver(self.current.clone());
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(TlsAcceptor::from(Arc::new(config)))
    }

    /// What is `asked` for is read as it is; else files that were changed are read once they have not changed any more
    /// from one look to the next.
    fn look(&self, asked: bool) -> Look {
        let now = seen(&self.certificate, &self.key).ok();
        {
            let mut known = self.seen.write().unwrap_or_else(PoisonError::into_inner);
            // Twice the same: a program that writes a chain piece by piece has come to its end.
            let settled = now.is_some() && known.last == now;
            known.last = now;
            if !asked && (!settled || known.read == now) {
                return Look::Unread;
            }
            // Also when they turn out to be wrong: they are tried again when they change once more, not all the time.
            known.read = now;
        }
        match read(&self.certificate, &self.key) {
            Ok(new) => {
                *self.current.0.write().unwrap_or_else(PoisonError::into_inner) = new;
                tracing::info!(certificate = %self.certificate.display(), "a new certificate is in use");
                Look::Used
            }
            Err(problem) => {
                tracing::warn!(%problem, "the files of the certificate changed and cannot be used: the old ones stay");
                Look::Refused
            }
        }
    }
}

/// Until the server stops.
pub(super) async fn keep_current(
    certificate: Arc<Certificate>,
    context: Arc<Context>,
    mut reload: watch::Receiver<u64>,
    mut stop: watch::Receiver<bool>,
) {
    loop {
        let asked = tokio::select! {
            () = tokio::time::sleep(LOOK_EVERY) => false,
            Ok(()) = reload.changed() => true,
            _ = stop.wait_for(|stop| *stop) => return,
        };
        let certificate = certificate.clone();
        match tokio::task::spawn_blocking(move || certificate.look(asked)).await {
            Ok(Look::Used) => context.metrics.certificate_reloaded(),
            Ok(Look::Refused) => context.metrics.certificate_refused(),
            Ok(Look::Unread) | Err(_) => {}
        }
    }
}

fn seen(certificate: &Path, key: &Path) -> io::Result<Seen> {
    let one = |path: &Path| fs::metadata(path).and_then(|file| Ok((file.modified()?, file.len())));
    Ok([one(certificate)?, one(key)?])
}

fn read(certificate: &Path, key: &Path) -> Result<Arc<CertifiedKey>, TlsError> {
    let pem = |path: &Path| {
        let path = path.to_owned();
        move |source| TlsError::Pem { path, source }
    };
    let chain = CertificateDer::pem_file_iter(certificate)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(pem(certificate))?;
    let key = PrivateKeyDer::from_pem_file(key).map_err(pem(key))?;
    let both = CertifiedKey::from_der(chain, key, &ring::default_provider()).map_err(TlsError::Unusable)?;
    Ok(Arc::new(both))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_half_replaced_pair_changes_nothing_until_it_is_whole() {
        let folder = tempfile::tempdir().unwrap();
        let (certificate, key) = (folder.path().join("cert.pem"), folder.path().join("key.pem"));
        let pair = || rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
        let (first, second) = (pair(), pair());
        fs::write(&certificate, first.cert.pem()).unwrap();
        fs::write(&key, first.signing_key.serialize_pem()).unwrap();
        let watched = Certificate::read(&certificate, &key).unwrap();
        let shown = || watched.current.0.read().unwrap().cert[0].clone();
        let was = shown();
        assert_eq!(watched.look(false), Look::Unread, "nothing changed");
        assert_eq!(watched.look(true), Look::Used, "asked for, it is read all the same");
        assert_eq!(shown(), was);
        fs::write(&certificate, second.cert.pem()).unwrap();
        assert_eq!(watched.look(true), Look::Refused, "the key is still the old one");
        assert_eq!(shown(), was);
        fs::write(&certificate, "half a f").unwrap();
        assert_eq!(watched.look(true), Look::Refused);
        fs::remove_file(&certificate).unwrap();
        assert_eq!((watched.look(false), watched.look(true)), (Look::Unread, Look::Refused));
        assert_eq!(shown(), was, "a missing file is no reason to stop");
        fs::write(&certificate, second.cert.pem()).unwrap();
        fs::write(&key, second.signing_key.serialize_pem()).unwrap();
        assert_eq!(watched.look(true), Look::Used);
        assert_ne!(shown(), was);
        // Without being asked: a chain that is being written is waited for.
        let (leaf, whole) = (first.cert.pem(), format!("{}{}", first.cert.pem(), second.cert.pem()));
        fs::write(&key, first.signing_key.serialize_pem()).unwrap();
        fs::write(&certificate, &leaf).unwrap();
        assert_eq!(watched.look(false), Look::Unread, "it may not be all");
        fs::write(&certificate, &whole).unwrap();
        assert_eq!(watched.look(false), Look::Unread);
        assert_eq!(watched.look(false), Look::Used, "nothing came after it");
        assert_eq!(watched.current.0.read().unwrap().cert.len(), 2);
        assert_eq!(watched.look(false), Look::Unread);
    }
}
