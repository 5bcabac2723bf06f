//! What was done, counted, as Prometheus reads it.

use std::{
    fmt::Write,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Instant,
};

use http::Response;
use tonic::Status;

use crate::store::Store;

/// gRPC statuses are numbered 0 to 16.
const CODES: usize = 17;

/// Counters of the edge; those of the store are asked for when somebody looks.
pub struct Metrics {
    started: Instant,
    calls: [AtomicU64; CODES],
    connections: AtomicU64,
    connections_open: AtomicU64,
}

impl Default for Metrics {
    fn default() -> Self {
        Self {
            started: Instant::now(),
            calls: std::array::from_fn(|_| AtomicU64::new(0)),
            connections: AtomicU64::new(0),
            connections_open: AtomicU64::new(0),
        }
    }
}

impl Metrics {
    /// A call was answered; its status is in the headers if it failed at once.
    pub fn answered<B>(&self, answer: &Response<B>) {
        let code = Status::from_header_map(answer.headers()).map_or(0, |status| i32::from(status.code()));
        if let Some(counter) = usize::try_from(code).ok().and_then(|code| self.calls.get(code)) {
            counter.fetch_add(1, Relaxed);
        }
    }

    pub(super) fn connected(&self) {
        self.connections.fetch_add(1, Relaxed);
        self.connections_open.fetch_add(1, Relaxed);
    }

    pub(super) fn disconnected(&self) {
        self.connections_open.fetch_sub(1, Relaxed);
    }

    /// The whole page.
    pub fn text(&self, store: &Store) -> String {
        let mut page = String::with_capacity(2048);
        // Writing into a string cannot fail.
        let _ = self.write(&mut page, store);
        page
    }

    fn write(&self, page: &mut String, store: &Store) -> std::fmt::Result {
        writeln!(page, "# TYPE fleet_uptime_seconds gauge")?;
        writeln!(page, "fleet_uptime_seconds {}", self.started.elapsed().as_secs())?;
        writeln!(page, "# HELP fleet_calls_total Calls by gRPC status when answering began.")?;
        writeln!(page, "# TYPE fleet_calls_total counter")?;
        for (code, count) in self.calls.iter().enumerate() {
            writeln!(page, "fleet_calls_total{{code=\"{code}\"}} {}", count.load(Relaxed))?;
        }
        writeln!(page, "# TYPE fleet_connections_total counter")?;
        writeln!(page, "fleet_connections_total {}", self.connections.load(Relaxed))?;
        writeln!(page, "# TYPE fleet_connections_open gauge")?;
        writeln!(page, "fleet_connections_open {}", self.connections_open.load(Relaxed))?;
        writeln!(page, "# HELP fleet_store_statements_total Statements run, so that nobody chooses n and m.")?;
        writeln!(page, "# TYPE fleet_store_statements_total counter")?;
        writeln!(page, "# TYPE fleet_store_commits_total counter")?;
        for (name, db) in [("state", &store.state), ("logs", &store.logs)] {
            let counted = db.counted();
            writeln!(page, "fleet_store_statements_total{{database=\"{name}\",kind=\"read\"}} {}", counted.reads)?;
            writeln!(page, "fleet_store_statements_total{{database=\"{name}\",kind=\"write\"}} {}", counted.writes)?;
            writeln!(page, "fleet_store_commits_total{{database=\"{name}\"}} {}", counted.commits)?;
        }
        Ok(())
    }
}
