//! What a request looks like on the wire, and an answer: bytes in, values out. No socket is needed to try it.
//!
//! Strict where two readers could disagree about where a request ends: one length or chunks, never both, never two.

use std::{borrow::Cow, fmt::Write as _};

use board::doorway::{BODY_BYTES_MAX, HEAD_BYTES_MAX, Response};
use httparse::{EMPTY_HEADER, Status};

/// Headers of a request; browsers send about fifteen.
const HEADERS_MAX: usize = 48;
/// Longest line that says how long a chunk is, with extensions that nobody reads.
const CHUNK_LINE_BYTES_MAX: usize = 256;
/// Longest headers behind the last chunk; they are not read.
const TRAILER_BYTES_MAX: usize = 1024;

/// Why a request is not heard: status and a sentence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal(pub u16, pub &'static str);

/// A whole request as it was said.
pub struct Heard {
    /// `GET`
    pub method: String,
    /// Path and query, or a whole URL.
    pub target: String,
    /// Names in lower case; values that are not UTF-8 are left out.
    pub headers: Vec<(String, String)>,
    /// At most [`BODY_BYTES_MAX`] of it.
    pub body: Vec<u8>,
    /// The visitor wants to ask more on this connection.
    pub keep: bool,
}

/// Makes requests of what is said on one connection, however it is cut into pieces.
#[derive(Default)]
pub struct Reader {
    said: Vec<u8>,
    begun: Option<(Head, Body)>,
}

impl Reader {
    /// Takes what was said; it is understood by [`Reader::request`].
    pub fn hear(&mut self, bytes: &[u8]) {
        self.said.extend_from_slice(bytes);
    }

    /// The next whole request; `None` is: more is needed. After a refusal nothing more can be understood.
    ///
    /// # Errors
    /// When it is no request, or one beyond the limits of the port.
    pub fn request(&mut self) -> Result<Option<Heard>, Refusal> {
        if self.begun.is_none() {
            let Some((head, body, length)) = head(&self.said)? else { return Ok(None) };
            self.said.drain(..length.min(self.said.len()));
            self.begun = Some((head, body));
        }
        if let Some((_, body)) = &mut self.begun
            && !body.take(&mut self.said)?
        {
            return Ok(None);
        }
        Ok(self.begun.take().map(|(Head { method, target, headers, keep, .. }, body)| Heard {
            method,
            target,
            headers,
            body: body.content,
            keep,
        }))
    }

    /// Nothing was said that belongs to a request; gives its memory back then.
    pub(super) fn is_silent(&mut self) -> bool {
        let silent = self.said.is_empty() && self.begun.is_none();
        if silent {
            self.said = Vec::new();
        }
        silent
    }

    /// The visitor waits for a word before it sends the body. Says so once.
    pub(super) fn waits(&mut self) -> bool {
        let nothing_yet = self.said.is_empty();
        match &mut self.begun {
            Some((head, _)) => std::mem::take(&mut head.waits) && nothing_yet,
            None => false,
        }
    }
}

/// Request line and headers.
struct Head {
    method: String,
    target: String,
    headers: Vec<(String, String)>,
    keep: bool,
    /// The visitor waits for a word before it sends the body.
    waits: bool,
}

/// Reads the head at the beginning of `bytes` and says where it ends. `None` is: more is needed.
fn head(bytes: &[u8]) -> Result<Option<(Head, Body, usize)>, Refusal> {
    let too_long = Refusal(431, "the request has too many headers or too long ones");
    let mut headers = [EMPTY_HEADER; HEADERS_MAX];
    let mut request = httparse::Request::new(&mut headers);
    let length = match request.parse(bytes) {
        Ok(Status::Complete(length)) if length <= HEAD_BYTES_MAX => length,
        Ok(Status::Partial) if bytes.len() < HEAD_BYTES_MAX => return Ok(None),
        Ok(_) | Err(httparse::Error::TooManyHeaders) => return Err(too_long),
        Err(httparse::Error::Version) => return Err(Refusal(505, "only HTTP/1.0 and HTTP/1.1 are spoken here")),
        Err(_) => return Err(Refusal(400, "this is no HTTP request")),
    };
    let modern = request.version == Some(1);
    let method = request.method.unwrap_or_default().to_owned();
    let target = request.path.unwrap_or_default().to_owned();
    if method == "CONNECT" || !target.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(Refusal(400, "this is no request for a page"));
    }
    let mut found = Found::default();
    let mut kept = Vec::with_capacity(request.headers.len());
    for header in request.headers.iter() {
        let name = header.name.to_ascii_lowercase();
        let value = std::str::from_utf8(header.value).ok();
        found.note(&name, value)?;
        if let Some(value) = value {
            kept.push((name, value.to_owned()));
        }
    }
    if found.hosts > 1 || (modern && found.hosts == 0) {
        return Err(Refusal(400, "a request names one host"));
    }
    let part = match (found.length, found.chunked) {
        (Some(_), true) => return Err(Refusal(400, "a body has a length or chunks, not both")),
        (Some(length), false) if length > BODY_BYTES_MAX => return Err(Body::TOO_LONG),
        (Some(length), false) => Part::Data { left: length, last: true },
        (None, true) if modern => Part::Size,
        (None, true) => return Err(Refusal(400, "HTTP/1.0 has no chunks")),
        (None, false) => Part::Data { left: 0, last: true },
    };
    let keep = modern && !found.close;
    let body = Body { part, content: Vec::new(), trailers: 0 };
    let waits = found.waits && modern && !body.is_whole();
    Ok(Some((Head { method, target, headers: kept, keep, waits }, body, length)))
}

/// The headers that say where a request ends and what comes after it.
#[derive(Default)]
struct Found {
    hosts: u32,
    length: Option<usize>,
    chunked: bool,
    close: bool,
    waits: bool,
}

impl Found {
    fn note(&mut self, name: &str, value: Option<&str>) -> Result<(), Refusal> {
        match name {
            "host" => {
                value.ok_or(Refusal(400, "a host's name is text"))?;
                self.hosts += 1;
            }
            "content-length" => {
                let length = value.filter(|value| !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit()));
                let length = length.ok_or(Refusal(400, "a length is a number"))?;
                if self.length.is_some() {
                    return Err(Refusal(400, "a body has one length"));
                }
                // More digits than a number can have are still a number, and too many.
                self.length = Some(length.parse().unwrap_or(usize::MAX));
            }
            "transfer-encoding" => {
                if self.chunked || !value.is_some_and(|value| value.eq_ignore_ascii_case("chunked")) {
                    return Err(Refusal(501, "of all encodings only chunks are understood here"));
                }
                self.chunked = true;
            }
            "connection" => {
                let mut words = value.unwrap_or_default().split(',').map(str::trim);
                self.close |= words.any(|word| word.eq_ignore_ascii_case("close"));
            }
            "expect" => {
                if !value.is_some_and(|value| value.eq_ignore_ascii_case("100-continue")) {
                    return Err(Refusal(417, "this cannot be expected here"));
                }
                self.waits = true;
            }
            _ => {}
        }
        Ok(())
    }
}

/// What comes next of a body.
enum Part {
    /// The line that says how long a chunk is.
    Size,
    /// Content; of a body without chunks it is the last.
    Data {
        left: usize,
        last: bool,
    },
    /// The line break behind a chunk.
    Break,
    /// Headers behind the last chunk, up to an empty line.
    Trailers,
    Whole,
}

/// A body that is being read.
struct Body {
    part: Part,
    content: Vec<u8>,
    trailers: usize,
}

impl Body {
    const TOO_LONG: Refusal = Refusal(413, "the request is too long");
    const DAMAGED: Refusal = Refusal(400, "a chunk of the request is damaged");

    fn is_whole(&self) -> bool {
        matches!(self.part, Part::Whole | Part::Data { left: 0, last: true })
    }

    /// Takes what belongs to the body from the front of `buffer`; what is behind it stays. Whether the body is whole.
    fn take(&mut self, buffer: &mut Vec<u8>) -> Result<bool, Refusal> {
        let mut used = 0;
        while !self.is_whole() {
            let rest = buffer.get(used..).unwrap_or_default();
            let step = self.step(rest)?;
            used += step;
            if step == 0 {
                break;
            }
        }
        buffer.drain(..used.min(buffer.len()));
        Ok(self.is_whole())
    }

    /// One part; 0 is: more is needed.
    fn step(&mut self, rest: &[u8]) -> Result<usize, Refusal> {
        match self.part {
            Part::Whole => Ok(0),
            Part::Size => match httparse::parse_chunk_size(rest).map_err(|_| Self::DAMAGED)? {
                Status::Partial if rest.len() <= CHUNK_LINE_BYTES_MAX => Ok(0),
                // Also when all of it is there at once: what is heard does not depend on how it was cut.
                Status::Complete((length, _)) if length > CHUNK_LINE_BYTES_MAX => Err(Self::DAMAGED),
                Status::Partial => Err(Self::DAMAGED),
                Status::Complete((length, 0)) => {
                    self.part = Part::Trailers;
                    Ok(length)
                }
                Status::Complete((length, size)) => {
                    let size = usize::try_from(size).unwrap_or(usize::MAX);
                    if self.content.len().saturating_add(size) > BODY_BYTES_MAX {
                        return Err(Self::TOO_LONG);
                    }
                    self.part = Part::Data { left: size, last: false };
                    Ok(length)
                }
            },
            Part::Data { left, last } => {
                let new = rest.get(..left.min(rest.len())).unwrap_or_default();
                self.content.extend_from_slice(new);
                let left = left - new.len();
                self.part = if left == 0 && !last { Part::Break } else { Part::Data { left, last } };
                Ok(new.len())
            }
            Part::Break => match rest {
                [b'\r', b'\n', ..] => {
                    self.part = Part::Size;
                    Ok(2)
                }
                [] | [b'\r'] => Ok(0),
                _ => Err(Self::DAMAGED),
            },
            Part::Trailers => {
                let Some(line) = rest.iter().position(|&byte| byte == b'\n').map(|end| end + 1) else {
                    return if rest.len() > TRAILER_BYTES_MAX { Err(Self::DAMAGED) } else { Ok(0) };
                };
                self.trailers += line;
                if self.trailers > TRAILER_BYTES_MAX {
                    return Err(Self::DAMAGED);
                }
                if matches!(rest.get(..line), Some(b"\r\n" | b"\n")) {
                    self.part = Part::Whole;
                }
                Ok(line)
            }
        }
    }
}

/// The head of an answer, up to and with the empty line.
pub(super) fn answer_head(response: &Response, keep: bool) -> Vec<u8> {
    let mut head = format!("HTTP/1.1 {} {}\r\n", response.status, reason(response.status));
    for (name, value) in &response.headers {
        assert!(
            !value.bytes().any(|byte| matches!(byte, b'\r' | b'\n' | 0)),
            "a header {name} of an answer has one line"
        );
        if !name.eq_ignore_ascii_case("connection") {
            let _ = write!(head, "{name}: {value}\r\n");
        }
    }
    if response.status != 204 {
        let _ = write!(head, "Content-Length: {}\r\n", response.body.len());
    }
    head.push_str(if keep { "Connection: keep-alive\r\n\r\n" } else { "Connection: close\r\n\r\n" });
    head.into_bytes()
}

/// The answer to a request that is not heard.
pub(super) fn refused(Refusal(status, sentence): Refusal) -> Response {
    Response {
        status,
        headers: vec![("Content-Type", Cow::Borrowed("text/plain; charset=utf-8"))],
        body: Cow::Borrowed(sentence.as_bytes()),
    }
}

const fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        204 => "No Content",
        302 => "Found",
        303 => "See Other",
        304 => "Not Modified",
        307 => "Temporary Redirect",
        400 => "Bad Request",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        408 => "Request Timeout",
        409 => "Conflict",
        413 => "Content Too Large",
        415 => "Unsupported Media Type",
        417 => "Expectation Failed",
        421 => "Misdirected Request",
        422 => "Unprocessable Content",
        431 => "Request Header Fields Too Large",
        500 => "Internal Server Error",
        501 => "Not Implemented",
        503 => "Service Unavailable",
        505 => "HTTP Version Not Supported",
        _ => "",
    }
}
