//! How our programs reach a web server: whom to believe, what time it is meanwhile, which way to go, where names lead.
//!
//! The parts that the HTTP client leaves to its user or does in a way that a small device cannot afford. Used by the
//! client of the fleet server and by downloads alike, so that both believe the same authorities.

// Input from outside must never end the process. A broken invariant may, with its reason (docs/adr/0005).
#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::string_slice, clippy::unreachable))]
#![cfg_attr(not(test), deny(clippy::expect_used, clippy::panic, clippy::unwrap_used))]

mod names;
pub mod proxy;
mod tls;
mod trust;

pub use names::Names;
// For reading what a refused certificate was refused for.
pub use proxy::ProxyError;
pub use rustls;
pub use tls::{Now, Tls};
pub use trust::{NoTrust, Trust};

/// The host of an address without the brackets of an IPv6 one.
#[must_use]
pub fn bare(host: &str) -> &str {
    host.trim_start_matches('[').trim_end_matches(']')
}

/// Whether a host is this machine itself: such traffic never takes a proxy and needs no encryption.
#[must_use]
pub fn is_loopback(host: &str) -> bool {
    host.eq_ignore_ascii_case("localhost") || bare(host).parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback())
}
