//! Whom to believe when this server calls others by TLS: the certificates that the system trusts, or a file's.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use tokio_rustls::rustls::{
    RootCertStore,
    pki_types::{CertificateDer, pem::PemObject},
};

/// Where systems keep the certificates they trust.
const OF_THE_SYSTEM: [&str; 3] =
    ["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem"];

/// Why nobody can be believed. For the person who started the server.
#[derive(Debug, thiserror::Error)]
pub enum AuthoritiesError {
    /// No list of the system's, and none named.
    #[error("this system has no list of trusted certificates: name a file of them")]
    None,
    /// No such file, no permission, no certificate in it.
    #[error("cannot read a PEM certificate from {path}")]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
}

/// The certificates in `file`, or in the system's list. One that cannot be used does not keep the others out.
pub fn read(file: Option<&Path>) -> Result<Vec<CertificateDer<'static>>, AuthoritiesError> {
    let path = match file {
        Some(path) => path.to_owned(),
        None => {
            let known = OF_THE_SYSTEM.iter().map(PathBuf::from).find(|path| path.is_file());
            known.ok_or(AuthoritiesError::None)?
        }
    };
    let unreadable = |source| AuthoritiesError::File { path: path.clone(), source };
    let pem = fs::read(&path).map_err(unreadable)?;
    let usable = |found: &CertificateDer<'static>| RootCertStore::empty().add(found.clone()).is_ok();
    let certificates: Vec<_> = CertificateDer::pem_slice_iter(&pem).flatten().filter(usable).collect();
    match certificates.is_empty() {
        true => Err(unreadable(io::Error::new(io::ErrorKind::InvalidData, "there is none in it"))),
        false => Ok(certificates),
    }
}

/// The same, ready to judge others by.
pub fn roots(file: Option<&Path>) -> Result<RootCertStore, AuthoritiesError> {
    let mut store = RootCertStore::empty();
    store.add_parsable_certificates(read(file)?);
    Ok(store)
}
