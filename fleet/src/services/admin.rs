//! What this project adds for people and their tools: a device's own word, its credentials, the audit log.

use api::pb::platform::fleet::v1::{
    AuditEvent, DeviceStatus, GetPartCredentialsRequest, GetPartCredentialsResponse, GetPartStatusRequest,
    GetPartStatusResponse, ListAuditEventsRequest, ListAuditEventsResponse, Product, RetryUpdateRequest,
    RetryUpdateResponse,
};
use prost::Message;
use serde_json::json;

use super::{configuration, input, machines::presence};
use crate::{
    authn::Caller,
    authz::right,
    clock::timestamp,
    context::Context,
    hex,
    refusal::Refusal,
    store::{DbError, audit, parts, secrets, status},
};

/// GetPartStatus.
pub async fn part_status(
    context: &Context,
    caller: Caller,
    request: GetPartStatusRequest,
) -> Result<GetPartStatusResponse, Refusal> {
    let granted = context.authz.part::<right::ReadRobot>(&caller, &request.part_id).await?;
    let found =
        context.store.read::<_, DbError>(|tx| Ok((parts::get(tx, granted.id())?, status::get(tx, granted.id())?)));
    let (part, told) = found.await?;
    let part = part.ok_or_else(|| Refusal::not_found("robot part", granted.id()))?;
    let (live, _) = presence(context, Some(&part.id), part.last_access);
    let reported_at = told.as_ref().map(|(_, at)| timestamp(*at));
    let status = told.and_then(|(text, _)| DeviceStatus::decode(&*hex::decode(&text)?).ok());
    // The device's complaints are about what it got; what never got that far is ours to add.
    let device = status.as_ref().map(|status| &*status.complaints);
    let ours = configuration::complaints(context, &granted, device).await?;
    let status = match (status, ours.is_empty()) {
        (None, false) => Some(DeviceStatus { complaints: ours, ..DeviceStatus::default() }),
        (Some(mut status), false) => {
            status.complaints.extend(ours);
            Some(status)
        }
        (status, true) => status,
    };
    Ok(GetPartStatusResponse {
        status,
        reported_at,
        last_access: live.last_access.map(timestamp),
        live: live.live,
        restart_marked_at: part.restart_marked_at.map(timestamp),
    })
}

/// RetryUpdate: something one does to a machine, like a restart; operators may.
pub async fn retry_update(
    context: &Context,
    caller: Caller,
    request: RetryUpdateRequest,
) -> Result<RetryUpdateResponse, Refusal> {
    let granted = context.authz.part::<right::ControlRobot>(&caller, &request.part_id).await?;
    let product = match request.product() {
        Product::Unspecified => {
            return Err(Refusal::unfit("product", request.product, "give agent (1) or machine server (2)"));
        }
        known => i32::from(known),
    };
    let now = context.clock.now();
    context.store.write(move |tx| status::ask_for_retry(tx, &granted, product, now)).await?;
    Ok(RetryUpdateResponse {})
}

/// GetPartCredentials: the file a device needs, with the newest secret of the part.
pub async fn part_credentials(
    context: &Context,
    caller: Caller,
    request: GetPartCredentialsRequest,
) -> Result<GetPartCredentialsResponse, Refusal> {
    let granted = context.authz.part::<right::ReadRobotSecret>(&caller, &request.part_id).await?;
    let sealed = context.store.read(|tx| secrets::of_part(tx, &granted)).await?;
    let mut secrets = sealed.iter().filter_map(|one| context.authn.sealer.open(&one.id, &one.sealed));
    let secret = secrets.next().ok_or_else(|| {
        Refusal::precondition("the part has no secret that this server can read: create one with CreateRobotPartSecret")
    })?;
    let address = context.address.as_deref().ok_or_else(|| {
        Refusal::precondition(
            "the server listens on every address and does not know under which one devices reach it: \
             start it with --address URL",
        )
    })?;
    let file = json!({"cloud": {"app_address": address, "id": granted.id(), "secret": secret}});
    Ok(GetPartCredentialsResponse { credentials_json: file.to_string() })
}

/// ListAuditEvents, newest first; the owner's.
pub async fn audit_events(
    context: &Context,
    caller: Caller,
    request: ListAuditEventsRequest,
) -> Result<ListAuditEventsResponse, Refusal> {
    let granted = context.authz.organization::<right::WriteOrganization>(&caller, &request.organization_id).await?;
    let limit = input::page_size("limit", i64::from(request.limit))?;
    let organization = &*request.organization_id;
    let below = audit::Place::read(organization, &request.page_token)?;
    let most = i64::try_from(limit).unwrap_or(i64::MAX - 1) + 1;
    let mut found = context
        .store
        .scan(move |tx| audit::list(tx, &granted, &below, most))
        .await
        .map_err(|why: DbError| Refusal::from(why))?;
    let more = found.len() > limit;
    found.truncate(limit);
    let last = found.last().filter(|_| more);
    let next_page_token = last.map(|last| audit::Place::after(last).token(organization)).unwrap_or_default();
    let events = found.into_iter().map(|event| AuditEvent {
        when: Some(timestamp(event.happened_at)),
        actor: event.actor,
        from_address: event.from_address,
        operation: event.operation,
        resource_type: event.resource_type,
        resource_id: event.resource_id,
        detail: event.detail,
    });
    Ok(ListAuditEventsResponse { events: events.collect(), next_page_token })
}
