//! The machine's power.

use async_trait::async_trait;

/// Why the machine could not be rebooted.
#[derive(Debug, thiserror::Error)]
#[error("could not reboot this machine: {0}")]
pub struct RebootError(pub String);

/// Switching the machine off and on.
#[async_trait(?Send)]
pub trait Power {
    /// Reboots in an orderly way. Returns when the system has agreed to it; the end of this process comes soon after.
    async fn reboot(&self) -> Result<(), RebootError>;
}
