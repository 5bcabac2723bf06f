//! Signed releases as this server keeps, serves and chooses among them. It holds no key and can forge none.
//!
//! Owns the folder of documents and artifacts (`folder`), what they mean (`catalog`: a channel or version and a
//! platform to an artifact), the answers below `/releases/v1/` (`serve`) and the offline tools (`command`).
//! The documents' format and their verification are `api::releases`; a device verifies everything again.
//! A document that does not verify is served all the same (a device may hold another root) but never hinted at.

pub mod catalog;
pub mod command;
pub mod folder;
mod pack;
pub mod serve;

#[cfg(test)]
mod tests;

use std::error::Error;

pub use catalog::{Catalog, Hint, Watched};
pub use folder::Folder;

/// A failure and what was behind it, in one line: for a log, and for tests.
fn told(failure: &dyn Error) -> String {
    std::iter::successors(failure.source(), |cause| (*cause).source())
        .fold(failure.to_string(), |text, cause| format!("{text}: {cause}"))
}
