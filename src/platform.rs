//! Picks the operating system's answers to the ports. The only place outside `board` that asks which system this is.

use std::{
    io::{self, Read, Write},
    path::Path,
    rc::Rc,
    time::Duration,
};

use board::Board;
use smol::LocalExecutor;

/// Why this machine cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum PlatformError {
    /// The operating system's part failed.
    #[cfg(target_os = "linux")]
    #[error(transparent)]
    Linux(#[from] board_linux::ConnectError),
}

/// The abilities of this machine. `run_folder` holds what belongs to one boot. A `guest` keeps its hands off what this
/// machine is for others too: its network, its radios, its power.
#[cfg(target_os = "linux")]
pub fn connect(
    executor: &Rc<LocalExecutor<'static>>,
    run_folder: &Path,
    fetch: board_portable::PortableFetch,
    guest: bool,
) -> Result<Board, PlatformError> {
    let pieces = board_linux::connect(executor, run_folder, api::brand::NAME)?;
    let own = !guest;
    if own {
        pieces.networks.clear();
    }
    let doorway = board_portable::PortableDoorway::new(executor, Rc::clone(&pieces.clock) as _);
    Ok(Board {
        clock: pieces.clock,
        files: Rc::new(board_portable::PortableFiles),
        fetch: Rc::new(fetch),
        processes: pieces.processes,
        service: pieces.service,
        console: pieces.console,
        power: own.then_some(pieces.power as _),
        networks: own.then_some(pieces.networks as _),
        doorway: own.then(|| Rc::new(doorway) as _),
        bluetooth: own.then_some(pieces.bluetooth as _),
        host: pieces.host,
    })
}

/// This machine's network manager, for who needs nothing else.
#[cfg(target_os = "linux")]
#[must_use]
pub fn networks(executor: &Rc<LocalExecutor<'static>>) -> Option<Rc<dyn board::network::Networks>> {
    board_linux::networks(executor, api::brand::NAME).ok().map(|networks| networks as _)
}

/// Host name and serial number.
#[cfg(target_os = "linux")]
#[must_use]
pub fn names() -> (String, String) {
    use board::host::Host as _;
    let host = board_linux::host::LinuxHost::read();
    (host.facts().hostname.clone(), host.facts().serial.clone())
}

/// Whether this process is an ordinary user's: it may not write to the system's folders.
#[cfg(target_os = "linux")]
#[must_use]
pub fn ordinary_user() -> bool {
    board_linux::ordinary_user()
}

/// Whether something trustworthy has set this machine's clock since it was started.
#[cfg(target_os = "linux")]
#[must_use]
pub fn clock_is_synchronised() -> bool {
    board_linux::clock::is_synchronised()
}

/// Connects to the agent whose run folder this is. Blocking; each read and write ends after `limit`.
#[cfg(target_os = "linux")]
pub fn ask_console(run_folder: &Path, limit: Duration) -> io::Result<impl Read + Write + use<>> {
    board_linux::console::ask(run_folder, limit)
}

/// The boot that this process belongs to.
#[cfg(target_os = "linux")]
#[must_use]
pub fn boot() -> crate::launcher::Boot {
    let (id, uptime) = board_linux::host::boot();
    crate::launcher::Boot { id, uptime_seconds: uptime.as_secs() }
}

#[cfg(target_os = "linux")]
pub use board_linux::deadline::set as set_deadline;
#[cfg(target_os = "linux")]
pub use board_linux::process::{become_program, kernel::trouble as kernel_trouble};
#[cfg(target_os = "linux")]
pub use board_linux::signals::{Asked, Source, ignore_reload, signals};
