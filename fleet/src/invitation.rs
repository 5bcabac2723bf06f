//! `/invite/SECRET`: the page behind an invitation's link.
//!
//! Looking at it changes nothing, because programs that check mail follow every link; the button accepts. The page
//! shows a new person's key once, so nothing may keep it, and no other page learns the address.

use std::net::IpAddr;

use http::{HeaderValue, Method, Response, StatusCode, header};
use http_body_util::Full;
use tonic::body::Body;

use crate::{
    context::Context,
    people::{self, Accepted, Waiting},
    refusal::Refusal,
};

/// Longer than any secret of ours; what is longer is not worth a look-up.
const SECRET_BYTES_MAX: usize = 64;

/// Any request below [`people::PATH`].
pub async fn answer(context: &Context, method: &Method, secret: &str, from: IpAddr) -> Response<Body> {
    let outcome = match *method {
        _ if secret.len() > SECRET_BYTES_MAX => Ok(None),
        Method::GET | Method::HEAD => {
            people::waiting(context, secret).await.map(|found| found.map(|waiting| question(&waiting)))
        }
        Method::POST => people::accept(context, secret, from).await.map(|found| found.map(|accepted| done(&accepted))),
        _ => return page(405, "<p>Only GET and POST.</p>"),
    };
    match outcome {
        Ok(Some(text)) => page(200, &text),
        Ok(None) => page(
            404,
            "<p>This invitation is not valid any more: it was accepted, withdrawn, sent again, or is too old.</p>\
             <p>Ask whoever invited you to send it again.</p>",
        ),
        Err(refusal) => refused(&refusal),
    }
}

fn question(waiting: &Waiting) -> String {
    format!(
        "<h1>Invitation</h1><p>{} is invited to the organization <strong>{}</strong>.</p>\
         <form method=\"post\"><button>Accept</button></form>",
        escaped(&waiting.email),
        escaped(&waiting.organization)
    )
}

fn done(Accepted { waiting, issued }: &Accepted) -> String {
    let joined = format!(
        "<h1>Welcome</h1><p>{} is now a member of <strong>{}</strong>.</p>",
        escaped(&waiting.email),
        escaped(&waiting.organization)
    );
    match issued {
        None => format!("{joined}<p>The keys you have already open it too.</p>"),
        Some(issued) => format!(
            "{joined}<p>This is your personal API key. It is shown this once: keep it.</p>\
             <dl><dt>Key id</dt><dd><code id=\"key-id\">{}</code></dd>\
             <dt>Key</dt><dd><code id=\"key\">{}</code></dd></dl>",
            issued.key_id, issued.key
        ),
    }
}

fn refused(refusal: &Refusal) -> Response<Body> {
    page(503, &format!("<p>{}</p>", escaped(refusal.message())))
}

fn page(status: u16, body: &str) -> Response<Body> {
    let text = format!(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>Invitation</title>\
         <meta name=\"viewport\" content=\"width=device-width\"><body>{body}</body></html>\n"
    );
    let mut answer = Response::new(Body::new(Full::from(text)));
    *answer.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let headers = answer.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(
        header::CONTENT_SECURITY_POLICY,
        HeaderValue::from_static("default-src 'none'; form-action 'self'; frame-ancestors 'none'"),
    );
    answer
}

/// What people named may hold anything that is printable.
fn escaped(text: &str) -> String {
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
    use super::*;

    #[test]
    fn names_cannot_become_markup() {
        let waiting = Waiting { organization: "<script>\"'&".into(), email: "a@example.org".into() };
        let page = question(&waiting);
        assert!(page.contains("&lt;script&gt;&quot;&#39;&amp;"), "{page}");
        assert!(!page.contains("<script"), "{page}");
    }
}
