//! What transport and database do alone on this machine at this moment.
//!
//! They stay as long as what is measured by them, and are asked again and again in between: a machine that is slower for a
//! while is slower for both.

use std::{
    io::{BufRead as _, BufReader, Write as _},
    path::Path,
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    time::Duration,
};

use limits::{
    Msg,
    load::{self, CONNECTIONS, Loop},
};
use test_harness::real::programs;

use crate::Trouble;

/// Calls, statements and rows per second of CPU time.
#[derive(Clone, Copy)]
pub(crate) struct Limits {
    pub(crate) echo: f64,
    pub(crate) reads: f64,
    pub(crate) writes: f64,
    pub(crate) log_rows: f64,
}

/// A bare echo server, and a raw database that is filled.
pub(crate) struct Yardsticks {
    echo: Child,
    url: String,
    raw: Child,
    /// Taken when there are no more questions.
    questions: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

impl Yardsticks {
    /// Starts both; the database has a table of that many rows when this returns, and nothing is left to be written.
    pub(crate) fn start(folder: &Path, rows: u64) -> Result<Self, Trouble> {
        let mut echo = Command::new(programs::find("echo_server")?).stdout(Stdio::piped()).spawn()?;
        let mut line = String::new();
        BufReader::new(echo.stdout.take().ok_or("no output")?).read_line(&mut line)?;
        let url = format!("http://{}", line.trim());
        let mut raw = Command::new(programs::find("sqlite_limits")?);
        raw.args(["--rows", &rows.to_string(), "--dir"]).arg(folder).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut raw = raw.spawn()?;
        let (questions, answers) = (raw.stdin.take(), raw.stdout.take().ok_or("no output")?);
        let mut yardsticks = Self { echo, url, raw, questions, answers: BufReader::new(answers) };
        yardsticks.answer()?;
        Ok(yardsticks)
    }

    /// All of them, for so long each.
    pub(crate) async fn measure(&mut self, warm_up: Duration, length: Duration) -> Result<Limits, Trouble> {
        let message = |seq| Msg { seq, body: vec![7; 256] };
        let loops = (0..CONNECTIONS).map(|_| Loop { bearer: None, request: Box::new(message) as _ }).collect();
        let path = "/limits.v1.Echo/Unary";
        let echo =
            load::run::<Msg, Msg>(&self.url, path, loops, (warm_up, length), self.echo.id(), async || ()).await?;
        Ok(Limits {
            echo: echo.per_cpu_second(),
            reads: self.ask("reads", length)?,
            writes: self.ask("writes", length)?,
            log_rows: self.ask("log_rows", length)?,
        })
    }

    fn ask(&mut self, what: &str, length: Duration) -> Result<f64, Trouble> {
        let questions = self.questions.as_mut().ok_or("nobody to ask")?;
        writeln!(questions, "{what} {}", length.as_millis())?;
        questions.flush()?;
        Ok(self.answer()?.trim().parse()?)
    }

    fn answer(&mut self) -> Result<String, Trouble> {
        let mut line = String::new();
        match self.answers.read_line(&mut line)? {
            0 => Err("sqlite_limits has ended".into()),
            _ => Ok(line),
        }
    }
}

impl Drop for Yardsticks {
    fn drop(&mut self) {
        // The database goes away by itself when nobody asks any more.
        self.questions = None;
        let _ = self.raw.wait();
        let _ = self.echo.kill();
        let _ = self.echo.wait();
    }
}
