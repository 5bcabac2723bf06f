//! What is written down about a call: numbers, and a line at debug. Never a secret: not the token, not the message.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use http::{HeaderMap, HeaderName, HeaderValue, Response};
use http_body::Frame;
use tonic::{Code, Status, body::Body};

use super::body::{self, End};
use crate::{authn::Caller, context::Context, ids, operations, refusal::Refusal, store::DbError};

/// Under which a call is found again in the log: given by the caller or by us, and always answered.
pub(super) const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// Of an id that a caller chose.
const ID_BYTES_MAX: usize = 64;

/// One call on its way.
pub(super) struct Call {
    pub(super) path: String,
    id: HeaderValue,
    started: Instant,
}

impl Call {
    pub(super) fn begins(path: &str, headers: &HeaderMap) -> Self {
        let given = headers.get(&REQUEST_ID).filter(|id| {
            let fits = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.:".contains(byte);
            (1..=ID_BYTES_MAX).contains(&id.len()) && id.as_bytes().iter().all(fits)
        });
        let mut id = given.cloned().unwrap_or_else(new_id);
        // No secret, but never said twice: in HTTP/2's table of headers each would push out what is, and be compared with
        // all before it (RFC 7541, 7.1.3: what is sensitive is not kept there).
        id.set_sensitive(true);
        Self { path: path.to_owned(), id, started: Instant::now() }
    }

    /// The answer begins; of a unary call it is known how it ends.
    pub(super) fn answers(&self, context: &Context, caller: &Caller, answer: &mut Response<Body>) -> Code {
        let code = Status::from_header_map(answer.headers()).map_or(Code::Ok, |status| status.code());
        self.answers_with(context, caller, answer, code);
        code
    }

    /// The same where the answer's headers do not say how it ended.
    pub(super) fn answers_with(&self, context: &Context, caller: &Caller, answer: &mut Response<Body>, code: Code) {
        let took = self.started.elapsed();
        context.metrics.answered(&self.path, code, took);
        context.throttle.answered(caller, code);
        answer.headers_mut().insert(REQUEST_ID, self.id.clone());
        let (id, operation) = (self.id.to_str().unwrap_or_default(), &*self.path);
        let ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
        // A fault of ours is not looked for among thousands of lines that went well.
        match code {
            Code::Internal | Code::Unknown | Code::DataLoss => {
                let who = caller.name();
                tracing::warn!(request_id = id, operation, who, from = %caller.from(), ?code, ms, "call failed");
            }
            _ if tracing::enabled!(tracing::Level::DEBUG) => {
                let who = caller.name();
                tracing::debug!(request_id = id, operation, who, from = %caller.from(), ?code, ms, "call");
            }
            _ => {}
        }
    }

    /// The answer of a stream that opened: counted until it ends, whoever ends it; what is `held` is dropped then.
    pub(super) fn streams(
        self,
        context: &Arc<Context>,
        caller: &Caller,
        held: impl Send + Unpin + 'static,
        answer: Response<Body>,
    ) -> Response<Body> {
        context.metrics.stream_opened();
        // The contract's own end by themselves, with what they still have to say.
        let ends: Option<End> = (!operations::streams(&self.path)).then(|| {
            let end = ends(context, caller);
            let said = async move {
                let mut trailers = HeaderMap::new();
                end.await.add_header(&mut trailers).is_ok().then(|| Ok(Frame::trailers(trailers)))
            };
            Box::pin(said) as End
        });
        let open = Open { call: self, context: context.clone() };
        answer.map(|body| body::holding(body, ends, (open, held)))
    }
}

/// A stream, until its body is dropped.
struct Open {
    call: Call,
    context: Arc<Context>,
}

impl Drop for Open {
    fn drop(&mut self) {
        self.context.metrics.stream_ended();
        let ms = u64::try_from(self.call.started.elapsed().as_millis()).unwrap_or(u64::MAX);
        let id = self.call.id.to_str().unwrap_or_default();
        tracing::debug!(request_id = id, operation = &*self.call.path, ms, "stream ended");
    }
}

/// Unlike each other, also those of other servers; nobody has to be unable to guess them.
fn new_id() -> HeaderValue {
    static SERVER: std::sync::LazyLock<String> = std::sync::LazyLock::new(|| crate::hex::encode(&ids::random::<4>()));
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let id = format!("{}-{:x}", *SERVER, NEXT.fetch_add(1, Relaxed));
    HeaderValue::try_from(id).unwrap_or(HeaderValue::from_static("none"))
}

/// How often an open stream asks whether its key still counts.
const REVOKED_LOOK_EVERY: Duration = Duration::from_secs(1);

/// When the server stops, or the caller's key is no longer good. Whoever has any key may ask for what goes on here.
fn ends(context: &Context, caller: &Caller) -> impl Future<Output = Status> + Send + 'static {
    let (mut draining, authn, mut caller) = (context.draining.clone(), context.authn.clone(), caller.clone());
    async move {
        loop {
            tokio::select! {
                _ = draining.wait_for(|draining| *draining) => return Refusal::from(DbError::Closed).into(),
                () = tokio::time::sleep(REVOKED_LOOK_EVERY) => {}
            }
            match authn.again(&caller).await {
                Ok(now) => caller = now,
                Err(refusal) if refusal.is_final() => return refusal.into(),
                // The database cannot be asked at the moment.
                Err(_) => {}
            }
        }
    }
}

/// What a caller sends for as long as it likes; cut off when the answer would be.
pub(super) fn until_end(context: &Context, caller: &Caller, body: Body) -> Body {
    let end = ends(context, caller);
    let later = async move {
        let end = end.await;
        // The answer looks as often, and says why it ends: whoever answers must not see an end of the question before.
        tokio::time::sleep(REVOKED_LOOK_EVERY).await;
        Some(Err(end))
    };
    body::holding(body, Some(Box::pin(later)), ())
}
