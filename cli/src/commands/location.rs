//! `location`: where machines are.

use api::pb::platform::app::v1::{self as app, app_service};
use clap::Subcommand;
use serde_json::json;

use super::secrets;
use crate::{failure::Failure, find, output::Output, session::Session, when::moment};

#[derive(Subcommand)]
pub(crate) enum Verb {
    /// Show all of the organization
    List,
    /// Show one
    Get {
        /// Name or id
        location: Option<String>,
    },
    /// Make a new one
    Create {
        /// Its name
        name: String,
        /// The location it lies in, by name or id
        #[arg(long)]
        parent: Option<String>,
    },
    /// Change one
    Update {
        /// Name or id
        location: String,
        /// New name
        #[arg(long)]
        name: Option<String>,
        /// Move it into this location, by name or id
        #[arg(long)]
        parent: Option<String>,
        /// Move it out of every other location
        #[arg(long, conflicts_with = "parent")]
        top: bool,
    },
    /// Delete one that has neither machines nor locations in it
    Delete {
        /// Name or id
        location: String,
    },
    /// Show which organizations see it
    Shared {
        /// Name or id
        location: Option<String>,
    },
    /// Let another organization see it
    Share {
        /// Name or id
        location: String,
        /// Id of the other organization
        with: String,
    },
    /// Take that back
    Unshare {
        /// Name or id
        location: String,
        /// Id of the other organization
        with: String,
    },
    /// Secrets with which any device in it may log in
    #[command(subcommand)]
    Secret(SecretVerb),
}

#[derive(Subcommand)]
pub(crate) enum SecretVerb {
    /// Show their ids
    List {
        /// Name or id
        location: Option<String>,
        /// Show the secrets themselves
        #[arg(long)]
        reveal: bool,
    },
    /// Add one and show it
    Create {
        /// Name or id
        location: Option<String>,
    },
    /// Remove one; devices that use it are out at once
    Delete {
        /// Id of the secret
        id: String,
        /// Name or id
        #[arg(long)]
        location: Option<String>,
    },
}

pub(super) fn run(session: &Session, verb: Verb, output: &mut Output) -> Result<(), Failure> {
    match verb {
        Verb::List => {
            let locations: Vec<_> = find::locations(session)?.into_iter().map(without_secrets).collect();
            output.list(
                &locations,
                ["name", "id", "machines", "parent"],
                "There is no location yet; make one with `location create NAME`.",
                |one| [one.name.clone(), one.id.clone(), one.robot_count.to_string(), one.parent_location_id.clone()],
            )
        }
        Verb::Get { location } => show(output, find::location(session, location.as_deref())?),
        Verb::Create { name, parent } => {
            let organization_id = find::organization(session, None)?.id;
            let parent_location_id = parent_id(session, parent)?;
            let request = app::CreateLocationRequest { organization_id, name, parent_location_id };
            let made = session.change("could not make the location", app_service::CREATE_LOCATION, &request)?;
            show(output, made.location.unwrap_or_default())
        }
        Verb::Update { location, name, parent, top } => {
            if name.is_none() && parent.is_none() && !top {
                return Err(Failure::Usage("nothing to change: give --name, --parent or --top".to_owned()));
            }
            let location_id = find::location(session, Some(&location))?.id;
            // An empty one is the way to say none.
            let parent_location_id = if top { Some(String::new()) } else { parent_id(session, parent)? };
            let request = app::UpdateLocationRequest { location_id, name, parent_location_id, region: None };
            let changed = session.change("could not change the location", app_service::UPDATE_LOCATION, &request)?;
            show(output, changed.location.unwrap_or_default())
        }
        Verb::Delete { location } => {
            let location_id = find::location(session, Some(&location))?.id;
            let request = app::DeleteLocationRequest { location_id: location_id.clone() };
            session.change("could not delete the location", app_service::DELETE_LOCATION, &request)?;
            output.done(&format!("Location {location:?} is deleted."), json!({"id": location_id}))
        }
        Verb::Shared { location } => {
            let location_id = find::location(session, location.as_deref())?.id;
            let request = app::GetOrganizationsWithAccessToLocationRequest { location_id };
            let method = app_service::GET_ORGANIZATIONS_WITH_ACCESS_TO_LOCATION;
            let told = session.ask("could not read who sees the location", method, &request)?;
            output.list(&told.organization_identities, ["name", "id"], "Nobody.", |one| {
                [one.name.clone(), one.id.clone()]
            })
        }
        Verb::Share { location, with } => {
            let location_id = find::location(session, Some(&location))?.id;
            let request = app::ShareLocationRequest { location_id, organization_id: with.clone() };
            session.change("could not share the location", app_service::SHARE_LOCATION, &request)?;
            output.done(&format!("{with} sees {location:?} now."), json!({"organization_id": with}))
        }
        Verb::Unshare { location, with } => {
            let location_id = find::location(session, Some(&location))?.id;
            let request = app::UnshareLocationRequest { location_id, organization_id: with.clone() };
            session.change("could not take the location back", app_service::UNSHARE_LOCATION, &request)?;
            output.done(&format!("{with} no longer sees {location:?}."), json!({"organization_id": with}))
        }
        Verb::Secret(verb) => secret(session, verb, output),
    }
}

fn secret(session: &Session, verb: SecretVerb, output: &mut Output) -> Result<(), Failure> {
    match verb {
        SecretVerb::List { location, reveal } => {
            let request = app::LocationAuthRequest { location_id: find::location(session, location.as_deref())?.id };
            let auth = session.ask("could not read the secrets", app_service::LOCATION_AUTH, &request)?.auth;
            secrets::show(output, auth.unwrap_or_default().secrets, reveal)
        }
        SecretVerb::Create { location } => {
            let location_id = find::location(session, location.as_deref())?.id;
            let request = app::CreateLocationSecretRequest { location_id };
            let made = session.change("could not make a secret", app_service::CREATE_LOCATION_SECRET, &request)?;
            secrets::show(output, made.auth.unwrap_or_default().secrets, true)
        }
        SecretVerb::Delete { id, location } => {
            let location_id = find::location(session, location.as_deref())?.id;
            let request = app::DeleteLocationSecretRequest { location_id, secret_id: id.clone() };
            session.change("could not delete the secret", app_service::DELETE_LOCATION_SECRET, &request)?;
            output.done(&format!("Secret {id} is deleted."), json!({"id": id}))
        }
    }
}

fn parent_id(session: &Session, parent: Option<String>) -> Result<Option<String>, Failure> {
    parent.map(|parent| find::location(session, Some(&parent)).map(|found| found.id)).transpose()
}

/// Location secrets let a device in; they are not for screens and scripts' logs.
fn without_secrets(location: app::Location) -> app::Location {
    app::Location { auth: None, ..location }
}

fn show(output: &mut Output, location: app::Location) -> Result<(), Failure> {
    let one = without_secrets(location);
    let lines = [
        ("name", one.name.clone()),
        ("id", one.id.clone()),
        ("machines", one.robot_count.to_string()),
        ("parent", one.parent_location_id.clone()),
        ("created", moment(one.created_on.as_ref())),
    ];
    output.one(&one, &lines)
}
