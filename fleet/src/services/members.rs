//! The people of an organization, and the invitations that wait for more.
//!
//! A member is whoever has a role. An invitation with a mail is accepted by its link only (`invitation.rs`); one without
//! by signing in with that address.

use api::pb::platform::app::v1::{
    Authorization, CreateOrganizationInviteRequest, CreateOrganizationInviteResponse, DeleteOrganizationInviteRequest,
    DeleteOrganizationInviteResponse, DeleteOrganizationMemberRequest, DeleteOrganizationMemberResponse,
    GetUserIdByEmailRequest, GetUserIdByEmailResponse, ListOrganizationMembersRequest, ListOrganizationMembersResponse,
    ListOrganizationsByUserRequest, ListOrganizationsByUserResponse, OrgDetails, OrganizationInvite,
    OrganizationMember, ResendOrganizationInviteRequest, ResendOrganizationInviteResponse,
    UpdateOrganizationInviteAuthorizationsRequest, UpdateOrganizationInviteAuthorizationsResponse,
};

use super::{input, keys::grant, roles::of_grant};
use crate::{
    authn::{Caller, Who, digest_of},
    authz::{Grant, Granted, Organization, Permission, ResourceKind, Role, Target, right},
    clock::timestamp,
    context::Context,
    ids,
    limits::GRANTS_PER_KEY_MAX,
    refusal::Refusal,
    store::{
        DbError,
        invites::{self, Door},
        organizations,
        users::{self, Member},
    },
};

type Inviter = Granted<Organization, right::WriteOrganization>;

/// ListOrganizationMembers.
pub async fn list(
    context: &Context,
    caller: Caller,
    request: ListOrganizationMembersRequest,
) -> Result<ListOrganizationMembersResponse, Refusal> {
    let granted = context.authz.organization::<right::ReadOrganization>(&caller, &request.organization_id).await?;
    let found = context.store.scan::<_, DbError>(move |tx| {
        Ok((users::members(tx, granted.id())?, invites::of_organization(tx, granted.id())?))
    });
    let (members, invites) = found.await?;
    Ok(ListOrganizationMembersResponse {
        organization_id: request.organization_id,
        members: members.into_iter().map(member).collect(),
        invites: invites.into_iter().map(message).collect(),
    })
}

/// CreateOrganizationInvite. Who names no role invites another owner.
pub async fn invite(
    context: &Context,
    caller: Caller,
    request: CreateOrganizationInviteRequest,
) -> Result<CreateOrganizationInviteResponse, Refusal> {
    let granted: Inviter = context.authz.organization(&caller, &request.organization_id).await?;
    let email = input::email("email", &request.email)?;
    let mut brings = grants(context, &granted, "authorizations", &request.authorizations).await?;
    if brings.is_empty() {
        brings.push(owner_of(granted.id()));
    }
    let (door, now) = (door(context, &email, request.send_email_invite), context.clock.now());
    let made = context.store.write(move |tx| invites::create(tx, &granted, &email, &brings, &door, now)).await?;
    wake(context);
    Ok(CreateOrganizationInviteResponse { invite: Some(message(made)) })
}

/// UpdateOrganizationInviteAuthorizations.
pub async fn change_invite(
    context: &Context,
    caller: Caller,
    request: UpdateOrganizationInviteAuthorizationsRequest,
) -> Result<UpdateOrganizationInviteAuthorizationsResponse, Refusal> {
    let granted: Inviter = context.authz.organization(&caller, &request.organization_id).await?;
    let email = input::email("email", &request.email)?;
    let add = grants(context, &granted, "add_authorizations", &request.add_authorizations).await?;
    let remove = grants(context, &granted, "remove_authorizations", &request.remove_authorizations).await?;
    if add.is_empty() && remove.is_empty() {
        return Err(Refusal::invalid(
            "add_authorizations",
            "is empty, and so is remove_authorizations: name what to change",
        ));
    }
    let now = context.clock.now();
    let changed =
        context.store.write(move |tx| invites::change_roles(tx, &granted, &email, &add, &remove, now)).await?;
    Ok(UpdateOrganizationInviteAuthorizationsResponse { invite: Some(message(changed)) })
}

/// ResendOrganizationInvite: with a new link, or from now on without one.
pub async fn resend_invite(
    context: &Context,
    caller: Caller,
    request: ResendOrganizationInviteRequest,
) -> Result<ResendOrganizationInviteResponse, Refusal> {
    let granted: Inviter = context.authz.organization(&caller, &request.organization_id).await?;
    let email = input::email("email", &request.email)?;
    let (door, now) = (door(context, &email, request.send_email_invite), context.clock.now());
    let sent = context.store.write(move |tx| invites::renew(tx, &granted, &email, &door, now)).await?;
    wake(context);
    Ok(ResendOrganizationInviteResponse { invite: Some(message(sent)) })
}

/// DeleteOrganizationInvite.
pub async fn delete_invite(
    context: &Context,
    caller: Caller,
    request: DeleteOrganizationInviteRequest,
) -> Result<DeleteOrganizationInviteResponse, Refusal> {
    let granted: Inviter = context.authz.organization(&caller, &request.organization_id).await?;
    let (email, now) = (input::email("email", &request.email)?, context.clock.now());
    context.store.write(move |tx| invites::delete(tx, &granted, &email, now)).await?;
    Ok(DeleteOrganizationInviteResponse {})
}

/// DeleteOrganizationMember. The last owner stays; everybody else may leave by themselves.
pub async fn delete(
    context: &Context,
    caller: Caller,
    request: DeleteOrganizationMemberRequest,
) -> Result<DeleteOrganizationMemberResponse, Refusal> {
    let now = context.clock.now();
    if is_self(&caller, &request.user_id) {
        let organization = request.organization_id;
        // Refuses what cannot be an id.
        context.authz.permissions(&caller, Target::Organization, &organization).await?;
        context.store.write(move |tx| users::leave(tx, &caller, &organization, now)).await?;
        return Ok(DeleteOrganizationMemberResponse {});
    }
    let granted: Inviter = context.authz.organization(&caller, &request.organization_id).await?;
    if !ids::is_id(&request.user_id) {
        return Err(Refusal::malformed_id("user", &request.user_id));
    }
    let user = request.user_id;
    context.store.write(move |tx| users::remove_member(tx, &granted, &user, now)).await?;
    Ok(DeleteOrganizationMemberResponse {})
}

/// GetUserIDByEmail: of the caller itself, and of people in organizations that it may read.
pub async fn id_by_email(
    context: &Context,
    caller: Caller,
    request: GetUserIdByEmailRequest,
) -> Result<GetUserIdByEmailResponse, Refusal> {
    let email = input::email("email", &request.email)?;
    let missing = || Refusal::not_found("user with the address", &email);
    let user = context.store.read(|tx| users::by_email(tx, &email)).await?.ok_or_else(missing)?;
    match is_self(&caller, &user.id) || !shared(context, &caller, &user.id).await?.is_empty() {
        true => Ok(GetUserIdByEmailResponse { user_id: user.id }),
        false => Err(missing()),
    }
}

/// ListOrganizationsByUser: all of the caller's own; of somebody else those that the caller may read.
pub async fn organizations_of(
    context: &Context,
    caller: Caller,
    request: ListOrganizationsByUserRequest,
) -> Result<ListOrganizationsByUserResponse, Refusal> {
    let user = request.user_id;
    if !ids::is_id(&user) {
        return Err(Refusal::malformed_id("user", &user));
    }
    let found = match is_self(&caller, &user) {
        true => context.store.read(|tx| users::organizations_of(tx, &user)).await?,
        false => shared(context, &caller, &user).await?,
    };
    if found.is_empty() && !is_self(&caller, &user) {
        return Err(Refusal::not_found("user", &user));
    }
    let mut orgs = Vec::with_capacity(found.len());
    for id in found {
        // Of one's own, too, only who may read the organization is told more than its names.
        let held = context.authz.permissions(&caller, Target::Organization, &id).await?.unwrap_or_default();
        if let Some(stored) = context.store.read(|tx| organizations::get(tx, &id)).await? {
            orgs.push(OrgDetails {
                org_id: stored.id,
                org_name: stored.name,
                org_cid: stored.cid.filter(|_| held.contains(Permission::ReadOrganization)),
                public_namespace: stored.public_namespace,
                billing_tier: None,
            });
        }
    }
    Ok(ListOrganizationsByUserResponse { orgs })
}

/// Organizations in which somebody is a member and which the caller may read.
async fn shared(context: &Context, caller: &Caller, user: &str) -> Result<Vec<String>, Refusal> {
    let mut found = context.store.read(|tx| users::organizations_of(tx, user)).await?;
    let mut readable = Vec::with_capacity(found.len());
    for id in found.drain(..) {
        let held = context.authz.permissions(caller, Target::Organization, &id).await?;
        if held.is_some_and(|held| held.contains(Permission::ReadOrganization)) {
            readable.push(id);
        }
    }
    Ok(readable)
}

fn is_self(caller: &Caller, user: &str) -> bool {
    matches!(caller.who(), Who::ApiKey { user: Some(own), .. } if own == user)
}

/// Absent means with a mail.
fn door(context: &Context, email: &str, mail: Option<bool>) -> Door {
    match (mail, &context.mail) {
        (Some(false), _) => Door::SignIn,
        (Some(true) | None, Some(mail)) => mail.door(&context.authn.sealer),
        (Some(true) | None, None) => {
            tracing::info!(
                email,
                data = %context.folder.display(),
                "somebody was invited; no mail server is configured: `platform-fleet user invite` prints the link"
            );
            // A secret that nobody has seen: nobody can use this link, and the printed one takes its place.
            Door::Link { digest: digest_of(&ids::new_secret()), mail: None }
        }
    }
}

/// A mail may have been queued.
fn wake(context: &Context) {
    if let Some(mail) = &context.mail {
        mail.wake();
    }
}

/// Whoever has this owns the organization.
pub(crate) fn owner_of(organization: &str) -> Grant {
    Grant {
        role: Role::Owner,
        kind: ResourceKind::Organization,
        resource: organization.into(),
        organization: organization.into(),
    }
}

async fn grants(
    context: &Context,
    granted: &Inviter,
    field: &'static str,
    list: &[Authorization],
) -> Result<Vec<Grant>, Refusal> {
    if list.len() > GRANTS_PER_KEY_MAX {
        return Err(Refusal::invalid(field, format_args!("has {} entries: at most {GRANTS_PER_KEY_MAX}", list.len())));
    }
    let mut grants = Vec::with_capacity(list.len());
    for one in list {
        // Clients leave it empty where the organization is named beside the list.
        if !matches!(&*one.organization_id, id if id.is_empty() || id == granted.id()) {
            let why = format_args!("the organization_id of each is the invitation's, {}", granted.id());
            return Err(Refusal::unfit(field, &one.organization_id, why));
        }
        grants.push(grant(context, granted, one).await.map_err(|refused| refused.inside(field))?);
    }
    Ok(grants)
}

fn member(Member { user, since }: Member) -> OrganizationMember {
    OrganizationMember {
        user_id: user.id,
        emails: vec![user.email],
        date_added: Some(timestamp(since)),
        last_login: user.last_login_at.map(timestamp),
        last_access: None,
    }
}

fn message(stored: invites::Stored) -> OrganizationInvite {
    OrganizationInvite {
        organization_id: stored.organization,
        email: stored.email,
        created_on: Some(timestamp(stored.created_at)),
        authorizations: stored.roles.iter().map(of_grant).collect(),
    }
}
