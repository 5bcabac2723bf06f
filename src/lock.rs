//! One agent per root folder.
//!
//! An advisory lock that the kernel drops with the process, so that no stale file ever keeps an agent from starting.
//! The file names its owner for whoever is refused.

use std::{
    fs::{File, OpenOptions, TryLockError},
    io::{self, Read as _, Seek as _, Write as _},
    path::Path,
    thread,
    time::Duration,
};

/// How often one that is held is tried again, and with what pause.
const TRIES: u32 = 20;
const PAUSE: Duration = Duration::from_millis(100);
/// Bytes of the owner's name that are read back.
const OWNER_BYTES_MAX: u64 = 64;

/// Held as long as the agent lives.
#[derive(Debug)]
pub struct Lock {
    _file: File,
}

/// Why the root folder could not be taken.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Another agent has it.
    #[error("another agent runs in {root}: {owner}. Stop it first, or give this one another --root")]
    Held {
        /// The root folder.
        root: String,
        /// "process 123", or that it did not say.
        owner: String,
    },
    /// The folder or the file cannot be used.
    #[error("cannot use {root} as root folder: {source}")]
    Unusable {
        /// The root folder.
        root: String,
        /// What the system answered.
        source: io::Error,
    },
}

/// Takes the root folder, and waits two seconds for one that holds it for a moment only: children of an agent that was
/// killed do, between their fork and their exec, and so does whoever ends its machine server.
pub fn take_soon(root: &Path) -> Result<Lock, LockError> {
    for _ in 1..TRIES {
        match take(root) {
            Err(LockError::Held { .. }) => thread::sleep(PAUSE),
            taken => return taken,
        }
    }
    take(root)
}

/// Takes the root folder for this process.
pub fn take(root: &Path) -> Result<Lock, LockError> {
    let unusable = |source| LockError::Unusable { root: root.display().to_string(), source };
    std::fs::create_dir_all(root).map_err(unusable)?;
    let path = root.join("agent.lock");
    let opened = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path);
    // A folder in its place, or a disk that is mounted read-only, can be locked as well; it only names nobody.
    let mut file = opened.or_else(|error| File::open(&path).map_err(|_| error)).map_err(unusable)?;
    match file.try_lock() {
        Ok(()) => {
            // On a full disk there is no room for the name. The lock is the kernel's.
            let _ = file.set_len(0).and_then(|()| write!(file, "process {}", std::process::id()));
            Ok(Lock { _file: file })
        }
        Err(TryLockError::WouldBlock) => {
            let mut owner = String::new();
            // From a pipe in its place it would be waited for.
            if file.metadata().is_ok_and(|metadata| metadata.is_file()) {
                let _ = file.rewind();
                let _ = file.take(OWNER_BYTES_MAX).read_to_string(&mut owner);
            }
            if owner.is_empty() {
                owner.push_str("it has not said which process it is");
            }
            Err(LockError::Held { root: root.display().to_string(), owner })
        }
        Err(TryLockError::Error(source)) => Err(unusable(source)),
    }
}
