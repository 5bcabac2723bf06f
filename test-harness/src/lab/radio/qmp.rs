//! qemu's own control socket: a line of JSON there, a line back, events between.

use std::{
    io::{BufRead as _, BufReader, Write as _},
    os::unix::net::UnixStream,
    path::Path,
};

use serde_json::{Value, json};

use crate::real::Trouble;

/// An open control socket. qemu serves one at a time.
pub(super) struct Qmp {
    stream: BufReader<UnixStream>,
}

impl Qmp {
    /// Connects and makes qemu ready for commands.
    pub(super) fn open(socket: &Path) -> Result<Qmp, Trouble> {
        let stream = UnixStream::connect(socket).map_err(|error| Trouble::of(socket.display(), error))?;
        let mut qmp = Qmp { stream: BufReader::new(stream) };
        qmp.line()?;
        qmp.call("qmp_capabilities", json!({}))?;
        Ok(qmp)
    }

    /// One command, and what it returned.
    pub(super) fn call(&mut self, command: &str, arguments: Value) -> Result<Value, Trouble> {
        let mut line = json!({"execute": command, "arguments": arguments}).to_string();
        line.push('\n');
        self.stream.get_mut().write_all(line.as_bytes()).map_err(|error| Trouble::of(command, error))?;
        loop {
            let mut answer = self.line()?;
            if let Some(error) = answer.get("error") {
                return Err(Trouble::of(command, error));
            }
            if let Some(value) = answer.get_mut("return") {
                return Ok(value.take());
            }
        }
    }

    fn line(&mut self) -> Result<Value, Trouble> {
        let mut line = String::new();
        let read = self.stream.read_line(&mut line).map_err(|error| Trouble::of("qemu", error))?;
        if read == 0 {
            return Err(Trouble("qemu has ended".to_owned()));
        }
        serde_json::from_str(&line).map_err(|error| Trouble::of("what qemu says", error))
    }
}
