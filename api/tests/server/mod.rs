//! A server of one's own making: as small as HTTP/1.1 allows, so that it can answer as no real server would.
//!
//! Every connection has a thread; a handler gets each request and writes what it likes. Ends with the test.

#![allow(dead_code, unreachable_pub, reason = "shared: each test binary uses its part")]

use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{Arc, Mutex},
    thread,
};

use prost::Message;

/// One request as it came.
#[derive(Clone, Debug, Default)]
pub struct Request {
    /// The first line without the version: `POST /path`.
    pub line: String,
    /// Names in lower case.
    pub headers: BTreeMap<String, String>,
    /// The whole body, without chunks.
    pub body: Vec<u8>,
}

impl Request {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(String::as_str)
    }

    /// The messages in the body.
    pub fn messages<M: Message + Default>(&self) -> Vec<M> {
        let (mut rest, mut messages) = (&self.body[..], Vec::new());
        while let [0, a, b, c, d, tail @ ..] = rest {
            let (message, after) = tail.split_at(u32::from_be_bytes([*a, *b, *c, *d]) as usize);
            messages.push(M::decode(message).unwrap());
            rest = after;
        }
        assert!(rest.is_empty(), "not frames: {rest:?}");
        messages
    }

    pub fn is(&self, method: &str) -> bool {
        self.line.ends_with(&format!("/{method}"))
    }
}

/// What a handler writes to.
pub trait Line: Write + Send {}
impl<T: Write + Send> Line for T {}

type Handler = dyn Fn(&Request, &mut dyn Line) + Send + Sync;

pub struct Server {
    pub address: SocketAddr,
    /// Everything that was asked, in order.
    pub seen: Arc<Mutex<Vec<Request>>>,
    /// Connections that were accepted.
    pub connections: Arc<Mutex<usize>>,
}

impl Server {
    pub fn start(handler: impl Fn(&Request, &mut dyn Line) + Send + Sync + 'static) -> Self {
        Self::start_with(None, handler)
    }

    pub fn start_with(
        tls: Option<Arc<rustls::ServerConfig>>,
        handler: impl Fn(&Request, &mut dyn Line) + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (seen, connections) = (Arc::new(Mutex::new(Vec::new())), Arc::new(Mutex::new(0)));
        let handler: Arc<Handler> = Arc::new(handler);
        let (log, count) = (seen.clone(), connections.clone());
        thread::spawn(move || {
            for socket in listener.incoming() {
                let (socket, handler, log, tls) = (socket.unwrap(), handler.clone(), log.clone(), tls.clone());
                *count.lock().unwrap() += 1;
                thread::spawn(move || match tls {
                    None => serve(Plain(socket), &*handler, &log),
                    Some(config) => {
                        let session = rustls::ServerConnection::new(config).unwrap();
                        serve(rustls::StreamOwned::new(session, socket), &*handler, &log);
                    }
                });
            }
        });
        Self { address, seen, connections }
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Paths of the requests so far, shortened to the method.
    pub fn methods(&self) -> Vec<String> {
        let seen = self.seen.lock().unwrap();
        seen.iter().map(|request| request.line.rsplit('/').next().unwrap().to_owned()).collect()
    }
}

struct Plain(TcpStream);

impl Read for Plain {
    fn read(&mut self, space: &mut [u8]) -> std::io::Result<usize> {
        self.0.read(space)
    }
}

impl Write for Plain {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.0.flush()
    }
}

fn serve(connection: impl Read + Write + Send, handler: &Handler, log: &Mutex<Vec<Request>>) {
    let mut connection = BufReader::new(connection);
    while let Some(request) = read_request(&mut connection) {
        log.lock().unwrap().push(request.clone());
        let mut answer = Answer { line: connection.get_mut(), close: false };
        handler(&request, &mut answer);
        if answer.close {
            return;
        }
    }
}

/// Writing nothing more is not the end of an answer; writing `CLOSE` is the end of the connection.
struct Answer<'a, L> {
    line: &'a mut L,
    close: bool,
}

/// A handler that writes this hangs up.
pub const CLOSE: &[u8] = b"\0hang up\0";

impl<L: Write> Write for Answer<'_, L> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        if bytes == CLOSE {
            self.close = true;
            return Ok(bytes.len());
        }
        self.line.write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.line.flush()
    }
}

fn read_request(connection: &mut impl BufRead) -> Option<Request> {
    let mut line = String::new();
    connection.read_line(&mut line).ok().filter(|read| *read > 0)?;
    let mut request = Request { line: line.trim_end().trim_end_matches(" HTTP/1.1").to_owned(), ..Request::default() };
    loop {
        let mut header = String::new();
        connection.read_line(&mut header).ok()?;
        let Some((name, value)) = header.trim_end().split_once(':') else { break };
        request.headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
    }
    if let Some(length) = request.header("content-length") {
        request.body = vec![0; length.parse().unwrap()];
        connection.read_exact(&mut request.body).ok()?;
    } else if request.header("transfer-encoding") == Some("chunked") {
        loop {
            let mut size = String::new();
            connection.read_line(&mut size).ok().filter(|read| *read > 0)?;
            let mut chunk = vec![0; usize::from_str_radix(size.trim(), 16).unwrap() + 2];
            connection.read_exact(&mut chunk).ok()?;
            if chunk.len() == 2 {
                break;
            }
            request.body.extend_from_slice(&chunk[..chunk.len() - 2]);
        }
    }
    Some(request)
}

/// A frame with a message.
pub fn message(message: &impl Message) -> Vec<u8> {
    frame(0, &message.encode_to_vec())
}

/// A last frame.
pub fn status(number: i32, text: &str) -> Vec<u8> {
    frame(0x80, format!("grpc-status: {number}\r\ngrpc-message: {text}\r\n").as_bytes())
}

pub fn frame(flag: u8, content: &[u8]) -> Vec<u8> {
    [&[flag][..], &(content.len() as u32).to_be_bytes(), content].concat()
}

/// An answer with these frames, whole.
pub fn answer(line: &mut dyn Line, frames: &[Vec<u8>]) {
    http(line, "200 OK", "content-type: application/grpc-web+proto\r\n", &frames.concat());
}

/// An answer whose status stands in the headers.
pub fn trailers_only(line: &mut dyn Line, number: i32, text: &str) {
    let headers =
        format!("content-type: application/grpc-web+proto\r\ngrpc-status: {number}\r\ngrpc-message: {text}\r\n");
    http(line, "200 OK", &headers, b"");
}

pub fn http(line: &mut dyn Line, status: &str, headers: &str, body: &[u8]) {
    let head = format!("HTTP/1.1 {status}\r\n{headers}content-length: {}\r\n\r\n", body.len());
    line.write_all(&[head.as_bytes(), body].concat()).unwrap();
    line.flush().unwrap();
}

/// The beginning of an answer that comes in pieces.
pub fn begin(line: &mut dyn Line) {
    let head = "HTTP/1.1 200 OK\r\ncontent-type: application/grpc-web+proto\r\ntransfer-encoding: chunked\r\n\r\n";
    line.write_all(head.as_bytes()).unwrap();
    line.flush().unwrap();
}

/// A piece of it; an empty one ends it.
pub fn piece(line: &mut dyn Line, bytes: &[u8]) {
    line.write_all(&[format!("{:x}\r\n", bytes.len()).as_bytes(), bytes, b"\r\n"].concat()).unwrap();
    line.flush().unwrap();
}
