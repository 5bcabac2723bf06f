//! `GET /releases/v1/…`: documents and artifacts, for everybody and without a token, because all of it is signed.
//!
//! Artifacts never change, so their digest is their ETag; a download that broke off goes on with `Range` and `If-Range`.
//! An artifact streams through one buffer, however large it is. An address is taken apart and made anew before it
//! becomes a path: what is not one of the four shapes is 404.

use std::{
    io,
    path::PathBuf,
    pin::Pin,
    task::{Context, Poll, ready},
};

use api::releases::is_name;
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode, header};
use http_body::{Body, Frame, SizeHint};
use ring::digest;
use semver::Version;
use tokio::{
    fs::File,
    io::{AsyncRead, AsyncSeekExt, ReadBuf},
};

use super::folder::{ADDRESS, Folder};
use crate::{
    hex,
    range::{Range, if_range_holds, names_tag, read_range},
};

/// One buffer per download under way: large enough to keep a fast link busy.
const CHUNK_BYTES: usize = 64 << 10;

/// What is sent: nothing, a document, or a piece of a file.
pub struct ReleaseBody {
    left: u64,
    source: Source,
}

enum Source {
    Nothing,
    Document(Bytes),
    File { file: File, buffer: Vec<u8> },
}

/// What an address means.
#[derive(Debug, PartialEq, Eq)]
enum Wanted {
    /// A document: its file below the folder.
    Document(PathBuf),
    /// An artifact: its digest, which is its file's name.
    Artifact(String),
}

/// Answers a request whose path begins with `/releases/`.
pub async fn answer(folder: &Folder, method: &Method, path: &str, headers: &HeaderMap) -> Response<ReleaseBody> {
    if method != Method::GET && method != Method::HEAD {
        let mut refused = empty(StatusCode::METHOD_NOT_ALLOWED);
        refused.headers_mut().insert(header::ALLOW, HeaderValue::from_static("GET, HEAD"));
        return refused;
    }
    let answer = match parse(path) {
        None => return empty(StatusCode::NOT_FOUND),
        Some(Wanted::Document(below)) => document(folder.path().join(below), headers).await,
        Some(Wanted::Artifact(digest)) => {
            artifact(folder.path().join("artifact").join(&digest), &digest, headers).await
        }
    };
    let mut answer = answer.unwrap_or_else(|cause| match cause.kind() {
        io::ErrorKind::NotFound => empty(StatusCode::NOT_FOUND),
        _ => {
            tracing::error!(path, %cause, "a release cannot be read");
            empty(StatusCode::INTERNAL_SERVER_ERROR)
        }
    });
    if method == Method::HEAD {
        // The length stays in the headers.
        answer.body_mut().source = Source::Nothing;
        answer.body_mut().left = 0;
    }
    answer
}

fn parse(path: &str) -> Option<Wanted> {
    let below = path.strip_prefix(ADDRESS)?;
    let steps: Vec<&str> = below.split('/').collect();
    match steps[..] {
        [root] => {
            let number = root.strip_prefix("root.")?.strip_suffix(".json")?;
            let plain = !number.starts_with('0') && number.parse::<u64>().is_ok();
            plain.then(|| Wanted::Document(root.into()))
        }
        ["channel", name] => {
            let name = name.strip_suffix(".json").filter(|name| is_name(name))?;
            Some(Wanted::Document(format!("channel/{name}.json").into()))
        }
        ["release", product, version] if is_name(product) => {
            // The one sign of a version that some clients escape.
            let version = version.strip_suffix(".json")?.replace("%2B", "+").replace("%2b", "+");
            let version = Version::parse(&version).ok()?;
            Some(Wanted::Document(format!("release/{product}/{version}.json").into()))
        }
        ["artifact", digest] => {
            let plain = digest.len() == 64 && digest.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
            plain.then(|| Wanted::Artifact(digest.into()))
        }
        _ => None,
    }
}

async fn document(file: PathBuf, headers: &HeaderMap) -> io::Result<Response<ReleaseBody>> {
    let bytes = tokio::fs::read(file).await?;
    let etag = format!("\"{}\"", hex::encode(digest::digest(&digest::SHA256, &bytes).as_ref()));
    if names_tag(headers, header::IF_NONE_MATCH, &etag) {
        return Ok(with(empty(StatusCode::NOT_MODIFIED), &[(header::ETAG, &etag)]));
    }
    let length = bytes.len() as u64;
    let answer = Response::new(ReleaseBody { left: length, source: Source::Document(bytes.into()) });
    let length = length.to_string();
    Ok(with(
        answer,
        &[
            (header::CONTENT_TYPE, "application/json"),
            // A proxy that keeps an old channel keeps devices on an old version.
            (header::CACHE_CONTROL, "no-cache"),
            (header::ETAG, &etag),
            (header::CONTENT_LENGTH, &length),
        ],
    ))
}

async fn artifact(path: PathBuf, digest: &str, headers: &HeaderMap) -> io::Result<Response<ReleaseBody>> {
    let mut file = File::open(path).await?;
    let length = file.metadata().await?.len();
    let etag = format!("\"{digest}\"");
    let always = [
        (header::CONTENT_TYPE, "application/octet-stream"),
        (header::CACHE_CONTROL, "public, max-age=31536000, immutable"),
        (header::ACCEPT_RANGES, "bytes"),
        (header::ETAG, &*etag),
    ];
    if names_tag(headers, header::IF_NONE_MATCH, &etag) {
        return Ok(with(empty(StatusCode::NOT_MODIFIED), &always));
    }
    let range = match headers.get(header::RANGE).and_then(|range| range.to_str().ok()) {
        Some(range) if if_range_holds(headers, &etag) => read_range(range, length),
        _ => Range::Whole,
    };
    let (status, from, left) = match range {
        Range::Whole => (StatusCode::OK, 0, length),
        Range::Part { from, to } => (StatusCode::PARTIAL_CONTENT, from, to - from + 1),
        Range::Impossible => {
            let content_range = format!("bytes */{length}");
            let refused = empty(StatusCode::RANGE_NOT_SATISFIABLE);
            return Ok(with(refused, &[(header::CONTENT_RANGE, &content_range), (header::ETAG, &etag)]));
        }
    };
    if from > 0 {
        file.seek(io::SeekFrom::Start(from)).await?;
    }
    let mut answer = Response::new(ReleaseBody { left, source: Source::File { file, buffer: Vec::new() } });
    *answer.status_mut() = status;
    let mut answer = with(answer, &always);
    answer.headers_mut().insert(header::CONTENT_LENGTH, left.into());
    if status == StatusCode::PARTIAL_CONTENT {
        let content_range = format!("bytes {from}-{}/{length}", from + left - 1);
        answer = with(answer, &[(header::CONTENT_RANGE, &content_range)]);
    }
    Ok(answer)
}

fn empty(status: StatusCode) -> Response<ReleaseBody> {
    let mut answer = Response::new(ReleaseBody { left: 0, source: Source::Nothing });
    *answer.status_mut() = status;
    answer
}

fn with(mut answer: Response<ReleaseBody>, headers: &[(header::HeaderName, &str)]) -> Response<ReleaseBody> {
    for (name, value) in headers {
        if let Ok(value) = HeaderValue::from_str(value) {
            answer.headers_mut().insert(name.clone(), value);
        }
    }
    answer
}

impl Body for ReleaseBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let this = self.get_mut();
        if this.left == 0 {
            return Poll::Ready(None);
        }
        let bytes = match &mut this.source {
            Source::Nothing => return Poll::Ready(None),
            Source::Document(bytes) => std::mem::take(bytes),
            Source::File { file, buffer } => {
                let wanted = usize::try_from(this.left).unwrap_or(CHUNK_BYTES).min(CHUNK_BYTES);
                buffer.resize(wanted, 0);
                let mut read = ReadBuf::new(buffer);
                ready!(Pin::new(file).poll_read(cx, &mut read))?;
                Bytes::copy_from_slice(read.filled())
            }
        };
        if bytes.is_empty() {
            // Shorter than it was when it was opened: the client must not take what it got for all of it.
            let cause = io::Error::new(io::ErrorKind::UnexpectedEof, "the artifact became shorter");
            return Poll::Ready(Some(Err(cause)));
        }
        this.left = this.left.saturating_sub(bytes.len() as u64);
        Poll::Ready(Some(Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        self.left == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses() {
        let digest = "a1".repeat(32);
        let artifact = format!("/releases/v1/artifact/{digest}");
        let document = |below: &str| Some(Wanted::Document(below.into()));
        let table = [
            ("/releases/v1/root.1.json", document("root.1.json")),
            ("/releases/v1/root.12.json", document("root.12.json")),
            ("/releases/v1/channel/stable.json", document("channel/stable.json")),
            ("/releases/v1/release/platform-server/1.0.0.json", document("release/platform-server/1.0.0.json")),
            ("/releases/v1/release/a/1.0.0%2Bb.json", document("release/a/1.0.0+b.json")),
            ("/releases/v1/release/a/1.0.0+b.json", document("release/a/1.0.0+b.json")),
            (&artifact, Some(Wanted::Artifact(digest))),
            ("/releases/v1/", None),
            ("/releases/v1/stamp", None),
            ("/releases/v1/root.json", None),
            ("/releases/v1/root.01.json", None),
            ("/releases/v1/root.1.json/", None),
            ("/releases/v1/root.../json", None),
            ("/releases/v1/channel/../root.1.json", None),
            ("/releases/v1/channel/..%2froot.1.json", None),
            ("/releases/v1/channel/.json", None),
            ("/releases/v1/release/../channel/stable.json", None),
            ("/releases/v1/release/a/../../x.json", None),
            ("/releases/v1/release/a/1.0.json", None),
            ("/releases/v1/artifact/..", None),
            ("/releases/v1/artifact/A1", None),
            ("/releases/v2/root.1.json", None),
        ];
        for (address, meaning) in table {
            assert_eq!(parse(address), meaning, "{address}");
        }
    }
}
