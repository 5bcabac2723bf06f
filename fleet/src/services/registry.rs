//! Registry items of every kind, one at a time.

use api::pb::platform::app::v1::{
    CreateRegistryItemRequest, CreateRegistryItemResponse, DeleteRegistryItemRequest, DeleteRegistryItemResponse,
    GetRegistryItemRequest, GetRegistryItemResponse, RegistryItem as Message, UpdateRegistryItemRequest,
    UpdateRegistryItemResponse, registry_item::Metadata, update_registry_item_request::Metadata as Update,
};

use super::{
    apps, input,
    registry_item::{
        MODULE, Told, decoded, empty_details, encoded, list, missing, models, name, readable, visibility, writable,
    },
};
use crate::{
    artifacts::sweep,
    authn::Caller,
    authz::right,
    context::Context,
    ids,
    limits::REGISTRY_ITEMS_MAX,
    refusal::Refusal,
    store::{
        DbError,
        registry::{self, New, Stored},
        registry_apps,
    },
};

/// GetRegistryItem.
pub async fn get(
    context: &Context,
    caller: Caller,
    request: GetRegistryItemRequest,
) -> Result<GetRegistryItemResponse, Refusal> {
    let stored = readable(context, &caller, &request.item_id).await?;
    let told = context.store.scan::<_, DbError>(move |tx| Told::read(tx, stored)).await?;
    let pages = request.include_markdown_documentation.unwrap_or_default();
    Ok(GetRegistryItemResponse { item: Some(told.item(pages)) })
}

/// CreateRegistryItem: private, and in development until something is uploaded.
pub async fn create(
    context: &Context,
    caller: Caller,
    request: CreateRegistryItemRequest,
) -> Result<CreateRegistryItemResponse, Refusal> {
    let asked = (&*request.organization_id, &*request.name, request.r#type);
    created(context, &caller, asked, "CreateRegistryItem").await?;
    Ok(CreateRegistryItemResponse {})
}

/// Makes an item of (organization, name, kind).
pub(super) async fn created(
    context: &Context,
    caller: &Caller,
    (organization, name, kind): (&str, &str, i32),
    operation: &'static str,
) -> Result<Stored, Refusal> {
    let granted = context.authz.organization::<right::WritePrivateRegistryItem>(caller, organization).await?;
    let (name, kind) = (self::name("name", name)?, self::kind(kind)?);
    let details = encoded(&empty_details(kind))?;
    let (id, now) = (ids::new_id(), context.clock.now());
    let created = context.store.write::<_, Refusal>(move |tx| {
        if registry::count(tx, granted.id())? >= REGISTRY_ITEMS_MAX {
            return Err(Refusal::exhausted(format!(
                "the organization has {REGISTRY_ITEMS_MAX} registry items: delete some"
            )));
        }
        registry::create(tx, &granted, &New { id: &id, name: &name, kind, details: &details, operation }, now)?;
        registry::get(tx, &id)?.ok_or_else(|| missing(&name))
    });
    created.await
}

/// UpdateRegistryItem. What has presence on the wire and is absent stays as it is.
pub async fn update(
    context: &Context,
    caller: Caller,
    request: UpdateRegistryItemRequest,
) -> Result<UpdateRegistryItemResponse, Refusal> {
    let granted = writable(context, &caller, &request.item_id).await?;
    let kind = Some(request.r#type).filter(|kind| *kind != 0).map(kind).transpose()?;
    let visibility = visibility(request.visibility)?;
    input::text("description", &request.description)?;
    request.url.as_deref().map(|url| input::printable("url", url)).transpose()?;
    input::text("markdown_description", request.markdown_description.as_deref().unwrap_or_default())?;
    check(request.metadata.as_ref())?;
    let now = context.clock.now();
    let updated = context.store.write::<_, Refusal>(move |tx| {
        let old = registry::get(tx, granted.id())?.ok_or_else(|| missing(&request.item_id))?;
        if kind.is_some_and(|kind| kind != old.kind) {
            let why = format_args!("the item's is {}, and what an item is does not change", old.kind);
            return Err(Refusal::unfit("type", request.r#type, why));
        }
        let mut details = decoded(&old.details);
        merge(&mut details, &request)?;
        let new = Stored {
            visibility: visibility.unwrap_or(old.visibility),
            url: request.url.clone().unwrap_or_else(|| old.url.clone()),
            description: request.description.clone(),
            details: encoded(&details)?,
            ..old.clone()
        };
        registry::update(tx, &granted, &old, &new, ("UpdateRegistryItem", now))?;
        if let (Some(Update::UpdateModuleMetadata(_)), Some(Metadata::ModuleMetadata(module))) =
            (&request.metadata, &details.metadata)
        {
            registry_apps::set(tx, &new, &apps::names(&module.apps))?;
        }
        Ok(())
    });
    updated.await?;
    Ok(UpdateRegistryItemResponse {})
}

/// Numbers that only describe (a language, a framework) are kept as they are, also those that a newer client has a name for.
fn check(metadata: Option<&Update>) -> Result<(), Refusal> {
    match metadata {
        None => Ok(()),
        Some(Update::UpdateModuleMetadata(module)) => {
            models(&module.models)?;
            input::printable("entrypoint", &module.entrypoint)?;
            let version = module.min_platform_server_version.as_deref().unwrap_or_default();
            input::printable("min_platform_server_version", version)?;
            apps::check(&module.apps)
        }
        Some(Update::UpdateMlModelMetadata(model)) => {
            words("update_ml_model_metadata.deployment_modular_resources", &model.deployment_modular_resources)
        }
        Some(Update::UpdateMlTrainingMetadata(training)) => {
            words("update_ml_training_metadata.deployment_modular_resources", &training.deployment_modular_resources)
        }
    }
}

fn words(field: &'static str, words: &[String]) -> Result<(), Refusal> {
    list(field, words.len())?;
    words.iter().try_for_each(|word| input::printable(field, word))
}

fn merge(details: &mut Message, request: &UpdateRegistryItemRequest) -> Result<(), Refusal> {
    match (&mut details.metadata, request.metadata.clone()) {
        (_, None) => {}
        (Some(Metadata::ModuleMetadata(module)), Some(Update::UpdateModuleMetadata(update))) => {
            module.models = update.models;
            module.entrypoint = update.entrypoint;
            module.apps = update.apps;
            module.source_type = update.source_type.or(module.source_type);
            module.language = update.language.or(module.language);
            module.min_platform_server_version =
                update.min_platform_server_version.or_else(|| module.min_platform_server_version.take());
        }
        (Some(Metadata::MlModelMetadata(model)), Some(Update::UpdateMlModelMetadata(update))) => {
            model.model_type = update.model_type;
            model.model_framework = update.model_framework;
            model.deployment_modular_resources = update.deployment_modular_resources;
        }
        (Some(Metadata::MlTrainingMetadata(training)), Some(Update::UpdateMlTrainingMetadata(update))) => {
            training.model_type = update.model_type;
            training.model_framework = update.model_framework;
            training.draft = update.draft;
            training.deployment_modular_resources = update.deployment_modular_resources;
        }
        (_, Some(update)) => {
            let field = match update {
                Update::UpdateModuleMetadata(_) => "update_module_metadata",
                Update::UpdateMlModelMetadata(_) => "update_ml_model_metadata",
                Update::UpdateMlTrainingMetadata(_) => "update_ml_training_metadata",
            };
            return Err(Refusal::invalid(field, "belongs to another kind of item: send what is told about this kind"));
        }
    }
    if let Some(page) = &request.markdown_description {
        match &mut details.metadata {
            Some(Metadata::ModuleMetadata(module)) => module.markdown_description = Some(page.clone()),
            _ => {
                return Err(Refusal::invalid(
                    "markdown_description",
                    "is given, and only modules have a page of their own: leave it out",
                ));
            }
        }
    }
    if request.billing.is_some() {
        details.billing = request.billing;
    }
    Ok(())
}

/// DeleteRegistryItem: one that nobody uses.
pub async fn delete(
    context: &Context,
    caller: Caller,
    request: DeleteRegistryItemRequest,
) -> Result<DeleteRegistryItemResponse, Refusal> {
    let granted = writable(context, &caller, &request.item_id).await?;
    let now = context.clock.now();
    context.store.write(move |tx| registry::delete(tx, &granted, now)).await?;
    sweep::now(context).await;
    Ok(DeleteRegistryItemResponse {})
}

fn kind(number: i32) -> Result<i64, Refusal> {
    match i64::from(number) {
        kind @ 1..=5 => Ok(kind),
        _ => Err(Refusal::unfit(
            "type",
            number,
            format_args!("give archive (1), model (2), module ({MODULE}), map (4) or training script (5)"),
        )),
    }
}
