//! `organization`: who machines belong to.

use api::pb::platform::app::v1::{self as app, app_service};
use clap::Subcommand;
use serde_json::json;

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
    /// Say whether a public namespace is still to be had
    Namespace {
        /// Lowercase letters, digits and dashes
        namespace: String,
    },
    /// Delete one that has neither locations nor registry items
    Delete {
        /// Name or id
        organization: String,
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
        Verb::Get { organization } => {
            let organization_id = match &organization {
                Some(id) if find::is_id(id) => id.clone(),
                name => find::organization(session, name.as_deref())?.id,
            };
            let request = app::GetOrganizationRequest { organization_id };
            let found = session.ask("could not read the organization", app_service::GET_ORGANIZATION, &request)?;
            show(output, &found.organization.unwrap_or_default())
        }
        Verb::Namespace { namespace } => {
            let request = app::GetOrganizationNamespaceAvailabilityRequest {
                public_namespace: namespace.clone(),
                ..Default::default()
            };
            let method = app_service::GET_ORGANIZATION_NAMESPACE_AVAILABILITY;
            let available = session.ask("could not ask for the namespace", method, &request)?.available;
            let told = if available { "is to be had" } else { "is taken" };
            output.done(&format!("{namespace} {told}."), json!({"namespace": namespace, "available": available}))
        }
        Verb::Delete { organization } => {
            let organization_id = find::organization(session, Some(&organization))?.id;
            let request = app::DeleteOrganizationRequest { organization_id: organization_id.clone() };
            session.change("could not delete the organization", app_service::DELETE_ORGANIZATION, &request)?;
            output.done(&format!("Organization {organization:?} is deleted."), json!({"id": organization_id}))
        }
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
