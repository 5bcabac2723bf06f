//! Metadata: one free object about an organization, a location, a machine or a part, for the programs of its owner.
//!
//! Read by whoever may read the thing, replaced as a whole by whoever may write it. Kept as JSON text of at most 1 MiB.

use api::pb::platform::app::v1::{
    GetLocationMetadataRequest, GetLocationMetadataResponse, GetOrganizationMetadataRequest,
    GetOrganizationMetadataResponse, GetRobotMetadataRequest, GetRobotMetadataResponse, GetRobotPartMetadataRequest,
    GetRobotPartMetadataResponse, UpdateLocationMetadataRequest, UpdateLocationMetadataResponse,
    UpdateOrganizationMetadataRequest, UpdateOrganizationMetadataResponse, UpdateRobotMetadataRequest,
    UpdateRobotMetadataResponse, UpdateRobotPartMetadataRequest, UpdateRobotPartMetadataResponse,
};
use prost_types::Struct;

use crate::{
    authn::Caller,
    authz::{Granted, right},
    context::Context,
    documents,
    refusal::Refusal,
    store::metadata::{self, Described},
};

/// GetOrganizationMetadata.
pub async fn of_organization(
    context: &Context,
    caller: Caller,
    request: GetOrganizationMetadataRequest,
) -> Result<GetOrganizationMetadataResponse, Refusal> {
    let granted = context.authz.organization::<right::ReadOrganization>(&caller, &request.organization_id).await?;
    Ok(GetOrganizationMetadataResponse { data: Some(read(context, &granted).await?) })
}

/// UpdateOrganizationMetadata.
pub async fn update_of_organization(
    context: &Context,
    caller: Caller,
    request: UpdateOrganizationMetadataRequest,
) -> Result<UpdateOrganizationMetadataResponse, Refusal> {
    let granted = context.authz.organization::<right::WriteOrganization>(&caller, &request.organization_id).await?;
    replace(context, granted, request.data).await?;
    Ok(UpdateOrganizationMetadataResponse {})
}

/// GetLocationMetadata.
pub async fn of_location(
    context: &Context,
    caller: Caller,
    request: GetLocationMetadataRequest,
) -> Result<GetLocationMetadataResponse, Refusal> {
    let granted = context.authz.location::<right::ReadLocation>(&caller, &request.location_id).await?;
    Ok(GetLocationMetadataResponse { data: Some(read(context, &granted).await?) })
}

/// UpdateLocationMetadata.
pub async fn update_of_location(
    context: &Context,
    caller: Caller,
    request: UpdateLocationMetadataRequest,
) -> Result<UpdateLocationMetadataResponse, Refusal> {
    let granted = context.authz.location::<right::WriteLocation>(&caller, &request.location_id).await?;
    replace(context, granted, request.data).await?;
    Ok(UpdateLocationMetadataResponse {})
}

/// GetRobotMetadata.
pub async fn of_machine(
    context: &Context,
    caller: Caller,
    request: GetRobotMetadataRequest,
) -> Result<GetRobotMetadataResponse, Refusal> {
    let granted = context.authz.machine::<right::ReadRobot>(&caller, &request.id).await?;
    Ok(GetRobotMetadataResponse { data: Some(read(context, &granted).await?) })
}

/// UpdateRobotMetadata.
pub async fn update_of_machine(
    context: &Context,
    caller: Caller,
    request: UpdateRobotMetadataRequest,
) -> Result<UpdateRobotMetadataResponse, Refusal> {
    let granted = context.authz.machine::<right::WriteRobot>(&caller, &request.id).await?;
    replace(context, granted, request.data).await?;
    Ok(UpdateRobotMetadataResponse {})
}

/// GetRobotPartMetadata.
pub async fn of_part(
    context: &Context,
    caller: Caller,
    request: GetRobotPartMetadataRequest,
) -> Result<GetRobotPartMetadataResponse, Refusal> {
    let granted = context.authz.part::<right::ReadRobot>(&caller, &request.id).await?;
    Ok(GetRobotPartMetadataResponse { data: Some(read(context, &granted).await?) })
}

/// UpdateRobotPartMetadata.
pub async fn update_of_part(
    context: &Context,
    caller: Caller,
    request: UpdateRobotPartMetadataRequest,
) -> Result<UpdateRobotPartMetadataResponse, Refusal> {
    let granted = context.authz.part::<right::WriteRobot>(&caller, &request.id).await?;
    replace(context, granted, request.data).await?;
    Ok(UpdateRobotPartMetadataResponse {})
}

/// An empty object where nobody wrote any: clients read it so.
async fn read<T: Described, R: right::Right>(context: &Context, granted: &Granted<T, R>) -> Result<Struct, Refusal> {
    let found = context.store.read(|tx| metadata::get(tx, granted)).await?;
    let found = found.ok_or_else(|| Refusal::not_found(granted.target().word(), granted.id()))?;
    Ok(found.as_deref().map(documents::to_struct).unwrap_or_default())
}

/// A request without an object is refused: taken for an empty one, it would wipe out what is there.
async fn replace<T: Described, R: right::Right>(
    context: &Context,
    granted: Granted<T, R>,
    data: Option<Struct>,
) -> Result<(), Refusal> {
    let data = data.ok_or_else(|| Refusal::invalid("data", "is missing: send an empty object to clear it"))?;
    let text = documents::to_text("data", &data)?;
    let (id, now) = (granted.id().to_owned(), context.clock.now());
    match context.store.write(move |tx| metadata::replace(tx, &granted, &text, now)).await? {
        true => Ok(()),
        false => Err(Refusal::not_found(T::TARGET.word(), &id)),
    }
}
