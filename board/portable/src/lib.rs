//! Ports that any operating system answers alike: files, downloads, and a small HTTP listener.
//!
//! What takes long runs on a thread of the `blocking` pool and is given up when its future is dropped. Small file
//! operations are synchronous, as their port wants it.

// Input from outside must never end the process. A broken invariant may, with its reason (docs/adr/0005).
#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::string_slice, clippy::unreachable))]
#![cfg_attr(not(test), deny(clippy::expect_used, clippy::panic, clippy::unwrap_used))]

pub mod doorway;
mod fetch;
mod files;
mod unpack;
mod work;

pub use doorway::PortableDoorway;
pub use fetch::PortableFetch;
pub use files::PortableFiles;
