//! A large file on its way in, as an operation sees it: first what it is, then its bytes, piece by piece.
//!
//! The framework would keep each message as a whole before anybody sees it, and existing clients send a file of any
//! size as one message. So these operations get the body itself (`operations.rs` calls them `upload`), taken apart
//! by `frames`. Owns the waiting: an upload that stalls, or whose caller lost its key, ends.

mod frames;

use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::BodyExt;
use tonic::body::Body;

pub use frames::Piece;
use frames::{Frames, Wrong};

use crate::{
    authn::Caller,
    limits::{UPLOAD_BYTES_MAX, UPLOAD_INFO_BYTES_MAX, UPLOAD_LITTLE_BYTES},
    refusal::Refusal,
};

/// How often an upload that is waiting looks whether its caller is still who it was.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The request of an `upload` operation.
pub struct Incoming {
    body: Body,
    caller: Caller,
    frames: Frames,
    rest: Bytes,
    idle: Duration,
    /// How long was waited since so little came that it does not count, and how much that was.
    waited: Duration,
    came: usize,
}

impl Incoming {
    /// A request whose body is that of a gRPC call; given up when `idle` was waited for it and too little came.
    pub fn new(body: Body, caller: Caller, idle: Duration) -> Self {
        Self { body, caller, frames: Frames::default(), rest: Bytes::new(), idle, waited: Duration::ZERO, came: 0 }
    }

    /// What comes next; nothing when the caller said that this was all.
    pub async fn next(&mut self) -> Result<Option<Piece>, Refusal> {
        loop {
            if let Some(piece) = self.frames.next(&mut self.rest)? {
                return Ok(Some(piece));
            }
            match self.more().await? {
                Some(bytes) => self.rest = bytes,
                None => {
                    self.frames.finish()?;
                    return Ok(None);
                }
            }
        }
    }

    /// Takes what still comes and forgets it. Clients of HTTP/1.1 send all before they read: if they were not listened to
    /// to the end, they would learn that the connection broke and not why.
    pub async fn drain(&mut self) {
        let rest = async {
            let mut passed = 0;
            while passed < UPLOAD_BYTES_MAX {
                match self.body.frame().await {
                    Some(Ok(frame)) => passed += frame.data_ref().map_or(0, |bytes| bytes.len() as u64),
                    Some(Err(_)) | None => return,
                }
            }
        };
        // Whoever needs longer than this is cut off; the bytes are of no use to anybody.
        let _ = tokio::time::timeout(self.idle, rest).await;
    }

    async fn more(&mut self) -> Result<Option<Bytes>, Refusal> {
        loop {
            if self.caller.is_revoked() {
                return Err(Refusal::unauthenticated("the key was deleted or changed during the upload"));
            }
            if self.caller.is_outdated() {
                return Err(Refusal::again("your roles changed during the upload: nothing was kept, upload once more"));
            }
            let begun = Instant::now();
            let came = tokio::time::timeout(LOOK_EVERY, self.body.frame()).await;
            self.waited += begun.elapsed();
            match came {
                Ok(None) => return Ok(None),
                Ok(Some(Err(_))) => return Err(Refusal::again("the upload broke off: nothing was kept")),
                Ok(Some(Ok(frame))) => {
                    // Anything else is trailers, which say nothing here.
                    if let Ok(bytes) = frame.into_data() {
                        self.count(bytes.len())?;
                        return Ok(Some(bytes));
                    }
                }
                Err(_) => self.count(0)?,
            }
        }
    }

    /// So much came, after what was waited. One that comes in drop by drop keeps a place from others like one that stalls.
    fn count(&mut self, bytes: usize) -> Result<(), Refusal> {
        self.came += bytes;
        if self.came >= UPLOAD_LITTLE_BYTES {
            (self.came, self.waited) = (0, Duration::ZERO);
        }
        if self.waited < self.idle {
            return Ok(());
        }
        let seconds = self.idle.as_secs_f64();
        let message = format!("hardly anything arrived for {seconds} seconds: nothing was kept, upload once more");
        Err(Refusal::again(message))
    }
}

impl From<Wrong> for Refusal {
    fn from(wrong: Wrong) -> Self {
        match wrong {
            Wrong::InfoTooLong => {
                Refusal::invalid("module_file_info", format_args!("is too long: at most {UPLOAD_INFO_BYTES_MAX} bytes"))
            }
            other => Refusal::unreadable(other),
        }
    }
}
