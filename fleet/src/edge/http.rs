//! Plain HTTP on the same port: health, metrics, signed releases, files of the registry, installing a device.

use api::Secret;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::Full;
use tokio::time::timeout;
use tonic::{Code, body::Body};

use super::{CORS_REQUEST_HEADERS, Peer, authenticate, body, time_limit};
use crate::{
    authn::{Caller, Who},
    context::Context,
    downloads, install, invitation, people,
    refusal::Refusal,
    releases, sign_in,
};

/// What a device is installed with.
const CREDENTIALS: &str = "/install/credentials";

/// Any request that is not gRPC.
pub(super) async fn answer(context: &Context, request: Request<Body>, peer: &Peer) -> Response<Body> {
    // Not answered but to who has a key, a token or a secret.
    let needs_key = request.uri().path().starts_with(downloads::PATH) || request.uri().path() == CREDENTIALS;
    let within = time_limit(request.headers(), context.waits.call);
    let mut answer = match timeout(within, sent(context, request, peer)).await {
        Ok(answer) => answer,
        Err(_) => refused(&Refusal::too_slow(within), Code::DeadlineExceeded),
    };
    if needs_key && (answer.status().is_success() || answer.status() == StatusCode::NOT_MODIFIED) {
        match answer.extensions_mut().remove::<Caller>() {
            Some(caller) => {
                if let Err(refusal) = peer.seat.held_by(&caller, &context.throttle) {
                    // In place of what was opened for it, which is closed before the refusal waits.
                    answer = refused(&refusal, Code::ResourceExhausted);
                    context.throttle.hold_back(refusal.wait()).await;
                }
            }
            None => peer.seat.signed_in(),
        }
    }
    match answer.status().is_success() {
        true => answer.map(|body| body::holding(body, None, peer.seat.busy())),
        false => answer,
    }
}

fn refused(refusal: &Refusal, code: Code) -> Response<Body> {
    sentence(http_status(code), &format!("{}\n", refusal.message()))
}

async fn sent(context: &Context, request: Request<Body>, peer: &Peer) -> Response<Body> {
    let from = peer.ip;
    let path = request.uri().path();
    let reads = matches!(*request.method(), Method::GET | Method::HEAD);
    match path {
        "/healthz" if reads => sentence(200, "ok\n"),
        "/metrics" if reads => metrics(context, request.headers(), peer).await,
        "/install.sh" if reads => {
            // A root that was just published is in it.
            context.releases.revision(context.clock.now());
            install::script(context)
        }
        CREDENTIALS if *request.method() == Method::GET => {
            install::credentials(context, request.headers(), request.uri().query().unwrap_or_default(), from).await
        }
        _ if path.starts_with(people::PATH) => {
            if let Err(refusal) = context.throttle.late(context.throttle.open_call(from)).await {
                return refused(&refusal, Code::ResourceExhausted);
            }
            invitation::answer(context, request, from).await
        }
        _ if path.strip_prefix(sign_in::PATH).is_some_and(|below| below.is_empty() || below.starts_with('/')) => {
            sign_in::answer(context, request, from).await
        }
        _ if path.starts_with("/releases/") => {
            releases::serve::answer(context.releases.folder(), request.method(), path, request.headers())
                .await
                .map(Body::new)
        }
        _ if path.starts_with(downloads::PATH) => {
            downloads::answer(context, request.method(), path, request.headers(), from).await
        }
        _ if is_operation(path) => sentence(
            415,
            "this is an operation: POST it as application/grpc over HTTP/2, as application/grpc-web+proto, or as \
             application/json\n",
        ),
        "/healthz" | "/metrics" | "/install.sh" | CREDENTIALS => sentence(405, "only GET\n"),
        _ => sentence(404, "nothing here\n"),
    }
}

/// Numbers about the server: they are no secret, but no one's business. To whoever shows the token that was made for it;
/// where there is none, to the machine itself and to people's and programs' keys. Not to devices: there are many, and
/// they stand anywhere.
async fn metrics(context: &Context, headers: &HeaderMap, peer: &Peer) -> Response<Body> {
    let shown = authenticate::bearer(headers);
    let (may, who) = match &context.metrics_token {
        Some(token) => (shown.is_some_and(|shown| Secret::from(shown) == *token), "with the token made for it"),
        None => {
            let forwarded = headers.contains_key("x-forwarded-for") || headers.contains_key(header::FORWARDED);
            let here = peer.ip.is_loopback() && !forwarded && !peer.seat.is_brought();
            let by_key = async {
                let caller =
                    context.throttle.late_for_strangers(context.authn.caller(shown, peer.ip).await, peer.ip).await;
                caller.is_ok_and(|caller| matches!(caller.who(), Who::ApiKey { .. }))
            };
            (here || by_key.await, "to this machine itself, or with a key's bearer token")
        }
    };
    if !may {
        return sentence(401, &format!("metrics are shown {who}\n"));
    }
    let mut page = context.metrics.text(&context.store, &context.throttle);
    context.memory.skew.metrics(&mut page);
    if let Some(mail) = &context.mail {
        mail.metrics(&mut page, context.clock.now());
    }
    let mut answer = sentence(200, &page);
    let kind = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    answer.headers_mut().insert(header::CONTENT_TYPE, kind);
    answer
}

/// What a browser asks before it lets a page of another origin call.
pub(super) fn preflight() -> Response<Body> {
    let mut answer = Response::new(Body::empty());
    *answer.status_mut() = StatusCode::NO_CONTENT;
    let headers = answer.headers_mut();
    headers.insert(header::ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static("POST, GET, HEAD, OPTIONS"));
    headers.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, CORS_REQUEST_HEADERS);
    headers.insert(header::ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static("7200"));
    answer
}

/// A status and a line for a person.
pub(crate) fn sentence(status: u16, text: &str) -> Response<Body> {
    let mut answer = Response::new(Body::new(Full::from(text.to_owned())));
    *answer.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    answer.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    answer
}

/// The nearest HTTP status, for what is asked for in plain HTTP.
pub(crate) fn http_status(code: Code) -> u16 {
    match code {
        Code::Unauthenticated => 401,
        Code::PermissionDenied => 403,
        Code::NotFound => 404,
        Code::InvalidArgument => 400,
        Code::FailedPrecondition => 409,
        Code::ResourceExhausted => 429,
        Code::Unavailable => 503,
        Code::DeadlineExceeded => 504,
        _ => 500,
    }
}

/// Whether pages of other origins are for this: what programs call with a token, and what is for everybody. Not what is
/// for people in a browser, whose pages give keys, nor what is told by where the question comes from.
pub(super) fn is_for_other_origins(path: &str) -> bool {
    is_operation(path)
        || path == "/healthz"
        || ["/releases/", downloads::PATH].iter().any(|below| path.starts_with(below))
}

/// Whether that is the path of an operation, ours or not.
pub(super) fn is_operation(path: &str) -> bool {
    path.get(1..).and_then(|path| path.split_once('/')).is_some_and(|(service, _)| service.contains(".v1."))
}
