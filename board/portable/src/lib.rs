//! Ports that any operating system answers alike: files and downloads.
//!
//! What takes long runs on a thread of the `blocking` pool and is given up when its future is dropped. Small file
//! operations are synchronous, as their port wants it.

mod fetch;
mod files;
mod work;

pub use fetch::PortableFetch;
pub use files::PortableFiles;
