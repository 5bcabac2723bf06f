//! Names and facts of this machine that do not change while it runs.

/// What this machine is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// `os/arch` in the words of the registry: "linux/amd64", "linux/arm64", "windows/amd64".
    pub platform: String,
    /// Name and version of the distribution, empty when unknown.
    pub distro: String,
    /// Host name.
    pub hostname: String,
    /// Changes with every boot; empty when the system has no such thing.
    pub boot_id: String,
    /// Names this piece of hardware: its serial number; where it has none, the installation's own number. Empty when
    /// there is neither.
    pub serial: String,
}

/// Facts about the machine.
pub trait Host {
    /// Read once at start, then the same.
    fn facts(&self) -> &Facts;
}
