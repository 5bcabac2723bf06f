//! The way to the mail server.

use std::time::Duration;

use lettre::{
    AsyncSmtpTransport, AsyncTransport, Message, Tokio1Executor,
    transport::smtp::{
        Error as SmtpError,
        authentication::Credentials,
        client::{Certificate, CertificateStore, Tls, TlsParameters},
        extension::ClientId,
    },
};

use super::settings::{Security, Settings};
use crate::authorities::{self, AuthoritiesError};

/// One command's answer.
const ANSWER_WITHIN: Duration = Duration::from_secs(30);
/// A whole mail: servers that look at what they get take their time.
pub(super) const SEND_WITHIN: Duration = Duration::from_secs(120);

/// Why no mail can be sent. For the person who started the server.
#[derive(Debug, thiserror::Error)]
pub enum MailSetupError {
    /// See [`AuthoritiesError`].
    #[error("cannot speak TLS to the mail server (--mail-authorities)")]
    Authorities(#[from] AuthoritiesError),
    /// The library refuses its own defaults.
    #[error("cannot speak TLS to the mail server")]
    Library(#[source] SmtpError),
}

/// Why a mail was not sent.
#[derive(Debug)]
pub(super) enum Failure {
    /// The mail server or the way to it: later it may be different.
    Passing(String),
    /// The mail server will never take a mail for that address.
    Final(String),
}

/// What the library says before the reason why it does not believe a certificate.
const CERTIFICATE_REFUSED: &str = "invalid peer certificate: ";

pub(super) struct Smtp {
    /// As it was named on the command line.
    host: String,
    transport: AsyncSmtpTransport<Tokio1Executor>,
}

impl Smtp {
    pub(super) fn new(settings: &Settings) -> Result<Self, MailSetupError> {
        let tls = match settings.security {
            Security::None => Tls::None,
            Security::Starttls => Tls::Required(parameters(settings)?),
            Security::Tls => Tls::Wrapper(parameters(settings)?),
        };
        // "dangerous" is a transport without TLS; which one it is was said above.
        let mut builder = AsyncSmtpTransport::<Tokio1Executor>::builder_dangerous(&settings.host)
            .port(settings.port)
            .tls(tls)
            .timeout(Some(ANSWER_WITHIN));
        // Mail servers mistrust who names itself by a loopback address.
        builder = builder.hello_name(ClientId::Domain(settings.from.email.domain().to_owned()));
        if let Some((user, password)) = &settings.login {
            builder = builder.credentials(Credentials::new(user.clone(), password.expose().to_owned()));
        }
        Ok(Self { host: settings.host.clone(), transport: builder.build() })
    }

    /// Resolves when the mail server has taken it.
    pub(super) async fn send(&self, letter: Message) -> Result<(), Failure> {
        match tokio::time::timeout(SEND_WITHIN, self.transport.send(letter)).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(why)) => Err(self.judged(&why)),
            Err(_) => Err(Failure::Passing(format!("no end within {} s", SEND_WITHIN.as_secs()))),
        }
    }

    fn judged(&self, why: &SmtpError) -> Failure {
        let mut sentence = why.to_string();
        let mut source = std::error::Error::source(why);
        while let Some(deeper) = source {
            let text = deeper.to_string();
            if !sentence.contains(&text) {
                sentence = format!("{sentence}: {text}");
            }
            source = deeper.source();
        }
        if let Some((_, reason)) = sentence.split_once(CERTIFICATE_REFUSED) {
            return Failure::Passing(format!(
                "the certificate of the mail server {} is not believed ({reason}): it has to be for that name, from somebody \
                 who is trusted here (--mail-authorities)",
                self.host
            ));
        }
        // Only what is said of the mailbox itself ends it; a refused password or a policy can be mended meanwhile.
        match why.status().map(u16::from) {
            Some(550 | 551 | 553 | 556) => Failure::Final(sentence),
            _ => Failure::Passing(sentence),
        }
    }
}

fn parameters(settings: &Settings) -> Result<TlsParameters, MailSetupError> {
    let mut builder = TlsParameters::builder(settings.host.clone()).certificate_store(CertificateStore::None);
    for certificate in authorities::read(settings.authorities.as_deref())? {
        let certificate = Certificate::from_der(certificate.to_vec()).map_err(MailSetupError::Library)?;
        builder = builder.add_root_certificate(certificate);
    }
    builder.build_rustls().map_err(MailSetupError::Library)
}
