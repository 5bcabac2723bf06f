//! Looks at a launcher before it takes the place of the only program that starts the agent.

use std::path::{Path, PathBuf};

use actors::update::note;
use api::brand;
use board::files::Files as _;
use board_portable::PortableFiles;

use super::{InstallError, failed};
use crate::launcher::answer::{self, Answer};

/// How much of an executable's head names its machine.
const HEAD_BYTES: usize = 20;

/// Where the one before is kept, beside the installed one.
pub(super) fn previous(installed: &Path) -> PathBuf {
    PathBuf::from(format!("{}{}", installed.display(), crate::args::PREVIOUS))
}

/// Refuses what is no launcher of this vendor for this machine, by its headers alone.
pub(super) fn look(file: &Path) -> Result<(), InstallError> {
    let refused = |why: String| InstallError::NotLauncher { path: file.to_owned(), why };
    let found = note::find(|offset, length| PortableFiles.read_at(file, offset, length))?;
    match found {
        Some(note) if note.program == brand::LAUNCHER => {}
        Some(note) => return Err(refused(format!("it is {}", note.program))),
        None => return Err(refused(format!("it is no executable that says that it is {}", brand::LAUNCHER))),
    }
    let this = std::env::current_exe().map_err(failed("find", Path::new("/proc/self/exe")))?;
    if machine(&PortableFiles.read_at(file, 0, HEAD_BYTES)?) == machine(&PortableFiles.read_at(&this, 0, HEAD_BYTES)?) {
        Ok(())
    } else {
        Err(refused("it is made for another processor than this agent".to_owned()))
    }
}

/// Runs it.
pub(super) fn try_it(file: &Path) -> Result<(), InstallError> {
    let why = match answer::ask(file) {
        Answer::Works => return Ok(()),
        Answer::Broken(why) => why,
        Answer::Silent => "asked for its version, it does not answer".to_owned(),
    };
    Err(InstallError::NotLauncher { path: file.to_owned(), why })
}

/// Width, order of bytes and processor of an ELF file.
fn machine(head: &[u8]) -> Option<(&[u8], &[u8])> {
    Some((head.get(4..6)?, head.get(18..20)?))
}
