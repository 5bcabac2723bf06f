//! What is believed, on the disk: each file twice, so that one that is damaged lets nothing old in.
//!
//! Owns the paths of root and numbers, and what counts as lost. A copy is written after the file and read only when the
//! file cannot be used; the next check writes anew whichever of the two differs.

use std::{
    fmt::Display,
    path::{Path, PathBuf},
};

use api::releases::{DOCUMENT_BYTES_MAX, Root};
use board::files::{Access, FileError, Files};

use super::trust::{NUMBERS_BYTES_MAX, Seen};

const ROOT: &str = "root.json";
const NUMBERS: &str = "numbers";

/// The folder of what is believed.
pub(super) struct Belief<'a> {
    pub(super) files: &'a dyn Files,
    pub(super) folder: &'a Path,
}

/// What was read of a file and its copy.
enum Kept<T> {
    /// Neither is there.
    Never,
    /// Something is there, and none of it can be used.
    Lost,
    /// The first that can be used, and its bytes.
    Usable(T, Vec<u8>),
}

impl Belief<'_> {
    /// The root document in force; `None` if there is none, or none that can be used.
    pub(super) fn root(&self) -> Option<Root> {
        let Kept::Usable(root, document) = self.either(ROOT, DOCUMENT_BYTES_MAX, Root::pinned) else { return None };
        if let Err(error) = self.keep_root(&document) {
            log::warn!("{error}: {}", error.source);
        }
        Some(root)
    }

    /// Stores the root document in force.
    pub(super) fn keep_root(&self, document: &[u8]) -> Result<(), FileError> {
        self.keep(ROOT, document)
    }

    /// What has been seen, both files being mended at once: whoever serves old news may never let a check get further.
    pub(super) fn mended(&self) -> Seen {
        let seen = self.seen();
        if !seen.is_lost()
            && seen != Seen::default()
            && let Err(error) = self.remember(&seen)
        {
            log::warn!("{error}: {}", error.source);
        }
        seen
    }

    /// What has been seen. [`Seen::forgotten`] when it was lost.
    pub(super) fn seen(&self) -> Seen {
        match self.either(NUMBERS, NUMBERS_BYTES_MAX, Seen::decode) {
            Kept::Usable(seen, _) => seen,
            // Numbers are written before a root: without them it is a device that has never found one.
            Kept::Never if !self.has_root() => Seen::default(),
            Kept::Never | Kept::Lost => {
                log::error!(
                    "{} is lost: old channel documents cannot be told from new ones",
                    self.path(NUMBERS).display()
                );
                Seen::lost()
            }
        }
    }

    /// Stores what has been seen, unless it is there already.
    pub(super) fn remember(&self, seen: &Seen) -> Result<(), FileError> {
        self.keep(NUMBERS, &seen.encode())
    }

    fn has_root(&self) -> bool {
        !matches!(self.either(ROOT, DOCUMENT_BYTES_MAX, Root::pinned), Kept::Never)
    }

    fn either<T, E: Display>(&self, name: &str, limit: usize, read: impl Fn(&[u8]) -> Result<T, E>) -> Kept<T> {
        let mut kept = Kept::Never;
        for path in [self.path(name), self.copy(name)] {
            let reason = match self.files.read(&path, limit) {
                Ok(None) => continue,
                Ok(Some(bytes)) => match read(&bytes) {
                    Ok(content) => return Kept::Usable(content, bytes),
                    Err(error) => format!("{} cannot be used: {error}", path.display()),
                },
                Err(error) => format!("{error}: {}", error.source),
            };
            log::warn!("{reason}");
            kept = Kept::Lost;
        }
        kept
    }

    fn keep(&self, name: &str, content: &[u8]) -> Result<(), FileError> {
        self.renew(&self.path(name), content)?;
        // What was refused is in the file already; the next check tries the copy again.
        if let Err(error) = self.renew(&self.copy(name), content) {
            log::warn!("{error}: {}", error.source);
        }
        Ok(())
    }

    fn renew(&self, path: &Path, content: &[u8]) -> Result<(), FileError> {
        match self.files.read(path, content.len()) {
            Ok(Some(there)) if there == content => Ok(()),
            _ => self.files.write(path, content, Access::Private),
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    fn copy(&self, name: &str) -> PathBuf {
        self.folder.join(format!("{name}.copy"))
    }
}
