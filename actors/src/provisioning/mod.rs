//! Invites a person to give the device a network or an identity.
//!
//! Owns when the doors are open, what a visitor may do at them, and what becomes of it. A door is a way to reach the
//! device without a network: the page on the hotspot, the provisioning service of the contract, Bluetooth, Improv. All
//! of them speak of a [`visit::Visit`] and show a [`welcome::Welcome`]; none of them decides anything.
//!
//! | file | owns |
//! |---|---|
//! | `machine`, `moves` | every decision: when the doors open and close, who may do what, what becomes of it |
//! | `ble` | what phones find, read and write over Bluetooth |
//! | `actor`, `desk` | waiting, and doing what the machine wants |
//! | `front` | opens and closes the hotspot with its page |
//! | `near` | opens and closes Bluetooth |
//! | `asking` | when phones that shared their connection are asked for it again |
//! | `keeper` | one door: opened, closed, tried again for ever |
//! | `rules` | what the configuration and the device allow |
//! | `hotspot` | its name, password, channel and address |
//! | `identity` | an identity as text |
//! | `visit` | what a visitor can do, whichever door, and the checks of what was typed |
//! | `welcome` | what a visitor sees |
//! | `portal` | everything behind the hotspot's HTTP port |

pub mod actor;
pub mod asking;
pub mod ble;
mod desk;
mod front;
pub mod hotspot;
pub mod identity;
pub mod keeper;
pub mod machine;
mod moves;
pub mod near;
pub mod portal;
pub mod rules;
pub mod visit;
pub mod welcome;

#[cfg(test)]
mod tests;
