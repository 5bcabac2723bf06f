//! `/invite/SECRET`: the page behind an invitation's link.
//!
//! Looking at it changes nothing, because programs that check mail follow every link; the button accepts. The page
//! shows a new person's key once, so nothing may keep it, and no other page learns the address. The form brings along,
//! sealed, which key that will be: a button that is pressed twice is answered with it twice (docs/adr/0053).

use std::net::IpAddr;

use http::{HeaderMap, Method, Request, Response};
use tonic::body::Body;

use crate::{
    context::Context,
    page::{self, escaped},
    people::{self, Accepted, Dead, Waiting},
    refusal::Refusal,
    sign_in,
    store::invites::Ended,
};

/// Longer than any secret of ours; what is longer is not worth a look-up.
const SECRET_BYTES_MAX: usize = 64;

/// Of what the form sends: a sealed key, and the name of an organization.
const FORM_BYTES_MAX: usize = 16 * 1024;
/// Name of its only field.
const FIELD: &str = "promise";

/// Any request below [`people::PATH`].
pub async fn answer(context: &Context, request: Request<Body>, from: IpAddr) -> Response<Body> {
    let (parts, body) = request.into_parts();
    let secret = parts.uri.path().strip_prefix(people::PATH).unwrap_or_default();
    let outcome = match parts.method {
        _ if secret.len() > SECRET_BYTES_MAX => Ok(Err(Dead::Unknown)),
        Method::GET | Method::HEAD => {
            let found = people::waiting(context, secret).await;
            found.map(|found| found.map(|waiting| question(&waiting, &people::promise(context, secret, &waiting))))
        }
        Method::POST if is_another_sites(&parts.headers) => {
            return page(403, "<h1>Not from there</h1><p>Another site pressed this button. Open the link itself.</p>");
        }
        Method::POST => {
            let Some(sent) = page::sent(body, FORM_BYTES_MAX).await else {
                return page(
                    400,
                    "<h1>Not at this moment</h1><p>What the button sends did not come. Press it again.</p>",
                );
            };
            let accepted = people::accept(context, secret, &field(&sent), from).await;
            accepted.map(|found| found.map(|accepted| done(context, &accepted)))
        }
        _ => return page(405, "<p>Only GET and POST.</p>"),
    };
    match outcome {
        Ok(Ok(text)) => page(200, &text),
        Ok(Err(dead)) => page(404, &format!("<h1>This link opens nothing</h1><p>{}</p>", said(dead))),
        Err(refusal) => refused(&refusal),
    }
}

/// Whether another site made a person's browser press it, with a form that it fetched itself and whose key it therefore
/// knows (Fetch Metadata Request Headers, `Sec-Fetch-Site`).
fn is_another_sites(headers: &HeaderMap) -> bool {
    headers.get("sec-fetch-site").is_some_and(|site| site == "cross-site")
}

/// What the form brings along. Whoever accepts without our page brings nothing.
fn field(sent: &[u8]) -> String {
    let fields = std::str::from_utf8(sent).unwrap_or_default();
    // Hexadecimal digits: nothing in it is escaped.
    let mut pairs = fields.split('&').filter_map(|pair| pair.split_once('='));
    pairs.find_map(|(name, value)| (name == FIELD).then(|| value.to_owned())).unwrap_or_default()
}

/// What a person may do about it.
fn said(dead: Dead) -> &'static str {
    match dead {
        Dead::Expired => "It is too old. Ask whoever invited you to send the invitation again.",
        Dead::Ended(Ended::Accepted) => {
            "It was used already: the invitation is accepted. If that was not you, tell whoever invited you."
        }
        Dead::Ended(Ended::Withdrawn) => "The invitation was withdrawn. Ask whoever invited you.",
        Dead::Ended(Ended::Replaced) => "The invitation was sent again since: use the link in the newest mail.",
        Dead::Unknown => "Nobody is invited by it. Look whether the whole link was copied, to its last letter.",
    }
}

fn question(waiting: &Waiting, promise: &str) -> String {
    format!(
        "<h1>Invitation</h1><p>{} is invited to the organization <strong>{}</strong>.</p>\
         <form method=\"post\" autocomplete=\"off\"><input type=\"hidden\" name=\"{FIELD}\" value=\"{promise}\">\
         <button>Accept</button></form><script>{}</script>",
        escaped(&waiting.email),
        escaped(&waiting.organization),
        page::ONCE
    )
}

fn done(context: &Context, Accepted { waiting, issued }: &Accepted) -> String {
    let joined = format!(
        "<h1>Welcome</h1><p>{} is now a member of <strong>{}</strong>.</p>",
        escaped(&waiting.email),
        escaped(&waiting.organization)
    );
    match issued {
        None if context.sign_in.is_some() => {
            format!(
                "{joined}<p>The keys you have already open it too; if you have none, sign in.</p>\
                 <p><a class=\"button\" href=\"{}\">Sign in</a></p>",
                sign_in::PATH
            )
        }
        None => format!("{joined}<p>The keys you have already open it too.</p>"),
        Some(issued) => format!(
            "{joined}<p>This is your personal API key. It is shown this once: keep it.</p>\
             {}",
            page::key(&issued.key_id, &issued.key, context.address.as_deref())
        ),
    }
}

fn page(status: u16, body: &str) -> Response<Body> {
    page::page(status, "Invitation", body)
}

fn refused(refusal: &Refusal) -> Response<Body> {
    page(503, &format!("<h1>Not at this moment</h1>{}", page::told(refusal.message())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_cannot_become_markup() {
        let waiting = Waiting { organization: "<script>\"'&".into(), email: "a@example.org".into() };
        let page = question(&waiting, "c0ffee");
        assert!(page.contains("&lt;script&gt;&quot;&#39;&amp;"), "{page}");
        assert!(!page.contains("<script>\"") && page.matches("<script").count() == 1, "{page}");
    }
}
