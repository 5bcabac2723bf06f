//! Boards with radios: whole machines, because radios need a kernel that has them.
//!
//! `machine` starts one under qemu (without KVM) from a state that was saved once, `channel` runs commands on it, `qmp`
//! speaks to qemu, `air` is what its Bluetooth controllers and those of phones hear each other through. `test-harness/lab/radio/image.sh` makes what they are started from. The layout of the radios, cables
//! and networks stands in `test-harness/lab/radio/guest/lab-setup`.

pub mod air;
mod bluetooth;
pub mod board;
pub mod channel;
mod doors;
pub mod machine;
mod networks;
mod probes;
mod qmp;
mod restarts;
mod sheet;
pub mod stories;
mod visitor;
