//! The simulated board and the real one, held to the same rows.
//!
//! A simulation that is kinder than the hardware proves nothing, and one that is stricter in what it refuses sends
//! people after ghosts. Each check here is written once against the ports and run against both.

#[cfg(target_os = "linux")]
mod console;
mod fetch;
mod files;
#[cfg(target_os = "linux")]
mod hand_over;
#[cfg(target_os = "linux")]
mod processes;
