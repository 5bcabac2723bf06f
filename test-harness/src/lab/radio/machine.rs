//! One machine: a board with radios, and the people around it.
//!
//! There are two kinds, which differ in what the board's kernel runs on and in nothing that a story sees. A machine lives on
//! when the process that started it ends; it is known by its folder.

use std::{
    collections::HashMap,
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use super::{
    channel::{Idle, Lease, note},
    qemu, user_mode,
};
use crate::real::{PATIENCE, Trouble, eventually};

/// Memory of an ordinary board, in megabytes.
pub const MEMORY: u32 = 512;
/// What a machine of 128 MB has for programs under a kernel of a product.
const SMALL: u32 = 112;
/// How long a board may take from power to the end of its setting up.
pub(super) const SETUP_LIMIT: Duration = Duration::from_secs(900);

/// What machines are started from.
#[derive(Clone)]
pub struct Source {
    /// The folder that `test-harness/lab/radio/image.sh` or `image-arm64.sh` has made.
    pub image: PathBuf,
    /// A user-mode kernel to boot its disk with (`test-harness/lab/radio/kernel.sh`); without one it boots its own under qemu.
    pub kernel: Option<PathBuf>,
}

/// How much memory a board has.
#[derive(Clone, Copy)]
pub enum Size {
    /// So many megabytes, of which the kernel takes its part.
    Megabytes(u32),
    /// As much for programs as on a machine of 128 MB.
    Small,
}

/// What a machine runs on.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// An emulated processor.
    Qemu,
    /// This machine's own, the kernel being a program.
    UserMode,
}

/// A machine that runs.
pub struct Machine {
    kind: Kind,
    folder: PathBuf,
    idle: Idle,
}

impl Machine {
    /// Starts a machine whose radios and cables are where they belong. `folder` must not hold a machine.
    pub fn start(source: &Source, folder: &Path, size: Size) -> Result<Machine, Trouble> {
        if let Some(kernel) = &source.kernel {
            return user_mode::start(&source.image, kernel, folder, size);
        }
        let memory = if let Size::Megabytes(memory) = size { memory } else { MEMORY };
        let machine = qemu::start(&source.image, folder, memory)?;
        // It stood still while the state was on disk.
        machine.set_clock(SystemTime::now())?;
        if let Size::Small = size {
            // Debian's kernel takes four times as much for itself as a product's: a machine that has this is made of a larger one.
            qemu::squeeze(&machine, SMALL)?;
        }
        Ok(machine)
    }

    /// The machine in this folder, if it runs.
    #[must_use]
    pub fn find(folder: &Path) -> Option<Machine> {
        let pid = note(folder, "pid")?;
        let kind = if folder.join("control").exists() { Kind::UserMode } else { Kind::Qemu };
        Path::new("/proc").join(pid).exists().then(|| Machine::of(kind, folder))
    }

    pub(super) fn of(kind: Kind, folder: &Path) -> Machine {
        Machine { kind, folder: folder.to_owned(), idle: Idle::default() }
    }

    /// Where its sockets and its console are.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// A port for commands and files.
    pub fn channel(&self) -> Result<Lease<'_>, Trouble> {
        self.idle.channel(&self.folder)
    }

    /// Ends the connections to its ports that nobody uses.
    pub(super) fn leave_ports(&self) {
        self.idle.close();
    }

    /// Sets the board's clock.
    pub fn set_clock(&self, to: SystemTime) -> Result<(), Trouble> {
        let since = to.duration_since(UNIX_EPOCH).map_err(|error| Trouble::of("the time", error))?;
        self.run(&format!("date --set=@{}.{:03}", since.as_secs(), since.subsec_millis())).map(drop)
    }

    /// Takes the power away and gives it back: what was not on the disk is lost. Returns at once; the board boots from the
    /// beginning, and `lab-setup` has to be run again by whoever wants radios.
    pub fn cut_power(&self) -> Result<(), Trouble> {
        match self.kind {
            Kind::Qemu => qemu::cut_power(&self.folder),
            Kind::UserMode => user_mode::cut_power(&self.folder),
        }
    }

    /// Plugs the cable of `eth0` in or out.
    pub fn plug_cable(&self, plugged: bool) -> Result<(), Trouble> {
        match self.kind {
            Kind::Qemu => qemu::plug_cable(&self.folder, plugged),
            Kind::UserMode => self.run(if plugged { "lab-cable in" } else { "lab-cable out" }).map(drop),
        }
    }

    /// Opens a port of this machine's loopback that leads to a port of the house (netns `home`); the number it got.
    pub fn forward(&self, port: u16) -> Result<u16, Trouble> {
        match self.kind {
            Kind::Qemu => qemu::forward(&self.folder, port),
            Kind::UserMode => user_mode::forward(&self.folder, port),
        }
    }

    /// The seconds of processor that it has taken so far: what a story takes where nothing else is done.
    #[must_use]
    pub fn processor_seconds(&self) -> u64 {
        note(&self.folder, "pid").and_then(|pid| pid.parse().ok()).map_or(0, processor_seconds)
    }

    /// Ends the machine and waits for its end.
    pub fn stop(&self) -> Result<(), Trouble> {
        for name in ["air.pid", "pid"] {
            let Some(pid) = note(&self.folder, name) else { continue };
            let asked = name == "pid" && self.kind == Kind::Qemu && qemu::quit(&self.folder);
            if !asked {
                let _ = Command::new("kill").args(["-KILL", &pid]).stderr(Stdio::null()).status();
            }
            // It may be a child of this process, and then it has to be waited for: its state is told either way.
            eventually("the machine's end", || (!lives(&pid)).then_some(()))?;
        }
        fs::remove_dir_all(&self.folder).map_err(|error| Trouble::of(self.folder.display(), error))
    }

    /// All the memory that the board's kernel knows (`MemTotal`), in KiB.
    pub(super) fn total_memory(&self) -> Result<u64, Trouble> {
        let said = self.run("sed -n 's/^MemTotal: *\\([0-9]*\\).*/\\1/p' /proc/meminfo")?;
        said.trim().parse().map_err(|error| Trouble::of("the board's memory", error))
    }

    /// What a short command says that has to end well.
    fn run(&self, command: &str) -> Result<String, Trouble> {
        let mut said = Vec::new();
        let code = self.channel()?.execute(command, PATIENCE, &mut said)?;
        let said = String::from_utf8_lossy(&said).into_owned();
        if code == 0 { Ok(said) } else { Err(Trouble(format!("`{command}` ended with {code}: {said}"))) }
    }
}

/// Whether a process of this number lives; one that has ended and was not waited for does not.
fn lives(pid: &str) -> bool {
    let stat = fs::read_to_string(Path::new("/proc").join(pid).join("stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
}

/// What a process and all that it has started took, of programs and of the kernel for them.
fn processor_seconds(root: u32) -> u64 {
    let mut all: HashMap<u32, (u32, u64)> = HashMap::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        let stat = fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        let words: Vec<&str> = stat.rsplit_once(") ").map_or("", |(_, rest)| rest).split_whitespace().collect();
        let Some(parent) = words.get(1).and_then(|word| word.parse().ok()) else { continue };
        // Its own, and what those took that it has waited for, in hundredths.
        let taken = words.iter().skip(11).take(4).filter_map(|ticks| ticks.parse::<u64>().ok()).sum();
        all.insert(pid, (parent, taken));
    }
    let belongs = |mut pid: u32| {
        while pid != root {
            match all.get(&pid) {
                Some((parent, _)) => pid = *parent,
                None => return false,
            }
        }
        true
    };
    all.iter().filter(|(pid, _)| belongs(**pid)).map(|(_, (_, taken))| taken).sum::<u64>() / 100
}
