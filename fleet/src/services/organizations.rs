//! Organizations: the tops of all trees.

use std::collections::BTreeSet;

use api::pb::platform::app::v1::{
    CreateOrganizationRequest, CreateOrganizationResponse, DeleteOrganizationRequest, DeleteOrganizationResponse,
    GetOrganizationNamespaceAvailabilityRequest, GetOrganizationNamespaceAvailabilityResponse, GetOrganizationRequest,
    GetOrganizationResponse, ListOrganizationsRequest, ListOrganizationsResponse, Organization,
    UpdateOrganizationRequest, UpdateOrganizationResponse,
};

use super::{default_fragments, input};
use crate::{
    artifacts::sweep,
    authn::{Caller, Who},
    authz::{Permission, Target, right},
    clock::timestamp,
    context::Context,
    ids, people,
    refusal::Refusal,
    store::{
        fragments, keys,
        organizations::{self, Change, Stored},
    },
};

/// Of a namespace, which becomes part of registry ids.
const NAMESPACE_CHARS_MAX: usize = 63;

/// CreateOrganization. Whoever creates it owns it, on the very token it did it with.
pub async fn create(
    context: &Context,
    caller: Caller,
    request: CreateOrganizationRequest,
) -> Result<CreateOrganizationResponse, Refusal> {
    if !context.organizations_are_open {
        return Err(Refusal::forbidden(
            "on this server organizations are created by its administrator: ask for `platform-fleet init`",
        ));
    }
    let Some(owner) = people::identity(&caller) else {
        return Err(Refusal::forbidden("only a key of a person or a program may create organizations"));
    };
    let name = input::name("name", &request.name)?;
    let (id, now) = (ids::new_id(), context.clock.now());
    let created = context.store.write::<_, Refusal>(move |tx| {
        organizations::create(tx, &caller, &id, &name, now)?;
        keys::give_owner_of_new(tx, &owner, &id, now)?;
        organizations::get(tx, &id)?.ok_or_else(|| Refusal::not_found("organization", &id))
    });
    let organization = message(created.await?, true);
    Ok(CreateOrganizationResponse { organization: Some(organization) })
}

/// GetOrganization.
pub async fn get(
    context: &Context,
    caller: Caller,
    request: GetOrganizationRequest,
) -> Result<GetOrganizationResponse, Refusal> {
    let granted = context.authz.organization::<right::ReadOrganization>(&caller, &request.organization_id).await?;
    let found = context.store.read(|tx| organizations::get(tx, granted.id())).await?;
    let found = found.ok_or_else(|| Refusal::not_found("organization", granted.id()))?;
    let writes = granted.permissions().contains(Permission::WriteOrganization);
    Ok(GetOrganizationResponse { organization: Some(message(found, writes)) })
}

/// ListOrganizations: those in which the caller has any grant. Where it may not read the organization, only its name.
pub async fn list(
    context: &Context,
    caller: Caller,
    _: ListOrganizationsRequest,
) -> Result<ListOrganizationsResponse, Refusal> {
    let Who::ApiKey { grants, .. } = caller.who() else { return Ok(ListOrganizationsResponse::default()) };
    let ids: BTreeSet<&str> = grants.iter().map(|grant| &*grant.organization).collect();
    let mut found: Vec<(Stored, bool)> = Vec::with_capacity(ids.len());
    for id in ids {
        let permissions = context.authz.permissions(&caller, Target::Organization, id).await?.unwrap_or_default();
        if let Some(stored) = context.store.read(|tx| organizations::get(tx, id)).await? {
            let shown = match permissions.contains(Permission::ReadOrganization) {
                true => stored,
                false => Stored { region: String::new(), cid: None, default_fragments: None, ..stored },
            };
            found.push((shown, permissions.contains(Permission::WriteOrganization)));
        }
    }
    found.sort_by(|(one, _), (other, _)| (one.created_at, &one.id).cmp(&(other.created_at, &other.id)));
    let organizations = found.into_iter().map(|(stored, writes)| message(stored, writes)).collect();
    Ok(ListOrganizationsResponse { organizations })
}

/// UpdateOrganization.
pub async fn update(
    context: &Context,
    caller: Caller,
    request: UpdateOrganizationRequest,
) -> Result<UpdateOrganizationResponse, Refusal> {
    let granted = context.authz.organization::<right::WriteOrganization>(&caller, &request.organization_id).await?;
    let name = input::given(request.name.as_deref()).map(|name| input::name("name", name)).transpose()?;
    let public_namespace = input::given(request.public_namespace.as_deref()).map(namespace).transpose()?;
    for (field, text) in [("region", &request.region), ("cid", &request.cid)] {
        text.as_deref().map(|text| input::printable(field, text)).transpose()?;
    }
    let defaults = request.default_fragments.as_ref().map(default_fragments::checked).transpose()?.unwrap_or_default();
    let change = Change {
        name,
        public_namespace,
        region: request.region,
        cid: request.cid,
        default_fragments: request.default_fragments.as_ref().map(default_fragments::to_keep),
    };
    let now = context.clock.now();
    let updated = context.store.write::<_, Refusal>(move |tx| {
        let missing = || Refusal::not_found("organization", granted.id());
        let old = organizations::get(tx, granted.id())?.ok_or_else(missing)?;
        match (&old.public_namespace, &change.public_namespace) {
            (Some(old), Some(new)) if old != new => {
                return Err(Refusal::precondition(format!("the namespace is {old:?} and cannot be changed")));
            }
            (None, Some(new)) if organizations::namespace_is_taken(tx, new)? => {
                return Err(Refusal::exists(format!("the namespace {new:?} belongs to another organization")));
            }
            _ => {}
        }
        for key in &defaults {
            if !fragments::may_be_used(tx, granted.id(), key)? {
                return Err(Refusal::not_found("fragment", &key.to_string()));
            }
        }
        organizations::update(tx, &granted, &change, now)?;
        organizations::get(tx, granted.id())?.ok_or_else(missing)
    });
    Ok(UpdateOrganizationResponse { organization: Some(message(updated.await?, true)) })
}

/// DeleteOrganization: one without locations.
pub async fn delete(
    context: &Context,
    caller: Caller,
    request: DeleteOrganizationRequest,
) -> Result<DeleteOrganizationResponse, Refusal> {
    let granted = context.authz.organization::<right::WriteOrganization>(&caller, &request.organization_id).await?;
    let now = context.clock.now();
    context.store.write(move |tx| organizations::delete(tx, &granted, now)).await?;
    sweep::now(context).await;
    Ok(DeleteOrganizationResponse {})
}

/// GetOrganizationNamespaceAvailability.
pub async fn namespace_availability(
    context: &Context,
    _: Caller,
    request: GetOrganizationNamespaceAvailabilityRequest,
) -> Result<GetOrganizationNamespaceAvailabilityResponse, Refusal> {
    let namespace = namespace(&request.public_namespace)?;
    let taken = context.store.read(|tx| organizations::namespace_is_taken(tx, &namespace)).await?;
    Ok(GetOrganizationNamespaceAvailabilityResponse { available: !taken })
}

fn namespace(given: &str) -> Result<String, Refusal> {
    let fits = (1..=NAMESPACE_CHARS_MAX).contains(&given.len())
        && given.bytes().all(|letter| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == b'-')
        // In ids of registry items it would be taken for another organization.
        && !ids::is_id(given);
    match fits {
        true => Ok(given.to_owned()),
        false => Err(Refusal::unfit(
            "public_namespace",
            given,
            format_args!(
                "give 1 to {NAMESPACE_CHARS_MAX} lowercase letters, digits and dashes, not in the form of an id"
            ),
        )),
    }
}

fn message(stored: Stored, writes: bool) -> Organization {
    let defaults = stored.default_fragments.as_deref().and_then(default_fragments::kept);
    Organization {
        id: stored.id,
        name: stored.name,
        created_on: Some(timestamp(stored.created_at)),
        public_namespace: stored.public_namespace.unwrap_or_default(),
        default_region: stored.region,
        cid: stored.cid,
        default_fragments: if writes { defaults } else { defaults.map(default_fragments::masked) },
        allowed_login_methods: None,
    }
}
