//! API keys: made, listed, replaced and ended by the owners of their organization.

use api::pb::platform::app::v1::{
    ApiKey, ApiKeyWithAuthorizations, Authorization, AuthorizationDetails,
    CreateKeyFromExistingKeyAuthorizationsRequest, CreateKeyFromExistingKeyAuthorizationsResponse, CreateKeyRequest,
    CreateKeyResponse, DeleteKeyRequest, DeleteKeyResponse, ListKeysRequest, ListKeysResponse, RotateKeyRequest,
    RotateKeyResponse,
};

use super::input;
use crate::{
    authn::{Caller, Who, digest_of},
    authz::{Grant, Granted, Organization, ResourceKind, Role, right},
    clock::timestamp,
    context::Context,
    ids,
    limits::GRANTS_PER_KEY_MAX,
    refusal::Refusal,
    store::{
        DbError, Tx,
        keys::{self, New, Stored},
        roles,
    },
};

/// CreateKey. Its organization is the one that all its authorizations name.
pub async fn create(
    context: &Context,
    caller: Caller,
    request: CreateKeyRequest,
) -> Result<CreateKeyResponse, Refusal> {
    let list = request.authorizations;
    let organization = match list.first() {
        None => {
            return Err(Refusal::invalid(
                "authorizations",
                "is empty: name at least one, a key without a role can do nothing",
            ));
        }
        Some(first) if list.iter().all(|one| one.organization_id == first.organization_id) => &first.organization_id,
        Some(_) => return Err(Refusal::invalid("authorizations", "must all name the same organization_id")),
    };
    if list.len() > GRANTS_PER_KEY_MAX {
        return Err(Refusal::invalid(
            "authorizations",
            format_args!("has {} entries: at most {GRANTS_PER_KEY_MAX}", list.len()),
        ));
    }
    let granted = context.authz.organization::<right::WriteOrganization>(&caller, organization).await?;
    let mut grants: Vec<Grant> = Vec::with_capacity(list.len());
    for authorization in &list {
        let grant = grant(context, &granted, authorization).await?;
        if !grants.contains(&grant) {
            grants.push(grant);
        }
    }
    let name = match request.name.trim() {
        "" => format!("key of {}", timestamp(context.clock.now())),
        given => input::name("name", given)?,
    };
    let (id, key) = issue(context, granted, "CreateKey", name, grants).await?;
    Ok(CreateKeyResponse { key, id })
}

/// What a role can be given on.
pub(super) const RESOURCE_TYPES: &str = "give organization, location or robot";

/// One authorization of a request, checked: known words that agree, a resource of this organization.
pub(super) async fn grant(
    context: &Context,
    granted: &Granted<Organization, right::WriteOrganization>,
    authorization: &Authorization,
) -> Result<Grant, Refusal> {
    let (role, kind) = role_of(authorization)?;
    let resource = &*authorization.resource_id;
    let chain = context.authz.chain(kind.target(), resource).await.map_err(|refused| refused.on("resource_id"))?;
    if chain.is_none_or(|chain| *chain.organization != *granted.id()) {
        return Err(Refusal::not_found(kind.target().word(), resource));
    }
    Ok(Grant { role, kind, resource: resource.into(), organization: granted.id().into() })
}

/// The role is in `authorization_id`, which reads `<resource_type>_<role>`.
fn role_of(authorization: &Authorization) -> Result<(Role, ResourceKind), Refusal> {
    let kind = ResourceKind::parse(&authorization.resource_type)
        .ok_or_else(|| Refusal::unfit("resource_type", &authorization.resource_type, RESOURCE_TYPES))?;
    if !matches!(&*authorization.authorization_type, "role" | "") {
        return Err(Refusal::unfit("authorization_type", &authorization.authorization_type, "give role"));
    }
    let role = authorization.authorization_id.rsplit_once('_').filter(|(of, _)| *of == kind.word());
    let role = role.and_then(|(_, role)| Role::parse(role)).ok_or_else(|| {
        let allowed = format_args!("give {0}_owner or {0}_operator", kind.word());
        Refusal::unfit("authorization_id", &authorization.authorization_id, allowed)
    })?;
    Ok((role, kind))
}

/// ListKeys: the organization's own, and others that have a role in it. The secrets are kept nowhere and cannot be listed.
pub async fn list(context: &Context, caller: Caller, request: ListKeysRequest) -> Result<ListKeysResponse, Refusal> {
    let granted = context.authz.organization::<right::WriteOrganization>(&caller, &request.org_id).await?;
    let found = context.store.scan::<Vec<_>, DbError>(move |tx| {
        let mut found = keys::of_organization(tx, granted.id())?;
        found.extend(keys::guests_of(tx, granted.id())?);
        found.into_iter().map(|key| message(tx, key, granted.id())).collect()
    });
    Ok(ListKeysResponse { api_keys: found.await? })
}

/// RotateKey: the same id, another secret. Its tokens end with the old one.
pub async fn rotate(
    context: &Context,
    caller: Caller,
    request: RotateKeyRequest,
) -> Result<RotateKeyResponse, Refusal> {
    let (owned, key) = owned(context, &caller, &request.id).await?;
    let (secret, id, now) = (ids::new_secret(), key.id, context.clock.now());
    let (digest, rotated) = (digest_of(&secret), id.clone());
    let work = context.store.write::<_, Refusal>(move |tx| match owned {
        Owned::ByOrganization(granted) => Ok(keys::rotate(tx, &granted, &rotated, &digest, now)?),
        Owned::ByCaller => keys::rotate_own(tx, &caller, &rotated, &digest, now),
    });
    work.await?;
    Ok(RotateKeyResponse { id, key: secret })
}

/// DeleteKey.
pub async fn delete(
    context: &Context,
    caller: Caller,
    request: DeleteKeyRequest,
) -> Result<DeleteKeyResponse, Refusal> {
    let (owned, key) = owned(context, &caller, &request.id).await?;
    let (id, now) = (key.id, context.clock.now());
    let deleted = id.clone();
    let work = context.store.write(move |tx| match owned {
        Owned::ByOrganization(granted) => keys::delete(tx, &granted, &deleted, now),
        Owned::ByCaller => keys::delete_own(tx, &caller, &deleted, now),
    });
    work.await?;
    Ok(DeleteKeyResponse {})
}

/// CreateKeyFromExistingKeyAuthorizations. Of a personal key: one more of the same person.
pub async fn create_like(
    context: &Context,
    caller: Caller,
    request: CreateKeyFromExistingKeyAuthorizationsRequest,
) -> Result<CreateKeyFromExistingKeyAuthorizationsResponse, Refusal> {
    let (owned, key) = owned(context, &caller, &request.id).await?;
    let (id, key) = match (owned, key.user) {
        (Owned::ByOrganization(granted), _) => {
            let grants = context.store.read(|tx| roles::of_identity(tx, &key.id)).await?;
            // A key may hold roles in organizations that its own organization's owner has no say in.
            let grants: Vec<_> = grants.into_iter().filter(|grant| *grant.organization == *granted.id()).collect();
            if grants.is_empty() {
                return Err(Refusal::precondition("the key has no roles to copy: make one with CreateKey"));
            }
            issue(context, granted, "CreateKeyFromExistingKeyAuthorizations", key.name, grants).await?
        }
        (Owned::ByCaller, _) => {
            let (made, secret, now) = (ids::new_id(), ids::new_secret(), context.clock.now());
            let (digest, id) = (digest_of(&secret), made.clone());
            let work = context.store.write::<_, Refusal>(move |tx| {
                let new = New { id: &id, name: &key.name, digest: &digest, grants: &[] };
                keys::create_like(tx, &caller, &key.id, &new, now)
            });
            work.await?;
            (made, secret)
        }
    };
    Ok(CreateKeyFromExistingKeyAuthorizationsResponse { id, key })
}

/// Why the caller may do something to a key.
enum Owned {
    /// It owns the key's organization.
    ByOrganization(Granted<Organization, right::WriteOrganization>),
    /// The key is its own, or another one of the same person.
    ByCaller,
}

/// The key, if it is the caller's to change. Of others that are listed, because they have a role in an organization that
/// the caller owns, only the role is.
async fn owned(context: &Context, caller: &Caller, id: &str) -> Result<(Owned, Stored), Refusal> {
    if !ids::is_id(id) {
        return Err(Refusal::malformed_id("API key", id));
    }
    let missing = || Refusal::not_found("API key", id);
    let key = context.store.read(|tx| keys::get(tx, id)).await?.ok_or_else(missing)?;
    let Some(organization) = &key.organization else {
        let own = matches!(caller.who(), Who::ApiKey { user, .. } if user.is_some() && *user == key.user);
        return if own { Ok((Owned::ByCaller, key)) } else { Err(missing()) };
    };
    let refusal = match context.authz.organization(caller, organization).await {
        Ok(granted) => return Ok((Owned::ByOrganization(granted), key)),
        Err(refusal) if !refusal.is_not_found() => return Err(refusal),
        Err(_) => missing(),
    };
    for grant in context.store.read(|tx| roles::of_identity(tx, id)).await? {
        let giver = context.authz.organization::<right::WriteOrganization>(caller, &grant.organization).await;
        if giver.is_ok() {
            return Err(Refusal::forbidden(
                "the key belongs to another organization: take the roles it has in yours with RemoveRole",
            ));
        }
    }
    Err(refusal)
}

async fn issue(
    context: &Context,
    granted: Granted<Organization, right::WriteOrganization>,
    operation: &'static str,
    name: String,
    grants: Vec<Grant>,
) -> Result<(String, String), Refusal> {
    let (id, secret, now) = (ids::new_id(), ids::new_secret(), context.clock.now());
    let (digest, made) = (digest_of(&secret), id.clone());
    let created = context.store.write(move |tx| {
        let new = New { id: &made, name: &name, digest: &digest, grants: &grants };
        keys::create(tx, &granted, operation, &new, now)
    });
    created.await?;
    Ok((id, secret))
}

/// With the roles it has in that organization; what others gave it is for others to see.
pub(super) fn message(tx: &Tx<'_>, stored: Stored, organization: &str) -> Result<ApiKeyWithAuthorizations, DbError> {
    let details = |grant: Grant| AuthorizationDetails {
        authorization_type: "role".to_owned(),
        authorization_id: format!("{}_{}", grant.kind.word(), grant.role.word()),
        resource_type: grant.kind.word().to_owned(),
        resource_id: grant.resource.to_string(),
        org_id: grant.organization.to_string(),
    };
    let grants = roles::of_identity(tx, &stored.id)?.into_iter();
    let authorizations = grants.filter(|grant| *grant.organization == *organization).map(details).collect();
    let created_on = Some(timestamp(stored.created_at));
    let api_key = ApiKey { id: stored.id, key: String::new(), name: stored.name, created_on };
    Ok(ApiKeyWithAuthorizations { api_key: Some(api_key), authorizations })
}
