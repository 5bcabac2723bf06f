//! The main job with real processes, real sockets and the real server: each test is a promise, kept.
//!
//! | module | promises about |
//! |---|---|
//! | `sandbox` | `make sandbox` |
//! | `environment` | variables of the machine server |
//! | `flash` | what an update costs: bytes written, memory given back |
//! | `versions` | which version runs, and what is refused |
//! | `trust` | what a stolen fleet server can and cannot do |
//! | `supervision` | a machine server that dies, hangs or does not listen |
//! | `restart` | `MarkPartForRestart`, and waiting for updates before the first start |
//! | `offline` | a fleet server that is not there |
//! | `logs` | lines of agent and machine server |
//! | `bad_input` | everything that is wrong |
//! | `status` | what somebody at the device sees, and what an operator sees |
//! | `install` | the agent as a service, in images and by the script; what a stopped service leaves |
//! | `command_line` | the five things to try, every command, two who edit one part, signing in in a browser |
//! | `hand_over` | an agent that becomes the next one, or dies, while its machine server talks |
//! | `launcher` | versions of the agent that die or are none, and stored state that is poison |
//!
//! Each has a folder, ports and processes of its own, so they run side by side. They wait for events and never look at
//! a stop-watch; a minute of settings lasts a second.

#![cfg(target_os = "linux")]

mod bad_input;
mod command_line;
mod environment;
mod flash;
mod hand_over;
mod install;
mod launcher;
mod logs;
mod offline;
mod restart;
mod sandbox;
mod status;
mod supervision;
mod trust;
mod versions;
mod world;
