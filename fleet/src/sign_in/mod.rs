//! Signing in with an identity provider (OpenID Connect, authorization code with PKCE).
//!
//! It says who somebody is; what they may do stays with their roles. Only whom this server knows by the verified
//! address, or has invited without a mail, comes in, and gets a personal key that ends after some days.
//!
//! Nothing is kept between the steps: what has to be remembered is sealed in the browser's cookie, so that any server
//! on the same database can go on. `id_token.rs` judges what the provider says, `provider.rs` asks it, `pages.rs` shows.

mod id_token;
mod pages;
mod provider;
mod settings;

use std::net::IpAddr;

use ring::digest;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use tokio::sync::Semaphore;
use tonic::Status;

pub use pages::{PATH, answer};
pub use settings::{Arguments, Settings, SignInArgumentError};

use crate::{
    authn::Sealer,
    clock::Millis,
    context::Context,
    hex, ids,
    people::{self, Issued, Stranger},
    refusal::Refusal,
    services::input,
};
use id_token::Expected;
use provider::{Provider, ProviderError};

/// From the first step to the last: a person may have to look for a second factor.
const ATTEMPT_LIVES: Millis = 10 * 60 * 1000;
/// From the browser's redirect to the program's question.
const GRANT_LIVES: Millis = 60 * 1000;
/// Questions to the provider at the same time; each holds a thread.
const QUESTIONS_MAX: usize = 4;
/// What sealed texts are bound to, so that none is taken for another.
const ATTEMPT: &str = "sign-in attempt";
const GRANT: &str = "sign-in grant";

/// The identity provider, if one is configured.
pub struct SignIn {
    settings: Settings,
    provider: Provider,
    questions: Semaphore,
}

/// What a browser keeps for us between the steps.
#[derive(Serialize, Deserialize)]
struct Attempt {
    state: String,
    nonce: String,
    verifier: String,
    expires_at: Millis,
    /// The program that waits for the outcome on the person's machine.
    program: Option<Program>,
}

/// `platform login --oidc`: listens on loopback, and proves with the secret behind `challenge` that it is the one.
#[derive(Clone, Serialize, Deserialize)]
struct Program {
    port: u16,
    /// SHA-256 of its secret, as hexadecimal digits.
    challenge: String,
}

/// What a program gets a key for.
#[derive(Serialize, Deserialize)]
struct Grant {
    user: String,
    challenge: String,
    expires_at: Millis,
}

/// Where a browser goes, and the cookie it takes along.
struct Sent {
    location: String,
    cookie: String,
}

/// How an attempt ended well.
enum Outcome {
    /// A key for the person in front of the browser.
    Key { email: String, issued: Issued },
    /// Back to the program that waits.
    Program { location: String },
}

/// Why somebody did not come in.
#[derive(Debug, thiserror::Error)]
enum SignInError {
    /// No cookie, an old one, or somebody else's answer.
    #[error("this sign-in was not begun in this browser, or too long ago: begin again")]
    NoAttempt,
    /// The provider says no.
    #[error("the identity provider did not sign you in ({0})")]
    Refused(String),
    #[error(transparent)]
    Provider(#[from] ProviderError),
    /// Known there, and not here.
    #[error("{0}")]
    Stranger(String),
    /// See [`Refusal`].
    #[error("{}", .0.message())]
    Server(Status),
}

impl From<Refusal> for SignInError {
    fn from(refusal: Refusal) -> Self {
        Self::Server(refusal.into())
    }
}

impl SignIn {
    /// The provider is asked when somebody comes.
    pub fn new(settings: Settings) -> Self {
        let provider = Provider::new(&settings);
        Self { settings, provider, questions: Semaphore::new(QUESTIONS_MAX) }
    }

    fn redirect(&self) -> String {
        format!("{}{PATH}/callback", self.settings.address)
    }

    /// The question to the provider, asked on a thread that may block.
    async fn asks<T: Send>(&self, ask: impl FnOnce() -> Result<T, ProviderError> + Send) -> Result<T, SignInError> {
        let busy = || SignInError::from(Refusal::exhausted("too many people sign in at this moment: try again"));
        let _turn = self.questions.try_acquire().map_err(|_| busy())?;
        // The runtime moves other work away; in a runtime of one thread (tests) there is none to move.
        let multi = tokio::runtime::Handle::current().runtime_flavor() == tokio::runtime::RuntimeFlavor::MultiThread;
        Ok(if multi { tokio::task::block_in_place(ask)? } else { ask()? })
    }
}

/// Sends a browser to the provider.
async fn begin(context: &Context, sign_in: &SignIn, program: Option<Program>) -> Result<Sent, SignInError> {
    let door = sign_in.asks(|| sign_in.provider.door(&sign_in.settings)).await?;
    let attempt = Attempt {
        state: ids::new_secret(),
        nonce: ids::new_secret(),
        verifier: hex::encode(&ids::random::<32>()),
        expires_at: context.clock.now() + ATTEMPT_LIVES,
        program,
    };
    let join = if door.contains('?') { '&' } else { '?' };
    let query: String = form_urlencoded(&[
        ("response_type", "code"),
        ("scope", "openid email"),
        ("client_id", &sign_in.settings.client_id),
        ("redirect_uri", &sign_in.redirect()),
        ("state", &attempt.state),
        ("nonce", &attempt.nonce),
        ("code_challenge", &challenge(&attempt.verifier)),
        ("code_challenge_method", "S256"),
    ]);
    let cookie = sealed(&context.authn.sealer, ATTEMPT, &attempt);
    Ok(Sent { location: format!("{door}{join}{query}"), cookie })
}

/// The provider sent the browser back.
async fn finish(
    context: &Context,
    sign_in: &SignIn,
    cookie: Option<&str>,
    answer: &pages::Answer,
    from: IpAddr,
) -> Result<Outcome, SignInError> {
    let now = context.clock.now();
    let attempt: Attempt = cookie
        .and_then(|cookie| opened(&context.authn.sealer, ATTEMPT, cookie))
        .filter(|attempt: &Attempt| attempt.expires_at > now && attempt.state == answer.state)
        .ok_or(SignInError::NoAttempt)?;
    let code = match (&answer.code, &answer.error) {
        (Some(code), None) => code,
        (_, Some(error)) => return Err(SignInError::Refused(error.chars().take(60).collect())),
        (None, None) => return Err(SignInError::NoAttempt),
    };
    let settings = &sign_in.settings;
    let expected =
        Expected { issuer: &settings.issuer, client: &settings.client_id, nonce: &attempt.nonce, now: now / 1000 };
    let redirect = sign_in.redirect();
    let claims = sign_in.asks(|| sign_in.provider.who(settings, code, &attempt.verifier, &redirect, expected)).await?;
    let stranger = |why: String| SignInError::Stranger(why);
    let email = claims.email.as_deref().and_then(|email| input::email("email", email).ok());
    let email = email.ok_or_else(|| {
        stranger(
            "the identity provider gives no verified e-mail address of yours: this server knows people by theirs"
                .into(),
        )
    })?;
    let user = people::known_at(context, &settings.issuer, &claims.subject, &email, from).await?;
    let user = user.map_err(|why| {
        stranger(match why {
            Stranger::Unknown => format!("nobody has invited {email} to this server: ask for an invitation"),
            Stranger::Invited => format!("{email} is invited by a mail: open its link first, then sign in"),
            Stranger::Another => {
                format!("{email} belongs to somebody who signed in here with another account: ask this server's administrator")
            }
        })
    })?;
    Ok(match attempt.program {
        None => {
            let issued = people::issue_for(context, &user, settings.key_lives, from).await?;
            Outcome::Key { email, issued }
        }
        Some(Program { port, challenge }) => {
            let grant = Grant { user, challenge, expires_at: now + GRANT_LIVES };
            let code = sealed(&context.authn.sealer, GRANT, &grant);
            Outcome::Program { location: format!("http://127.0.0.1:{port}/?code={code}") }
        }
    })
}

/// A program asks for its key.
async fn redeem(
    context: &Context,
    sign_in: &SignIn,
    code: &str,
    secret: &str,
    from: IpAddr,
) -> Result<Issued, SignInError> {
    let grant: Grant = opened(&context.authn.sealer, GRANT, code)
        .filter(|grant: &Grant| grant.expires_at > context.clock.now())
        .filter(|grant| hex::encode(digest::digest(&digest::SHA256, secret.as_bytes()).as_ref()) == grant.challenge)
        .ok_or(SignInError::NoAttempt)?;
    Ok(people::issue_for(context, &grant.user, sign_in.settings.key_lives, from).await?)
}

/// PKCE, S256.
fn challenge(verifier: &str) -> String {
    use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
    URL_SAFE_NO_PAD.encode(digest::digest(&digest::SHA256, verifier.as_bytes()))
}

fn sealed<T: Serialize>(sealer: &Sealer, what: &str, value: &T) -> String {
    let text = serde_json::to_string(value).expect("texts and numbers can be written");
    sealer.seal(what, &text)
}

fn opened<T: DeserializeOwned>(sealer: &Sealer, what: &str, text: &str) -> Option<T> {
    serde_json::from_str(&sealer.open(what, text)?).ok()
}

/// Everything but letters, digits and `-._~` is escaped.
fn form_urlencoded(fields: &[(&str, &str)]) -> String {
    let mut out = String::new();
    for (name, value) in fields {
        if !out.is_empty() {
            out.push('&');
        }
        out.push_str(name);
        out.push('=');
        for byte in value.bytes() {
            match byte {
                b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => out.push(char::from(byte)),
                other => out.push_str(&format!("%{other:02X}")),
            }
        }
    }
    out
}
