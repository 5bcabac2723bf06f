//! The overview of a fleet: every machine with its parts, and whether it is there.

use std::collections::BTreeSet;

use api::pb::platform::{
    app::v1::{
        FragmentSummary, ListMachineSummariesRequest, ListMachineSummariesResponse, LocationSummary, MachineSummary,
        PartSummary, PlatformAgentVersion, PlatformServerVersion, platform_agent_version, platform_server_version,
    },
    fleet::v1::DeviceStatus,
};
use prost::Message;

use super::{input, locations, machines};
use crate::{
    authn::{Caller, Who},
    authz::Target,
    clock::timestamp,
    context::Context,
    hex, ids,
    refusal::Refusal,
    store::{DbError, Tx, fragments, locations as stored_locations, parts, status},
};

/// ListMachineSummaries. An empty organization means all that the caller sees.
pub async fn list(
    context: &Context,
    caller: Caller,
    request: ListMachineSummariesRequest,
) -> Result<ListMachineSummariesResponse, Refusal> {
    let limit = input::page_size("limit", i64::from(request.limit.unwrap_or_default()))?;
    let mut location_summaries = Vec::new();
    let mut left = limit;
    for location in places(context, &caller, &request).await? {
        if left == 0 {
            break;
        }
        let mut machine_summaries = Vec::new();
        for machine in machines::visible(context, &caller, &location.id).await? {
            let (id, wanted) = (machine.id.clone(), request.fragment_ids.clone());
            let found = context.store.scan::<_, DbError>(move |tx| about(tx, &id, &wanted)).await?;
            let Some(rows) = found.filter(|_| left > 0) else { continue };
            left -= 1;
            let part_summaries = rows.into_iter().map(|row| summary(context, row)).collect();
            machine_summaries.push(MachineSummary {
                machine_id: machine.id,
                machine_name: machine.name,
                part_summaries,
            });
        }
        if !machine_summaries.is_empty() {
            location_summaries.push(LocationSummary {
                location_id: location.id,
                location_name: location.name,
                machine_summaries,
            });
        }
    }
    Ok(ListMachineSummariesResponse { location_summaries })
}

/// The locations to look into, oldest first, each once.
async fn places(
    context: &Context,
    caller: &Caller,
    request: &ListMachineSummariesRequest,
) -> Result<Vec<stored_locations::Stored>, Refusal> {
    let Who::ApiKey { grants, .. } = caller.who() else { return Ok(Vec::new()) };
    let organizations: BTreeSet<&str> = match &*request.organization_id {
        "" => grants.iter().map(|grant| &*grant.organization).collect(),
        one if context.authz.permissions(caller, Target::Organization, one).await?.is_some() => [one].into(),
        unknown => return Err(Refusal::not_found("organization", unknown)),
    };
    for (what, field, ids) in
        [("location", "location_ids", &request.location_ids), ("fragment", "fragment_ids", &request.fragment_ids)]
    {
        if let Some(id) = ids.iter().find(|id| !ids::is_id(id)) {
            return Err(Refusal::malformed_id(what, id).on(field));
        }
    }
    let mut seen = BTreeSet::new();
    let mut places = Vec::new();
    for organization in organizations {
        places.extend(locations::readable(context, caller, organization.to_owned()).await?);
    }
    // A key for single machines does not read their locations, but it sees that they are there.
    for grant in grants {
        if let Some(chain) = context.authz.chain(grant.kind.target(), &grant.resource).await?
            && let Some(location) = chain.locations.first()
            && (request.organization_id.is_empty() || *chain.organization == *request.organization_id)
        {
            places.extend(context.store.read(|tx| stored_locations::get(tx, location)).await?);
        }
    }
    places.retain(|place| {
        let wanted = request.location_ids.is_empty() || request.location_ids.contains(&place.id);
        wanted && seen.insert(place.id.clone())
    });
    places.sort_by(|one, other| (one.created_at, &one.id).cmp(&(other.created_at, &other.id)));
    Ok(places)
}

struct Row {
    part: parts::Stored,
    status: Option<DeviceStatus>,
    fragments: Vec<FragmentSummary>,
}

/// A machine's parts, unless none of them names one of the wanted fragments.
fn about(tx: &Tx<'_>, machine: &str, wanted: &[String]) -> Result<Option<Vec<Row>>, DbError> {
    let mut rows = Vec::new();
    for part in parts::of_machine(tx, machine)? {
        let told = status::get(tx, &part.id)?;
        let told = told.and_then(|(text, _)| DeviceStatus::decode(&*hex::decode(&text)?).ok());
        let named = fragments::named_by_part(tx, &part.id)?;
        let fragments = named.into_iter().map(|(id, name)| FragmentSummary { id, name }).collect();
        rows.push(Row { part, status: told, fragments });
    }
    let names_one = rows.iter().flat_map(|row| &row.fragments).any(|fragment| wanted.contains(&fragment.id));
    Ok((wanted.is_empty() || names_one).then_some(rows))
}

fn summary(context: &Context, Row { part, status, fragments }: Row) -> PartSummary {
    let (live, online_state) = machines::presence(context, Some(&part.id), part.last_access);
    let status = status.unwrap_or_default();
    let agent = Some(status.agent_version).filter(|version| !version.is_empty());
    let server = status.server.map(|server| server.version).filter(|version| !version.is_empty());
    let os = status.platform.split_once('/').map(|(os, _)| os.to_owned());
    PartSummary {
        part_id: part.id,
        part_name: part.name,
        last_online: live.last_access.map(timestamp),
        platform_server_version: server
            .map(|version| PlatformServerVersion { version: Some(platform_server_version::Version::Major(version)) }),
        platform_agent_version: agent
            .map(|version| PlatformAgentVersion { version: Some(platform_agent_version::Version::Major(version)) }),
        os,
        platform: Some(status.platform).filter(|platform| !platform.is_empty()),
        public_ip_address: None,
        fragments,
        dns_name: Some(part.dns_name),
        is_main_part: part.main,
        online_state: online_state.into(),
        seconds_since_online: live.seconds_since,
        last_access: live.last_access.map(timestamp),
    }
}
