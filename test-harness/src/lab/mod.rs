//! The lab: the agent as an installed service on virtual boards with a real systemd.
//!
//! Each story has a board of its own (`board`), a fleet server and a manufacturer (`site`). All of them share a network
//! of loopback only. What one needs beside this: root, and what `test-harness/lab/run.sh` looks for.

pub mod board;
mod hardships;
pub mod radio;
pub mod site;
pub mod stories;
