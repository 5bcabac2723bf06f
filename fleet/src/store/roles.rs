//! Roles: which identity was given what, by the owners of an organization.
//!
//! Whatever takes a role away looks afterwards, in the same transaction, that the organization still has an owner who
//! can sign in: a key, or a person with a key that lasts or whom the identity provider knows.

use std::sync::Arc;

use super::{DbError, Row, Tx, audit, audit::Entry, invites, news, news::News};
use crate::{
    authz::{Grant, Granted, Organization, ResourceKind, Role, right},
    clock::Millis,
    limits::GRANTS_PER_KEY_MAX,
    refusal::Refusal,
};

/// Who can be given a role.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// What it is.
    pub kind: IdentityKind,
    /// UUID.
    pub id: String,
}

/// A key of an organization, or a person.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IdentityKind {
    /// Of an organization; a person's keys have the person's roles.
    ApiKey,
    /// A person.
    User,
}

impl IdentityKind {
    /// As clients write it.
    pub const fn word(self) -> &'static str {
        match self {
            Self::ApiKey => "api-key",
            Self::User => "user",
        }
    }

    /// From what clients write.
    pub fn parse(word: &str) -> Option<Self> {
        match word {
            "api-key" => Some(Self::ApiKey),
            "user" => Some(Self::User),
            _ => None,
        }
    }

    const fn in_audit(self) -> &'static str {
        match self {
            Self::ApiKey => "api key",
            Self::User => "user",
        }
    }
}

/// A role that was given.
#[derive(Debug, Clone)]
pub struct Given {
    /// To whom.
    pub to: Identity,
    /// What.
    pub grant: Grant,
}

/// What an identity was given, by anybody.
pub fn of_identity(tx: &Tx<'_>, identity: &str) -> Result<Vec<Grant>, DbError> {
    let sql = "SELECT role, resource_type, resource_id, organization_id FROM grants
               WHERE identity_id = $1 ORDER BY created_at, resource_id";
    // A word that this version does not know gives nothing.
    Ok(tx.all(sql, &[identity.into()], |row| grant(row, 0))?.into_iter().flatten().collect())
}

/// Every role an organization gave.
pub fn of_organization(
    tx: &Tx<'_>,
    granted: &Granted<Organization, right::WriteOrganization>,
) -> Result<Vec<Given>, DbError> {
    let sql = "SELECT identity_type, identity_id, role, resource_type, resource_id, organization_id FROM grants
               WHERE organization_id = $1 ORDER BY created_at, identity_id, resource_id, role";
    let given = |row: &Row<'_>| {
        let (kind, id) = (IdentityKind::parse(row.str(0)?), row.text(1)?);
        Ok(kind.zip(grant(row, 2)?).map(|(kind, grant)| Given { to: Identity { kind, id }, grant }))
    };
    Ok(tx.all(sql, &[granted.id().into()], given)?.into_iter().flatten().collect())
}

/// From four columns: role, resource type, resource, organization.
pub(super) fn grant(row: &Row<'_>, first: usize) -> Result<Option<Grant>, DbError> {
    let (Some(role), Some(kind)) = (Role::parse(row.str(first)?), ResourceKind::parse(row.str(first + 1)?)) else {
        return Ok(None);
    };
    let (resource, organization) = (Arc::from(row.str(first + 2)?), Arc::from(row.str(first + 3)?));
    Ok(Some(Grant { role, kind, resource, organization }))
}

/// Who that is, as far as an organization's owners may know: people, the organization's own keys, and keys of others
/// that have a role here.
pub fn identity(tx: &Tx<'_>, organization: &str, id: &str) -> Result<Option<Identity>, DbError> {
    let sql = "SELECT 'user' FROM users WHERE id = $1
               UNION ALL
               SELECT 'api-key' FROM api_keys k WHERE k.id = $1 AND k.user_id IS NULL AND (k.organization_id = $2
                   OR EXISTS (SELECT 1 FROM grants g WHERE g.identity_id = k.id AND g.organization_id = $2))";
    let kind = tx.first(sql, &[id.into(), organization.into()], |row| Ok(IdentityKind::parse(row.str(0)?)))?.flatten();
    Ok(kind.map(|kind| Identity { kind, id: id.to_owned() }))
}

/// AddRole. A role that is there already stays as it is.
pub fn give(
    tx: &Tx<'_>,
    granted: &Granted<Organization, right::WriteOrganization>,
    to: &Identity,
    grant: &Grant,
    now: Millis,
) -> Result<(), Refusal> {
    if insert(tx, to, grant, now)? {
        room(tx, granted.id(), to)?;
        record(tx, granted, to, "AddRole", &said(grant), now)?;
    }
    Ok(())
}

/// RemoveRole.
pub fn take(
    tx: &Tx<'_>,
    granted: &Granted<Organization, right::WriteOrganization>,
    from: &Identity,
    grant: &Grant,
    now: Millis,
) -> Result<(), Refusal> {
    remove(tx, from, grant)?.ok_or_else(|| no_such_role(from, grant))?;
    an_owner_remains(tx, granted.id())?;
    Ok(record(tx, granted, from, "RemoveRole", &said(grant), now)?)
}

/// ChangeRole: one goes and another comes, for the same identity or for another.
pub fn change(
    tx: &Tx<'_>,
    granted: &Granted<Organization, right::WriteOrganization>,
    (from, old): (&Identity, &Grant),
    (to, new): (&Identity, &Grant),
    now: Millis,
) -> Result<(), Refusal> {
    let since = remove(tx, from, old)?.ok_or_else(|| no_such_role(from, old))?;
    // Who keeps being a member has been one for as long as before.
    insert(tx, to, new, if from == to { since } else { now })?;
    room(tx, granted.id(), to)?;
    an_owner_remains(tx, granted.id())?;
    let detail = format!("{} of {} becomes {}", said(old), from.id, said(new));
    Ok(record(tx, granted, to, "ChangeRole", &detail, now)?)
}

/// Whether it was not there before.
pub(super) fn insert(tx: &Tx<'_>, to: &Identity, grant: &Grant, now: Millis) -> Result<bool, DbError> {
    let sql = "INSERT INTO grants
                   (identity_type, identity_id, organization_id, role, resource_type, resource_id, created_at)
               VALUES ($1, $2, $3, $4, $5, $6, $7)
               ON CONFLICT (identity_id, resource_type, resource_id, role) DO NOTHING";
    let args = [
        to.kind.word().into(),
        (&to.id).into(),
        (&*grant.organization).into(),
        grant.role.word().into(),
        grant.kind.word().into(),
        (&*grant.resource).into(),
        now.into(),
    ];
    news::tell(tx, News::Identity(to.id.clone()));
    Ok(tx.run(sql, &args)? > 0)
}

/// Since when it was there.
fn remove(tx: &Tx<'_>, from: &Identity, grant: &Grant) -> Result<Option<Millis>, DbError> {
    let sql = "DELETE FROM grants WHERE identity_id = $1 AND organization_id = $2 AND role = $3
                   AND resource_type = $4 AND resource_id = $5 RETURNING created_at";
    let args = [
        (&from.id).into(),
        (&*grant.organization).into(),
        grant.role.word().into(),
        grant.kind.word().into(),
        (&*grant.resource).into(),
    ];
    news::tell(tx, News::Identity(from.id.clone()));
    // All of them: a statement that is left before its end may not have been carried out.
    Ok(tx.all(sql, &args, |row| row.int(0))?.pop())
}

fn no_such_role(identity: &Identity, grant: &Grant) -> Refusal {
    Refusal::not_found(&format!("role {}, given to", said(grant)), &identity.id)
}

fn room(tx: &Tx<'_>, organization: &str, identity: &Identity) -> Result<(), Refusal> {
    let sql = "SELECT COUNT(*) FROM grants WHERE identity_id = $1 AND organization_id = $2";
    let count = tx.first(sql, &[(&identity.id).into(), organization.into()], |row| row.int(0))?.unwrap_or_default();
    match usize::try_from(count).is_ok_and(|count| count <= GRANTS_PER_KEY_MAX) {
        true => Ok(()),
        false => Err(Refusal::precondition(format!(
            "it has {GRANTS_PER_KEY_MAX} roles in the organization already: give one on a location instead of many inside"
        ))),
    }
}

/// "owner of location ID"
pub(super) fn said(grant: &Grant) -> String {
    format!("{} of {} {}", grant.role.word(), grant.kind.word(), grant.resource)
}

/// Organizations that an identity owns.
pub(super) fn owned_by(tx: &Tx<'_>, identity: &str) -> Result<Vec<String>, DbError> {
    let sql = "SELECT resource_id FROM grants
               WHERE identity_id = $1 AND role = 'owner' AND resource_type = 'organization' ORDER BY resource_id";
    tx.all(sql, &[identity.into()], |row| row.text(0))
}

/// Looks, after a change in the same transaction, that somebody who can sign in still owns the organization: by a key that
/// lasts, or at the identity provider of now, which has signed them in before. A key that a sign-in gave says nothing
/// about tomorrow, and where it has ended it may still stand here or not.
pub(super) fn an_owner_remains(tx: &Tx<'_>, organization: &str) -> Result<(), Refusal> {
    an_owner_remains_beside(tx, organization, "")
}

/// The same where that identity does not count.
pub(super) fn an_owner_remains_beside(tx: &Tx<'_>, organization: &str, identity: &str) -> Result<(), Refusal> {
    match has_owner_beside(tx, organization, identity)? {
        true => Ok(()),
        false => Err(Refusal::precondition(format!(
            "organization {organization} would be left without an owner who can sign in: give it another one first"
        ))),
    }
}

/// Whether somebody else who can sign in owns the organization.
pub(super) fn has_owner_beside(tx: &Tx<'_>, organization: &str, identity: &str) -> Result<bool, DbError> {
    let sql =
        "SELECT 1 FROM grants g WHERE g.resource_type = 'organization' AND g.resource_id = $1 AND g.role = 'owner'
                 AND g.identity_id <> $2
                 AND (EXISTS (SELECT 1 FROM api_keys k WHERE k.id = g.identity_id)
                   OR EXISTS (SELECT 1 FROM api_keys k WHERE k.user_id = g.identity_id AND k.expires_at IS NULL)
                   OR EXISTS (SELECT 1 FROM identities i JOIN sign_in_issuers s ON s.issuer = i.issuer
                              WHERE i.user_id = g.identity_id))";
    Ok(tx.first(sql, &[organization.into(), identity.into()], |_| Ok(()))?.is_some())
}

/// A resource is gone: roles on it end, and no invitation brings them any more.
pub(super) fn end_on(tx: &Tx<'_>, kind: ResourceKind, resource: &str) -> Result<(), DbError> {
    invites::end_roles_on(tx, kind, resource)?;
    let sql = "DELETE FROM grants WHERE resource_type = $1 AND resource_id = $2 RETURNING identity_id";
    let whose = tx.all(sql, &[kind.word().into(), resource.into()], |row| row.text(0))?;
    news::tell_identities(tx, &whose);
    Ok(())
}

fn record(
    tx: &Tx<'_>,
    granted: &Granted<Organization, right::WriteOrganization>,
    identity: &Identity,
    operation: &'static str,
    detail: &str,
    now: Millis,
) -> Result<(), DbError> {
    let entry = Entry { resource_type: identity.kind.in_audit(), resource_id: &identity.id, operation, detail };
    audit::record_by(tx, granted.caller(), granted.id(), now, &entry)
}
