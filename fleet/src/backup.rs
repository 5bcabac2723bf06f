//! `platform-fleet backup` and `restore`: everything a server needs to be itself again, copied while it runs.
//!
//! A backup is a folder with the shape of a data folder, and a note that says when it was made and that it is whole:
//! it appears under its name at the end. The two databases are held at one moment, a few milliseconds apart (the state
//! first: logs of parts that the state does not know are dropped, a part without its last lines is whole). The state
//! says which artifacts it needs; artifacts never change, and where one was removed after that moment the databases are
//! taken once more. Of a server on PostgreSQL the databases are not in it: that is `pg_dump`'s work (docs/database.md).

use std::{
    collections::BTreeMap,
    fs::{self, DirBuilder, File, OpenOptions},
    io::{self, Read, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
};

use ring::digest;
use serde::{Deserialize, Serialize};

use crate::{
    authn::{KEY_FILE, KeyFileError, digest_of_key},
    clock::{Clock, Millis},
    file_error::{self, FileError},
    hex,
    store::{DbError, LOGS_FILE, STATE_FILE, Still, StillError, artifacts, duties},
};

/// The note. Its presence says that the folder is a whole backup.
const NOTE: &str = "backup.json";
/// Lies in a backup that is being made, and is locked meanwhile.
const LOCK: &str = ".unfinished-backup";
/// What later versions may have to read differently.
const FORMAT: u32 = 1;
/// Moments tried: each time somebody deleted a module's file while its copy was about to be made.
const MOMENTS_MAX: usize = 10;
/// Read and written at a time.
const CHUNK_BYTES: usize = 256 << 10;
/// Folders below `releases`, those first that refer to what is in the later ones.
const RELEASES: [&str; 4] = ["channel", "release", ".", "artifact"];

/// Why there is no backup, or nothing was restored. For the person who asked.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// Nothing is overwritten.
    #[error("{path} is there already: name another one")]
    There {
        /// What was named.
        path: PathBuf,
    },
    /// Another backup is being made under that name, or it is somebody else's folder.
    #[error("{path} is there and is no backup that was broken off: remove it, or name another folder")]
    Busy {
        /// The unfinished folder.
        path: PathBuf,
    },
    /// It ends with `..`, or is the root.
    #[error("{path} has no name that a folder could get")]
    Unnamed {
        /// What was named.
        path: PathBuf,
    },
    /// See [`FileError`].
    #[error(transparent)]
    File(#[from] FileError),
    /// See [`StillError`].
    #[error(transparent)]
    Database(#[from] StillError),
    /// The state could not be read.
    #[error("cannot read the database")]
    Read(#[from] DbError),
    /// It would open nothing in the backup that was to be made.
    #[error(
        "the database was used with another key than {path}: put the right server.key there, or start the server once with \
         --new-key if that is lost"
    )]
    OtherKey {
        /// The key.
        path: PathBuf,
    },
    /// The backup holds a key that opens nothing in it.
    #[error(
        "the key {path} is not the one that the backup's database was used with: restore the rest of it with --without-key"
    )]
    UselessKey {
        /// The key.
        path: PathBuf,
    },
    /// See [`KeyFileError`].
    #[error(transparent)]
    Key(#[from] KeyFileError),
    /// Somebody deletes faster than this copies.
    #[error("the file {digest} of the registry is not in the artifact store")]
    Missing {
        /// Which.
        digest: String,
    },
    /// Not made by `backup`, or not to its end.
    #[error("{path} is no backup of this program, or not a whole one: it has no readable {NOTE}")]
    NoBackup {
        /// What was named.
        path: PathBuf,
    },
    /// Of a later program.
    #[error(
        "the backup has the format {found}, this program knows {FORMAT}: use the version that made it, or a newer one"
    )]
    Newer {
        /// What the note says.
        found: u32,
    },
    /// The bytes are not those that were backed up.
    #[error("{path} is damaged: take another backup")]
    Damaged {
        /// Which file.
        path: PathBuf,
    },
}

/// What a backup says of itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Note {
    /// See [`FORMAT`].
    pub format: u32,
    /// The program that made it.
    pub version: String,
    /// The moment of the databases, in milliseconds since 1970.
    pub taken_at: Millis,
    /// Whether the databases are in it; else they are in a dump of PostgreSQL.
    pub databases: bool,
    /// Whether the server's key is in it.
    pub key: bool,
    /// Files of the registry.
    pub artifacts: u64,
    /// Bytes of all files.
    pub bytes: u64,
    /// Files of the registry whose bytes are not what they were: copied as they are.
    pub damaged: Vec<String>,
    /// SHA-256 of every file, by its path below the folder. Missing where an earlier version made the backup.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub files: Option<BTreeMap<String, String>>,
}

/// What is to be backed up.
#[derive(Debug, Clone)]
pub struct Wanted<'a> {
    /// The server's folder.
    pub data: &'a Path,
    /// The databases are files in it.
    pub databases: bool,
    /// Its artifacts are files in it.
    pub artifacts: bool,
    /// With the key, which opens every secret in the databases.
    pub key: bool,
}

/// Copies a server, which may run, to a new folder.
pub fn take(wanted: &Wanted<'_>, to: &Path) -> Result<Note, BackupError> {
    if to.exists() {
        return Err(BackupError::There { path: to.into() });
    }
    let mut name = to.file_name().ok_or_else(|| BackupError::Unnamed { path: to.into() })?.to_owned();
    name.push(".partial");
    let unfinished = to.with_file_name(name);
    let lock = begun(&unfinished)?;
    let outcome = fill(wanted, &unfinished).and_then(|note| {
        let text = serde_json::to_string_pretty(&note).unwrap_or_default();
        write(&unfinished.join(NOTE), text.as_bytes())?;
        remove(&unfinished.join(LOCK))?;
        sync_all(&unfinished)?;
        fs::rename(&unfinished, to).map_err(failed("name", to))?;
        sync(above(to))?;
        Ok(note)
    });
    if outcome.is_err() {
        // Half a backup is none.
        let _ = remove(&unfinished);
    }
    drop(lock);
    outcome
}

/// An empty folder for a backup that begins, locked against others. What a broken-off one left is cleared away; what
/// nobody has marked as that is somebody else's.
fn begun(unfinished: &Path) -> Result<File, BackupError> {
    let busy = || BackupError::Busy { path: unfinished.into() };
    let lock = unfinished.join(LOCK);
    let there = fs::symlink_metadata(unfinished).is_ok();
    let file = match there {
        true => File::open(&lock).map_err(|_| busy())?,
        false => {
            let mut builder = DirBuilder::new();
            folder(above(unfinished))?;
            match builder.mode(0o700).create(unfinished) {
                Err(raced) if raced.kind() == io::ErrorKind::AlreadyExists => return Err(busy()),
                made => made.map_err(failed("make the folder", unfinished))?,
            }
            write(&lock, b"")?;
            File::open(&lock).map_err(failed("read", &lock))?
        }
    };
    file.try_lock().map_err(|_| busy())?;
    for name in names(unfinished)?.iter().filter(|name| *name != LOCK) {
        remove(&unfinished.join(name))?;
    }
    Ok(file)
}

fn fill(wanted: &Wanted<'_>, to: &Path) -> Result<Note, BackupError> {
    let mut note = Note {
        format: FORMAT,
        version: env!("CARGO_PKG_VERSION").into(),
        taken_at: 0,
        databases: wanted.databases,
        key: wanted.key,
        artifacts: 0,
        bytes: 0,
        damaged: Vec::new(),
        files: None,
    };
    let mut copies = Copies::below(to);
    // First: a server with another key would be of no use.
    if wanted.key {
        copies.copy(&wanted.data.join(KEY_FILE), &to.join(KEY_FILE), 0o600)?;
    }
    let from = wanted.data.join("artifacts/sha256");
    match wanted.databases {
        true => databases(wanted, to, &from, &mut copies, &mut note)?,
        false => {
            note.taken_at = Clock::default().now();
            if wanted.artifacts {
                for digest in names(&from)? {
                    // What is deleted while this copies need not be in it.
                    note.artifacts += u64::from(copies.artifact(&from, &digest, to)?);
                }
            }
        }
    }
    for below in RELEASES {
        copies.tree(&wanted.data.join("releases").join(below), &to.join("releases").join(below), below != ".")?;
    }
    for name in [STATE_FILE, LOGS_FILE] {
        if wanted.databases {
            copies.measure(&to.join(name))?;
        }
    }
    (note.bytes, note.damaged, note.files) = (copies.bytes, copies.damaged, Some(copies.files));
    Ok(note)
}

/// Whether a key is the one that the database was used with.
fn opens(key: &Path, state: &Still) -> Result<bool, BackupError> {
    let digest = digest_of_key(key)?;
    Ok(state.read::<_, DbError>(duties::key_in_file)?.is_none_or(|used| used == digest))
}

/// Both databases at one moment, and the artifacts of that moment.
fn databases(
    wanted: &Wanted<'_>,
    to: &Path,
    from: &Path,
    copies: &mut Copies,
    note: &mut Note,
) -> Result<(), BackupError> {
    let mut missing = String::new();
    for _ in 0..MOMENTS_MAX {
        let state = Still::of(&wanted.data.join(STATE_FILE))?;
        let logs = Still::of(&wanted.data.join(LOGS_FILE))?;
        if wanted.key {
            let key = wanted.data.join(KEY_FILE);
            if !opens(&to.join(KEY_FILE), &state)? {
                return Err(BackupError::OtherKey { path: key });
            }
        }
        note.taken_at = Clock::default().now();
        let digests = match wanted.artifacts {
            true => state.read::<_, DbError>(artifacts::referred)?,
            false => Vec::new(),
        };
        // The pages first, in one go: as long as a moment is held, what is written in it stays in the write-ahead log.
        for (still, name) in [(state, STATE_FILE), (logs, LOGS_FILE)] {
            let path = to.join(name);
            // Of a moment before.
            remove(&path)?;
            still.copy_to(&path)?;
        }
        let gone = digests.iter().map(|digest| Ok((copies.artifact(from, digest, to)?, digest)));
        let gone = gone.filter_map(|one: Result<_, BackupError>| {
            one.map(|(there, digest)| (!there).then_some(digest)).transpose()
        });
        if let Some(digest) = gone.collect::<Result<Vec<_>, _>>()?.into_iter().next() {
            missing.clone_from(digest);
            continue;
        }
        note.artifacts = u64::try_from(digests.len()).unwrap_or_default();
        return Ok(());
    }
    Err(BackupError::Missing { digest: missing })
}

/// Makes a data folder out of a backup, with its key if that is wanted. The server is started with it afterwards as
/// always. What is told is what was restored.
pub fn restore(from: &Path, data: &Path, key: bool) -> Result<Note, BackupError> {
    let mut note = read_note(from)?;
    if note.key && !key {
        leave_key_out(&mut note, from)?;
    }
    let there = data.exists();
    let is_empty = fs::read_dir(data).map_or_else(|_| !there, |mut entries| entries.next().is_none());
    if !is_empty {
        return Err(BackupError::There { path: data.into() });
    }
    folder(data)?;
    let outcome = put_back(&note, from, data).and_then(|()| sync(above(data)));
    if outcome.is_err() {
        // Half a server is none, and would be taken for one. A folder that was there stays: it may be a mount point.
        for name in names(data).unwrap_or_default() {
            let _ = remove(&data.join(name));
        }
        if !there {
            let _ = remove(data);
        }
    }
    outcome.map(|()| note)
}

/// As if it had been left out when the backup was made.
fn leave_key_out(note: &mut Note, from: &Path) -> Result<(), BackupError> {
    let key = from.join(KEY_FILE);
    let bytes = fs::metadata(&key).map_err(failed("read", &key))?.len();
    note.key = false;
    note.bytes = note.bytes.saturating_sub(bytes);
    if let Some(files) = &mut note.files {
        files.remove(KEY_FILE);
    }
    Ok(())
}

fn read_note(from: &Path) -> Result<Note, BackupError> {
    let no_backup = || BackupError::NoBackup { path: from.into() };
    let text = fs::read_to_string(from.join(NOTE)).map_err(|_| no_backup())?;
    let value: serde_json::Value = serde_json::from_str(&text).map_err(|_| no_backup())?;
    match value["format"].as_u64().and_then(|format| u32::try_from(format).ok()) {
        Some(FORMAT) => serde_json::from_value(value).map_err(|_| no_backup()),
        Some(found) => Err(BackupError::Newer { found }),
        None => Err(no_backup()),
    }
}

fn put_back(note: &Note, from: &Path, data: &Path) -> Result<(), BackupError> {
    let mut copies = Copies::below(data);
    if note.key {
        copies.copy(&from.join(KEY_FILE), &data.join(KEY_FILE), 0o600)?;
        copies.compare(note, KEY_FILE, from)?;
    }
    if note.databases {
        for name in [STATE_FILE, LOGS_FILE] {
            copies.copy(&from.join(name), &data.join(name), 0o600)?;
            // Before a damaged one is opened.
            copies.compare(note, name, from)?;
            Still::check(&data.join(name))?;
        }
        if note.key && !opens(&data.join(KEY_FILE), &Still::of(&data.join(STATE_FILE))?)? {
            return Err(BackupError::UselessKey { path: from.join(KEY_FILE) });
        }
    }
    let artifacts = from.join("artifacts/sha256");
    for digest in names(&artifacts)? {
        if !copies.artifact(&artifacts, &digest, data)? {
            return Err(BackupError::Damaged { path: artifacts.join(digest) });
        }
    }
    if let Some(new) = copies.damaged.iter().find(|digest| !note.damaged.contains(digest)) {
        return Err(BackupError::Damaged { path: artifacts.join(new) });
    }
    copies.tree(&from.join("releases"), &data.join("releases"), true)?;
    for name in note.files.iter().flatten().map(|(name, _)| name).chain(copies.files.keys()) {
        copies.compare(note, name, from)?;
    }
    if copies.bytes != note.bytes {
        return Err(BackupError::Damaged { path: from.into() });
    }
    sync_all(data)
}

/// Copies files, each synced, and counts.
struct Copies {
    /// The folder that is filled.
    below: PathBuf,
    bytes: u64,
    damaged: Vec<String>,
    /// Digests by path.
    files: BTreeMap<String, String>,
}

impl Copies {
    fn below(folder: &Path) -> Self {
        Self { below: folder.into(), bytes: 0, damaged: Vec::new(), files: BTreeMap::new() }
    }

    fn note(&mut self, path: &Path, bytes: u64, digest: &str) {
        // By its parts: a dot among them is no other name.
        let name: PathBuf = path.strip_prefix(&self.below).unwrap_or(path).components().collect();
        let name = name.to_string_lossy().into_owned();
        self.bytes += bytes;
        self.files.insert(name, digest.to_owned());
    }

    /// A file that somebody else has written.
    fn measure(&mut self, path: &Path) -> Result<(), BackupError> {
        let mut source = File::open(path).map_err(failed("read", path))?;
        let (bytes, digest) = copied(&mut source, path, &mut io::sink(), path)?;
        self.note(path, bytes, &digest);
        Ok(())
    }

    /// Whether it is what was backed up under that name, or the backup does not say.
    fn compare(&self, note: &Note, name: &str, from: &Path) -> Result<(), BackupError> {
        match &note.files {
            Some(files) if files.get(name) != self.files.get(name) => {
                Err(BackupError::Damaged { path: from.join(name) })
            }
            _ => Ok(()),
        }
    }

    /// One file, and what its bytes are.
    fn copy(&mut self, from: &Path, to: &Path, mode: u32) -> Result<String, BackupError> {
        let mut source = File::open(from).map_err(failed("read", from))?;
        let mut target =
            OpenOptions::new().write(true).create_new(true).mode(mode).open(to).map_err(failed("write", to))?;
        let (bytes, digest) = copied(&mut source, from, &mut target, to)?;
        target.sync_all().map_err(failed("write", to))?;
        self.note(to, bytes, &digest);
        Ok(digest)
    }

    /// A file of the registry; false if it is gone. One that was copied for an earlier moment is good for all.
    fn artifact(&mut self, from: &Path, digest: &str, to: &Path) -> Result<bool, BackupError> {
        let below = to.join("artifacts/sha256");
        let target = below.join(digest);
        if target.exists() {
            return Ok(true);
        }
        folder(&below)?;
        match self.copy(&from.join(digest), &target, 0o600) {
            Ok(found) => {
                if found != digest {
                    self.damaged.push(digest.to_owned());
                }
                Ok(true)
            }
            Err(BackupError::File(why)) if why.is_gone() => Ok(false),
            Err(other) => Err(other),
        }
    }

    /// A folder as it is; nothing if it is not there. What is removed meanwhile need not be in it.
    fn tree(&mut self, from: &Path, to: &Path, deep: bool) -> Result<(), BackupError> {
        for name in names(from)? {
            let (source, target) = (from.join(&name), to.join(&name));
            // Beside its place until it is whole.
            if name.starts_with('.') || target.exists() && !target.is_dir() {
                continue;
            }
            if source.is_dir() {
                if deep {
                    self.tree(&source, &target, true)?;
                }
                continue;
            }
            folder(to)?;
            let mode = fs::metadata(&source).map_or(0o600, |found| found.permissions().mode() & 0o777);
            match self.copy(&source, &target, mode) {
                Err(BackupError::File(why)) if why.is_gone() => {}
                copied => drop(copied?),
            }
        }
        Ok(())
    }
}

/// All bytes of a file to somewhere: how many, and their digest.
fn copied(source: &mut File, from: &Path, target: &mut impl Write, to: &Path) -> Result<(u64, String), BackupError> {
    let mut context = digest::Context::new(&digest::SHA256);
    let (mut chunk, mut bytes) = (vec![0; CHUNK_BYTES], 0);
    loop {
        let count = match source.read(&mut chunk) {
            Ok(0) => break,
            Ok(count) => count,
            Err(again) if again.kind() == io::ErrorKind::Interrupted => continue,
            Err(why) => return Err(failed("read", from)(why)),
        };
        let piece = chunk.get(..count).unwrap_or_default();
        context.update(piece);
        target.write_all(piece).map_err(failed("write", to))?;
        bytes += u64::try_from(count).unwrap_or_default();
    }
    Ok((bytes, hex::encode(context.finish().as_ref())))
}

/// What is in a folder, in order; nothing if there is no such folder.
fn names(path: &Path) -> Result<Vec<String>, BackupError> {
    let entries = match fs::read_dir(path) {
        Err(none) if none.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(failed("read", path))?,
    };
    let named = entries.map(|entry| entry.map(|entry| entry.file_name().to_string_lossy().into_owned()));
    let mut names = named.collect::<io::Result<Vec<_>>>().map_err(failed("read", path))?;
    names.sort();
    Ok(names)
}

fn folder(path: &Path) -> Result<(), BackupError> {
    DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(failed("make the folder", path))
}

fn write(path: &Path, bytes: &[u8]) -> Result<(), BackupError> {
    let mut file =
        OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).map_err(failed("write", path))?;
    file.write_all(bytes).and_then(|()| file.sync_all()).map_err(failed("write", path))
}

/// The names in a folder, and in all those below it, survive a power cut.
fn sync_all(path: &Path) -> Result<(), BackupError> {
    for name in names(path)? {
        let below = path.join(name);
        if below.is_dir() {
            sync_all(&below)?;
        }
    }
    sync(path)
}

/// The folder in which a folder is.
fn above(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// The names in a folder survive a power cut.
fn sync(path: &Path) -> Result<(), BackupError> {
    File::open(path).and_then(|folder| folder.sync_all()).map_err(failed("write", path))
}

fn remove(path: &Path) -> Result<(), BackupError> {
    let removed = if path.is_file() { fs::remove_file(path) } else { fs::remove_dir_all(path) };
    match removed {
        Err(none) if none.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done.map_err(failed("remove", path)),
    }
}

fn failed(what: &'static str, path: &Path) -> impl Fn(io::Error) -> BackupError {
    file_error::failed(what, path)
}
