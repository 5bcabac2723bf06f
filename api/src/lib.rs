//! What travels between agent, server and command line.
//!
//! Owns the wire messages (`pb`, compiled from `proto/`), the blocking client, the vendor's name, and the readers of
//! everything that arrives from outside as a document: device configuration and signed releases. Holds no policy.
//! The messages outside `platform.fleet.v1` are a contract with existing clients: numbers and presence never change.

pub mod brand;
#[cfg(feature = "client")]
pub mod client;
pub mod device_config;
pub mod digest;
pub mod json;
pub mod method;
pub mod pb;
pub mod releases;
pub mod secret;

pub use digest::digest;
pub use secret::Secret;
