//! What this device believes, and what it has seen: genuine documents never lead it backwards.
//!
//! Owns the stored root and the highest numbers of channel documents. Pure; fetching is `check.rs`. Both products of
//! a device believe the same.

use api::{
    json::{self, Limits, Value, quoted},
    releases::{Channel, DocumentError, Freshness, RoleKeys, Root, hex},
};
use std::fmt::Write as _;

use super::sealed::{self, Unusable};

/// Channels whose numbers are remembered. There are two; a few more may have been tried.
const CHANNELS_MAX: usize = 16;
/// Largest file of numbers: that many channels with the most products and the longest names have half of it.
pub const NUMBERS_BYTES_MAX: usize = 64 * 1024;
/// First word of the file of numbers.
const KIND: &str = "trust-numbers";

/// How the first root is found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Anchor {
    /// By keys that the manufacturer gave.
    Given(RoleKeys),
    /// By asking this address, once, and remembering the answer.
    FirstContact(String),
}

/// A genuine document that is not followed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TrustError {
    /// Pinning needs a server that is who it says.
    #[error(
        "no release keys are known, and they are not learnt over plain http: use https for the fleet server, \
         or put release_keys into the manufacturer's defaults"
    )]
    NotOverPlainHttp,
    /// Not genuine, or not what was asked for.
    #[error(transparent)]
    Document(#[from] DocumentError),
    /// An older document than one seen before.
    #[error(
        "channel {channel} is document {found}, and document {seen} has been seen: somebody serves old news, \
         nothing is taken from it"
    )]
    StepBack {
        /// Which channel.
        channel: String,
        /// The document's number.
        found: u64,
        /// The highest number seen.
        seen: u64,
    },
    /// One document number with two contents.
    #[error(
        "channel {channel} names release {found} of {product} without a new document number, after release {seen}: \
         publish a new channel document"
    )]
    ReleaseStepBack {
        /// Which channel.
        channel: String,
        /// Which product.
        product: String,
        /// The number it names.
        found: u64,
        /// The number seen in the same document.
        seen: u64,
    },
    /// To follow it, a channel whose documents still count would have to be forgotten, and old ones could come back.
    #[error(
        "channel {channel} is not followed: this device remembers {CHANNELS_MAX} channels and none of them has expired; \
         choose one that it has followed before"
    )]
    ManyChannels {
        /// Which channel.
        channel: String,
    },
    /// Too old to be followed.
    #[error("the {what} expired at {expired}: sign a new one; what is installed stays")]
    Expired {
        /// Which document.
        what: String,
        /// When.
        expired: String,
    },
}

/// The numbers of a channel.
#[derive(Clone, Debug, PartialEq, Eq)]
struct SeenChannel {
    name: String,
    version: u64,
    /// Highest release number named by that document, for each product.
    numbers: Vec<(String, u64)>,
    /// When the last of its documents stops counting, in seconds since 1970.
    expires: i64,
}

/// Numbers and times that never go back.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// How the stored root was found, as [`Anchor::describe`] says it.
    pub anchor: String,
    channels: Vec<SeenChannel>,
    /// The latest moment that a synchronised clock has shown here, in seconds since 1970.
    pub time: i64,
    /// Numbers that were seen are not known any more, and no newer document has come since.
    pub forgotten: bool,
}

/// The time of day as documents are judged by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Today {
    /// Seconds since 1970.
    pub seconds: i64,
    /// Whether anything vouches for them.
    pub synchronised: bool,
}

impl Anchor {
    /// The anchor of a device.
    pub fn new(given: Option<&RoleKeys>, address: &str, dev_mode: bool) -> Result<Anchor, TrustError> {
        match given {
            Some(keys) => Ok(Anchor::Given(keys.clone())),
            None if dev_mode || address.starts_with("https://") => Ok(Anchor::FirstContact(address.to_owned())),
            None => Err(TrustError::NotOverPlainHttp),
        }
    }

    /// What is remembered beside a root: with another anchor the root is found anew.
    #[must_use]
    pub fn describe(&self) -> String {
        match self {
            Anchor::Given(RoleKeys { keys, threshold }) => {
                let mut keys = keys.clone();
                keys.sort();
                let text: String = keys.iter().map(ToString::to_string).collect();
                format!("{threshold} of keys {}", hex::encode(&api::digest::sha256(text.as_bytes())))
            }
            Anchor::FirstContact(address) => format!("first contact {address}"),
        }
    }

    /// Judges a candidate for the first root.
    pub fn first_root(&self, document: &[u8]) -> Result<Root, DocumentError> {
        match self {
            Anchor::Given(keys) => Root::anchored(document, keys),
            Anchor::FirstContact(_) => Root::pinned(document),
        }
    }
}

impl Seen {
    /// What is left when nothing that was stored can be used.
    #[must_use]
    pub fn lost() -> Seen {
        Seen { forgotten: true, ..Seen::default() }
    }

    /// Whether even the anchor is not known any more.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.forgotten && self.anchor.is_empty()
    }

    /// The same while one root takes the place of another: whoever reads this finds the root anew.
    #[must_use]
    pub fn unanchored(self) -> Seen {
        Seen { anchor: String::new(), forgotten: self.is_lost(), ..self }
    }

    /// Nothing seen yet by a root that was just found; time goes on. One found again, because its file was lost, has
    /// signed what has been seen.
    #[must_use]
    pub fn found_by(anchor: &Anchor, before: &Seen) -> Seen {
        let anchor = anchor.describe();
        let again = before.anchor == anchor;
        let channels = if again { before.channels.clone() } else { Vec::new() };
        Seen { anchor, channels, time: before.time, forgotten: again || before.is_lost() }
    }

    /// The bytes of the file.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut body = format!("{{\"anchor\":{},\"channels\":{{", quoted(&self.anchor));
        for (index, SeenChannel { name, version, numbers, expires }) in self.channels.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            let numbers: Vec<_> =
                numbers.iter().map(|(product, number)| format!("{}:{number}", quoted(product))).collect();
            // Writing into a String cannot fail.
            let _ = write!(
                body,
                "{comma}{}:{{\"expires\":{expires},\"numbers\":{{{}}},\"version\":{version}}}",
                quoted(name),
                numbers.join(",")
            );
        }
        let forgotten = if self.forgotten { ",\"forgotten\":true" } else { "" };
        let _ = write!(body, "}}{forgotten},\"time\":{}}}", self.time);
        sealed::seal(KIND, &body)
    }

    /// Reads the bytes of the file.
    pub fn decode(bytes: &[u8]) -> Result<Seen, Unusable> {
        let limits = Limits { bytes: NUMBERS_BYTES_MAX, depth: 8 };
        let body = json::parse(sealed::open(KIND, bytes)?.as_bytes(), limits).map_err(|_| Unusable::Damaged)?;
        let channels = body.get("channels").map(Value::entries).ok_or(Unusable::Damaged)?.map(|(name, channel)| {
            let numbers =
                channel.get("numbers")?.entries().map(|(product, number)| Some((product.into(), number.as_u64()?)));
            let numbers = numbers.collect::<Option<_>>()?;
            // Not known: as long as it takes.
            let expires = channel.get("expires").and_then(Value::as_i64).unwrap_or(i64::MAX);
            Some(SeenChannel { name: name.into(), version: channel.get("version")?.as_u64()?, numbers, expires })
        });
        let read = || {
            Some(Seen {
                anchor: body.get("anchor")?.as_text()?.into(),
                channels: channels.collect::<Option<_>>()?,
                time: body.get("time")?.as_i64()?,
                forgotten: body.get("forgotten").is_some_and(|forgotten| forgotten.as_bool() == Some(true)),
            })
        };
        read().ok_or(Unusable::Damaged)
    }

    /// Judges a genuine channel document by what has been seen, and remembers it.
    pub fn follow(&mut self, channel: &Channel, today: Today) -> Result<(), TrustError> {
        let known = self.channels.iter().position(|seen| seen.name == channel.name);
        if let Some(seen) = known.and_then(|index| self.channels.get(index)) {
            if channel.version < seen.version {
                let (channel, found, seen) = (channel.name.clone(), channel.version, seen.version);
                return Err(TrustError::StepBack { channel, found, seen });
            }
            // Whoever publishes is heard again.
            self.forgotten &= channel.version == seen.version;
            // A newer document may name an older release: a recall. The same one may not.
            for (product, number) in seen.numbers.iter().filter(|_| channel.version == seen.version) {
                let found = channel.entry(product).map_or(0, |entry| entry.number);
                if found < *number {
                    let (channel, product) = (channel.name.clone(), product.clone());
                    return Err(TrustError::ReleaseStepBack { channel, product, found, seen: *number });
                }
            }
        }
        let numbers = channel.products.iter().map(|entry| (entry.product.clone(), entry.number)).collect();
        let expires = channel.expires.unix_seconds();
        let mut seen = SeenChannel { name: channel.name.clone(), version: channel.version, numbers, expires };
        match known.and_then(|index| self.channels.get_mut(index)) {
            Some(known) => {
                if known.expires != i64::MAX {
                    seen.expires = seen.expires.max(known.expires);
                }
                *known = seen;
            }
            None => {
                if self.channels.len() >= CHANNELS_MAX {
                    // What has expired for certain leads nobody backwards.
                    let over = |seen: &SeenChannel| today.synchronised && seen.expires <= today.seconds;
                    let Some(over) = self.channels.iter().position(over) else {
                        return Err(TrustError::ManyChannels { channel: channel.name.clone() });
                    };
                    self.channels.remove(over);
                }
                self.channels.push(seen);
            }
        }
        Ok(())
    }

    /// A new root has come into force. When it changes who signs channels, their numbers start anew: otherwise a stolen
    /// key could have burnt all numbers for ever.
    pub fn rotate(&mut self, old: &Root, new: &Root) {
        if old.channel != new.channel {
            self.channels.clear();
            self.forgotten = false;
        }
    }

    /// The time by which documents are judged: never before a moment that was certain once.
    #[must_use]
    pub fn today(&self, clock: Today) -> Today {
        if clock.synchronised { clock } else { Today { seconds: clock.seconds.max(self.time), ..clock } }
    }
}

/// Lets a document pass that is fresh, or only seems expired by a clock that nothing vouches for (then `true`).
pub fn fresh(what: &str, expires: api::releases::Expires, today: Today) -> Result<bool, TrustError> {
    match expires.at(today.seconds, today.synchronised) {
        Freshness::Fresh => Ok(false),
        Freshness::ExpiredByDoubtfulClock => Ok(true),
        Freshness::Expired => Err(TrustError::Expired { what: what.to_owned(), expired: expires.to_string() }),
    }
}
