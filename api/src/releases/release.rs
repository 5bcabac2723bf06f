//! What the bytes of one version of a product are.

use semver::Version;

use super::{
    ARTIFACTS_MAX, DocumentError, DocumentType, Expires, SPEC_VERSION, artifact_path, canonical::Object,
    channel::read_version, envelope::Entries as _, hex, is_name, is_platform,
};
use crate::json::Value;

/// One version of a product, for every platform it is made for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Release {
    /// "platform-server"
    pub product: String,
    /// Its version.
    pub version: Version,
    /// Rises with each release of the product, whatever the versions are.
    pub number: u64,
    /// When it may no longer be installed.
    pub expires: Expires,
    /// One entry for each platform, sorted by its name.
    pub artifacts: Vec<Artifact>,
}

/// The bytes for one platform.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Artifact {
    /// "linux/amd64"
    pub platform: String,
    /// Digest of the bytes as they are downloaded.
    pub sha256: [u8; 32],
    /// Their length.
    pub length: u64,
    /// How they are packed.
    pub format: Format,
    /// Where they are, below the address of the server (or mirror) that gave the document.
    pub path: String,
}

/// How an executable is packed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Format {
    /// Not at all.
    Raw,
    /// One xz stream.
    Xz,
    /// In a way that this version does not know.
    Other(Box<str>),
}

impl Format {
    /// The word in the document.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Format::Raw => "raw",
            Format::Xz => "xz",
            Format::Other(name) => name,
        }
    }
}

impl Artifact {
    /// Bytes at the usual place.
    #[must_use]
    pub fn new(platform: &str, sha256: [u8; 32], length: u64, format: Format) -> Self {
        Artifact { platform: platform.to_owned(), sha256, length, format, path: artifact_path(&sha256) }
    }
}

impl Release {
    /// The bytes for a platform, if there are any.
    #[must_use]
    pub fn artifact(&self, platform: &str) -> Option<&Artifact> {
        self.artifacts.iter().find(|artifact| artifact.platform == platform)
    }

    pub(super) fn read(signed: Value<'_>) -> Result<Release, DocumentError> {
        let expected = "an object of platforms, each with sha256, length, format and path";
        let malformed = DocumentError::Malformed { entry: "artifacts", expected };
        let mut artifacts: Vec<Artifact> = Vec::new();
        for (platform, artifact) in signed.entry("artifacts", expected)?.entries() {
            let twice = artifacts.iter().any(|known| known.platform == platform);
            let sha256 = hex::decode(&artifact.text("sha256", "64 hexadecimal digits")?);
            let path = artifact.text("path", "a path that begins with a slash")?;
            let (Some(sha256), true) = (sha256, is_platform(&platform) && !twice && is_path(&path)) else {
                return Err(malformed);
            };
            if artifacts.len() == ARTIFACTS_MAX {
                return Err(malformed);
            }
            let format = match artifact.text("format", "raw or xz")?.as_str() {
                "raw" => Format::Raw,
                "xz" => Format::Xz,
                other => Format::Other(other.chars().take(32).collect::<String>().into()),
            };
            let length = artifact.count("length")?;
            artifacts.push(Artifact { platform: platform.into(), sha256, length, format, path });
        }
        let product = signed.text("product", "the name of a product")?;
        if !is_name(&product) {
            return Err(DocumentError::Malformed { entry: "product", expected: "the name of a product" });
        }
        Ok(Release {
            product,
            version: read_version(signed)?,
            number: signed.count("number")?,
            expires: signed.expires()?,
            artifacts,
        })
    }

    /// What is to be signed.
    pub(super) fn canonical(&self) -> String {
        let mut artifacts: Vec<_> = self.artifacts.iter().collect();
        artifacts.sort_by_key(|artifact| &artifact.platform);
        let artifacts = artifacts.iter().fold(Object::new(), |artifacts, artifact| {
            let value = Object::new()
                .text("format", artifact.format.name())
                .number("length", artifact.length)
                .text("path", &artifact.path)
                .text("sha256", &hex::encode(&artifact.sha256));
            artifacts.raw(&artifact.platform, &value.end())
        });
        Object::new()
            .text("_type", DocumentType::Release.name())
            .raw("artifacts", &artifacts.end())
            .text("expires", &self.expires.to_string())
            .number("number", self.number)
            .text("product", &self.product)
            .text("spec_version", SPEC_VERSION)
            .text("version", &self.version.to_string())
            .end()
    }
}

/// A path that cannot lead to another server: what stands before it is always the server's own address.
pub(super) fn is_path(path: &str) -> bool {
    path.starts_with('/')
        && path.len() <= 512
        && !path.starts_with("//")
        && path.split('/').all(|step| step != "..")
        && path.bytes().all(|byte| byte.is_ascii_graphic() && !matches!(byte, b'"' | b'\\' | b'#' | b'?' | b'@'))
}
