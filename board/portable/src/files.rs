//! Files on the standard library: what is written survives a power cut, or was never there.
//!
//! A record is replaced by writing a neighbour, syncing it, renaming it and syncing the folder. The neighbour's name is
//! fixed, so that one left by a power cut is overwritten and never gathers; [`Files::list`] does not show it.

use std::{
    ffi::OsString,
    fs::{self, DirBuilder, File, OpenOptions, Permissions},
    io::{self, Read, Seek, SeekFrom, Write},
    path::{Path, PathBuf},
    time::UNIX_EPOCH,
};

use async_trait::async_trait;
use board::{
    Wall,
    files::{Access, Digest, Entry, FileError, Files, Space, UnpackError},
};
use ring::digest::{Context, SHA256};

use crate::{
    unpack::unpack,
    work::{self, Abandon},
};

/// Ending of the neighbour that becomes a record.
const NEIGHBOUR: &str = ".new~";
/// What a thread holds of a large file at a time.
const CHUNK_BYTES: usize = 64 * 1024;

/// The files of any operating system.
#[derive(Clone, Copy, Debug, Default)]
pub struct PortableFiles;

#[async_trait(?Send)]
impl Files for PortableFiles {
    fn read(&self, path: &Path, limit: usize) -> Result<Option<Vec<u8>>, FileError> {
        let read = || -> io::Result<Vec<u8>> {
            let mut content = Vec::new();
            let file = open(OpenOptions::new().read(true), path)?;
            file.take((limit as u64).saturating_add(1)).read_to_end(&mut content)?;
            if content.len() > limit { Err(io::ErrorKind::FileTooLarge.into()) } else { Ok(content) }
        };
        match read() {
            Ok(content) => Ok(Some(content)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(failed("read", path)(error)),
        }
    }

    fn write(&self, path: &Path, content: &[u8], access: Access) -> Result<(), FileError> {
        let (neighbour, folder) = (neighbour_of(path), folder_of(path));
        self.make_folder(folder, Access::Private)?;
        let write = || {
            // Removed first: one left behind may have another mode, or be a link to elsewhere.
            absent_is_fine(fs::remove_file(&neighbour))?;
            let mut file = open_new(&neighbour, access)?;
            file.write_all(content)?;
            file.sync_all()?;
            fs::rename(&neighbour, path)?;
            sync_folder(folder)
        };
        write().map_err(|error| {
            let _ = fs::remove_file(&neighbour);
            failed("write", path)(error)
        })
    }

    async fn append(&self, path: &Path, content: &[u8]) -> Result<u64, FileError> {
        let folder = folder_of(path);
        let write = || {
            let (mut file, is_new) = match open(OpenOptions::new().append(true), path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => (open_new(path, Access::Private)?, true),
                opened => (opened?, false),
            };
            let before = file.metadata()?.len();
            if let Err(error) = file.write_all(content) {
                // Half a record on a full disk would stay in everybody's way.
                let _ = file.set_len(before);
                return Err(error);
            }
            Ok((file, before, is_new.then(|| folder.to_owned())))
        };
        self.make_folder(folder, Access::Private)?;
        let (file, before, new_in) = write().map_err(failed("append to", path))?;
        let sync = move |_: &_| {
            file.sync_data().inspect_err(|_| drop(file.set_len(before)))?;
            new_in.map_or(Ok(()), |folder| sync_folder(&folder))
        };
        work::run(sync).await.map_err(failed("append to", path))?;
        Ok(before + content.len() as u64)
    }

    fn read_at(&self, path: &Path, offset: u64, len: usize) -> Result<Vec<u8>, FileError> {
        let read = || {
            let mut file = open(OpenOptions::new().read(true), path)?;
            file.seek(SeekFrom::Start(offset))?;
            let mut content = Vec::new();
            file.take(len as u64).read_to_end(&mut content)?;
            Ok(content)
        };
        read().map_err(failed("read", path))
    }

    fn truncate(&self, path: &Path, len: u64) -> Result<(), FileError> {
        let cut = || {
            let file = open(OpenOptions::new().write(true), path)?;
            file.set_len(len)?;
            file.sync_all()
        };
        cut().map_err(failed("cut", path))
    }

    fn list(&self, folder: &Path) -> Result<Vec<Entry>, FileError> {
        let list = || -> io::Result<Vec<Entry>> {
            let mut entries = Vec::new();
            for entry in fs::read_dir(folder)? {
                let entry = entry?;
                // Gone between the two calls: then it is not in the folder.
                let Ok(metadata) = entry.metadata() else { continue };
                let Ok(name) = entry.file_name().into_string() else { continue };
                if !metadata.is_file() || name.ends_with(NEIGHBOUR) {
                    continue;
                }
                let modified = metadata.modified()?.duration_since(UNIX_EPOCH).unwrap_or_default();
                let modified = Wall::from_millis(i64::try_from(modified.as_millis()).unwrap_or(i64::MAX));
                entries.push(Entry { name, len: metadata.len(), modified });
            }
            entries.sort_by(|a, b| a.name.cmp(&b.name));
            Ok(entries)
        };
        match list() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            listed => listed.map_err(failed("list", folder)),
        }
    }

    fn remove(&self, path: &Path) -> Result<(), FileError> {
        let remove = || match fs::remove_file(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            removed => removed.and_then(|()| sync_folder(folder_of(path))),
        };
        remove().map_err(failed("remove", path))
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<(), FileError> {
        let rename = || {
            fs::rename(from, to)?;
            sync_folder(folder_of(to))?;
            if folder_of(from) == folder_of(to) { Ok(()) } else { sync_folder(folder_of(from)) }
        };
        rename().map_err(failed("rename", from))
    }

    fn make_folder(&self, folder: &Path, access: Access) -> Result<(), FileError> {
        make_folder(folder, access).map_err(failed("make the folder", folder))
    }

    fn set_access(&self, path: &Path, access: Access) -> Result<(), FileError> {
        let set = || {
            fs::set_permissions(path, permissions(path, access)?)?;
            // Windows syncs only what was opened for writing; its read-only files keep their attribute anyway.
            open(OpenOptions::new().read(true), path)?.sync_all()
        };
        set().map_err(failed("set the access of", path))
    }

    fn space(&self, folder: &Path) -> Result<Space, FileError> {
        let there = folder.ancestors().find(|folder| folder.exists()).unwrap_or(Path::new("/"));
        space(there).map_err(failed("ask for the free space of", folder))
    }

    async fn digest(&self, path: &Path) -> Result<Digest, FileError> {
        let path = path.to_owned();
        work::run(move |abandon| digest(&path, abandon).map_err(failed("read", &path))).await
    }

    async fn copy(&self, from: &Path, to: &Path, limit: u64) -> Result<u64, FileError> {
        self.make_folder(folder_of(to), Access::Private)?;
        let (from, to) = (from.to_owned(), to.to_owned());
        work::run(move |abandon| {
            copy(&from, &to, limit, abandon).map_err(|error| {
                let _ = fs::remove_file(&to);
                failed("copy", &from)(error)
            })
        })
        .await
    }

    async fn unpack(&self, from: &Path, to: &Path, limit: u64) -> Result<Digest, UnpackError> {
        self.make_folder(folder_of(to), Access::Private)?;
        let (from, to) = (from.to_owned(), to.to_owned());
        work::run(move |abandon| {
            unpack(&from, &to, limit, abandon).inspect_err(|_| {
                let _ = fs::remove_file(&to);
            })
        })
        .await
    }
}

fn digest(path: &Path, abandon: &Abandon) -> io::Result<Digest> {
    let mut context = Context::new(&SHA256);
    let len = in_chunks(open(OpenOptions::new().read(true), path)?, abandon, |chunk| {
        context.update(chunk);
        Ok(())
    })?;
    let mut sha256 = [0; 32];
    sha256.iter_mut().zip(context.finish().as_ref()).for_each(|(byte, digest)| *byte = *digest);
    Ok(Digest { sha256, len })
}

fn copy(from: &Path, to: &Path, limit: u64, abandon: &Abandon) -> io::Result<u64> {
    let source = open(OpenOptions::new().read(true), from)?;
    absent_is_fine(fs::remove_file(to))?;
    let mut copy = open_new(to, Access::Private)?;
    let mut room = limit;
    let len = in_chunks(source, abandon, |chunk| {
        room = room.checked_sub(chunk.len() as u64).ok_or(io::ErrorKind::FileTooLarge)?;
        copy.write_all(chunk)
    })?;
    copy.sync_all()?;
    sync_folder(folder_of(to))?;
    Ok(len)
}

fn in_chunks(mut file: File, abandon: &Abandon, mut each: impl FnMut(&[u8]) -> io::Result<()>) -> io::Result<u64> {
    let mut buffer = vec![0; CHUNK_BYTES];
    let mut len = 0;
    loop {
        if abandon.is_wanted() {
            return Err(io::Error::other("nobody waits for it any more"));
        }
        match file.read(&mut buffer) {
            Ok(0) => return Ok(len),
            Ok(count) => {
                each(buffer.get(..count).unwrap_or_default())?;
                len += count as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

pub(crate) fn failed(attempted: &'static str, path: &Path) -> impl FnOnce(io::Error) -> FileError {
    let path = path.to_owned();
    move |source| FileError { attempted, path, source }
}

pub(crate) fn absent_is_fine(removed: io::Result<()>) -> io::Result<()> {
    match removed {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

pub(crate) fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}

fn neighbour_of(path: &Path) -> PathBuf {
    let mut name = OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(NEIGHBOUR);
    path.with_file_name(name)
}

/// Each folder that was made is named in a synced folder, or a power cut takes it away with all that is in it.
pub(crate) fn make_folder(folder: &Path, access: Access) -> io::Result<()> {
    if folder.is_dir() {
        return Ok(());
    }
    let parent = folder_of(folder);
    if parent != folder {
        make_folder(parent, access)?;
    }
    match folder_builder(access).create(folder) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && folder.is_dir() => Ok(()),
        made => made.and_then(|()| open_to_others(folder, access)).and_then(|()| sync_folder(parent)),
    }
}

#[cfg(unix)]
fn mode(access: Access) -> u32 {
    match access {
        Access::Private => 0o600,
        Access::Readable => 0o644,
        Access::Executable => 0o755,
    }
}

/// Opens a file that is there. What is none is refused: to open a pipe, or to read from it, would wait for whoever is at
/// its other end.
pub(crate) fn open(options: &mut OpenOptions, path: &Path) -> io::Result<File> {
    let file = without_waiting(options).open(path)?;
    let metadata = file.metadata()?;
    if metadata.is_dir() {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    if metadata.is_file() {
        Ok(file)
    } else {
        Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a plain file"))
    }
}

/// Means nothing for a plain file.
#[cfg(unix)]
fn without_waiting(options: &mut OpenOptions) -> &mut OpenOptions {
    use std::os::unix::fs::OpenOptionsExt as _;
    options.custom_flags(i32::try_from(rustix::fs::OFlags::NONBLOCK.bits()).unwrap_or(0))
}

#[cfg(unix)]
pub(crate) fn open_new(path: &Path, access: Access) -> io::Result<File> {
    use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
    let file = OpenOptions::new().write(true).create_new(true).mode(mode(access)).open(path)?;
    if access != Access::Private {
        // The process's umask may have taken away what others need.
        file.set_permissions(Permissions::from_mode(mode(access)))?;
    }
    Ok(file)
}

#[cfg(unix)]
fn permissions(_: &Path, access: Access) -> io::Result<Permissions> {
    use std::os::unix::fs::PermissionsExt as _;
    Ok(Permissions::from_mode(mode(access)))
}

/// The process's umask may have taken away what others need.
#[cfg(unix)]
fn open_to_others(folder: &Path, access: Access) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    if access == Access::Private { Ok(()) } else { fs::set_permissions(folder, Permissions::from_mode(0o755)) }
}

#[cfg(unix)]
fn folder_builder(access: Access) -> DirBuilder {
    use std::os::unix::fs::DirBuilderExt as _;
    let mut builder = DirBuilder::new();
    builder.mode(if access == Access::Private { 0o700 } else { 0o755 });
    builder
}

#[cfg(unix)]
fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

#[cfg(unix)]
pub(crate) fn space(folder: &Path) -> io::Result<Space> {
    let numbers = rustix::fs::statvfs(folder)?;
    let bytes = |blocks: u64| blocks.saturating_mul(numbers.f_frsize);
    Ok(Space { free: bytes(numbers.f_bavail), total: bytes(numbers.f_blocks) })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    fn mode_of(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn a_record_is_replaced_as_a_whole_and_is_private_with_its_folders() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("state/deep/record");
        let files = PortableFiles;
        assert_eq!(files.read(&path, 10).unwrap(), None);
        files.write(&path, b"one", Access::Private).unwrap();
        files.write(&path, b"two", Access::Private).unwrap();
        assert_eq!(files.read(&path, 3).unwrap().as_deref(), Some(&b"two"[..]));
        assert_eq!(files.read(&path, 2).unwrap_err().source.kind(), io::ErrorKind::FileTooLarge);
        assert_eq!((mode_of(&path), mode_of(path.parent().unwrap())), (0o600, 0o700));
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1, "the neighbour is gone");
    }

    #[test]
    fn a_neighbour_left_by_a_power_cut_is_neither_seen_nor_in_the_way() {
        let root = tempfile::tempdir().unwrap();
        let (path, elsewhere) = (root.path().join("record"), root.path().join("elsewhere"));
        symlink(&elsewhere, neighbour_of(&path)).unwrap();
        PortableFiles.write(&path, b"one", Access::Readable).unwrap();
        assert!(!elsewhere.exists(), "a planted link is not followed");
        fs::write(neighbour_of(&path), "half").unwrap();
        let names: Vec<_> = PortableFiles.list(root.path()).unwrap().into_iter().map(|entry| entry.name).collect();
        assert_eq!(names, ["record"]);
        PortableFiles.write(&path, b"two", Access::Readable).unwrap();
        assert_eq!((fs::read(&path).unwrap(), mode_of(&path)), (b"two".to_vec(), 0o644));
    }

    #[test]
    fn spools_grow_are_read_in_parts_and_cut() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("spool/1");
        assert_eq!(smol::block_on(PortableFiles.append(&path, b"abc")).unwrap(), 3);
        assert_eq!(smol::block_on(PortableFiles.append(&path, b"def")).unwrap(), 6);
        assert_eq!(PortableFiles.read_at(&path, 2, 3).unwrap(), b"cde");
        assert_eq!(PortableFiles.read_at(&path, 4, 30).unwrap(), b"ef");
        assert_eq!(PortableFiles.read_at(&path, 40, 1).unwrap(), b"");
        PortableFiles.truncate(&path, 4).unwrap();
        assert_eq!(smol::block_on(PortableFiles.append(&path, b"!")).unwrap(), 5);
        assert_eq!(PortableFiles.read(&path, 9).unwrap().unwrap(), b"abcd!");
        assert_eq!(mode_of(&path), 0o600);
    }

    #[test]
    fn a_pipe_in_the_place_of_a_file_is_refused_and_nobody_waits_for_it() {
        let root = tempfile::tempdir().unwrap();
        let pipe = root.path().join("record");
        let make = || rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::from(0o600)).unwrap();
        make();
        let elsewhere = root.path().join("elsewhere");
        let files = PortableFiles;
        // With somebody at the other end, and without: opening it for writing differs.
        for held in [false, true] {
            let _held = held.then(|| OpenOptions::new().read(true).write(true).open(&pipe).unwrap());
            let read = [files.read(&pipe, 9).map(drop), files.read_at(&pipe, 0, 9).map(drop)];
            let large = [
                smol::block_on(files.digest(&pipe)).map(drop),
                smol::block_on(files.copy(&pipe, &elsewhere, 9)).map(drop),
            ];
            for refused in read.into_iter().chain(large) {
                assert_eq!(refused.unwrap_err().source.to_string(), "it is not a plain file");
            }
            assert!(smol::block_on(files.append(&pipe, b"x")).is_err());
            assert!(files.truncate(&pipe, 0).is_err());
            assert!(files.set_access(&pipe, Access::Private).is_err());
            assert!(smol::block_on(files.unpack(&pipe, &elsewhere, 9)).is_err());
        }
        assert_eq!(files.list(root.path()).unwrap(), []);
        files.write(&pipe, b"one", Access::Private).unwrap();
        assert_eq!(fs::read(&pipe).unwrap(), b"one", "it is replaced as anything else");
        fs::remove_file(&pipe).unwrap();
        make();
        files.remove(&pipe).unwrap();
        assert!(!pipe.exists());
    }

    #[test]
    fn removing_renaming_and_listing() {
        let root = tempfile::tempdir().unwrap();
        let at = |name: &str| root.path().join(name);
        PortableFiles.write(&at("b"), b"12", Access::Private).unwrap();
        PortableFiles.write(&at("a"), b"1", Access::Private).unwrap();
        PortableFiles.write(&at("c/inside"), b"1", Access::Private).unwrap();
        let listed = PortableFiles.list(root.path()).unwrap();
        assert_eq!(listed.iter().map(|entry| (&*entry.name, entry.len)).collect::<Vec<_>>(), [("a", 1), ("b", 2)]);
        PortableFiles.rename(&at("b"), &at("c/b")).unwrap();
        PortableFiles.remove(&at("a")).unwrap();
        PortableFiles.remove(&at("a")).unwrap();
        assert!(PortableFiles.list(root.path()).unwrap().is_empty());
        assert!(PortableFiles.list(&at("nowhere")).unwrap().is_empty());
        PortableFiles.set_access(&at("c/b"), Access::Executable).unwrap();
        assert_eq!(mode_of(&at("c/b")), 0o755);
        let error = PortableFiles.rename(&at("gone"), &at("c/b")).unwrap_err();
        assert!(error.to_string().starts_with("could not rename /"), "{error}");
    }

    #[test]
    fn large_files_are_digested_and_copied() {
        let root = tempfile::tempdir().unwrap();
        let (from, to) = (root.path().join("from"), root.path().join("new/to"));
        let content = vec![7; 3 * CHUNK_BYTES + 1];
        fs::write(&from, &content).unwrap();
        let expected = ring::digest::digest(&SHA256, &content);
        smol::block_on(async {
            let digest = PortableFiles.digest(&from).await.unwrap();
            assert_eq!((&digest.sha256[..], digest.len), (expected.as_ref(), content.len() as u64));
            let len = content.len() as u64;
            assert_eq!(PortableFiles.copy(&from, &to, len).await.unwrap(), len);
            assert_eq!((fs::read(&to).unwrap() == content, mode_of(&to)), (true, 0o600));
            let error = PortableFiles.copy(&from, &to, len - 1).await.unwrap_err();
            assert_eq!(error.source.kind(), io::ErrorKind::FileTooLarge);
            assert!(!to.exists(), "half a copy is no copy");
            assert!(PortableFiles.copy(Path::new("/dev/zero"), &to, len).await.is_err(), "not a plain file");
            let pipe = root.path().join("pipe");
            rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::RUSR).unwrap();
            assert!(PortableFiles.copy(&pipe, &to, len).await.is_err(), "and nobody will write to it");
        });
    }

    #[test]
    fn space_is_asked_for_folders_that_will_be() {
        let root = tempfile::tempdir().unwrap();
        let space = PortableFiles.space(&root.path().join("not/yet")).unwrap();
        assert!(space.free > 0 && space.free <= space.total);
    }
}
