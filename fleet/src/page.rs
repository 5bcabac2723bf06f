//! Pages for people in a browser: small, usable without scripts, kept by no cache, telling no other page their address.

use std::sync::LazyLock;

use base64::{Engine, engine::general_purpose::STANDARD};
use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header};
use http_body_util::{BodyExt, Full, Limited};
use tonic::body::Body;

/// How pages look: a column that a phone shows whole, light or dark as the person has it, keys in one piece to copy.
const STYLE: &str = "\
    :root{color-scheme:light dark}\
    body{font:1rem/1.5 system-ui,sans-serif;max-width:36rem;margin:0 auto;padding:1.5rem 1rem;overflow-wrap:anywhere}\
    h1{font-size:1.5rem;line-height:1.2}\
    button,.button{display:inline-block;font:inherit;font-weight:600;padding:.75rem 1.5rem;border:0;border-radius:.5rem;\
    background:#1a56db;color:#fff;text-decoration:none;cursor:pointer}\
    button:disabled{opacity:.6;cursor:default}\
    button:focus-visible,a:focus-visible{outline:3px solid #f59e0b;outline-offset:2px}\
    dt{font-weight:600}\
    dd{margin:0 0 1rem}\
    code{display:block;font:.95rem ui-monospace,monospace;padding:.5rem .75rem;border:1px solid #8889;border-radius:.5rem;\
    user-select:all}";

/// A button is pressed once: a browser sends a form again when it is pressed twice on a slow line. Without scripts it is
/// answered twice.
pub(crate) const ONCE: &str =
    "document.forms[0].addEventListener('submit',()=>{document.querySelector('button').disabled=true})";

/// Nothing is loaded, and of styles and scripts only those two count: they are named by their digests (CSP level 2,
/// section 4.2.5).
static POLICY: LazyLock<HeaderValue> = LazyLock::new(|| {
    let digest = |text: &str| STANDARD.encode(ring::digest::digest(&ring::digest::SHA256, text.as_bytes()));
    let policy = format!(
        "default-src 'none'; style-src 'sha256-{}'; script-src 'sha256-{}'; form-action 'self'; frame-ancestors 'none'; \
         base-uri 'none'",
        digest(STYLE),
        digest(ONCE)
    );
    HeaderValue::from_str(&policy).unwrap_or(HeaderValue::from_static("default-src 'none'"))
});

/// A page with `body`, which is HTML: see [`escaped`].
pub(crate) fn page(status: u16, title: &str, body: &str) -> Response<Body> {
    let text = format!(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>{title}</title>\
         <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\
         <style>{STYLE}</style><body><main>{body}</main></body></html>\n"
    );
    let mut answer = Response::new(Body::new(Full::from(text)));
    *answer.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let headers = answer.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
    private(headers);
    headers.insert(header::CONTENT_SECURITY_POLICY, POLICY.clone());
    answer
}

/// What a browser or a program sends to a page; nothing if it is longer than `most` or breaks off. How long it may take is
/// the caller's matter.
pub(crate) async fn sent(body: Body, most: usize) -> Option<Bytes> {
    Some(Limited::new(body, most).collect().await.ok()?.to_bytes())
}

/// What may be kept by nobody and whose address is told to nobody.
pub(crate) fn private(headers: &mut http::HeaderMap) {
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
}

/// A key as it is shown once, and what to do with it. `address` is how people reach this server, if it knows.
pub(crate) fn key(id: &str, key: &str, address: Option<&str>) -> String {
    let program = api::brand::NAME;
    let url = address.map(|address| format!(" --url {}", escaped(address))).unwrap_or_default();
    format!(
        "<dl><dt>Key id</dt><dd><code id=\"key-id\">{id}</code></dd>\
         <dt>Key</dt><dd><code id=\"key\">{key}</code></dd></dl>\
         <p>On your computer, this asks for both and keeps them:</p><p><code>{program} login{url}</code></p>"
    )
}

/// What went wrong, as a person reads it: messages begin small, because elsewhere they stand behind a colon.
pub(crate) fn told(problem: &str) -> String {
    let mut letters = problem.chars();
    let is_address = problem.split(' ').next().is_some_and(|word| word.contains('@'));
    let text = match letters.next() {
        Some(first) if !is_address => format!("{}{}", first.to_uppercase(), letters.as_str()),
        _ => problem.to_owned(),
    };
    format!("<p>{}.</p>", escaped(text.trim_end_matches('.')))
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

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;

    use super::*;

    #[test]
    fn messages_are_sentences_on_a_page() {
        let table = [
            ("begin again", "<p>Begin again.</p>"),
            ("a@b.example is invited: open <it>", "<p>a@b.example is invited: open &lt;it&gt;.</p>"),
            ("Once.", "<p>Once.</p>"),
        ];
        for (said, read) in table {
            assert_eq!(told(said), read);
        }
    }

    #[tokio::test]
    async fn the_policy_allows_the_style_and_the_script_that_pages_have_and_no_others() {
        let answer = page(200, "A page", &format!("<h1>Here</h1><script>{ONCE}</script>"));
        let policy = answer.headers()[header::CONTENT_SECURITY_POLICY].to_str().unwrap().to_owned();
        let text = answer.into_body().collect().await.unwrap().to_bytes();
        let text = std::str::from_utf8(&text).unwrap();
        for kind in ["style", "script"] {
            let inside = text.split(&format!("<{kind}>")).nth(1).unwrap();
            let inside = inside.split(&format!("</{kind}>")).next().unwrap();
            let digest = STANDARD.encode(ring::digest::digest(&ring::digest::SHA256, inside.as_bytes()));
            let named = policy.split("; ").find_map(|rule| rule.strip_prefix(&format!("{kind}-src "))).unwrap();
            assert_eq!(named, format!("'sha256-{digest}'"));
        }
        assert!(policy.starts_with("default-src 'none';"), "{policy}");
    }
}
