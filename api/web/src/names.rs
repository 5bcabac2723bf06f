//! Names to addresses, asked for as rarely as a poll every few seconds allows.
//!
//! The HTTP client resolves before every call, in a thread of its own, even when a connection is open. Here an IP address
//! is never looked up, and a name's addresses are kept for half a minute, or until a call fails to connect.

use std::{
    fmt,
    net::{IpAddr, SocketAddr, ToSocketAddrs},
    sync::{Arc, Mutex, PoisonError, mpsc},
    thread,
    time::{Duration, Instant},
};

use ureq::{
    config::Config,
    http::{Uri, uri::Scheme},
    unversioned::{
        resolver::{ResolvedSocketAddrs, Resolver},
        transport::NextTimeout,
    },
};

/// A server that moves is found again within this time; shorter would mean a query per poll.
const KEPT_FOR: Duration = Duration::from_secs(30);
/// `getaddrinfo` of both C libraries stays below 64 KiB; NSS modules may want more.
const LOOKUP_STACK_BYTES: usize = 256 * 1024;
/// As many as the HTTP client tries.
const ADDRESSES_MAX: usize = 16;

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
        // A thread, because the system's look-up knows no time limit; it outlives a look-up that was given up.
        let (answer, answered) = mpsc::sync_channel(1);
        let asked = name.clone();
        thread::Builder::new().name("lookup".into()).stack_size(LOOKUP_STACK_BYTES).spawn(move || {
            let addresses = asked.to_socket_addrs().map(|found| found.take(ADDRESSES_MAX).collect::<Vec<_>>());
            // Nobody waits any more when the time was over.
            let _ = answer.send(addresses);
        })?;
        let addresses = if timeout.after.is_not_happening() {
            answered.recv().map_err(|_| ureq::Error::HostNotFound)?
        } else {
            answered.recv_timeout(*timeout.after).map_err(|_| ureq::Error::Timeout(timeout.reason))?
        };
        let addresses = addresses.map_err(|_| ureq::Error::HostNotFound)?;
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
