//! The identity provider, asked over HTTP: where its doors are, its keys, and a code for a token.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use serde::{Deserialize, de::DeserializeOwned};
use ureq::{
    Agent,
    unversioned::transport::{Connector, TcpConnector},
};

use super::{
    id_token::{self, Claims, Expected, Keys, TokenError},
    settings::{Settings, is_safe},
};

/// For one answer of the provider; a person waits meanwhile.
const ANSWER_WITHIN: Duration = Duration::from_secs(15);
/// Of one answer.
const ANSWER_BYTES_MAX: u64 = 256 * 1024;
/// How long doors and keys are believed without asking again.
const KNOWN_FOR: Duration = Duration::from_secs(3600);
/// A token with an unknown key is a reason to ask for keys no more often than this.
const KEYS_ASKED_EVERY: Duration = Duration::from_secs(5);

/// Why the provider did not say who somebody is.
#[derive(Debug, thiserror::Error)]
pub(super) enum ProviderError {
    /// Not reached, or not understood.
    #[error("the identity provider does not answer as it should: {0}")]
    Answer(String),
    /// What it said is not believed.
    #[error(transparent)]
    Token(#[from] TokenError),
}

/// Where its doors are, as it says itself.
#[derive(Debug, Clone, Deserialize)]
struct Doors {
    issuer: String,
    authorization_endpoint: String,
    token_endpoint: String,
    jwks_uri: String,
}

#[derive(Clone)]
struct Known {
    doors: Arc<Doors>,
    keys: Arc<Keys>,
    at: Instant,
}

#[derive(Deserialize)]
struct Tokens {
    id_token: Option<String>,
}

/// Asks and remembers. Its functions block.
pub(super) struct Provider {
    agent: Agent,
    memory: Mutex<Memory>,
}

#[derive(Default)]
struct Memory {
    known: Option<Known>,
    /// When a token with an unknown key last was a reason to ask.
    asked_anew: Option<Instant>,
}

impl Provider {
    pub(super) fn new(settings: &Settings) -> Self {
        let config = Agent::config_builder()
            .http_status_as_error(false)
            // Who redirects a question about somebody's identity is somebody else.
            .max_redirects(0)
            .max_redirects_will_error(false)
            .timeout_global(Some(ANSWER_WITHIN))
            .proxy(None)
            .build();
        let trust = settings.authorities.clone().map_or(web::Trust::System, web::Trust::File);
        let connector = ().chain(TcpConnector::default()).chain(web::Tls::new(trust, None));
        Self { agent: Agent::with_parts(config, connector, web::Names::default()), memory: Mutex::default() }
    }

    /// Where a person is sent to sign in.
    pub(super) fn door(&self, settings: &Settings) -> Result<String, ProviderError> {
        Ok(self.known(settings, false)?.doors.authorization_endpoint.clone())
    }

    /// Who signed in, from the code that the provider gave the browser.
    pub(super) fn who(
        &self,
        settings: &Settings,
        code: &str,
        verifier: &str,
        redirect: &str,
        expected: Expected<'_>,
    ) -> Result<Claims, ProviderError> {
        let known = self.known(settings, false)?;
        let mut form = vec![
            ("grant_type", "authorization_code"),
            ("code", code),
            ("redirect_uri", redirect),
            ("client_id", &settings.client_id),
            ("code_verifier", verifier),
        ];
        if let Some(secret) = &settings.client_secret {
            form.push(("client_secret", secret.expose()));
        }
        let answer = self.agent.post(&known.doors.token_endpoint).send_form(form).map_err(unreachable)?;
        let tokens: Tokens = read(answer)?;
        let token = tokens.id_token.ok_or_else(|| ProviderError::Answer("there is no ID token".into()))?;
        match id_token::verify(&token, &known.keys, expected) {
            // It may have another key since.
            Err(TokenError::UnknownKey) => Ok(id_token::verify(&token, &self.known(settings, true)?.keys, expected)?),
            other => Ok(other?),
        }
    }

    fn known(&self, settings: &Settings, anew: bool) -> Result<Known, ProviderError> {
        // Held while asking: one question at a time is enough for everybody who waits.
        let mut memory = self.memory.lock().unwrap_or_else(PoisonError::into_inner);
        let ask = match (anew, memory.asked_anew) {
            (true, asked) => asked.is_none_or(|asked| asked.elapsed() >= KEYS_ASKED_EVERY),
            (false, _) => memory.known.as_ref().is_none_or(|known| known.at.elapsed() >= KNOWN_FOR),
        };
        if let Some(known) = memory.known.as_ref().filter(|_| !ask) {
            return Ok(known.clone());
        }
        if anew {
            memory.asked_anew = Some(Instant::now());
        }
        let doors: Doors =
            self.get(&format!("{}/.well-known/openid-configuration", settings.issuer.trim_end_matches('/')))?;
        if doors.issuer != settings.issuer {
            return Err(ProviderError::Answer(format!("it calls itself {:?}", doors.issuer)));
        }
        let all = [&doors.authorization_endpoint, &doors.token_endpoint, &doors.jwks_uri];
        if let Some(open) = all.into_iter().find(|door| !is_safe(door)) {
            return Err(ProviderError::Answer(format!("{open:?} is no safe address")));
        }
        let keys = self.get(&doors.jwks_uri)?;
        Ok(memory.known.insert(Known { doors: Arc::new(doors), keys: Arc::new(keys), at: Instant::now() }).clone())
    }

    fn get<T: DeserializeOwned>(&self, address: &str) -> Result<T, ProviderError> {
        read(self.agent.get(address).call().map_err(unreachable)?)
    }
}

fn unreachable(why: ureq::Error) -> ProviderError {
    ProviderError::Answer(why.to_string())
}

fn read<T: DeserializeOwned>(mut answer: ureq::http::Response<ureq::Body>) -> Result<T, ProviderError> {
    let status = answer.status();
    let text = answer.body_mut().with_config().limit(ANSWER_BYTES_MAX).read_to_string().map_err(unreachable)?;
    if !status.is_success() {
        // "invalid_grant" and the like; the rest is for its own people.
        let error = serde_json::from_str::<serde_json::Value>(&text).ok();
        let error = error.and_then(|value| Some(value.get("error")?.as_str()?.chars().take(60).collect::<String>()));
        return Err(ProviderError::Answer(format!("{status} {}", error.unwrap_or_default())));
    }
    serde_json::from_str(&text).map_err(|why| ProviderError::Answer(why.to_string()))
}
