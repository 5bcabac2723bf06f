//! People: one e-mail address each, keys of their own, members of organizations by the roles they have there.

use super::{
    DbError, Row, Tx, audit,
    audit::{Entry, SERVER},
    news::{self, News},
    roles,
    roles::Identity,
};
use crate::{
    authn::{Caller, Who},
    authz::{Granted, Organization, right},
    clock::Millis,
    refusal::Refusal,
};

/// One row.
#[derive(Debug, Clone)]
pub struct Stored {
    /// UUID.
    pub id: String,
    /// In lowercase.
    pub email: String,
    /// When one of their keys was last used to sign in, to the minute.
    pub last_login_at: Option<Millis>,
}

fn stored(row: &Row<'_>) -> Result<Stored, DbError> {
    Ok(Stored { id: row.text(0)?, email: row.text(1)?, last_login_at: row.maybe_int(2)? })
}

/// By id.
pub fn get(tx: &Tx<'_>, id: &str) -> Result<Option<Stored>, DbError> {
    tx.first("SELECT id, email, last_login_at FROM users WHERE id = $1", &[id.into()], stored)
}

/// By e-mail address in lowercase.
pub fn by_email(tx: &Tx<'_>, email: &str) -> Result<Option<Stored>, DbError> {
    tx.first("SELECT id, email, last_login_at FROM users WHERE email = $1", &[email.into()], stored)
}

/// A new person; for the server's own commands and for whoever accepts an invitation.
pub fn create(tx: &Tx<'_>, caller: &Caller, id: &str, email: &str, now: Millis) -> Result<(), Refusal> {
    let sql = "INSERT INTO users (id, email, created_at) VALUES ($1, $2, $3)";
    tx.run(sql, &[id.into(), email.into(), now.into()]).map_err(|why| match why {
        DbError::Exists(_) => Refusal::exists(format!("there is a user with the address {email} already")),
        other => other.into(),
    })?;
    let entry = Entry { resource_type: "user", resource_id: id, operation: "user add", detail: email };
    Ok(audit::record_by(tx, caller, SERVER, now, &entry)?)
}

/// Somebody signed in.
pub fn store_login(tx: &Tx<'_>, id: &str, now: Millis) -> Result<(), DbError> {
    tx.run("UPDATE users SET last_login_at = $2 WHERE id = $1", &[id.into(), now.into()])?;
    Ok(())
}

/// A person with at least one role in an organization.
#[derive(Debug, Clone)]
pub struct Member {
    /// Who.
    pub user: Stored,
    /// Since when.
    pub since: Millis,
}

/// Everybody with a role in an organization.
pub fn members(tx: &Tx<'_>, organization: &str) -> Result<Vec<Member>, DbError> {
    let sql =
        "SELECT u.id, u.email, u.last_login_at, MIN(g.created_at) FROM grants g JOIN users u ON u.id = g.identity_id
               WHERE g.organization_id = $1 GROUP BY u.id, u.email, u.last_login_at ORDER BY MIN(g.created_at), u.id";
    tx.all(sql, &[organization.into()], |row| Ok(Member { user: stored(row)?, since: row.int(3)? }))
}

/// Organizations in which a person has a role.
pub fn organizations_of(tx: &Tx<'_>, user: &str) -> Result<Vec<String>, DbError> {
    let sql = "SELECT DISTINCT organization_id FROM grants WHERE identity_id = $1 ORDER BY organization_id";
    tx.all(sql, &[user.into()], |row| row.text(0))
}

/// Whether somebody has a role in an organization.
pub fn is_member(tx: &Tx<'_>, organization: &str, user: &str) -> Result<bool, DbError> {
    let sql = "SELECT 1 FROM grants WHERE identity_id = $1 AND organization_id = $2 LIMIT 1";
    Ok(tx.first(sql, &[user.into(), organization.into()], |_| Ok(()))?.is_some())
}

/// DeleteOrganizationMember of whoever calls: every role they have in an organization ends, which needs no right there.
pub fn leave(tx: &Tx<'_>, caller: &Caller, organization: &str, now: Millis) -> Result<(), Refusal> {
    let Who::ApiKey { user: Some(user), .. } = caller.who() else {
        return Err(Refusal::not_found("organization", organization));
    };
    end_membership(tx, caller, organization, user, now, || Refusal::not_found("organization", organization))
}

/// DeleteOrganizationMember: every role somebody has in an organization ends.
pub fn remove_member(
    tx: &Tx<'_>,
    granted: &Granted<Organization, right::WriteOrganization>,
    user: &str,
    now: Millis,
) -> Result<(), Refusal> {
    end_membership(tx, granted.caller(), granted.id(), user, now, || Refusal::not_found("member", user))
}

fn end_membership(
    tx: &Tx<'_>,
    caller: &Caller,
    organization: &str,
    user: &str,
    now: Millis,
    missing: impl Fn() -> Refusal,
) -> Result<(), Refusal> {
    let known = get(tx, user)?.ok_or_else(&missing)?;
    let owns = roles::owned_by(tx, user)?.iter().any(|owned| owned == organization);
    let sql = "DELETE FROM grants WHERE identity_id = $1 AND organization_id = $2";
    if tx.run(sql, &[user.into(), organization.into()])? == 0 {
        return Err(missing());
    }
    // Where nobody is left who can sign in, others are not kept for it.
    if owns {
        roles::an_owner_remains(tx, organization)?;
    }
    news::tell(tx, News::Identity(user.to_owned()));
    let entry =
        Entry { resource_type: "user", resource_id: user, operation: "DeleteOrganizationMember", detail: &known.email };
    Ok(audit::record_by(tx, caller, organization, now, &entry)?)
}

/// A role that this server's administrator gives.
pub fn give_locally(
    tx: &Tx<'_>,
    caller: &Caller,
    to: &Identity,
    grant: &crate::authz::Grant,
    now: Millis,
) -> Result<(), DbError> {
    debug_assert!(matches!(caller.who(), Who::Local), "others use AddRole");
    roles::insert(tx, to, grant, now)?;
    let detail = roles::said(grant);
    let entry = Entry { resource_type: "user", resource_id: &to.id, operation: "user add", detail: &detail };
    audit::record_by(tx, caller, &grant.organization, now, &entry)
}
