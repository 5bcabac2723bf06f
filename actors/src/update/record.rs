//! What is stored at every transition, and where each stored state continues.
//!
//! Entries that a reader does not know are left alone, so that a later agent may add some without another format.

use api::{
    json::{self, Limits, Value, quoted},
    releases::hex,
};
use std::fmt::Write as _;

use super::{
    sealed::{self, Unusable},
    slots::{Installed, Slot, Slots},
    target::{Packed, Promise, Source, Target},
};

/// Largest record: nine pins at their longest, every character escaped. A usual one has half a kilobyte.
pub const RECORD_BYTES_MAX: usize = 64 * 1024;
/// Versions remembered as bad; older ones are forgotten and may be tried again.
pub const BAD_MAX: usize = 4;
/// First word of a record.
const KIND: &str = "update-record";

/// Everything that must survive a power cut.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// The version setting as written, for which `bad` holds.
    pub wanted: String,
    /// What lies where.
    pub slots: Slots,
    /// Where the walk is.
    pub state: State,
    /// Verified versions that failed on this device, oldest first.
    pub bad: Vec<Bad>,
    /// The last wish for another try that was carried out.
    pub retried: u64,
    /// Why the last version was rolled back; empty when none was.
    pub reason: String,
    /// Switches of the agent that came to nothing, and nobody knows why.
    pub unseen: u32,
    /// The fleet server could not be reached before the agent's switch: the new version need not reach it either.
    pub waived: bool,
}

/// Where the walk to another version is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// Nothing to do, or nothing that can be done now.
    Idle(Outcome),
    /// Bytes are arriving, or will again.
    Downloading(Target),
    /// All bytes are there and are being judged.
    Verifying(Target),
    /// Judged good, on the way into the spare slot. The spare's old content is given up.
    Placing(Target, Installed),
    /// The spare slot holds the next version; it becomes active at the next opening.
    Staged,
    /// The same, and the product was told to switch as soon as its maintenance window allows.
    Waiting,
    /// The next version is active now and has not been seen running.
    Switching,
    /// The next version runs and has to prove itself.
    Probation {
        /// Starts of the agent meanwhile: a version that takes the machine down must not be immortal.
        restarts: u32,
    },
}

/// How the last walk ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Outcome {
    /// There was none.
    #[default]
    None,
    /// The active version has proved itself.
    Committed,
    /// The version before is active again.
    RolledBack,
}

impl Default for State {
    fn default() -> Self {
        State::Idle(Outcome::None)
    }
}

/// A verified version that failed here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bad {
    /// As people see it.
    pub version: String,
    /// Digest of its executable.
    pub sha256: [u8; 32],
}

impl State {
    /// The word in the record and in traces.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            State::Idle(_) => "idle",
            State::Downloading(_) => "downloading",
            State::Verifying(_) => "verifying",
            State::Placing(..) => "placing",
            State::Staged => "staged",
            State::Waiting => "waiting",
            State::Switching => "switching",
            State::Probation { .. } => "probation",
        }
    }
}

impl Outcome {
    const ALL: [Outcome; 3] = [Outcome::None, Outcome::Committed, Outcome::RolledBack];

    const fn name(self) -> &'static str {
        match self {
            Outcome::None => "none",
            Outcome::Committed => "committed",
            Outcome::RolledBack => "rolled back",
        }
    }
}

impl Record {
    /// The bytes of the file.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        sealed::seal(KIND, &self.body())
    }

    fn body(&self) -> String {
        let Record { wanted, slots, state, bad, retried, reason, unseen, waived } = self;
        let mut body = String::from("{\"active\":");
        // Writing into a String cannot fail.
        let _ = match slots.active {
            Some(slot) => write!(body, "\"{}\"", slot.name()),
            None => write!(body, "null"),
        };
        body.push_str(",\"bad\":[");
        for (index, Bad { version, sha256 }) in bad.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            let _ = write!(body, "{comma}{{\"sha256\":\"{}\",\"version\":{}}}", hex::encode(sha256), quoted(version));
        }
        body.push(']');
        if !reason.is_empty() {
            let _ = write!(body, ",\"reason\":{}", quoted(reason));
        }
        if *retried > 0 {
            let _ = write!(body, ",\"retried\":{retried}");
        }
        for slot in Slot::ALL {
            if let Some(content) = slots.content(slot) {
                let _ = write!(body, ",\"slot-{}\":{}", slot.name(), installed(content));
            }
        }
        let _ = write!(body, ",\"state\":\"{}\"", state.name());
        match state {
            State::Idle(outcome) => {
                let _ = write!(body, ",\"outcome\":\"{}\"", outcome.name());
            }
            State::Downloading(target) | State::Verifying(target) => {
                let _ = write!(body, ",\"target\":{}", encode_target(target));
            }
            State::Placing(target, content) => {
                let _ = write!(body, ",\"placing\":{},\"target\":{}", installed(content), encode_target(target));
            }
            State::Probation { restarts } => {
                let _ = write!(body, ",\"restarts\":{restarts}");
            }
            State::Staged | State::Waiting | State::Switching => {}
        }
        if *unseen > 0 {
            let _ = write!(body, ",\"unseen\":{unseen}");
        }
        if *waived {
            body.push_str(",\"waived\":true");
        }
        let _ = write!(body, ",\"wanted\":{}}}", quoted(wanted));
        body
    }

    /// Reads the bytes of the file.
    pub fn decode(bytes: &[u8]) -> Result<Record, Unusable> {
        let limits = Limits { bytes: RECORD_BYTES_MAX, depth: 8 };
        let body = json::parse(sealed::open(KIND, bytes)?.as_bytes(), limits).map_err(|_| Unusable::Damaged)?;
        Self::read(body).ok_or(Unusable::Damaged)
    }

    fn read(body: Value<'_>) -> Option<Record> {
        let text = |key| body.get(key).and_then(Value::as_text);
        let content = |key| body.get(key).and_then(read_installed);
        let target = || read_target(body.get("target")?);
        let state = match &*text("state")? {
            "idle" => {
                let outcome = text("outcome")?;
                State::Idle(Outcome::ALL.into_iter().find(|known| known.name() == outcome)?)
            }
            "downloading" => State::Downloading(target()?),
            "verifying" => State::Verifying(target()?),
            "placing" => State::Placing(target()?, content("placing")?),
            "staged" => State::Staged,
            "waiting" => State::Waiting,
            "switching" => State::Switching,
            "probation" => State::Probation { restarts: u32::try_from(body.get("restarts")?.as_u64()?).ok()? },
            _ => return None,
        };
        let bad = body.get("bad")?.items().take(BAD_MAX).map(|bad| {
            let sha256 = hex::decode(&bad.get("sha256")?.as_text()?)?;
            Some(Bad { version: bad.get("version")?.as_text()?.into(), sha256 })
        });
        let slots = Slots {
            active: body.get("active").and_then(Value::as_text).and_then(|name| Slot::named(&name)),
            a: content("slot-a"),
            b: content("slot-b"),
        };
        let number = |key| body.get(key).map_or(Some(0), Value::as_u64);
        Some(Record {
            wanted: text("wanted")?.into(),
            slots,
            state,
            bad: bad.collect::<Option<_>>()?,
            retried: number("retried")?,
            reason: text("reason").unwrap_or_default().into(),
            unseen: u32::try_from(number("unseen")?).ok()?,
            waived: body.get("waived").and_then(Value::as_bool).unwrap_or_default(),
        })
    }

    /// Forgets what was being brought here, and that a version was to be switched to. What lies in the slots, a trial that
    /// has begun and the versions that failed are not forgotten.
    pub fn give_up_walk(&mut self) {
        match self.state {
            State::Downloading(_) | State::Verifying(_) | State::Placing(..) | State::Staged | State::Waiting => {
                self.state = State::default();
            }
            State::Idle(_) | State::Switching | State::Probation { .. } => {}
        }
    }

    /// Remembers a version as bad.
    pub fn remember_bad(&mut self, content: &Installed) {
        self.bad.retain(|bad| bad.sha256 != content.sha256);
        if self.bad.len() == BAD_MAX {
            self.bad.remove(0);
        }
        self.bad.push(Bad { version: content.version.clone(), sha256: content.sha256 });
    }

    /// Whether this very content failed on this device.
    #[must_use]
    pub fn has_failed(&self, content: &Installed) -> bool {
        self.bad.iter().any(|bad| bad.sha256 == content.sha256)
    }

    /// Whether a target is known to fail here: the same bytes, or for a pin the same address.
    #[must_use]
    pub fn is_bad(&self, target: &Target) -> bool {
        self.bad.iter().any(|bad| match target.promise {
            Some(promise) => bad.sha256 == promise.sha256,
            None => bad.version == target.version,
        })
    }
}

fn installed(content: &Installed) -> String {
    let Installed { version, sha256, length, pin } = content;
    let pin = pin.map_or_else(String::new, |pin| format!("\"pin\":\"{}\",", hex::encode(&pin)));
    format!("{{\"length\":{length},{pin}\"sha256\":\"{}\",\"version\":{}}}", hex::encode(sha256), quoted(version))
}

fn read_installed(value: Value<'_>) -> Option<Installed> {
    Some(Installed {
        version: value.get("version")?.as_text()?.into(),
        sha256: hex::decode(&value.get("sha256")?.as_text()?)?,
        length: value.get("length")?.as_u64()?,
        pin: match value.get("pin") {
            Some(pin) => Some(hex::decode(&pin.as_text()?)?),
            None => None,
        },
    })
}

fn encode_target(target: &Target) -> String {
    let Target { version, source, promise } = target;
    let promise = promise.as_ref().map_or_else(String::new, |Promise { sha256, length, packed }| {
        let packed = packed.as_ref().map_or_else(String::new, |Packed { sha256, length }| {
            format!("\"packed\":{{\"length\":{length},\"sha256\":\"{}\"}},", hex::encode(sha256))
        });
        format!("\"length\":{length},{packed}\"sha256\":\"{}\",", hex::encode(sha256))
    });
    let source = match source {
        Source::Web(url) => format!("\"url\":{}", quoted(url)),
        Source::File(path) => format!("\"file\":{}", quoted(&path.to_string_lossy())),
    };
    format!("{{{promise}{source},\"version\":{}}}", quoted(version))
}

fn read_target(value: Value<'_>) -> Option<Target> {
    let text = |key| value.get(key).and_then(Value::as_text);
    let source = match (text("url"), text("file")) {
        (Some(url), None) => Source::Web(url.into()),
        (None, Some(path)) => Source::File(path.into_owned().into()),
        _ => return None,
    };
    let promise = match (value.get("sha256"), value.get("length")) {
        (Some(sha256), Some(length)) => {
            let (sha256, length) = (hex::decode(&sha256.as_text()?)?, length.as_u64()?);
            let packed = match value.get("packed") {
                Some(packed) => Some(Packed {
                    sha256: hex::decode(&packed.get("sha256")?.as_text()?)?,
                    length: packed.get("length")?.as_u64()?,
                }),
                None => None,
            };
            Some(Promise { sha256, length, packed })
        }
        (None, None) => None,
        _ => return None,
    };
    Some(Target { version: text("version")?.into(), source, promise })
}
