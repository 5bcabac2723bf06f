//! Two places for versions of one product: the one that is started, and the spare.
//!
//! Says what lies where; changes a value and writes nothing. The spare holds the next version until it is switched to,
//! and the previous one until the next comes.

use std::{
    fmt,
    path::{Path, PathBuf},
};

use super::target::Target;

/// One of the two places.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Slot {
    /// The first.
    A,
    /// The second.
    B,
}

impl Slot {
    /// Both.
    pub const ALL: [Slot; 2] = [Slot::A, Slot::B];

    /// The other one.
    #[must_use]
    pub const fn other(self) -> Slot {
        match self {
            Slot::A => Slot::B,
            Slot::B => Slot::A,
        }
    }

    /// Name of its folder.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Slot::A => "a",
            Slot::B => "b",
        }
    }

    /// The slot of that name.
    #[must_use]
    pub fn named(name: &str) -> Option<Slot> {
        Slot::ALL.into_iter().find(|slot| slot.name() == name)
    }
}

/// What lies in a slot: whole, verified, executable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Installed {
    /// As people see it: a version, or the pin it came from, without what may be secret in it.
    pub version: String,
    /// Digest of the executable.
    pub sha256: [u8; 32],
    /// Its length.
    pub length: u64,
    /// SHA-256 of the pinned address it came from: then it is the same only as long as the address is.
    pub pin: Option<[u8; 32]>,
}

impl Installed {
    /// Whether bringing `target` here would bring this again. A pin is fetched again only when its address changes.
    #[must_use]
    pub fn is(&self, target: &Target) -> bool {
        match target.promise {
            Some(promise) => promise.sha256 == self.sha256,
            None => self.pin == target.pin(),
        }
    }
}

/// What lies where.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Slots {
    /// Which one is started.
    pub active: Option<Slot>,
    /// In [`Slot::A`].
    pub a: Option<Installed>,
    /// In [`Slot::B`].
    pub b: Option<Installed>,
}

impl Slots {
    /// What lies in a slot.
    #[must_use]
    pub const fn content(&self, slot: Slot) -> Option<&Installed> {
        match slot {
            Slot::A => self.a.as_ref(),
            Slot::B => self.b.as_ref(),
        }
    }

    /// Says what lies in a slot.
    pub fn set(&mut self, slot: Slot, content: Option<Installed>) {
        match slot {
            Slot::A => self.a = content,
            Slot::B => self.b = content,
        }
    }

    /// The version that is started.
    #[must_use]
    pub fn active(&self) -> Option<&Installed> {
        self.content(self.active?)
    }

    /// The slot that may be written.
    #[must_use]
    pub fn spare_slot(&self) -> Slot {
        self.active.map_or(Slot::A, Slot::other)
    }

    /// The version that is not started.
    #[must_use]
    pub fn spare(&self) -> Option<&Installed> {
        self.content(self.spare_slot())
    }

    /// From now on the other one is started.
    pub fn switch(&mut self) {
        self.active = Some(self.spare_slot());
    }

    /// Corrects the books by what is there: `lengths` of the executables in slot A and B. What is missing or has another
    /// length cannot be started; the other one is then.
    pub fn reconcile(&mut self, lengths: [Option<u64>; 2]) {
        for (slot, length) in Slot::ALL.into_iter().zip(lengths) {
            if self.content(slot).is_some_and(|content| Some(content.length) != length) {
                self.set(slot, None);
            }
        }
        if self.active().is_none() {
            self.active = Slot::ALL.into_iter().find(|slot| self.content(*slot).is_some());
        }
    }
}

/// Where the files of one product lie, below the agent's root folder.
#[derive(Clone, Debug)]
pub struct Layout {
    root: PathBuf,
    product: &'static str,
}

impl Layout {
    /// The product's name is also the name of its executable.
    #[must_use]
    pub fn new(root: &Path, product: &'static str) -> Self {
        Layout { root: root.to_owned(), product }
    }

    /// The product.
    #[must_use]
    pub const fn product(&self) -> &'static str {
        self.product
    }

    /// Folder of a slot.
    #[must_use]
    pub fn folder(&self, slot: Slot) -> PathBuf {
        self.root.join("versions").join(self.product).join(slot.name())
    }

    /// The executable in a slot.
    #[must_use]
    pub fn executable(&self, slot: Slot) -> PathBuf {
        let ending = if cfg!(windows) { ".exe" } else { "" };
        self.folder(slot).join(format!("{}{ending}", self.product))
    }

    /// What is stored at every transition.
    #[must_use]
    pub fn record(&self) -> PathBuf {
        self.state(".record")
    }

    /// A record that could not be read, kept for whoever wants to know why.
    #[must_use]
    pub fn record_aside(&self) -> PathBuf {
        self.state(".record.unreadable")
    }

    /// Which slot is started: for programs that cannot read records.
    #[must_use]
    pub fn pointer(&self) -> PathBuf {
        self.state(".pointer")
    }

    /// How often a start of the product did not live: written by the launcher, for the agent only.
    #[must_use]
    pub fn starts(&self) -> PathBuf {
        self.state(".starts")
    }

    /// The bytes that have arrived of the next version.
    #[must_use]
    pub fn partial(&self) -> PathBuf {
        self.root.join("download").join(format!("{}.partial", self.product))
    }

    /// What is being unpacked from them.
    #[must_use]
    pub fn unpacked(&self) -> PathBuf {
        self.root.join("download").join(format!("{}.unpacked", self.product))
    }

    /// What the server said these bytes are a part of.
    #[must_use]
    pub fn validator(&self) -> PathBuf {
        self.root.join("download").join(format!("{}.validator", self.product))
    }

    /// Folder of what is believed.
    #[must_use]
    pub fn trust(&self) -> PathBuf {
        self.root.join("trust")
    }

    fn state(&self, ending: &str) -> PathBuf {
        self.root.join("state").join(format!("{}{ending}", self.product))
    }
}

/// First words of a pointer file.
const POINTER: &str = "slot-pointer 1 ";
/// Last word of one that points at a version which has to prove itself.
const TRIAL: &str = " trial";

/// What a pointer file says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pointer {
    /// The slot that is started.
    pub slot: Slot,
    /// Whether its version has yet to prove itself: whoever starts it goes back to the other one when it does not live.
    pub trial: bool,
}

impl Pointer {
    /// Longest pointer file, in bytes.
    pub const BYTES_MAX: usize = POINTER.len() + 1 + TRIAL.len() + 1;

    /// At a version that has proved itself.
    #[must_use]
    pub const fn kept(slot: Slot) -> Pointer {
        Pointer { slot, trial: false }
    }

    /// At a version that has to prove itself.
    #[must_use]
    pub const fn trial(slot: Slot) -> Pointer {
        Pointer { slot, trial: true }
    }

    /// Content of the file.
    #[must_use]
    pub fn text(self) -> String {
        format!("{POINTER}{self}\n")
    }

    /// Reads the content of the file; `None` for anything that is no pointer file.
    #[must_use]
    pub fn read(content: &[u8]) -> Option<Pointer> {
        Pointer::named(std::str::from_utf8(content).ok()?.strip_prefix(POINTER)?.strip_suffix('\n')?)
    }

    /// The pointer of that name, as [`fmt::Display`] writes it: "a", "b trial".
    #[must_use]
    pub fn named(name: &str) -> Option<Pointer> {
        let (name, trial) = name.strip_suffix(TRIAL).map_or((name, false), |name| (name, true));
        Some(Pointer { slot: Slot::named(name)?, trial })
    }
}

impl fmt::Display for Pointer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.slot.name())?;
        f.write_str(if self.trial { TRIAL } else { "" })
    }
}
