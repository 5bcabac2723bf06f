//! One who follows a log and reads it, among many who do not.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    thread::JoinHandle,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use api::{
    client::{CallError, CallOptions, Client},
    pb::platform::app::v1::{TailRobotPartLogsRequest, app_service},
};
use prost_types::Timestamp;

use crate::Trouble;

/// What the server calls itself where it tells a reader that it missed some.
const TELLS: &str = "fleet.tail";
/// After the last line was written: what has not come by then does not come.
const COMES_WITHIN: Duration = Duration::from_secs(10);

/// One that reads, until it is ended.
pub(crate) struct Reader {
    client: Client,
    came: Arc<AtomicU64>,
    thread: JoinHandle<Result<Vec<Duration>, CallError>>,
}

/// What it saw.
#[derive(Default)]
pub(crate) struct Seen {
    /// From the moment a line was made to the moment it was read here, in whole milliseconds, one for each line.
    late: Vec<Duration>,
    /// As many were there to be seen.
    pub(crate) written: u64,
}

impl Seen {
    /// What another one saw too.
    pub(crate) fn add(&mut self, other: Self) {
        self.late.extend(other.late);
        self.written += other.written;
    }

    /// How many lines.
    pub(crate) fn lines(&self) -> usize {
        self.late.len()
    }

    /// p50 and p99 of how late they came; nothing if none did.
    pub(crate) fn late(&self) -> Option<(Duration, Duration)> {
        let mut late = self.late.clone();
        late.sort();
        let at = |part: usize| late.get(late.len() * part / 100).copied();
        Some((at(50)?, at(99)?))
    }
}

impl Reader {
    /// Follows a part. All calls of this client end with it.
    pub(crate) fn begin(client: Client, part: &str) -> Result<Self, Trouble> {
        let request = TailRobotPartLogsRequest { id: part.to_owned(), ..Default::default() };
        let stream = client.server_stream(app_service::TAIL_ROBOT_PART_LOGS, &request, CallOptions::lasting())?;
        let came = Arc::new(AtomicU64::new(0));
        let count = came.clone();
        let thread = std::thread::spawn(move || {
            let mut late = Vec::new();
            for message in stream {
                let message = match message {
                    Err(CallError::Cancelled) => break,
                    other => other?,
                };
                let now = since_epoch();
                let lines = message.logs.iter().filter(|line| line.logger_name != TELLS);
                late.extend(lines.filter_map(|line| Some(now.saturating_sub(made(line.time.as_ref()?)))));
                count.store(late.len() as u64, Relaxed);
            }
            Ok(late)
        });
        Ok(Self { client, came, thread })
    }

    /// Stops reading when all that was written has come, or does not come any more.
    pub(crate) fn end(self, written: u64) -> Result<Seen, Trouble> {
        let waits = Instant::now();
        while self.came.load(Relaxed) < written && waits.elapsed() < COMES_WITHIN && !self.thread.is_finished() {
            std::thread::sleep(Duration::from_millis(5));
        }
        self.client.cancel();
        let late = self.thread.join().map_err(|_| "a reader panicked")??;
        Ok(Seen { late, written })
    }
}

/// The time now, as a log entry has it.
pub(crate) fn now() -> Timestamp {
    let since = since_epoch();
    Timestamp { seconds: since.as_secs() as i64, nanos: since.subsec_nanos() as i32 }
}

fn made(at: &Timestamp) -> Duration {
    Duration::new(at.seconds.max(0) as u64, at.nanos.max(0) as u32)
}

fn since_epoch() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}
