//! Which servers are believed: certificate authorities, and the judgement of a server's certificates by them.
//!
//! A system's list holds 140 authorities, of which a server needs one. They are not kept: the list is read while a
//! certificate is judged, and of it only those are held whose name stands in the certificates shown. Sessions are
//! resumed without certificates, so a device reads the list once in many polls; a list that is renewed counts at once.

use std::{
    fmt,
    fs::File,
    io::{BufReader, Read},
    path::{Path, PathBuf},
    sync::Arc,
};

use rustls::{
    CertificateError, DigitallySignedStruct, OtherError, RootCertStore, SignatureScheme,
    client::{
        WebPkiServerVerifier,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    },
    crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature},
    pki_types::{CertificateDer, ServerName, UnixTime, pem::PemObject},
};

/// A system's whole bundle has a quarter of this.
const AUTHORITIES_BYTES_MAX: u64 = 4 * 1024 * 1024;
/// Where the systems we run on keep their authorities; the first that exists is taken.
const SYSTEM_BUNDLES: [&str; 6] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
    "/etc/ssl/certs/ca-bundle.crt",
];

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
    /// The authorities that `wanted` chooses by name.
    fn authorities(&self, wanted: impl Fn(&[u8]) -> bool) -> Result<RootCertStore, NoTrust> {
        match self {
            Self::System => {
                let path = system_bundle().ok_or_else(|| {
                    NoTrust(
                        "this system has no list of them in a usual place; install ca-certificates or give a CA file"
                            .to_owned(),
                    )
                })?;
                authorities_of_file(&path, wanted)
            }
            Self::File(path) => authorities_of_file(path, wanted),
            Self::Pem(text) => authorities_of(&**text, "the given PEM text", wanted),
        }
    }
}

/// There is no list of authorities, or none that can be used. Carried through the errors of TLS and of the HTTP client,
/// so that the call can tell it from a network fault.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{0}")]
pub struct NoTrust(pub String);

impl NoTrust {
    /// What a [`Judge`] put into this error.
    pub(crate) fn within(error: &rustls::Error) -> Option<NoTrust> {
        match error {
            rustls::Error::Other(OtherError(inner)) => inner.downcast_ref::<NoTrust>().cloned(),
            _ => None,
        }
    }
}

fn system_bundle() -> Option<PathBuf> {
    let named = std::env::var_os("SSL_CERT_FILE").filter(|name| !name.is_empty()).map(PathBuf::from);
    named.or_else(|| SYSTEM_BUNDLES.iter().map(PathBuf::from).find(|path| path.exists()))
}

fn authorities_of_file(path: &Path, wanted: impl Fn(&[u8]) -> bool) -> Result<RootCertStore, NoTrust> {
    let file = File::open(path).map_err(|error| NoTrust(format!("cannot read {}: {error}", path.display())))?;
    authorities_of(file, &path.display().to_string(), wanted)
}

fn authorities_of(pem: impl Read, place: &str, wanted: impl Fn(&[u8]) -> bool) -> Result<RootCertStore, NoTrust> {
    let mut store = RootCertStore::empty();
    let mut usable = false;
    // One certificate at a time: a bundle is read without ever lying in memory as a whole.
    for certificate in CertificateDer::pem_reader_iter(BufReader::new(pem.take(AUTHORITIES_BYTES_MAX))) {
        let certificate =
            certificate.map_err(|error| NoTrust(format!("{place} is not a list of PEM certificates: {error}")))?;
        match store.add(certificate) {
            Ok(()) => usable = true,
            // System bundles contain oddities that rustls does not parse; they are simply not trusted.
            Err(error) => log::debug!("an authority in {place} is left out: {error}"),
        }
        if store.roots.last().is_some_and(|last| !wanted(&last.subject)) {
            store.roots.pop();
        }
    }
    match usable {
        false => Err(NoTrust(format!("{place} contains no usable certificate"))),
        true => Ok(store),
    }
}

/// Judges what servers show, by the authorities of a [`Trust`] that are read for it.
pub(crate) struct Judge {
    trust: Trust,
    provider: Arc<CryptoProvider>,
}

impl Judge {
    pub(crate) fn new(trust: Trust, provider: Arc<CryptoProvider>) -> Self {
        Self { trust, provider }
    }
}

impl fmt::Debug for Judge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Judge")
    }
}

/// Whether these bytes stand in those.
fn stands_in(name: &[u8], certificate: &[u8]) -> bool {
    name.is_empty() || certificate.windows(name.len()).any(|window| window == name)
}

impl ServerCertVerifier for Judge {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        // A path ends where a certificate's issuer is, byte for byte, the subject of an authority (RFC 5280, 6.1): one
        // whose name stands in no certificate cannot end it. Whether one that is left does, webpki says.
        let shown = || intermediates.iter().chain([end_entity]);
        let authorities = self
            .trust
            .authorities(|name| shown().any(|certificate| stands_in(name, certificate)))
            .map_err(|error| rustls::Error::Other(OtherError(Arc::new(error))))?;
        if authorities.is_empty() {
            return Err(CertificateError::UnknownIssuer.into());
        }
        WebPkiServerVerifier::builder_with_provider(Arc::new(authorities), self.provider.clone())
            .build()
            .map_err(|error| rustls::Error::General(error.to_string()))?
            .verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signature, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signature, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
