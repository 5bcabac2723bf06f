//! The launcher: chooses which version of the agent starts, so that no version can lock itself in.
//!
//! Owns the pointer's fallback, the count of starts that did not live, and the back-off between them. After `exec` it
//! is the agent; it never sees how that ends, only that it is started again. It refuses to know anything of releases,
//! networks and the machine server, and it is never updated by the agent that it protects.
//!
//! ```text
//!   look ── decide (ladder, pure) ── wait ── count (pointer, starts) ── exec
//!     ▲                                                                  │ cannot be executed
//!     └──────────────────────────────────────────────────────────────────┘
//! ```
//!
//! [`Disk`] is what it needs of files, so that the simulated world runs the very same code on its own disk.

#[cfg(unix)]
pub mod answer;
pub mod disk;
pub mod ladder;
pub mod starts;
#[cfg(test)]
mod tests;

use std::{
    ffi::OsStr,
    io,
    ops::RangeInclusive,
    path::{Path, PathBuf},
    time::Duration,
};

use actors::update::slots::{Layout, Pointer, Slot};
use api::brand;

pub use ladder::Choice;
pub use starts::Mark;

use ladder::Seen;
use starts::{Rung, STARTS_BYTES, Starts};

/// A start that lasts this long counts as good.
pub const LIVED: Duration = Duration::from_secs(60);
/// How long a version may take from its first instruction to being ready; the agent then takes the limit away. What hangs
/// before would otherwise neither be ended nor counted by anybody: no watchdog is armed yet.
pub const START_LIMIT: Duration = Duration::from_secs(120);
/// Bounds of the same where the operator sets it, for a board that is slower than any we have seen.
const START_LIMITS: RangeInclusive<u64> = 1..=3600;
/// The option that makes an agent set its stored state aside. Always the first, so that a hand-over can take it away.
pub const SAFE: &str = "--safe";

/// The files that the launcher needs.
pub trait Disk {
    /// The content, or nothing if there is no such file. More than `limit` bytes is an error, never a cut.
    fn read(&self, path: &Path, limit: usize) -> io::Result<Option<Vec<u8>>>;

    /// Replaces the whole file, on stable storage when it returns.
    fn write(&self, path: &Path, content: &[u8]) -> io::Result<()>;

    /// Whether the file looks like something that can be executed; if not, why.
    fn is_program(&self, path: &Path) -> Result<(), String>;
}

/// One boot of the machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Boot {
    /// Its id; empty when the system has none.
    pub id: String,
    /// Seconds since it began.
    pub uptime_seconds: u64,
}

impl Boot {
    /// Whether this moment lies in an earlier boot than `now`. Without ids, time since boot tells it if it went back.
    #[must_use]
    pub fn is_before(&self, now: &Boot) -> bool {
        if self.id.is_empty() || now.id.is_empty() {
            self.uptime_seconds > now.uptime_seconds
        } else {
            self.id != now.id
        }
    }
}

/// The agent's files below a root folder.
#[must_use]
pub fn layout(root: &Path) -> Layout {
    Layout::new(root, brand::AGENT)
}

/// The variable in which an operator sets another [`START_LIMIT`], in seconds.
#[must_use]
pub fn start_limit_variable() -> String {
    format!("{}_AGENT_START_SECONDS", brand::ENV_PREFIX)
}

/// The limit that this variable says; what cannot be understood says nothing, and what is out of bounds is moved into them.
#[must_use]
pub fn start_limit(variable: Option<&OsStr>) -> Duration {
    let seconds = variable.and_then(OsStr::to_str).and_then(|seconds| seconds.trim().parse::<u64>().ok());
    let bounded = |seconds: u64| seconds.clamp(*START_LIMITS.start(), *START_LIMITS.end());
    seconds.map_or(START_LIMIT, |seconds| Duration::from_secs(bounded(seconds)))
}

/// One run of the launcher.
pub struct Run<'a> {
    disk: &'a dyn Disk,
    layout: Layout,
    boot: Boot,
    /// Why slot A and B could not be executed in this run.
    failed: [Option<String>; 2],
}

impl<'a> Run<'a> {
    /// Nothing is read yet.
    #[must_use]
    pub fn new(disk: &'a dyn Disk, root: &Path, boot: Boot) -> Self {
        Run { disk, layout: layout(root), boot, failed: [None, None] }
    }

    /// The executable of a slot.
    #[must_use]
    pub fn program(&self, slot: Slot) -> PathBuf {
        self.layout.executable(slot)
    }

    /// What is there.
    #[must_use]
    pub fn look(&self) -> Seen {
        let pointer = match self.disk.read(&self.layout.pointer(), Pointer::BYTES_MAX) {
            Ok(Some(bytes)) => Pointer::read(&bytes).ok_or_else(|| "is damaged".to_owned()),
            Ok(None) => Err("is missing".to_owned()),
            Err(error) => Err(format!("cannot be read, {error}")),
        };
        let [a, b] = self.failed.clone();
        let unusable = [(Slot::A, a), (Slot::B, b)]
            .map(|(slot, failed)| failed.or_else(|| self.disk.is_program(&self.layout.executable(slot)).err()));
        Seen { pointer, starts: stored(self.disk, &self.layout), unusable, boot: self.boot.clone() }
    }

    /// The next start; changes nothing. The other one: why neither slot can be executed.
    pub fn choose(&self) -> Result<Choice, String> {
        let seen = self.look();
        ladder::choose(&seen).ok_or_else(|| {
            let [a, b] = seen.unusable.map(Option::unwrap_or_default);
            format!("no version of {} can be started: slot a: {a}; slot b: {b}", brand::AGENT)
        })
    }

    /// Stores the pointer and the count before the start. What could not be stored is no reason not to start: it comes
    /// back as sentences, and whether the count is among it as `false`.
    #[must_use]
    pub fn count(&self, choice: &Choice) -> (bool, Vec<String>) {
        let mut starts = choice.starts.clone();
        let mut said = Vec::new();
        // The count first: with the pointer alone nobody would know why it was put back, and the version that failed
        // would be switched to once more. With the count alone it is started a few times more, and then put back.
        let file = self.layout.starts();
        let mut counted = self.disk.write(&file, &starts.encode());
        let (pointer, path) = (choice.starts.pointer, self.layout.pointer());
        if pointer != choice.found
            && let Err(error) = self.disk.write(&path, pointer.text().as_bytes())
        {
            said.push(format!("{} cannot be written, {error}: slot {pointer} starts all the same", path.display()));
            // The file says what it said; the numbers belong to that.
            starts.pointer = choice.found;
            counted = self.disk.write(&file, &starts.encode());
        }
        let path = file;
        if let Err(error) = &counted {
            said.push(format!("{} cannot be written, {error}: this start is not counted", path.display()));
        }
        (counted.is_ok(), said)
    }

    /// This slot could not be executed: the next choice is without it.
    pub fn failed(&mut self, slot: Slot, why: String) {
        let [a, b] = &mut self.failed;
        *(match slot {
            Slot::A => a,
            Slot::B => b,
        }) = Some(why);
    }
}

/// Says about the running start that it has lived, or has ended as asked. `slot` is the one that was started.
pub fn mark(disk: &dyn Disk, root: &Path, slot: Slot, mark: Mark) -> io::Result<()> {
    let layout = layout(root);
    let starts = match stored(disk, &layout) {
        Ok(Some(starts)) => starts,
        // Nothing that could be counted on: with the pointer as it is, if it is.
        Ok(None) | Err(_) => {
            let content = disk.read(&layout.pointer(), Pointer::BYTES_MAX).ok().flatten();
            Starts::fresh(content.and_then(|content| Pointer::read(&content)).unwrap_or(Pointer::kept(slot)))
        }
    };
    let marked = starts.clone().marked(mark);
    if marked == starts { Ok(()) } else { disk.write(&layout.starts(), &marked.encode()) }
}

/// Whether an agent was started with `--safe` before this one, and none has lived since.
pub fn is_safe_again(disk: &dyn Disk, root: &Path) -> bool {
    let starts = stored(disk, &layout(root)).ok().flatten();
    starts.is_some_and(|starts| match starts.rung {
        Rung::Usual => false,
        Rung::Safe => starts.rounds > 0 || starts.starts > 1,
        Rung::OtherSafe => true,
    })
}

fn stored(disk: &dyn Disk, layout: &Layout) -> Result<Option<Starts>, String> {
    match disk.read(&layout.starts(), STARTS_BYTES) {
        Ok(Some(bytes)) => Starts::decode(&bytes).map(Some).ok_or_else(|| "is damaged".to_owned()),
        Ok(None) => Ok(None),
        Err(error) => Err(format!("cannot be read, {error}")),
    }
}
