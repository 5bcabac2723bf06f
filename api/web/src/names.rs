//! Names to addresses, asked for as rarely as a poll every few seconds allows.
//!
//! The HTTP client resolves before every call, in a thread of its own, even when a connection is open. Here an IP address
//! is never looked up, and a name's addresses are kept for half a minute, or until a call fails to connect.

use std::{
    fmt, io,
    net::{IpAddr, SocketAddr, ToSocketAddrs},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

use ureq::{
    Timeout,
    config::Config,
    http::{Uri, uri::Scheme},
    unversioned::{
        resolver::{ResolvedSocketAddrs, Resolver},
        transport::{NextTimeout, time},
    },
};

/// A server that moves is found again within this time; shorter would mean a query per poll.
const KEPT_FOR: Duration = Duration::from_secs(30);
/// `getaddrinfo` of both C libraries stays below 64 KiB; NSS modules may want more.
const LOOKUP_STACK_BYTES: usize = 256 * 1024;
/// As many as the HTTP client tries.
const ADDRESSES_MAX: usize = 16;
/// Look-ups of this process that may be under way, given up ones included: name servers that are silent hold each of
/// them for half a minute or more, and a device asks every few seconds.
const LOOKUPS_MAX: usize = 4;

/// Look-ups under way.
static LOOKUPS: AtomicUsize = AtomicUsize::new(0);

/// One of them, counted until it ends.
struct Lookup(&'static AtomicUsize);

impl Lookup {
    /// `None` when there are too many.
    fn begin(running: &'static AtomicUsize) -> Option<Lookup> {
        let more = |count: usize| (count < LOOKUPS_MAX).then_some(count + 1);
        running.fetch_update(Ordering::AcqRel, Ordering::Acquire, more).ok()?;
        Some(Lookup(running))
    }
}

impl Drop for Lookup {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Resolves in a thread, because the system's look-up knows no time limit; the thread outlives a look-up that was
/// given up.
fn in_a_thread(
    running: &'static AtomicUsize,
    resolve: impl FnOnce() -> io::Result<Vec<SocketAddr>> + Send + 'static,
    (limit, reason): (time::Duration, Timeout),
) -> Result<Vec<SocketAddr>, ureq::Error> {
    let busy = || io::Error::new(io::ErrorKind::TimedOut, "the name servers of this device do not answer");
    let lookup = Lookup::begin(running).ok_or_else(busy)?;
    let (answer, answered) = mpsc::sync_channel(1);
    thread::Builder::new().name("lookup".into()).stack_size(LOOKUP_STACK_BYTES).spawn(move || {
        let addresses = resolve();
        drop(lookup);
        // Nobody waits any more when the time was over.
        let _ = answer.send(addresses);
    })?;
    let addresses = if limit.is_not_happening() {
        answered.recv().map_err(|_| ureq::Error::HostNotFound)?
    } else {
        answered.recv_timeout(*limit).map_err(|_| ureq::Error::Timeout(reason))?
    };
    addresses.map_err(|_| ureq::Error::HostNotFound)
}

/// Shared by every connection of one client.
#[derive(Clone, Default)]
pub struct Names {
    last: Arc<Mutex<Option<Answer>>>,
}

struct Answer {
    name: String,
    at: Instant,
    addresses: Vec<SocketAddr>,
}

impl Names {
    /// The addresses led nowhere: ask anew next time.
    pub fn forget(&self) {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    fn known(&self, name: &str) -> Option<Vec<SocketAddr>> {
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        last.as_ref()
            .filter(|answer| answer.name == name && answer.at.elapsed() < KEPT_FOR)
            .map(|answer| answer.addresses.clone())
    }

    fn look_up(&self, host: &str, port: u16, timeout: NextTimeout) -> Result<Vec<SocketAddr>, ureq::Error> {
        if let Ok(ip) = crate::bare(host).parse::<IpAddr>() {
            return Ok(vec![SocketAddr::new(ip, port)]);
        }
        let name = format!("{host}:{port}");
        if let Some(addresses) = self.known(&name) {
            return Ok(addresses);
        }
        let asked = name.clone();
        let resolve = move || asked.to_socket_addrs().map(|found| found.take(ADDRESSES_MAX).collect());
        let addresses = in_a_thread(&LOOKUPS, resolve, (timeout.after, timeout.reason))?;
        if addresses.is_empty() {
            return Err(ureq::Error::HostNotFound);
        }
        let kept = Answer { name, at: Instant::now(), addresses: addresses.clone() };
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(kept);
        Ok(addresses)
    }
}

impl Resolver for Names {
    fn resolve(&self, uri: &Uri, _: &Config, timeout: NextTimeout) -> Result<ResolvedSocketAddrs, ureq::Error> {
        let host = uri.host().ok_or(ureq::Error::HostNotFound)?;
        let usual = if uri.scheme() == Some(&Scheme::HTTPS) { 443 } else { 80 };
        let mut addresses = self.empty();
        for address in self.look_up(host, uri.port_u16().unwrap_or(usual), timeout)?.into_iter().take(ADDRESSES_MAX) {
            addresses.push(address);
        }
        Ok(addresses)
    }
}

impl fmt::Debug for Names {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Names")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silent_name_servers_hold_a_few_threads_and_no_more() {
        static RUNNING: AtomicUsize = AtomicUsize::new(0);
        let soon = || (time::Duration::Exact(Duration::from_millis(1)), Timeout::Resolve);
        let patient = || (time::Duration::NotHappening, Timeout::Resolve);
        let (mut hung, mut ended) = (Vec::new(), Vec::new());
        for _ in 0..LOOKUPS_MAX {
            let (release, wait) = mpsc::channel::<()>();
            let (tell, told) = mpsc::channel::<()>();
            let silent = move || {
                let _ = wait.recv();
                drop(tell);
                Ok(Vec::new())
            };
            assert!(matches!(in_a_thread(&RUNNING, silent, soon()), Err(ureq::Error::Timeout(_))));
            hung.push(release);
            ended.push(told);
        }
        assert_eq!(RUNNING.load(Ordering::Acquire), LOOKUPS_MAX);
        let refused = in_a_thread(&RUNNING, || unreachable!("no thread is left for it"), patient());
        assert!(refused.unwrap_err().to_string().contains("name servers of this device do not answer"));
        // They answer in the end: each gives its place back.
        drop(hung);
        ended.into_iter().for_each(|told| assert!(told.recv_timeout(Duration::from_mins(1)).is_err()));
        while RUNNING.load(Ordering::Acquire) > 0 {
            thread::yield_now();
        }
        let address = SocketAddr::from(([127, 0, 0, 1], 80));
        assert_eq!(in_a_thread(&RUNNING, move || Ok(vec![address]), patient()).unwrap(), [address]);
        assert!(matches!(
            in_a_thread(&RUNNING, || Err(io::ErrorKind::NotFound.into()), patient()),
            Err(ureq::Error::HostNotFound)
        ));
        assert_eq!(RUNNING.load(Ordering::Acquire), 0);
    }
}
