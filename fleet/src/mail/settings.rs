//! Which mail server, and how it is spoken to: from options of the program to checked values.

use std::{
    fs, io,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    time::Duration,
};

use api::Secret;
use base64::{Engine, engine::general_purpose::STANDARD};
use clap::{Args, ValueEnum};
use lettre::message::Mailbox;

/// Options of `serve` about mails.
#[derive(Debug, Clone, Default, Args)]
#[group(id = "mail")]
pub struct Arguments {
    /// Mail server that sends invitations; without it `platform-fleet user invite` prints their links. Port 465, 587
    /// or 25 by --mail-security if none is given.
    #[arg(long, value_name = "HOST[:PORT]", requires = "mail_from", requires = "address")]
    pub mail_server: Option<String>,
    /// How the connection to it is made safe.
    #[arg(long, value_enum, default_value_t = Security::Starttls, requires = "mail_server")]
    pub mail_security: Security,
    /// Sender of the mails: somebody@example.org, or "Name <somebody@example.org>".
    #[arg(long, value_name = "ADDRESS", requires = "mail_server")]
    pub mail_from: Option<String>,
    /// User at the mail server, if it asks for one.
    #[arg(long, value_name = "NAME", requires = "mail_password_file")]
    pub mail_user: Option<String>,
    /// File whose first line is that user's password; only its owner may read it.
    #[arg(long, value_name = "FILE", requires = "mail_user")]
    pub mail_password_file: Option<PathBuf>,
    /// Certificates in PEM to trust instead of the system's.
    #[arg(long, value_name = "FILE", requires = "mail_server")]
    pub mail_authorities: Option<PathBuf>,
}

/// How a connection to the mail server is made safe.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum Security {
    /// TLS from the first byte.
    Tls,
    /// TLS after a word in clear; without it nothing is sent.
    #[default]
    Starttls,
    /// No TLS: for a mail server on this machine. A password is sent to no other.
    None,
}

impl Security {
    /// Where such servers listen.
    fn port(self) -> u16 {
        match self {
            Self::Tls => 465,
            Self::Starttls => 587,
            Self::None => 25,
        }
    }
}

/// When a mail that could not be sent is tried again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retry {
    /// After the first failure; doubled with each further one.
    pub first: Duration,
    /// Never longer than this.
    pub most: Duration,
    /// Not tried again when it has waited for this long.
    pub within: Duration,
}

impl Default for Retry {
    /// As mail servers do among themselves, and three days long: a weekend without a mail server.
    fn default() -> Self {
        let minutes = |n: u64| Duration::from_secs(60 * n);
        Self { first: minutes(1), most: minutes(60), within: minutes(3 * 24 * 60) }
    }
}

impl Retry {
    /// How long to wait after this attempt, counted from 1.
    pub(super) fn after(&self, attempt: u32) -> Duration {
        let doubled = 2_u32.checked_pow(attempt.saturating_sub(1)).and_then(|factor| self.first.checked_mul(factor));
        doubled.unwrap_or(self.most).min(self.most)
    }
}

/// Everything about mails.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Name or address of the mail server.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// How the connection is made safe.
    pub security: Security,
    /// User and password.
    pub login: Option<(String, Secret)>,
    /// The sender.
    pub from: Mailbox,
    /// Certificates to trust instead of the system's.
    pub authorities: Option<PathBuf>,
    /// How people reach this server: what links begin with.
    pub address: String,
    /// When what failed is tried again.
    pub retry: Retry,
}

impl Settings {
    /// What a mail server is told in confidence: a link's `secret`, and the login in the forms in which SMTP says it
    /// (AUTH PLAIN and LOGIN, RFC 4616).
    pub(super) fn told_in_confidence(&self, secret: &str) -> Vec<String> {
        let mut told = vec![secret.to_owned()];
        if let Some((user, password)) = &self.login {
            let password = password.expose();
            told.extend([
                password.to_owned(),
                STANDARD.encode(password),
                STANDARD.encode(format!("\0{user}\0{password}")),
            ]);
        }
        told.retain(|word| !word.is_empty());
        told
    }
}

/// Why mails cannot be sent like that. For the person who started the server.
#[derive(Debug, thiserror::Error)]
pub enum MailArgumentError {
    /// Not `HOST` or `HOST:PORT`.
    #[error("--mail-server {given:?} is no HOST or HOST:PORT")]
    Server {
        /// What was given.
        given: String,
    },
    /// Nobody could answer to that.
    #[error("--mail-from {given:?} is no e-mail address (somebody@example.org)")]
    From {
        /// What was given.
        given: String,
    },
    /// Not there, or not to be read.
    #[error("cannot read the mail server's password from {path}")]
    PasswordFile {
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// Others may read it.
    #[error("the mail server's password in {path} can be read by others: chmod 600 {path}")]
    Open {
        /// Which.
        path: PathBuf,
    },
    /// It would travel readably.
    #[error("--mail-security none sends no password to another machine: use starttls or tls")]
    Exposed,
}

impl Settings {
    /// `None` where no mail server is named. `address` is how people reach this server.
    pub fn read(given: &Arguments, address: Option<&str>) -> Result<Option<Self>, MailArgumentError> {
        let (Some(server), Some(from), Some(address)) = (&given.mail_server, &given.mail_from, address) else {
            return Ok(None);
        };
        let security = given.mail_security;
        let (host, port) = host_and_port(server, security)?;
        let from = from.parse().map_err(|_| MailArgumentError::From { given: from.clone() })?;
        let login = match (&given.mail_user, &given.mail_password_file) {
            (Some(user), Some(file)) => Some((user.clone(), password(file)?)),
            _ => None,
        };
        if login.is_some() && security == Security::None && !is_this_machine(&host) {
            return Err(MailArgumentError::Exposed);
        }
        Ok(Some(Self {
            host,
            port,
            security,
            login,
            from,
            authorities: given.mail_authorities.clone(),
            address: address.trim_end_matches('/').to_owned(),
            retry: Retry::default(),
        }))
    }
}

fn host_and_port(given: &str, security: Security) -> Result<(String, u16), MailArgumentError> {
    let wrong = || MailArgumentError::Server { given: given.to_owned() };
    // An IPv6 address stands in brackets, or alone.
    let (host, port) = match given.rsplit_once(':') {
        Some((host, port)) if !host.contains(':') || host.ends_with(']') => (host, Some(port)),
        _ => (given, None),
    };
    let port = port.map(|port| port.parse().map_err(|_| wrong())).transpose()?;
    let host = host.trim_start_matches('[').trim_end_matches(']');
    if host.is_empty() || host.contains(|letter: char| letter.is_whitespace() || "/@[]".contains(letter)) {
        return Err(wrong());
    }
    Ok((host.to_owned(), port.unwrap_or(security.port())))
}

fn is_this_machine(host: &str) -> bool {
    host.eq_ignore_ascii_case("localhost") || host.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

fn password(path: &Path) -> Result<Secret, MailArgumentError> {
    let file = |source| MailArgumentError::PasswordFile { path: path.into(), source };
    if fs::metadata(path).map_err(file)?.permissions().mode() & 0o077 != 0 {
        return Err(MailArgumentError::Open { path: path.into() });
    }
    let text = fs::read_to_string(path).map_err(file)?;
    Ok(Secret::new(text.lines().next().unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arguments(server: &str) -> Arguments {
        Arguments {
            mail_server: Some(server.into()),
            mail_from: Some("Fleet <fleet@example.org>".into()),
            ..Arguments::default()
        }
    }

    fn read(arguments: &Arguments) -> Result<Settings, MailArgumentError> {
        Settings::read(arguments, Some("https://fleet.example.org/")).map(|found| found.expect("a server is named"))
    }

    #[test]
    fn servers() {
        let table = [
            ("mail.example.org", Some(("mail.example.org", 587))),
            ("mail.example.org:25", Some(("mail.example.org", 25))),
            ("10.0.0.1:2525", Some(("10.0.0.1", 2525))),
            ("::1", Some(("::1", 587))),
            ("[::1]:25", Some(("::1", 25))),
            ("", None),
            (":25", None),
            ("mail:x", None),
            ("mail:70000", None),
            ("smtp://mail", None),
        ];
        for (given, wanted) in table {
            let found = read(&arguments(given)).ok().map(|found| (found.host, found.port));
            assert_eq!(found, wanted.map(|(host, port)| (host.to_owned(), port)), "{given}");
        }
        assert_eq!(read(&arguments("mail")).unwrap().address, "https://fleet.example.org");
        assert!(Settings::read(&Arguments::default(), Some("http://x")).unwrap().is_none());
        let nobody = Arguments { mail_from: Some("nobody".into()), ..arguments("mail") };
        assert!(matches!(read(&nobody), Err(MailArgumentError::From { .. })));
    }

    #[test]
    fn a_password_is_read_from_a_private_file_and_sent_to_nobody_in_clear() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("password");
        fs::write(&file, "s3cret\n").unwrap();
        let with = |server: &str, mail_security| Arguments {
            mail_user: Some("fleet".into()),
            mail_password_file: Some(file.clone()),
            mail_security,
            ..arguments(server)
        };
        fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
        let open = read(&with("mail", Security::Starttls)).unwrap_err();
        assert!(matches!(open, MailArgumentError::Open { .. }) && !open.to_string().contains("s3cret"));
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
        let found = read(&with("mail", Security::Starttls)).unwrap();
        assert_eq!(
            found.login.as_ref().map(|(user, password)| (&**user, password.expose())),
            Some(("fleet", "s3cret"))
        );
        assert!(!format!("{found:?}").contains("s3cret"));
        assert!(matches!(read(&with("mail", Security::None)), Err(MailArgumentError::Exposed)));
        assert!(read(&with("127.0.0.1", Security::None)).is_ok());
        fs::remove_file(&file).unwrap();
        assert!(matches!(read(&with("mail", Security::Tls)), Err(MailArgumentError::PasswordFile { .. })));
    }

    #[test]
    fn waits_grow_and_stay_bounded() {
        let retry = Retry::default();
        let minutes = [1, 2, 3, 4, 6, 7, 30, u32::MAX].map(|attempt| retry.after(attempt).as_secs() / 60);
        assert_eq!(minutes, [1, 2, 4, 8, 32, 60, 60, 60]);
    }
}
