//! A body that is handed on as it is, while something is held for it or somebody may end it.

use std::{
    pin::Pin,
    task::{Context as Poller, Poll},
};

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use tonic::{Status, body::Body};

/// The last word of a body that ends before its time.
pub(super) type Last = Option<Result<Frame<Bytes>, Status>>;
/// When a body ends before its time.
pub(super) type End = Pin<Box<dyn Future<Output = Last> + Send>>;

/// The same body, until `ends` says otherwise. `held` is dropped with it: when it was sent, or when nobody wants it.
pub(super) fn holding(inner: Body, ends: Option<End>, held: impl Send + Unpin + 'static) -> Body {
    Body::new(Holding { inner, ends, ended: false, _held: held })
}

struct Holding<H> {
    inner: Body,
    ends: Option<End>,
    ended: bool,
    _held: H,
}

impl<H: Unpin> http_body::Body for Holding<H> {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, poller: &mut Poller<'_>) -> Poll<Last> {
        if self.ended {
            return Poll::Ready(None);
        }
        if let Some(Poll::Ready(last)) = self.ends.as_mut().map(|ends| ends.as_mut().poll(poller)) {
            self.ended = true;
            return Poll::Ready(last);
        }
        Pin::new(&mut self.inner).poll_frame(poller)
    }

    fn is_end_stream(&self) -> bool {
        self.ended || self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}
