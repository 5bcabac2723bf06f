//! The service manager of this machine, if systemd runs it; otherwise only a word about that.

use std::{
    io::Write,
    path::Path,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use super::{InstallError, say, unit};

/// There while systemd is process 1.
const BOOTED: &str = "/run/systemd/system";
/// How long the service may take to be ready before this command stops waiting for it.
const READY_LIMIT: Duration = Duration::from_secs(60);
/// Between two looks.
const PAUSE: Duration = Duration::from_millis(100);

/// What is asked of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Service {
    /// systemd runs this machine.
    Systemd,
    /// Something else does.
    None,
    /// An image is made: nothing of this machine is asked.
    Image,
}

impl Service {
    /// As this machine is.
    pub(super) fn here(image: bool) -> Service {
        match image {
            true => Service::Image,
            false if Path::new(BOOTED).is_dir() => Service::Systemd,
            false => Service::None,
        }
    }

    /// Whether the service runs, or is being started.
    pub(super) fn is_active(self) -> bool {
        self == Service::Systemd && matches!(&*state(), "active" | "activating" | "reloading" | "deactivating")
    }

    pub(super) fn stop(self) -> Result<(), InstallError> {
        match self {
            Service::Systemd => systemctl(&["stop", &unit::name()]),
            Service::None | Service::Image => Ok(()),
        }
    }

    /// Tells systemd about changed units.
    pub(super) fn reload(self) -> Result<(), InstallError> {
        match self {
            Service::Systemd => systemctl(&["daemon-reload"]),
            Service::None | Service::Image => Ok(()),
        }
    }

    /// Starts it again after an installation that came to nothing; not waited for.
    pub(super) fn start(self) -> Result<(), InstallError> {
        match self {
            Service::Systemd => systemctl(&["start", "--no-block", &unit::name()]),
            Service::None | Service::Image => Ok(()),
        }
    }

    /// Runs the service as it is now installed, and waits until it is ready. One that runs is left alone: with another
    /// version it was stopped before, and a launcher or a unit is not worth a restart of the machine server.
    pub(super) fn settle(self, new_version: bool, new_unit: bool, out: &mut dyn Write) -> Result<(), InstallError> {
        match self {
            Service::Image => return Ok(()),
            Service::None => {
                say(out, "           systemd does not run this machine: start the launcher by its own service manager");
                return Ok(());
            }
            Service::Systemd => {}
        }
        self.reload()?;
        let was_active = self.is_active();
        if was_active && !new_version {
            say(out, &format!("active     {}", unit::name()));
            if new_unit {
                say(out, "           what is new in its unit holds from its next start on");
            }
            return Ok(());
        }
        // Not waited for by systemctl: a start may be held back by the launcher for as long as it takes.
        systemctl(&[if was_active { "restart" } else { "start" }, "--no-block", &unit::name()])?;
        let begin = Instant::now();
        while state() != "active" {
            if begin.elapsed() > READY_LIMIT {
                say(out, &format!("           {} is not ready yet: journalctl -u {0} says why", unit::name()));
                return Ok(());
            }
            thread::sleep(PAUSE);
        }
        say(out, &format!("started    {}, ready after {} ms", unit::name(), begin.elapsed().as_millis()));
        Ok(())
    }
}

fn state() -> String {
    let asked = Command::new("systemctl").args(["is-active", &unit::name()]).stdin(Stdio::null()).output();
    asked.map_or_else(|_| String::new(), |answer| String::from_utf8_lossy(&answer.stdout).trim().to_owned())
}

fn systemctl(words: &[&str]) -> Result<(), InstallError> {
    let failed = |said: String| InstallError::Service { command: format!("systemctl {}", words.join(" ")), said };
    let answer = Command::new("systemctl").args(words).stdin(Stdio::null()).output();
    let answer = answer.map_err(|error| failed(error.to_string()))?;
    if answer.status.success() {
        return Ok(());
    }
    Err(failed(String::from_utf8_lossy(&answer.stderr).trim().to_owned()))
}
