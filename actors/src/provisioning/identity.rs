//! An identity as text: what a person pastes, and what the credentials file holds.
//!
//! Owns that text's form in both directions. Whether the address is one that this device may use is said by the reader
//! of the file, before anything is written.

use api::{
    Secret,
    json::{self, Limits, Value, quoted},
};

use super::visit::{Identity, Proof};

/// What is wrong with a text that was pasted, for the person who pasted it. Never holds any of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unusable {
    /// No JSON.
    #[error("this is not the content of a credentials file: copy all of it, from the first brace to the last")]
    NotJson,
    /// An entry is missing, empty or of another kind.
    #[error("{0} is missing in these credentials: get them again from the fleet server")]
    Missing(&'static str),
}

/// Reads the content of a credentials file.
pub fn read(text: &[u8]) -> Result<Identity, Unusable> {
    let document = json::parse(text, Limits::SMALL).map_err(|_| Unusable::NotJson)?;
    let of = |parent: Option<Value<'_>>, key, name| -> Result<String, Unusable> {
        let text =
            parent.and_then(|parent| parent.get(key)).and_then(|value| value.as_text().map(|text| text.into_owned()));
        text.filter(|text| !text.is_empty()).ok_or(Unusable::Missing(name))
    };
    let cloud = Some(document.get("cloud").ok_or(Unusable::Missing("cloud"))?);
    let app_address = of(cloud, "app_address", "cloud.app_address")?;
    let part_id = of(cloud, "id", "cloud.id")?;
    // Present means meant, as in the file.
    let proof = match cloud.and_then(|cloud| cloud.get("api_key")) {
        Some(api_key) => Proof::ApiKey {
            id: of(Some(api_key), "id", "cloud.api_key.id")?,
            key: Secret::from(of(Some(api_key), "key", "cloud.api_key.key")?),
        },
        None => Proof::Secret(Secret::from(of(cloud, "secret", "cloud.secret")?)),
    };
    Ok(Identity { app_address, part_id, proof })
}

/// The content of the credentials file.
#[must_use]
pub fn document(identity: &Identity) -> String {
    let Identity { app_address, part_id, proof } = identity;
    let proof = match proof {
        Proof::Secret(secret) => format!("\"secret\": {}", quoted(secret.expose())),
        Proof::ApiKey { id, key } => {
            format!("\"api_key\": {{\"id\": {}, \"key\": {}}}", quoted(id), quoted(key.expose()))
        }
    };
    format!("{{\"cloud\": {{\"app_address\": {}, \"id\": {}, {proof}}}}}\n", quoted(app_address), quoted(part_id))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let awkward = "a\"b\\c\u{1b}\nü{}".to_owned();
        for proof in [
            Proof::Secret(Secret::from(awkward.as_str())),
            Proof::ApiKey { id: "i".into(), key: Secret::from(awkward.as_str()) },
        ] {
            let identity =
                Identity { app_address: "https://fleet.example.com".into(), part_id: awkward.clone(), proof };
            assert_eq!(read(document(&identity).as_bytes()), Ok(identity));
        }
    }

    #[test]
    fn what_is_pasted_wrongly_is_named() {
        let table = [
            ("", Unusable::NotJson),
            ("{\"cloud\": {\"app_address\": \"x\"", Unusable::NotJson),
            ("[]", Unusable::Missing("cloud")),
            (r#"{"cloud": {"id": "p", "secret": "s"}}"#, Unusable::Missing("cloud.app_address")),
            (r#"{"cloud": {"app_address": "x", "secret": "s"}}"#, Unusable::Missing("cloud.id")),
            (r#"{"cloud": {"app_address": "x", "id": "p"}}"#, Unusable::Missing("cloud.secret")),
            (r#"{"cloud": {"app_address": "x", "id": 5, "secret": "s"}}"#, Unusable::Missing("cloud.id")),
            (
                r#"{"cloud": {"app_address": "x", "id": "p", "secret": "s", "api_key": null}}"#,
                Unusable::Missing("cloud.api_key.id"),
            ),
        ];
        for (text, expected) in table {
            assert_eq!(read(text.as_bytes()), Err(expected), "{text}");
        }
    }
}
