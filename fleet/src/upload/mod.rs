//! A large file on its way in, as an operation sees it: first what it is, then its bytes, piece by piece.
//!
//! The framework would keep each message as a whole before anybody sees it, and existing clients send a file of any
//! size as one message. So these operations get the body itself (`operations.rs` calls them `upload`), taken apart
//! by `frames`. Owns the waiting: an upload that stalls, or whose caller lost its key, ends.

mod frames;

use std::time::Duration;

use bytes::Bytes;
use http_body_util::BodyExt;
use tonic::body::Body;

pub use frames::Piece;
use frames::{Frames, Wrong};

use crate::{
    authn::Caller,
    limits::{UPLOAD_BYTES_MAX, UPLOAD_INFO_BYTES_MAX},
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
}

impl Incoming {
    /// A request whose body is that of a gRPC call; given up when nothing of it has come for `idle`.
    pub fn new(body: Body, caller: Caller, idle: Duration) -> Self {
        Self { body, caller, frames: Frames::default(), rest: Bytes::new(), idle }
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
        let mut waited = Duration::ZERO;
        loop {
            if self.caller.is_revoked() {
                return Err(Refusal::unauthenticated("the key was deleted or changed during the upload"));
            }
            match tokio::time::timeout(LOOK_EVERY, self.body.frame()).await {
                Ok(None) => return Ok(None),
                Ok(Some(Err(_))) => return Err(Refusal::again("the upload broke off: nothing was kept")),
                Ok(Some(Ok(frame))) => {
                    // Anything else is trailers, which say nothing here.
                    if let Ok(bytes) = frame.into_data() {
                        return Ok(Some(bytes));
                    }
                }
                Err(_) => {
                    waited += LOOK_EVERY;
                    if waited >= self.idle {
                        return Err(Refusal::again(format!(
                            "nothing arrived for {} seconds: nothing was kept, upload once more",
                            self.idle.as_secs()
                        )));
                    }
                }
            }
        }
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
