//! Whoever makes machine servers, and signs for them.
//!
//! Publishes on the simulated web what a fleet server would hand out: the root, releases with real signatures, channel
//! documents, and the bytes. Can also hand out what an attacker or a broken disk would.

use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    rc::Rc,
};

use api::{
    brand,
    releases::{
        Artifact, Channel, ChannelEntry, Expires, Release, RoleKeys, Root, artifact_path, channel_path, release_path,
        root_path, sign,
    },
};
use board_sim::{SimWeb, clock::WALL_AT_START, fetch::Resource, image};
use semver::Version;

use super::launch::AGENT_BYTES;

/// Where the simulated fleet server is.
pub const SERVER: &str = "http://fleet.test:8080";
/// Size of a machine server, unless a test says otherwise: a few chunks on the wire.
pub const IMAGE_BYTES: usize = 200_000;
/// Documents live for 90 days.
const LIFE_SECONDS: i64 = 90 * 24 * 3600;

struct Inner {
    web: SimWeb,
    platform: String,
    key: sign::SigningKey,
    numbers: Cell<u64>,
    channel_versions: Cell<u64>,
    channels: RefCell<BTreeMap<String, Channel>>,
    numbers_of: RefCell<BTreeMap<(String, Version), u64>>,
}

/// The factory.
#[derive(Clone)]
pub struct Factory {
    inner: Rc<Inner>,
}

impl Factory {
    /// A factory whose root is published, and which has released nothing yet.
    #[must_use]
    pub fn new(web: &SimWeb, platform: &str) -> Self {
        let key = sign::SigningKey::from_seed(&[7; 32]).expect("any 32 bytes are a seed");
        let keys = || RoleKeys::new(1, [key.public()]);
        let root = Root { version: 1, expires: expiry(), root: keys(), release: keys(), channel: keys() };
        let document = sign::root(&root, &[&key]).expect("one key of one signs");
        web.serve(format!("{SERVER}{}", root_path(1)), Resource::of(document));
        Factory {
            inner: Rc::new(Inner {
                web: web.clone(),
                platform: platform.to_owned(),
                key,
                numbers: Cell::new(0),
                channel_versions: Cell::new(0),
                channels: RefCell::default(),
                numbers_of: RefCell::default(),
            }),
        }
    }

    /// The key that devices are given in the factory.
    #[must_use]
    pub fn public_key(&self) -> String {
        self.inner.key.public().to_string()
    }

    /// The bytes of a version of the machine server.
    #[must_use]
    pub fn image(&self, version: &str) -> Vec<u8> {
        image::program(version, &self.inner.platform, IMAGE_BYTES)
    }

    /// Publishes a version of the machine server, in no channel.
    ///
    /// # Panics
    /// When the version is none.
    pub fn release(&self, version: &str) {
        self.release_bytes(version, self.image(version));
    }

    /// Publishes these bytes as a version of the machine server.
    ///
    /// # Panics
    /// When the version is none.
    pub fn release_bytes(&self, version: &str, bytes: Vec<u8>) {
        self.publish(brand::MACHINE_SERVER, version, bytes);
    }

    /// Publishes a version of the agent, in no channel.
    ///
    /// # Panics
    /// When the version is none.
    pub fn release_agent(&self, version: &str) {
        self.publish(brand::AGENT, version, self.agent_image(version));
    }

    /// The bytes of a version of the agent.
    #[must_use]
    pub fn agent_image(&self, version: &str) -> Vec<u8> {
        image::agent(brand::AGENT, version, &self.inner.platform, AGENT_BYTES)
    }

    fn publish(&self, product: &str, version: &str, bytes: Vec<u8>) {
        let inner = &self.inner;
        inner.numbers.set(inner.numbers.get() + 1);
        let sha256 = image::sha256(&bytes);
        let version: Version = version.parse().expect("versions are semantic");
        let release = Release {
            product: product.to_owned(),
            version: version.clone(),
            number: inner.numbers.get(),
            expires: expiry(),
            artifacts: vec![Artifact::raw(&inner.platform, sha256, bytes.len() as u64)],
        };
        inner.numbers_of.borrow_mut().insert((product.to_owned(), version.clone()), release.number);
        let document = sign::release(&release, &[&inner.key]).expect("the release is complete");
        let url = format!("{SERVER}{}", release_path(product, &version));
        self.inner.web.serve(url, Resource::of(document));
        self.inner.web.serve(artifact_url(&sha256), Resource::of(bytes));
    }

    /// Says what a channel means from now on.
    ///
    /// # Panics
    /// When the version was not released.
    pub fn channel(&self, name: &str, version: &str) {
        self.set(name, brand::MACHINE_SERVER, version);
    }

    /// Says which agent a channel means from now on.
    ///
    /// # Panics
    /// When the version was not released.
    pub fn agent_channel(&self, name: &str, version: &str) {
        self.set(name, brand::AGENT, version);
    }

    fn set(&self, name: &str, product: &str, version: &str) {
        let inner = &self.inner;
        inner.channel_versions.set(inner.channel_versions.get() + 1);
        let version: Version = version.parse().expect("versions are semantic");
        let number = *inner.numbers_of.borrow().get(&(product.to_owned(), version.clone())).expect("released first");
        let entry = ChannelEntry { product: product.to_owned(), version, number };
        let mut products =
            inner.channels.borrow().get(name).map(|channel| channel.products.clone()).unwrap_or_default();
        products.retain(|entry| entry.product != product);
        products.push(entry);
        products.sort_by(|one, other| one.product.cmp(&other.product));
        let channel =
            Channel { name: name.to_owned(), version: inner.channel_versions.get(), expires: expiry(), products };
        let document = sign::channel(&channel, &[&inner.key]).expect("the channel is complete");
        inner.web.serve(format!("{SERVER}{}", channel_path(name)), Resource::of(document));
        inner.channels.borrow_mut().insert(name.to_owned(), channel);
    }

    /// Where the bytes of a version are.
    #[must_use]
    pub fn artifact(&self, version: &str) -> String {
        artifact_url(&image::sha256(&self.image(version)))
    }

    /// Where the document of a version is.
    ///
    /// # Panics
    /// When the version is none.
    #[must_use]
    pub fn document(&self, version: &str) -> String {
        self.document_url(&version.parse().expect("versions are semantic"))
    }

    /// Lets the way to the bytes of a version change what passes.
    ///
    /// # Panics
    /// When it was not released.
    pub fn tamper(&self, version: &str, how: impl FnOnce(Resource) -> Resource) {
        let url = self.artifact(version);
        let healthy = self.inner.web.resource(&url).expect("released first");
        self.inner.web.serve(url, how(healthy));
    }

    fn document_url(&self, version: &Version) -> String {
        format!("{SERVER}{}", release_path(brand::MACHINE_SERVER, version))
    }
}

fn artifact_url(sha256: &[u8; 32]) -> String {
    format!("{SERVER}{}", artifact_path(sha256))
}

fn expiry() -> Expires {
    Expires::from_unix_seconds(WALL_AT_START.as_millis() / 1000 + LIFE_SECONDS)
}
