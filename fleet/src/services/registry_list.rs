//! ListRegistryItems: what the caller may see, narrowed down by what it asks for.

use std::collections::BTreeMap;

use api::pb::platform::app::v1::{
    ListRegistryItemsRequest, ListRegistryItemsResponse, ModuleLanguage, ModuleSourceType, RegistryItemStatus,
    registry_item::Metadata,
};

use super::{
    input,
    registry_item::{MODULE, Told, decoded, known, split},
};
use crate::{
    authn::{Caller, Who},
    authz::{Permission, Target, right},
    context::Context,
    ids,
    refusal::Refusal,
    store::{
        DbError, Tx, organizations,
        registry::{self, Stored},
    },
};

/// Without an organization: everything public, and what the caller's own organizations keep to themselves. In the order
/// of the ids; there is no next page, and a token is the id after which to go on.
pub async fn list(
    context: &Context,
    caller: Caller,
    request: ListRegistryItemsRequest,
) -> Result<ListRegistryItemsResponse, Refusal> {
    let organization = input::given(request.organization_id.as_deref());
    let (organizations, public) = match organization {
        Some(id) => {
            context.authz.organization::<right::ReadPrivateRegistryItem>(&caller, id).await?;
            (vec![id.to_owned()], false)
        }
        None => (own(context, &caller).await?, true),
    };
    let after = input::given(request.page_token.as_deref());
    let after = after.map(|id| split("page_token", id)).transpose()?;
    let filter = Filter::read(&request)?;
    let pages = request.include_markdown_documentation.unwrap_or_default();
    let items = context.store.scan::<_, DbError>(move |tx| {
        let after = after.map(|(owner, name)| called_now(tx, owner, &name)).transpose()?;
        let follows = |id: &String| after.as_ref().is_none_or(|after| id > after);
        let mut found: BTreeMap<String, Stored> = BTreeMap::new();
        let mut add = |items: Vec<Stored>| found.extend(items.into_iter().map(|item| (item.item_id(), item)));
        organizations.iter().try_for_each(|id| registry::of_organization(tx, id).map(&mut add))?;
        if public {
            add(registry::public(tx)?);
        }
        let mut items = Vec::new();
        for (_, stored) in found.into_iter().filter(|(id, stored)| follows(id) && filter.fits(id, stored)) {
            let told = Told::read(tx, stored)?;
            if filter.fits_files(&told) {
                items.push(told.item(pages));
            }
        }
        Ok(items)
    });
    Ok(ListRegistryItemsResponse { items: items.await? })
}

/// Organizations whose private items the caller may read.
async fn own(context: &Context, caller: &Caller) -> Result<Vec<String>, Refusal> {
    let Who::ApiKey { grants, .. } = caller.who() else { return Ok(Vec::new()) };
    let mut ids: Vec<&str> = grants.iter().map(|grant| &*grant.organization).collect();
    ids.sort_unstable();
    ids.dedup();
    let mut own = Vec::with_capacity(ids.len());
    for id in ids {
        let permissions = context.authz.permissions(caller, Target::Organization, id).await?.unwrap_or_default();
        if permissions.contains(Permission::ReadPrivateRegistryItem) {
            own.push(id.to_owned());
        }
    }
    Ok(own)
}

/// The id of an item that may have been called by its organization's id, before that had a namespace.
fn called_now(tx: &Tx<'_>, owner: String, name: &str) -> Result<String, DbError> {
    let organization = if ids::is_id(&owner) { organizations::get(tx, &owner)? } else { None };
    let owner = organization.and_then(|organization| organization.public_namespace).unwrap_or(owner);
    Ok(format!("{owner}:{name}"))
}

struct Filter {
    kinds: Vec<i64>,
    visibilities: Vec<i64>,
    platforms: Vec<String>,
    published: Option<bool>,
    words: Option<String>,
    namespaces: Vec<String>,
    sources: Vec<i32>,
    languages: Vec<i32>,
}

impl Filter {
    fn read(request: &ListRegistryItemsRequest) -> Result<Self, Refusal> {
        let numbers = |field, list: &[i32], most: i32| match list.iter().find(|number| !(1..=most).contains(*number)) {
            None => Ok(list.iter().copied().map(i64::from).collect::<Vec<_>>()),
            Some(odd) => Err(Refusal::unfit(field, odd, format_args!("give numbers of the contract, 1 to {most}"))),
        };
        let mut statuses = Vec::new();
        for status in &request.statuses {
            statuses.push(match RegistryItemStatus::try_from(*status) {
                Ok(RegistryItemStatus::Published) => true,
                Ok(RegistryItemStatus::InDevelopment) => false,
                _ => return Err(Refusal::unfit("statuses", status, "give published (1) or in development (2)")),
            });
        }
        for (field, text) in [("platforms", &request.platforms), ("public_namespaces", &request.public_namespaces)] {
            text.iter().try_for_each(|text| input::printable(field, text))?;
        }
        for number in &request.module_source_types {
            known::<ModuleSourceType>("module_source_types", *number)?;
        }
        for number in &request.module_languages {
            known::<ModuleLanguage>("module_languages", *number)?;
        }
        Ok(Self {
            kinds: numbers("types", &request.types, 5)?,
            visibilities: numbers("visibilities", &request.visibilities, 3)?,
            platforms: request.platforms.clone(),
            published: statuses.first().copied().filter(|first| statuses.iter().all(|status| status == first)),
            words: input::given(request.search_term.as_deref()).map(str::to_lowercase),
            namespaces: request.public_namespaces.clone(),
            sources: request.module_source_types.clone(),
            languages: request.module_languages.clone(),
        })
    }

    fn fits(&self, id: &str, stored: &Stored) -> bool {
        among(&self.kinds, &stored.kind)
            && among(&self.visibilities, &stored.visibility)
            && (self.namespaces.is_empty()
                || stored.namespace.as_ref().is_some_and(|own| self.namespaces.contains(own)))
            && self.fits_module(stored)
            && self.words.as_ref().is_none_or(|words| {
                id.to_lowercase().contains(words) || stored.description.to_lowercase().contains(words)
            })
    }

    fn fits_module(&self, stored: &Stored) -> bool {
        if self.sources.is_empty() && self.languages.is_empty() {
            return true;
        }
        let Some(Metadata::ModuleMetadata(module)) = decoded(&stored.details).metadata else { return false };
        stored.kind == MODULE
            && among(&self.sources, &module.source_type.unwrap_or_default())
            && among(&self.languages, &module.language.unwrap_or_default())
    }

    fn fits_files(&self, told: &Told) -> bool {
        let runs = |wanted: &String| told.files.iter().any(|file| covers(&file.platform, wanted));
        (self.platforms.is_empty() || self.platforms.iter().any(runs))
            && self.published.is_none_or(|published| published != told.files.is_empty())
    }
}

/// An empty list asks for nothing in particular.
fn among<T: PartialEq>(wanted: &[T], value: &T) -> bool {
    wanted.is_empty() || wanted.contains(value)
}

/// Whether a file for this platform runs on that one: "any" stands for every system, or for every processor.
pub(super) fn covers(platform: &str, wanted: &str) -> bool {
    if platform == "any" || platform == wanted {
        return true;
    }
    let mut both = platform.split('/').zip(wanted.split('/'));
    platform.split('/').count() == wanted.split('/').count() && both.all(|(has, wants)| has == "any" || has == wants)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn platforms() {
        let table = [
            ("linux/arm64", "linux/arm64", true),
            ("linux/arm64", "linux/amd64", false),
            ("any", "linux/amd64", true),
            ("linux/any", "linux/amd64", true),
            ("any/arm64", "linux/arm64", true),
            ("any/arm64", "linux/amd64", false),
            ("linux/any", "darwin/arm64", false),
            ("linux/arm64", "any", false),
            ("linux/any", "linux", false),
        ];
        for (platform, wanted, runs) in table {
            assert_eq!(covers(platform, wanted), runs, "{platform} on {wanted}");
        }
    }
}
