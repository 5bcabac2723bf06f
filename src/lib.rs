//! The agent as a library, so that the test harness starts the very same one in simulated time.
//!
//! Composition only: options ([`args`]), the operating system ([`platform`]), who is joined to whom ([`wiring`]), the
//! bridge to the fleet server ([`uplink`]) and the log ([`logger`]). What the agent decides is in the `actors` crate.

pub mod args;
pub mod identity;
pub mod lock;
pub mod logger;
pub mod platform;
pub mod uplink;
pub mod wiring;
