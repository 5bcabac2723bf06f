//! A whole world in one process, and real ones: everything the agent and the fleet server are tested with.
//!
//! `world` is a simulated device with a simulated fleet server, time and faults, in which the agent of production lives.
//! `fuzz` says nonsense to what strangers can reach.
//! `real` starts the real programs on this machine; `lab` installs them on virtual boards.

pub mod fuzz;
#[cfg(target_os = "linux")]
pub mod lab;
pub mod real;
pub mod world;
