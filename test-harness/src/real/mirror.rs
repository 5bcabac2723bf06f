//! A mirror in front of a fleet server that lies on demand, and counts what it is asked.
//!
//! Passes everything through, except paths for which it was told another answer. A device that is given its address
//! takes it for the fleet server. Also a web server of its own, for pinned addresses.

use std::{
    io::{self, BufRead as _, BufReader, Read as _, Write as _},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use super::Trouble;

/// What is answered instead of the truth.
#[derive(Clone, Debug)]
pub enum Lie {
    /// This status and body.
    Body(u16, Vec<u8>),
    /// A success that promises so many bytes, delivers these and closes.
    Truncated(u64, Vec<u8>),
    /// Another address.
    Redirect(String),
    /// This, and then that again and again until the visitor has gone or the mirror ends.
    Endless {
        /// Sent first: a status line, perhaps headers.
        head: String,
        /// Sent for ever.
        again: Vec<u8>,
        /// Between two of them.
        pause: Duration,
    },
}

/// A running mirror; it ends with this value.
pub struct Mirror {
    address: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    /// `host:port` of the fleet server; without one every path has to be a lie.
    upstream: Mutex<Option<String>>,
    lies: Mutex<Vec<(String, Lie)>>,
    asked: Mutex<Vec<String>>,
    ended: AtomicBool,
}

impl Mirror {
    /// A mirror of the server at this address (`http://host:port`), or of none.
    pub fn start(of: Option<&str>) -> Result<Mirror, Trouble> {
        let trouble = |error| Trouble::of("a mirror", error);
        let listener = TcpListener::bind("127.0.0.1:0").map_err(trouble)?;
        let address = listener.local_addr().map_err(trouble)?;
        let shared = Arc::new(Shared {
            upstream: Mutex::new(of.map(bare)),
            lies: Mutex::default(),
            asked: Mutex::default(),
            ended: AtomicBool::new(false),
        });
        let inside = Arc::clone(&shared);
        thread::spawn(move || {
            for visitor in listener.incoming().flatten() {
                if inside.ended.load(Ordering::SeqCst) {
                    return;
                }
                let shared = Arc::clone(&inside);
                // A visitor who goes away in the middle is nobody's trouble.
                thread::spawn(move || drop(serve(visitor, &shared)));
            }
        });
        Ok(Mirror { address, shared })
    }

    /// Its own address.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Mirrors another server from now on.
    pub fn follow(&self, url: &str) {
        *open(&self.shared.upstream) = Some(bare(url));
    }

    /// From now on this is answered on every path that begins like that.
    pub fn lie(&self, path: &str, lie: Lie) {
        let mut lies = open(&self.shared.lies);
        lies.retain(|(known, _)| known != path);
        lies.push((path.to_owned(), lie));
    }

    /// From now on it tells the truth.
    pub fn be_honest(&self) {
        open(&self.shared.lies).clear();
    }

    /// How often a path that contains this was asked for.
    #[must_use]
    pub fn asked(&self, part: &str) -> usize {
        open(&self.shared.asked).iter().filter(|path| path.contains(part)).count()
    }
}

impl Drop for Mirror {
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::SeqCst);
        // Wakes the thread that listens, which then ends.
        let _ = TcpStream::connect(self.address);
    }
}

fn bare(url: &str) -> String {
    url.trim_start_matches("http://").trim_end_matches('/').to_owned()
}

fn open<T>(value: &Mutex<T>) -> MutexGuard<'_, T> {
    value.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One visitor: each request of a document or an artifact by itself, calls as they come.
fn serve(visitor: TcpStream, shared: &Shared) -> io::Result<()> {
    let mut reader = BufReader::new(visitor.try_clone()?);
    loop {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            if reader.read_until(b'\n', &mut head)? == 0 {
                return Ok(());
            }
        }
        let text = String::from_utf8_lossy(&head).into_owned();
        let path = text.split(' ').nth(1).unwrap_or_default().to_owned();
        open(&shared.asked).push(path.clone());
        let lie =
            open(&shared.lies).iter().find(|(begin, _)| path.starts_with(begin.as_str())).map(|(_, lie)| lie.clone());
        if let Some(Lie::Endless { head, again, pause }) = lie {
            (&visitor).write_all(head.as_bytes())?;
            while !shared.ended.load(Ordering::SeqCst) {
                (&visitor).write_all(&again)?;
                thread::sleep(pause);
            }
            return Ok(());
        }
        if let Some(lie) = lie {
            return answer(&visitor, lie);
        }
        let Some(upstream) = open(&shared.upstream).clone() else {
            return answer(&visitor, Lie::Body(404, Vec::new()));
        };
        let mut server = TcpStream::connect(upstream)?;
        if text.starts_with("GET ") {
            let lines = text.trim_end().lines().filter(|line| !line.to_lowercase().starts_with("connection:"));
            let head: Vec<&str> = lines.chain(["Connection: close", "", ""]).collect();
            server.write_all(head.join("\r\n").as_bytes())?;
            io::copy(&mut server, &mut &visitor)?;
            return visitor.shutdown(Shutdown::Both);
        }
        // A call: request by request, so that each is counted. Its body has a length.
        let length = text.lines().find_map(|line| {
            let (name, value) = line.split_once(':')?;
            name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<u64>().ok())?
        });
        let Some(length) = length else { return tunnel(head, reader, visitor, server) };
        server.write_all(&head)?;
        io::copy(&mut (&mut reader).take(length), &mut server)?;
        relay(server, &visitor)?;
    }
}

/// One answer of the fleet server, which may be chunked or have a length.
fn relay(server: TcpStream, mut visitor: &TcpStream) -> io::Result<()> {
    let mut server = BufReader::new(server);
    let mut line = Vec::new();
    let (mut length, mut chunked) = (0, false);
    loop {
        line.clear();
        server.read_until(b'\n', &mut line)?;
        visitor.write_all(&line)?;
        let text = String::from_utf8_lossy(&line).to_lowercase();
        if let Some(value) = text.strip_prefix("content-length:") {
            length = value.trim().parse().unwrap_or(0);
        }
        chunked |= text.starts_with("transfer-encoding:") && text.contains("chunked");
        if line == b"\r\n" || line.is_empty() {
            break;
        }
    }
    if !chunked {
        return io::copy(&mut server.take(length), &mut visitor).map(drop);
    }
    loop {
        line.clear();
        server.read_until(b'\n', &mut line)?;
        visitor.write_all(&line)?;
        let size = u64::from_str_radix(String::from_utf8_lossy(&line).trim(), 16).unwrap_or(0);
        io::copy(&mut (&mut server).take(size + 2), &mut visitor)?;
        if size == 0 {
            return visitor.flush();
        }
    }
}

fn tunnel(head: Vec<u8>, mut reader: BufReader<TcpStream>, visitor: TcpStream, server: TcpStream) -> io::Result<()> {
    let mut upward = server.try_clone()?;
    upward.write_all(&head)?;
    thread::spawn(move || {
        let _ = io::copy(&mut reader, &mut upward);
        let _ = upward.shutdown(Shutdown::Write);
    });
    io::copy(&mut &server, &mut &visitor)?;
    visitor.shutdown(Shutdown::Both)
}

fn answer(mut visitor: &TcpStream, lie: Lie) -> io::Result<()> {
    let (status, promised, location, body) = match lie {
        Lie::Body(status, body) => (status, body.len() as u64, None, body),
        Lie::Truncated(promised, body) => (200, promised, None, body),
        Lie::Redirect(to) => (302, 0, Some(to), Vec::new()),
        // Answered where it is told.
        Lie::Endless { .. } => return Ok(()),
    };
    let location = location.map(|to| format!("Location: {to}\r\n")).unwrap_or_default();
    write!(visitor, "HTTP/1.1 {status} So\r\nContent-Length: {promised}\r\n{location}Connection: close\r\n\r\n")?;
    visitor.write_all(&body)?;
    visitor.shutdown(Shutdown::Write)?;
    // Read to the end, so that a reset does not eat the answer.
    io::copy(&mut visitor, &mut io::sink()).map(drop)
}
