//! Reboot by the system's login manager, which lets services end in order, or by the command that every system has.

use std::{process::Command, rc::Rc};

use async_trait::async_trait;
use board::power::{Power, RebootError};

use crate::{bus::Bus, dbus::Value};

const LOGIN_MANAGER: &str = "org.freedesktop.login1";
/// The first that is there is asked.
const COMMANDS: [&[&str]; 2] = [&["systemctl", "--no-block", "reboot"], &["reboot"]];

/// This machine's power.
pub struct LinuxPower {
    bus: Rc<Bus>,
}

impl LinuxPower {
    /// Costs nothing until it is used.
    #[must_use]
    pub fn new(bus: Rc<Bus>) -> LinuxPower {
        LinuxPower { bus }
    }

    async fn by_login_manager(&self) -> Result<(), String> {
        let connection = self.bus.connection().await.map_err(|error| error.to_string())?;
        let (path, interface) = ("/org/freedesktop/login1", "org.freedesktop.login1.Manager");
        // Asks nobody for a password.
        let call = connection.call(LOGIN_MANAGER, path, interface, "Reboot", vec![Value::from(false)]);
        call.await.map(drop).map_err(|error| error.to_string())
    }
}

#[async_trait(?Send)]
impl Power for LinuxPower {
    async fn reboot(&self) -> Result<(), RebootError> {
        let Err(mut why) = self.by_login_manager().await else { return Ok(()) };
        for words in COMMANDS {
            match smol::unblock(move || run(words)).await {
                Ok(()) => return Ok(()),
                Err(said) => why = format!("{why}; {said}"),
            }
        }
        Err(RebootError(why))
    }
}

fn run(words: &[&str]) -> Result<(), String> {
    let [program, arguments @ ..] = words else { return Err("no command".to_owned()) };
    let output = Command::new(program).args(arguments).output().map_err(|error| format!("{program}: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(format!("{program}: {}", said.lines().next().unwrap_or("failed without a word")))
}
