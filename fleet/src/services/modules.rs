//! Modules: programs that machines run. They are registry items; these operations say the same in the words of modules.

use std::collections::BTreeMap;

use api::pb::platform::app::{
    packages::v1::PackageType,
    v1::{
        CreateModuleRequest, CreateModuleResponse, GetModuleRequest, GetModuleResponse, ListModulesRequest,
        ListModulesResponse, Module, ModuleVersion, UpdateModuleRequest, UpdateModuleResponse, VersionHistory,
        registry_item::Metadata,
    },
};

use super::{
    apps, input,
    registry::created,
    registry_item::{
        MODULE, Told, address, decoded, encoded, missing, models, module_of, number, readable, visibility,
        without_pages, writable,
    },
};
use crate::{
    authn::Caller,
    authz::right,
    context::Context,
    refusal::Refusal,
    store::{
        DbError,
        registry::{self, Stored},
        registry_apps,
    },
};

/// CreateModule.
pub async fn create(
    context: &Context,
    caller: Caller,
    request: CreateModuleRequest,
) -> Result<CreateModuleResponse, Refusal> {
    let asked = (&*request.organization_id, &*request.name, PackageType::Module.into());
    let module_id = created(context, &caller, asked, "CreateModule").await?.item_id();
    Ok(CreateModuleResponse { url: address(context, &module_id), module_id })
}

/// UpdateModule. What has no presence on the wire is replaced; applications only if some are given, because most clients
/// cannot say any, and would take them all away.
pub async fn update(
    context: &Context,
    caller: Caller,
    request: UpdateModuleRequest,
) -> Result<UpdateModuleResponse, Refusal> {
    let granted = writable(context, &caller, &request.module_id).await?;
    let visibility = visibility(request.visibility)?;
    input::text("description", &request.description)?;
    for (field, text) in [("url", &request.url), ("entrypoint", &request.entrypoint)] {
        input::printable(field, text)?;
    }
    input::printable("first_run", request.first_run.as_deref().unwrap_or_default())?;
    input::text("markdown_description", request.markdown_description.as_deref().unwrap_or_default())?;
    models(&request.models)?;
    apps::check(&request.apps)?;
    let now = context.clock.now();
    let updated = context.store.write::<_, Refusal>(move |tx| {
        let old = registry::get(tx, granted.id())?.filter(|old| old.kind == MODULE);
        let old = old.ok_or_else(|| missing(&request.module_id))?;
        let mut details = decoded(&old.details);
        let mut module = module_of(details.clone());
        module.models = request.models;
        module.entrypoint = request.entrypoint;
        module.first_run = request.first_run.or(module.first_run);
        module.markdown_description = request.markdown_description.or(module.markdown_description);
        let apps_given = !request.apps.is_empty();
        if apps_given {
            module.apps = request.apps;
        }
        let names = apps::names(&module.apps).into_iter().map(str::to_owned).collect::<Vec<_>>();
        details.metadata = Some(Metadata::ModuleMetadata(module));
        let new = Stored {
            visibility: visibility.unwrap_or(old.visibility),
            url: request.url,
            description: request.description,
            details: encoded(&details)?,
            ..old.clone()
        };
        registry::update(tx, &granted, &old, &new, ("UpdateModule", now))?;
        if apps_given {
            registry_apps::set(tx, &new, &names.iter().map(String::as_str).collect::<Vec<_>>())?;
        }
        Ok(new.item_id())
    });
    Ok(UpdateModuleResponse { url: address(context, &updated.await?) })
}

/// GetModule.
pub async fn get(context: &Context, caller: Caller, request: GetModuleRequest) -> Result<GetModuleResponse, Refusal> {
    let stored = readable(context, &caller, &request.module_id).await?;
    if stored.kind != MODULE {
        return Err(missing(&request.module_id));
    }
    let told = context.store.scan::<_, DbError>(move |tx| Told::read(tx, stored)).await?;
    let pages = request.include_markdown_documentation.unwrap_or_default();
    Ok(GetModuleResponse { module: Some(module(told, pages)) })
}

/// ListModules: those of the organization, and all that are public.
pub async fn list(
    context: &Context,
    caller: Caller,
    request: ListModulesRequest,
) -> Result<ListModulesResponse, Refusal> {
    let organization = match input::given(request.organization_id.as_deref()) {
        Some(id) => {
            context.authz.organization::<right::ReadPrivateRegistryItem>(&caller, id).await?;
            Some(id.to_owned())
        }
        None => None,
    };
    let pages = request.include_markdown_documentation.unwrap_or_default();
    let modules = context.store.scan::<_, DbError>(move |tx| {
        let mut found = registry::public(tx)?;
        if let Some(organization) = organization {
            found.extend(registry::of_organization(tx, &organization)?);
        }
        let found = found.into_iter().filter(|item| item.kind == MODULE);
        let found: BTreeMap<String, Stored> = found.map(|item| (item.item_id(), item)).collect();
        found
            .into_values()
            .map(|stored| Ok(module(Told::read(tx, stored)?, pages)))
            .collect::<Result<Vec<_>, DbError>>()
    });
    Ok(ListModulesResponse { modules: modules.await? })
}

fn module(told: Told, pages: bool) -> Module {
    let versions = told.module_versions(pages).into_iter().map(history).collect();
    let (stored, usage) = (told.stored, told.usage);
    let mut details = module_of(decoded(&stored.details));
    if !pages {
        without_pages(&mut details);
    }
    Module {
        module_id: stored.item_id(),
        organization_id: stored.organization,
        public_namespace: stored.namespace.unwrap_or_default(),
        name: stored.name,
        visibility: number(stored.visibility),
        versions,
        url: stored.url,
        description: stored.description,
        models: details.models,
        total_robot_usage: usage.machines,
        total_organization_usage: usage.organizations,
        entrypoint: details.entrypoint,
        first_run: details.first_run,
        markdown_description: details.markdown_description,
        apps: details.apps,
        deprecated_status: None,
    }
}

fn history(version: ModuleVersion) -> VersionHistory {
    VersionHistory {
        version: version.version,
        files: version.files,
        models: version.models,
        entrypoint: version.entrypoint,
        first_run: version.first_run,
        markdown_description: version.markdown_description,
        apps: version.apps,
        deprecated_status: version.deprecated_status,
    }
}
