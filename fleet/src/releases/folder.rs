//! The folder of releases: `root.N.json`, `channel/NAME.json`, `release/PRODUCT/VERSION.json`, `artifact/SHA256`.
//!
//! The same shape below a server's data folder, on a mirror, and on the machine that signs. Everything in it is public
//! and appears whole: written beside its place, synced, then renamed. Nothing is added that does not verify against
//! the newest root here, so that a mistake is seen by the person who can correct it.

use std::{
    fs::{self, File},
    io::{self, Read, Write},
    path::{Path, PathBuf},
};

use api::releases::{
    Channel, DOCUMENT_BYTES_MAX, DocumentError, Release, Root, artifact_path, channel_path, is_name, release_path,
    root_path,
};
use ring::digest;
use semver::Version;

use crate::{
    file_error::{self, FileError},
    hex,
};

/// Roots looked for in a row; one a month for forty years.
const ROOTS_MAX: u64 = 512;
/// Read at a time: large enough that the disk decides, small enough not to be felt.
const CHUNK_BYTES: usize = 128 << 10;
/// What all addresses begin with; below it addresses and files have the same names.
pub(super) const ADDRESS: &str = "/releases/v1/";
/// Written after every change: a running server looks at this file only.
const STAMP: &str = "stamp";

/// A folder of releases.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Folder {
    path: PathBuf,
}

/// Why something was not added to the folder, or not read from it.
#[derive(Debug, thiserror::Error)]
pub enum FolderError {
    /// See [`FileError`].
    #[error(transparent)]
    File(#[from] FileError),
    /// Not genuine, or not readable.
    #[error(transparent)]
    Document(#[from] DocumentError),
    /// Nothing can be verified yet.
    #[error("there is no root document here yet: add root.1.json first")]
    NoRoot,
    /// A root between two others is missing, or a file with that name holds something else.
    #[error("root document number {number} here does not follow its predecessor")]
    BrokenChain {
        /// Its number.
        number: u64,
        /// Why.
        #[source]
        source: DocumentError,
    },
    /// Other bytes are published under this name.
    #[error("{what} is here already, with other contents: what was published does not change, sign a new one instead")]
    Changed {
        /// What would have been replaced.
        what: String,
    },
    /// Numbers never go down.
    #[error("{what} has number {number}, and number {here} is here already: sign it with a higher one")]
    GoesBack {
        /// Which document.
        what: String,
        /// Its number.
        number: u64,
        /// The number here.
        here: u64,
    },
    /// A release without its bytes.
    #[error("the artifact for {platform} (sha256 {sha256}) is not here: name its file with --artifact")]
    NoArtifact {
        /// Whose artifact.
        platform: String,
        /// Its digest.
        sha256: String,
    },
    /// The file on disk is not what was signed.
    #[error("{path} is none of the release's artifacts: its sha256 is {sha256} and it has {length} bytes")]
    WrongArtifact {
        /// The file.
        path: PathBuf,
        /// What it is.
        sha256: String,
        /// How long it is.
        length: u64,
    },
    /// A channel that names a release nobody could find.
    #[error("channel {channel} names {product} {version}, which is not here: add that release first")]
    NoRelease {
        /// The channel.
        channel: String,
        /// The product.
        product: String,
        /// The version.
        version: Version,
    },
    /// A document's own name is fit for no path.
    #[error("{name:?} cannot be the name of a file here")]
    Name {
        /// The name.
        name: String,
    },
}

fn failed(what: &'static str, path: &Path) -> impl Fn(io::Error) -> FolderError {
    file_error::failed(what, path)
}

impl Folder {
    /// The folder of a server's data folder; made when something is added.
    pub fn of_data(data: &Path) -> Self {
        Self { path: data.join("releases") }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Changes when the contents do. Nothing while nothing was ever added.
    pub fn stamp(&self) -> Option<String> {
        fs::read_to_string(self.path.join(STAMP)).ok()
    }

    /// The file behind an address of `api::releases`.
    fn file(&self, address: &str) -> PathBuf {
        self.path.join(address.strip_prefix(ADDRESS).unwrap_or(address))
    }

    /// The file of a release. Its address is escaped, its name on disk is not.
    fn release_file(&self, product: &str, version: &Version) -> Result<PathBuf, FolderError> {
        if !is_name(product) {
            return Err(FolderError::Name { name: product.into() });
        }
        Ok(self.file(&release_path(product, version).replace("%2B", "+")))
    }

    fn channel_file(&self, name: &str) -> Result<PathBuf, FolderError> {
        if !is_name(name) {
            return Err(FolderError::Name { name: name.into() });
        }
        Ok(self.file(&channel_path(name)))
    }

    /// The newest root that follows, step by step, from the first one here.
    pub fn root(&self) -> Result<Root, FolderError> {
        self.roots()?.pop().ok_or(FolderError::NoRoot)
    }

    /// The whole chain, the newest last.
    fn roots(&self) -> Result<Vec<Root>, FolderError> {
        let first = self.document(&self.file(&root_path(1)))?.ok_or(FolderError::NoRoot)?;
        let mut root = Root::pinned(&first).map_err(|source| FolderError::BrokenChain { number: 1, source })?;
        let mut roots = Vec::new();
        for number in 2..=ROOTS_MAX {
            let Some(next) = self.document(&self.file(&root_path(number)))? else { break };
            let successor = root.successor(&next).map_err(|source| FolderError::BrokenChain { number, source })?;
            roots.push(std::mem::replace(&mut root, successor));
        }
        roots.push(root);
        Ok(roots)
    }

    /// A channel as it was genuine once: verified by the newest root here whose keys signed it. After keys were rotated
    /// it still says which number its successor must be above.
    pub fn channel_once(&self, name: &str) -> Result<Option<Channel>, FolderError> {
        let Some(document) = self.document(&self.channel_file(name)?)? else { return Ok(None) };
        Ok(Some(by_any(&self.roots()?, |root| root.channel(&document, name))?))
    }

    /// The same for a release: signed anew, it must still be the same release.
    fn release_once(&self, product: &str, version: &Version) -> Result<Option<Release>, FolderError> {
        let Some(document) = self.document(&self.release_file(product, version)?)? else { return Ok(None) };
        Ok(Some(by_any(&self.roots()?, |root| root.release(&document, product, version))?))
    }

    /// A channel's document, verified.
    pub fn channel(&self, root: &Root, name: &str) -> Result<Option<Channel>, FolderError> {
        let Some(document) = self.document(&self.channel_file(name)?)? else { return Ok(None) };
        Ok(Some(root.channel(&document, name)?))
    }

    /// A release's document, verified.
    pub fn release(&self, root: &Root, product: &str, version: &Version) -> Result<Option<Release>, FolderError> {
        let Some(document) = self.document(&self.release_file(product, version)?)? else { return Ok(None) };
        Ok(Some(root.release(&document, product, version)?))
    }

    /// Names of the channels here, in alphabetical order.
    pub fn channels(&self) -> Result<Vec<String>, FolderError> {
        names(&self.path.join("channel"), ".json")
    }

    /// Product and version of the releases here, in the order of product and version.
    pub fn releases(&self) -> Result<Vec<(String, Version)>, FolderError> {
        let mut found = Vec::new();
        for product in names(&self.path.join("release"), "")? {
            let versions = names(&self.path.join("release").join(&product), ".json")?;
            found.extend(versions.iter().filter_map(|text| Some((product.clone(), Version::parse(text).ok()?))));
        }
        found.sort();
        Ok(found)
    }

    /// Adds a root: the first one (the person who adds it vouches for it), or the next.
    pub fn add_root(&self, document: &[u8]) -> Result<Root, FolderError> {
        let root = match self.root() {
            Err(FolderError::NoRoot) => Root::pinned(document)?,
            Err(other) => return Err(other),
            Ok(newest) => {
                let again = Root::pinned(document)?;
                if again.version <= newest.version {
                    self.must_be_same(&self.file(&root_path(again.version)), document, "this root")?;
                    return Ok(again);
                }
                newest.successor(document)?
            }
        };
        self.put(&self.file(&root_path(root.version)), document)?;
        Ok(root)
    }

    /// Adds a release and those of its artifacts that are not here yet.
    pub fn add_release(
        &self,
        document: &[u8],
        product: &str,
        version: &Version,
        files: &[PathBuf],
    ) -> Result<Release, FolderError> {
        let root = self.root()?;
        let release = root.release(document, product, version)?;
        let place = self.release_file(product, version)?;
        if !self.is_signed_anew(&root, &release)? {
            self.must_be_same(&place, document, &format!("{product} {version}"))?;
        }
        for file in files {
            self.take_artifact(&release, file)?;
        }
        for artifact in &release.artifacts {
            if !self.file(&artifact_path(&artifact.sha256)).is_file() {
                let (platform, sha256) = (artifact.platform.clone(), hex::encode(&artifact.sha256));
                return Err(FolderError::NoArtifact { platform, sha256 });
            }
        }
        self.put(&place, document)?;
        Ok(release)
    }

    /// Whether what is here counts no more, since its keys were taken out of the root, and `release` is the same
    /// release with signatures that do.
    fn is_signed_anew(&self, root: &Root, release: &Release) -> Result<bool, FolderError> {
        let (product, version) = (&*release.product, &release.version);
        if self.release(root, product, version).is_ok() {
            return Ok(false);
        }
        let here = self.release_once(product, version)?;
        Ok(here.is_some_and(|here| here.number == release.number && here.artifacts == release.artifacts))
    }

    /// Adds or replaces a channel's document.
    pub fn add_channel(&self, document: &[u8], name: &str) -> Result<Channel, FolderError> {
        let root = self.root()?;
        let channel = root.channel(document, name)?;
        let what = format!("channel {name}");
        // Also above one that counts no more, since its keys were taken out of the root: devices remember its number.
        // One that never was genuine is not in the way.
        if let Ok(Some(here)) = self.channel_once(name) {
            if channel.version < here.version {
                return Err(FolderError::GoesBack { what, number: channel.version, here: here.version });
            }
            if channel.version == here.version {
                self.must_be_same(&self.channel_file(name)?, document, &what)?;
            }
        }
        for entry in &channel.products {
            let release = self.release(&root, &entry.product, &entry.version)?;
            if release.is_none_or(|release| release.number != entry.number) {
                let (product, version) = (entry.product.clone(), entry.version.clone());
                return Err(FolderError::NoRelease { channel: name.into(), product, version });
            }
        }
        self.put(&self.channel_file(name)?, document)?;
        Ok(channel)
    }

    /// Copies an artifact to its place, reading it once: what is renamed into place is what was measured.
    fn take_artifact(&self, release: &Release, file: &Path) -> Result<(), FolderError> {
        let folder = self.path.join("artifact");
        fs::create_dir_all(&folder).map_err(failed("create", &folder))?;
        let unfinished = folder.join(format!("{}.part", crate::ids::new_id()));
        let outcome = copy_and_measure(file, &unfinished).and_then(|(sha256, length)| {
            let known = |artifact: &&api::releases::Artifact| artifact.sha256 == sha256 && artifact.length == length;
            if release.artifacts.iter().find(known).is_none() {
                return Err(FolderError::WrongArtifact { path: file.into(), sha256: hex::encode(&sha256), length });
            }
            let place = self.file(&artifact_path(&sha256));
            fs::rename(&unfinished, &place).map_err(failed("write", &place))?;
            sync_folder(&folder)
        });
        if outcome.is_err() {
            // What could not be finished is of no use; the first failure is the one to tell.
            let _ = fs::remove_file(&unfinished);
        }
        outcome
    }

    fn must_be_same(&self, place: &Path, document: &[u8], what: &str) -> Result<(), FolderError> {
        match self.document(place)? {
            Some(here) if here != document => Err(FolderError::Changed { what: what.into() }),
            _ => Ok(()),
        }
    }

    /// A document's bytes, or nothing.
    pub(super) fn document(&self, place: &Path) -> Result<Option<Vec<u8>>, FolderError> {
        let mut bytes = Vec::new();
        let limit = DOCUMENT_BYTES_MAX as u64 + 1;
        match File::open(place).and_then(|file| file.take(limit).read_to_end(&mut bytes)) {
            Ok(_) => Ok(Some(bytes)),
            Err(cause) if cause.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(cause) => Err(failed("read", place)(cause)),
        }
    }

    fn put(&self, place: &Path, document: &[u8]) -> Result<(), FolderError> {
        write_whole(place, document)?;
        write_whole(&self.path.join(STAMP), crate::ids::new_id().as_bytes())
    }
}

/// What the newest root that can verify it makes of a document; the newest root's refusal if none can.
fn by_any<T>(roots: &[Root], read: impl Fn(&Root) -> Result<T, DocumentError>) -> Result<T, FolderError> {
    let mut refusal = None;
    for root in roots.iter().rev() {
        match read(root) {
            Ok(genuine) => return Ok(genuine),
            Err(cause) => drop(refusal.get_or_insert(cause)),
        }
    }
    Err(refusal.map_or(FolderError::NoRoot, FolderError::Document))
}

/// Writes a file that is there as a whole or not at all.
pub(super) fn write_whole(place: &Path, bytes: &[u8]) -> Result<(), FolderError> {
    let folder = match place.parent() {
        Some(folder) if folder != Path::new("") => folder,
        _ => Path::new("."),
    };
    fs::create_dir_all(folder).map_err(failed("create", folder))?;
    let unfinished = folder.join(format!(".{}.part", crate::ids::new_id()));
    let written = File::create(&unfinished).and_then(|mut file| {
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&unfinished, place)
    });
    if let Err(cause) = written {
        let _ = fs::remove_file(&unfinished);
        return Err(failed("write", place)(cause));
    }
    sync_folder(folder)
}

/// So that a new name survives a power cut too.
fn sync_folder(folder: &Path) -> Result<(), FolderError> {
    File::open(folder).and_then(|folder| folder.sync_all()).map_err(failed("sync", folder))
}

fn copy_and_measure(from: &Path, to: &Path) -> Result<([u8; 32], u64), FolderError> {
    let mut source = File::open(from).map_err(failed("read", from))?;
    let mut copy = File::create(to).map_err(failed("write", to))?;
    let measured = measure(&mut source, |chunk| copy.write_all(chunk)).map_err(failed("copy", from))?;
    copy.sync_all().map_err(failed("write", to))?;
    Ok(measured)
}

/// SHA-256 and length of everything `source` gives, which also goes to `sink`.
pub(super) fn measure(
    source: &mut impl Read,
    mut sink: impl FnMut(&[u8]) -> io::Result<()>,
) -> io::Result<([u8; 32], u64)> {
    let mut context = digest::Context::new(&digest::SHA256);
    let mut chunk = vec![0; CHUNK_BYTES];
    let mut length = 0;
    loop {
        let read = source.read(&mut chunk)?;
        let Some(bytes) = chunk.get(..read).filter(|bytes| !bytes.is_empty()) else { break };
        context.update(bytes);
        sink(bytes)?;
        length += bytes.len() as u64;
    }
    let mut sha256 = [0; 32];
    sha256.copy_from_slice(context.finish().as_ref());
    Ok((sha256, length))
}

/// Names in a folder that end so and can be ours, without the ending; a folder that is not there has none.
fn names(folder: &Path, ending: &str) -> Result<Vec<String>, FolderError> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(cause) => return Err(failed("read", folder)(cause)),
    };
    let mut found = Vec::new();
    for entry in entries {
        let name = entry.map_err(failed("read", folder))?.file_name();
        let name = name.to_str().filter(|name| !name.starts_with('.')).and_then(|name| name.strip_suffix(ending));
        found.extend(name.map(str::to_owned));
    }
    found.sort();
    Ok(found)
}
