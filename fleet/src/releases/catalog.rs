//! What the documents mean: a channel or version, and a platform, to an artifact.
//!
//! Read once and kept until the folder's stamp changes. What it answers is a hint for the device, which follows the
//! signed documents themselves.

use std::{
    collections::HashMap,
    sync::{
        Arc, PoisonError, RwLock,
        atomic::{AtomicI64, AtomicU64, Ordering::Relaxed},
    },
};

use api::{
    brand,
    pb::platform::app::agent::v1::{PackageFormat, UpdateInfo},
    releases::{Channel, Format, Release, Root},
};
use semver::Version;

use super::{
    folder::{Folder, FolderError},
    told,
};
use crate::clock::Millis;

/// How long an answer may be older than the folder.
const LOOK_EVERY: Millis = 1_000;

/// Every genuine channel and release.
#[derive(Debug, Default)]
pub struct Catalog {
    root: Option<Root>,
    channels: HashMap<String, Channel>,
    releases: HashMap<(String, Version), Release>,
}

/// What a device is told beside its configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hint {
    /// Product.
    pub product: String,
    /// Version.
    pub version: Version,
    /// Digest of the bytes as they are downloaded.
    pub sha256: [u8; 32],
    /// How they are packed.
    pub format: Format,
    /// Where they are, below the server's address.
    pub path: String,
}

impl Catalog {
    /// Reads a folder. What does not verify is logged and left out.
    pub fn read(folder: &Folder) -> Self {
        let root = match folder.root() {
            Ok(root) => root,
            Err(FolderError::NoRoot) => return Self::default(),
            Err(cause) => {
                tracing::error!(cause = told(&cause), "the releases cannot be verified: no version is hinted at");
                return Self::default();
            }
        };
        let mut catalog = Self::default();
        let unreadable =
            |cause: FolderError| tracing::error!(cause = told(&cause), "the folder of releases cannot be listed");
        for name in folder.channels().map_err(unreadable).unwrap_or_default() {
            match folder.channel(&root, &name) {
                Ok(channel) => catalog.channels.extend(channel.map(|channel| (name, channel))),
                Err(cause) => tracing::warn!(channel = name, cause = told(&cause), "a channel is left out"),
            }
        }
        for (product, version) in folder.releases().map_err(unreadable).unwrap_or_default() {
            match folder.release(&root, &product, &version) {
                Ok(release) => catalog.releases.extend(release.map(|release| ((product, version), release))),
                Err(cause) => tracing::warn!(product, %version, cause = told(&cause), "a release is left out"),
            }
        }
        catalog.root = Some(root);
        catalog
    }

    /// The newest root, which says whose signatures count.
    pub fn root(&self) -> Option<&Root> {
        self.root.as_ref()
    }

    /// What a version setting (`stable`, `dev`, `1.2.3`) means for a product on a platform. A URL means itself, so there
    /// is nothing to say about it.
    pub fn resolve(&self, product: &str, setting: &str, platform: &str) -> Option<Hint> {
        let version = match self.channels.get(setting) {
            Some(channel) => channel.entry(product)?.version.clone(),
            None => Version::parse(setting).ok()?,
        };
        let release = self.releases.get(&(product.to_owned(), version))?;
        let artifact = release.artifact(platform)?;
        Some(Hint {
            product: release.product.clone(),
            version: release.version.clone(),
            sha256: artifact.sha256,
            format: artifact.format.clone(),
            path: artifact.path.clone(),
        })
    }
}

impl Hint {
    /// On the wire; `server` is the address the device knows us by.
    pub fn into_update_info(self, server: &str) -> UpdateInfo {
        let format = match self.format {
            Format::Raw => PackageFormat::Executable,
            Format::Xz => PackageFormat::XzExecutable,
            Format::Other(_) => PackageFormat::Unspecified,
        };
        UpdateInfo {
            filename: self.product,
            url: format!("{}{}", server.trim_end_matches('/'), self.path),
            version: self.version.to_string(),
            sha256: self.sha256.to_vec(),
            format: format.into(),
        }
    }
}

/// The default of both version settings.
pub const DEFAULT_SETTING: &str = "stable";

/// The products a device asks for, with the name of their version setting.
pub const PRODUCTS: [(&str, &str); 2] = [(brand::AGENT, "agent"), (brand::MACHINE_SERVER, brand::SERVER_VERSION_KEY)];

/// The catalog of a folder that other processes add to.
pub struct Watched {
    folder: Folder,
    held: RwLock<(Option<String>, Arc<Catalog>)>,
    revision: AtomicU64,
    looked: AtomicI64,
}

impl Watched {
    /// Reads it for the first time.
    pub fn new(folder: Folder) -> Self {
        let held = (folder.stamp(), Arc::new(Catalog::read(&folder)));
        Self { folder, held: RwLock::new(held), revision: AtomicU64::new(1), looked: AtomicI64::new(Millis::MIN) }
    }

    /// The folder.
    pub fn folder(&self) -> &Folder {
        &self.folder
    }

    /// Rises when the catalog changes. Looks at the folder's stamp at most once a second: the rest is two loads.
    pub fn revision(&self, now: Millis) -> u64 {
        let looked = self.looked.load(Relaxed);
        let due = now.saturating_sub(looked) >= LOOK_EVERY || now < looked;
        if due && self.looked.compare_exchange(looked, now, Relaxed, Relaxed).is_ok() {
            self.look();
        }
        self.revision.load(Relaxed)
    }

    /// What the folder says.
    pub fn catalog(&self) -> Arc<Catalog> {
        self.held.read().unwrap_or_else(PoisonError::into_inner).1.clone()
    }

    fn look(&self) {
        let stamp = self.folder.stamp();
        if self.held.read().unwrap_or_else(PoisonError::into_inner).0 == stamp {
            return;
        }
        let catalog = Arc::new(Catalog::read(&self.folder));
        *self.held.write().unwrap_or_else(PoisonError::into_inner) = (stamp, catalog);
        self.revision.fetch_add(1, Relaxed);
        tracing::info!("read the releases anew");
    }
}
