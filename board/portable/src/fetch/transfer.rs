//! One attempt, on its thread: asks, decides whether what is there may be continued, and copies until a limit is met.

use std::{
    fs::{File, OpenOptions},
    io::{self, Read as _, Seek as _, SeekFrom, Write as _},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use board::{
    fetch::{Download, Downloaded, FetchError, Progress, Reply, Validator},
    files::{Access, FileError},
};
use smol::channel::{Receiver, Sender};
use ureq::{
    Agent, Body,
    http::{HeaderMap, Response, StatusCode, header},
};

use crate::{files, work::Abandon};

/// Copied at a time.
const CHUNK_BYTES: usize = 16 * 1024;
/// What a power cut may cost of a download, and what may wait in the system's memory for the disk.
const SYNC_EVERY_BYTES: u64 = 8 << 20;
/// Whoever shows the progress is woken this often at most.
const SHOW_EVERY: Duration = Duration::from_millis(500);
/// An abandoned thread that keeps a rate notices within this time.
const NAP_MAX: Duration = Duration::from_millis(200);
/// No length known.
const UNKNOWN: u64 = u64::MAX;

/// How far the thread is, told to the executor's side.
#[derive(Clone)]
pub(super) struct Meter {
    numbers: Arc<Numbers>,
    moved: Sender<()>,
}

struct Numbers {
    have: AtomicU64,
    expected: AtomicU64,
    validator: Mutex<Option<Validator>>,
}

impl Meter {
    pub(super) fn new() -> (Self, Receiver<()>) {
        let (moved, receiver) = smol::channel::bounded(1);
        let numbers =
            Numbers { have: AtomicU64::new(0), expected: AtomicU64::new(UNKNOWN), validator: Mutex::new(None) };
        (Meter { numbers: Arc::new(numbers), moved }, receiver)
    }

    pub(super) fn show(&self, progress: &Progress) {
        progress.have.set(self.numbers.have.load(Ordering::Acquire));
        let expected = self.numbers.expected.load(Ordering::Acquire);
        progress.expected.set((expected != UNKNOWN).then_some(expected));
        progress.validator.replace(self.numbers.validator.lock().unwrap_or_else(PoisonError::into_inner).clone());
    }

    fn has(&self, have: u64) {
        self.numbers.have.store(have, Ordering::Release);
    }

    fn expects(&self, have: u64, expected: Option<u64>, validator: Option<Validator>) {
        self.has(have);
        self.numbers.expected.store(expected.unwrap_or(UNKNOWN), Ordering::Release);
        *self.numbers.validator.lock().unwrap_or_else(PoisonError::into_inner) = validator;
        self.moved();
    }

    fn moved(&self) {
        // One notice that nobody has read yet says the same.
        let _ = self.moved.try_send(());
    }
}

pub(super) struct Job {
    pub(super) what: Download,
    pub(super) shown: String,
    pub(super) meter: Meter,
}

pub(super) struct Transfer<'a> {
    job: &'a Job,
    agent: &'a Agent,
    abandon: &'a Abandon,
    started: Instant,
}

/// What the server's answer means for the file.
enum Answer {
    /// Its body is the resource from byte `from` on.
    Body { from: u64, response: Response<Body> },
    /// The file holds the whole resource.
    Complete,
    /// What is there cannot be continued.
    StartOver,
}

impl<'a> Transfer<'a> {
    pub(super) fn new(job: &'a Job, agent: &'a Agent, abandon: &'a Abandon) -> Self {
        Transfer { job, agent, abandon, started: Instant::now() }
    }

    pub(super) fn run(&self) -> Result<Downloaded, FetchError> {
        let what = &self.job.what;
        let mut file = self.open()?;
        let present = file.metadata().map_err(self.file_failed("read"))?.len();
        let resumable = (1..=what.bytes_max).contains(&present);
        if let Some(validator) = what.validator.as_ref().filter(|_| resumable) {
            match self.ask(Some((present, validator)))? {
                Answer::Body { from, response } => return self.copy(file, from, response),
                Answer::Complete => {
                    self.job.meter.expects(present, Some(present), Some(validator.clone()));
                    return Ok(Downloaded { len: present, resumed: true });
                }
                Answer::StartOver => {}
            }
        }
        match self.ask(None)? {
            Answer::Body { from, response } => self.copy(file, from, response),
            // A server that answers a plain request with a part or "out of range" is no server for us.
            Answer::Complete | Answer::StartOver => {
                file.seek(SeekFrom::Start(0)).map_err(self.file_failed("read"))?;
                Err(FetchError::Refused { url: self.job.shown.clone(), status: 416 })
            }
        }
    }

    fn ask(&self, part: Option<(u64, &Validator)>) -> Result<Answer, FetchError> {
        let mut request = self.agent.get(&self.job.what.url);
        if let Some((present, validator)) = part {
            request = request.header(header::RANGE, format!("bytes={present}-")).header(header::IF_RANGE, &validator.0);
        }
        let response = request.call().map_err(|error| self.failed(error, 0))?;
        if let Some(encoding) =
            response.headers().get(header::CONTENT_ENCODING).filter(|encoding| *encoding != "identity")
        {
            // Its digest and length would be those of other bytes.
            let encoding = encoding.to_str().unwrap_or("in some way").chars().take(32).collect::<String>();
            let reason =
                format!("it sends the file encoded ({encoding}), which was not asked for: check proxies on the way");
            return Err(FetchError::Unreachable { url: self.job.shown.clone(), reason });
        }
        let present = part.map_or(0, |(present, _)| present);
        match (response.status(), part) {
            (StatusCode::OK, _) => Ok(Answer::Body { from: 0, response }),
            (StatusCode::PARTIAL_CONTENT, Some((_, validator))) => {
                let same = validator_of(response.headers()).is_none_or(|now| now == *validator);
                let fits = content_range(response.headers()).is_some_and(|range| {
                    range.first == Some(present) && range.total.is_none_or(|total| total > present)
                });
                Ok(if same && fits { Answer::Body { from: present, response } } else { Answer::StartOver })
            }
            (StatusCode::RANGE_NOT_SATISFIABLE, Some(_)) => {
                let total = content_range(response.headers()).and_then(|range| range.total);
                Ok(if total == Some(present) { Answer::Complete } else { Answer::StartOver })
            }
            (status, _) => Err(FetchError::Refused { url: self.job.shown.clone(), status: status.as_u16() }),
        }
    }

    fn copy(&self, mut file: File, from: u64, response: Response<Body>) -> Result<Downloaded, FetchError> {
        let Job { what, shown, meter } = self.job;
        // A part names the whole length after the slash; without it, the part's own length has to do.
        let announced = content_range(response.headers())
            .filter(|_| from > 0)
            .and_then(|range| range.total)
            .or_else(|| Some(from.saturating_add(response.body().content_length()?)));
        let too_long = || FetchError::TooLong { url: shown.clone(), limit: what.bytes_max };
        if announced.is_some_and(|announced| announced > what.bytes_max) {
            return Err(too_long());
        }
        file.set_len(from).and_then(|()| file.seek(SeekFrom::Start(from))).map_err(self.file_failed("write"))?;
        meter.expects(from, announced, validator_of(response.headers()));
        self.has_room(announced.map_or(CHUNK_BYTES as u64, |announced| announced.saturating_sub(from)))?;

        // Our own limit is checked below; the client's would be an error that says less.
        let mut body = response.into_body().into_with_config().limit(u64::MAX).reader();
        let mut buffer = vec![0; CHUNK_BYTES];
        let (mut have, mut unsynced, mut shown_at) = (from, 0, Instant::now());
        loop {
            let count = match body.read(&mut buffer) {
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => {
                    self.sync(&file)?;
                    return Err(self.cut_short(error, have, announced));
                }
            };
            if count == 0 {
                break;
            }
            have += count as u64;
            if have > what.bytes_max {
                return Err(too_long());
            }
            file.write_all(buffer.get(..count).unwrap_or_default()).map_err(self.file_failed("write"))?;
            meter.has(have);
            unsynced += count as u64;
            if unsynced >= SYNC_EVERY_BYTES {
                self.sync(&file)?;
                self.has_room(announced.map_or(SYNC_EVERY_BYTES, |announced| announced.saturating_sub(have)))?;
                unsynced = 0;
            }
            if shown_at.elapsed() >= SHOW_EVERY {
                meter.moved();
                shown_at = Instant::now();
            }
            self.keep_rate(have - from);
            if self.abandon.is_wanted() || self.started.elapsed() > what.total {
                self.sync(&file)?;
                return Err(FetchError::Stalled { url: shown.clone(), have });
            }
        }
        self.sync(&file)?;
        match announced {
            Some(expected) if have < expected => Err(FetchError::Truncated { url: shown.clone(), have, expected }),
            _ => Ok(Downloaded { len: have, resumed: from > 0 }),
        }
    }

    fn open(&self) -> Result<File, FetchError> {
        let path = &self.job.what.into;
        match files::open(OpenOptions::new().read(true).write(true), path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                files::make_folder(files::folder_of(path), Access::Private)
                    .and_then(|()| files::open_new(path, Access::Private))
                    .map_err(self.file_failed("make"))
            }
            opened => opened.map_err(self.file_failed("open")),
        }
    }

    fn has_room(&self, needed: u64) -> Result<(), FetchError> {
        let what = &self.job.what;
        let free = files::space(files::folder_of(&what.into)).map_err(self.file_failed("ask for the free space of"))?;
        match free.free.checked_sub(what.reserve) {
            Some(room) if room >= needed => Ok(()),
            _ => Err(FetchError::NoSpace { needed, free: free.free, reserve: what.reserve }),
        }
    }

    /// Sleeps while more than the allowed rate has arrived. The server is held back by its full window meanwhile.
    fn keep_rate(&self, arrived: u64) {
        let Some(rate) = self.job.what.rate.filter(|rate| *rate > 0) else { return };
        #[expect(clippy::cast_precision_loss, reason = "a pause does not need the last bit")]
        let due = Duration::try_from_secs_f64(arrived as f64 / rate as f64).unwrap_or(self.job.what.total);
        while !self.abandon.is_wanted() && self.started.elapsed() < due.min(self.job.what.total) {
            thread::sleep(due.saturating_sub(self.started.elapsed()).min(NAP_MAX));
        }
    }

    fn sync(&self, file: &File) -> Result<(), FetchError> {
        file.sync_data().map_err(self.file_failed("write"))
    }

    fn file_failed(&self, attempted: &'static str) -> impl FnOnce(io::Error) -> FetchError {
        let path = self.job.what.into.clone();
        move |source| FetchError::File(FileError { attempted, path, source })
    }

    fn failed(&self, error: ureq::Error, have: u64) -> FetchError {
        failed(error, &self.job.shown, have)
    }

    fn cut_short(&self, error: io::Error, have: u64, announced: Option<u64>) -> FetchError {
        match (error.kind(), announced) {
            (io::ErrorKind::UnexpectedEof, Some(expected)) => {
                FetchError::Truncated { url: self.job.shown.clone(), have, expected }
            }
            _ => self.failed(error.downcast::<ureq::Error>().unwrap_or_else(ureq::Error::Io), have),
        }
    }
}

/// Asks for a small document.
pub(super) fn get(agent: &Agent, url: &str, shown: &str, bytes_max: usize) -> Result<Reply, FetchError> {
    let response = agent.get(url).call().map_err(|error| failed(error, shown, 0))?;
    let status = response.status().as_u16();
    let mut body = Vec::new();
    let limit = (bytes_max as u64).saturating_add(1);
    let reader = response.into_body().into_with_config().limit(u64::MAX).reader();
    reader.take(limit).read_to_end(&mut body).map_err(|error| {
        let error = error.downcast::<ureq::Error>().unwrap_or_else(ureq::Error::Io);
        failed(error, shown, body.len() as u64)
    })?;
    match body.len() > bytes_max {
        true => Err(FetchError::TooLong { url: shown.to_owned(), limit: bytes_max as u64 }),
        false => Ok(Reply { status, body }),
    }
}

fn failed(error: ureq::Error, shown: &str, have: u64) -> FetchError {
    let url = shown.to_owned();
    match error {
        ureq::Error::Timeout(_) => FetchError::Stalled { url, have },
        ureq::Error::BadUri(_) => FetchError::BadUrl { url },
        ureq::Error::Rustls(error) => {
            let reason = format!("its certificate is not trusted ({error}): check the clock and the authorities");
            FetchError::Unreachable { url, reason }
        }
        // The library would show the address with its query.
        ureq::Error::RequireHttpsOnly(_) => {
            FetchError::Unreachable { url, reason: "it redirects from https to plain http".into() }
        }
        other => FetchError::Unreachable { url, reason: other.to_string() },
    }
}

/// What tells whether the resource is still the same. A weak tag does not promise equal bytes, and is none.
fn validator_of(headers: &HeaderMap) -> Option<Validator> {
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
    let tag = text(header::ETAG).filter(|tag| tag.starts_with('"') && tag.len() <= VALIDATOR_BYTES_MAX);
    tag.or_else(|| text(header::LAST_MODIFIED).filter(|date| date.len() <= VALIDATOR_BYTES_MAX)).map(Validator)
}

/// Longer ones are not worth a request header.
const VALIDATOR_BYTES_MAX: usize = 256;

struct ContentRange {
    first: Option<u64>,
    total: Option<u64>,
}

/// `bytes 5-9/10`, `bytes 5-9/*`, `bytes */10`
fn content_range(headers: &HeaderMap) -> Option<ContentRange> {
    let text = headers.get(header::CONTENT_RANGE)?.to_str().ok()?.strip_prefix("bytes ")?;
    let (range, total) = text.split_once('/')?;
    let first = range.split_once('-').and_then(|(first, _)| first.trim().parse().ok());
    Some(ContentRange { first, total: total.trim().parse().ok() })
}
