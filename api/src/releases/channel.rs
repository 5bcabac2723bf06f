//! What `stable` or `dev` means today.
//!
//! On the wire a `snapshot` document of TUF: it lists release documents with their numbers. There is one for each channel,
//! told apart by `name`, and one release for each product.

use semver::Version;

use super::{
    DocumentError, DocumentType, Expires, PRODUCTS_MAX, SPEC_VERSION, VERSION_BYTES_MAX, canonical::Object,
    envelope::Entries as _, is_name,
};
use crate::json::Value;

/// A channel: for each product, the version to run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Channel {
    /// "stable", "dev".
    pub name: String,
    /// Number of this document: rises with each one; a device refuses a lower one than it has seen.
    pub version: u64,
    /// When it stops counting. Short, so that nobody can keep a device on old news for long.
    pub expires: Expires,
    /// One entry for each product, sorted by its name.
    pub products: Vec<ChannelEntry>,
}

/// The version of one product.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChannelEntry {
    /// "platform-server"
    pub product: String,
    /// What to run.
    pub version: Version,
    /// The release's number, as in its own document. A newer channel document may name an older release: a recall.
    pub number: u64,
}

impl Channel {
    /// The version of a product, if this channel has one.
    #[must_use]
    pub fn entry(&self, product: &str) -> Option<&ChannelEntry> {
        self.products.iter().find(|entry| entry.product == product)
    }

    pub(super) fn read(signed: Value<'_>) -> Result<Channel, DocumentError> {
        let expected =
            "an object of releases such as platform-server/1.2.3.json, one for a product, each with its number";
        let malformed = DocumentError::Malformed { entry: "meta", expected };
        let mut products: Vec<ChannelEntry> = Vec::new();
        for (path, release) in signed.entry("meta", expected)?.entries() {
            let named = path.strip_suffix(".json").and_then(|path| path.split_once('/'));
            let (product, version) =
                named.and_then(|(product, text)| Some((product, version(text)?))).ok_or(malformed.clone())?;
            let twice = products.iter().any(|known| known.product == product);
            if products.len() == PRODUCTS_MAX || twice || !is_name(product) {
                return Err(malformed);
            }
            products.push(ChannelEntry { product: product.to_owned(), version, number: release.count("version")? });
        }
        products.sort_by(|one, other| one.product.cmp(&other.product));
        let name = signed.text("name", "the name of a channel")?;
        Ok(Channel { name, version: signed.count("version")?, expires: signed.expires()?, products })
    }

    /// What is to be signed.
    pub(super) fn canonical(&self) -> String {
        let mut releases: Vec<_> = self
            .products
            .iter()
            .map(|entry| (format!("{}/{}.json", entry.product, entry.version), entry.number))
            .collect();
        releases.sort();
        let meta = releases.iter().fold(Object::new(), |meta, (path, number)| {
            meta.raw(path, &Object::new().number("version", *number).end())
        });
        Object::new()
            .text("_type", DocumentType::Channel.name())
            .text("expires", &self.expires.to_string())
            .raw("meta", &meta.end())
            .text("name", &self.name)
            .text("spec_version", SPEC_VERSION)
            .number("version", self.version)
            .end()
    }
}

/// A version, if the text is one.
pub(super) fn version(text: &str) -> Option<Version> {
    (text.len() <= VERSION_BYTES_MAX).then(|| Version::parse(text).ok()).flatten()
}
