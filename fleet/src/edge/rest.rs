//! What a client still sends when its answer is already there.
//!
//! A refusal needs no message. By HTTP/1.1 a request that is left unread ends the connection, without a word: who is still
//! sending hears of a broken pipe in place of the answer, and who is done finds it out with its next call. So the rest is read
//! before the answer goes, where it is little and comes in time; where not, the answer says that the connection ends with it.
//! HTTP/2 ends a request without ending the connection.

use std::{
    pin::Pin,
    task::{Context as Poller, Poll},
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, Version, header};
use http_body::{Frame, SizeHint};
use http_body_util::BodyExt;
use tokio::{
    sync::oneshot,
    time::{Instant, timeout_at},
};
use tonic::body::Body;

use crate::limits::REQUEST_BYTES_MAX;

/// A message that is twice as long as it may be is still told so.
const REST_BYTES_MAX: u64 = 2 * REQUEST_BYTES_MAX as u64;
/// Who asks whether it should send its message, and hears nothing, sends it after a while: the most common client after a
/// second.
const ASKS_FOR: Duration = Duration::from_millis(500);

/// The answer to a request of HTTP/1, when nothing of the request is on its way any more; at once when that takes longer than
/// `within` since it began, or when `stops` says so.
pub(super) async fn after_all<B, F>(
    request: Request<B>,
    within: Duration,
    stops: impl Future<Output = ()>,
    answer: impl FnOnce(Request<Body>) -> F,
) -> Response<Body>
where
    B: http_body::Body<Data = Bytes> + Send + Unpin + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    F: Future<Output = Response<Body>>,
{
    let begun = Instant::now();
    let until = begun + within;
    // What nobody has a use for is not waited for.
    let idle = matches!(*request.method(), Method::GET | Method::HEAD);
    let asks_first = request.version() == Version::HTTP_11
        && request
            .headers()
            .get(header::EXPECT)
            .is_some_and(|said| said.as_bytes().eq_ignore_ascii_case(b"100-continue"));
    let (leaves, mut left) = oneshot::channel();
    let body = |inner| Body::new(Watched { inner: Some(inner), begun: false, leaves: Some(leaves) });
    let mut answer = answer(request.map(body)).await;
    let ends = match left.try_recv() {
        Ok(Left { rest: Some(rest), .. }) if rest.is_end_stream() => false,
        Ok(Left { rest: Some(rest), begun: read }) => {
            // Nobody has told it to begin, and it has not lost its patience.
            let waits = asks_first && !read && begun.elapsed() < ASKS_FOR;
            let passes = async {
                tokio::select! {
                    passed = passes(rest, until) => passed,
                    () = stops => false,
                }
            };
            idle || waits || !passes.await
        }
        // It broke.
        Ok(Left { rest: None, .. }) => true,
        // All was read, or is being read still.
        Err(_) => false,
    };
    if ends {
        answer.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    answer
}

/// Whether that is all read, of what may be.
async fn passes<B: http_body::Body<Data = Bytes> + Unpin>(mut rest: B, until: Instant) -> bool {
    let mut read = 0;
    while read + rest.size_hint().lower() <= REST_BYTES_MAX {
        match timeout_at(until, rest.frame()).await {
            Ok(Some(Ok(frame))) => read += frame.data_ref().map_or(0, Bytes::len) as u64,
            Ok(None) => return true,
            Ok(Some(Err(_))) | Err(_) => return false,
        }
    }
    false
}

/// A body that nobody wants to read any further.
struct Left<B> {
    /// Nothing if it broke.
    rest: Option<B>,
    /// Somebody has begun to read it.
    begun: bool,
}

/// The body of a request; what is left of it when it is dropped is left to somebody.
struct Watched<B> {
    /// Until it broke.
    inner: Option<B>,
    begun: bool,
    /// Until it was read to its end.
    leaves: Option<oneshot::Sender<Left<B>>>,
}

impl<B: http_body::Body<Data = Bytes> + Unpin> http_body::Body for Watched<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        poller: &mut Poller<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        self.begun = true;
        let Some(inner) = &mut self.inner else { return Poll::Ready(None) };
        let polled = Pin::new(inner).poll_frame(poller);
        match polled {
            Poll::Ready(None) => self.leaves = None,
            Poll::Ready(Some(Err(_))) => self.inner = None,
            _ => {}
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.inner.as_ref().is_none_or(http_body::Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.as_ref().map_or_else(|| SizeHint::with_exact(0), http_body::Body::size_hint)
    }
}

impl<B> Drop for Watched<B> {
    fn drop(&mut self) {
        if let Some(leaves) = self.leaves.take() {
            // Answered already: then it is dropped as it would have been.
            let _ = leaves.send(Left { rest: self.inner.take(), begun: self.begun });
        }
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::{Full, StreamBody};
    use tokio_stream::{StreamExt, iter, pending};

    use super::*;

    #[tokio::test]
    async fn so_much_is_read_and_so_long() {
        let within = Instant::now() + Duration::from_secs(60);
        assert!(passes(Full::new(Bytes::new()), within).await);
        assert!(passes(Full::new(Bytes::from(vec![7; REST_BYTES_MAX as usize])), within).await);
        assert!(!passes(Full::new(Bytes::from(vec![7; REST_BYTES_MAX as usize + 1])), within).await, "it says so");
        let piece = || Ok::<_, std::io::Error>(Frame::data(Bytes::from_static(&[7; 1 << 10])));
        let pieces = |count| StreamBody::new(iter((0..count).map(move |_| piece())));
        assert!(passes(pieces(REST_BYTES_MAX >> 10), within).await);
        assert!(!passes(pieces((REST_BYTES_MAX >> 10) + 2), within).await, "nobody knew");
        let broken = [piece(), Err(std::io::ErrorKind::BrokenPipe.into())];
        assert!(!passes(StreamBody::new(iter(broken)), within).await);
        let stuck = iter([piece()]).chain(pending());
        assert!(!passes(StreamBody::new(stuck), Instant::now() + Duration::from_millis(10)).await);
    }
}
