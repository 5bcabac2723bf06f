//! Invitations to an organization: for one e-mail address, with the roles that accepting brings.

use super::{
    DbError, Row, Tx, audit,
    audit::Entry,
    mails,
    roles::{self, Identity, IdentityKind},
    users,
};
use crate::{
    authn::Caller,
    authz::{Grant, Granted, Organization, ResourceKind, right},
    clock::Millis,
    limits::{GRANTS_PER_KEY_MAX, INVITES_MAX},
    refusal::Refusal,
};

/// How long a link is good: over a holiday, not over a change of jobs.
pub const LINK_LIVES: Millis = 14 * 86_400 * 1000;
/// How long a dead link is explained: people look for old mails for a season.
const ENDED_LINKS_KEPT: Millis = 90 * 86_400 * 1000;

/// One row with its roles.
#[derive(Debug, Clone)]
pub struct Stored {
    /// To which organization.
    pub organization: String,
    /// Whom; in lowercase.
    pub email: String,
    /// When it was created.
    pub created_at: Millis,
    /// When its link stops working; says nothing where there is no link.
    pub expires_at: Millis,
    /// What it brings; never empty.
    pub roles: Vec<Grant>,
}

macro_rules! select {
    ($rest:literal) => {
        concat!("SELECT organization_id, email, created_at, expires_at FROM invites ", $rest)
    };
}

fn stored(row: &Row<'_>) -> Result<Stored, DbError> {
    let (created_at, expires_at) = (row.int(2)?, row.int(3)?);
    Ok(Stored { organization: row.text(0)?, email: row.text(1)?, created_at, expires_at, roles: Vec::new() })
}

fn with_roles(tx: &Tx<'_>, invite: Stored) -> Result<Stored, DbError> {
    let sql = "SELECT role, resource_type, resource_id, organization_id FROM invite_roles
               WHERE organization_id = $1 AND email = $2 ORDER BY resource_type, resource_id, role";
    let args = [(&invite.organization).into(), (&invite.email).into()];
    let roles = tx.all(sql, &args, |row| roles::grant(row, 0))?.into_iter().flatten().collect();
    Ok(Stored { roles, ..invite })
}

/// The one that waits for that address.
pub fn get(tx: &Tx<'_>, organization: &str, email: &str) -> Result<Option<Stored>, DbError> {
    let sql = select!("WHERE organization_id = $1 AND email = $2");
    tx.first(sql, &[organization.into(), email.into()], stored)?.map(|invite| with_roles(tx, invite)).transpose()
}

/// All that wait.
pub fn of_organization(tx: &Tx<'_>, organization: &str) -> Result<Vec<Stored>, DbError> {
    let sql = select!("WHERE organization_id = $1 ORDER BY created_at, email");
    let found = tx.all(sql, &[organization.into()], stored)?;
    found.into_iter().map(|invite| with_roles(tx, invite)).collect()
}

/// What a link is worth.
#[derive(Debug)]
pub enum Link {
    /// It accepts this invitation.
    Waits(Stored),
    /// It was not used in time.
    Expired,
    /// Why it ended.
    Ended(Ended),
    /// Never made here, or ended long ago.
    Unknown,
}

/// Why a link is worth nothing any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// Somebody accepted with it.
    Accepted,
    /// The invitation was deleted.
    Withdrawn,
    /// A newer link took its place.
    Replaced,
}

impl Ended {
    const ALL: [Self; 3] = [Self::Accepted, Self::Withdrawn, Self::Replaced];

    fn word(self) -> &'static str {
        match self {
            Self::Accepted => "accepted",
            Self::Withdrawn => "withdrawn",
            Self::Replaced => "replaced",
        }
    }
}

/// What the link with that digest is worth.
pub fn by_link(tx: &Tx<'_>, digest: &str, now: Millis) -> Result<Link, DbError> {
    let sql = select!("WHERE digest = $1");
    if let Some(invite) = tx.first(sql, &[digest.into()], stored)? {
        return Ok(match invite.expires_at > now {
            true => Link::Waits(with_roles(tx, invite)?),
            false => Link::Expired,
        });
    }
    let why = tx.first("SELECT why FROM ended_links WHERE digest = $1", &[digest.into()], |row| row.text(0))?;
    let ended = why.and_then(|why| Ended::ALL.into_iter().find(|ended| ended.word() == why));
    Ok(ended.map_or(Link::Unknown, Link::Ended))
}

/// Its present link, if it has one, is worth nothing any more.
fn end_link(tx: &Tx<'_>, organization: &str, email: &str, why: Ended, now: Millis) -> Result<(), DbError> {
    tx.run("DELETE FROM ended_links WHERE ended_at < $1", &[(now - ENDED_LINKS_KEPT).into()])?;
    let sql = "INSERT INTO ended_links (digest, why, ended_at)
               SELECT digest, $3, $4 FROM invites WHERE organization_id = $1 AND email = $2 AND digest IS NOT NULL
               ON CONFLICT (digest) DO NOTHING";
    tx.run(sql, &[organization.into(), email.into(), why.word().into(), now.into()]).map(drop)
}

/// The form of our page whose button accepted with that link.
pub fn note_form(tx: &Tx<'_>, digest: &str, form: &str) -> Result<(), DbError> {
    tx.run("UPDATE ended_links SET form = $2 WHERE digest = $1", &[digest.into(), form.into()]).map(drop)
}

/// The same, if that was after `since`.
pub fn form_that_accepted(tx: &Tx<'_>, digest: &str, since: Millis) -> Result<Option<String>, DbError> {
    let sql = "SELECT form FROM ended_links WHERE digest = $1 AND ended_at > $2";
    Ok(tx.first(sql, &[digest.into(), since.into()], |row| row.maybe_text(0))?.flatten())
}

/// Those that wait for this address to sign in, and have no link.
pub fn without_link(tx: &Tx<'_>, email: &str) -> Result<Vec<Stored>, DbError> {
    let sql = select!("WHERE email = $1 AND digest IS NULL ORDER BY created_at");
    let found = tx.all(sql, &[email.into()], stored)?;
    found.into_iter().map(|invite| with_roles(tx, invite)).collect()
}

/// Whether a link for this address waits anywhere.
pub fn is_invited(tx: &Tx<'_>, email: &str, now: Millis) -> Result<bool, DbError> {
    let sql = "SELECT 1 FROM invites WHERE email = $1 AND digest IS NOT NULL AND expires_at > $2 LIMIT 1";
    Ok(tx.first(sql, &[email.into(), now.into()], |_| Ok(()))?.is_some())
}

/// What accepting needs.
#[derive(Debug, Clone)]
pub enum Door {
    /// Signing in with the address.
    SignIn,
    /// The link.
    Link {
        /// Of its secret.
        digest: String,
        /// The secret, sealed for the digest, where a mail is to bring it.
        mail: Option<String>,
    },
}

impl Door {
    fn digest(&self) -> Option<&str> {
        match self {
            Self::SignIn => None,
            Self::Link { digest, .. } => Some(digest),
        }
    }

    fn mail(&self) -> Option<&str> {
        match self {
            Self::SignIn => None,
            Self::Link { mail, .. } => mail.as_deref(),
        }
    }
}

/// CreateOrganizationInvite. Refused for members, and where one waits already.
pub fn create(
    tx: &Tx<'_>,
    granted: &Granted<Organization, right::WriteOrganization>,
    email: &str,
    brings: &[Grant],
    door: &Door,
    now: Millis,
) -> Result<Stored, Refusal> {
    refuse_members(tx, granted.id(), email)?;
    insert(tx, granted.id(), email, brings, door, now)?;
    record(tx, granted, email, "CreateOrganizationInvite", brings, now)?;
    get(tx, granted.id(), email)?.ok_or_else(|| no_invite(email))
}

/// The same by this server's administrator.
pub fn create_locally(
    tx: &Tx<'_>,
    caller: &Caller,
    organization: &str,
    email: &str,
    brings: &[Grant],
    door: &Door,
    now: Millis,
) -> Result<(), Refusal> {
    debug_assert!(matches!(caller.who(), crate::authn::Who::Local), "others use CreateOrganizationInvite");
    refuse_members(tx, organization, email)?;
    insert(tx, organization, email, brings, door, now)?;
    let detail = list(brings);
    let entry = Entry { resource_type: "invitation", resource_id: email, operation: "user invite", detail: &detail };
    Ok(audit::record_by(tx, caller, organization, now, &entry)?)
}

fn refuse_members(tx: &Tx<'_>, organization: &str, email: &str) -> Result<(), Refusal> {
    match users::by_email(tx, email)? {
        Some(user) if users::is_member(tx, organization, &user.id)? => {
            Err(Refusal::exists(format!("{email} is a member already: give more roles with AddRole")))
        }
        _ => Ok(()),
    }
}

fn insert(
    tx: &Tx<'_>,
    organization: &str,
    email: &str,
    brings: &[Grant],
    door: &Door,
    now: Millis,
) -> Result<(), Refusal> {
    let sql =
        "INSERT INTO invites (organization_id, email, digest, expires_at, created_at) VALUES ($1, $2, $3, $4, $5)";
    let args = [organization.into(), email.into(), door.digest().into(), (now + LINK_LIVES).into(), now.into()];
    tx.run(sql, &args).map_err(|why| match why {
        DbError::Exists(_) => Refusal::exists(format!("{email} is invited already: send that invitation again")),
        other => other.into(),
    })?;
    let count = "SELECT COUNT(*) FROM invites WHERE organization_id = $1";
    if tx.first(count, &[organization.into()], |row| row.int(0))?.is_some_and(|count| count > INVITES_MAX) {
        return Err(Refusal::precondition(format!("{INVITES_MAX} invitations wait already: withdraw some first")));
    }
    mails::queue(tx, organization, email, door.mail(), now)?;
    brings.iter().try_for_each(|grant| add_role(tx, organization, email, grant))?;
    Ok(())
}

fn add_role(tx: &Tx<'_>, organization: &str, email: &str, grant: &Grant) -> Result<(), DbError> {
    let sql = "INSERT INTO invite_roles (organization_id, email, role, resource_type, resource_id)
               VALUES ($1, $2, $3, $4, $5)
               ON CONFLICT (organization_id, email, resource_type, resource_id, role) DO NOTHING";
    let (role, kind) = (grant.role.word(), grant.kind.word());
    tx.run(sql, &[organization.into(), email.into(), role.into(), kind.into(), (&*grant.resource).into()])?;
    Ok(())
}

/// UpdateOrganizationInviteAuthorizations. At least one role remains.
pub fn change_roles(
    tx: &Tx<'_>,
    granted: &Granted<Organization, right::WriteOrganization>,
    email: &str,
    add: &[Grant],
    remove: &[Grant],
    now: Millis,
) -> Result<Stored, Refusal> {
    let organization = granted.id();
    get(tx, organization, email)?.ok_or_else(|| no_invite(email))?;
    for grant in remove {
        let sql = "DELETE FROM invite_roles WHERE organization_id = $1 AND email = $2 AND role = $3
                     AND resource_type = $4 AND resource_id = $5";
        let (role, kind) = (grant.role.word(), grant.kind.word());
        let args = [organization.into(), email.into(), role.into(), kind.into(), (&*grant.resource).into()];
        if tx.run(sql, &args)? == 0 {
            return Err(Refusal::not_found("role in the invitation:", &roles::said(grant)));
        }
    }
    add.iter().try_for_each(|grant| add_role(tx, organization, email, grant))?;
    let now_brings = get(tx, organization, email)?.ok_or_else(|| no_invite(email))?;
    match now_brings.roles.len() {
        0 => Err(Refusal::precondition("an invitation brings at least one role: delete it instead")),
        1..=GRANTS_PER_KEY_MAX => {
            record(tx, granted, email, "UpdateOrganizationInviteAuthorizations", &now_brings.roles, now)?;
            Ok(now_brings)
        }
        _ => Err(Refusal::precondition(format!("an invitation brings at most {GRANTS_PER_KEY_MAX} roles"))),
    }
}

/// ResendOrganizationInvite: another link, the one before is worth nothing any more.
pub fn renew(
    tx: &Tx<'_>,
    granted: &Granted<Organization, right::WriteOrganization>,
    email: &str,
    door: &Door,
    now: Millis,
) -> Result<Stored, Refusal> {
    if !set_door(tx, granted.id(), email, door, now)? {
        return Err(no_invite(email));
    }
    record(tx, granted, email, "ResendOrganizationInvite", &[], now)?;
    get(tx, granted.id(), email)?.ok_or_else(|| no_invite(email))
}

/// Another link from this server's administrator, for an invitation that waits: whether there is such a one. Its roles
/// stay.
pub fn renew_locally(
    tx: &Tx<'_>,
    caller: &Caller,
    organization: &str,
    email: &str,
    door: &Door,
    now: Millis,
) -> Result<bool, DbError> {
    debug_assert!(matches!(caller.who(), crate::authn::Who::Local), "others use ResendOrganizationInvite");
    if !set_door(tx, organization, email, door, now)? {
        return Ok(false);
    }
    let detail = "another link";
    let entry = Entry { resource_type: "invitation", resource_id: email, operation: "user invite", detail };
    audit::record_by(tx, caller, organization, now, &entry)?;
    Ok(true)
}

/// Whether there is such an invitation.
fn set_door(tx: &Tx<'_>, organization: &str, email: &str, door: &Door, now: Millis) -> Result<bool, DbError> {
    end_link(tx, organization, email, Ended::Replaced, now)?;
    let sql = "UPDATE invites SET digest = $3, expires_at = $4 WHERE organization_id = $1 AND email = $2";
    let args = [organization.into(), email.into(), door.digest().into(), (now + LINK_LIVES).into()];
    if tx.run(sql, &args)? == 0 {
        return Ok(false);
    }
    mails::queue(tx, organization, email, door.mail(), now)?;
    Ok(true)
}

/// DeleteOrganizationInvite.
pub fn delete(
    tx: &Tx<'_>,
    granted: &Granted<Organization, right::WriteOrganization>,
    email: &str,
    now: Millis,
) -> Result<(), Refusal> {
    if !remove(tx, granted.id(), email, Ended::Withdrawn, now)? {
        return Err(no_invite(email));
    }
    Ok(record(tx, granted, email, "DeleteOrganizationInvite", &[], now)?)
}

fn remove(tx: &Tx<'_>, organization: &str, email: &str, why: Ended, now: Millis) -> Result<bool, DbError> {
    end_link(tx, organization, email, why, now)?;
    drop_row(tx, organization, email)
}

fn drop_row(tx: &Tx<'_>, organization: &str, email: &str) -> Result<bool, DbError> {
    let sql = "DELETE FROM invites WHERE organization_id = $1 AND email = $2";
    Ok(tx.run(sql, &[organization.into(), email.into()])? > 0)
}

/// The person with that address takes it: the roles are theirs, and it is used up.
pub fn accept(tx: &Tx<'_>, caller: &Caller, invite: &Stored, user: &str, now: Millis) -> Result<(), DbError> {
    let to = Identity { kind: IdentityKind::User, id: user.to_owned() };
    for grant in &invite.roles {
        roles::insert(tx, &to, grant, now)?;
    }
    remove(tx, &invite.organization, &invite.email, Ended::Accepted, now)?;
    let detail = format!("{}: {}", invite.email, list(&invite.roles));
    let entry = Entry { resource_type: "user", resource_id: user, operation: "AcceptInvite", detail: &detail };
    audit::record_by(tx, caller, &invite.organization, now, &entry)
}

/// A resource is gone; invitations that would bring nothing go with it.
pub(super) fn end_roles_on(tx: &Tx<'_>, kind: ResourceKind, resource: &str) -> Result<(), DbError> {
    let sql = "DELETE FROM invite_roles WHERE resource_type = $1 AND resource_id = $2 RETURNING organization_id, email";
    let touched = tx.all(sql, &[kind.word().into(), resource.into()], |row| Ok((row.text(0)?, row.text(1)?)))?;
    for (organization, email) in touched {
        if get(tx, &organization, &email)?.is_some_and(|invite| invite.roles.is_empty()) {
            drop_row(tx, &organization, &email)?;
        }
    }
    Ok(())
}

fn no_invite(email: &str) -> Refusal {
    Refusal::not_found("invitation of", email)
}

fn list(roles: &[Grant]) -> String {
    roles.iter().map(roles::said).collect::<Vec<_>>().join(", ")
}

fn record(
    tx: &Tx<'_>,
    granted: &Granted<Organization, right::WriteOrganization>,
    email: &str,
    operation: &'static str,
    brings: &[Grant],
    now: Millis,
) -> Result<(), DbError> {
    let detail = list(brings);
    let entry = Entry { resource_type: "invitation", resource_id: email, operation, detail: &detail };
    audit::record_by(tx, granted.caller(), granted.id(), now, &entry)
}
