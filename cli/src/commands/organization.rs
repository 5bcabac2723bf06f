//! `organization`: who machines belong to.

use api::pb::platform::app::v1::{self as app, app_service};
use clap::Subcommand;
use serde_json::json;

use super::fragment;
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
        /// New region, a word of your own
        #[arg(long)]
        region: Option<String>,
        /// New customer id, a word of your own
        #[arg(long, value_name = "ID")]
        cid: Option<String>,
        /// What new machines begin with: the name or id of a fragment, @ and a number bind it to that revision; give it once
        /// for each, in place of those before
        #[arg(long = "default-fragment", value_name = "FRAGMENT[@REVISION]")]
        default_fragments: Vec<String>,
        /// New machines begin with nothing
        #[arg(long, conflicts_with = "default_fragments")]
        no_default_fragments: bool,
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
        Verb::Update { organization, name, namespace, region, cid, default_fragments, no_default_fragments } => {
            let organization_id = find::organization(session, Some(&organization))?.id;
            let default_fragments = match (default_fragments.as_slice(), no_default_fragments) {
                ([], false) => None,
                (given, _) => {
                    let import = |given: &String| import(session, &organization_id, given);
                    let fragments = given.iter().map(import).collect::<Result<_, _>>()?;
                    Some(app::FragmentImportList { fragments })
                }
            };
            let request = app::UpdateOrganizationRequest {
                organization_id,
                name,
                public_namespace: namespace,
                region,
                cid,
                default_fragments,
                ..Default::default()
            };
            let changed =
                session.change("could not change the organization", app_service::UPDATE_ORGANIZATION, &request)?;
            show(output, &changed.organization.unwrap_or_default())
        }
    }
}

/// A fragment that new machines begin with: `NAME-OR-ID[@REVISION]`.
fn import(session: &Session, organization: &str, given: &str) -> Result<app::FragmentImport, Failure> {
    let bound = given.rsplit_once('@').filter(|(_, revision)| revision.parse::<u64>().is_ok());
    let (fragment, version) = bound.unwrap_or((given, ""));
    let fragment_id = fragment::id_in(session, Some(organization), fragment)?;
    Ok(app::FragmentImport { fragment_id, version: version.to_owned(), ..Default::default() })
}

/// What was never given is not shown.
fn show(output: &mut Output, one: &app::Organization) -> Result<(), Failure> {
    let defaults = one.default_fragments.iter().flat_map(|list| &list.fragments);
    let defaults = defaults.map(|one| match &*one.version {
        "" => one.fragment_id.clone(),
        version => format!("{}@{version}", one.fragment_id),
    });
    let given = [
        ("region", one.default_region.clone()),
        ("cid", one.cid.clone().unwrap_or_default()),
        ("defaults", defaults.collect::<Vec<_>>().join(", ")),
    ];
    let mut lines =
        vec![("name", one.name.clone()), ("id", one.id.clone()), ("namespace", one.public_namespace.clone())];
    lines.extend(given.into_iter().filter(|(_, text)| !text.is_empty()));
    lines.push(("created", moment(one.created_on.as_ref())));
    output.one(one, &lines)
}
