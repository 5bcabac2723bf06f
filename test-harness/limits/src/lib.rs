//! The message and the service of the bare echo server, and how a process's CPU time and memory are read.

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

/// User and system CPU seconds that a process has used, by its statistics in `/proc`.
#[must_use]
pub fn cpu_seconds(pid: u32) -> f64 {
    // Scheduler statistics count nanoseconds; the clock ticks of `stat` would be too coarse for a short run.
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let nanos: u64 = tasks
        .filter_map(|task| std::fs::read_to_string(task.path().join("schedstat")).ok())
        .filter_map(|text| text.split_whitespace().next()?.parse::<u64>().ok())
        .sum();
    nanos as f64 / 1e9
}
