//! Asks the fleet server which version is meant, and believes only what is signed.
//!
//! One check walks: root and its successors, channel, release. Everything accepted is stored before it is used. What
//! happens with the answer is the machine's business.

use std::{
    path::{Path, PathBuf},
    rc::Rc,
    time::Duration,
};

use api::{
    device_config::VersionSetting,
    releases::{self, DOCUMENT_BYTES_MAX, Root},
};
use board::{
    Clock, Wall,
    fetch::{Fetch, FetchError},
    files::{FileError, Files},
};
use semver::Version;

use super::{
    belief::Belief,
    target::{NotForUs, Target},
    trust::{Anchor, Seen, Today, TrustError, fresh},
    wish::Wish,
};

/// Time for one document: they are small, and another check comes.
const DOCUMENT_LIMIT: Duration = Duration::from_secs(30);
/// Roots followed in one check: one a month for forty years. Each has to be signed by the one before it, so nobody else can
/// make a chain longer.
const ROOTS_MAX: u64 = 512;
/// After this long a check that finds ever more roots gives up; those it has followed are stored, and the next goes on.
const ROOTS_LIMIT: Duration = Duration::from_secs(10 * 60);

const DOUBTFUL: &str = "a signed document seems expired, but this device's clock is not synchronised: check the clock";
const FORGOTTEN: &str = "what this device had seen of channels was lost with damaged files: until a newer channel document is \
                         published, one that was replaced before would be followed";

/// What a check needs.
pub struct Ask {
    /// Time of day.
    pub clock: Rc<dyn Clock>,
    /// Small questions.
    pub fetch: Rc<dyn Fetch>,
    /// What is believed is stored.
    pub files: Rc<dyn Files>,
    /// Folder of what is believed.
    pub folder: PathBuf,
    /// Address of the fleet server, without a slash at its end; `None` while the device has no identity.
    pub address: Option<String>,
    /// "platform-server"
    pub product: &'static str,
    /// "linux/amd64"
    pub platform: String,
    /// First contact over plain http is allowed.
    pub dev_mode: bool,
}

/// What a check found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// What is meant.
    pub target: Target,
    /// What an operator should know all the same; empty when nothing.
    pub warning: String,
}

/// Why a check found nothing.
#[derive(Debug, thiserror::Error)]
pub enum CheckError {
    /// Nobody to ask.
    #[error("the address of the fleet server is not known: put a credentials file in place")]
    NoAddress,
    /// No answer.
    #[error("the release documents could not be fetched: {0}")]
    Fetch(#[from] FetchError),
    /// The server answers something else than documents.
    #[error("{url} answered with status {status}: the fleet server has a problem")]
    Status {
        /// What was asked for.
        url: String,
        /// The answer.
        status: u16,
    },
    /// Nothing was ever signed there.
    #[error("the fleet server has no signed root document: publish one before releases")]
    NoRoot,
    /// Too many to be followed at once.
    #[error("the fleet server has more root documents than could be followed in ten minutes: the next check goes on")]
    ManyRoots,
    /// No such channel.
    #[error("the fleet server has no channel {0}: publish one or choose another version")]
    NoChannel(String),
    /// The channel is for other products.
    #[error("channel {channel} has no {product}: add it to the channel or choose a version")]
    NotInChannel {
        /// Which channel.
        channel: String,
        /// Which product.
        product: String,
    },
    /// No such release.
    #[error("the fleet server has no release {product} {version}: add it or choose another version")]
    NoRelease {
        /// Which product.
        product: String,
        /// Which version.
        version: String,
    },
    /// The channel and the release disagree.
    #[error(
        "channel {channel} names {version} as release number {named}, and its document says {number}: sign one of them anew"
    )]
    Number {
        /// Which channel.
        channel: String,
        /// Which version.
        version: String,
        /// In the channel.
        named: u64,
        /// In the release.
        number: u64,
    },
    /// Not genuine, old or expired.
    #[error("{document}: {source}")]
    Trust {
        /// Which document.
        document: String,
        /// What is wrong with it.
        source: TrustError,
    },
    /// Genuine, and not for this machine.
    #[error(transparent)]
    NotForUs(#[from] NotForUs),
    /// What is believed could not be stored.
    #[error(transparent)]
    File(#[from] FileError),
    /// A pin has no documents.
    #[error("a pinned address needs no release documents")]
    Pin,
}

/// The latest moment, to the day, that a synchronised clock has shown on this device; `None` when there was none yet.
#[must_use]
pub fn last_certain_time(files: &dyn Files, folder: &Path) -> Option<Wall> {
    let seen = Belief { files, folder }.seen();
    (seen.time > 0).then(|| Wall::from_millis(seen.time.saturating_mul(1000)))
}

/// Finds out what a setting means today.
pub async fn check(ask: &Ask, wish: &Wish) -> Result<Found, CheckError> {
    let address = ask.address.as_deref().ok_or(CheckError::NoAddress)?;
    let about = |document: &str| {
        let document = document.to_owned();
        move |source: TrustError| CheckError::Trust { document, source }
    };
    let anchor = Anchor::new(wish.release_keys.as_deref(), address, ask.dev_mode).map_err(about("release keys"))?;
    let mut seen = ask.seen();
    let root = ask.root(address, &anchor, &mut seen).await?;
    let today = seen.today(ask.today());
    let mut doubtful = fresh("root document", root.expires, today).map_err(about("root document"))?;

    let (version, named) = match &wish.setting {
        VersionSetting::Exact(version) => {
            ask.note_time(&mut seen);
            ask.belief().remember(&seen)?;
            (version.clone(), None)
        }
        VersionSetting::Channel(channel) => {
            let name = channel.name();
            let document = ask.get(address, &releases::channel_path(name)).await?;
            let document = document.ok_or_else(|| CheckError::NoChannel(name.to_owned()))?;
            let title = format!("channel {name}");
            let channel = root.channel(&document, name).map_err(|error| about(&title)(error.into()))?;
            // Numbers first: old news is reported as such even when it has expired meanwhile.
            seen = ask.seen();
            seen.follow(&channel, today).map_err(about(&title))?;
            doubtful |= fresh(&title, channel.expires, today).map_err(about(&title))?;
            ask.note_time(&mut seen);
            ask.belief().remember(&seen)?;
            let entry = channel.entry(ask.product).ok_or_else(|| CheckError::NotInChannel {
                channel: name.to_owned(),
                product: ask.product.to_owned(),
            })?;
            (entry.version.clone(), Some((name, entry.number)))
        }
        VersionSetting::Url(_) => return Err(CheckError::Pin),
    };
    let target = ask.release(address, &root, &version, named, today, &mut doubtful).await?;
    let warnings = [(doubtful, DOUBTFUL), (seen.forgotten, FORGOTTEN)];
    let warnings: Vec<_> = warnings.into_iter().filter_map(|(holds, text)| holds.then_some(text)).collect();
    Ok(Found { target, warning: warnings.join("; ") })
}

impl Ask {
    async fn get(&self, address: &str, path: &str) -> Result<Option<Vec<u8>>, CheckError> {
        let url = format!("{address}{path}");
        let reply = self.fetch.get(&url, false, DOCUMENT_LIMIT, DOCUMENT_BYTES_MAX).await?;
        match reply.status {
            200 => Ok(Some(reply.body)),
            404 => Ok(None),
            status => Err(CheckError::Status { url, status }),
        }
    }

    /// The root in force, after all its successors.
    async fn root(&self, address: &str, anchor: &Anchor, seen: &mut Seen) -> Result<Root, CheckError> {
        let trust = |number: u64| {
            move |error: releases::DocumentError| CheckError::Trust {
                document: format!("root document {number}"),
                source: error.into(),
            }
        };
        let belief = self.belief();
        // Who lost the numbers has the root still, and does not know how it was found: it is the one that was believed.
        let lost = seen.is_lost();
        let stored = if lost || seen.anchor == anchor.describe() { belief.root() } else { None };
        let mut root = match stored {
            Some(root) => {
                if lost {
                    seen.anchor = anchor.describe();
                    belief.remember(seen)?;
                }
                root
            }
            None => self.first_root(address, anchor, seen).await?,
        };
        let end = self.clock.now() + ROOTS_LIMIT;
        for _ in 0..ROOTS_MAX {
            if self.clock.now() > end {
                return Err(CheckError::ManyRoots);
            }
            let number = root.version.saturating_add(1);
            let Some(document) = self.get(address, &releases::root_path(number)).await? else { break };
            let next = root.successor(&document).map_err(trust(number))?;
            *seen = self.seen();
            seen.rotate(&root, &next);
            // The root first: numbers that start anew under the old keys would forget what they were for.
            belief.keep_root(&document)?;
            belief.remember(seen)?;
            root = next;
        }
        Ok(root)
    }

    /// The first root that the anchor accepts. Keys given in the factory may be younger than the first root.
    async fn first_root(&self, address: &str, anchor: &Anchor, seen: &mut Seen) -> Result<Root, CheckError> {
        let mut refusal = CheckError::NoRoot;
        let end = self.clock.now() + ROOTS_LIMIT;
        for number in 1..=ROOTS_MAX {
            if self.clock.now() > end {
                return Err(CheckError::ManyRoots);
            }
            let Some(document) = self.get(address, &releases::root_path(number)).await? else { break };
            match anchor.first_root(&document) {
                Ok(root) => {
                    log::info!("{}: root document {number} is believed by {}", self.product, anchor.describe());
                    let before = self.seen();
                    *seen = Seen::found_by(anchor, &before);
                    if before.anchor != seen.anchor {
                        // A power cut between the two files leaves a root that is found anew, not one that is taken for
                        // another.
                        self.belief().remember(&before.unanchored())?;
                    }
                    self.belief().keep_root(&document)?;
                    self.belief().remember(seen)?;
                    return Ok(root);
                }
                Err(error) => {
                    let document = format!("root document {number}");
                    refusal = CheckError::Trust { document, source: error.into() };
                }
            }
        }
        Err(refusal)
    }

    async fn release(
        &self,
        address: &str,
        root: &Root,
        version: &Version,
        named: Option<(&str, u64)>,
        today: Today,
        doubtful: &mut bool,
    ) -> Result<Target, CheckError> {
        let title = format!("release {} {version}", self.product);
        let document = self.get(address, &releases::release_path(self.product, version)).await?;
        let Some(document) = document else {
            return Err(CheckError::NoRelease { product: self.product.to_owned(), version: version.to_string() });
        };
        let trust = |source: TrustError| CheckError::Trust { document: title.clone(), source };
        let release = root.release(&document, self.product, version).map_err(|error| trust(error.into()))?;
        *doubtful |= fresh(&title, release.expires, today).map_err(trust)?;
        match named {
            Some((channel, named)) if named != release.number => Err(CheckError::Number {
                channel: channel.to_owned(),
                version: version.to_string(),
                named,
                number: release.number,
            }),
            _ => Ok(Target::of_release(&release, &self.platform, address)?),
        }
    }

    fn today(&self) -> Today {
        let seconds = self.clock.wall().as_millis().div_euclid(1000);
        Today { seconds, synchronised: self.clock.wall_is_synchronised() }
    }

    /// Read anew before each change: the other product's updates write it too.
    fn seen(&self) -> Seen {
        self.belief().mended()
    }

    /// Takes the time from a clock that is certain, once documents are fresh by it. To the day: a write for every check
    /// would wear out small flash. Back too: a clock that was certain and wrong once is not believed for ever.
    fn note_time(&self, seen: &mut Seen) {
        let Today { seconds, synchronised } = self.today();
        if synchronised && !(seen.time..=seen.time.saturating_add(86_400)).contains(&seconds) {
            seen.time = seconds;
        }
    }

    fn belief(&self) -> Belief<'_> {
        Belief { files: &*self.files, folder: &self.folder }
    }
}
