//! Roles: given, taken, exchanged and listed by the owners of an organization; and what a caller may do.

use api::pb::platform::app::v1::{
    AddRoleRequest, AddRoleResponse, Authorization, AuthorizedPermissions, ChangeRoleRequest, ChangeRoleResponse,
    CheckPermissionsRequest, CheckPermissionsResponse, ListAuthorizationsRequest, ListAuthorizationsResponse,
    RemoveRoleRequest, RemoveRoleResponse,
};

use super::keys::{RESOURCE_TYPES, grant};
use crate::{
    authn::Caller,
    authz::{Grant, Granted, Organization, Permission, ResourceKind, Target, right},
    context::Context,
    ids,
    refusal::Refusal,
    store::{
        Tx,
        roles::{self, Given, Identity, IdentityKind},
    },
};

/// Resources asked about in one call of CheckPermissions.
const CHECKS_MAX: usize = 1000;

/// Proof that the caller may give roles in an organization.
type Giver = Granted<Organization, right::WriteOrganization>;

/// AddRole. Somebody who had none in the organization becomes a member by it.
pub async fn add(context: &Context, caller: Caller, request: AddRoleRequest) -> Result<AddRoleResponse, Refusal> {
    let (giver, wanted) = wanted(context, &caller, "authorization", request.authorization).await?;
    let now = context.clock.now();
    let changed = context.store.write::<_, Refusal>(move |tx| {
        let to = wanted.identity(tx, &giver)?;
        roles::give(tx, &giver, &to, &wanted.grant, now)
    });
    changed.await?;
    Ok(AddRoleResponse {})
}

/// RemoveRole. The last owner of an organization stays.
pub async fn remove(
    context: &Context,
    caller: Caller,
    request: RemoveRoleRequest,
) -> Result<RemoveRoleResponse, Refusal> {
    let (giver, wanted) = wanted(context, &caller, "authorization", request.authorization).await?;
    let now = context.clock.now();
    let changed = context.store.write::<_, Refusal>(move |tx| {
        let from = wanted.identity(tx, &giver)?;
        roles::take(tx, &giver, &from, &wanted.grant, now)
    });
    changed.await?;
    Ok(RemoveRoleResponse {})
}

/// ChangeRole: both halves or none.
pub async fn change(
    context: &Context,
    caller: Caller,
    request: ChangeRoleRequest,
) -> Result<ChangeRoleResponse, Refusal> {
    let (giver, old) = wanted(context, &caller, "old_authorization", request.old_authorization).await?;
    let (other, new) = wanted(context, &caller, "new_authorization", request.new_authorization).await?;
    if giver.id() != other.id() {
        let why = format_args!("the organization is {} as in old_authorization", giver.id());
        return Err(Refusal::unfit("new_authorization.organization_id", other.id(), why));
    }
    let now = context.clock.now();
    let changed = context.store.write::<_, Refusal>(move |tx| {
        let (from, to) = (old.identity(tx, &giver)?, new.identity(tx, &giver)?);
        roles::change(tx, &giver, (&from, &old.grant), (&to, &new.grant), now)
    });
    changed.await?;
    Ok(ChangeRoleResponse {})
}

/// ListAuthorizations: every role in the organization, or those on the resources that are named.
pub async fn list(
    context: &Context,
    caller: Caller,
    request: ListAuthorizationsRequest,
) -> Result<ListAuthorizationsResponse, Refusal> {
    let granted: Giver = context.authz.organization(&caller, &request.organization_id).await?;
    for id in &request.resource_ids {
        let mut known = false;
        for kind in [ResourceKind::Organization, ResourceKind::Location, ResourceKind::Machine] {
            let chain = context.authz.chain(kind.target(), id).await;
            let chain = chain.map_err(|refused| refused.on("resource_ids"))?;
            known |= chain.is_some_and(|chain| *chain.organization == *granted.id());
        }
        if !known {
            return Err(Refusal::not_found("organization, location or robot", id));
        }
    }
    let wanted = request.resource_ids;
    let mut given = context.store.scan(move |tx| roles::of_organization(tx, &granted)).await.map_err(Refusal::from)?;
    given.retain(|given| wanted.is_empty() || wanted.iter().any(|id| *id == *given.grant.resource));
    Ok(ListAuthorizationsResponse { authorizations: given.into_iter().map(message).collect() })
}

/// CheckPermissions: of what is asked, what the caller may. A resource that it may not see is not found.
pub async fn check(
    context: &Context,
    caller: Caller,
    request: CheckPermissionsRequest,
) -> Result<CheckPermissionsResponse, Refusal> {
    if !(1..=CHECKS_MAX).contains(&request.permissions.len()) {
        return Err(Refusal::invalid(
            "permissions",
            format_args!("has {} entries: ask about 1 to {CHECKS_MAX} resources", request.permissions.len()),
        ));
    }
    // The words first: what cannot be asked is refused whoever asks.
    let mut asked: Vec<(Target, AuthorizedPermissions)> = Vec::with_capacity(request.permissions.len());
    for one in request.permissions {
        if one.permissions.is_empty() {
            return Err(Refusal::invalid("permissions", "is empty for a resource: name at least one"));
        }
        if let Some(unknown) = one.permissions.iter().find(|word| Permission::parse(word).is_none()) {
            return Err(Refusal::unfit(
                "permissions",
                unknown,
                "there is no such permission, docs/permissions.md lists them",
            ));
        }
        let kind = ResourceKind::parse(&one.resource_type)
            .ok_or_else(|| Refusal::unfit("resource_type", &one.resource_type, RESOURCE_TYPES))?;
        asked.push((kind.target(), one));
    }
    let mut authorized_permissions = Vec::new();
    for (target, mut one) in asked {
        let held = context.authz.permissions(&caller, target, &one.resource_id).await;
        let held = held.map_err(|refused| refused.on("resource_id"))?;
        let held = held.ok_or_else(|| Refusal::not_found(target.word(), &one.resource_id))?;
        one.permissions.retain(|word| Permission::parse(word).is_some_and(|permission| held.contains(permission)));
        if !one.permissions.is_empty() {
            authorized_permissions.push(one);
        }
    }
    Ok(CheckPermissionsResponse { authorized_permissions })
}

/// One authorization of a request, checked as far as that needs no transaction.
struct Wanted {
    grant: Grant,
    identity_id: String,
    identity_type: Option<IdentityKind>,
}

/// Who may give it, and what it is.
async fn wanted(
    context: &Context,
    caller: &Caller,
    field: &'static str,
    authorization: Option<Authorization>,
) -> Result<(Giver, Wanted), Refusal> {
    let authorization =
        authorization.ok_or_else(|| Refusal::invalid(field, "is missing: name role, resource and identity"))?;
    read(context, caller, authorization).await.map_err(|refused| refused.inside(field))
}

async fn read(context: &Context, caller: &Caller, authorization: Authorization) -> Result<(Giver, Wanted), Refusal> {
    let giver: Giver = context.authz.organization(caller, &authorization.organization_id).await?;
    let grant = grant(context, &giver, &authorization).await?;
    let identity_type = match &*authorization.identity_type {
        "" => None,
        word => Some(IdentityKind::parse(word).ok_or_else(|| {
            Refusal::unfit("identity_type", word, "give user or api-key, or nothing to have it found out")
        })?),
    };
    let identity_id = authorization.identity_id;
    match ids::is_id(&identity_id) {
        true => Ok((giver, Wanted { grant, identity_id, identity_type })),
        false => Err(Refusal::malformed_id("user or API key", &identity_id)),
    }
}

impl Wanted {
    /// Whom the request means; clients do not say whether it is a person or a key.
    fn identity(&self, tx: &Tx<'_>, giver: &Giver) -> Result<Identity, Refusal> {
        let found = roles::identity(tx, giver.id(), &self.identity_id)?;
        let fits = found.filter(|found| self.identity_type.is_none_or(|kind| kind == found.kind));
        fits.ok_or_else(|| Refusal::not_found("user or API key", &self.identity_id))
    }
}

/// The wire's form of a role that was given.
fn message(Given { to, grant }: Given) -> Authorization {
    Authorization { identity_id: to.id, identity_type: to.kind.word().to_owned(), ..of_grant(&grant) }
}

/// The same, to nobody yet.
pub(super) fn of_grant(grant: &Grant) -> Authorization {
    Authorization {
        authorization_type: "role".to_owned(),
        authorization_id: format!("{}_{}", grant.kind.word(), grant.role.word()),
        resource_type: grant.kind.word().to_owned(),
        resource_id: grant.resource.to_string(),
        identity_id: String::new(),
        organization_id: grant.organization.to_string(),
        identity_type: String::new(),
    }
}
