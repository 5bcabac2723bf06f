//! A web that is slow, broken, lying or not there, as the test likes.
//!
//! Owns what each address answers and how: latency, bandwidth, where it stops, ends or turns into garbage. Continuing
//! an earlier part is honoured exactly when its validator still holds. Addresses of this very device are answered by
//! the simulated machine server.

use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    rc::Rc,
    time::Duration,
};

use async_trait::async_trait;
use board::{
    Mono,
    fetch::{Download, Downloaded, Fetch, FetchError, Progress, Reply, Validator},
};

use crate::{clock::SimClock, files::SimFiles, power::Alive, process::SimProcesses};

/// Bytes that arrive at once.
pub const CHUNK_BYTES: usize = 64 << 10;
/// Time to an answer, unless a test says otherwise.
pub const LATENCY: Duration = Duration::from_millis(40);
/// Bytes per second on the wire, unless a test says otherwise.
pub const BANDWIDTH: u64 = 10 << 20;
/// How long a network stack tries to connect to an address that never answers.
const CONNECT_MAX: Duration = Duration::from_secs(30);

/// How an answer is spoiled on its way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Spoiled {
    /// The connection ends after this many bytes of the body.
    EndsAfter(u64),
    /// Nothing more comes after this many bytes of the body.
    StallsAfter(u64),
    /// A page of somebody else, with status 200: a hotel that wants to be paid.
    CaptivePage,
    /// One bit is wrong.
    FlippedBit(u64),
}

/// What one address answers.
#[derive(Clone, Debug)]
pub struct Resource {
    /// HTTP status.
    pub status: u16,
    /// The body.
    pub body: Rc<[u8]>,
    /// The server's ETag, if it has one.
    pub validator: Option<Validator>,
    /// Says how long it is before it sends.
    pub says_length: bool,
    /// What goes wrong, each time.
    pub spoiled: Option<Spoiled>,
}

impl Resource {
    /// A healthy answer whose validator is its content.
    #[must_use]
    pub fn of(body: impl Into<Vec<u8>>) -> Self {
        let body: Rc<[u8]> = body.into().into();
        let digest = crate::image::sha256(&body);
        let tag = digest.iter().take(8).fold(String::new(), |tag, byte| format!("{tag}{byte:02x}"));
        let validator = Some(Validator(format!("\"{tag}\"")));
        Resource { status: 200, body, validator, says_length: true, spoiled: None }
    }

    /// An answer that is no.
    #[must_use]
    pub fn refusal(status: u16) -> Self {
        Resource { status, ..Resource::of("no") }
    }

    /// The same, spoiled.
    #[must_use]
    pub fn spoiled(self, how: Spoiled) -> Self {
        Resource { spoiled: Some(how), ..self }
    }
}

/// One request that reached somebody.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    /// How long after the beginning of the world.
    pub at: Duration,
    /// What was asked for.
    pub url: String,
    /// From which byte on.
    pub from: u64,
}

struct Inner {
    clock: SimClock,
    resources: RefCell<BTreeMap<String, Resource>>,
    asked: RefCell<Vec<Asked>>,
    online: Cell<bool>,
    captive: Cell<bool>,
    latency: Cell<Duration>,
    bandwidth: Cell<u64>,
}

/// The web, as the test sees it.
#[derive(Clone)]
pub struct SimWeb {
    inner: Rc<Inner>,
}

impl SimWeb {
    pub(crate) fn new(clock: &SimClock) -> Self {
        SimWeb {
            inner: Rc::new(Inner {
                clock: clock.clone(),
                resources: RefCell::default(),
                asked: RefCell::default(),
                online: Cell::new(true),
                captive: Cell::new(false),
                latency: Cell::new(LATENCY),
                bandwidth: Cell::new(BANDWIDTH),
            }),
        }
    }

    /// From now on `url` answers this.
    pub fn serve(&self, url: impl Into<String>, resource: Resource) {
        self.inner.resources.borrow_mut().insert(url.into(), resource);
    }

    /// From now on `url` answers 404.
    pub fn withdraw(&self, url: &str) {
        self.inner.resources.borrow_mut().remove(url);
    }

    /// What `url` answers.
    #[must_use]
    pub fn resource(&self, url: &str) -> Option<Resource> {
        self.inner.resources.borrow().get(url).cloned()
    }

    /// Every request so far, oldest first.
    #[must_use]
    pub fn asked(&self) -> Vec<Asked> {
        self.inner.asked.borrow().clone()
    }

    /// Whether anything beyond this device can be reached.
    #[must_use]
    pub fn is_online(&self) -> bool {
        self.inner.online.get()
    }

    /// Connects or disconnects the device. What was arriving stops.
    pub fn set_online(&self, online: bool) {
        self.inner.online.set(online);
    }

    /// Puts a page in between that answers every plain request itself.
    pub fn set_captive(&self, captive: bool) {
        self.inner.captive.set(captive);
    }

    /// Whether somebody's page answers every plain request.
    #[must_use]
    pub fn is_captive(&self) -> bool {
        self.inner.captive.get()
    }

    /// Time to an answer.
    pub fn set_latency(&self, latency: Duration) {
        self.inner.latency.set(latency);
    }

    /// Time to an answer.
    #[must_use]
    pub fn latency(&self) -> Duration {
        self.inner.latency.get()
    }

    /// Bytes per second.
    ///
    /// # Panics
    /// When zero: a stall is made with [`Spoiled::StallsAfter`].
    pub fn set_bandwidth(&self, bytes_per_second: u64) {
        assert!(bytes_per_second > 0, "a stall is something else");
        self.inner.bandwidth.set(bytes_per_second);
    }

    fn answer(&self, url: &str, from: u64) -> Resource {
        let at = self.inner.clock.elapsed();
        self.inner.asked.borrow_mut().push(Asked { at, url: url.to_owned(), from });
        let found = self.resource(url).unwrap_or_else(|| Resource::refusal(404));
        if self.inner.captive.get() || found.spoiled == Some(Spoiled::CaptivePage) {
            return Resource { validator: None, ..Resource::of("<html>Welcome! Please pay for your stay.</html>") };
        }
        match found.spoiled {
            Some(Spoiled::FlippedBit(at)) => {
                let mut body = found.body.to_vec();
                if let Some(byte) = body.get_mut(usize::try_from(at).unwrap_or(usize::MAX)) {
                    *byte ^= 4;
                }
                Resource { body: body.into(), spoiled: None, ..found }
            }
            _ => found,
        }
    }
}

/// An address without what may be secret in it.
fn shown(url: &str) -> String {
    let plain = url.split(['?', '#']).next().unwrap_or_default();
    match plain.split_once("://").map(|(scheme, rest)| (scheme, rest.split_once('@'))) {
        Some((scheme, Some((user, rest)))) if !user.contains('/') => format!("{scheme}://…@{rest}"),
        _ => plain.to_owned(),
    }
}

fn is_local(url: &str) -> bool {
    let rest = url.strip_prefix("http://").unwrap_or_default();
    rest.starts_with("127.") || rest.starts_with("localhost") || rest.starts_with("[::1]")
}

/// The web as the agent of one boot sees it.
pub(crate) struct FetchPort {
    pub(crate) web: SimWeb,
    pub(crate) disk: SimFiles,
    pub(crate) processes: SimProcesses,
    pub(crate) alive: Alive,
}

/// Why nothing came.
enum Nothing {
    Offline,
    TooLate,
}

impl FetchPort {
    /// Waits for `wait`, but not beyond `end`; `Err` when that came first or the network went away meanwhile.
    async fn wait(&self, wait: Duration, end: Mono) -> Result<(), Nothing> {
        let clock = &self.web.inner.clock;
        let until = clock.mono() + wait;
        clock.until(until.min(end)).await;
        self.alive.or_for_ever().await;
        match () {
            () if until > end => Err(Nothing::TooLate),
            () if !self.web.is_online() => Err(Nothing::Offline),
            () => Ok(()),
        }
    }

    async fn reach(&self, url: &str, limit: Duration) -> Result<(), FetchError> {
        if !url.starts_with("http://") && !url.starts_with("https://") {
            return Err(FetchError::BadUrl { url: shown(url) });
        }
        let unreachable = |reason: &str| FetchError::Unreachable { url: shown(url), reason: reason.to_owned() };
        let end = self.web.inner.clock.mono() + limit.min(CONNECT_MAX);
        match self.wait(self.web.latency(), end).await {
            Ok(()) if self.web.inner.captive.get() && url.starts_with("https://") => {
                Err(unreachable("the certificate is not the server's"))
            }
            Ok(()) => Ok(()),
            Err(Nothing::Offline) => Err(unreachable("no route to host")),
            Err(Nothing::TooLate) => Err(unreachable("timed out")),
        }
    }

    fn check_space(&self, what: &Download, needed: u64) -> Result<(), FetchError> {
        let free = self.disk.free();
        if needed.saturating_add(what.reserve) > free {
            return Err(FetchError::NoSpace { needed, free, reserve: what.reserve });
        }
        Ok(())
    }

    /// Streams the body from byte `have` on into the file.
    async fn stream(
        &self,
        what: &Download,
        found: &Resource,
        progress: &Progress,
        end: Mono,
    ) -> Result<u64, FetchError> {
        let (url, rate) = (shown(&what.url), what.rate.unwrap_or(u64::MAX).min(self.web.inner.bandwidth.get()).max(1));
        loop {
            let have = progress.have.get();
            let at = usize::try_from(have).unwrap_or(usize::MAX);
            let mut chunk = found.body.get(at..).unwrap_or_default();
            chunk = chunk.get(..CHUNK_BYTES).unwrap_or(chunk);
            if let Some(Spoiled::EndsAfter(limit) | Spoiled::StallsAfter(limit)) = found.spoiled {
                let left = usize::try_from(limit.saturating_sub(have)).unwrap_or(usize::MAX);
                chunk = chunk.get(..left).unwrap_or(chunk);
            }
            if chunk.is_empty() {
                match found.spoiled {
                    Some(Spoiled::StallsAfter(_)) => {
                        let _ = self.wait(what.stall, end).await;
                        return Err(FetchError::Stalled { url, have });
                    }
                    Some(Spoiled::EndsAfter(_)) if found.says_length && have < found.body.len() as u64 => {
                        return Err(FetchError::Truncated { url, have, expected: found.body.len() as u64 });
                    }
                    _ => return Ok(have),
                }
            }
            let takes = Duration::from_nanos((chunk.len() as u64).saturating_mul(1_000_000_000) / rate);
            match self.wait(takes, end).await {
                Ok(()) => {}
                Err(Nothing::TooLate) => return Err(FetchError::Stalled { url, have }),
                Err(Nothing::Offline) => {
                    let _ = self.wait(what.stall, end).await;
                    return Err(FetchError::Stalled { url, have });
                }
            }
            let longer = have + chunk.len() as u64;
            if longer > what.bytes_max {
                return Err(FetchError::TooLong { url, limit: what.bytes_max });
            }
            if !found.says_length {
                self.check_space(what, chunk.len() as u64)?;
            }
            self.disk.stream_chunk(&self.alive, &what.into, chunk)?;
            progress.have.set(longer);
        }
    }
}

#[async_trait(?Send)]
impl Fetch for FetchPort {
    async fn download(&self, what: &Download, progress: &Progress) -> Result<Downloaded, FetchError> {
        let end = self.web.inner.clock.mono() + what.total;
        let held = self.disk.content(&what.into).map_or(0, |content| content.len() as u64);
        let asked_from = if what.validator.is_some() { held } else { 0 };
        self.reach(&what.url, what.total).await?;
        let found = self.web.answer(&what.url, asked_from);
        if found.status != 200 {
            return Err(FetchError::Refused { url: shown(&what.url), status: found.status });
        }
        let length = found.body.len() as u64;
        let resumed = asked_from > 0 && found.validator == what.validator && held <= length;
        let from = if resumed { held } else { 0 };
        if found.says_length {
            if length > what.bytes_max {
                return Err(FetchError::TooLong { url: shown(&what.url), limit: what.bytes_max });
            }
            let given_back = if resumed { 0 } else { held };
            self.check_space(what, (length - from).saturating_sub(given_back))?;
        }
        progress.expected.set(found.says_length.then_some(length));
        progress.have.set(from);
        // The old bytes go first: whoever stores the new validator must not find it beside the old content.
        self.disk.stream_begin(&self.alive, &what.into, usize::try_from(from).unwrap_or(usize::MAX))?;
        progress.validator.replace(found.validator.clone());
        let len = self.stream(what, &found, progress, end).await?;
        Ok(Downloaded { len, resumed })
    }

    async fn get(&self, url: &str, local: bool, limit: Duration, bytes_max: usize) -> Result<Reply, FetchError> {
        self.alive.or_for_ever().await;
        if is_local(url) {
            assert!(local, "{url} is on this device: no proxy may be asked for it");
            return self.ask_machine_server(url, limit, bytes_max).await;
        }
        self.reach(url, limit).await?;
        let found = self.web.answer(url, 0);
        let too_long = FetchError::TooLong { url: shown(url), limit: bytes_max as u64 };
        match found.spoiled {
            _ if found.body.len() > bytes_max => Err(too_long),
            Some(Spoiled::EndsAfter(have)) => {
                Err(FetchError::Truncated { url: shown(url), have, expected: found.body.len() as u64 })
            }
            Some(Spoiled::StallsAfter(have)) => {
                let clock = &self.web.inner.clock;
                clock.until(clock.mono() + limit).await;
                Err(FetchError::Stalled { url: shown(url), have })
            }
            _ => Ok(Reply { status: found.status, body: found.body.to_vec() }),
        }
    }
}

impl FetchPort {
    async fn ask_machine_server(&self, url: &str, limit: Duration, bytes_max: usize) -> Result<Reply, FetchError> {
        let clock = &self.web.inner.clock;
        clock.until(clock.mono() + Duration::from_millis(1)).await;
        self.alive.or_for_ever().await;
        match self.processes.status_page(url) {
            Ok(Some((_, body))) if body.len() > bytes_max => {
                Err(FetchError::TooLong { url: shown(url), limit: bytes_max as u64 })
            }
            Ok(Some((status, body))) => Ok(Reply { status, body: body.into_bytes() }),
            Ok(None) => Err(FetchError::Unreachable { url: shown(url), reason: "connection refused".to_owned() }),
            Err(()) => {
                clock.until(clock.mono() + limit).await;
                Err(FetchError::Stalled { url: shown(url), have: 0 })
            }
        }
    }
}
