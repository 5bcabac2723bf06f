//! Answers that wait for readers who do not read.
//!
//! A large answer is handed on in pieces, and counts from the moment it is made until its last piece is gone: so many
//! bytes of one caller, so many of all. Beyond that what only reads is refused; what changed something is answered all
//! the same, because its caller has to know. A small answer is not worth counting.

use std::{
    collections::HashMap,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context as Poller, Poll},
    time::Duration,
};

use bytes::Bytes;
use http::Response;
use http_body::{Body as _, Frame, SizeHint};
use http_body_util::BodyExt;
use tonic::{Status, body::Body};

use super::throttle::{Limit, Throttle};
use crate::refusal::Refusal;

/// What is counted at all.
const LARGE: usize = 64 << 10;
/// Handed on at a time.
const PIECE: usize = 32 << 10;
/// Bytes of large answers that one caller leaves unread: several times the largest there is.
const OF_ONE_MAX: usize = 32 << 20;
/// Of all callers.
const OF_ALL_MAX: usize = 128 << 20;
/// When to come again.
const AGAIN_AFTER: Duration = Duration::from_secs(1);

/// What waits for its readers.
#[derive(Default)]
pub(super) struct Unread {
    waiting: Mutex<Waiting>,
}

#[derive(Default)]
struct Waiting {
    all: usize,
    by_caller: HashMap<u64, usize>,
}

impl Unread {
    fn take(self: &Arc<Self>, caller: u64, bytes: usize, force: bool) -> Option<Place> {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let Waiting { all, by_caller } = &mut *waiting;
        let own = by_caller.get(&caller).copied().unwrap_or_default();
        if !force && (own + bytes > OF_ONE_MAX || *all + bytes > OF_ALL_MAX) {
            return None;
        }
        *all += bytes;
        by_caller.insert(caller, own + bytes);
        Some(Place { unread: self.clone(), caller, bytes })
    }
}

/// Bytes that count until this is dropped.
struct Place {
    unread: Arc<Unread>,
    caller: u64,
    bytes: usize,
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut waiting = self.unread.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.all = waiting.all.saturating_sub(self.bytes);
        if let Some(own) = waiting.by_caller.get_mut(&self.caller) {
            *own = own.saturating_sub(self.bytes);
            if *own == 0 {
                waiting.by_caller.remove(&self.caller);
            }
        }
    }
}

/// Whether the operation of that path changes nothing, so that it may be asked again.
fn only_reads(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or_default();
    ["Get", "List", "Check"].iter().any(|begin| name.starts_with(begin))
}

/// The answer of a unary call, counted if it is large.
pub(super) async fn counted(
    throttle: &Throttle,
    caller: u64,
    path: &str,
    answer: Response<Body>,
) -> Result<Response<Body>, Status> {
    let (parts, mut body) = answer.into_parts();
    if body.is_end_stream() {
        return Ok(Response::from_parts(parts, body));
    }
    // The whole message: it is made when it is asked for.
    let first = body.frame().await.transpose()?;
    let (pieces, trailers) = match first.map(Frame::into_data) {
        Some(Ok(data)) => (data, None),
        Some(Err(other)) => (Bytes::new(), other.into_trailers().ok()),
        None => (Bytes::new(), None),
    };
    let body = throttle.late(pieced(throttle, caller, path, pieces, trailers, Some(body))).await?;
    Ok(Response::from_parts(parts, body))
}

/// The same of an answer that is made already.
pub(super) async fn whole(throttle: &Throttle, caller: u64, path: &str, content: Bytes) -> Result<Body, Status> {
    Ok(throttle.late(pieced(throttle, caller, path, content, None, None)).await?)
}

fn pieced(
    throttle: &Throttle,
    caller: u64,
    path: &str,
    pieces: Bytes,
    trailers: Option<http::HeaderMap>,
    rest: Option<Body>,
) -> Result<Body, Refusal> {
    let mut place = None;
    if pieces.len() >= LARGE {
        place = throttle.unread.take(caller, pieces.len(), !only_reads(path));
        if place.is_none() {
            let message = "large answers are left unread: read them, or ask for less at once";
            return Err(throttle.refuse(Limit::UnreadBytes, message.to_owned(), AGAIN_AFTER));
        }
    }
    Ok(Body::new(Pieces { pieces, trailers, rest, _place: place }))
}

/// A message and what comes after it.
struct Pieces {
    pieces: Bytes,
    trailers: Option<http::HeaderMap>,
    rest: Option<Body>,
    _place: Option<Place>,
}

impl http_body::Body for Pieces {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        poller: &mut Poller<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        if !self.pieces.is_empty() {
            let length = self.pieces.len().min(PIECE);
            return Poll::Ready(Some(Ok(Frame::data(self.pieces.split_to(length)))));
        }
        if let Some(trailers) = self.trailers.take() {
            return Poll::Ready(Some(Ok(Frame::trailers(trailers))));
        }
        match &mut self.rest {
            Some(rest) => Pin::new(rest).poll_frame(poller),
            None => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.pieces.is_empty() && self.trailers.is_none() && self.rest.as_ref().is_none_or(|rest| rest.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        match self.rest {
            Some(_) => SizeHint::new(),
            None => SizeHint::with_exact(self.pieces.len() as u64),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_caller_leaves_so_much_unread_and_all_so_much() {
        let unread = Arc::new(Unread::default());
        let mib = 1 << 20;
        let mut held: Vec<_> = (0..32).map(|_| unread.take(1, mib, false).unwrap()).collect();
        assert!(unread.take(1, mib, false).is_none(), "it has its share");
        let changed = unread.take(1, mib, true).expect("what was done has to be said");
        assert!(unread.take(2, mib, false).is_some(), "another one is not concerned");
        held.truncate(30);
        assert!(unread.take(1, mib, false).is_some());
        let take_all = |caller| (0..100).map_while(|_| unread.take(caller, mib, false)).collect::<Vec<_>>();
        let others: Vec<_> = (2..7).map(take_all).collect();
        let counts: Vec<_> = others.iter().map(Vec::len).collect();
        assert_eq!(counts, [32, 32, 32, 1, 0], "with the 31 of the first one, that is all there is");
        drop((held, changed, others));
        assert!(unread.waiting.lock().unwrap().by_caller.is_empty());
        assert_eq!(unread.waiting.lock().unwrap().all, 0);
    }

    #[test]
    fn what_may_be_asked_again() {
        for (path, reads) in
            [("GetRobotPart", true), ("ListRobots", true), ("UpdateRobotPart", false), ("CreateKey", false)]
        {
            assert_eq!(only_reads(&format!("/platform.app.v1.AppService/{path}")), reads, "{path}");
        }
    }
}
