//! What travels between agent, server and command line.
//!
//! Owns the wire messages (`pb`, compiled from `proto/`), the blocking client, the vendor's name, and the readers of
//! everything that arrives from outside as a document: device configuration and signed releases. Says in one place how a
//! device's status reads to people (`report`). Holds no policy.
//! The messages outside `platform.fleet.v1` are a contract with existing clients: numbers and presence never change.

// Input from outside must never end the process. A broken invariant may, with its reason (docs/adr/0005).
#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::string_slice, clippy::unreachable))]
#![cfg_attr(not(test), deny(clippy::expect_used, clippy::panic, clippy::unwrap_used))]

pub mod brand;
pub mod chance;
#[cfg(feature = "client")]
pub mod client;
pub mod device_config;
pub mod digest;
pub mod json;
pub mod method;
pub mod pb;
pub mod releases;
pub mod report;

/// Seconds since 1970 when this was built, or not long before: no clock that is right shows less. Builds that are to be
/// repeatable set `SOURCE_DATE_EPOCH`.
pub const BUILT_AT: u64 = include!(concat!(env!("OUT_DIR"), "/built.rs"));

pub use digest::digest;
pub use secret::Secret;
