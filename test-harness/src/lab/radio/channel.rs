//! Commands and files through the board's virtual serial ports; the other end is `guest/lab-agent.py`.

use std::{
    fs::{self, File},
    io::{BufRead as _, BufReader, ErrorKind, Read, Write},
    os::unix::{fs::PermissionsExt as _, net::UnixStream},
    path::Path,
    sync::Mutex,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use crate::real::{PATIENCE, Trouble};

/// Commands that can run on one board at a time: the ports that it has.
pub const PORTS: usize = 4;

/// How long a file may take: a few megabytes a second on an idle machine, a tenth of that on a busy one.
const FILE_LIMIT: Duration = Duration::from_secs(600);

/// The connections of one board that nobody uses at the moment. They are kept: the board hears of the end of a connection late, and
/// would take it for the end of the next one, in the middle of a file.
#[derive(Default)]
pub struct Idle(Mutex<Vec<Channel>>);

impl Idle {
    /// One of them, or a new one.
    pub fn channel(&self, folder: &Path) -> Result<Lease<'_>, Trouble> {
        let kept = self.0.lock().ok().and_then(|mut kept| kept.pop());
        let channel = kept.map_or_else(|| Channel::open(folder), Ok)?;
        Ok(Lease { idle: self, channel: Some(channel) })
    }

    /// Ends them.
    pub fn close(&self) {
        if let Ok(mut kept) = self.0.lock() {
            kept.clear();
        }
    }
}

/// A connection that is given back.
pub struct Lease<'a> {
    idle: &'a Idle,
    channel: Option<Channel>,
}

impl Lease<'_> {
    /// As [`Channel::execute`].
    pub fn execute(&mut self, command: &str, limit: Duration, sink: &mut dyn Write) -> Result<i64, Trouble> {
        self.use_it(|channel| channel.execute(command, limit, sink))
    }

    /// As [`Channel::put`].
    pub fn put(&mut self, from: &Path, to: &str) -> Result<(), Trouble> {
        self.use_it(|channel| channel.put(from, to))
    }

    /// As [`Channel::write`].
    pub fn write(&mut self, to: &str, mode: u32, content: &[u8]) -> Result<(), Trouble> {
        self.use_it(|channel| channel.write(to, mode, content))
    }

    /// As [`Channel::get`].
    pub fn get(&mut self, from: &str, sink: &mut dyn Write) -> Result<(), Trouble> {
        self.use_it(|channel| channel.get(from, sink))
    }

    fn use_it<T>(&mut self, work: impl FnOnce(&mut Channel) -> Result<T, Trouble>) -> Result<T, Trouble> {
        let channel = self.channel.as_mut().ok_or_else(|| Trouble("the board's port was given up".to_owned()))?;
        let done = work(channel);
        // After a failure the board may still be at it; the end of the connection ends that.
        if done.is_err() {
            self.channel = None;
        }
        done
    }
}

impl Drop for Lease<'_> {
    fn drop(&mut self) {
        if let (Some(channel), Ok(mut kept)) = (self.channel.take(), self.idle.0.lock()) {
            kept.push(channel);
        }
    }
}

/// A port of its own for as long as the value lives.
pub struct Channel {
    stream: BufReader<UnixStream>,
    /// Held locked: qemu lets a second one wait in silence.
    _lock: File,
    requests: u64,
    number: u64,
}

impl Channel {
    /// The first port of the board in this folder that nobody uses; waits for one.
    pub fn open(folder: &Path) -> Result<Channel, Trouble> {
        let begin = Instant::now();
        loop {
            for port in 0..PORTS {
                let lock = File::options().create(true).append(true).open(folder.join(format!("lab.{port}.lock")));
                let lock = lock.map_err(|error| Trouble::of(folder.display(), error))?;
                if lock.try_lock().is_err() {
                    continue;
                }
                let socket = folder.join(format!("lab.{port}"));
                let stream = UnixStream::connect(&socket).map_err(|error| Trouble::of(socket.display(), error))?;
                // What the port still holds of somebody who left early must not be taken for an answer.
                let number = u64::from(std::process::id()) << 20 | u64::from(begin.elapsed().subsec_nanos() & 0xFFFF);
                return Ok(Channel { stream: BufReader::new(stream), _lock: lock, requests: 0, number });
            }
            if begin.elapsed() > PATIENCE {
                return Err(Trouble("all ports of the board are in use".to_owned()));
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Runs a command line in bash; its output, both kinds together, goes to `sink` as it comes. The exit code, negative
    /// for a signal. After `limit` the command is killed.
    pub fn execute(&mut self, command: &str, limit: Duration, sink: &mut dyn Write) -> Result<i64, Trouble> {
        let request = json!({"op": "exec", "command": command, "limit": limit.as_secs()});
        self.send(request, &mut std::io::empty(), 0)?;
        self.answer(limit + PATIENCE, sink)
    }

    /// Writes a file of the board, with this file's mode; the folder is made.
    pub fn put(&mut self, from: &Path, to: &str) -> Result<(), Trouble> {
        let trouble = |error| Trouble::of(from.display(), error);
        let mut file = File::open(from).map_err(trouble)?;
        let about = file.metadata().map_err(trouble)?;
        let mode = about.permissions().mode() & 0o7777;
        self.send(json!({"op": "put", "path": to, "mode": mode}), &mut file, about.len())?;
        self.answer(FILE_LIMIT, &mut std::io::sink()).map(drop)
    }

    /// The same from memory.
    pub fn write(&mut self, to: &str, mode: u32, content: &[u8]) -> Result<(), Trouble> {
        let length = content.len() as u64;
        self.send(json!({"op": "put", "path": to, "mode": mode}), &mut &content[..], length)?;
        self.answer(FILE_LIMIT, &mut std::io::sink()).map(drop)
    }

    /// Reads a file of the board.
    pub fn get(&mut self, from: &str, sink: &mut dyn Write) -> Result<(), Trouble> {
        self.send(json!({"op": "get", "path": from}), &mut std::io::empty(), 0)?;
        self.answer(FILE_LIMIT, sink).map(drop)
    }

    fn send(&mut self, mut request: Value, body: &mut dyn Read, length: u64) -> Result<(), Trouble> {
        self.requests += 1;
        request["id"] = json!(self.number + self.requests);
        if length > 0 || request["op"] == "put" {
            request["bytes"] = json!(length);
        }
        let stream = self.stream.get_mut();
        let mut line = request.to_string();
        line.push('\n');
        let sent = stream.write_all(line.as_bytes()).and_then(|()| std::io::copy(&mut body.take(length), stream));
        sent.map(drop).map_err(|error| Trouble::of("the board's port", error))
    }

    /// Reads until the end of the answer to the last request.
    fn answer(&mut self, limit: Duration, sink: &mut dyn Write) -> Result<i64, Trouble> {
        let trouble = |error| Trouble::of("the board's port", error);
        self.stream.get_ref().set_read_timeout(Some(limit)).map_err(trouble)?;
        loop {
            let mut line = Vec::new();
            match self.stream.read_until(b'\n', &mut line) {
                Ok(0) => return Err(Trouble("the board is gone".to_owned())),
                Ok(_) => {}
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                    return Err(Trouble(format!("no answer of the board in {} s", limit.as_secs())));
                }
                Err(error) => return Err(trouble(error)),
            }
            // The rest of an answer that nobody waited for.
            let Ok(message) = serde_json::from_slice::<Value>(&line) else { continue };
            let ours = message["id"] == json!(self.number + self.requests);
            if let Some(bytes) = message["bytes"].as_u64() {
                let mut raw = (&mut self.stream).take(bytes);
                let copied =
                    if ours { std::io::copy(&mut raw, sink) } else { std::io::copy(&mut raw, &mut std::io::sink()) };
                copied.map_err(trouble)?;
                continue;
            }
            if !ours {
                continue;
            }
            if let Some(error) = message["error"].as_str() {
                return Err(Trouble::of("the board", error));
            }
            return message["code"].as_i64().ok_or_else(|| Trouble(format!("the board says {message}")));
        }
    }
}

/// Reads a small file of a board's folder.
pub(super) fn note(folder: &Path, name: &str) -> Option<String> {
    Some(fs::read_to_string(folder.join(name)).ok()?.trim().to_owned())
}
