//! Files: small records that survive a power cut, spools that grow, and large downloads.
//!
//! Small operations are synchronous on purpose: "stored before acted" is then a statement order, not a race. They write
//! at most [`RECORD_BYTES_MAX`]. What takes long (digests, copies, unpacking) or happens all the time (appending) is
//! asynchronous and waits elsewhere.

use std::{
    io,
    path::{Path, PathBuf},
};

use async_trait::async_trait;

/// Largest document a synchronous call reads or writes: one configuration with its bookkeeping.
pub const RECORD_BYTES_MAX: usize = 2 << 20;

/// Largest dictionary of an xz stream that is unpacked: it has to lie in memory meanwhile. What `xz -6` uses.
pub const DICTIONARY_BYTES_MAX: usize = 8 << 20;

/// Who may read a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Only the owner (0600; folders 0700): anything that may hold a secret.
    Private,
    /// Everybody may read (0644; folders 0755).
    Readable,
    /// Everybody may run it (0755).
    Executable,
}

/// One file in a folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Name inside the folder.
    pub name: String,
    /// Length in bytes.
    pub len: u64,
    /// Last change, as wall time.
    pub modified: crate::Wall,
}

/// What a file system said no to.
#[derive(Debug, thiserror::Error)]
#[error("could not {attempted} {}", path.display())]
pub struct FileError {
    /// What was tried: "read", "write", "rename", …
    pub attempted: &'static str,
    /// On which file.
    pub path: PathBuf,
    /// What the system answered.
    #[source]
    pub source: io::Error,
}

impl FileError {
    /// True when the disk is full or a quota is used up: waiting may help, trying again at once will not.
    #[must_use]
    pub fn is_full(&self) -> bool {
        matches!(self.source.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
    }
}

/// What a whole file is, read once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Digest {
    /// SHA-256 of the content.
    pub sha256: [u8; 32],
    /// Length in bytes.
    pub len: u64,
}

/// Why an xz stream did not become a file.
#[derive(Debug, thiserror::Error)]
pub enum UnpackError {
    /// Not an xz stream, damaged, cut, or followed by something else.
    #[error("{} is not one whole xz stream: {reason}", path.display())]
    Malformed {
        /// The packed file.
        path: PathBuf,
        /// In the words of the library.
        reason: String,
    },
    /// It would need more memory than [`DICTIONARY_BYTES_MAX`].
    #[error("{} needs a dictionary of more than {} MiB to be unpacked", path.display(), DICTIONARY_BYTES_MAX >> 20)]
    Dictionary {
        /// The packed file.
        path: PathBuf,
    },
    /// There is more inside than the caller allowed.
    #[error("{} unpacks to more than {limit} bytes", path.display())]
    TooLong {
        /// The packed file.
        path: PathBuf,
        /// The limit in bytes.
        limit: u64,
    },
    /// The disk said no.
    #[error(transparent)]
    File(#[from] FileError),
}

/// Space on the file system that holds a folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Space {
    /// Bytes an ordinary user could still write.
    pub free: u64,
    /// Size of the file system.
    pub total: u64,
}

/// The files of a device.
#[async_trait(?Send)]
pub trait Files {
    /// The content, or `None` when there is no such file. More than `limit` bytes is an error
    /// ([`io::ErrorKind::FileTooLarge`]), never a cut.
    fn read(&self, path: &Path, limit: usize) -> Result<Option<Vec<u8>>, FileError>;

    /// Replaces the whole file: afterwards, whatever happens to the power, it holds the old content or the new.
    /// Missing folders are made, private ones.
    fn write(&self, path: &Path, content: &[u8], access: Access) -> Result<(), FileError>;

    /// Adds to the end of a private file, making it if need be, and gives its new length. On stable storage by then; a
    /// power cut may leave a part of `content`, which the reader must be able to tell. Only its caller waits for the
    /// disk: it is called every second, and a machine server that dies meanwhile is started meanwhile. One at a time for
    /// a file; once it was polled the write happens, also when nobody waits for its end any more.
    async fn append(&self, path: &Path, content: &[u8]) -> Result<u64, FileError>;

    /// Up to `len` bytes from `offset`; fewer only at the end of the file.
    fn read_at(&self, path: &Path, offset: u64, len: usize) -> Result<Vec<u8>, FileError>;

    /// Cuts a file to `len` bytes, on stable storage when it returns.
    fn truncate(&self, path: &Path, len: u64) -> Result<(), FileError>;

    /// The plain files in a folder, by name; empty when there is no such folder.
    fn list(&self, folder: &Path) -> Result<Vec<Entry>, FileError>;

    /// Removes a file, on stable storage when it returns; one that is not there counts as removed.
    fn remove(&self, path: &Path) -> Result<(), FileError>;

    /// Renames within one file system, replacing the destination, on stable storage when it returns.
    fn rename(&self, from: &Path, to: &Path) -> Result<(), FileError>;

    /// Makes a folder and its parents; one that is there is left as it is.
    fn make_folder(&self, folder: &Path, access: Access) -> Result<(), FileError>;

    /// Sets who may read or run a file, and puts content and mode on stable storage.
    fn set_access(&self, path: &Path, access: Access) -> Result<(), FileError>;

    /// Space where `folder` is or would be.
    fn space(&self, folder: &Path) -> Result<Space, FileError>;

    /// Digest and length of a file of any size, in bounded memory.
    async fn digest(&self, path: &Path) -> Result<Digest, FileError>;

    /// Copies a file of any size (of at most `limit` bytes) into a private one, in bounded memory.
    async fn copy(&self, from: &Path, to: &Path, limit: u64) -> Result<u64, FileError>;

    /// Unpacks a file that is one xz stream into a new private one of at most `limit` bytes, and says what that is.
    /// Holds the stream's dictionary in memory meanwhile, of at most [`DICTIONARY_BYTES_MAX`], and nothing afterwards.
    /// On failure there is no `to`. The content is on stable storage only after [`Files::set_access`].
    async fn unpack(&self, from: &Path, to: &Path, limit: u64) -> Result<Digest, UnpackError>;
}
