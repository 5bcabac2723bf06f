//! Names and facts of the simulated machine.

use board::host::{Facts, Host};

/// The facts as the agent of one boot sees them.
pub(crate) struct HostPort {
    pub(crate) facts: Facts,
}

impl Host for HostPort {
    fn facts(&self) -> &Facts {
        &self.facts
    }
}
