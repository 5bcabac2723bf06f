//! `key`: API keys. A key is shown once, when it is made or rotated; the server keeps only its hash.

use api::pb::platform::app::v1::{self as app, app_service};
use clap::Subcommand;
use serde_json::json;

use super::role::{On, Role};
use crate::{failure::Failure, find, output::Output, session::Session, when::moment};

#[derive(Subcommand)]
pub(crate) enum Verb {
    /// Show all of the organization
    List,
    /// Make a new one; without --location or --machine it is for the whole organization
    Create {
        /// What it is for, so that somebody knows later whether it may go
        name: String,
        /// What it may do
        #[arg(long, value_enum, default_value_t = Role::Operator)]
        role: Role,
        #[command(flatten)]
        on: On,
    },
    /// Make another one that may do the same
    Copy {
        /// Id of the key
        id: String,
    },
    /// Delete one; whoever uses it is out at once
    Delete {
        /// Id of the key
        id: String,
    },
    /// Replace the secret of one; the old one is out at once
    Rotate {
        /// Id of the key
        id: String,
    },
}

pub(super) fn run(session: &Session, verb: Verb, output: &mut Output) -> Result<(), Failure> {
    match verb {
        Verb::List => {
            let org_id = find::organization(session, None)?.id;
            let listed =
                session.ask("could not list the keys", app_service::LIST_KEYS, &app::ListKeysRequest { org_id })?;
            list(output, &listed.api_keys)
        }
        Verb::Create { name, role, on } => {
            let identity_type = "api-key".to_owned();
            let authorization = app::Authorization { identity_type, ..on.authorization(session, role)? };
            let request = app::CreateKeyRequest { authorizations: vec![authorization], name };
            let made = session.change("could not make the key", app_service::CREATE_KEY, &request)?;
            show_once(output, made.id, made.key)
        }
        Verb::Copy { id } => {
            let request = app::CreateKeyFromExistingKeyAuthorizationsRequest { id };
            let method = app_service::CREATE_KEY_FROM_EXISTING_KEY_AUTHORIZATIONS;
            let made = session.change("could not make the key", method, &request)?;
            show_once(output, made.id, made.key)
        }
        Verb::Delete { id } => {
            session.change(
                "could not delete the key",
                app_service::DELETE_KEY,
                &app::DeleteKeyRequest { id: id.clone() },
            )?;
            output.done(&format!("Key {id} is deleted."), json!({"id": id}))
        }
        Verb::Rotate { id } => {
            let rotated =
                session.change("could not rotate the key", app_service::ROTATE_KEY, &app::RotateKeyRequest { id })?;
            show_once(output, rotated.id, rotated.key)
        }
    }
}

pub(super) fn list(output: &mut Output, keys: &[app::ApiKeyWithAuthorizations]) -> Result<(), Failure> {
    output.list(keys, ["name", "id", "may", "created"], "There is no key that you may see.", |one| {
        let key = one.api_key.clone().unwrap_or_default();
        let may = one.authorizations.iter().map(|right| format!("{} {}", right.authorization_id, right.resource_id));
        [key.name, key.id, may.collect::<Vec<_>>().join(", "), moment(key.created_on.as_ref())]
    })
}

fn show_once(output: &mut Output, id: String, key: String) -> Result<(), Failure> {
    if output.is_json() {
        return output.json(&json!({"id": id, "key": key}));
    }
    output.facts(&[("id", id), ("key", key)])?;
    output.line("The key is shown this once and cannot be read again.")
}
