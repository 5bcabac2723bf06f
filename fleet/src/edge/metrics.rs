//! What was done, counted, as Prometheus reads it.

use std::{
    collections::HashMap,
    fmt::{self, Write},
    sync::{
        LazyLock,
        atomic::{AtomicI64, AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use tonic::Code;

use super::throttle::{Limit, Throttle};
use crate::{operations::OPERATIONS, store::Store};

/// gRPC statuses are numbered 0 to 16.
const CODES: usize = 17;
/// Upper bounds of the histogram, in microseconds: from a read in memory to the longest a call may take.
const BOUNDS_MICROS: [u64; 12] =
    [250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 100_000, 500_000, 2_000_000, 10_000_000, 60_000_000];

/// Which operation, as a place in the counters; what is not in the table shares the last one.
static PLACES: LazyLock<HashMap<&'static str, usize>> =
    LazyLock::new(|| OPERATIONS.iter().enumerate().map(|(place, operation)| (operation.path, place)).collect());

/// Counters of the edge; those of the store are asked for when somebody looks.
pub struct Metrics {
    started: Instant,
    operations: Box<[Counters]>,
    connections: AtomicU64,
    connections_open: AtomicI64,
    connections_refused: AtomicU64,
    strangers_closed: AtomicU64,
    headers_missed: AtomicU64,
    streams_open: AtomicI64,
    certificate_reloads: AtomicU64,
    certificates_refused: AtomicU64,
}

struct Counters {
    by_code: [AtomicU64; CODES],
    /// Calls by the first bound that they did not exceed; the last one is for those beyond all.
    by_time: [AtomicU64; BOUNDS_MICROS.len() + 1],
    micros: AtomicU64,
}

impl Default for Counters {
    fn default() -> Self {
        Self {
            by_code: std::array::from_fn(|_| AtomicU64::new(0)),
            by_time: std::array::from_fn(|_| AtomicU64::new(0)),
            micros: AtomicU64::new(0),
        }
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self {
            started: Instant::now(),
            operations: (0..=OPERATIONS.len()).map(|_| Counters::default()).collect(),
            connections: AtomicU64::new(0),
            connections_open: AtomicI64::new(0),
            connections_refused: AtomicU64::new(0),
            strangers_closed: AtomicU64::new(0),
            headers_missed: AtomicU64::new(0),
            streams_open: AtomicI64::new(0),
            certificate_reloads: AtomicU64::new(0),
            certificates_refused: AtomicU64::new(0),
        }
    }
}

impl Metrics {
    /// A call ended, or a stream began to be answered after that time.
    pub(super) fn answered(&self, path: &str, code: Code, after: Duration) {
        let place = PLACES.get(path).copied().unwrap_or(OPERATIONS.len());
        let Some(counters) = self.operations.get(place) else { return };
        if let Some(counter) = counters.by_code.get(code as usize) {
            counter.fetch_add(1, Relaxed);
        }
        let micros = u64::try_from(after.as_micros()).unwrap_or(u64::MAX);
        let bound = BOUNDS_MICROS.iter().position(|bound| micros <= *bound).unwrap_or(BOUNDS_MICROS.len());
        if let Some(counter) = counters.by_time.get(bound) {
            counter.fetch_add(1, Relaxed);
        }
        counters.micros.fetch_add(micros, Relaxed);
    }

    pub(super) fn connected(&self) {
        self.connections.fetch_add(1, Relaxed);
        self.connections_open.fetch_add(1, Relaxed);
    }

    pub(super) fn disconnected(&self) {
        self.connections_open.fetch_sub(1, Relaxed);
    }

    pub(super) fn connection_refused(&self) {
        self.connections_refused.fetch_add(1, Relaxed);
    }

    pub(super) fn strangers_closed(&self, count: usize) {
        self.strangers_closed.fetch_add(count as u64, Relaxed);
    }

    /// A balancer did not say whom it brings; how often that was so before.
    pub(super) fn header_missed(&self) -> u64 {
        self.headers_missed.fetch_add(1, Relaxed)
    }

    pub(super) fn stream_opened(&self) {
        self.streams_open.fetch_add(1, Relaxed);
    }

    pub(super) fn stream_ended(&self) {
        self.streams_open.fetch_sub(1, Relaxed);
    }

    pub(super) fn certificate_reloaded(&self) {
        self.certificate_reloads.fetch_add(1, Relaxed);
    }

    pub(super) fn certificate_refused(&self) {
        self.certificates_refused.fetch_add(1, Relaxed);
    }

    /// The whole page.
    pub fn text(&self, store: &Store, throttle: &Throttle) -> String {
        let mut page = String::with_capacity(16 * 1024);
        // Writing into a string cannot fail.
        let _ = self.write(&mut page, store, throttle);
        page
    }

    fn write(&self, page: &mut String, store: &Store, throttle: &Throttle) -> fmt::Result {
        let mut one = |name: &str, kind: &str, help: &str, value: i128| {
            writeln!(page, "# HELP {name} {help}\n# TYPE {name} {kind}\n{name} {value}")
        };
        one("fleet_uptime_seconds", "gauge", "Since the start.", self.started.elapsed().as_secs().into())?;
        one("fleet_connections_total", "counter", "Connections taken.", self.connections.load(Relaxed).into())?;
        one("fleet_connections_open", "gauge", "Connections now.", self.connections_open.load(Relaxed).into())?;
        let refused = self.connections_refused.load(Relaxed).into();
        one("fleet_connections_refused_total", "counter", "Connections beyond the most there may be.", refused)?;
        let closed = self.strangers_closed.load(Relaxed).into();
        one("fleet_strangers_closed_total", "counter", "Connections without a good token that gave way.", closed)?;
        let missed = self.headers_missed.load(Relaxed).into();
        let help = "Connections of balancers without a good header of the PROXY protocol.";
        one("fleet_balancer_headers_missed_total", "counter", help, missed)?;
        let help = "Refusals that were held back, to slow down who is refused.";
        one("fleet_refusals_late_total", "counter", help, throttle.told_late().into())?;
        one("fleet_streams_open", "gauge", "Streams now.", self.streams_open.load(Relaxed).into())?;
        let reloads = self.certificate_reloads.load(Relaxed).into();
        one("fleet_certificate_reloads_total", "counter", "New certificates taken from the files.", reloads)?;
        let refused = self.certificates_refused.load(Relaxed).into();
        one(
            "fleet_certificates_refused_total",
            "counter",
            "New files that were no good certificate and key.",
            refused,
        )?;
        if let Some(bytes) = resident_bytes() {
            one("process_resident_memory_bytes", "gauge", "Memory in use.", bytes.into())?;
        }
        if let Some(files) = open_files() {
            one("process_open_fds", "gauge", "Descriptors in use.", files.into())?;
        }
        writeln!(page, "# HELP fleet_refused_total Calls refused by a limit.\n# TYPE fleet_refused_total counter")?;
        for limit in Limit::ALL {
            writeln!(page, "fleet_refused_total{{limit=\"{}\"}} {}", limit.word(), throttle.refused(limit))?;
        }
        let name = "fleet_limits_uncounted_total";
        writeln!(page, "# HELP {name} Let pass because the table of a limit was full.\n# TYPE {name} counter")?;
        for (table, count) in throttle.uncounted() {
            writeln!(page, "{name}{{table=\"{table}\"}} {count}")?;
        }
        self.write_calls(page)?;
        write_store(page, store)
    }

    fn write_calls(&self, page: &mut String) -> fmt::Result {
        let name = |place: usize| {
            let path = OPERATIONS.get(place).map_or("/other", |operation| operation.path);
            path.get(1..).unwrap_or(path)
        };
        // What never happened is left out: a hundred operations with 17 codes each would be a page of zeros.
        let used = || self.operations.iter().enumerate().filter(|(_, one)| one.calls() > 0);
        writeln!(page, "# HELP fleet_calls_total Calls by operation and gRPC status; of streams, when they began.")?;
        writeln!(page, "# TYPE fleet_calls_total counter")?;
        for (place, counters) in used() {
            for (code, count) in counters.by_code.iter().enumerate().filter(|(_, count)| count.load(Relaxed) > 0) {
                let count = count.load(Relaxed);
                writeln!(page, "fleet_calls_total{{operation=\"{}\",code=\"{code}\"}} {count}", name(place))?;
            }
        }
        writeln!(page, "# HELP fleet_call_seconds How long calls took; of streams, until they began.")?;
        writeln!(page, "# TYPE fleet_call_seconds histogram")?;
        for (place, counters) in used() {
            let (operation, mut sum) = (name(place), 0);
            for (bound, count) in BOUNDS_MICROS.iter().zip(&counters.by_time) {
                sum += count.load(Relaxed);
                let seconds = Duration::from_micros(*bound).as_secs_f64();
                writeln!(page, "fleet_call_seconds_bucket{{operation=\"{operation}\",le=\"{seconds}\"}} {sum}")?;
            }
            sum += counters.by_time.last().map_or(0, |last| last.load(Relaxed));
            let seconds = Duration::from_micros(counters.micros.load(Relaxed)).as_secs_f64();
            writeln!(page, "fleet_call_seconds_bucket{{operation=\"{operation}\",le=\"+Inf\"}} {sum}")?;
            writeln!(page, "fleet_call_seconds_sum{{operation=\"{operation}\"}} {seconds}")?;
            writeln!(page, "fleet_call_seconds_count{{operation=\"{operation}\"}} {sum}")?;
        }
        Ok(())
    }
}

impl Counters {
    fn calls(&self) -> u64 {
        self.by_code.iter().map(|count| count.load(Relaxed)).sum()
    }
}

fn write_store(page: &mut String, store: &Store) -> fmt::Result {
    writeln!(page, "# HELP fleet_store_statements_total Statements run, so that nobody chooses n and m.")?;
    writeln!(page, "# TYPE fleet_store_statements_total counter")?;
    let counted = [("state", store.state.counted()), ("logs", store.logs.counted())];
    for (name, counted) in &counted {
        writeln!(page, "fleet_store_statements_total{{database=\"{name}\",kind=\"read\"}} {}", counted.reads)?;
        writeln!(page, "fleet_store_statements_total{{database=\"{name}\",kind=\"write\"}} {}", counted.writes)?;
    }
    writeln!(page, "# HELP fleet_store_commits_total Transactions that changed something.")?;
    writeln!(page, "# TYPE fleet_store_commits_total counter")?;
    for (name, counted) in &counted {
        writeln!(page, "fleet_store_commits_total{{database=\"{name}\"}} {}", counted.commits)?;
    }
    writeln!(page, "# HELP fleet_store_writes_waiting Writes that wait for their turn.")?;
    writeln!(page, "# TYPE fleet_store_writes_waiting gauge")?;
    for (name, db) in [("state", &store.state), ("logs", &store.logs)] {
        writeln!(page, "fleet_store_writes_waiting{{database=\"{name}\"}} {}", db.waiting())?;
    }
    Ok(())
}

/// Linux only; elsewhere the line is missing.
fn resident_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = text.split_whitespace().nth(1)?.parse().ok()?;
    Some(pages * rustix::param::page_size() as u64)
}

fn open_files() -> Option<u64> {
    // One of them is the folder itself, being read.
    Some((std::fs::read_dir("/proc/self/fd").ok()?.count() as u64).saturating_sub(1))
}
