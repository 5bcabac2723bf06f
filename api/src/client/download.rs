//! A file that a fleet server offers over plain HTTP, from its beginning or from where an earlier try ended.

use std::io::{self, Read};

use ureq::{
    Agent, Body,
    http::{Response, header},
};

use super::{
    CallError, CallOptions, Client, Code, Status,
    address::Address,
    exchange::{Limits, connect_limit, fault, quoted},
};
use crate::Secret;

/// Of what a server says about a refusal.
const REFUSAL_BYTES_MAX: u64 = 1024;

/// Bytes on their way.
pub struct Download {
    /// Where in the file they begin: 0 if the server does not continue, or if the file is another one by now.
    pub from: u64,
    /// Of the whole file, if the server says so.
    pub total: Option<u64>,
    bytes: Box<dyn Read + Send>,
}

impl Read for Download {
    fn read(&mut self, space: &mut [u8]) -> io::Result<usize> {
        self.bytes.read(space)
    }
}

impl Client {
    /// The file at `path`, from byte `from` on as long as its tag is still `tag`.
    pub fn download(&self, path: &str, from: u64, tag: &str, options: CallOptions) -> Result<Download, CallError> {
        let call = self.begin(options);
        call.persist(|token| {
            let get = Get { agent: &call.agent()?, server: self.server(), path, token, limits: call.limits };
            get.open(from, tag)
        })
    }
}

struct Get<'a> {
    agent: &'a Agent,
    server: &'a Address,
    path: &'a str,
    token: Option<&'a Secret>,
    limits: Limits,
}

impl Get<'_> {
    fn open(&self, from: u64, tag: &str) -> Result<Download, CallError> {
        let left = self.limits.left(self.server)?;
        let connect = connect_limit(left);
        let mut request = self
            .agent
            .get(format!("{}{}", self.server.base(), self.path))
            .config()
            .timeout_global(left)
            .timeout_connect(Some(connect))
            .timeout_resolve(Some(connect))
            .timeout_per_read(self.limits.idle)
            .build();
        if let Some(token) = self.token {
            request = request.header(header::AUTHORIZATION, format!("Bearer {}", token.expose()));
        }
        if from > 0 {
            request = request.header(header::RANGE, format!("bytes={from}-")).header(header::IF_RANGE, tag);
        }
        let answer = request.call().map_err(|error| fault(error, self.server, self.limits))?;
        self.read(answer)
    }

    fn read(&self, answer: Response<Body>) -> Result<Download, CallError> {
        let (head, body) = answer.into_parts();
        let text = |name| head.headers.get(name).and_then(|value| value.to_str().ok());
        let (from, total) = match head.status.as_u16() {
            200 => (0, text(header::CONTENT_LENGTH).and_then(|length| length.parse().ok())),
            // "bytes 100-199/200"
            206 => {
                let range = text(header::CONTENT_RANGE).and_then(|range| range.strip_prefix("bytes "));
                let parts = range.and_then(|range| range.split_once('/'));
                let from = parts.and_then(|(range, _)| range.split_once('-')).and_then(|(from, _)| from.parse().ok());
                let Some(from) = from else {
                    let found = "it sent a part of a file, and not which".to_owned();
                    return Err(CallError::NotAFleetServer { server: self.server.clone(), found });
                };
                (from, parts.and_then(|(_, total)| total.parse().ok()))
            }
            300..400 => {
                let found = format!("it redirects to {}", quoted(&head.headers, header::LOCATION));
                return Err(CallError::NotAFleetServer { server: self.server.clone(), found });
            }
            // A page for a browser is nothing to repeat to a person at a terminal.
            status if text(header::CONTENT_TYPE).is_some_and(|kind| kind.starts_with("text/html")) => {
                let said = format!("HTTP status {} from {}", head.status, self.server);
                return Err(CallError::Refused(Status::new(Code::from_http(status), said)));
            }
            status => {
                let mut said = String::new();
                // What cannot be read of it is not needed.
                let _ = body.into_reader().take(REFUSAL_BYTES_MAX).read_to_string(&mut said);
                return Err(CallError::Refused(Status::new(Code::from_http(status), said.trim())));
            }
        };
        Ok(Download { from, total, bytes: Box::new(body.into_reader()) })
    }
}
