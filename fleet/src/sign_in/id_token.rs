//! What an identity provider says about somebody, believed only after everything about it was checked.
//!
//! Pure: keys, expectations and the time come in, claims or a reason come out. Signatures are checked by `ring`; an
//! algorithm counts only with a key of its own kind, so that no token chooses how it is judged.

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ED25519, RSA_PKCS1_2048_8192_SHA256, RsaPublicKeyComponents, UnparsedPublicKey,
};
use serde::Deserialize;
use serde_json::Value;

/// Far above any ID token; what is longer is not decoded.
const TOKEN_BYTES_MAX: usize = 16 * 1024;
/// Of a subject: what the standard allows.
const SUBJECT_CHARS_MAX: usize = 255;
/// By how much two clocks may differ, in seconds.
const SKEW: i64 = 60;

/// A provider's public keys, as it publishes them.
#[derive(Debug, Clone, Default, Deserialize)]
pub(super) struct Keys {
    keys: Vec<Key>,
}

#[derive(Debug, Clone, Deserialize)]
struct Key {
    kty: String,
    kid: Option<String>,
    #[serde(rename = "use")]
    purpose: Option<String>,
    n: Option<String>,
    e: Option<String>,
    crv: Option<String>,
    x: Option<String>,
    y: Option<String>,
}

/// What the token has to say.
#[derive(Debug, Clone, Copy)]
pub(super) struct Expected<'a> {
    pub(super) issuer: &'a str,
    pub(super) client: &'a str,
    pub(super) nonce: &'a str,
    /// Seconds since 1970.
    pub(super) now: i64,
}

/// Who it is about.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Claims {
    pub(super) subject: String,
    /// Only if the provider has verified it.
    pub(super) email: Option<String>,
}

/// Why a token is not believed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum TokenError {
    /// Not three parts of what they have to be.
    #[error("the identity provider's token is malformed")]
    Malformed,
    /// None of those that are known here: RS256, ES256, EdDSA.
    #[error("the identity provider signs with {0:?}, which is not accepted here")]
    Algorithm(String),
    /// Perhaps a newer one: ask for the keys again.
    #[error("the token is signed by a key that the identity provider does not publish")]
    UnknownKey,
    /// A claim is missing or says something else.
    #[error("the token's {0} is not what it has to be")]
    Claim(&'static str),
}

#[derive(Deserialize)]
struct Header {
    alg: String,
    kid: Option<String>,
    crit: Option<Value>,
}

/// Checks signature and claims.
pub(super) fn verify(token: &str, keys: &Keys, expected: Expected<'_>) -> Result<Claims, TokenError> {
    if token.len() > TOKEN_BYTES_MAX {
        return Err(TokenError::Malformed);
    }
    let (signed, signature) = token.rsplit_once('.').ok_or(TokenError::Malformed)?;
    let (header, payload) = signed.split_once('.').ok_or(TokenError::Malformed)?;
    let header: Header = serde_json::from_slice(&decoded(header)?).map_err(|_| TokenError::Malformed)?;
    if header.crit.is_some() {
        return Err(TokenError::Malformed);
    }
    let kind = match &*header.alg {
        "RS256" => "RSA",
        "ES256" => "EC",
        "EdDSA" => "OKP",
        other => return Err(TokenError::Algorithm(other.chars().take(20).collect())),
    };
    let signature = decoded(signature)?;
    let may_be = |key: &&Key| {
        let same_id = match (&header.kid, &key.kid) {
            (Some(wanted), Some(offered)) => wanted == offered,
            _ => true,
        };
        key.kty == kind && same_id && key.purpose.as_deref().is_none_or(|purpose| purpose == "sig")
    };
    if !keys.keys.iter().filter(may_be).any(|key| signed_by(key, signed.as_bytes(), &signature).is_some()) {
        return Err(TokenError::UnknownKey);
    }
    let payload: Value = serde_json::from_slice(&decoded(payload)?).map_err(|_| TokenError::Malformed)?;
    check(&payload, expected)
}

fn decoded(part: &str) -> Result<Vec<u8>, TokenError> {
    URL_SAFE_NO_PAD.decode(part).map_err(|_| TokenError::Malformed)
}

fn signed_by(key: &Key, message: &[u8], signature: &[u8]) -> Option<()> {
    let bytes = |field: &Option<String>| URL_SAFE_NO_PAD.decode(field.as_deref()?).ok();
    let curve = key.crv.as_deref();
    let good = match &*key.kty {
        "RSA" => RsaPublicKeyComponents { n: bytes(&key.n)?, e: bytes(&key.e)? }.verify(
            &RSA_PKCS1_2048_8192_SHA256,
            message,
            signature,
        ),
        "EC" if curve == Some("P-256") => {
            let point = [&[4][..], &bytes(&key.x)?, &bytes(&key.y)?].concat();
            UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, point).verify(message, signature)
        }
        "OKP" if curve == Some("Ed25519") => {
            UnparsedPublicKey::new(&ED25519, bytes(&key.x)?).verify(message, signature)
        }
        _ => return None,
    };
    good.ok()
}

fn check(payload: &Value, expected: Expected<'_>) -> Result<Claims, TokenError> {
    let text = |name: &str| payload.get(name).and_then(Value::as_str);
    // Whole seconds; some write them as 1.7e9.
    let time = |name: &str| payload.get(name).and_then(|value| value.as_i64().or(value.as_f64().map(|at| at as i64)));
    let claim = |name, holds: bool| if holds { Ok(()) } else { Err(TokenError::Claim(name)) };

    claim("issuer", text("iss") == Some(expected.issuer))?;
    let audiences: Vec<&str> = match payload.get("aud") {
        Some(Value::String(one)) => vec![one],
        Some(Value::Array(several)) => several.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    };
    claim("audience", audiences.contains(&expected.client))?;
    let party = payload.get("azp");
    claim("authorized party", party.is_none_or(|party| party.as_str() == Some(expected.client)))?;
    claim("authorized party", audiences.len() == 1 || party.is_some())?;
    claim("expiry", time("exp").is_some_and(|at| at > expected.now - SKEW))?;
    claim("time of issue", time("iat").is_some_and(|at| at <= expected.now + SKEW))?;
    claim("beginning", payload.get("nbf").is_none() || time("nbf").is_some_and(|at| at <= expected.now + SKEW))?;
    claim("nonce", text("nonce") == Some(expected.nonce))?;
    let subject = text("sub").filter(|subject| !subject.is_empty() && subject.chars().count() <= SUBJECT_CHARS_MAX);
    let subject = subject.ok_or(TokenError::Claim("subject"))?.to_owned();
    let verified = match payload.get("email_verified") {
        Some(Value::Bool(verified)) => *verified,
        Some(Value::String(word)) => word == "true",
        _ => false,
    };
    Ok(Claims { subject, email: text("email").filter(|_| verified).map(str::to_owned) })
}

#[cfg(test)]
mod tests {
    use ring::{
        rand::SystemRandom,
        signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair},
    };
    use serde_json::json;

    use super::*;

    const NOW: i64 = 1_800_000_000;
    const EXPECTED: Expected<'_> =
        Expected { issuer: "https://id.example.org", client: "fleet", nonce: "n-1", now: NOW };

    fn encoded(value: &Value) -> String {
        URL_SAFE_NO_PAD.encode(value.to_string())
    }

    fn claims(change: impl FnOnce(&mut Value)) -> Value {
        let mut claims = json!({
            "iss": "https://id.example.org", "aud": "fleet", "nonce": "n-1", "sub": "248289", "exp": NOW + 300,
            "iat": NOW, "email": "ann@example.org", "email_verified": true,
        });
        change(&mut claims);
        claims
    }

    struct Provider {
        pair: EcdsaKeyPair,
        kid: &'static str,
    }

    impl Provider {
        fn new(kid: &'static str) -> Self {
            let random = SystemRandom::new();
            let document = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random).unwrap();
            let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, document.as_ref(), &random).unwrap();
            Self { pair, kid }
        }

        fn key(&self) -> Value {
            let point = self.pair.public_key().as_ref();
            let part = |range: std::ops::Range<usize>| URL_SAFE_NO_PAD.encode(&point[range]);
            json!({"kty": "EC", "crv": "P-256", "kid": self.kid, "use": "sig", "x": part(1..33), "y": part(33..65)})
        }

        fn keys(&self) -> Keys {
            serde_json::from_value(json!({"keys": [self.key()]})).unwrap()
        }

        fn token(&self, header: &Value, claims: &Value) -> String {
            let signed = format!("{}.{}", encoded(header), encoded(claims));
            let signature = self.pair.sign(&SystemRandom::new(), signed.as_bytes()).unwrap();
            format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature.as_ref()))
        }

        fn says(&self, change: impl FnOnce(&mut Value)) -> Result<Claims, TokenError> {
            verify(&self.token(&json!({"alg": "ES256", "kid": self.kid}), &claims(change)), &self.keys(), EXPECTED)
        }
    }

    #[test]
    fn claims_are_what_they_have_to_be() {
        let provider = Provider::new("k");
        let email = |change: fn(&mut Value)| provider.says(change).map(|claims| claims.email);
        assert_eq!(email(|_| ()), Ok(Some("ann@example.org".into())));
        assert_eq!(email(|claims| claims["email_verified"] = json!(false)), Ok(None));
        assert_eq!(email(|claims| claims["email_verified"] = json!("true")), Ok(Some("ann@example.org".into())));
        assert_eq!(email(|claims| drop(claims.as_object_mut().unwrap().remove("email_verified"))), Ok(None));
        type Change = fn(&mut Value);
        let table: [(&str, Change); 17] = [
            ("issuer", |claims| claims["iss"] = json!("https://id.example.org/")),
            ("issuer", |claims| drop(claims.as_object_mut().unwrap().remove("iss"))),
            ("audience", |claims| claims["aud"] = json!("another")),
            ("audience", |claims| claims["aud"] = json!([])),
            ("audience", |claims| drop(claims.as_object_mut().unwrap().remove("aud"))),
            ("authorized party", |claims| claims["aud"] = json!(["fleet", "another"])),
            ("authorized party", |claims| claims["azp"] = json!("another")),
            ("expiry", |claims| claims["exp"] = json!(NOW - 60)),
            ("expiry", |claims| claims["exp"] = json!("2099")),
            ("expiry", |claims| drop(claims.as_object_mut().unwrap().remove("exp"))),
            ("time of issue", |claims| claims["iat"] = json!(NOW + 61)),
            ("beginning", |claims| claims["nbf"] = json!(NOW + 61)),
            ("beginning", |claims| claims["nbf"] = json!("soon")),
            ("nonce", |claims| claims["nonce"] = json!("n-2")),
            ("nonce", |claims| drop(claims.as_object_mut().unwrap().remove("nonce"))),
            ("subject", |claims| claims["sub"] = json!("")),
            ("subject", |claims| claims["sub"] = json!("x".repeat(256))),
        ];
        for (name, change) in table {
            assert_eq!(provider.says(change), Err(TokenError::Claim(name)));
        }
        // A minute between two clocks is no reason to keep anybody out.
        assert!(provider.says(|claims| claims["exp"] = json!(NOW - 59)).is_ok());
        assert!(provider.says(|claims| claims["iat"] = json!(NOW + 60)).is_ok());
        let both = |claims: &mut Value| (claims["aud"], claims["azp"]) = (json!(["fleet", "b"]), json!("fleet"));
        assert!(provider.says(both).is_ok());
    }

    #[test]
    fn only_the_providers_own_keys_sign() {
        let (provider, other) = (Provider::new("k"), Provider::new("k"));
        let header = json!({"alg": "ES256", "kid": "k"});
        let good = provider.token(&header, &claims(|_| ()));
        assert!(verify(&good, &provider.keys(), EXPECTED).is_ok());
        assert_eq!(verify(&good, &other.keys(), EXPECTED), Err(TokenError::UnknownKey), "the same name, another key");
        assert_eq!(verify(&good, &Keys::default(), EXPECTED), Err(TokenError::UnknownKey));
        // Without a name every key is tried, so a rotation needs none.
        let nameless = provider.token(&json!({"alg": "ES256"}), &claims(|_| ()));
        let two = serde_json::from_value(json!({"keys": [other.key(), provider.key()]})).unwrap();
        assert!(verify(&nameless, &two, EXPECTED).is_ok());
        let unknown = provider.token(&json!({"alg": "ES256", "kid": "new"}), &claims(|_| ()));
        assert_eq!(verify(&unknown, &provider.keys(), EXPECTED), Err(TokenError::UnknownKey));
        let for_encryption = json!({"keys": [{"use": "enc", "kty": "EC", "crv": "P-256", "kid": "k",
            "x": provider.key()["x"], "y": provider.key()["y"]}]});
        let for_encryption = serde_json::from_value(for_encryption).unwrap();
        assert_eq!(verify(&good, &for_encryption, EXPECTED), Err(TokenError::UnknownKey));

        let (head, rest) = good.split_once('.').unwrap();
        let (body, signature) = rest.split_once('.').unwrap();
        let forged = encoded(&claims(|claims| claims["email"] = json!("boss@example.org")));
        assert_eq!(
            verify(&format!("{head}.{forged}.{signature}"), &provider.keys(), EXPECTED),
            Err(TokenError::UnknownKey)
        );
        for algorithm in ["none", "HS256", "RS512", "es256"] {
            let header = encoded(&json!({"alg": algorithm, "kid": "k"}));
            for signature in [signature, ""] {
                let refused = verify(&format!("{header}.{body}.{signature}"), &provider.keys(), EXPECTED);
                assert_eq!(refused, Err(TokenError::Algorithm(algorithm.into())));
            }
        }
        let as_rsa = encoded(&json!({"alg": "RS256", "kid": "k"}));
        assert_eq!(
            verify(&format!("{as_rsa}.{body}.{signature}"), &provider.keys(), EXPECTED),
            Err(TokenError::UnknownKey)
        );
        let critical =
            provider.token(&json!({"alg": "ES256", "kid": "k", "crit": ["b64"], "b64": false}), &claims(|_| ()));
        let nonsense = ["", ".", "..", "a.b", "a.b.c", &*critical, &"x.".repeat(20_000)];
        for token in nonsense {
            assert_eq!(verify(token, &provider.keys(), EXPECTED), Err(TokenError::Malformed), "{token:.40}");
        }
    }

    #[test]
    fn edwards_keys_sign_too() {
        let document = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).unwrap();
        let pair = Ed25519KeyPair::from_pkcs8(document.as_ref()).unwrap();
        let key = json!({"kty": "OKP", "crv": "Ed25519", "x": URL_SAFE_NO_PAD.encode(pair.public_key().as_ref())});
        let keys = serde_json::from_value(json!({"keys": [key]})).unwrap();
        let signed = format!("{}.{}", encoded(&json!({"alg": "EdDSA"})), encoded(&claims(|_| ())));
        let signature = URL_SAFE_NO_PAD.encode(pair.sign(signed.as_bytes()).as_ref());
        assert!(verify(&format!("{signed}.{signature}"), &keys, EXPECTED).is_ok());
    }
}
