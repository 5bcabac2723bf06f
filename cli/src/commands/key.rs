//! `key`: API keys. A key is shown once, when it is made or rotated; the server keeps only its hash.

use api::pb::platform::app::v1::{self as app, app_service};
use clap::{Subcommand, ValueEnum};
use serde_json::json;

use crate::{failure::Failure, find, output::Output, session::Session, when::moment};

#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum Role {
    /// May do everything with the resource and what is below it
    Owner,
    /// May look and operate, but not change
    Operator,
}

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
        /// Only for this location and what is below it, by name or id
        #[arg(long, conflicts_with = "machine")]
        location: Option<String>,
        /// Only for this machine, by name or id
        #[arg(long)]
        machine: Option<String>,
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
            output.list(
                &listed.api_keys,
                ["name", "id", "may", "created"],
                "There is no key that you may see.",
                |one| {
                    let key = one.api_key.clone().unwrap_or_default();
                    let may = one
                        .authorizations
                        .iter()
                        .map(|right| format!("{} {}", right.authorization_id, right.resource_id));
                    [key.name, key.id, may.collect::<Vec<_>>().join(", "), moment(key.created_on.as_ref())]
                },
            )
        }
        Verb::Create { name, role, location, machine } => {
            let organization_id = find::organization(session, None)?.id;
            let (resource_type, resource_id) = match (location, machine) {
                (Some(location), _) => ("location", find::location(session, Some(&location))?.id),
                (None, Some(machine)) => ("robot", find::machine(session, Some(&machine))?.id),
                (None, None) => ("organization", organization_id.clone()),
            };
            let role = match role {
                Role::Owner => "owner",
                Role::Operator => "operator",
            };
            let authorization = app::Authorization {
                authorization_type: "role".to_owned(),
                authorization_id: format!("{resource_type}_{role}"),
                resource_type: resource_type.to_owned(),
                resource_id,
                identity_id: String::new(),
                organization_id,
                identity_type: "api-key".to_owned(),
            };
            let request = app::CreateKeyRequest { authorizations: vec![authorization], name };
            let made = session.change("could not make the key", app_service::CREATE_KEY, &request)?;
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

fn show_once(output: &mut Output, id: String, key: String) -> Result<(), Failure> {
    if output.is_json() {
        return output.json(&json!({"id": id, "key": key}));
    }
    output.facts(&[("id", id), ("key", key)])?;
    output.line("The key is shown this once and cannot be read again.")
}
