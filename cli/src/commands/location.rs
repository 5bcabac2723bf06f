//! `location`: where machines are.

use api::pb::platform::app::v1::{self as app, app_service};
use clap::Subcommand;

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
        Verb::Update { location, name, parent } => {
            let location_id = find::location(session, Some(&location))?.id;
            let parent_location_id = parent_id(session, parent)?;
            let request = app::UpdateLocationRequest { location_id, name, parent_location_id, region: None };
            let changed = session.change("could not change the location", app_service::UPDATE_LOCATION, &request)?;
            show(output, changed.location.unwrap_or_default())
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
