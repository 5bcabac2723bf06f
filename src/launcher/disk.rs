//! The launcher's files: on this machine, and on whatever answers the board's port.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read as _, Write as _},
    path::{Path, PathBuf},
};

use board::files::{Access, Files};

use super::Disk;

/// The disk of this machine.
///
/// What lies in the way does not stop it: a folder in the place of a file is moved aside, and on a full disk a file is
/// overwritten in place if the new content is not longer. That is not safe against a power cut, but its reader knows
/// what was torn, and a count that stands still would let a bad version start for ever.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemDisk;

impl SystemDisk {
    /// Puts a copy of an executable into the place of another one, whole and on stable storage.
    pub fn copy_program(&self, from: &Path, to: &Path) -> io::Result<()> {
        let neighbour = beside(to, ".", ".new~");
        let copy = || {
            remove(&neighbour)?;
            fs::copy(from, &neighbour)?;
            File::open(&neighbour)?.sync_all()?;
            fs::rename(&neighbour, to)?;
            File::open(to.parent().unwrap_or(Path::new("/")))?.sync_all()
        };
        copy().inspect_err(|_| drop(fs::remove_file(&neighbour)))
    }
}

impl Disk for SystemDisk {
    fn read(&self, path: &Path, limit: usize) -> io::Result<Option<Vec<u8>>> {
        match fs::metadata(path) {
            // Looked at first: to open a pipe that nobody writes to would wait for ever.
            Ok(metadata) if !metadata.is_file() => return Err(io::Error::other("it is no file")),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Ok(_) | Err(_) => {}
        }
        let mut content = Vec::new();
        File::open(path)?.take((limit as u64).saturating_add(1)).read_to_end(&mut content)?;
        if content.len() > limit { Err(io::ErrorKind::FileTooLarge.into()) } else { Ok(Some(content)) }
    }

    fn write(&self, path: &Path, content: &[u8]) -> io::Result<()> {
        if fs::symlink_metadata(path).is_ok_and(|metadata| metadata.is_dir()) {
            fs::rename(path, beside(path, "", ".in-the-way"))?;
        }
        match replace(path, content) {
            Err(error) if matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded) => {
                overwrite(path, content).map_err(|_| error)
            }
            replaced => replaced,
        }
    }

    fn is_program(&self, path: &Path) -> Result<(), String> {
        let metadata = fs::metadata(path).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => "it is missing".to_owned(),
            _ => format!("it cannot be read, {error}"),
        })?;
        let why = match () {
            () if !metadata.is_file() => "it is no file",
            () if metadata.len() == 0 => "it is empty",
            () if !may_be_executed(&metadata) => "it has no execute bit",
            () => return Ok(()),
        };
        Err(why.to_owned())
    }
}

fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    let (neighbour, folder) = (beside(path, ".", ".new~"), path.parent().unwrap_or(Path::new("/")));
    make_private(folder)?;
    let write = || {
        // Removed first: one left behind may be a link to elsewhere, or somebody else's.
        remove(&neighbour)?;
        let mut file = OpenOptions::new().write(true).create_new(true).open(&neighbour)?;
        file.write_all(content)?;
        file.sync_all()?;
        fs::rename(&neighbour, path)?;
        File::open(folder)?.sync_all()
    };
    write().inspect_err(|_| drop(fs::remove_file(&neighbour)))
}

fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// What is missing of a folder, closed to others: it is the state's.
fn make_private(folder: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(folder)
}

fn overwrite(path: &Path, content: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).open(path)?;
    if file.metadata()?.len() < content.len() as u64 {
        return Err(io::ErrorKind::StorageFull.into());
    }
    file.write_all(content)?;
    file.set_len(content.len() as u64)?;
    file.sync_all()
}

fn beside(path: &Path, before: &str, after: &str) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!("{before}{name}{after}"))
}

#[cfg(unix)]
fn may_be_executed(metadata: &fs::Metadata) -> bool {
    use std::os::unix::fs::PermissionsExt as _;
    metadata.permissions().mode() & 0o111 != 0
}

#[cfg(not(unix))]
fn may_be_executed(_: &fs::Metadata) -> bool {
    true
}

/// The files of a board, as the simulated world has them.
pub struct OnBoard<'a>(pub &'a dyn Files);

impl Disk for OnBoard<'_> {
    fn read(&self, path: &Path, limit: usize) -> io::Result<Option<Vec<u8>>> {
        self.0.read(path, limit).map_err(|error| error.source)
    }

    fn write(&self, path: &Path, content: &[u8]) -> io::Result<()> {
        self.0.write(path, content, Access::Readable).map_err(|error| error.source)
    }

    fn is_program(&self, path: &Path) -> Result<(), String> {
        match self.0.read_at(path, 0, 1) {
            Ok(first) if first.is_empty() => Err("it is empty".to_owned()),
            Ok(_) => Ok(()),
            Err(error) if error.source.kind() == io::ErrorKind::NotFound => Err("it is missing".to_owned()),
            Err(error) => Err(format!("it cannot be read, {}", error.source)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lies_in_the_way_is_moved_and_nothing_is_followed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state/starts");
        assert_eq!(SystemDisk.read(&path, 9).unwrap(), None);
        SystemDisk.write(&path, b"one").unwrap();
        let mode =
            std::os::unix::fs::PermissionsExt::mode(&fs::metadata(folder.path().join("state")).unwrap().permissions());
        assert_eq!(mode & 0o777, 0o700, "the state is nobody else's");
        SystemDisk.write(&path, b"two").unwrap();
        assert_eq!(SystemDisk.read(&path, 3).unwrap().as_deref(), Some(&b"two"[..]));
        assert_eq!(SystemDisk.read(&path, 2).unwrap_err().kind(), io::ErrorKind::FileTooLarge);
        fs::remove_file(&path).unwrap();
        fs::create_dir_all(path.join("inside")).unwrap();
        assert_eq!(SystemDisk.read(&path, 9).unwrap_err().to_string(), "it is no file");
        SystemDisk.write(&path, b"three").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"three");
        assert!(folder.path().join("state/starts.in-the-way/inside").is_dir());
        let elsewhere = folder.path().join("elsewhere");
        std::os::unix::fs::symlink(&elsewhere, folder.path().join("state/.starts.new~")).unwrap();
        SystemDisk.write(&path, b"four").unwrap();
        assert!(!elsewhere.exists(), "a planted link is not followed");
        fs::write(folder.path().join("file"), "").unwrap();
        assert!(SystemDisk.write(&folder.path().join("file/starts"), b"x").is_err());
    }

    #[test]
    fn in_place_only_what_is_not_longer() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("starts");
        assert!(overwrite(&path, b"1").is_err(), "there is no file yet");
        fs::write(&path, "four").unwrap();
        assert_eq!(overwrite(&path, b"fives").unwrap_err().kind(), io::ErrorKind::StorageFull);
        overwrite(&path, b"two").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"two");
    }

    #[test]
    fn what_can_be_executed() {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let put = |name: &str, content: &str, mode: u32| {
            fs::write(at(name), content).unwrap();
            fs::set_permissions(at(name), fs::Permissions::from_mode(mode)).unwrap();
        };
        put("good", "#!/bin/sh\n", 0o755);
        put("empty", "", 0o755);
        put("mode", "#!/bin/sh\n", 0o644);
        fs::create_dir(at("folder")).unwrap();
        std::os::unix::fs::symlink(at("good"), at("link")).unwrap();
        std::os::unix::fs::symlink(at("circle"), at("circle")).unwrap();
        let table = [
            ("good", Ok(())),
            ("link", Ok(())),
            ("empty", Err("it is empty")),
            ("mode", Err("it has no execute bit")),
            ("folder", Err("it is no file")),
            ("missing", Err("it is missing")),
        ];
        for (name, expected) in table {
            assert_eq!(SystemDisk.is_program(&at(name)), expected.map_err(str::to_owned), "{name}");
        }
        assert!(SystemDisk.is_program(&at("circle")).unwrap_err().contains("cannot be read"));
    }
}
