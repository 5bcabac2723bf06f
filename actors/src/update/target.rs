//! What is to be brought here: exact bytes of a release, or whatever lies at a pinned address.

use std::{fmt, path::PathBuf};

use api::{
    device_config::{VersionSetting, without_secrets},
    digest::sha256,
    releases::{Artifact, Format, Release, Unpacked},
};

/// Largest executable taken from a pin, whose length nobody has signed.
pub const PIN_BYTES_MAX: u64 = 1 << 30;

/// Something to install.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// As people see it: a version, or the pin without what may be secret in it.
    pub version: String,
    /// Where the bytes are.
    pub source: Source,
    /// What they must be; `None` for a pin, which is taken as the owner's word.
    pub promise: Option<Promise>,
}

/// Where bytes are. Its `Debug` shows no secret that an address may hold.
#[derive(Clone, PartialEq, Eq)]
pub enum Source {
    /// At an `http` or `https` address.
    Web(String),
    /// In a file of this machine.
    File(PathBuf),
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::Web(url) => f.write_str(&without_secrets(url)),
            Source::File(path) => path.fmt(f),
        }
    }
}

/// What a signed release says about its executable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Promise {
    /// Its digest.
    pub sha256: [u8; 32],
    /// Its length.
    pub length: u64,
    /// The xz stream it arrives in; `None` when it arrives as it is.
    pub packed: Option<Packed>,
}

/// What a signed release says about the bytes that are downloaded, where these are not the executable itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packed {
    /// Their digest.
    pub sha256: [u8; 32],
    /// Their length.
    pub length: u64,
}

/// Why a release cannot be installed here.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotForUs {
    /// It was not built for this platform.
    #[error(
        "{product} {version} is not released for {platform}: release it for this platform or choose another version"
    )]
    Platform {
        /// What.
        product: String,
        /// Which version.
        version: String,
        /// What this machine is.
        platform: String,
    },
    /// It is packed in a way that this agent cannot unpack.
    #[error("{product} {version} is packed as {format}, which this agent cannot unpack: release it as raw or xz")]
    Packed {
        /// What.
        product: String,
        /// Which version.
        version: String,
        /// How.
        format: String,
    },
}

impl Target {
    /// The bytes of a release for a platform, from the server (or mirror) at `base`.
    pub fn of_release(release: &Release, platform: &str, base: &str) -> Result<Target, NotForUs> {
        let (product, version) = (release.product.clone(), release.version.to_string());
        let Some(artifact) = release.artifact(platform) else {
            return Err(NotForUs::Platform { product, version, platform: platform.to_owned() });
        };
        let Artifact { sha256, length, format, path, unpacked, .. } = artifact;
        let (sha256, length) = (*sha256, *length);
        let promise = match (format, unpacked) {
            (Format::Raw, None) => Promise { sha256, length, packed: None },
            (Format::Xz, Some(inside)) => {
                let Unpacked { sha256: inside, length: inside_length } = *inside;
                Promise { sha256: inside, length: inside_length, packed: Some(Packed { sha256, length }) }
            }
            // The second is never read from a document that is complete.
            (Format::Other(_), _) | (Format::Raw, Some(_)) | (Format::Xz, None) => {
                return Err(NotForUs::Packed { product, version, format: format.name().to_owned() });
            }
        };
        Ok(Target { version, source: Source::Web(format!("{base}{path}")), promise: Some(promise) })
    }

    /// The bytes at a pinned address; `None` for a setting that is no pin.
    #[must_use]
    pub fn of_pin(setting: &VersionSetting) -> Option<Target> {
        let VersionSetting::Url(url) = setting else { return None };
        let source = match setting.local_path() {
            Some(path) => Source::File(path.into()),
            None => Source::Web(url.to_string()),
        };
        Some(Target { version: without_secrets(url), source, promise: None })
    }

    /// Whether it is a pin.
    #[must_use]
    pub fn is_pin(&self) -> bool {
        self.promise.is_none()
    }

    /// What tells one pinned address from another; `None` for a release.
    #[must_use]
    pub fn pin(&self) -> Option<[u8; 32]> {
        self.is_pin().then(|| match &self.source {
            Source::Web(url) => sha256(url.as_bytes()),
            Source::File(path) => sha256(path.as_os_str().as_encoded_bytes()),
        })
    }

    /// Whether it is a file of this machine.
    #[must_use]
    pub fn is_local(&self) -> bool {
        matches!(self.source, Source::File(_))
    }

    /// Whether the bytes come unprotected and unverified.
    #[must_use]
    pub fn is_unprotected(&self) -> bool {
        let scheme = |url: &str| url.get(..7).is_some_and(|scheme| scheme.eq_ignore_ascii_case("http://"));
        self.is_pin() && matches!(&self.source, Source::Web(url) if scheme(url))
    }

    /// Longer downloads are not this target.
    #[must_use]
    pub fn bytes_max(&self) -> u64 {
        self.promise.map_or(PIN_BYTES_MAX, |promise| promise.packed.map_or(promise.length, |packed| packed.length))
    }

    /// Longer executables are not this target.
    #[must_use]
    pub fn unpacked_max(&self) -> u64 {
        self.promise.map_or(PIN_BYTES_MAX, |promise| promise.length)
    }

    /// What unpacking will write besides the download.
    #[must_use]
    pub fn to_unpack(&self) -> u64 {
        self.promise.filter(|promise| promise.packed.is_some()).map_or(0, |promise| promise.length)
    }
}
