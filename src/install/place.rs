//! The verbs of an installation: each leaves the old or the new, whole and on stable storage, and says whether it
//! changed anything.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use actors::update::slots::Installed;
use board::files::{Access, Files as _};
use board_portable::PortableFiles;

use super::{InstallError, failed};

/// Largest executable that is installed.
const PROGRAM_BYTES_MAX: u64 = 256 << 20;
/// Largest unit that is compared.
const UNIT_BYTES_MAX: usize = 64 * 1024;
/// Ending of a copy that is not whole yet.
const NEIGHBOUR: &str = ".installing~";

/// An executable that lies verified beside its place, and goes again unless it is put there.
pub(super) struct Ready {
    neighbour: PathBuf,
    to: PathBuf,
}

impl Ready {
    /// Where it lies.
    pub(super) fn path(&self) -> &Path {
        &self.neighbour
    }

    /// Puts it into its place: only a name changes, for which a full disk has room.
    pub(super) fn put(self) -> Result<(), InstallError> {
        Ok(PortableFiles.rename(&self.neighbour, &self.to)?)
    }
}

impl Drop for Ready {
    fn drop(&mut self) {
        // Put into its place, it is no longer here.
        let _ = fs::remove_file(&self.neighbour);
    }
}

/// Copies an executable beside its place, and reads the copy again to compare it: with `content`, or with the original.
pub(super) async fn program(from: &Path, to: &Path, content: Option<&Installed>) -> Result<Ready, InstallError> {
    let ready = Ready { neighbour: neighbour_of(to), to: to.to_owned() };
    let neighbour = &ready.neighbour;
    PortableFiles.copy(from, neighbour, PROGRAM_BYTES_MAX).await?;
    PortableFiles.set_access(neighbour, Access::Executable)?;
    let copy = PortableFiles.digest(neighbour).await?;
    let expected = match content {
        Some(content) => content.sha256,
        None => PortableFiles.digest(from).await?.sha256,
    };
    if copy.sha256 == expected { Ok(ready) } else { Err(InstallError::Torn(to.to_owned())) }
}

/// Whether both files hold the same.
pub(super) async fn same(one: &Path, other: &Path) -> bool {
    match (PortableFiles.digest(one).await, PortableFiles.digest(other).await) {
        (Ok(one), Ok(other)) => one == other,
        _ => false,
    }
}

/// Writes a text that everybody may read, unless it is there.
pub(super) fn text(to: &Path, text: &str) -> Result<bool, InstallError> {
    if matches!(PortableFiles.read(to, UNIT_BYTES_MAX), Ok(Some(there)) if there == text.as_bytes()) {
        return Ok(false);
    }
    if let Some(folder) = to.parent() {
        PortableFiles.make_folder(folder, Access::Readable)?;
    }
    PortableFiles.write(to, text.as_bytes(), Access::Readable)?;
    Ok(true)
}

/// Makes a link, unless it is there. What is there and no link is somebody else's and stays.
pub(super) fn link(at: &Path, to: &Path) -> io::Result<bool> {
    match fs::read_link(at) {
        Ok(there) if there == to => return Ok(false),
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(_) => return Err(io::Error::new(io::ErrorKind::AlreadyExists, "another file has this name")),
    }
    if let Some(folder) = at.parent() {
        PortableFiles.make_folder(folder, Access::Readable).map_err(|error| error.source)?;
    }
    let neighbour = neighbour_of(at);
    let _ = fs::remove_file(&neighbour);
    std::os::unix::fs::symlink(to, &neighbour)?;
    PortableFiles.rename(&neighbour, at).map_err(|error| error.source)?;
    Ok(true)
}

/// Removes a link if it leads there.
pub(super) fn unlink(at: &Path, to: &Path) -> Result<bool, InstallError> {
    match fs::read_link(at) {
        Ok(there) if there == to => fs::remove_file(at).map(|()| true).map_err(failed("remove", at)),
        _ => Ok(false),
    }
}

fn neighbour_of(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!(".{name}{NEIGHBOUR}"))
}
