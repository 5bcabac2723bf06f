//! Bugs put in on purpose, so that the swarm can be seen to find such bugs.
//!
//! Only with the feature `planted-bugs`, which no shipped program is built with; without it [`is`] is the constant
//! `false` and leaves nothing behind.

use std::sync::atomic::{AtomicU8, Ordering};

/// One bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Bug {
    /// The digest of what arrived is not compared with the signed one.
    DigestUnchecked = 1,
    /// A machine server of an agent that did not live to write its name down is not looked for.
    UnrecordedForgotten,
    /// The launcher does not count starts.
    StartsUncounted,
}

impl Bug {
    /// Each of them.
    pub const ALL: [Bug; 3] = [Bug::DigestUnchecked, Bug::UnrecordedForgotten, Bug::StartsUncounted];
}

static IN_FORCE: AtomicU8 = AtomicU8::new(0);

/// Whether this bug is in force in this process.
#[must_use]
pub fn is(bug: Bug) -> bool {
    cfg!(feature = "planted-bugs") && IN_FORCE.load(Ordering::Relaxed) == bug as u8
}

/// From now on this bug is in force, and no other; with the feature only.
pub fn plant(bug: Bug) {
    IN_FORCE.store(bug as u8, Ordering::Relaxed);
}
