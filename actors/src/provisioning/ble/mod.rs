//! Provisioning over Bluetooth LE: what a phone without any network can find, read and write.
//!
//! Owns the table of characteristics, what protects a write, and what a write means as a [`super::visit::Visit`].
//! Decides nothing about when the door is open. Knows neither a radio nor a clock: [`session::Session`] takes bytes and
//! the time, and gives back visits and bytes.
//!
//! | file | owns |
//! |---|---|
//! | `characteristics` | the one table: name, what it shows or takes, how it is written down |
//! | `session` | one opening of the door: from a write to its visits, from a welcome to the values that phones read |
//! | `draft` | what has been written so far, until somebody says that it is all |
//! | `limit` | how often a write may be wrong |
//! | `sealing` | the scheme that existing phone apps use: RSA, one value per write |
//! | `channel` | the scheme beside it: X25519, the whole message authenticated |
//! | `improv` | the open standard Improv: WiFi only |

mod channel;
pub mod characteristics;
mod draft;
mod improv;
mod limit;
mod sealing;
pub mod session;

#[cfg(test)]
mod tests;
#[cfg(test)]
mod vectors;
