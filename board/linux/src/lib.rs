//! Ports answered by Linux: clock, processes, service manager, console, host.
//!
//! Owns every place where the agent speaks to a Linux kernel. Refuses policy: how long, how often and whether at all
//! is decided by actors. Costs no thread beside the reactor's, and while nothing happens it costs no wake-up either.

// Input from outside must never end the process. A broken invariant may, with its reason (docs/adr/0005).
#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::string_slice, clippy::unreachable))]
#![cfg_attr(not(test), deny(clippy::expect_used, clippy::panic, clippy::unwrap_used))]

pub mod bluez;
pub mod bus;
pub mod clock;
pub mod console;
pub mod dbus;
pub mod deadline;
pub mod host;
mod memory;
mod netlink;
pub mod network_manager;
pub mod power;
pub mod process;
pub mod service;
pub mod signals;

use std::{path::Path, rc::Rc};

use smol::LocalExecutor;

/// What Linux answers of a [`board::Board`]; files and downloads come from `board-portable`.
pub struct Pieces {
    /// Time, and waiting for it.
    pub clock: Rc<clock::LinuxClock>,
    /// The machine server as a process.
    pub processes: Rc<process::LinuxProcesses>,
    /// The service manager above us.
    pub service: Rc<service::Notify>,
    /// Questions asked at the device.
    pub console: Rc<console::LinuxConsole>,
    /// Names and facts of this machine.
    pub host: Rc<host::LinuxHost>,
    /// The way to other services of this machine.
    pub bus: Rc<bus::Bus>,
    /// Links, profiles and the radio.
    pub networks: Rc<network_manager::NetworkManager>,
    /// Bluetooth LE.
    pub bluetooth: Rc<bluez::Bluez>,
    /// Switching the machine off and on.
    pub power: Rc<power::LinuxPower>,
}

/// Why this machine cannot be used as a board.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// No timer: the kernel is older than 3.15, or a sandbox forbids it.
    #[error("could not make a timer that counts suspend")]
    Timer {
        /// What the system answered.
        #[source]
        source: std::io::Error,
    },
    /// Not even pipes without a name can be had for the machine server's output.
    #[error("could not make pipes for the output of the machine server")]
    Pipes {
        /// What the system answered.
        #[source]
        source: std::io::Error,
    },
}

/// Connects to this machine. `run_folder` is made if need be, private to the agent's user; what else is in its place is
/// moved aside. It must stay the same for a machine server to be found without a record. `brand` marks what the agent leaves
/// with other services. The clock's alarm runs on `executor`.
pub fn connect(executor: &Rc<LocalExecutor<'static>>, run_folder: &Path, brand: &str) -> Result<Pieces, ConnectError> {
    // Here, because the clock's timer starts the reactor's thread.
    memory::keep_small();
    let clock = Rc::new(clock::LinuxClock::new(executor).map_err(|source| ConnectError::Timer { source })?);
    let service = Rc::new(service::Notify::from_environment());
    let processes = process::LinuxProcesses::new(run_folder, Rc::clone(&clock) as _, Rc::clone(&service))
        .map_err(|source| ConnectError::Pipes { source })?;
    let console = console::LinuxConsole::new(run_folder, Rc::clone(&clock) as Rc<dyn board::Clock>);
    let bus = bus::Bus::new(executor, Rc::clone(&clock) as _);
    let networks = network_manager::NetworkManager::new(executor, Rc::clone(&clock) as _, Rc::clone(&bus), brand);
    Ok(Pieces {
        networks: Rc::new(networks),
        bluetooth: Rc::new(bluez::Bluez::new(executor, Rc::clone(&clock) as _, Rc::clone(&bus))),
        power: Rc::new(power::LinuxPower::new(Rc::clone(&bus))),
        bus,
        clock,
        processes: Rc::new(processes),
        service,
        console: Rc::new(console),
        host: Rc::new(host::LinuxHost::read()),
    })
}

/// This machine's network manager alone.
pub fn networks(
    executor: &Rc<LocalExecutor<'static>>,
    brand: &str,
) -> Result<Rc<network_manager::NetworkManager>, ConnectError> {
    let clock = clock::LinuxClock::new(executor).map_err(|source| ConnectError::Timer { source })?;
    let clock: Rc<dyn board::Clock> = Rc::new(clock);
    let bus = bus::Bus::new(executor, Rc::clone(&clock));
    Ok(Rc::new(network_manager::NetworkManager::new(executor, clock, bus, brand)))
}

/// Whether this process belongs to an ordinary user, who may not write to the system's folders.
#[must_use]
pub fn ordinary_user() -> bool {
    !rustix::process::geteuid().is_root()
}
