//! What the agent decides: one pure machine and one thin shell per concern.
//!
//! - `config` keeps the settings in force.
//! - `update` brings the machine server (and the agent) to the wanted version, or back.
//! - `successor` keeps the agent's own process and makes way for another version of it.
//! - `provisioning` invites a person to give the device a network or an identity.
//! - `cloud` talks to the fleet server: configuration, status, restart requests, log batches.
//! - `server` runs the machine server and keeps it healthy.
//! - `network` keeps the device connected with what it was given.
//! - `logs` gathers lines and delivers them once online, in order, without loss.
//! - `console` answers who asks at the device.
//!
//! A machine (`machine.rs`) has no clock, no channel and no `async`; a shell (`actor.rs`) has no policy. What they are
//! joined by lies in [`kit`]; who is joined to whom is written in the agent's `wiring.rs` and nowhere else.

// Input from outside must never end the process. A broken invariant may, with its reason (docs/adr/0005).
#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::string_slice, clippy::unreachable))]
#![cfg_attr(not(test), deny(clippy::expect_used, clippy::panic, clippy::unwrap_used))]

pub mod cloud;
pub mod config;
pub mod console;
pub mod kit;
pub mod life;
pub mod logs;
pub mod maintenance;
pub mod network;
pub mod provisioning;
pub mod rank;
pub mod server;
pub mod successor;
pub mod update;
