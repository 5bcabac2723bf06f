//! The agent as a library, so that the test harness starts the very same one in simulated time.
//!
//! Composition only: options ([`args`]), the operating system ([`platform`]), who is joined to whom ([`wiring`]), the
//! bridge to the fleet server ([`uplink`]), the log ([`logger`]), the question how a device is ([`status`]) and what puts
//! it on a machine ([`install`]). What the agent decides is in the `actors` crate.

// Input from outside must never end the process. A broken invariant may, with its reason (docs/adr/0005).
#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::string_slice, clippy::unreachable))]
#![cfg_attr(not(test), deny(clippy::expect_used, clippy::panic, clippy::unwrap_used))]

pub mod args;
pub mod deprovision;
#[cfg(target_os = "linux")]
pub mod end_server;
pub mod hand_over;
pub mod identity;
#[cfg(target_os = "linux")]
pub mod install;
pub mod keys;
pub mod launcher;
pub mod lock;
pub mod logger;
pub mod platform;
pub mod provision;
pub mod safe;
pub mod status;
pub mod trusted_time;
pub mod uplink;
pub mod wiring;
