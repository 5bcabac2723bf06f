//! Brings a product (the machine server, the agent) to its wanted version, or back.
//!
//! Owns the walk wanted → downloading → verifying → staged → waiting → switching → probation → committed | rolled back.
//! Each state is stored before its effect and can be resumed from. Nothing that runs is touched before its successor
//! has been verified, and there is always one version that can be started.
//!
//! | file | decides |
//! |---|---|
//! | `machine.rs` | when each step of the walk is taken (pure); `machine/heading.rs` up to the spare slot, `machine/trying.rs` from there |
//! | `events.rs` | nothing: it names what the machine hears and asks for |
//! | `kind.rs` | what differs between the two products (pure); `machine/launched.rs` the agent as its own product |
//! | `wish.rs` | what the configuration wants of the product (pure) |
//! | `trial.rs` | how long a new version has been watched (pure) |
//! | `target.rs` | what a setting and a signed release mean in bytes (pure) |
//! | `verify.rs` | whether bytes are those, and run on this machine (pure) |
//! | `note.rs` | what an executable says about itself (pure) |
//! | `slots.rs` | what lies in the two slots and which one is started (pure) |
//! | `record.rs` | what is stored of all that (pure) |
//! | `trust.rs` | which genuine documents are followed (pure) |
//! | `belief.rs` | which stored root and numbers can be used |
//! | `check.rs` | in which order the fleet server is asked |
//! | `berth.rs` | which of the two products has the room for an unfinished download |
//! | `bring.rs`, `shelf.rs` | nothing: they download, judge, move and read |
//! | `actor.rs` | nothing: it waits and carries out |

pub mod actor;
mod belief;
pub mod berth;
mod bring;
pub mod check;
pub mod events;
pub mod kind;
pub mod machine;
pub mod note;
mod progress;
pub mod record;
mod sealed;
mod shelf;
pub mod slots;
pub mod target;
mod trial;
pub mod trust;
pub mod verify;
mod wish;

#[cfg(test)]
mod tests;

pub use kind::{Kind, Launched};
pub use machine::{Machine, Policy};
pub use wish::{Pins, Wish};
