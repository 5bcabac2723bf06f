//! Web applications that modules bring: where their content is, and how they look while a person chooses a machine.
//!
//! Applications of public modules are shown to everybody, because a page shows them before a person has signed in. Of a
//! private module they are shown to who may read it; without a token whatever is not public is UNAUTHENTICATED.

use std::collections::{BTreeMap, HashMap};

use api::pb::platform::app::v1::{
    App, AppType, GetAppBrandingRequest, GetAppBrandingResponse, GetAppContentRequest, GetAppContentResponse,
    TextOverrides,
};
use semver::Version;

use super::{
    input,
    registry_item::{Told, decoded, list, may_read, module_of, name},
};
use crate::{
    authn::{Caller, Who},
    context::Context,
    downloads,
    refusal::Refusal,
    store::{
        DbError,
        registry::{self, PRIVATE},
        registry_apps,
    },
};

/// Words for the page on which a person chooses a machine.
const MACHINE_PICKER: &str = "machinePicker";

/// GetAppContent: the newest version that was uploaded.
pub async fn content(
    context: &Context,
    caller: Caller,
    request: GetAppContentRequest,
) -> Result<GetAppContentResponse, Refusal> {
    let (told, app) = find(context, &caller, &request.public_namespace, &request.name).await?;
    // Content is for browsers, so any platform's file has it; the first one in the order of their names.
    let newest = told.files.iter().filter_map(|file| Some((Version::parse(&file.version).ok()?, file)));
    let newest = newest.max_by(|(one, _), (other, _)| {
        (one.pre.is_empty(), one).cmp(&(other.pre.is_empty(), other)).then(std::cmp::Ordering::Greater)
    });
    let Some((_, file)) = newest else {
        return Err(Refusal::not_found("content of the application", &request.name));
    };
    Ok(GetAppContentResponse {
        blob_path: downloads::path_of(&told.stored, file),
        entrypoint: app.entrypoint,
        app_type: kind(&app.r#type).unwrap_or(AppType::Unspecified).into(),
        public: told.stored.visibility != PRIVATE,
    })
}

/// GetAppBranding.
pub async fn branding(
    context: &Context,
    caller: Caller,
    request: GetAppBrandingRequest,
) -> Result<GetAppBrandingResponse, Refusal> {
    let (_, app) = find(context, &caller, &request.public_namespace, &request.name).await?;
    let picker = app.customizations.and_then(|all| all.machine_picker);
    let words = picker.map(|picker| {
        let words = [("heading", picker.heading), ("subheading", picker.subheading)];
        let given = words.into_iter().filter_map(|(name, text)| Some((name.to_owned(), text?)));
        TextOverrides { fields: given.collect::<HashMap<_, _>>() }
    });
    Ok(GetAppBrandingResponse {
        logo_path: app.logo_path.filter(|path| !path.is_empty()),
        text_customizations: words.map(|words| (MACHINE_PICKER.to_owned(), words)).into_iter().collect(),
        fragment_ids: app.fragment_ids,
        allowed_org_ids: app.allowed_org_ids.map(|allowed| allowed.ids).unwrap_or_default(),
    })
}

async fn find(context: &Context, caller: &Caller, namespace: &str, name: &str) -> Result<(Told, App), Refusal> {
    let nobody = matches!(caller.who(), Who::Nobody);
    // Whoever shows no token is told nothing about what is not for everybody, not even what was wrong.
    let missing = || match nobody {
        true => Refusal::unauthenticated("what is not public needs a token: sign in"),
        false => Refusal::not_found("application", name),
    };
    for (field, text) in [("public_namespace", namespace), ("name", name)] {
        input::printable(field, text).map_err(|refusal| if nobody { missing() } else { refusal })?;
    }
    let (namespace, wanted) = (namespace.to_owned(), name.to_owned());
    let told = context.store.scan::<_, DbError>(move |tx| {
        let Some(id) = registry_apps::item_of(tx, &namespace, &wanted)? else { return Ok(None) };
        registry::get(tx, &id)?.map(|stored| Told::read(tx, stored)).transpose()
    });
    let told = told.await?.ok_or_else(missing)?;
    let shown = match nobody {
        true => told.stored.visibility != PRIVATE,
        false => may_read(context, caller, &told.stored).await?,
    };
    if !shown {
        return Err(missing());
    }
    let apps = module_of(decoded(&told.stored.details)).apps;
    let app = apps.into_iter().find(|app| app.name == name).ok_or_else(missing)?;
    Ok((told, app))
}

/// What a module says about its applications.
pub(super) fn check(apps: &[App]) -> Result<(), Refusal> {
    list("apps", apps.len())?;
    let mut seen = BTreeMap::new();
    for app in apps {
        name("apps.name", &app.name)?;
        if seen.insert(&app.name, ()).is_some() {
            return Err(Refusal::unfit("apps.name", &app.name, "it is there twice, give each its own"));
        }
        kind(&app.r#type)
            .ok_or_else(|| Refusal::unfit("apps.type", &app.r#type, "give single_machine or multi_machine"))?;
        if app.entrypoint.is_empty() {
            return Err(Refusal::invalid("apps.entrypoint", "is empty: name the file that a browser opens first"));
        }
        input::printable("apps.entrypoint", &app.entrypoint)?;
        input::printable("apps.logo_path", app.logo_path.as_deref().unwrap_or_default())?;
        let picker = app.customizations.as_ref().and_then(|all| all.machine_picker.as_ref());
        if let Some(picker) = picker {
            let heading = picker.heading.as_deref().unwrap_or_default();
            input::printable("apps.customizations.machine_picker.heading", heading)?;
            let subheading = picker.subheading.as_deref().unwrap_or_default();
            input::printable("apps.customizations.machine_picker.subheading", subheading)?;
        }
        let organizations = app.allowed_org_ids.as_ref().map_or(&[][..], |allowed| &allowed.ids);
        for (field, ids) in [("apps.fragment_ids", &app.fragment_ids[..]), ("apps.allowed_org_ids", organizations)] {
            list(field, ids.len())?;
            ids.iter().try_for_each(|id| input::printable(field, id))?;
        }
    }
    Ok(())
}

/// Their names, which are unique in the organization.
pub(super) fn names(apps: &[App]) -> Vec<&str> {
    apps.iter().map(|app| &*app.name).collect()
}

fn kind(word: &str) -> Option<AppType> {
    match word {
        "single_machine" => Some(AppType::SingleMachine),
        "multi_machine" => Some(AppType::MultiMachine),
        _ => None,
    }
}
