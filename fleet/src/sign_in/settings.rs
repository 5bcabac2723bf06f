//! Which identity provider: from options of the program to checked values.

use std::{
    fs, io,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use api::Secret;
use clap::Args;

/// Options of `serve` about signing in with an identity provider.
#[derive(Debug, Clone, Default, Args)]
#[group(id = "sign-in")]
pub struct Arguments {
    /// Identity provider (OpenID Connect) at which people sign in: its issuer, to the letter.
    #[arg(long, value_name = "URL", requires = "oidc_client_id", requires = "address")]
    pub oidc_issuer: Option<String>,
    /// How this server is called there; its redirect address there is ADDRESS/sign-in/callback.
    #[arg(long, value_name = "ID", requires = "oidc_issuer")]
    pub oidc_client_id: Option<String>,
    /// File whose first line is its secret there, if it has one; only its owner may read it.
    #[arg(long, value_name = "FILE", requires = "oidc_issuer")]
    pub oidc_client_secret_file: Option<PathBuf>,
    /// Certificates in PEM to trust instead of the system's when the provider is asked.
    #[arg(long, value_name = "FILE", requires = "oidc_issuer")]
    pub oidc_authorities: Option<PathBuf>,
    /// Days after which a key that a sign-in gave ends, and its holder signs in again.
    #[arg(long, value_name = "DAYS", default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..=365))]
    pub oidc_days: u32,
}

/// Everything about the identity provider.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Its issuer.
    pub issuer: String,
    /// How this server is called there.
    pub client_id: String,
    /// Its secret there.
    pub client_secret: Option<Secret>,
    /// Certificates to trust instead of the system's.
    pub authorities: Option<PathBuf>,
    /// How people reach this server, without a slash at its end.
    pub address: String,
    /// How long a key that a sign-in gave is good.
    pub key_lives: std::time::Duration,
}

/// Why nobody can sign in like that. For the person who started the server.
#[derive(Debug, thiserror::Error)]
pub enum SignInArgumentError {
    /// Everybody on the way could say who somebody is.
    #[error("--oidc-issuer {given:?} must begin with https:// (http:// is for this machine only)")]
    Issuer {
        /// What was given.
        given: String,
    },
    /// Not there, or not to be read.
    #[error("cannot read the secret in {path}")]
    SecretFile {
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// Others may read it.
    #[error("the secret in {path} can be read by others: chmod 600 {path}")]
    Open {
        /// Which.
        path: PathBuf,
    },
}

impl Settings {
    /// `None` where no provider is named. `address` is how people reach this server.
    pub fn read(given: &Arguments, address: Option<&str>) -> Result<Option<Self>, SignInArgumentError> {
        let (Some(issuer), Some(client_id), Some(address)) = (&given.oidc_issuer, &given.oidc_client_id, address)
        else {
            return Ok(None);
        };
        if !is_safe(issuer) {
            return Err(SignInArgumentError::Issuer { given: issuer.clone() });
        }
        Ok(Some(Self {
            issuer: issuer.clone(),
            client_id: client_id.clone(),
            client_secret: given.oidc_client_secret_file.as_deref().map(secret).transpose()?,
            authorities: given.oidc_authorities.clone(),
            address: address.trim_end_matches('/').to_owned(),
            key_lives: std::time::Duration::from_secs(u64::from(given.oidc_days) * 86_400),
        }))
    }
}

/// Whether what is answered there comes from there.
pub(super) fn is_safe(address: &str) -> bool {
    let Ok(address) = address.parse::<http::Uri>() else { return false };
    match (address.scheme_str(), address.host()) {
        (Some("https"), Some(_)) => true,
        (Some("http"), Some(host)) => web::is_loopback(host),
        _ => false,
    }
}

fn secret(path: &Path) -> Result<Secret, SignInArgumentError> {
    let file = |source| SignInArgumentError::SecretFile { path: path.into(), source };
    if fs::metadata(path).map_err(file)?.permissions().mode() & 0o077 != 0 {
        return Err(SignInArgumentError::Open { path: path.into() });
    }
    let text = fs::read_to_string(path).map_err(file)?;
    Ok(Secret::new(text.lines().next().unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_provider_is_asked_over_a_safe_line_only() {
        let table = [
            ("https://id.example.org", true),
            ("https://id.example.org/realms/acme", true),
            ("http://127.0.0.1:9400", true),
            ("http://localhost:9400", true),
            ("http://id.example.org", false),
            ("http://127.0.0.1.example.org", false),
            ("id.example.org", false),
            ("ftp://id.example.org", false),
            ("", false),
        ];
        for (issuer, wanted) in table {
            let given = Arguments {
                oidc_issuer: Some(issuer.into()),
                oidc_client_id: Some("fleet".into()),
                ..Arguments::default()
            };
            assert_eq!(Settings::read(&given, Some("https://f/")).is_ok(), wanted, "{issuer}");
        }
        assert!(Settings::read(&Arguments::default(), Some("https://f")).unwrap().is_none());
    }
}
