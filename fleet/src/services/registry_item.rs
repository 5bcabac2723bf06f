//! What the operations on registry items, modules and packages have in common: ids, who may see one, what is told.

use api::pb::platform::app::v1::{
    MlModelMetadata, MlModelVersion, MlTrainingMetadata, MlTrainingVersion, Model, ModuleMetadata, ModuleVersion,
    RegistryItem as Message, Uploads, registry_item::Metadata,
};
use prost::Message as _;
use semver::Version as Semver;

use crate::{
    authn::{Caller, Who},
    authz::{Granted, Permission, RegistryItem, Target, right},
    clock::timestamp,
    context::Context,
    limits::{NAME_CHARS_MAX, REGISTRY_DETAILS_BYTES_MAX, REGISTRY_LIST_MAX},
    refusal::Refusal,
    store::{
        DbError, Tx,
        registry::{self, PRIVATE, Stored},
        registry_files::{self, File, Version},
        registry_users::{self, Usage},
    },
};

/// PackageType of a module.
pub(super) const MODULE: i64 = 3;

/// Owner and name of an item, from "OWNER:NAME", or from the form of packages, "OWNER/NAME".
pub(super) fn split(field: &'static str, id: &str) -> Result<(String, String), Refusal> {
    let both = id.split_once([':', '/']).filter(|(owner, name)| is_owner(owner) && is_name(name));
    let both = both.map(|(owner, name)| (owner.to_owned(), name.to_owned()));
    both.ok_or_else(|| Refusal::unfit(field, id, "give NAMESPACE:NAME or ORGANIZATION-ID:NAME"))
}

fn is_owner(owner: &str) -> bool {
    let letter = |letter: u8| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == b'-';
    (1..=63).contains(&owner.len()) && owner.bytes().all(letter)
}

/// Letters, digits, dashes and underscores: it becomes part of ids, addresses and file names.
fn is_name(name: &str) -> bool {
    let letter = |letter: u8| letter.is_ascii_alphanumeric() || letter == b'-' || letter == b'_';
    (1..=NAME_CHARS_MAX).contains(&name.len())
        && name.bytes().all(letter)
        && name.bytes().next().is_some_and(|first| first.is_ascii_alphanumeric())
}

/// A name for a new item, or for an application.
pub(super) fn name(field: &'static str, given: &str) -> Result<String, Refusal> {
    match is_name(given) {
        true => Ok(given.to_owned()),
        false => Err(Refusal::unfit(
            field,
            given,
            format_args!("give 1 to {NAME_CHARS_MAX} letters, digits, dashes and underscores, a letter or digit first"),
        )),
    }
}

/// An item that the caller may read.
pub(super) async fn readable(context: &Context, caller: &Caller, id: &str) -> Result<Stored, Refusal> {
    let stored = found(context, id).await?;
    if may_read(context, caller, &stored).await? { Ok(stored) } else { Err(missing(id)) }
}

/// Whether the caller is told what an item says about itself.
pub(super) async fn may_read(context: &Context, caller: &Caller, stored: &Stored) -> Result<bool, Refusal> {
    let public = stored.visibility != PRIVATE && matches!(caller.who(), Who::ApiKey { .. });
    let permissions = context.authz.permissions(caller, Target::RegistryItem, &stored.id).await?.unwrap_or_default();
    Ok(public || permissions.contains(Permission::ReadPrivateRegistryItem))
}

/// An item whose files the caller may fetch, to run them.
pub(super) async fn runnable(context: &Context, caller: &Caller, stored: &Stored) -> Result<bool, Refusal> {
    let known = !matches!(caller.who(), Who::Nobody);
    if stored.visibility != PRIVATE && known {
        return Ok(true);
    }
    let permissions = context.authz.permissions(caller, Target::RegistryItem, &stored.id).await?.unwrap_or_default();
    Ok(permissions.contains(Permission::ReadPackages)
        || context.authz.runs_packages_of(caller, &stored.organization).await?)
}

/// The proof that the caller may change an item that is private; what else a public one needs, the store looks.
pub(super) async fn writable(
    context: &Context,
    caller: &Caller,
    id: &str,
) -> Result<Granted<RegistryItem, right::WritePrivateRegistryItem>, Refusal> {
    let stored = found(context, id).await?;
    match context.authz.registry_item(caller, &stored.id).await {
        Ok(granted) => Ok(granted),
        // Under the id that the caller knows. Somebody else's public item is seen, so it is "denied".
        Err(refused) if refused.is_not_found() => match readable(context, caller, id).await {
            Ok(_) => Err(Refusal::denied(Permission::WritePrivateRegistryItem.word())),
            Err(refused) => Err(refused),
        },
        Err(refused) => Err(refused),
    }
}

/// Whoever may see it.
pub(super) async fn found(context: &Context, id: &str) -> Result<Stored, Refusal> {
    let (owner, name) = split("item_id", id)?;
    context.store.read(|tx| registry::find(tx, &owner, &name)).await?.ok_or_else(|| missing(id))
}

pub(super) fn missing(id: &str) -> Refusal {
    Refusal::not_found("registry item", id)
}

/// Where an item's files are, for a person who follows the link.
pub(super) fn address(context: &Context, item_id: &str) -> String {
    let (owner, name) = item_id.split_once(':').unwrap_or(("", item_id));
    format!("{}{}{owner}/{name}", context.address.as_deref().unwrap_or_default(), crate::downloads::PATH)
}

/// `metadata` and `billing` of an item, as they are kept.
pub(super) fn encoded(details: &Message) -> Result<Vec<u8>, Refusal> {
    let length = details.encoded_len();
    if length > REGISTRY_DETAILS_BYTES_MAX {
        return Err(Refusal::invalid(
            "metadata",
            format_args!("has {length} bytes with its pages for people: at most {REGISTRY_DETAILS_BYTES_MAX} are kept"),
        ));
    }
    Ok(details.encode_to_vec())
}

/// The same again; what was kept can be read.
pub(super) fn decoded(details: &[u8]) -> Message {
    Message::decode(details).unwrap_or_default()
}

/// What a module says about itself; nothing for other items.
pub(super) fn module_of(details: Message) -> ModuleMetadata {
    match details.metadata {
        Some(Metadata::ModuleMetadata(module)) => module,
        _ => ModuleMetadata::default(),
    }
}

/// For a new item of that kind.
pub(super) fn empty_details(kind: i64) -> Message {
    let metadata = match kind {
        MODULE => Some(Metadata::ModuleMetadata(ModuleMetadata::default())),
        2 => Some(Metadata::MlModelMetadata(MlModelMetadata::default())),
        5 => Some(Metadata::MlTrainingMetadata(MlTrainingMetadata::default())),
        _ => None,
    };
    Message { metadata, ..Message::default() }
}

/// A list that a caller sent, not too long and without control characters where they would be shown.
pub(super) fn models(models: &[Model]) -> Result<(), Refusal> {
    list("models", models.len())?;
    for model in models {
        for (field, text) in [("models.api", &model.api), ("models.model", &model.model)] {
            super::input::printable(field, text)?;
        }
        let pages = [
            ("models.description", &model.description),
            ("models.markdown_documentation", &model.markdown_documentation),
        ];
        for (field, text) in pages {
            super::input::text(field, text.as_deref().unwrap_or_default())?;
        }
        list("models.supported_hardware", model.supported_hardware.len())?;
        let hardware = &model.supported_hardware;
        hardware.iter().try_for_each(|name| super::input::printable("models.supported_hardware", name))?;
    }
    Ok(())
}

/// A number that the contract gives a name to.
pub(super) fn known<E: TryFrom<i32>>(field: &'static str, number: i32) -> Result<(), Refusal> {
    match E::try_from(number) {
        Ok(_) => Ok(()),
        Err(_) => Err(Refusal::unfit(field, number, "give one of the numbers that the contract names")),
    }
}

/// A list that a caller sent, not too long.
pub(super) fn list(field: &'static str, length: usize) -> Result<(), Refusal> {
    match length <= REGISTRY_LIST_MAX {
        true => Ok(()),
        false => {
            Err(Refusal::invalid(field, format_args!("has {length} entries: at most {REGISTRY_LIST_MAX} are kept")))
        }
    }
}

/// Visibility from the wire; nothing for "not given".
pub(super) fn visibility(number: i32) -> Result<Option<i64>, Refusal> {
    match number {
        0 => Ok(None),
        1..=3 => Ok(Some(i64::from(number))),
        _ => Err(Refusal::unfit("visibility", number, "give private (1), public (2) or public but unlisted (3)")),
    }
}

/// An item with everything that is told about it.
pub(super) struct Told {
    pub(super) stored: Stored,
    pub(super) versions: Vec<Version>,
    pub(super) files: Vec<File>,
    pub(super) usage: Usage,
}

impl Told {
    pub(super) fn read(tx: &Tx<'_>, stored: Stored) -> Result<Self, DbError> {
        let mut versions = registry_files::versions(tx, &stored.id)?;
        versions.sort_by_cached_key(|version| Semver::parse(&version.version).ok());
        let files = registry_files::of_item(tx, &stored.id)?;
        let usage = registry_users::usage(tx, &stored)?;
        Ok(Self { stored, versions, files, usage })
    }

    /// Versions of a module, ascending.
    pub(super) fn module_versions(&self, pages: bool) -> Vec<ModuleVersion> {
        let version = |version: &Version| {
            let mut module = module_of(decoded(&version.details));
            if !pages {
                without_pages(&mut module);
            }
            let files = self.files.iter().filter(|file| file.version == version.version);
            let upload = |file: &File| Uploads {
                platform: file.platform.clone(),
                uploaded_at: Some(timestamp(file.uploaded_at)),
            };
            ModuleVersion {
                version: version.version.clone(),
                files: files.map(upload).collect(),
                models: module.models,
                entrypoint: module.entrypoint,
                first_run: module.first_run,
                markdown_description: module.markdown_description,
                apps: module.apps,
                deprecated_status: None,
                min_platform_server_version: module.min_platform_server_version,
            }
        };
        self.versions.iter().map(version).collect()
    }

    /// For an answer; with pages for people only if they are asked for.
    pub(super) fn item(self, pages: bool) -> Message {
        let details = decoded(&self.stored.details);
        let created = |version: &Version| Some(timestamp(version.created_at));
        let metadata = details.metadata.map(|metadata| match metadata {
            Metadata::ModuleMetadata(mut module) => {
                module.versions = self.module_versions(pages);
                if !pages {
                    without_pages(&mut module);
                }
                Metadata::ModuleMetadata(module)
            }
            Metadata::MlModelMetadata(mut model) => {
                let detailed =
                    |one: &Version| MlModelVersion { version: one.version.clone(), created_on: created(one) };
                model.detailed_versions = self.versions.iter().map(detailed).collect();
                #[allow(deprecated, reason = "older clients read only this one")]
                {
                    model.versions = self.versions.iter().map(|one| one.version.clone()).collect();
                }
                Metadata::MlModelMetadata(model)
            }
            Metadata::MlTrainingMetadata(mut training) => {
                let detailed =
                    |one: &Version| MlTrainingVersion { version: one.version.clone(), created_on: created(one) };
                training.versions = self.versions.iter().map(detailed).collect();
                Metadata::MlTrainingMetadata(training)
            }
        });
        let (stored, usage) = (self.stored, self.usage);
        Message {
            item_id: stored.item_id(),
            organization_id: stored.organization,
            public_namespace: stored.namespace.unwrap_or_default(),
            name: stored.name,
            r#type: number(stored.kind),
            visibility: number(stored.visibility),
            url: stored.url,
            description: stored.description,
            total_robot_usage: usage.machines,
            total_organization_usage: usage.organizations,
            total_external_robot_usage: usage.machines_elsewhere,
            total_external_organization_usage: usage.organizations_elsewhere,
            created_at: Some(timestamp(stored.created_at)),
            updated_at: Some(timestamp(stored.updated_at)),
            deprecated_status: None,
            billing: details.billing,
            metadata,
        }
    }
}

/// A page for people may be long: it is told only when it is asked for.
pub(super) fn without_pages(module: &mut ModuleMetadata) {
    module.markdown_description = None;
    module.models.iter_mut().for_each(|model| model.markdown_documentation = None);
}

/// An enumeration as the wire has it.
pub(super) fn number(number: i64) -> i32 {
    i32::try_from(number).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn item_ids() {
        let long = format!("acme:{}", "x".repeat(NAME_CHARS_MAX));
        let fits = ["acme:camera", "acme-1:a_b-C9", "0a000000-0000-4000-8000-000000000001:x", "acme/camera", &long];
        for id in fits {
            let (owner, name) = split("item_id", id).unwrap();
            assert!(id.starts_with(&owner) && id.ends_with(&name), "{id}");
        }
        let longer = format!("acme:{}", "x".repeat(NAME_CHARS_MAX + 1));
        let wrong = [
            "",
            ":",
            "acme",
            "acme:",
            ":camera",
            "Acme:camera",
            "acme:a:b",
            "acme:a/b",
            "acme:../x",
            "acme:a b",
            "acme:-x",
            "acme:x\0",
            "acme:ü",
            "acme:.x",
            "ac me:x",
            &longer,
        ];
        for id in wrong {
            assert!(split("item_id", id).is_err(), "{id:?}");
        }
    }
}
