//! What `stable` or `dev` means today.

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
        let expected = "an object of products, each with version and number";
        let malformed = DocumentError::Malformed { entry: "products", expected };
        let mut products: Vec<ChannelEntry> = Vec::new();
        for (product, entry) in signed.entry("products", expected)?.entries() {
            let twice = products.iter().any(|known| known.product == product);
            if products.len() == PRODUCTS_MAX || twice || !is_name(&product) {
                return Err(malformed);
            }
            let (version, number) = (read_version(entry)?, entry.count("number")?);
            products.push(ChannelEntry { product: product.into(), version, number });
        }
        let name = signed.text("name", "the name of a channel")?;
        Ok(Channel { name, version: signed.count("version")?, expires: signed.expires()?, products })
    }

    /// What is to be signed.
    pub(super) fn canonical(&self) -> String {
        let mut products: Vec<_> = self.products.iter().collect();
        products.sort_by_key(|entry| &entry.product);
        let products = products.iter().fold(Object::new(), |products, entry| {
            let value = Object::new().number("number", entry.number).text("version", &entry.version.to_string());
            products.raw(&entry.product, &value.end())
        });
        Object::new()
            .text("_type", DocumentType::Channel.name())
            .text("expires", &self.expires.to_string())
            .text("name", &self.name)
            .raw("products", &products.end())
            .text("spec_version", SPEC_VERSION)
            .number("version", self.version)
            .end()
    }
}

/// The `version` of a release or of a channel's entry.
pub(super) fn read_version(object: Value<'_>) -> Result<Version, DocumentError> {
    let expected = "a version such as 1.2.3";
    let text = object.text("version", expected)?;
    let version = (text.len() <= VERSION_BYTES_MAX).then(|| Version::parse(&text).ok()).flatten();
    version.ok_or(DocumentError::Malformed { entry: "version", expected })
}
