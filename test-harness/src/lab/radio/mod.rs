//! Boards with radios: whole machines, because radios need a kernel that has them.
//!
//! `machine` is one of them: under `qemu` (without KVM, from a state that was saved once; `qmp` speaks to it) or under a
//! user-mode kernel (`user_mode`). `channel` runs commands on it, `air` is what its Bluetooth controllers and those of phones
//! hear each other through. `test-harness/lab/radio/image.sh` makes what they are started from, `kernel.sh` beside it the
//! user-mode kernel. The layout of the radios, cables
//! and networks stands in `test-harness/lab/radio/guest/lab-setup`.

pub mod air;
mod bluetooth;
pub mod board;
pub mod channel;
mod doors;
mod figures;
pub mod machine;
mod networks;
mod probes;
mod qemu;
mod qmp;
mod restarts;
mod sheet;
pub mod stories;
mod tethering;
mod user_mode;
mod visitor;
