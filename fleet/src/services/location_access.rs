//! Who else reaches a location: organizations it is shared with, and devices that hold one of its secrets.

use api::pb::platform::app::v1::{
    CreateLocationSecretRequest, CreateLocationSecretResponse, DeleteLocationSecretRequest,
    DeleteLocationSecretResponse, GetOrganizationsWithAccessToLocationRequest,
    GetOrganizationsWithAccessToLocationResponse, LocationAuth, LocationAuthRequest, LocationAuthResponse,
    OrganizationIdentity, ShareLocationRequest, ShareLocationResponse, UnshareLocationRequest, UnshareLocationResponse,
};

use super::{locations::or_default, part_secrets};
use crate::{
    authn::Caller,
    authz::{Granted, Location, Target, right},
    context::Context,
    ids,
    refusal::Refusal,
    store::{locations, organizations, secrets},
};

/// ShareLocation.
pub async fn share(
    context: &Context,
    caller: Caller,
    request: ShareLocationRequest,
) -> Result<ShareLocationResponse, Refusal> {
    let granted = owner_of(context, &caller, &request.location_id).await?;
    let other = request.organization_id;
    if granted.organization() == other {
        return Err(Refusal::unfit("organization_id", other, "it owns the location already, name another one"));
    }
    // The other side need not be visible to the caller; that it exists is all that is told.
    if context.authz.chain(Target::Organization, &other).await?.is_none() {
        return Err(Refusal::not_found("organization", &other));
    }
    let now = context.clock.now();
    context.store.write(move |tx| locations::share(tx, &granted, &other, now)).await?;
    Ok(ShareLocationResponse {})
}

/// UnshareLocation.
pub async fn unshare(
    context: &Context,
    caller: Caller,
    request: UnshareLocationRequest,
) -> Result<UnshareLocationResponse, Refusal> {
    let granted = owner_of(context, &caller, &request.location_id).await?;
    let (other, now) = (request.organization_id, context.clock.now());
    if !ids::is_id(&other) {
        return Err(Refusal::malformed_id("organization", &other));
    }
    let shown = other.clone();
    if !context.store.write(move |tx| locations::unshare(tx, &granted, &other, now)).await? {
        return Err(Refusal::not_found("organization that the location is shared with", &shown));
    }
    Ok(UnshareLocationResponse {})
}

/// Sharing gives rights away: that is the owning organization's decision, not a location owner's.
async fn owner_of(
    context: &Context,
    caller: &Caller,
    location: &str,
) -> Result<Granted<Location, right::WriteLocation>, Refusal> {
    let granted = context.authz.location::<right::WriteLocation>(caller, location).await?;
    context.authz.organization::<right::WriteOrganization>(caller, granted.organization()).await?;
    Ok(granted)
}

/// GetOrganizationsWithAccessToLocation.
pub async fn organizations(
    context: &Context,
    caller: Caller,
    request: GetOrganizationsWithAccessToLocationRequest,
) -> Result<GetOrganizationsWithAccessToLocationResponse, Refusal> {
    let granted = context.authz.location::<right::ReadLocation>(&caller, &request.location_id).await?;
    let found = context.store.read::<_, Refusal>(|tx| {
        // With whom a location around it is shared has access, too.
        let chain = granted.chain();
        let mut ids: Vec<&str> = Vec::with_capacity(1 + chain.shared_with.len());
        for id in std::iter::once(&*chain.organization).chain(chain.shared_with.iter().map(|id| &**id)) {
            if !ids.contains(&id) {
                ids.push(id);
            }
        }
        let found = ids.into_iter().map(|id| organizations::get(tx, id)).collect::<Result<Vec<_>, _>>()?;
        Ok(found.into_iter().flatten().map(|one| (one.id, one.name)).collect::<Vec<_>>())
    });
    let organization_identities =
        found.await?.into_iter().map(|(id, name)| OrganizationIdentity { id, name }).collect();
    Ok(GetOrganizationsWithAccessToLocationResponse { organization_identities })
}

/// LocationAuth.
pub async fn auth(
    context: &Context,
    caller: Caller,
    request: LocationAuthRequest,
) -> Result<LocationAuthResponse, Refusal> {
    let id = or_default(context, &caller, &request.location_id).await?;
    let granted = context.authz.location::<right::ReadLocationSecret>(&caller, &id).await?;
    Ok(LocationAuthResponse { auth: Some(read(context, &granted).await?) })
}

/// CreateLocationSecret.
pub async fn create_secret(
    context: &Context,
    caller: Caller,
    request: CreateLocationSecretRequest,
) -> Result<CreateLocationSecretResponse, Refusal> {
    let id = or_default(context, &caller, &request.location_id).await?;
    let granted = context.authz.location::<right::WriteLocation>(&caller, &id).await?;
    let readable = granted.also().ok_or_else(|| Refusal::denied("read_location_secret"))?;
    let fresh = part_secrets::Fresh::new(&context.authn.sealer);
    let now = context.clock.now();
    context.store.write(move |tx| secrets::add_to_location(tx, &granted, &fresh.stored(), now)).await?;
    Ok(CreateLocationSecretResponse { auth: Some(read(context, &readable).await?) })
}

/// DeleteLocationSecret.
pub async fn delete_secret(
    context: &Context,
    caller: Caller,
    request: DeleteLocationSecretRequest,
) -> Result<DeleteLocationSecretResponse, Refusal> {
    let id = or_default(context, &caller, &request.location_id).await?;
    let granted = context.authz.location::<right::WriteLocation>(&caller, &id).await?;
    if !ids::is_id(&request.secret_id) {
        return Err(Refusal::malformed_id("secret", &request.secret_id).on("secret_id"));
    }
    let now = context.clock.now();
    context.store.write(move |tx| secrets::delete_of_location(tx, &granted, &request.secret_id, now)).await?;
    Ok(DeleteLocationSecretResponse {})
}

async fn read(
    context: &Context,
    granted: &Granted<Location, right::ReadLocationSecret>,
) -> Result<LocationAuth, Refusal> {
    let sealed = context.store.read(|tx| secrets::of_location(tx, granted)).await?;
    let secrets = part_secrets::opened(&context.authn.sealer, sealed);
    #[allow(deprecated, reason = "old clients read the single secret")]
    Ok(LocationAuth {
        secret: secrets.first().map(|newest| newest.secret.clone()).unwrap_or_default(),
        location_id: granted.id().to_owned(),
        secrets,
    })
}
