//! One HTTP request and the beginning of its answer.
//!
//! Owns headers, time limits and the question what an answer is: a status in its headers, frames to read, or nothing a
//! fleet server would say. Repeats nothing.

use std::{
    io,
    time::{Duration, Instant},
};

use prost::Message;
use ureq::{
    Agent, AsSendBody, BodyReader,
    http::{HeaderMap, Response, header},
};
use web::{
    NoTrust,
    rustls::{self, CertificateError},
};

use super::{
    address::Address,
    error::{CallError, Code, Status},
    grpc_web::{CONTENT_TYPE, Frame, FrameError, Frames, status_of},
};
use crate::Secret;

/// What the answer of a foreign server is quoted by.
const QUOTE_CHARS_MAX: usize = 100;
/// Time to find, reach and greet a server, also where a call has no deadline of its own.
const CONNECT_LIMIT: Duration = Duration::from_secs(10);

/// The time that a call may take, counted from when it was made.
#[derive(Clone, Copy)]
pub(super) struct Limits {
    pub(super) since: Instant,
    pub(super) deadline: Option<Duration>,
    pub(super) idle: Option<Duration>,
}

impl Limits {
    /// What is left of the deadline, or none if there is none.
    pub(super) fn left(&self, server: &Address) -> Result<Option<Duration>, CallError> {
        let Some(limit) = self.deadline else { return Ok(None) };
        match limit.checked_sub(self.since.elapsed()).filter(|left| !left.is_zero()) {
            Some(left) => Ok(Some(left)),
            None => Err(CallError::Deadline { server: server.clone(), limit }),
        }
    }
}

/// One request to be sent.
pub(super) struct Exchange<'a> {
    pub(super) agent: &'a Agent,
    pub(super) server: &'a Address,
    pub(super) path: &'a str,
    pub(super) token: Option<&'a Secret>,
    pub(super) limits: Limits,
    pub(super) message_bytes_max: u64,
}

/// An answer that has begun.
pub(super) struct Answer {
    server: Address,
    limits: Limits,
    state: State,
}

enum State {
    /// More frames may come.
    Frames(Box<Frames<BodyReader<'static>>>),
    /// The status came in the headers.
    Bodiless(Status),
    Over,
}

impl Exchange<'_> {
    /// Sends the request; returns when the headers of the answer are there.
    pub(super) fn open(&self, body: impl AsSendBody) -> Result<Answer, CallError> {
        let left = self.limits.left(self.server)?;
        let connect = connect_limit(left);
        let mut request = self
            .agent
            .post(format!("{}{}", self.server.base(), self.path))
            .config()
            .timeout_global(left)
            .timeout_connect(Some(connect))
            .timeout_resolve(Some(connect))
            .timeout_per_read(self.limits.idle)
            .build()
            .header(header::CONTENT_TYPE, CONTENT_TYPE)
            .header(header::ACCEPT, CONTENT_TYPE)
            .header("x-grpc-web", "1");
        if let Some(left) = left {
            request = request.header("grpc-timeout", grpc_timeout(left));
        }
        if let Some(token) = self.token {
            request = request.header(header::AUTHORIZATION, format!("Bearer {}", token.expose()));
        }
        let answer = request.send(body).map_err(|error| fault(error, self.server, self.limits))?;
        self.read_head(answer)
    }

    fn read_head(&self, answer: Response<ureq::Body>) -> Result<Answer, CallError> {
        let (head, body) = answer.into_parts();
        let state = if let Some(status) = status_of(|name| head.headers.get(name).map(|value| value.as_bytes())) {
            State::Bodiless(status)
        } else if head.status.is_redirection() {
            let to = quoted(&head.headers, header::LOCATION);
            return Err(self.foreign(format!("it redirects to {to}")));
        } else if head.status.as_u16() != 200 {
            let code = Code::from_http(head.status.as_u16());
            State::Bodiless(Status::new(code, format!("HTTP status {} from {}", head.status, self.server)))
        } else if !head
            .headers
            .get(header::CONTENT_TYPE)
            .is_some_and(|kind| kind.as_bytes().starts_with(b"application/grpc-web"))
        {
            let kind = quoted(&head.headers, header::CONTENT_TYPE);
            return Err(self.foreign(format!("it sent {kind}")));
        } else {
            State::Frames(Box::new(Frames::new(body.into_reader(), self.message_bytes_max)))
        };
        Ok(Answer { server: self.server.clone(), limits: self.limits, state })
    }

    fn foreign(&self, found: String) -> CallError {
        CallError::NotAFleetServer { server: self.server.clone(), found }
    }
}

impl Answer {
    /// Whether the answer is already over with a refusal, known before any message.
    pub(super) fn refusal(self) -> Result<Self, CallError> {
        match self.state {
            State::Bodiless(status) if status.code != Code::Ok => Err(CallError::Refused(status)),
            _ => Ok(self),
        }
    }

    /// The next message, or none when the server ended the answer with OK.
    pub(super) fn next<M: Message + Default>(&mut self) -> Result<Option<M>, CallError> {
        let frame = match &mut self.state {
            State::Over => return Ok(None),
            State::Bodiless(status) => Ok(Frame::Status(status.clone())),
            State::Frames(frames) => frames.next(),
        };
        match frame {
            Ok(Frame::Message(bytes)) => match M::decode(bytes.as_slice()) {
                Ok(message) => Ok(Some(message)),
                Err(error) => self.end_with(CallError::Damaged {
                    server: self.server.clone(),
                    reason: format!("a message cannot be read: {error}"),
                }),
            },
            Ok(Frame::Status(status)) if status.code == Code::Ok => {
                if let State::Frames(frames) = &mut self.state {
                    frames.finish();
                }
                self.state = State::Over;
                Ok(None)
            }
            Ok(Frame::Status(status)) => {
                if let State::Frames(frames) = &mut self.state {
                    frames.finish();
                }
                self.end_with(CallError::Refused(status))
            }
            Err(error) => {
                let error = self.frame_fault(error);
                self.end_with(error)
            }
        }
    }

    /// The one message of an answer that has exactly one.
    pub(super) fn only<M: Message + Default>(mut self) -> Result<M, CallError> {
        let damaged =
            |server: &Address, reason: &str| CallError::Damaged { server: server.clone(), reason: reason.into() };
        let message = self.next()?.ok_or_else(|| damaged(&self.server, "it contains no message"))?;
        match self.next::<M>()? {
            None => Ok(message),
            Some(_) => Err(damaged(&self.server, "it contains more than one message")),
        }
    }

    fn end_with<M>(&mut self, error: CallError) -> Result<Option<M>, CallError> {
        self.state = State::Over;
        Err(error)
    }

    fn frame_fault(&self, error: FrameError) -> CallError {
        let server = self.server.clone();
        match error {
            FrameError::TooLarge { size, limit } => CallError::TooLarge { server, size, limit },
            FrameError::Damaged(reason) => CallError::Damaged { server, reason: reason.to_owned() },
            FrameError::Io(error) => fault(error.into(), &self.server, self.limits),
        }
    }
}

/// At most eight digits are allowed; milliseconds of a day fit, and nothing here waits longer.
fn grpc_timeout(left: Duration) -> String {
    format!("{}m", left.as_millis().clamp(1, 99_999_999))
}

/// A header of an answer that is foreign, short enough for a sentence.
pub(super) fn quoted(headers: &HeaderMap, name: header::HeaderName) -> String {
    match headers.get(&name) {
        Some(value) => {
            let text = String::from_utf8_lossy(value.as_bytes());
            text.chars().filter(|sign| !sign.is_control()).take(QUOTE_CHARS_MAX).collect()
        }
        None => format!("no {name}"),
    }
}

/// Time to reach the server, of what is left for the call.
pub(super) fn connect_limit(left: Option<Duration>) -> Duration {
    left.unwrap_or(CONNECT_LIMIT).min(CONNECT_LIMIT)
}

/// The HTTP client's errors in the words of a call.
pub(super) fn fault(error: ureq::Error, server: &Address, limits: Limits) -> CallError {
    let server = server.clone();
    let unreachable = |reason: &str, source: Option<super::error::Cause>| CallError::Unreachable {
        server: server.clone(),
        reason: reason.to_owned(),
        source,
    };
    match error {
        ureq::Error::Timeout(ureq::Timeout::Connect | ureq::Timeout::Resolve) => {
            unreachable("it does not answer", None)
        }
        ureq::Error::Timeout(kind) => {
            let limit = if kind == ureq::Timeout::PerRead { limits.idle } else { limits.deadline };
            CallError::Deadline { limit: limit.unwrap_or_else(|| limits.since.elapsed()), server }
        }
        ureq::Error::HostNotFound => unreachable("its name is not known", None),
        ureq::Error::ConnectProxyFailed(reason) => unreachable(&format!("the proxy refused: {reason}"), None),
        ureq::Error::Rustls(rustls::Error::InvalidCertificate(reason)) => {
            CallError::Untrusted { reason: distrust(&reason), server }
        }
        ureq::Error::Rustls(error @ rustls::Error::InvalidMessage(_)) => {
            unreachable("it does not speak TLS; is it an http:// address?", Some(Box::new(error)))
        }
        ureq::Error::Rustls(error) => unreachable("no secure connection came about", Some(Box::new(error))),
        ureq::Error::Io(error) => io_fault(error, &unreachable),
        ureq::Error::Other(other) => match other.downcast::<NoTrust>() {
            Ok(no_trust) => CallError::NoTrust(no_trust.0),
            Err(other) => unreachable("the connection failed", Some(other)),
        },
        ureq::Error::ConnectionFailed | ureq::Error::Tls(_) | ureq::Error::TlsRequired => {
            unreachable(&error.to_string(), None)
        }
        // What remains are answers that are no HTTP; a TLS server's to a plain call is the usual one.
        other if server.is_encrypted() => CallError::NotAFleetServer { server, found: other.to_string() },
        other => CallError::NotAFleetServer { server, found: format!("{other}; is it an https:// address?") },
    }
}

/// What is wrong with a certificate, and what to do about it.
fn distrust(reason: &CertificateError) -> String {
    let told = match reason {
        CertificateError::UnknownIssuer => "nobody who is trusted here signed it; give the CA that signed it",
        CertificateError::BadSignature => {
            "whoever is trusted here by its signer's name did not sign it; give the CA that signed it"
        }
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            "it has expired; renew it, or correct this machine's clock"
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "it is not valid yet; correct this machine's clock"
        }
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            "it belongs to another name; its subjectAltName has to name the host of the address"
        }
        CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => {
            "it is not meant for servers; its extendedKeyUsage has to name serverAuth"
        }
        CertificateError::UnsupportedSignatureAlgorithmContext { .. }
        | CertificateError::UnsupportedSignatureAlgorithmForPublicKeyContext { .. } => {
            "it is signed in a way that is not accepted; sign it with ECDSA, or RSA of 2048 bits, and SHA-256"
        }
        // The library beneath has no type here, only its word; a test holds on to it.
        CertificateError::Other(other) => match other.to_string().as_str() {
            "CaUsedAsEndEntity" => {
                "it is one that signs others (CA:TRUE), and not one of a server; make one with \
                 `openssl req -x509 ... -addext basicConstraints=critical,CA:FALSE`"
            }
            "UnsupportedCertVersion" => "it is of an old version of X.509; sign it anew, with a subjectAltName",
            other => return format!("it breaks a rule of certificates ({other})"),
        },
        other => return format!("it breaks a rule of certificates ({other:?})"),
    };
    told.to_owned()
}

fn io_fault(error: io::Error, unreachable: &impl Fn(&str, Option<super::error::Cause>) -> CallError) -> CallError {
    // The error from reading what the caller wants to send travels through the HTTP client unchanged.
    if error.get_ref().is_some_and(|inner| inner.is::<super::stream::OutgoingError>()) {
        let inner = error.into_inner().and_then(|inner| inner.downcast::<super::stream::OutgoingError>().ok());
        return CallError::Input(inner.map_or_else(|| io::Error::other("unknown"), |inner| inner.0));
    }
    let reason = match error.kind() {
        io::ErrorKind::ConnectionRefused => "nothing listens there".to_owned(),
        io::ErrorKind::ConnectionReset
        | io::ErrorKind::ConnectionAborted
        | io::ErrorKind::BrokenPipe
        | io::ErrorKind::UnexpectedEof => "it closed the connection".to_owned(),
        io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable => "there is no way to it".to_owned(),
        _ => error.to_string(),
    };
    unreachable(&reason, Some(Box::new(error)))
}
