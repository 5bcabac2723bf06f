//! `/sign-in`: where a person begins, where the provider sends them back, and where a program asks for its key.

use std::{borrow::Cow, net::IpAddr};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header, request::Parts};
use http_body_util::Full;
use serde::Deserialize;
use serde_json::json;
use tonic::body::Body;

use super::{Outcome, Program, SignIn, SignInError, begin, finish, redeem};
use crate::{
    context::Context,
    edge::{http_status, sentence},
    page::{self, escaped, page},
};

/// Everything below this is ours.
pub const PATH: &str = "/sign-in";
/// The cookie's name.
const COOKIE: &str = "sign-in";
/// Of what a program sends.
const QUESTION_BYTES_MAX: usize = 16 * 1024;

/// What the provider says through the browser.
#[derive(Default)]
pub(super) struct Answer {
    pub(super) state: String,
    pub(super) code: Option<String>,
    pub(super) error: Option<String>,
}

#[derive(Deserialize)]
struct Question {
    code: String,
    secret: String,
}

/// Any request to [`PATH`] or below it.
pub async fn answer(context: &Context, request: Request<Body>, from: IpAddr) -> Response<Body> {
    let Some(sign_in) = &context.sign_in else {
        return page(404, "Sign in", "<p>This server has no identity provider: sign in with an API key.</p>");
    };
    let below = request.uri().path().strip_prefix(PATH).unwrap_or_default();
    let reads = *request.method() == Method::GET;
    match below {
        "" if reads => {
            // Its name is enough for a person; what follows is for programs.
            let issuer = &sign_in.settings.issuer;
            let host = issuer.split_once("://").map_or(&**issuer, |(_, rest)| rest).split('/').next();
            let host = escaped(host.unwrap_or_default());
            let begin = format!(
                "<h1>Sign in</h1><p>This server knows people by their account at <strong>{host}</strong>. You come back \
                 here, to a personal API key.</p><p><a class=\"button\" href=\"{PATH}/start\">Go on to {host}</a></p>"
            );
            page(200, "Sign in", &begin)
        }
        "/start" if reads => start(context, sign_in, request.uri().query().unwrap_or_default()).await,
        "/callback" if reads => {
            let (parts, _) = request.into_parts();
            callback(context, sign_in, &parts, from).await
        }
        "/token" if *request.method() == Method::POST => token(context, sign_in, request, from).await,
        "" | "/start" | "/callback" | "/token" => sentence(405, "GET; for /sign-in/token POST\n"),
        _ => sentence(404, "nothing here\n"),
    }
}

async fn start(context: &Context, sign_in: &SignIn, query: &str) -> Response<Body> {
    let program = match (field(query, "port"), field(query, "challenge")) {
        (None, None) => None,
        (Some(port), Some(challenge)) => {
            let port = port.parse().ok().filter(|port: &u16| *port > 0);
            let whole =
                challenge.len() == 64 && challenge.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
            match port.filter(|_| whole) {
                Some(port) => Some(Program { port, challenge: challenge.into_owned() }),
                None => return sentence(400, "port is a number, challenge is SHA-256 in hexadecimal digits\n"),
            }
        }
        _ => return sentence(400, "port and challenge belong together\n"),
    };
    match begin(context, sign_in, program).await {
        Ok(sent) => redirect(&sent.location, &cookie(sign_in, &sent.cookie)),
        Err(why) => failed(&why),
    }
}

async fn callback(context: &Context, sign_in: &SignIn, request: &Parts, from: IpAddr) -> Response<Body> {
    let query = request.uri.query().unwrap_or_default();
    let owned = |name| field(query, name).map(Cow::into_owned);
    let answer = Answer { state: owned("state").unwrap_or_default(), code: owned("code"), error: owned("error") };
    let outcome = finish(context, sign_in, cookie_of(&request.headers), &answer, from).await;
    let mut answer = match outcome {
        Ok(Outcome::Program { location }) => return redirect(&location, &cookie(sign_in, "")),
        Ok(Outcome::Key { email, issued }) => page(
            200,
            "Signed in",
            &format!(
                "<h1>Signed in</h1><p>This is an API key of {}. It is shown this once, and good for {} days.</p>{}",
                escaped(&email),
                sign_in.settings.key_lives.as_secs() / 86_400,
                page::key(&issued.key_id, &issued.key, Some(&sign_in.settings.address))
            ),
        ),
        Err(why) => failed(&why),
    };
    set_cookie(answer.headers_mut(), &cookie(sign_in, ""));
    answer
}

async fn token(context: &Context, sign_in: &SignIn, request: Request<Body>, from: IpAddr) -> Response<Body> {
    let sent = page::sent(request.into_body(), QUESTION_BYTES_MAX).await;
    let question = sent.and_then(|sent| serde_json::from_slice::<Question>(&sent).ok());
    let Some(Question { code, secret }) = question else {
        return sentence(400, "{\"code\", \"secret\"} as JSON is needed\n");
    };
    match redeem(context, sign_in, &code, &secret, from).await {
        Ok(issued) => {
            let answer = json!({"user_id": issued.user_id, "key_id": issued.key_id, "key": issued.key});
            let mut answer = Response::new(Body::new(Full::new(Bytes::from(answer.to_string()))));
            page::private(answer.headers_mut());
            answer.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
            answer
        }
        Err(why) => sentence(status(&why), &format!("{why}\n")),
    }
}

fn status(why: &SignInError) -> u16 {
    match why {
        SignInError::NoAttempt => 400,
        SignInError::Refused(_) | SignInError::Stranger(_) => 403,
        SignInError::Provider(_) => 502,
        SignInError::Server(status) => http_status(status.code()),
    }
}

fn failed(why: &SignInError) -> Response<Body> {
    tracing::info!(%why, "somebody did not sign in");
    let again = format!("<p><a class=\"button\" href=\"{PATH}\">Begin again</a></p>");
    page(status(why), "Not signed in", &format!("<h1>Not signed in</h1>{}{again}", page::told(&why.to_string())))
}

fn redirect(location: &str, cookie: &str) -> Response<Body> {
    let Ok(location) = HeaderValue::from_str(location) else { return sentence(502, "that leads nowhere\n") };
    let mut answer = Response::new(Body::empty());
    *answer.status_mut() = StatusCode::SEE_OTHER;
    let headers = answer.headers_mut();
    page::private(headers);
    headers.insert(header::LOCATION, location);
    set_cookie(headers, cookie);
    answer
}

/// Kept by the browser for one attempt, sent to these pages only; empty takes it away.
fn cookie(sign_in: &SignIn, value: &str) -> String {
    let lives = if value.is_empty() { 0 } else { super::ATTEMPT_LIVES / 1000 };
    let secure = if sign_in.settings.address.starts_with("https:") { "; Secure" } else { "" };
    format!("{COOKIE}={value}; Path={PATH}; Max-Age={lives}; HttpOnly; SameSite=Lax{secure}")
}

fn set_cookie(headers: &mut HeaderMap, cookie: &str) {
    if let Ok(cookie) = HeaderValue::from_str(cookie) {
        headers.insert(header::SET_COOKIE, cookie);
    }
}

fn cookie_of(headers: &HeaderMap) -> Option<&str> {
    let all = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut pairs = all.flat_map(|value| value.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.find_map(|(name, value)| (name == COOKIE).then_some(value))
}

/// A field of a query.
fn field<'q>(query: &'q str, name: &str) -> Option<Cow<'q, str>> {
    let mut fields = query.split('&').filter_map(|field| field.split_once('='));
    let value = fields.find_map(|(found, value)| (found == name).then_some(value))?;
    if !value.contains(['%', '+']) {
        return Some(Cow::Borrowed(value));
    }
    let mut bytes = Vec::with_capacity(value.len());
    let mut rest = value.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'+' => b' ',
            b'%' => {
                let digit =
                    |byte: Option<u8>| char::from(byte?).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
                digit(rest.next())? << 4 | digit(rest.next())?
            }
            other => other,
        });
    }
    String::from_utf8(bytes).ok().map(Cow::Owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_of_queries() {
        let query = "state=a-b&code=x%2Fy+z&bad=%zz&cut=%2&odd=%ff&empty=";
        let table = [
            ("state", Some("a-b")),
            ("code", Some("x/y z")),
            ("bad", None),
            ("cut", None),
            ("odd", None),
            ("empty", Some("")),
            ("none", None),
        ];
        for (name, wanted) in table {
            assert_eq!(field(query, name).as_deref(), wanted, "{name}");
        }
    }
}
