//! Which configurations changed since they were composed.
//!
//! A composed configuration is kept with the numbers it was made under; it is good while they have not moved. They move
//! when news of a change is heard (`memory.rs`): on the server that changed it before the answer goes out, so an operator
//! who saw the answer also sees every later device call there use the new configuration.

use std::{
    collections::HashMap,
    sync::{
        RwLock,
        atomic::{AtomicU64, Ordering},
    },
};

/// Counts changes.
#[derive(Default)]
pub struct Changes {
    /// Changes of fragments, of what is released, of everything that many parts depend on.
    shared: AtomicU64,
    parts: RwLock<HashMap<Box<str>, u64>>,
}

/// Under which numbers something was composed. Taken *before* reading what it is composed of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Edition {
    shared: u64,
    part: u64,
}

impl Changes {
    /// The present numbers of a part.
    pub fn edition(&self, part: &str) -> Edition {
        let of_part = self.parts.read().ok().and_then(|parts| parts.get(part).copied()).unwrap_or(0);
        Edition { shared: self.shared.load(Ordering::Acquire), part: of_part }
    }

    /// A part's own configuration changed, or the part is gone.
    pub fn part(&self, part: &str) {
        if let Ok(mut parts) = self.parts.write() {
            *parts.entry(part.into()).or_insert(0) += 1;
        }
    }

    /// A fragment or a release changed: everything is composed again when it is next asked for.
    pub fn shared(&self) {
        self.shared.fetch_add(1, Ordering::AcqRel);
    }
}
