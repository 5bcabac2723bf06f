//! Numbers that nobody can guess.

use ring::rand::{SecureRandom as _, SystemRandom};

/// Fills with them, from the system; `false` when it has none.
#[must_use]
pub fn fill(bytes: &mut [u8]) -> bool {
    SystemRandom::new().fill(bytes).is_ok()
}
