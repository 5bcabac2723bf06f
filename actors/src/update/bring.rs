//! Brings bytes here, has them judged, and moves them into a slot. One attempt each; what a failure means is decided
//! elsewhere.

use std::{
    cell::Cell,
    path::{Path, PathBuf},
    rc::Rc,
    time::Duration,
};

use api::brand;
use board::{
    Mono,
    fetch::{Download, FetchError, Progress, Validator},
    files::{Access, DICTIONARY_BYTES_MAX, Digest, FileError, UnpackError},
};
use smol::future::FutureExt as _;

use super::{
    actor::Ports,
    events::{Trouble, VerifyTrouble},
    note,
    slots::{Installed, Layout, Slot},
    target::{Promise, Source, Target},
    verify::{self, HEAD_BYTES, Refusal},
};
use crate::kit::latest::Latest;

/// A download is given up when nothing arrives for this long.
const STALL: Duration = Duration::from_secs(60);
/// A download may take this long: a large release over a slow line at night. Then it is continued.
const DOWNLOAD_LIMIT: Duration = Duration::from_secs(12 * 3600);
/// How often a running download is looked at.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// Percents that are worth telling.
const PERCENT_STEP: u32 = 5;
/// Largest file of a validator: an address and a tag.
const VALIDATOR_BYTES_MAX: usize = 4 * 1024;

/// What was gained of a download, over all attempts: only bytes beyond the most there ever were.
#[derive(Clone, Default)]
pub(super) struct Gain {
    /// The most bytes that were here; 0 before the first, and after they were discarded.
    pub(super) most: Rc<Cell<u64>>,
    /// When there were more than before last, or the room for them was taken.
    pub(super) at: Rc<Cell<Mono>>,
}

impl Gain {
    /// The first attempt with the room for it.
    pub(super) fn begins(&self, now: Mono) {
        self.most.set(0);
        self.at.set(now);
    }

    fn has(&self, bytes: u64, now: Mono) {
        if bytes > self.most.get() {
            self.most.set(bytes);
            self.at.set(now);
        }
    }
}

/// One attempt to bring bytes here.
pub(super) struct Bringing {
    pub(super) ports: Rc<Ports>,
    pub(super) partial: PathBuf,
    pub(super) validator: PathBuf,
    pub(super) percent: Latest<u32>,
    pub(super) gain: Gain,
    pub(super) rate: Option<u64>,
    pub(super) reserve: u64,
}

impl Bringing {
    pub(super) async fn bring(&self, target: &Target) -> Result<(), Trouble> {
        match &target.source {
            Source::Web(url) => self.fetch(url, target).await,
            Source::File(path) => {
                self.remove(&self.validator)?;
                let free = self.ports.files.space(&self.partial).map_err(|error| local(&error))?.free;
                let room = free.saturating_sub(self.reserve);
                let limit = target.bytes_max().min(room);
                let copied = self.ports.files.copy(path, &self.partial, limit).await;
                copied.map(drop).map_err(|error| match error.source.kind() {
                    std::io::ErrorKind::FileTooLarge => Trouble::Local(format!(
                        "{} is larger than the {limit} bytes there is room for: make room on the disk",
                        path.display()
                    )),
                    _ => local(&error),
                })
            }
        }
    }

    async fn fetch(&self, url: &str, target: &Target) -> Result<(), Trouble> {
        let files = &self.ports.files;
        let kept = files.read(&self.validator, VALIDATOR_BYTES_MAX).ok().flatten();
        let validator = kept.and_then(|kept| read_validator(&kept, url));
        if validator.is_none() {
            // Bytes of something else, or nobody knows of what.
            self.remove(&self.validator)?;
            self.remove(&self.partial)?;
        }
        // Room for what is unpacked is kept free from the beginning: to find out at the end would cost the download.
        let to_unpack = target.to_unpack();
        let what = Download {
            url: url.to_owned(),
            into: self.partial.clone(),
            validator,
            bytes_max: target.bytes_max(),
            stall: STALL,
            total: DOWNLOAD_LIMIT,
            rate: self.rate,
            reserve: self.reserve.saturating_add(to_unpack),
        };
        let progress = Progress::default();
        let mut shown = Shown { validator: what.validator.clone(), percent: 0 };
        let ending = async { Some(self.ports.fetch.download(&what, &progress).await) };
        let mut ending = std::pin::pin!(ending);
        let result = loop {
            let look = async {
                self.ports.clock.sleep_until(self.ports.clock.now() + LOOK_EVERY).await;
                None
            };
            let ended = ending.as_mut().or(look).await;
            self.show(url, target, &progress, &mut shown);
            if let Some(result) = ended {
                break result;
            }
        };
        result.map(drop).map_err(|error| sorted(&error, target))
    }

    /// Keeps the validator beside the bytes it belongs to, and tells how far they are.
    fn show(&self, url: &str, target: &Target, progress: &Progress, shown: &mut Shown) {
        let validator = progress.validator.borrow().clone();
        if validator.is_some() && validator != shown.validator {
            if let Some(Validator(tag)) = &validator {
                let text = format!("{url}\n{tag}\n");
                if let Err(error) = self.ports.files.write(&self.validator, text.as_bytes(), Access::Private) {
                    log::warn!("{error}: a download that is cut begins anew");
                }
            }
            shown.validator = validator;
        }
        self.gain.has(progress.have.get(), self.ports.clock.now());
        let expected = target.promise.map(|_| target.bytes_max()).or(progress.expected.get());
        let percent = expected.filter(|expected| *expected > 0).map_or(0, |expected| {
            u32::try_from(progress.have.get().saturating_mul(100) / expected).unwrap_or(0).min(100)
        });
        let percent = percent - percent % PERCENT_STEP;
        if percent != shown.percent {
            shown.percent = percent;
            self.percent.publish(percent);
        }
    }

    fn remove(&self, path: &Path) -> Result<(), Trouble> {
        self.ports.files.remove(path).map_err(|error| local(&error))
    }
}

/// What has been told about a download.
struct Shown {
    validator: Option<Validator>,
    percent: u32,
}

/// The validator, if it belongs to this address.
fn read_validator(kept: &[u8], url: &str) -> Option<Validator> {
    let (of, tag) = std::str::from_utf8(kept).ok()?.strip_suffix('\n')?.split_once('\n')?;
    (of == url && !tag.is_empty()).then(|| Validator(tag.to_owned()))
}

/// What helps against a failed download.
fn sorted(error: &FetchError, target: &Target) -> Trouble {
    let reason = format!("{} could not be downloaded: {error}", target.version);
    match error {
        FetchError::Unreachable { .. } | FetchError::Stalled { .. } | FetchError::Truncated { .. } => {
            Trouble::Network(reason)
        }
        // "Later", "too often" and whatever is wrong with the server itself: the bytes that are here stay good.
        FetchError::Refused { status: 408 | 425 | 429 | 500.., .. } => Trouble::Network(reason),
        FetchError::TooLong { .. } | FetchError::Refused { .. } | FetchError::BadUrl { .. } => Trouble::Bytes(reason),
        FetchError::NoSpace { .. } => Trouble::Local(reason),
        FetchError::File(error) => local(error),
    }
}

fn local(error: &FileError) -> Trouble {
    Trouble::Local(format!("{error}: {}", error.source))
}

/// Judges the bytes that have arrived, and unpacks those that are packed: afterwards the executable lies in their place.
pub(super) struct Judging {
    pub(super) ports: Rc<Ports>,
    pub(super) layout: Layout,
    pub(super) reserve: u64,
}

impl Judging {
    pub(super) async fn judge(&self, target: Target) -> Result<Installed, VerifyTrouble> {
        let (files, partial) = (&self.ports.files, self.layout.partial());
        // On stable storage first: what is judged good must be the same after a power cut.
        files.set_access(&partial, Access::Private).map_err(|error| unreadable(&error))?;
        let arrived = files.digest(&partial).await.map_err(|error| unreadable(&error))?;
        let digest = match target.promise {
            // A power cut may have come after they were unpacked.
            Some(Promise { packed: Some(packed), sha256, .. }) if arrived.sha256 != sha256 => {
                let (found, wanted) = (arrived.len, packed.length);
                match () {
                    () if found != wanted => return Err(VerifyTrouble::Refused(Refusal::Length { found, wanted })),
                    () if arrived.sha256 != packed.sha256 => return Err(VerifyTrouble::Refused(Refusal::Digest)),
                    () => self.unpack(&target).await?,
                }
            }
            None if verify::is_xz(&self.head()?) => self.unpack(&target).await?,
            Some(_) | None => arrived,
        };
        verify::check(&target, &digest, &self.head()?, &self.ports.platform).map_err(VerifyTrouble::Refused)?;
        // Windows has no such notes.
        if self.layout.product() == brand::AGENT && self.ports.platform.starts_with("linux/") {
            let read = |offset, length| files.read_at(&partial, offset, length);
            let note = note::find(read).map_err(|error| unreadable(&error))?;
            verify::check_note(&target, note.as_ref(), brand::AGENT).map_err(VerifyTrouble::Refused)?;
        }
        let pin = target.pin();
        Ok(Installed { version: target.version, sha256: digest.sha256, length: digest.len, pin })
    }

    fn head(&self) -> Result<Vec<u8>, VerifyTrouble> {
        self.ports.files.read_at(&self.layout.partial(), 0, HEAD_BYTES).map_err(|error| unreadable(&error))
    }

    async fn unpack(&self, target: &Target) -> Result<Digest, VerifyTrouble> {
        let (files, packed, unpacked) = (&self.ports.files, self.layout.partial(), self.layout.unpacked());
        // What an earlier life left of it would take the room from its own successor.
        files.remove(&unpacked).map_err(|error| unreadable(&error))?;
        let free = files.space(&packed).map_err(|error| unreadable(&error))?.free;
        let (room, wanted) = (free.saturating_sub(self.reserve), target.unpacked_max());
        if !target.is_pin() && room < wanted {
            return Err(VerifyTrouble::Unreadable(no_room(target, wanted, free, self.reserve)));
        }
        let digest = match files.unpack(&packed, &unpacked, wanted.min(room)).await {
            Ok(digest) => digest,
            Err(UnpackError::File(error)) => return Err(unreadable(&error)),
            // Nobody promised how much is inside: the disk is the limit.
            Err(UnpackError::TooLong { limit, .. }) if limit < wanted => {
                return Err(VerifyTrouble::Unreadable(no_room(target, limit, free, self.reserve)));
            }
            Err(error) => return Err(VerifyTrouble::Refused(Refusal::Packed { reason: advice(&error, target) })),
        };
        if let Some(Promise { sha256, length, .. }) = target.promise
            && (sha256, length) != (digest.sha256, digest.len)
        {
            let reason = "what is inside is not what was signed: sign the release anew".to_owned();
            files.remove(&unpacked).map_err(|error| unreadable(&error))?;
            return Err(VerifyTrouble::Refused(Refusal::Packed { reason }));
        }
        files.set_access(&unpacked, Access::Private).map_err(|error| unreadable(&error))?;
        // Whoever downloads again must not go on from the end of the executable.
        files.remove(&self.layout.validator()).map_err(|error| unreadable(&error))?;
        files.rename(&unpacked, &packed).map_err(|error| unreadable(&error))?;
        Ok(digest)
    }
}

fn unreadable(error: &FileError) -> VerifyTrouble {
    VerifyTrouble::Unreadable(format!("{error}: {}", error.source))
}

/// What helps against a stream that was not unpacked.
fn advice(error: &UnpackError, target: &Target) -> String {
    match error {
        UnpackError::Malformed { reason, .. } => format!("it is not one whole xz stream ({reason}); pack it anew"),
        UnpackError::Dictionary { .. } => format!(
            "its dictionary is larger than the {0} MiB this agent has memory for; pack it with `xz --lzma2=dict={0}MiB`",
            DICTIONARY_BYTES_MAX >> 20
        ),
        UnpackError::TooLong { limit, .. } if target.is_pin() => format!("there are more than {limit} bytes in it"),
        UnpackError::TooLong { limit, .. } => {
            format!("there is more in it than the {limit} bytes of the signed release; sign the release anew")
        }
        UnpackError::File(error) => error.to_string(),
    }
}

fn no_room(target: &Target, needed: u64, free: u64, reserve: u64) -> String {
    format!(
        "{} needs {needed} bytes unpacked, and {free} are free, of which {reserve} must stay free: make room on the disk",
        target.version
    )
}

/// Moves judged bytes into a slot. After a power cut they may be there already.
pub(super) async fn place(
    ports: &Ports,
    partial: &Path,
    layout: &Layout,
    slot: Slot,
    installed: &Installed,
) -> Result<(), Trouble> {
    let (files, executable) = (&ports.files, layout.executable(slot));
    let folder = partial.parent().map(|folder| files.list(folder)).transpose().map_err(|error| local(&error))?;
    let arrived = folder.into_iter().flatten().any(|entry| partial.ends_with(&entry.name));
    if arrived {
        files.make_folder(&layout.folder(slot), Access::Executable).map_err(|error| local(&error))?;
        files.set_access(partial, Access::Executable).map_err(|error| local(&error))?;
        files.rename(partial, &executable).map_err(|error| local(&error))?;
        return files.remove(&layout.validator()).map_err(|error| local(&error));
    }
    let digest = files.digest(&executable).await.map_err(|error| local(&error))?;
    if (digest.sha256, digest.len) == (installed.sha256, installed.length) {
        Ok(())
    } else {
        Err(Trouble::Network(format!("{} was lost on its way into its slot and is fetched again", installed.version)))
    }
}
