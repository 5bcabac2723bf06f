//! `registry`: items of every kind that organizations publish.

use api::pb::platform::app::{
    packages::v1::{self as packages, PackageType, package_service},
    v1::{self as app, app_service},
};
use clap::{Subcommand, ValueEnum};
use serde_json::json;

use crate::{failure::Failure, find, output::Output, session::Session, when::moment};

/// What an item is.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Kind {
    Archive,
    Model,
    Module,
    Map,
    Training,
}

/// Who sees an item.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Visibility {
    /// The organization
    Private,
    /// Everybody; listed for everybody
    Public,
    /// Whoever knows its id
    Unlisted,
}

impl From<Kind> for PackageType {
    fn from(kind: Kind) -> Self {
        match kind {
            Kind::Archive => Self::Archive,
            Kind::Model => Self::MlModel,
            Kind::Module => Self::Module,
            Kind::Map => Self::SlamMap,
            Kind::Training => Self::MlTraining,
        }
    }
}

impl From<Visibility> for app::Visibility {
    fn from(visibility: Visibility) -> Self {
        match visibility {
            Visibility::Private => Self::Private,
            Visibility::Public => Self::Public,
            Visibility::Unlisted => Self::PublicUnlisted,
        }
    }
}

#[derive(Subcommand)]
pub(crate) enum Verb {
    /// Show what is public and what your organizations have
    List {
        /// Only of the organization that is meant by --organization, or of the only one
        #[arg(long)]
        own: bool,
        /// Only of this kind
        #[arg(long, value_enum)]
        kind: Vec<Kind>,
        /// Only what has a file for this platform, such as linux/arm64
        #[arg(long, value_name = "PLATFORM")]
        platform: Vec<String>,
        /// Only what has this in its id or description
        #[arg(long, value_name = "TEXT")]
        search: Option<String>,
    },
    /// Show one
    Get {
        /// NAMESPACE:NAME, ORGANIZATION-ID:NAME, or the name of one of your organization
        item: String,
    },
    /// Make a new one, private
    Create {
        /// Its name: letters, digits, dashes and underscores
        name: String,
        /// What it is
        #[arg(long, value_enum)]
        kind: Kind,
    },
    /// Change one
    Update {
        /// NAMESPACE:NAME, ORGANIZATION-ID:NAME, or the name of one of your organization
        item: String,
        /// Who sees it
        #[arg(long, value_enum)]
        visibility: Option<Visibility>,
        /// For people
        #[arg(long)]
        description: Option<String>,
        /// Where its sources are
        #[arg(long)]
        url: Option<String>,
    },
    /// Show every file that the organization has uploaded
    Files {
        /// Only of the item with this name
        #[arg(long, value_name = "NAME")]
        item: Option<String>,
        /// Only of this kind
        #[arg(long, value_enum)]
        kind: Option<Kind>,
        /// Only of this version
        #[arg(long)]
        version: Option<String>,
    },
    /// Delete one that nobody uses, with every version
    Delete {
        /// NAMESPACE:NAME, ORGANIZATION-ID:NAME, or the name of one of your organization
        item: String,
    },
}

pub(super) fn run(session: &Session, verb: Verb, output: &mut Output) -> Result<(), Failure> {
    match verb {
        Verb::List { own, kind, platform, search } => {
            let organization_id = match own {
                true => find::organization(session, None)?.id,
                false => String::new(),
            };
            let request = app::ListRegistryItemsRequest {
                organization_id: Some(organization_id),
                types: kind.into_iter().map(|kind| PackageType::from(kind).into()).collect(),
                platforms: platform,
                search_term: search,
                ..Default::default()
            };
            let listed = session.ask("could not list the items", app_service::LIST_REGISTRY_ITEMS, &request)?;
            output.list(
                &listed.items,
                ["id", "kind", "visibility", "versions", "machines", "updated"],
                "There is no registry item that you may see.",
                |one| {
                    [
                        one.item_id.clone(),
                        kind_of(one.r#type()).to_owned(),
                        visibility_of(one.visibility()).to_owned(),
                        versions(one).len().to_string(),
                        one.total_robot_usage.to_string(),
                        moment(one.updated_at.as_ref()),
                    ]
                },
            )
        }
        Verb::Get { item } => show(session, output, id_of(session, &item)?),
        Verb::Create { name, kind } => {
            let organization_id = find::organization(session, None)?.id;
            let item_id = format!("{organization_id}:{name}");
            let request =
                app::CreateRegistryItemRequest { organization_id, name, r#type: PackageType::from(kind).into() };
            session.change("could not make the item", app_service::CREATE_REGISTRY_ITEM, &request)?;
            show(session, output, item_id)
        }
        Verb::Update { item, visibility, description, url } => {
            if visibility.is_none() && description.is_none() && url.is_none() {
                return Err(Failure::Usage("nothing to change: give --visibility, --description or --url".to_owned()));
            }
            let before = get(session, id_of(session, &item)?)?;
            let request = app::UpdateRegistryItemRequest {
                item_id: before.item_id.clone(),
                r#type: before.r#type,
                description: description.unwrap_or(before.description),
                visibility: visibility.map_or(before.visibility, |one| app::Visibility::from(one).into()),
                url,
                ..Default::default()
            };
            session.change("could not change the item", app_service::UPDATE_REGISTRY_ITEM, &request)?;
            show(session, output, before.item_id)
        }
        Verb::Files { item, kind, version } => files(session, output, item, kind, version),
        Verb::Delete { item } => delete(session, output, &item, "registry item"),
    }
}

fn files(
    session: &Session,
    output: &mut Output,
    name: Option<String>,
    kind: Option<Kind>,
    version: Option<String>,
) -> Result<(), Failure> {
    let request = packages::ListPackagesRequest {
        organization_id: find::organization(session, None)?.id,
        name,
        version,
        r#type: kind.map(|kind| PackageType::from(kind).into()),
        include_url: Some(true),
    };
    let listed = session.ask("could not list the files", package_service::LIST_PACKAGES, &request)?;
    output.list(
        &listed.packages,
        ["name", "kind", "version", "platform", "bytes", "uploaded", "sha256"],
        "There is no such file.",
        |one| {
            let about = one.info.clone().unwrap_or_default();
            let kind = kind_of(about.r#type()).to_owned();
            let bytes: u64 = about.files.iter().map(|file| file.size).sum();
            let uploaded = moment(one.created_on.as_ref());
            let platform = about.platform.unwrap_or_default();
            [about.name, kind, about.version, platform, bytes.to_string(), uploaded, one.checksum.clone()]
        },
    )
}

/// Deletes an item, whatever it is called in the sentence.
pub(super) fn delete(session: &Session, output: &mut Output, given: &str, what: &str) -> Result<(), Failure> {
    let item_id = id_of(session, given)?;
    let request = app::DeleteRegistryItemRequest { item_id: item_id.clone() };
    session.change("could not delete it", app_service::DELETE_REGISTRY_ITEM, &request)?;
    output.done(&format!("The {what} {item_id} is deleted."), json!({"id": item_id}))
}

/// The whole id; a name alone is one of the organization that is meant.
pub(super) fn id_of(session: &Session, given: &str) -> Result<String, Failure> {
    if given.contains(':') {
        return Ok(given.to_owned());
    }
    Ok(format!("{}:{given}", find::organization(session, None)?.id))
}

fn get(session: &Session, item_id: String) -> Result<app::RegistryItem, Failure> {
    let request = app::GetRegistryItemRequest { item_id, ..Default::default() };
    let found = session.ask("could not read the item", app_service::GET_REGISTRY_ITEM, &request)?;
    Ok(found.item.unwrap_or_default())
}

fn show(session: &Session, output: &mut Output, item_id: String) -> Result<(), Failure> {
    let one = get(session, item_id)?;
    let lines = [
        ("id", one.item_id.clone()),
        ("kind", kind_of(one.r#type()).to_owned()),
        ("visibility", visibility_of(one.visibility()).to_owned()),
        ("description", one.description.clone()),
        ("url", one.url.clone()),
        ("versions", versions(&one).join(", ")),
        ("machines", one.total_robot_usage.to_string()),
        ("updated", moment(one.updated_at.as_ref())),
    ];
    output.one(&one, &lines)
}

fn versions(item: &app::RegistryItem) -> Vec<String> {
    use app::registry_item::Metadata;
    match &item.metadata {
        Some(Metadata::ModuleMetadata(module)) => module.versions.iter().map(|one| one.version.clone()).collect(),
        Some(Metadata::MlModelMetadata(model)) => {
            model.detailed_versions.iter().map(|one| one.version.clone()).collect()
        }
        Some(Metadata::MlTrainingMetadata(training)) => {
            training.versions.iter().map(|one| one.version.clone()).collect()
        }
        None => Vec::new(),
    }
}

fn kind_of(kind: PackageType) -> &'static str {
    match kind {
        PackageType::Archive => "archive",
        PackageType::MlModel => "model",
        PackageType::Module => "module",
        PackageType::SlamMap => "map",
        PackageType::MlTraining => "training",
        PackageType::Unspecified => "-",
    }
}

/// For a table.
pub(super) fn visibility_of(visibility: app::Visibility) -> &'static str {
    match visibility {
        app::Visibility::Private => "private",
        app::Visibility::Public => "public",
        app::Visibility::PublicUnlisted => "unlisted",
        app::Visibility::Unspecified => "-",
    }
}
