//! `organization`: who machines belong to.

use api::pb::platform::app::v1::{self as app, app_service};
use clap::Subcommand;

use crate::{failure::Failure, find, output::Output, session::Session, when::moment};

#[derive(Subcommand)]
pub(crate) enum Verb {
    /// Show all that the key sees
    List,
    /// Show one
    Get {
        /// Name or id
        organization: Option<String>,
    },
    /// Make a new one, owned by the key
    Create {
        /// Its name
        name: String,
    },
    /// Change one
    Update {
        /// Name or id
        organization: String,
        /// New name
        #[arg(long)]
        name: Option<String>,
        /// Public namespace; can be set once
        #[arg(long)]
        namespace: Option<String>,
    },
}

pub(super) fn run(session: &Session, verb: Verb, output: &mut Output) -> Result<(), Failure> {
    match verb {
        Verb::List => {
            let request = app::ListOrganizationsRequest {};
            let listed = session.ask("could not list the organizations", app_service::LIST_ORGANIZATIONS, &request)?;
            output.list(
                &listed.organizations,
                ["name", "id", "namespace", "created"],
                "There is no organization that you may see.",
                |one| [one.name.clone(), one.id.clone(), one.public_namespace.clone(), moment(one.created_on.as_ref())],
            )
        }
        Verb::Get { organization } => show(output, &find::organization(session, organization.as_deref())?),
        Verb::Create { name } => {
            let request = app::CreateOrganizationRequest { name };
            let made = session.change("could not make the organization", app_service::CREATE_ORGANIZATION, &request)?;
            show(output, &made.organization.unwrap_or_default())
        }
        Verb::Update { organization, name, namespace } => {
            let organization_id = find::organization(session, Some(&organization))?.id;
            let request = app::UpdateOrganizationRequest {
                organization_id,
                name,
                public_namespace: namespace,
                ..Default::default()
            };
            let changed =
                session.change("could not change the organization", app_service::UPDATE_ORGANIZATION, &request)?;
            show(output, &changed.organization.unwrap_or_default())
        }
    }
}

fn show(output: &mut Output, one: &app::Organization) -> Result<(), Failure> {
    output.one(
        one,
        &[
            ("name", one.name.clone()),
            ("id", one.id.clone()),
            ("namespace", one.public_namespace.clone()),
            ("created", moment(one.created_on.as_ref())),
        ],
    )
}
