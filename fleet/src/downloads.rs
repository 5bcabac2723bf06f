//! `GET /packages/v1/OWNER/NAME/VERSION/PLATFORM`: a file of the registry, for who may run it.
//!
//! Who asks shows a bearer token, or an API key (`key_id`, `key`), or what a device has (`part_id`, `secret`), in
//! headers. A file never changes, so its digest is its ETag; a download that broke off goes on with `Range` and
//! `If-Range`. It streams through one buffer, and ends when the caller's key does, or its roles change. Of a file that lies
//! there damaged nobody gets all (`artifacts/trust.rs`).

use std::{
    io,
    net::IpAddr,
    pin::Pin,
    sync::Arc,
    task::{Context as Poller, Poll, ready},
};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode, header};
use http_body::{Body as HttpBody, Frame, SizeHint};
use ring::digest;
use tokio_stream::Stream;
use tonic::{Status, body::Body};

use crate::{
    artifacts::{
        ArtifactError, Pieces,
        trust::{Plan, Trust},
    },
    authn::Caller,
    clock::Clock,
    context::Context,
    edge::{bearer, http_status, sentence},
    hex,
    range::{Range, if_range_holds, names_tag, read_range},
    refusal::Refusal,
    services::{login, packages},
    store::{registry::Stored, registry_files::File},
};

/// What all addresses of files begin with.
pub const PATH: &str = "/packages/v1/";

/// Where a file is, on this server.
pub fn path_of(stored: &Stored, file: &File) -> String {
    format!("{PATH}{}/{}/{}/{}", stored.owner(), stored.name, file.version.replace('+', "%2B"), file.platform)
}

/// What a file is called when it is saved.
pub fn file_name(stored: &Stored, file: &File) -> String {
    format!("{}-{}-{}.tar.gz", stored.name, file.version, file.platform.replace('/', "-"))
}

/// Answers a request whose path begins with [`PATH`]; an answer that was found has its [`Caller`] with it.
pub async fn answer(
    context: &Context,
    method: &Method,
    path: &str,
    headers: &HeaderMap,
    from: IpAddr,
) -> Response<Body> {
    if method != Method::GET && method != Method::HEAD {
        let mut refused = sentence(405, "only GET and HEAD\n");
        refused.headers_mut().insert(header::ALLOW, HeaderValue::from_static("GET, HEAD"));
        return refused;
    }
    let sent = async {
        let caller = caller(context, headers, from).await?;
        let mut answer = send(context, method, path, headers, caller.clone()).await?;
        // Whose connection it is.
        answer.extensions_mut().insert(caller);
        Ok(answer)
    };
    match sent.await {
        Ok(answer) => answer,
        Err::<_, Refusal>(refusal) => {
            let status = Status::from(refusal);
            let mut refused = sentence(http_status(status.code()), &format!("{}\n", status.message()));
            refused.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
            refused
        }
    }
}

async fn send(
    context: &Context,
    method: &Method,
    path: &str,
    headers: &HeaderMap,
    caller: Caller,
) -> Result<Response<Body>, Refusal> {
    context.throttle.late(context.throttle.call(&caller, true)).await?;
    let wanted = path.strip_prefix(PATH).unwrap_or_default().splitn(4, '/').collect::<Vec<_>>();
    let [owner, name, version, platform] = wanted[..] else {
        return Err(Refusal::invalid(
            "address",
            format_args!("{PATH}OWNER/NAME/VERSION/PLATFORM, VERSION may be latest"),
        ));
    };
    // The one sign of a version that some clients escape.
    let version = version.replace("%2B", "+").replace("%2b", "+");
    let (stored, files) = packages::of_item(context, &caller, &format!("{owner}:{name}")).await?;
    let file = packages::choose(&files, &version, Some(platform))?;
    let length = u64::try_from(file.bytes).unwrap_or_default();
    let etag = format!("\"{}\"", file.digest);
    let disposition = format!("attachment; filename=\"{}\"", file_name(&stored, file));
    let caching = match version == file.version && platform == file.platform {
        true => "private, max-age=31536000, immutable",
        // What is newest, or fits best, may be another one tomorrow.
        false => "private, no-cache",
    };
    let always = [
        (header::CONTENT_TYPE, "application/octet-stream"),
        (header::CONTENT_DISPOSITION, &*disposition),
        (header::CACHE_CONTROL, caching),
        (header::ACCEPT_RANGES, "bytes"),
        (header::ETAG, &*etag),
    ];
    if names_tag(headers, header::IF_NONE_MATCH, &etag) {
        return Ok(with(StatusCode::NOT_MODIFIED, Body::empty(), &always));
    }
    let range = match headers.get(header::RANGE).and_then(|range| range.to_str().ok()) {
        Some(range) if if_range_holds(headers, &etag) => read_range(range, length),
        _ => Range::Whole,
    };
    let (status, from, left) = match range {
        Range::Whole => (StatusCode::OK, 0, length),
        Range::Part { from, to } => (StatusCode::PARTIAL_CONTENT, from, to - from + 1),
        Range::Impossible => {
            let refused = with(StatusCode::RANGE_NOT_SATISFIABLE, Body::empty(), &always);
            return Ok(also(refused, header::CONTENT_RANGE, &format!("bytes */{length}")));
        }
    };
    let all = method != Method::HEAD && left == length;
    // Whoever asks for the head is told what who asks for a piece would be: the least that is opened is a byte.
    let wanted = if method == Method::HEAD { 1 } else { left };
    let opened = context.artifacts.open(&file.digest, from, wanted).await.map_err(unreadable)?;
    let check = match context.trust.plan(&file.digest, &opened.form, all, context.clock.now()) {
        Plan::Send => None,
        Plan::Check => Some(Check::of(context, &path_of(&stored, file), file, opened.form)),
        Plan::Refuse => return Err(damaged()),
    };
    let body = match method {
        &Method::HEAD => Body::empty(),
        _ => Body::new(Sending { pieces: opened.pieces, left, caller, check }),
    };
    let mut answer = also(with(status, body, &always), header::CONTENT_LENGTH, &left.to_string());
    if status == StatusCode::PARTIAL_CONTENT {
        answer = also(answer, header::CONTENT_RANGE, &format!("bytes {from}-{}/{length}", from + left - 1));
    }
    Ok(answer)
}

async fn caller(context: &Context, headers: &HeaderMap, from: IpAddr) -> Result<Caller, Refusal> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let pairs = [("key_id", "key", "api-key"), ("part_id", "secret", "robot-secret")];
    for (id, secret, kind) in pairs {
        if let (Some(id), Some(secret)) = (text(id), text(secret)) {
            let token = login::token(context, &Caller::nobody(from), id, kind, secret).await?;
            return context.authn.caller(Some(&token), from).await;
        }
    }
    context.throttle.late_for_strangers(context.authn.caller(bearer(headers), from).await, from).await
}

/// The registry knows of a file that cannot be read: nothing the caller could do about it.
fn unreadable(cause: ArtifactError) -> Refusal {
    tracing::error!(%cause, "a file of the registry cannot be read");
    Refusal::again("the server cannot read the file at the moment: try again")
}

/// What lies there is not what was uploaded. The operator was told when that was found.
fn damaged() -> Refusal {
    Refusal::again("the file is damaged where the server keeps it: whoever published it must upload it once more")
}

fn with(status: StatusCode, body: Body, headers: &[(HeaderName, &str)]) -> Response<Body> {
    let mut answer = Response::new(body);
    *answer.status_mut() = status;
    headers.iter().fold(answer, |answer, (name, value)| also(answer, name.clone(), value))
}

fn also(mut answer: Response<Body>, name: HeaderName, value: &str) -> Response<Body> {
    if let Ok(value) = HeaderValue::from_str(value) {
        answer.headers_mut().insert(name, value);
    }
    answer
}

/// Sums up a file while it goes out, and keeps what came of it.
struct Check {
    address: String,
    sum: digest::Context,
    wanted: String,
    form: String,
    trust: Arc<Trust>,
    clock: Clock,
}

impl Check {
    fn of(context: &Context, address: &str, file: &File, form: String) -> Self {
        Self {
            address: address.to_owned(),
            sum: digest::Context::new(&digest::SHA256),
            wanted: file.digest.clone(),
            form,
            trust: context.trust.clone(),
            clock: context.clock.clone(),
        }
    }

    /// That was all of it.
    fn end(self) -> io::Result<()> {
        let Self { address, sum, wanted, form, trust, clock } = self;
        let found = hex::encode(sum.finish().as_ref());
        trust.note(&wanted, form, found == wanted, clock.now());
        if found == wanted {
            return Ok(());
        }
        tracing::error!(
            address,
            sha256 = wanted,
            found,
            "a file of the registry is damaged: upload the same file once more"
        );
        Err(io::Error::new(io::ErrorKind::InvalidData, "the artifact is damaged"))
    }
}

/// A file on its way out.
struct Sending {
    pieces: Pieces,
    left: u64,
    caller: Caller,
    /// Of all of it, if it was not looked at a short while ago.
    check: Option<Check>,
}

impl HttpBody for Sending {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Poller<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let this = self.get_mut();
        if this.left == 0 {
            return Poll::Ready(None);
        }
        // Who still may goes on with `Range`.
        if this.caller.is_revoked() || this.caller.is_outdated() {
            return Poll::Ready(Some(Err(io::Error::other("the caller's key was deleted, or its roles changed"))));
        }
        let piece = ready!(Pin::new(&mut this.pieces).poll_next(cx)).unwrap_or_else(|| {
            Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the artifact is shorter than it was"))
        })?;
        this.left = this.left.saturating_sub(piece.len() as u64);
        if let Some(check) = &mut this.check {
            check.sum.update(&piece);
        }
        // The last bytes go only if all of them are what was uploaded.
        if this.left == 0
            && let Some(check) = this.check.take()
        {
            check.end()?;
        }
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.left == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left)
    }
}
