//! A disk in memory that refuses what a disk refuses, and forgets what a disk forgets.
//!
//! Every change of a file is one numbered *write*. A test can let the n-th one fail, or interrupt the agent in the
//! middle of it. At a power cut, content that nobody put on stable storage is cut off at a random place, reads as zeros
//! from there, as on a real file system whose length was journalled before its data, or has holes, because blocks
//! arrive in any order; a file that was only streamed to may be gone altogether.

use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    io::{self, Read as _},
    path::{Path, PathBuf},
    rc::Rc,
    time::Duration,
};

use async_trait::async_trait;
use board::files::{Access, Digest, Entry, FileError, Files, RECORD_BYTES_MAX, Space, UnpackError};

use crate::{
    clock::SimClock,
    power::{Alive, Interrupted, Interruption, Reached},
    random::Random,
};

/// Size of the disk unless a test makes it smaller.
pub const CAPACITY: u64 = 1 << 30;
/// What an SD card of a small board reads and writes in a second.
const BYTES_PER_SECOND: u64 = 40 << 20;
/// What a file system writes at once.
const BLOCK_BYTES: usize = 4096;
/// Writes remembered for the report of a failing test.
const HISTORY_MAX: usize = 4096;

#[derive(Clone)]
struct File {
    bytes: Vec<u8>,
    access: Access,
    modified: board::Wall,
    /// Bytes from the start that are on stable storage, with the access that is there; `None` when not even the name
    /// of the file is.
    stable: Option<(usize, Access)>,
}

/// The world around the n-th write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Plan {
    Fail(io::ErrorKind),
    Interrupt(Interruption, Reached),
}

struct Inner {
    clock: SimClock,
    random: Random,
    files: RefCell<BTreeMap<PathBuf, File>>,
    folders: RefCell<BTreeMap<PathBuf, Access>>,
    capacity: Cell<u64>,
    writes: Cell<u64>,
    history: RefCell<Vec<String>>,
    plans: RefCell<BTreeMap<u64, Plan>>,
    interrupted: Cell<Option<Interruption>>,
    /// Paths that contain the text refuse to be written, or to be read.
    read_only: RefCell<Vec<(String, io::ErrorKind)>>,
    unreadable: RefCell<Vec<(String, io::ErrorKind)>>,
}

/// The disk, as the test sees it. It survives reboots.
#[derive(Clone)]
pub struct SimFiles {
    inner: Rc<Inner>,
}

impl SimFiles {
    pub(crate) fn new(clock: &SimClock, random: Random) -> Self {
        let folders = BTreeMap::from([(PathBuf::from("/"), Access::Readable)]);
        SimFiles {
            inner: Rc::new(Inner {
                clock: clock.clone(),
                random,
                files: RefCell::default(),
                folders: RefCell::new(folders),
                capacity: Cell::new(CAPACITY),
                writes: Cell::new(0),
                history: RefCell::default(),
                plans: RefCell::default(),
                interrupted: Cell::new(None),
                read_only: RefCell::default(),
                unreadable: RefCell::default(),
            }),
        }
    }

    /// Somebody removes a file.
    pub fn take_away(&self, path: impl AsRef<Path>) {
        self.inner.files.borrow_mut().remove(path.as_ref());
    }

    /// Puts a file there as if it had always been: on stable storage, and not counted as a write.
    ///
    /// # Panics
    /// When one of its folders is a file.
    pub fn put(&self, path: impl AsRef<Path>, content: impl Into<Vec<u8>>, access: Access) {
        let (path, bytes) = (path.as_ref(), content.into());
        self.make_parents(path, "put").expect("the test puts files where files can be");
        let stable = Some((bytes.len(), access));
        let file = File { bytes, access, modified: self.inner.clock.wall_clock(), stable };
        self.inner.files.borrow_mut().insert(path.to_owned(), file);
    }

    /// What a file holds now.
    #[must_use]
    pub fn content(&self, path: impl AsRef<Path>) -> Option<Vec<u8>> {
        self.inner.files.borrow().get(path.as_ref()).map(|file| file.bytes.clone())
    }

    /// Who may read or run it.
    #[must_use]
    pub fn access(&self, path: impl AsRef<Path>) -> Option<Access> {
        let path = path.as_ref();
        let of_file = self.inner.files.borrow().get(path).map(|file| file.access);
        of_file.or_else(|| self.inner.folders.borrow().get(path).copied())
    }

    /// Every file there is.
    #[must_use]
    pub fn paths(&self) -> Vec<PathBuf> {
        self.inner.files.borrow().keys().cloned().collect()
    }

    /// Every file that may be run, with its length and its last change.
    #[must_use]
    pub fn executables(&self) -> Vec<(PathBuf, u64, board::Wall)> {
        let files = self.inner.files.borrow();
        let executable = files.iter().filter(|(_, file)| file.access == Access::Executable);
        executable.map(|(path, file)| (path.clone(), file.bytes.len() as u64, file.modified)).collect()
    }

    /// Removes a file behind the agent's back.
    pub fn lose(&self, path: impl AsRef<Path>) {
        self.inner.files.borrow_mut().remove(path.as_ref());
    }

    /// Changes one bit behind the agent's back.
    ///
    /// # Panics
    /// When there is no such byte.
    pub fn corrupt(&self, path: impl AsRef<Path>, at: usize) {
        let mut files = self.inner.files.borrow_mut();
        let file = files.get_mut(path.as_ref()).expect("only what is there can rot");
        *file.bytes.get_mut(at).expect("only what is there can rot") ^= 0x10;
    }

    /// Writes carried out or attempted so far.
    #[must_use]
    pub fn writes(&self) -> u64 {
        self.inner.writes.get()
    }

    /// "write /root/agent/record", one per write since the beginning (the first 4,096).
    #[must_use]
    pub fn history(&self) -> Vec<String> {
        self.inner.history.borrow().clone()
    }

    /// The `nth` write from now (the next one is 1) fails like this.
    pub fn fail_write(&self, nth: u64, kind: io::ErrorKind) {
        self.inner.plans.borrow_mut().insert(self.writes() + nth, Plan::Fail(kind));
    }

    /// The agent is interrupted in the middle of the `nth` write from now (the next one is 1).
    pub fn interrupt_at_write(&self, nth: u64, interruption: Interruption, reached: Reached) {
        self.inner.plans.borrow_mut().insert(self.writes() + nth, Plan::Interrupt(interruption, reached));
    }

    /// From now on, whatever has `part` in its path refuses to change.
    pub fn refuse_writes(&self, part: &str, kind: io::ErrorKind) {
        self.inner.read_only.borrow_mut().push((part.to_owned(), kind));
    }

    /// From now on, whatever has `part` in its path refuses to be read.
    pub fn refuse_reads(&self, part: &str, kind: io::ErrorKind) {
        self.inner.unreadable.borrow_mut().push((part.to_owned(), kind));
    }

    /// Forgets every planned failure and refusal.
    pub fn heal(&self) {
        self.inner.plans.borrow_mut().clear();
        self.inner.read_only.borrow_mut().clear();
        self.inner.unreadable.borrow_mut().clear();
    }

    /// What has interrupted the agent since this was last asked.
    #[must_use]
    pub fn take_interruption(&self) -> Option<Interruption> {
        self.inner.interrupted.take()
    }

    /// Changes the size of the disk, so that it is full now or later. Nothing is lost.
    pub fn set_capacity(&self, bytes: u64) {
        self.inner.capacity.set(bytes);
    }

    /// Leaves this many bytes free.
    pub fn leave_free(&self, bytes: u64) {
        self.set_capacity(self.used() + bytes);
    }

    /// Bytes in files.
    #[must_use]
    pub fn used(&self) -> u64 {
        self.inner.files.borrow().values().map(|file| file.bytes.len() as u64).sum()
    }

    pub(crate) fn free(&self) -> u64 {
        self.inner.capacity.get().saturating_sub(self.used())
    }

    /// What is left when the power goes.
    pub(crate) fn lose_what_is_not_stable(&self) {
        let random = &self.inner.random;
        self.inner.files.borrow_mut().retain(|_, file| {
            let Some((stable, access)) = file.stable else {
                // The folder may or may not have been written by itself in the meantime.
                file.stable = Some((0, file.access));
                let kept = random.chance(50);
                if kept {
                    tear(file, 0, random);
                }
                return kept;
            };
            file.access = access;
            tear(file, stable, random);
            true
        });
    }

    fn error(attempted: &'static str, path: &Path, kind: io::ErrorKind) -> FileError {
        FileError { attempted, path: path.to_owned(), source: io::Error::from(kind) }
    }

    fn make_parents(&self, path: &Path, attempted: &'static str) -> Result<(), FileError> {
        path.parent().map_or(Ok(()), |folder| self.make_folders(folder, Access::Private, attempted).map(drop))
    }

    /// Says whether it had to make anything.
    fn make_folders(&self, folder: &Path, access: Access, attempted: &'static str) -> Result<bool, FileError> {
        assert!(folder.is_absolute(), "{} depends on the working folder", folder.display());
        let ancestors: Vec<_> = folder.ancestors().map(Path::to_owned).collect();
        if ancestors.iter().any(|path| self.inner.files.borrow().contains_key(path)) {
            return Err(Self::error(attempted, folder, io::ErrorKind::NotADirectory));
        }
        let mut folders = self.inner.folders.borrow_mut();
        let missing: Vec<_> = ancestors.into_iter().filter(|path| !folders.contains_key(path)).collect();
        let any = !missing.is_empty();
        folders.extend(missing.into_iter().map(|path| (path, access)));
        Ok(any)
    }

    /// The content of a program that is about to be run.
    pub(crate) fn program(&self, path: &Path) -> io::Result<Vec<u8>> {
        if self.inner.folders.borrow().contains_key(path) {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        let files = self.inner.files.borrow();
        let file = files.get(path).ok_or(io::ErrorKind::NotFound)?;
        if file.access != Access::Executable {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        Ok(file.bytes.clone())
    }

    /// Makes way for a stream: what the file holds from `keep` on is dropped.
    pub(crate) fn stream_begin(&self, port: &Alive, path: &Path, keep: usize) -> Result<(), FileError> {
        let length = self.inner.files.borrow().get(path).map(|file| file.bytes.len());
        if length == Some(keep) {
            return Ok(());
        }
        self.change(port, "write", path, |disk, _| {
            disk.make_parents(path, "write")?;
            let modified = disk.inner.clock.wall_clock();
            let mut files = disk.inner.files.borrow_mut();
            let file = files.entry(path.to_owned()).or_insert_with(|| File {
                bytes: Vec::new(),
                access: Access::Private,
                modified,
                stable: None,
            });
            file.bytes.truncate(keep);
            file.stable = file.stable.map(|(stable, access)| (stable.min(keep), access));
            Ok(())
        })
    }

    /// Adds to a streamed file; nothing of it is on stable storage.
    pub(crate) fn stream_chunk(&self, port: &Alive, path: &Path, chunk: &[u8]) -> Result<(), FileError> {
        self.change(port, "write", path, |disk, reached| {
            let chunk = part_of(chunk, reached, &disk.inner.random);
            if disk.free() < chunk.len() as u64 {
                return Err(Self::error("write", path, io::ErrorKind::StorageFull));
            }
            let modified = disk.inner.clock.wall_clock();
            let mut files = disk.inner.files.borrow_mut();
            let file = files.get_mut(path).ok_or_else(|| Self::error("write", path, io::ErrorKind::NotFound))?;
            file.bytes.extend(chunk);
            file.modified = modified;
            Ok(())
        })
    }

    /// One write: counted, refused, interrupted or done.
    fn change<T>(
        &self,
        port: &Alive,
        attempted: &'static str,
        path: &Path,
        apply: impl FnOnce(&Self, Reached) -> Result<T, FileError>,
    ) -> Result<T, FileError> {
        assert!(path.is_absolute(), "{} depends on the working folder", path.display());
        if !port.get() {
            return Err(Self::error(attempted, path, io::ErrorKind::NetworkDown));
        }
        let inner = &self.inner;
        let number = inner.writes.get() + 1;
        inner.writes.set(number);
        if inner.history.borrow().len() < HISTORY_MAX {
            inner.history.borrow_mut().push(format!("{attempted} {}", path.display()));
        }
        let refusal = named(&inner.read_only, path);
        match inner.plans.borrow_mut().remove(&number) {
            Some(Plan::Interrupt(interruption, reached)) => {
                if reached != Reached::Nothing {
                    let _ = apply(self, reached);
                }
                port.end();
                inner.interrupted.set(Some(interruption));
                // Not a panic: nothing is wrong, and no message is due.
                std::panic::resume_unwind(Box::new(Interrupted(interruption)));
            }
            Some(Plan::Fail(kind)) => Err(Self::error(attempted, path, kind)),
            None => match refusal {
                Some(kind) => Err(Self::error(attempted, path, kind)),
                None => apply(self, Reached::Everything),
            },
        }
    }

    fn look<T>(
        &self,
        port: &Alive,
        path: &Path,
        look: impl FnOnce(&Self) -> Result<T, FileError>,
    ) -> Result<T, FileError> {
        assert!(path.is_absolute(), "{} depends on the working folder", path.display());
        if !port.get() {
            return Err(Self::error("read", path, io::ErrorKind::NetworkDown));
        }
        match named(&self.inner.unreadable, path) {
            Some(kind) => Err(Self::error("read", path, kind)),
            None => look(self),
        }
    }

    fn is_folder(&self, path: &Path) -> bool {
        self.inner.folders.borrow().contains_key(path)
    }
}

fn named(refusals: &RefCell<Vec<(String, io::ErrorKind)>>, path: &Path) -> Option<io::ErrorKind> {
    let path = path.to_string_lossy();
    refusals.borrow().iter().find(|(part, _)| path.contains(part.as_str())).map(|&(_, kind)| kind)
}

/// What of `content` gets through.
fn part_of<'a>(content: &'a [u8], reached: Reached, random: &Random) -> &'a [u8] {
    let kept = match reached {
        Reached::Nothing => 0,
        Reached::Part => usize::try_from(random.below(content.len() as u64)).unwrap_or(0),
        Reached::Everything => content.len(),
    };
    content.get(..kept).unwrap_or(content)
}

/// What is left of a file whose first `stable` bytes are on stable storage.
fn tear(file: &mut File, stable: usize, random: &Random) {
    let unsure = file.bytes.len().saturating_sub(stable);
    let kept = stable + usize::try_from(random.below(unsure as u64 + 1)).unwrap_or(0);
    match random.below(3) {
        0 => file.bytes.truncate(kept),
        1 => file.bytes.get_mut(kept..).unwrap_or_default().fill(0),
        // Blocks reach the disk in any order: later ones may be there and earlier ones not.
        _ => {
            let unsure = file.bytes.get_mut(stable..).unwrap_or_default();
            unsure.chunks_mut(BLOCK_BYTES).filter(|_| random.chance(50)).for_each(|block| block.fill(0));
        }
    }
    file.stable = Some((file.bytes.len(), file.access));
}

/// The disk as the agent of one boot sees it.
pub(crate) struct FilesPort {
    pub(crate) disk: SimFiles,
    pub(crate) alive: Alive,
}

impl FilesPort {
    async fn takes_as_long_as(&self, bytes: usize) {
        let micros = (bytes as u64).saturating_mul(1_000_000) / BYTES_PER_SECOND;
        let clock = &self.disk.inner.clock;
        clock.until(clock.mono() + Duration::from_micros(micros.max(1))).await;
        self.alive.or_for_ever().await;
    }
}

#[async_trait(?Send)]
impl Files for FilesPort {
    fn read(&self, path: &Path, limit: usize) -> Result<Option<Vec<u8>>, FileError> {
        assert!(limit <= RECORD_BYTES_MAX, "{} would stop the agent for too long", path.display());
        self.disk.look(&self.alive, path, |disk| {
            if disk.is_folder(path) {
                return Err(SimFiles::error("read", path, io::ErrorKind::IsADirectory));
            }
            match disk.inner.files.borrow().get(path) {
                None => Ok(None),
                Some(file) if file.bytes.len() > limit => {
                    Err(SimFiles::error("read", path, io::ErrorKind::FileTooLarge))
                }
                Some(file) => Ok(Some(file.bytes.clone())),
            }
        })
    }

    fn write(&self, path: &Path, content: &[u8], access: Access) -> Result<(), FileError> {
        assert!(content.len() <= RECORD_BYTES_MAX, "{} would stop the agent for too long", path.display());
        self.disk.change(&self.alive, "write", path, |disk, reached| {
            if reached == Reached::Part {
                return Ok(());
            }
            if disk.is_folder(path) {
                return Err(SimFiles::error("write", path, io::ErrorKind::IsADirectory));
            }
            disk.make_parents(path, "write")?;
            // The old content is there until the new one is complete.
            if disk.free() < content.len() as u64 {
                return Err(SimFiles::error("write", path, io::ErrorKind::StorageFull));
            }
            disk.put(path, content, access);
            Ok(())
        })
    }

    async fn append(&self, path: &Path, content: &[u8]) -> Result<u64, FileError> {
        assert!(content.len() <= RECORD_BYTES_MAX, "{} would stop the agent for too long", path.display());
        self.disk.change(&self.alive, "append to", path, |disk, reached| {
            if disk.is_folder(path) {
                return Err(SimFiles::error("append to", path, io::ErrorKind::IsADirectory));
            }
            disk.make_parents(path, "append to")?;
            let content = part_of(content, reached, &disk.inner.random);
            if disk.free() < content.len() as u64 {
                return Err(SimFiles::error("append to", path, io::ErrorKind::StorageFull));
            }
            let modified = disk.inner.clock.wall_clock();
            let mut files = disk.inner.files.borrow_mut();
            let file = files.entry(path.to_owned()).or_insert_with(|| File {
                bytes: Vec::new(),
                access: Access::Private,
                modified,
                stable: None,
            });
            file.bytes.extend(content);
            file.modified = modified;
            file.stable = Some((file.bytes.len(), file.access));
            Ok(file.bytes.len() as u64)
        })
    }

    fn read_at(&self, path: &Path, offset: u64, len: usize) -> Result<Vec<u8>, FileError> {
        assert!(len <= RECORD_BYTES_MAX, "{} would stop the agent for too long", path.display());
        self.disk.look(&self.alive, path, |disk| {
            let files = disk.inner.files.borrow();
            let file = files.get(path).ok_or_else(|| SimFiles::error("read", path, io::ErrorKind::NotFound))?;
            let from = usize::try_from(offset).unwrap_or(usize::MAX).min(file.bytes.len());
            let to = from.saturating_add(len).min(file.bytes.len());
            Ok(file.bytes.get(from..to).unwrap_or_default().to_vec())
        })
    }

    fn truncate(&self, path: &Path, len: u64) -> Result<(), FileError> {
        self.disk.change(&self.alive, "cut", path, |disk, reached| {
            if reached == Reached::Part {
                return Ok(());
            }
            let mut files = disk.inner.files.borrow_mut();
            let file = files.get_mut(path).ok_or_else(|| SimFiles::error("cut", path, io::ErrorKind::NotFound))?;
            let len = usize::try_from(len).unwrap_or(usize::MAX);
            assert!(len <= file.bytes.len(), "{} is cut to more than it holds", path.display());
            file.bytes.truncate(len);
            file.stable = Some((len, file.access));
            Ok(())
        })
    }

    fn list(&self, folder: &Path) -> Result<Vec<Entry>, FileError> {
        self.disk.look(&self.alive, folder, |disk| {
            let files = disk.inner.files.borrow();
            if files.contains_key(folder) {
                return Err(SimFiles::error("list", folder, io::ErrorKind::NotADirectory));
            }
            let inside = files.iter().filter(|(path, _)| path.parent() == Some(folder));
            let entry = |(path, file): (&PathBuf, &File)| {
                let name = path.file_name()?.to_string_lossy().into_owned();
                Some(Entry { name, len: file.bytes.len() as u64, modified: file.modified })
            };
            Ok(inside.filter_map(entry).collect())
        })
    }

    fn remove(&self, path: &Path) -> Result<(), FileError> {
        if !self.disk.is_folder(path) && !self.disk.inner.files.borrow().contains_key(path) {
            return Ok(());
        }
        self.disk.change(&self.alive, "remove", path, |disk, reached| {
            if disk.is_folder(path) {
                return Err(SimFiles::error("remove", path, io::ErrorKind::IsADirectory));
            }
            if reached == Reached::Everything {
                disk.lose(path);
            }
            Ok(())
        })
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<(), FileError> {
        self.disk.change(&self.alive, "rename", from, |disk, reached| {
            if disk.is_folder(to) {
                return Err(SimFiles::error("rename", from, io::ErrorKind::IsADirectory));
            }
            let folder_is_there = to.parent().is_some_and(|folder| disk.is_folder(folder));
            let mut files = disk.inner.files.borrow_mut();
            if !folder_is_there || !files.contains_key(from) {
                return Err(SimFiles::error("rename", from, io::ErrorKind::NotFound));
            }
            if reached == Reached::Everything
                && let Some(mut file) = files.remove(from)
            {
                // The name is on stable storage. Content that nobody put there is still not: renaming first and
                // syncing later loses a file on a real disk, and here.
                file.stable = file.stable.or(Some((0, file.access)));
                files.insert(to.to_owned(), file);
            }
            Ok(())
        })
    }

    fn make_folder(&self, folder: &Path, access: Access) -> Result<(), FileError> {
        if self.disk.is_folder(folder) {
            return Ok(());
        }
        self.disk.change(&self.alive, "make folder", folder, |disk, reached| {
            if reached == Reached::Part {
                return Ok(());
            }
            disk.make_folders(folder, access, "make folder").map(drop)
        })
    }

    fn set_access(&self, path: &Path, access: Access) -> Result<(), FileError> {
        self.disk.change(&self.alive, "set access of", path, |disk, reached| {
            if reached == Reached::Part {
                return Ok(());
            }
            let mut files = disk.inner.files.borrow_mut();
            let missing = || SimFiles::error("set access of", path, io::ErrorKind::NotFound);
            let file = files.get_mut(path).ok_or_else(missing)?;
            file.access = access;
            file.stable = Some((file.bytes.len(), access));
            Ok(())
        })
    }

    fn space(&self, folder: &Path) -> Result<Space, FileError> {
        self.disk.look(&self.alive, folder, |disk| Ok(Space { free: disk.free(), total: disk.inner.capacity.get() }))
    }

    async fn digest(&self, path: &Path) -> Result<Digest, FileError> {
        let length = self.disk.inner.files.borrow().get(path).map_or(0, |file| file.bytes.len());
        self.takes_as_long_as(length).await;
        self.disk.look(&self.alive, path, |disk| {
            let files = disk.inner.files.borrow();
            let file = files.get(path).ok_or_else(|| SimFiles::error("read", path, io::ErrorKind::NotFound))?;
            Ok(Digest { sha256: crate::image::sha256(&file.bytes), len: file.bytes.len() as u64 })
        })
    }

    async fn copy(&self, from: &Path, to: &Path, limit: u64) -> Result<u64, FileError> {
        let missing = || SimFiles::error("copy", from, io::ErrorKind::NotFound);
        let content = self.disk.look(&self.alive, from, |disk| disk.content(from).ok_or_else(missing))?;
        if content.len() as u64 > limit {
            return Err(SimFiles::error("copy", from, io::ErrorKind::FileTooLarge));
        }
        self.takes_as_long_as(content.len()).await;
        let copied = self.disk.stream_begin(&self.alive, to, 0).and_then(|()| {
            let mut chunks = content.chunks(crate::fetch::CHUNK_BYTES);
            chunks.try_for_each(|chunk| self.disk.stream_chunk(&self.alive, to, chunk))
        });
        if let Err(error) = copied {
            // Half a copy is no copy.
            self.disk.lose(to);
            return Err(error);
        }
        Ok(content.len() as u64)
    }

    async fn unpack(&self, from: &Path, to: &Path, limit: u64) -> Result<Digest, UnpackError> {
        let missing = || SimFiles::error("read", from, io::ErrorKind::NotFound);
        let packed = self.disk.look(&self.alive, from, |disk| disk.content(from).ok_or_else(missing))?;
        self.disk.lose(to);
        let mut content = Vec::new();
        let mut stream = lzma_rust2::XzReader::new_mem_limit(&*packed, false, 8296).take(limit.saturating_add(1));
        let read = stream.read_to_end(&mut content);
        read.map_err(|error| match error.kind() {
            io::ErrorKind::OutOfMemory => UnpackError::Dictionary { path: from.to_owned() },
            _ => UnpackError::Malformed { path: from.to_owned(), reason: error.to_string() },
        })?;
        if content.len() as u64 > limit {
            return Err(UnpackError::TooLong { path: from.to_owned(), limit });
        }
        if !stream.into_inner().into_inner().is_empty() {
            return Err(UnpackError::Malformed { path: from.to_owned(), reason: "something follows it".to_owned() });
        }
        self.takes_as_long_as(packed.len() + content.len()).await;
        let written = self.disk.stream_begin(&self.alive, to, 0).and_then(|()| {
            let mut chunks = content.chunks(crate::fetch::CHUNK_BYTES);
            chunks.try_for_each(|chunk| self.disk.stream_chunk(&self.alive, to, chunk))
        });
        if let Err(error) = written {
            self.disk.lose(to);
            return Err(error.into());
        }
        Ok(Digest { sha256: crate::image::sha256(&content), len: content.len() as u64 })
    }
}
