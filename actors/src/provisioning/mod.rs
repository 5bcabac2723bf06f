//! Invites a person to give the device a network or an identity.
//!
//! Owns when the doors are open, what a visitor may do at them, and what becomes of it. A door is a way to reach the
//! device without a network: the page on the hotspot, the provisioning service of the contract, Bluetooth, Improv. All
//! of them speak of a [`visit::Visit`] and show a [`welcome::Welcome`]; none of them decides anything.
//!
//! | file | owns |
//! |---|---|
//! | `visit` | what a visitor can do, whichever door, and the checks of what was typed |
//! | `welcome` | what a visitor sees |

pub mod visit;
pub mod welcome;
