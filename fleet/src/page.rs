//! Pages for people in a browser: small, without scripts, kept by no cache, telling no other page their address.

use http::{HeaderValue, Response, StatusCode, header};
use http_body_util::Full;
use tonic::body::Body;

/// A page with `body`, which is HTML: see [`escaped`].
pub(crate) fn page(status: u16, title: &str, body: &str) -> Response<Body> {
    let text = format!(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>{title}</title>\
         <meta name=\"viewport\" content=\"width=device-width\"><body>{body}</body></html>\n"
    );
    let mut answer = Response::new(Body::new(Full::from(text)));
    *answer.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let headers = answer.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
    private(headers);
    headers.insert(
        header::CONTENT_SECURITY_POLICY,
        HeaderValue::from_static("default-src 'none'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"),
    );
    answer
}

/// What may be kept by nobody and whose address is told to nobody.
pub(crate) fn private(headers: &mut http::HeaderMap) {
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
}

/// A key as it is shown once.
pub(crate) fn key(id: &str, key: &str) -> String {
    format!(
        "<dl><dt>Key id</dt><dd><code id=\"key-id\">{id}</code></dd>\
         <dt>Key</dt><dd><code id=\"key\">{key}</code></dd></dl>"
    )
}

/// What people named may hold anything that is printable.
pub(crate) fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' => out.push_str("&amp;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            other => out.push(other),
        }
    }
    out
}
