//! Who is calling, and how often a call is tried.
//!
//! Owns the credentials, the token they were exchanged for, and the rule of repetition: a refused token is renewed once,
//! because a server looks at the token before anything else; every other fault is repeated only when the caller said
//! that doing it twice does no harm. Nothing is stored: a token lives as long as the client.

use std::{
    hash::{BuildHasher, RandomState},
    sync::{Mutex, PoisonError},
    time::Duration,
};

use crate::{Secret, pb::proto::rpc::v1 as rpc};

/// Further tries of a call that may be repeated. Three bridge a server's restart; more belongs to the caller's own back-off.
pub(super) const REPEATS_MAX: u32 = 3;
/// Pause before the first repetition; doubles each time.
const PAUSE_FIRST: Duration = Duration::from_millis(200);
/// No pause is longer than this.
const PAUSE_MAX: Duration = Duration::from_secs(2);

/// What a caller shows to get a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Credentials {
    /// An API key, of a person or of a device.
    ApiKey {
        /// Id of the key.
        id: String,
        /// The key.
        key: Secret,
    },
    /// The secret of a part: what a device has by default.
    PartSecret {
        /// Id of the part.
        part_id: String,
        /// One of its enabled secrets.
        secret: Secret,
    },
    /// A secret of the location in which the part lies.
    LocationSecret {
        /// Id of the part.
        part_id: String,
        /// One of the location's secrets.
        secret: Secret,
    },
    /// A token from elsewhere; nothing is exchanged, and it cannot be renewed.
    Token(Secret),
}

impl Credentials {
    /// What to say to `AuthService/Authenticate`; nothing for those who have a token already.
    pub(super) fn request(&self) -> Option<rpc::AuthenticateRequest> {
        let (entity, r#type, payload) = match self {
            Self::ApiKey { id, key } => (id, "api-key", key),
            Self::PartSecret { part_id, secret } => (part_id, "robot-secret", secret),
            Self::LocationSecret { part_id, secret } => (part_id, "robot-location-secret", secret),
            Self::Token(_) => return None,
        };
        let credentials = rpc::Credentials { r#type: r#type.to_owned(), payload: payload.expose().to_owned() };
        Some(rpc::AuthenticateRequest { entity: entity.clone(), credentials: Some(credentials) })
    }
}

/// The credentials and the token they gave.
pub(super) struct Session {
    pub(super) credentials: Option<Credentials>,
    token: Mutex<Option<Secret>>,
}

impl Session {
    pub(super) fn new(credentials: Option<Credentials>) -> Self {
        let token = match &credentials {
            Some(Credentials::Token(token)) => Some(token.clone()),
            _ => None,
        };
        Self { credentials, token: Mutex::new(token) }
    }

    pub(super) fn token(&self) -> Option<Secret> {
        self.token.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn keep(&self, token: Secret) {
        *self.token.lock().unwrap_or_else(PoisonError::into_inner) = Some(token);
    }

    /// Drops a token that was refused, unless another thread has renewed it meanwhile. False: there is no way to a new one.
    pub(super) fn forget(&self, refused: &Secret) -> bool {
        if matches!(self.credentials, None | Some(Credentials::Token(_))) {
            return false;
        }
        let mut token = self.token.lock().unwrap_or_else(PoisonError::into_inner);
        if token.as_ref() == Some(refused) {
            *token = None;
        }
        true
    }
}

/// How long to wait before repetition number `repeat` (from 0): half of it fixed, half by chance, so that a thousand
/// devices which lost one server do not come back in step.
pub(super) fn pause(repeat: u32) -> Duration {
    let whole = PAUSE_FIRST.saturating_mul(2_u32.saturating_pow(repeat)).min(PAUSE_MAX);
    // The seed of a fresh hasher is the standard library's only source of chance; no better one is needed here.
    let chance = RandomState::new().hash_one(repeat) % 1000;
    let half = whole / 2;
    half + half.mul_f64(f64::from(u32::try_from(chance).unwrap_or(0)) / 1000.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_and_end() {
        for (repeat, most) in [(0, 200), (1, 400), (2, 800), (3, 1600), (4, 2000), (40, 2000)] {
            for _ in 0..50 {
                let pause = pause(repeat);
                let most = Duration::from_millis(most);
                assert!(pause >= most / 2 && pause <= most, "{repeat}: {pause:?}");
            }
        }
    }

    #[test]
    fn credentials_on_the_wire() {
        let table = [
            (Credentials::ApiKey { id: "i".into(), key: "k".into() }, Some(("i", "api-key", "k"))),
            (Credentials::PartSecret { part_id: "p".into(), secret: "s".into() }, Some(("p", "robot-secret", "s"))),
            (
                Credentials::LocationSecret { part_id: "p".into(), secret: "s".into() },
                Some(("p", "robot-location-secret", "s")),
            ),
            (Credentials::Token("t".into()), None),
        ];
        for (credentials, expected) in table {
            let request = credentials.request();
            let seen = request.as_ref().map(|request| {
                let inner = request.credentials.as_ref().unwrap();
                (request.entity.as_str(), inner.r#type.as_str(), inner.payload.as_str())
            });
            assert_eq!(seen, expected);
            assert!(!format!("{credentials:?}").contains("\"s\""));
        }
    }

    #[test]
    fn only_the_refused_token_is_forgotten() {
        let session = Session::new(Some(Credentials::ApiKey { id: "i".into(), key: "k".into() }));
        session.keep("new".into());
        assert!(session.forget(&"old".into()));
        assert_eq!(session.token(), Some("new".into()));
        assert!(session.forget(&"new".into()));
        assert_eq!(session.token(), None);
        assert!(!Session::new(Some(Credentials::Token("t".into()))).forget(&"t".into()));
    }
}
