//! The message and the service of the bare echo server, and how a process's CPU time and memory are read.

use std::{collections::HashMap, ffi::OsString};

/// A call of the echo service: as large as the caller makes it.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Msg {
    /// Comes back unchanged.
    #[prost(uint64, tag = "1")]
    pub seq: u64,
    /// Comes back unchanged.
    #[prost(bytes = "vec", tag = "2")]
    pub body: Vec<u8>,
}

pub mod load;

/// The generated client and server.
pub mod pb {
    #![allow(missing_docs, clippy::all, reason = "generated")]
    include!(concat!(env!("OUT_DIR"), "/limits.v1.Echo.rs"));
}

/// `--name value` from the command line, or the default.
pub fn arg<T: std::str::FromStr>(name: &str, default: T) -> T {
    let wanted = format!("--{name}");
    let mut arguments = std::env::args();
    while let Some(argument) = arguments.next() {
        if argument == wanted {
            return arguments.next().and_then(|value| value.parse().ok()).unwrap_or(default);
        }
    }
    default
}

/// CPU time of a process from a moment on, to the microsecond: the ticks that [`cpu_seconds`] counts are too long for half a
/// second. A thread that ends meanwhile is left out; those of pools end after seconds in which they did nothing.
pub struct CpuTime {
    pid: u32,
    before: HashMap<OsString, u64>,
}

impl CpuTime {
    /// From now on.
    #[must_use]
    pub fn of(pid: u32) -> Self {
        Self { pid, before: by_thread(pid) }
    }

    /// Seconds so far.
    #[must_use]
    pub fn seconds(&self) -> f64 {
        let since = |(thread, nanos): (OsString, u64)| nanos - self.before.get(&thread).copied().unwrap_or_default();
        by_thread(self.pid).into_iter().map(since).sum::<u64>() as f64 / 1e9
    }
}

/// Nanoseconds that each thread has run.
fn by_thread(pid: u32) -> HashMap<OsString, u64> {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let ran = |thread: std::fs::DirEntry| {
        let text = std::fs::read_to_string(thread.path().join("schedstat")).ok()?;
        Some((thread.file_name(), text.split_whitespace().next()?.parse().ok()?))
    };
    threads.filter_map(ran).collect()
}

/// User and system CPU seconds that a process has used, those of its ended threads too.
#[must_use]
pub fn cpu_seconds(pid: u32) -> f64 {
    /// Linux counts these in hundredths, whatever the kernel's own tick is.
    const PER_SECOND: f64 = 100.0;
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The name in parentheses may hold anything; user and system time are the 12th and 13th field after it.
    let after_name = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let ticks: u64 = after_name.split_whitespace().skip(11).take(2).filter_map(|field| field.parse::<u64>().ok()).sum();
    ticks as f64 / PER_SECOND
}
