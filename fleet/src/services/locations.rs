//! Locations: where machines stand, one inside the other.

use std::collections::BTreeSet;

use api::pb::platform::app::v1::{
    CreateLocationRequest, CreateLocationResponse, DeleteLocationRequest, DeleteLocationResponse, GetLocationRequest,
    GetLocationResponse, ListLocationsRequest, ListLocationsResponse, Location, LocationOrganization,
    OrganizationIdentity, StorageConfig, UpdateLocationRequest, UpdateLocationResponse,
};

use super::input;
use crate::{
    authn::{Caller, Who},
    authz::{Permission, ResourceKind, Target, right},
    clock::timestamp,
    context::Context,
    ids,
    refusal::Refusal,
    store::{
        DbError, Tx,
        locations::{self, Change, Stored},
        organizations,
        tree::NESTED_LOCATIONS_MAX,
    },
};

/// CreateLocation: at the top of an organization, or inside another location.
pub async fn create(
    context: &Context,
    caller: Caller,
    request: CreateLocationRequest,
) -> Result<CreateLocationResponse, Refusal> {
    let (id, now) = (ids::new_id(), context.clock.now());
    let created = match input::given(request.parent_location_id.as_deref()) {
        None => {
            let organization = request.organization_id;
            let granted = context.authz.organization::<right::WriteOrganization>(&caller, &organization).await?;
            let name = input::name("name", &request.name)?;
            let work = move |tx: &Tx<'_>| {
                locations::create(tx, &granted, &id, &name, now)?;
                read(tx, &id)
            };
            context.store.write::<_, Refusal>(work).await?
        }
        Some(parent) => {
            let granted = context.authz.location::<right::WriteLocation>(&caller, parent).await;
            let granted = granted.map_err(|refused| refused.on("parent_location_id"))?;
            if granted.organization() != request.organization_id {
                return Err(Refusal::unfit(
                    "parent_location_id",
                    parent,
                    "it lies in another organization, name one of the same",
                ));
            }
            if granted.chain().locations.len() >= NESTED_LOCATIONS_MAX {
                return Err(too_deep());
            }
            let name = input::name("name", &request.name)?;
            let work = move |tx: &Tx<'_>| {
                locations::create_in(tx, &granted, &id, &name, now)?;
                read(tx, &id)
            };
            context.store.write::<_, Refusal>(work).await?
        }
    };
    Ok(CreateLocationResponse { location: Some(created) })
}

/// GetLocation.
pub async fn get(
    context: &Context,
    caller: Caller,
    request: GetLocationRequest,
) -> Result<GetLocationResponse, Refusal> {
    let id = or_default(context, &caller, &request.location_id).await?;
    let granted = context.authz.location::<right::ReadLocation>(&caller, &id).await?;
    let location = context.store.read::<_, Refusal>(|tx| read(tx, granted.id())).await?;
    Ok(GetLocationResponse { location: Some(location) })
}

/// ListLocations: those of an organization that the caller may read.
pub async fn list(
    context: &Context,
    caller: Caller,
    request: ListLocationsRequest,
) -> Result<ListLocationsResponse, Refusal> {
    let organization = request.organization_id;
    if context.authz.permissions(&caller, Target::Organization, &organization).await?.is_none() {
        return Err(Refusal::not_found("organization", &organization));
    }
    let found = readable(context, &caller, organization).await?;
    let read = move |tx: &Tx<'_>| found.into_iter().map(|location| message(tx, location)).collect();
    let locations = context.store.scan::<Vec<_>, DbError>(read).await?;
    Ok(ListLocationsResponse { locations })
}

/// An organization's locations (and those shared with it, with all inside) that the caller may read.
pub(super) async fn readable(context: &Context, caller: &Caller, organization: String) -> Result<Vec<Stored>, Refusal> {
    let all = context.store.scan::<_, DbError>(move |tx| locations::reached_by(tx, &organization)).await?;
    let mut found = Vec::with_capacity(all.len());
    for location in all {
        let permissions = context.authz.permissions(caller, Target::Location, &location.id).await?;
        if permissions.is_some_and(|permissions| permissions.contains(Permission::ReadLocation)) {
            found.push(location);
        }
    }
    Ok(found)
}

/// UpdateLocation. A parent that is absent stays; one that is present and empty moves the location to the top.
pub async fn update(
    context: &Context,
    caller: Caller,
    request: UpdateLocationRequest,
) -> Result<UpdateLocationResponse, Refusal> {
    let granted = context.authz.location::<right::WriteLocation>(&caller, &request.location_id).await?;
    let name = input::given(request.name.as_deref()).map(|name| input::name("name", name)).transpose()?;
    let region = input::given(request.region.as_deref()).map(str::to_owned);
    region.as_deref().map(|region| input::printable("region", region)).transpose()?;
    // Where it lies already is no move: clients that send everything back may do so without the rights of one.
    let here = granted.chain().locations.get(1).map_or("", |above| &**above);
    let parent = request.parent_location_id.filter(|parent| parent != here);
    if let Some(parent) = parent.as_deref() {
        may_move(context, &caller, &granted, parent).await?;
    }
    let parent = parent.map(|parent| Some(parent).filter(|parent| !parent.is_empty()));
    let change = Change { name, parent, region };
    let now = context.clock.now();
    let updated = context.store.write::<_, Refusal>(move |tx| {
        // Here and not before: two moves at once could make a circle that neither alone makes.
        if let Some(Some(parent)) = &change.parent {
            no_circle(tx, granted.id(), parent)?;
        }
        locations::update(tx, &granted, &change, now)?;
        read(tx, granted.id())
    });
    Ok(UpdateLocationResponse { location: Some(updated.await?) })
}

/// DeleteLocation: an empty one.
pub async fn delete(
    context: &Context,
    caller: Caller,
    request: DeleteLocationRequest,
) -> Result<DeleteLocationResponse, Refusal> {
    let granted = context.authz.location::<right::WriteLocation>(&caller, &request.location_id).await?;
    let now = context.clock.now();
    context.store.write(move |tx| locations::delete(tx, &granted, now)).await?;
    Ok(DeleteLocationResponse {})
}

/// Moving changes who reaches the location: whoever moves it must own where it goes, and where it was.
async fn may_move(
    context: &Context,
    caller: &Caller,
    granted: &crate::authz::Granted<crate::authz::Location, right::WriteLocation>,
    parent: &str,
) -> Result<(), Refusal> {
    match granted.chain().locations.get(1) {
        Some(above) => drop(context.authz.location::<right::WriteLocation>(caller, above).await?),
        None => drop(context.authz.organization::<right::WriteOrganization>(caller, granted.organization()).await?),
    }
    if parent.is_empty() {
        context.authz.organization::<right::WriteOrganization>(caller, granted.organization()).await?;
        return Ok(());
    }
    let to = context.authz.location::<right::WriteLocation>(caller, parent).await;
    let to = to.map_err(|refused| refused.on("parent_location_id"))?;
    if to.organization() != granted.organization() {
        return Err(Refusal::unfit(
            "parent_location_id",
            parent,
            "it lies in another organization, name one of the same",
        ));
    }
    Ok(())
}

fn no_circle(tx: &Tx<'_>, id: &str, parent: &str) -> Result<(), Refusal> {
    let above = crate::store::tree::way_up(tx, Target::Location, parent)?;
    let above = above.ok_or_else(|| Refusal::not_found("location", parent))?.locations;
    if above.iter().any(|location| **location == *id) {
        return Err(Refusal::unfit(
            "parent_location_id",
            parent,
            "it lies inside the location itself, name one outside",
        ));
    }
    if above.len() + height(tx, id, 0)? > NESTED_LOCATIONS_MAX {
        return Err(too_deep());
    }
    Ok(())
}

/// How many levels a location has, itself included.
fn height(tx: &Tx<'_>, id: &str, above: usize) -> Result<usize, DbError> {
    let mut deepest = 0;
    if above < NESTED_LOCATIONS_MAX {
        for child in locations::children(tx, id)? {
            deepest = deepest.max(height(tx, &child.id, above + 1)?);
        }
    }
    Ok(deepest + 1)
}

fn too_deep() -> Refusal {
    Refusal::invalid(
        "parent_location_id",
        format_args!("lies too deep: locations lie at most {NESTED_LOCATIONS_MAX} deep, name one higher up"),
    )
}

/// The location itself, or what the server takes for an empty one: the caller's only location.
pub(super) async fn or_default(context: &Context, caller: &Caller, id: &str) -> Result<String, Refusal> {
    if !id.is_empty() {
        return Ok(id.to_owned());
    }
    let Who::ApiKey { grants, .. } = caller.who() else { return Err(Refusal::not_found("location", "")) };
    let mut candidates: BTreeSet<String> = BTreeSet::new();
    for grant in grants {
        match grant.kind {
            ResourceKind::Location => drop(candidates.insert(grant.resource.to_string())),
            ResourceKind::Machine => {
                let chain = context.authz.chain(Target::Machine, &grant.resource).await?;
                candidates.extend(chain.and_then(|chain| chain.locations.first().map(ToString::to_string)));
            }
            ResourceKind::Organization => {
                let organization = grant.resource.to_string();
                let all = context.store.scan::<_, DbError>(move |tx| locations::of_organization(tx, &organization));
                let (own, shared): (Vec<_>, Vec<_>) =
                    all.await?.into_iter().partition(|location| *location.organization == *grant.resource);
                // What others share must not make the organization's only location ambiguous.
                let meant = if own.is_empty() { shared } else { own };
                candidates.extend(meant.into_iter().map(|location| location.id));
            }
        }
    }
    let count = candidates.len();
    match (candidates.pop_first(), count) {
        (Some(only), 1) => Ok(only),
        (None, _) => Err(Refusal::invalid("location_id", "is empty, and your key reaches no location: name one")),
        _ => Err(Refusal::invalid(
            "location_id",
            format_args!("is empty, and your key reaches {count} locations: name one"),
        )),
    }
}

fn read(tx: &Tx<'_>, id: &str) -> Result<Location, Refusal> {
    let stored = locations::get(tx, id)?.ok_or_else(|| Refusal::not_found("location", id))?;
    Ok(message(tx, stored)?)
}

fn message(tx: &Tx<'_>, stored: Stored) -> Result<Location, DbError> {
    let owner = organizations::get(tx, &stored.organization)?;
    let mut in_organizations = vec![LocationOrganization { organization_id: stored.organization, primary: true }];
    let shared = locations::shared_with(tx, &stored.id)?.into_iter();
    in_organizations.extend(shared.map(|(id, _)| LocationOrganization { organization_id: id, primary: false }));
    let robot_count = locations::machine_count(tx, &stored.id)?;
    Ok(Location {
        id: stored.id,
        name: stored.name,
        created_on: Some(timestamp(stored.created_at)),
        parent_location_id: stored.parent.unwrap_or_default(),
        // Secrets are read with LocationAuth, which asks for the permission.
        auth: None,
        organizations: in_organizations,
        robot_count: i32::try_from(robot_count).unwrap_or(i32::MAX),
        config: Some(StorageConfig { region: stored.region }),
        primary_org_identity: owner.map(|owner| OrganizationIdentity { id: owner.id, name: owner.name }),
    })
}
