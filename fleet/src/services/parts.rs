//! Parts: what a device is configured with.

use api::{
    brand,
    pb::platform::app::v1::{
        AuthenticatorInfo, DeleteRobotPartRequest, DeleteRobotPartResponse, GetRobotPartByNameAndLocationRequest,
        GetRobotPartByNameAndLocationResponse, GetRobotPartHistoryRequest, GetRobotPartHistoryResponse,
        GetRobotPartRequest, GetRobotPartResponse, MarkPartAsMainRequest, MarkPartAsMainResponse,
        MarkPartForRestartRequest, MarkPartForRestartResponse, NewRobotPartRequest, NewRobotPartResponse, RobotPart,
        RobotPartHistoryEntry, SharedSecret, UpdateRobotPartRequest, UpdateRobotPartResponse,
    },
};

use super::{encoded_part, input, locations::or_default, machines::presence, part_secrets};
use crate::{
    authn::Caller,
    authz::{Granted, Part, Permission, right},
    clock::{Millis, millis, timestamp},
    context::Context,
    documents, ids,
    refusal::Refusal,
    store::{
        DbError,
        parts::{self, Change, Stored, Was},
        secrets,
    },
    written::Written,
};

/// Text of configurations in one answer: clients refuse messages above 4 MiB, and each text is in there three times.
pub(super) const HISTORY_BYTES_MAX: usize = 1024 * 1024;
/// The same where no limit was named: such clients never ask for a second page, and take messages of any length.
const WHOLE_HISTORY_BYTES_MAX: usize = 8 * HISTORY_BYTES_MAX;

/// GetRobotPart.
pub async fn get(
    context: &Context,
    caller: Caller,
    request: GetRobotPartRequest,
) -> Result<Written<GetRobotPartResponse>, Refusal> {
    let granted = context.authz.part::<right::ReadRobotConfig>(&caller, &request.id).await?;
    let (part, secrets) = look_up(context, &granted).await?;
    Ok(encoded_part::got(&without_struct(context, &granted, part, secrets)))
}

/// GetRobotPartByNameAndLocation: by its name or by the first label of its full name.
pub async fn get_by_name(
    context: &Context,
    caller: Caller,
    request: GetRobotPartByNameAndLocationRequest,
) -> Result<GetRobotPartByNameAndLocationResponse, Refusal> {
    let location = or_default(context, &caller, &request.location_id).await?;
    if !ids::is_id(&location) {
        return Err(Refusal::malformed_id("location", &location));
    }
    if request.name.is_empty() {
        return Err(Refusal::invalid("name", "is missing: give a part's name, or the first label of its full name"));
    }
    input::printable("name", &request.name)?;
    // Parts of several machines may have the name: the first one that the caller may read.
    for found in context.store.read(|tx| parts::by_name(tx, &location, &request.name)).await? {
        match context.authz.part::<right::ReadRobotConfig>(&caller, &found.id).await {
            Ok(granted) => {
                let part = with_secrets(context, &granted, found).await?;
                return Ok(GetRobotPartByNameAndLocationResponse { part: Some(part) });
            }
            Err(refusal) if refusal.is_not_found() => {}
            Err(refusal) => return Err(refusal),
        }
    }
    // By its name, not by its id: a stranger must not learn the id from the refusal.
    Err(Refusal::not_found("robot part", &request.name))
}

/// UpdateRobotPart. The text form wins over the Struct and is kept letter by letter.
pub async fn update(
    context: &Context,
    caller: Caller,
    request: UpdateRobotPartRequest,
) -> Result<Written<UpdateRobotPartResponse>, Refusal> {
    let granted = context.authz.part::<right::WriteRobot>(&caller, &request.id).await?;
    let readable = granted.also().ok_or_else(|| Refusal::denied("read_robot_config"))?;
    let name = Some(input::name("name", &request.name)?);
    let config = match (request.robot_config_json.filter(|text| !text.is_empty()), request.robot_config) {
        (Some(text), _) => {
            documents::checked("robot_config_json", &text)?;
            Some(text)
        }
        (None, Some(object)) => Some(documents::to_text("robot_config", &object)?),
        (None, None) => None,
    };
    let change = Change { name, config, last_known_update: request.last_known_update.as_ref().map(millis) };
    let (now, secret_reader) = (context.clock.now(), granted.also::<right::ReadRobotSecret>());
    let updated = context.store.write::<_, Refusal>(move |tx| {
        let part = parts::update(tx, &granted, change, now)?;
        let secrets = secret_reader.map(|granted| secrets::of_part(tx, &granted)).transpose()?.unwrap_or_default();
        Ok((part, secrets))
    });
    let (part, sealed) = updated.await?;
    let secrets = part_secrets::opened(&context.authn.sealer, sealed);
    Ok(encoded_part::updated(&without_struct(context, &readable, part, secrets)))
}

/// NewRobotPart.
pub async fn create(
    context: &Context,
    caller: Caller,
    request: NewRobotPartRequest,
) -> Result<NewRobotPartResponse, Refusal> {
    let granted = context.authz.machine::<right::WriteRobot>(&caller, &request.robot_id).await?;
    let name = input::name("part_name", &request.part_name)?;
    let (id, fresh) = (ids::new_id(), part_secrets::Fresh::new(&context.authn.sealer));
    let (made, now) = (id.clone(), context.clock.now());
    let created = context.store.write::<_, Refusal>(move |tx| {
        let label = input::dns_label(&name);
        let secret = fresh.stored();
        let new = parts::New { id: &id, name: &name, label: &label, main: false, config: "{}", secret };
        parts::create(tx, &granted, &new, now)
    });
    created.await?;
    Ok(NewRobotPartResponse { part_id: made })
}

/// DeleteRobotPart; the main part only goes with its machine.
pub async fn delete(
    context: &Context,
    caller: Caller,
    request: DeleteRobotPartRequest,
) -> Result<DeleteRobotPartResponse, Refusal> {
    let granted = context.authz.part::<right::WriteRobot>(&caller, &request.part_id).await?;
    let now = context.clock.now();
    context.store.write(move |tx| parts::delete(tx, &granted, now)).await?;
    forget_log(context, &request.part_id).await;
    Ok(DeleteRobotPartResponse {})
}

/// A part is gone from the store: what it said goes too.
pub(super) async fn forget_log(context: &Context, part: &str) {
    // The part is gone whatever comes of this; what is left over goes with the next clean-up.
    if let Err(problem) = context.logs.forget(part).await {
        tracing::warn!(%problem, part, "could not delete the log of a deleted part: the clean-up will");
    }
}

/// MarkPartAsMain.
pub async fn mark_as_main(
    context: &Context,
    caller: Caller,
    request: MarkPartAsMainRequest,
) -> Result<MarkPartAsMainResponse, Refusal> {
    let granted = context.authz.part::<right::WriteRobot>(&caller, &request.part_id).await?;
    let now = context.clock.now();
    context.store.write(move |tx| parts::make_main(tx, &granted, now)).await?;
    Ok(MarkPartAsMainResponse {})
}

/// MarkPartForRestart: something one does to a machine, not a change of what it is; operators may.
pub async fn mark_for_restart(
    context: &Context,
    caller: Caller,
    request: MarkPartForRestartRequest,
) -> Result<MarkPartForRestartResponse, Refusal> {
    let granted = context.authz.part::<right::ControlRobot>(&caller, &request.part_id).await?;
    let now = context.clock.now();
    context.store.write(move |tx| parts::mark_for_restart(tx, &granted, now)).await?;
    Ok(MarkPartForRestartResponse {})
}

/// GetRobotPartHistory, newest first.
pub async fn history(
    context: &Context,
    caller: Caller,
    request: GetRobotPartHistoryRequest,
) -> Result<GetRobotPartHistoryResponse, Refusal> {
    let granted = context.authz.part::<right::ReadRobotHistory>(&caller, &request.id).await?;
    let readable = granted.also().ok_or_else(|| Refusal::denied("read_robot_config"))?;
    let (limit, bytes_max) = match request.page_limit.unwrap_or_default() {
        0 => (usize::MAX, WHOLE_HISTORY_BYTES_MAX),
        limit => (input::page_size("page_limit", limit)?, HISTORY_BYTES_MAX),
    };
    let start = request.start.as_ref().map_or(Millis::MIN, millis);
    let end = request.end.as_ref().map_or(Millis::MAX, millis);
    let scope = [granted.id(), &start.to_string(), &end.to_string()].map(str::to_owned);
    let scope = [&*scope[0], &*scope[1], &*scope[2]];
    let before = input::page_place(&scope, request.page_token.as_deref().unwrap_or_default())?;

    let id = granted.id().to_owned();
    let found = context.store.scan::<_, DbError>(move |tx| {
        let part = parts::get(tx, &id)?;
        // One by one until the page is full, and one beyond it: a thousand at once may be a gibibyte.
        let (mut found, mut bytes, mut before) = (Vec::<Was>::new(), 0, before.unwrap_or(Millis::MAX));
        while found.len() <= limit
            && bytes <= bytes_max
            && let Some(next) = parts::history_before(tx, &id, (start, end), before)?
        {
            (before, bytes) = (next.changed_at, bytes + next.config.len());
            found.push(next);
        }
        Ok((part, found))
    });
    let (part, found) = found.await?;
    let part = part.ok_or_else(|| Refusal::not_found("robot part", granted.id()))?;
    let mut history = Vec::new();
    let mut bytes = 0;
    let mut next_page_token = String::new();
    let mut last = None;
    for was in found {
        if let Some(last) = last
            && (history.len() == limit || bytes + was.config.len() > bytes_max)
        {
            next_page_token = input::page_token(&scope, last);
            break;
        }
        bytes += was.config.len();
        last = Some(was.changed_at);
        history.push(entry(context, &readable, &part, was));
    }
    Ok(GetRobotPartHistoryResponse { history, next_page_token })
}

fn entry(
    context: &Context,
    granted: &Granted<Part, right::ReadRobotConfig>,
    part: &Stored,
    was: Was,
) -> RobotPartHistoryEntry {
    let old = Stored { name: was.name, config: was.config, updated_at: was.updated_at, ..part.clone() };
    RobotPartHistoryEntry {
        part: part.id.clone(),
        robot: part.machine.clone(),
        when: Some(timestamp(was.changed_at)),
        old: Some(message(context, granted, old, Vec::new())),
        edited_by: Some(edited_by(was.edited_by_type, was.edited_by)),
    }
}

/// Who edited.
pub(super) fn edited_by(kind: i64, id: String) -> AuthenticatorInfo {
    AuthenticatorInfo { r#type: i32::try_from(kind).unwrap_or_default(), value: id, is_deactivated: false }
}

/// The part with what its caller may see of it.
pub(super) async fn read(
    context: &Context,
    granted: &Granted<Part, right::ReadRobotConfig>,
) -> Result<RobotPart, Refusal> {
    let (part, secrets) = look_up(context, granted).await?;
    Ok(message(context, granted, part, secrets))
}

/// The row and, for callers who may read them, its secrets.
async fn look_up(
    context: &Context,
    granted: &Granted<Part, right::ReadRobotConfig>,
) -> Result<(Stored, Vec<SharedSecret>), Refusal> {
    let secret_reader = granted.also::<right::ReadRobotSecret>();
    // Where it lies is in memory, by which it was granted; another server may have moved the machine since.
    let location = granted.chain().locations.first().filter(|_| !context.store.state.is_shared());
    let found = context.store.read::<_, DbError>(|tx| {
        let part = match location {
            Some(location) => parts::get_in(tx, granted.id(), location)?,
            None => parts::get(tx, granted.id())?,
        };
        let Some(part) = part else { return Ok(None) };
        let secrets = secret_reader.map(|granted| secrets::of_part(tx, &granted)).transpose()?.unwrap_or_default();
        Ok(Some((part, secrets)))
    });
    let (part, sealed) = found.await?.ok_or_else(|| Refusal::not_found("robot part", granted.id()))?;
    Ok((part, part_secrets::opened(&context.authn.sealer, sealed)))
}

/// The same for a row that is at hand.
pub(super) async fn with_secrets(
    context: &Context,
    granted: &Granted<Part, right::ReadRobotConfig>,
    part: Stored,
) -> Result<RobotPart, Refusal> {
    let sealed = match granted.also::<right::ReadRobotSecret>() {
        Some(granted) => context.store.read(|tx| secrets::of_part(tx, &granted)).await?,
        None => Vec::new(),
    };
    Ok(message(context, granted, part, part_secrets::opened(&context.authn.sealer, sealed)))
}

fn message(
    context: &Context,
    granted: &Granted<Part, right::ReadRobotConfig>,
    part: Stored,
    secrets: Vec<SharedSecret>,
) -> RobotPart {
    let part = without_struct(context, granted, part, secrets);
    let config = part.robot_config_json.as_deref().map(documents::to_struct);
    RobotPart { robot_config: config, ..part }
}

/// The same with the text of the configuration only.
fn without_struct(
    context: &Context,
    granted: &Granted<Part, right::ReadRobotConfig>,
    part: Stored,
    secrets: Vec<SharedSecret>,
) -> RobotPart {
    let (live, online_state) = presence(context, Some(&part.id), part.last_access);
    // Passwords inside are for those who could write others in their place.
    let config = match granted.permissions().contains(Permission::WriteRobot) {
        true => part.config,
        false => documents::masked(&part.config),
    };
    RobotPart {
        fqdn: format!("{}.{}.{}.internal", part.dns_name, part.location, brand::NAME),
        local_fqdn: format!("{}.{}.local.{}.internal", part.dns_name, part.location, brand::NAME),
        dns_name: part.dns_name,
        id: part.id,
        name: part.name,
        secret: secrets.first().map(|newest| newest.secret.clone()).unwrap_or_default(),
        robot: part.machine,
        robot_config: None,
        last_access: live.last_access.map(timestamp),
        user_supplied_info: None,
        main_part: part.main,
        location_id: part.location,
        created_on: Some(timestamp(part.created_at)),
        secrets,
        last_updated: Some(timestamp(part.updated_at)),
        online_state: online_state.into(),
        seconds_since_online: live.seconds_since,
        robot_config_json: Some(config),
    }
}
