//! What a program says, line by line: one that says nothing is a failure, and no wait without end.

#![allow(dead_code, unreachable_pub, reason = "every test file uses its own part of it")]

use std::{
    io::{BufRead, BufReader, Read},
    sync::mpsc::{Receiver, RecvTimeoutError, sync_channel},
    time::Duration,
};

/// Longer than a program takes to start on a loaded machine; only a hang reaches it.
const PATIENCE: Duration = Duration::from_secs(60);

/// Read by a thread of its own, which ends with the program.
pub struct Lines(Receiver<String>);

impl Lines {
    pub fn of(out: impl Read + Send + 'static) -> Self {
        // As many as nobody has asked for yet may wait; beyond that the program does.
        let (said, lines) = sync_channel(16);
        std::thread::spawn(move || {
            BufReader::new(out).lines().map_while(Result::ok).try_for_each(|line| said.send(line))
        });
        Self(lines)
    }

    /// The next one, without its end. Blocks.
    pub fn next(&self) -> String {
        self.wait().expect("one more line")
    }

    /// All that come until the program ends. Blocks.
    pub fn rest(self) -> Vec<String> {
        std::iter::from_fn(|| self.wait()).collect()
    }

    fn wait(&self) -> Option<String> {
        match self.0.recv_timeout(PATIENCE) {
            Ok(line) => Some(line),
            Err(RecvTimeoutError::Disconnected) => None,
            Err(RecvTimeoutError::Timeout) => panic!("the program says nothing"),
        }
    }
}
