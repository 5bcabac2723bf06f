//! Machines; clients call them robots. Each has exactly one main part.

use api::pb::platform::app::v1::{
    ApiKeyWithAuthorizations, DeleteRobotRequest, DeleteRobotResponse, GetRobotApiKeysRequest, GetRobotApiKeysResponse,
    GetRobotPartsRequest, GetRobotPartsResponse, GetRobotRequest, GetRobotResponse, ListRobotsRequest,
    ListRobotsResponse, NewRobotRequest, NewRobotResponse, OnlineState, Robot, UpdateRobotRequest, UpdateRobotResponse,
};

use super::{default_fragments, input, keys, locations::or_default, part_secrets::Fresh, parts};
use crate::{
    authn::Caller,
    authz::{Permission, ResourceKind, Target, right},
    clock::{Millis, timestamp},
    context::Context,
    ids,
    limits::NAME_CHARS_MAX,
    presence::{Liveness, liveness},
    refusal::Refusal,
    store::{
        DbError, keys as stored_keys,
        machines::{self, Stored},
        organizations, parts as stored_parts,
    },
};

/// NewRobot, with its main part and that part's first secret. The main part begins with the organization's default
/// fragments.
pub async fn create(context: &Context, caller: Caller, request: NewRobotRequest) -> Result<NewRobotResponse, Refusal> {
    let location = or_default(context, &caller, &request.location).await?;
    let granted = context.authz.location::<right::WriteLocation>(&caller, &location).await?;
    let name = input::name("name", &request.name)?;
    let (id, part, fresh) = (ids::new_id(), ids::new_id(), Fresh::new(&context.authn.sealer));
    let (made, now) = (id.clone(), context.clock.now());
    let created = context.store.write::<_, Refusal>(move |tx| {
        let part_name = main_part_of(&name);
        let label = input::dns_label(&part_name);
        let organization = organizations::get(tx, granted.organization())?;
        let defaults = organization.and_then(|organization| organization.default_fragments);
        let defaults = defaults.as_deref().and_then(default_fragments::kept).unwrap_or_default();
        let (config, secret) = (default_fragments::configuration(&defaults), fresh.stored());
        let main =
            stored_parts::New { id: &part, name: &part_name, label: &label, main: true, config: &config, secret };
        machines::create(tx, &granted, &id, &name, &main, now)
    });
    created.await?;
    Ok(NewRobotResponse { id: made })
}

/// What the first part of a new machine is called: a name itself, however long the machine's is.
fn main_part_of(machine: &str) -> String {
    const MAIN: &str = "-main";
    let begin: String = machine.chars().take(NAME_CHARS_MAX - MAIN.len()).collect();
    format!("{begin}{MAIN}")
}

/// GetRobot.
pub async fn get(context: &Context, caller: Caller, request: GetRobotRequest) -> Result<GetRobotResponse, Refusal> {
    let granted = context.authz.machine::<right::ReadRobot>(&caller, &request.id).await?;
    let found = context.store.read(|tx| machines::get(tx, granted.id())).await?;
    let found = found.ok_or_else(|| Refusal::not_found("robot", granted.id()))?;
    Ok(GetRobotResponse { robot: Some(message(context, found)) })
}

/// ListRobots: directly in one location.
pub async fn list(
    context: &Context,
    caller: Caller,
    request: ListRobotsRequest,
) -> Result<ListRobotsResponse, Refusal> {
    let location = or_default(context, &caller, &request.location_id).await?;
    let robots = visible(context, &caller, &location).await?;
    Ok(ListRobotsResponse { robots: robots.into_iter().map(|stored| message(context, stored)).collect() })
}

/// A location's machines that the caller may read: all of them, or those its key was given one by one.
pub(super) async fn visible(context: &Context, caller: &Caller, location: &str) -> Result<Vec<Stored>, Refusal> {
    let Some(permissions) = context.authz.permissions(caller, Target::Location, location).await? else {
        return Err(Refusal::not_found("location", location));
    };
    let location = location.to_owned();
    let all = context.store.scan::<_, DbError>(move |tx| machines::of_location(tx, &location)).await?;
    if permissions.contains(Permission::ReadRobot) {
        return Ok(all);
    }
    let mut found = Vec::new();
    for machine in all {
        let permissions = context.authz.permissions(caller, Target::Machine, &machine.id).await?;
        if permissions.is_some_and(|permissions| permissions.contains(Permission::ReadRobot)) {
            found.push(machine);
        }
    }
    Ok(found)
}

/// UpdateRobot: another name, another location of the same organization.
pub async fn update(
    context: &Context,
    caller: Caller,
    request: UpdateRobotRequest,
) -> Result<UpdateRobotResponse, Refusal> {
    let granted = context.authz.machine::<right::WriteRobot>(&caller, &request.id).await?;
    let name = input::name("name", &request.name)?;
    let (id, now) = (granted.id().to_owned(), context.clock.now());
    let here = granted.chain().locations.first().cloned();
    match input::given(Some(&request.location)).filter(|there| here.as_deref() != Some(*there)) {
        None => context.store.write(move |tx| machines::rename(tx, &granted, &name, now)).await?,
        Some(there) => {
            if let Some(here) = &here {
                context.authz.location::<right::WriteLocation>(&caller, here).await?;
            }
            // Before the rights there: nobody may do this, also where the location is shared with the caller.
            let seen = context.authz.permissions(&caller, Target::Location, there).await?.is_some();
            let chain = context.authz.chain(Target::Location, there).await?;
            if seen && chain.is_some_and(|chain| *chain.organization != *granted.organization()) {
                return Err(Refusal::precondition(
                    "the location belongs to another organization: machines stay in theirs",
                ));
            }
            let to = context.authz.location::<right::WriteLocation>(&caller, there).await?;
            context.store.write(move |tx| machines::move_to(tx, &granted, &to, &name, now)).await?;
        }
    }
    let found = context.store.read(|tx| machines::get(tx, &id)).await?;
    let found = found.ok_or_else(|| Refusal::not_found("robot", &id))?;
    Ok(UpdateRobotResponse { robot: Some(message(context, found)) })
}

/// DeleteRobot, with its parts and everything that was theirs.
pub async fn delete(
    context: &Context,
    caller: Caller,
    request: DeleteRobotRequest,
) -> Result<DeleteRobotResponse, Refusal> {
    let granted = context.authz.machine::<right::WriteRobot>(&caller, &request.id).await?;
    let now = context.clock.now();
    let parts_gone = context.store.write(move |tx| machines::delete(tx, &granted, now)).await?;
    for part in &parts_gone {
        parts::forget_log(context, part).await;
    }
    Ok(DeleteRobotResponse {})
}

/// GetRobotParts.
pub async fn parts(
    context: &Context,
    caller: Caller,
    request: GetRobotPartsRequest,
) -> Result<GetRobotPartsResponse, Refusal> {
    let granted = context.authz.machine::<right::ReadRobotConfig>(&caller, &request.robot_id).await?;
    let found = context.store.read(|tx| stored_parts::of_machine(tx, granted.id())).await?;
    let mut messages = Vec::with_capacity(found.len());
    for stored in found {
        let granted = context.authz.part::<right::ReadRobotConfig>(&caller, &stored.id).await?;
        messages.push(parts::with_secrets(context, &granted, stored).await?);
    }
    Ok(GetRobotPartsResponse { parts: messages })
}

/// GetRobotAPIKeys: keys with a role on this very machine. Who may not write the machine sees no keys.
pub async fn api_keys(
    context: &Context,
    caller: Caller,
    request: GetRobotApiKeysRequest,
) -> Result<GetRobotApiKeysResponse, Refusal> {
    let granted = context.authz.machine::<right::WriteRobot>(&caller, &request.robot_id).await?;
    let found = context.store.read::<Vec<ApiKeyWithAuthorizations>, DbError>(|tx| {
        let found = stored_keys::of_machine(tx, granted.id())?.into_iter();
        found.map(|key| keys::message(tx, key, granted.organization())).collect()
    });
    let mut api_keys = found.await?;
    // Where else a key has roles is told to who sees what they are on.
    for key in &mut api_keys {
        let mut seen = Vec::with_capacity(key.authorizations.len());
        for role in std::mem::take(&mut key.authorizations) {
            let Some(kind) = ResourceKind::parse(&role.resource_type) else { continue };
            if context.authz.permissions(granted.caller(), kind.target(), &role.resource_id).await?.is_some() {
                seen.push(role);
            }
        }
        key.authorizations = seen;
    }
    Ok(GetRobotApiKeysResponse { api_keys })
}

/// The wire's three ways to say one thing.
pub(super) fn presence(context: &Context, part: Option<&str>, stored: Option<Millis>) -> (Liveness, OnlineState) {
    let now = context.clock.now();
    let last_access = part.and_then(|part| context.presence.last_access(part, stored, now));
    let live = liveness(last_access, now);
    let state = match (live.live, last_access) {
        (true, _) => OnlineState::Online,
        (false, Some(_)) => OnlineState::Offline,
        (false, None) => OnlineState::AwaitingSetup,
    };
    (live, state)
}

fn message(context: &Context, stored: Stored) -> Robot {
    let (live, online_state) = presence(context, stored.main_part.as_deref(), stored.last_access);
    Robot {
        id: stored.id,
        name: stored.name,
        location: stored.location,
        last_access: live.last_access.map(timestamp),
        created_on: Some(timestamp(stored.created_at)),
        online_state: online_state.into(),
        seconds_since_online: live.seconds_since,
    }
}
