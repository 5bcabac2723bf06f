//! `--database postgres://user@host:port/name?sslmode=…`: where the database is, and never what opens it.
//!
//! TLS is either off or whole: `disable`, or any other mode with the certificate and its name verified. The modes of
//! other clients that encrypt without knowing for whom protect against nobody who can reach the line.

use std::{fmt, path::PathBuf};

use tokio_postgres::config::{Config, Host, SslMode};

/// Where a PostgreSQL database is and who asks. Shows everything but the password.
#[derive(Clone)]
pub struct Address {
    pub(super) config: Box<Config>,
    pub(super) host: Host,
    pub(super) port: u16,
    pub(super) tls: bool,
    /// Certificates that may sign the server's; those of the system if unset.
    pub(super) roots: Option<PathBuf>,
}

/// Why an address is not one. Repeats nothing of it: a password may stand in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    /// Not of the form.
    #[error("--database cannot be understood: write postgres://USER@HOST:PORT/NAME?sslmode=verify-full")]
    Form,
    /// More than one host.
    #[error("--database names several hosts: name one")]
    Hosts,
    /// `prefer`, `allow` and words that nobody knows.
    #[error(
        "--database has an sslmode that protects nothing or is unknown: write disable, or verify-full (require and \
         verify-ca mean the same here: encrypted, and the certificate verified)"
    )]
    Mode,
    /// TLS to a socket in the file system.
    #[error("--database asks for TLS on a Unix socket, which has none: leave sslmode out")]
    SocketTls,
}

/// Where Debian and its kin have the socket.
const USUAL_SOCKET: &str = "/var/run/postgresql";
const USUAL_PORT: u16 = 5432;

impl Address {
    /// Reads a URL. Without `sslmode`, Unix sockets and this machine are reached without TLS, all else with it.
    pub fn parse(url: &str) -> Result<Self, AddressError> {
        let is_url = ["postgres://", "postgresql://"].iter().any(|scheme| url.starts_with(scheme));
        if !is_url || url.chars().any(char::is_control) {
            return Err(AddressError::Form);
        }
        let (base, query) = url.split_once('?').unwrap_or((url, ""));
        let (mut mode, mut roots, mut rest) = (None, None, Vec::new());
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            match pair.split_once('=') {
                Some(("sslmode", value)) => mode = Some(value),
                Some(("sslrootcert", value)) => roots = Some(PathBuf::from(decoded(value)?)),
                _ => rest.push(pair),
            }
        }
        let plain = if rest.is_empty() { base.to_owned() } else { format!("{base}?{}", rest.join("&")) };
        let mut config: Config = plain.parse().map_err(|_| AddressError::Form)?;
        let host = match config.get_hosts() {
            [] => Host::Unix(PathBuf::from(USUAL_SOCKET)),
            [one] => one.clone(),
            _ => return Err(AddressError::Hosts),
        };
        let port = config.get_ports().first().copied().unwrap_or(USUAL_PORT);
        let near = match &host {
            Host::Unix(_) => true,
            Host::Tcp(name) => name == "localhost" || name.parse().is_ok_and(|ip: std::net::IpAddr| ip.is_loopback()),
        };
        let tls = match mode {
            None => !near,
            Some("disable") => false,
            Some("require" | "verify-ca" | "verify-full") => true,
            Some(_) => return Err(AddressError::Mode),
        };
        if tls && matches!(host, Host::Unix(_)) {
            return Err(AddressError::SocketTls);
        }
        config.ssl_mode(if tls { SslMode::Require } else { SslMode::Disable });
        config.application_name("platform-fleet");
        Ok(Self { config: Box::new(config), host, port, tls, roots })
    }

    /// Whether the URL itself has a password in it.
    pub fn has_password(&self) -> bool {
        self.config.get_password().is_some()
    }

    /// The same with a password from elsewhere, unless the URL has one.
    #[must_use]
    pub fn with_password(mut self, password: &str) -> Self {
        if !self.has_password() {
            self.config.password(password);
        }
        self
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("postgres://")?;
        if let Some(user) = self.config.get_user() {
            write!(f, "{user}@")?;
        }
        match &self.host {
            Host::Tcp(name) => write!(f, "{name}:{}", self.port)?,
            Host::Unix(folder) => write!(f, "{}", folder.display())?,
        }
        match self.config.get_dbname() {
            Some(name) => write!(f, "/{name}"),
            None => Ok(()),
        }
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// `%41` → `A`.
fn decoded(text: &str) -> Result<String, AddressError> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        let digit = |byte: Option<u8>| byte.and_then(|byte| char::from(byte).to_digit(16)).ok_or(AddressError::Form);
        match byte {
            b'%' => {
                let (high, low) = (digit(rest.next())?, digit(rest.next())?);
                bytes.push(u8::try_from(high * 16 + low).map_err(|_| AddressError::Form)?);
            }
            other => bytes.push(other),
        }
    }
    String::from_utf8(bytes).map_err(|_| AddressError::Form)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tls_is_off_or_whole() {
        let table = [
            ("postgres://u@db.example.org/fleet", Ok(true)),
            ("postgres://u@db.example.org/fleet?sslmode=require", Ok(true)),
            ("postgres://u@db.example.org/fleet?sslmode=verify-full&sslrootcert=%2Fca.pem", Ok(true)),
            ("postgres://u@db.example.org/fleet?sslmode=disable", Ok(false)),
            ("postgres://u@127.0.0.1:6000/fleet", Ok(false)),
            ("postgresql://u@localhost/fleet", Ok(false)),
            ("postgres://u@%2Frun%2Fpg/fleet", Ok(false)),
            ("postgres:///fleet", Ok(false)),
            ("postgres://u@db/fleet?sslmode=prefer", Err(AddressError::Mode)),
            ("postgres://u@db/fleet?sslmode=", Err(AddressError::Mode)),
            ("postgres://u@%2Frun%2Fpg/fleet?sslmode=require", Err(AddressError::SocketTls)),
            ("postgres://u@a,b/fleet", Err(AddressError::Hosts)),
            ("mysql://u@db/fleet", Err(AddressError::Form)),
            ("postgres://u@db/fleet?unknown=1", Err(AddressError::Form)),
            ("postgres://u@db:port/fleet", Err(AddressError::Form)),
            ("host=db user=u", Err(AddressError::Form)),
            ("", Err(AddressError::Form)),
        ];
        for (url, tls) in table {
            assert_eq!(Address::parse(url).map(|address| address.tls), tls, "{url}");
        }
    }

    #[test]
    fn the_password_is_shown_to_nobody() {
        let inside = Address::parse("postgres://u:s3cret@db.example.org:6000/fleet").unwrap();
        assert!(inside.has_password());
        let beside = Address::parse("postgres://u@db.example.org:6000/fleet").unwrap().with_password("s3cret");
        for address in [inside, beside] {
            assert_eq!(format!("{address}"), "postgres://u@db.example.org:6000/fleet");
            assert!(!format!("{address:?} {address:#?} {:?}", address.config).contains("s3cret"));
        }
        for wrong in ["postgres://u:s3cret@db:x/f", "postgres://u:s3cret@db/f?sslmode=s3cret", "s3cret"] {
            let why = Address::parse(wrong).unwrap_err();
            assert!(!format!("{why} {why:?}").contains("s3cret"));
        }
    }
}
