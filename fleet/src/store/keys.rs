//! API keys and the grants of whoever holds one.

use std::{collections::BTreeSet, sync::Arc};

use super::{DbError, Row, Tx, audit, audit::Entry};
use crate::{
    authn::Caller,
    authz::{Grant, Granted, Organization, ResourceKind, Role, right},
    clock::Millis,
    refusal::Refusal,
};

/// What a login needs to know of a key.
pub struct Login {
    /// Of the secret.
    pub digest: String,
    /// Rises when the key is rotated.
    pub generation: u64,
    /// The organization it belongs to.
    pub organization: String,
}

/// By id, for a login or a token.
pub fn for_login(tx: &Tx<'_>, id: &str) -> Result<Option<Login>, DbError> {
    tx.first("SELECT digest, generation, organization_id FROM api_keys WHERE id = $1", &[id.into()], |row| {
        Ok(Login { digest: row.text(0)?, generation: row.int(1)?.unsigned_abs(), organization: row.text(2)? })
    })
}

/// What an identity was given.
pub fn grants_of(tx: &Tx<'_>, identity: &str) -> Result<Vec<Grant>, DbError> {
    let sql = "SELECT role, resource_type, resource_id, organization_id FROM grants
               WHERE identity_id = $1 ORDER BY created_at, resource_id";
    // A word that this version does not know gives nothing.
    Ok(tx.all(sql, &[identity.into()], grant)?.into_iter().flatten().collect())
}

fn grant(row: &Row<'_>) -> Result<Option<Grant>, DbError> {
    let (Some(role), Some(kind)) = (Role::parse(row.str(0)?), ResourceKind::parse(row.str(1)?)) else {
        return Ok(None);
    };
    Ok(Some(Grant { role, kind, resource: Arc::from(row.str(2)?), organization: Arc::from(row.str(3)?) }))
}

/// One row; of the secret nothing can be shown.
#[derive(Debug, Clone)]
pub struct Stored {
    /// UUID.
    pub id: String,
    /// The organization it belongs to.
    pub organization: String,
    /// As given.
    pub name: String,
    /// When it was created.
    pub created_at: Millis,
}

/// What is stored of a new key.
pub struct New<'a> {
    /// UUID.
    pub id: &'a str,
    /// As given.
    pub name: &'a str,
    /// Of its secret.
    pub digest: &'a str,
    /// What it may do.
    pub grants: &'a [Grant],
}

fn stored(row: &Row<'_>) -> Result<Stored, DbError> {
    Ok(Stored { id: row.text(0)?, organization: row.text(1)?, name: row.text(2)?, created_at: row.int(3)? })
}

/// By id.
pub fn get(tx: &Tx<'_>, id: &str) -> Result<Option<Stored>, DbError> {
    tx.first("SELECT id, organization_id, name, created_at FROM api_keys WHERE id = $1", &[id.into()], stored)
}

/// Of an organization.
pub fn of_organization(tx: &Tx<'_>, organization: &str) -> Result<Vec<Stored>, DbError> {
    let sql = "SELECT id, organization_id, name, created_at FROM api_keys WHERE organization_id = $1
               ORDER BY created_at, id";
    tx.all(sql, &[organization.into()], stored)
}

/// With a role on that very machine.
pub fn of_machine(tx: &Tx<'_>, machine: &str) -> Result<Vec<Stored>, DbError> {
    let sql = "SELECT DISTINCT k.id, k.organization_id, k.name, k.created_at FROM api_keys k
               JOIN grants g ON g.identity_id = k.id
               WHERE g.resource_type = 'robot' AND g.resource_id = $1 ORDER BY k.created_at, k.id";
    tx.all(sql, &[machine.into()], stored)
}

/// A new key. That its grants lie in the organization, the caller has looked.
pub fn create(
    tx: &Tx<'_>,
    granted: &Granted<Organization, right::WriteOrganization>,
    operation: &'static str,
    new: &New<'_>,
    now: Millis,
) -> Result<(), DbError> {
    insert(tx, granted.caller(), granted.id(), operation, new, now)
}

/// The first key of an organization that was created a moment ago in this transaction.
pub fn create_first(
    tx: &Tx<'_>,
    caller: &Caller,
    organization: &str,
    new: &New<'_>,
    now: Millis,
) -> Result<(), DbError> {
    debug_assert!(of_organization(tx, organization)?.is_empty(), "an organization has one first key");
    insert(tx, caller, organization, "CreateKey", new, now)
}

fn insert(
    tx: &Tx<'_>,
    caller: &Caller,
    organization: &str,
    operation: &'static str,
    new: &New<'_>,
    now: Millis,
) -> Result<(), DbError> {
    let sql = "INSERT INTO api_keys (id, organization_id, name, digest, generation, created_at)
               VALUES ($1, $2, $3, $4, 1, $5)";
    tx.run(sql, &[new.id.into(), organization.into(), new.name.into(), new.digest.into(), now.into()])?;
    for grant in new.grants {
        give(tx, new.id, grant, now)?;
    }
    let entry = Entry { resource_type: "api key", resource_id: new.id, operation, detail: new.name };
    audit::record_by(tx, caller, organization, now, &entry)
}

/// Whoever creates an organization owns it, on its present key.
pub fn give_owner_of_new(tx: &Tx<'_>, key: &str, organization: &str, now: Millis) -> Result<(), DbError> {
    let grant = Grant {
        role: Role::Owner,
        kind: ResourceKind::Organization,
        resource: organization.into(),
        organization: organization.into(),
    };
    give(tx, key, &grant, now)
}

fn give(tx: &Tx<'_>, key: &str, grant: &Grant, now: Millis) -> Result<(), DbError> {
    let sql = "INSERT INTO grants
                   (identity_type, identity_id, organization_id, role, resource_type, resource_id, created_at)
               VALUES ('api-key', $1, $2, $3, $4, $5, $6)
               ON CONFLICT (identity_id, resource_type, resource_id, role) DO NOTHING";
    let args = [
        key.into(),
        (&*grant.organization).into(),
        grant.role.word().into(),
        grant.kind.word().into(),
        (&*grant.resource).into(),
        now.into(),
    ];
    tx.run(sql, &args)?;
    Ok(())
}

/// A resource is gone: roles on it end. Returns whose.
pub(super) fn end_roles_on(tx: &Tx<'_>, kind: ResourceKind, resource: &str) -> Result<Vec<String>, DbError> {
    let sql = "DELETE FROM grants WHERE resource_type = $1 AND resource_id = $2 RETURNING identity_id";
    tx.all(sql, &[kind.word().into(), resource.into()], |row| row.text(0))
}

/// Looks, after a change in the same transaction, that somebody who can sign in still owns the organization.
pub(super) fn an_owner_remains(tx: &Tx<'_>, organization: &str) -> Result<(), Refusal> {
    let sql =
        "SELECT 1 FROM grants g WHERE g.resource_type = 'organization' AND g.resource_id = $1 AND g.role = 'owner'
                 AND EXISTS (SELECT 1 FROM api_keys k WHERE k.id = g.identity_id)";
    match tx.first(sql, &[organization.into()], |_| Ok(()))? {
        Some(()) => Ok(()),
        None => Err(Refusal::precondition(format!(
            "organization {organization} would be left without an owner who can sign in: give it another one first"
        ))),
    }
}

/// Another secret for the same key; tokens of the old one end.
pub fn rotate(
    tx: &Tx<'_>,
    granted: &Granted<Organization, right::WriteOrganization>,
    id: &str,
    digest: &str,
    now: Millis,
) -> Result<(), DbError> {
    let sql = "UPDATE api_keys SET digest = $2, generation = generation + 1 WHERE id = $1 AND organization_id = $3";
    tx.run(sql, &[id.into(), digest.into(), granted.id().into()])?;
    record(tx, granted, id, "RotateKey", now)
}

/// Organizations that an identity owns.
fn owned_by(tx: &Tx<'_>, identity: &str) -> Result<Vec<String>, DbError> {
    let sql = "SELECT resource_id FROM grants
               WHERE identity_id = $1 AND role = 'owner' AND resource_type = 'organization' ORDER BY resource_id";
    tx.all(sql, &[identity.into()], |row| row.text(0))
}

/// An organization is about to go: its keys end, with every role they have anywhere, and so do all roles in it. Returns
/// whose rights changed. Refused while one of its keys is all that another organization has for an owner.
pub(super) fn end_all_of(tx: &Tx<'_>, organization: &str) -> Result<Vec<String>, Refusal> {
    let own: Vec<String> = of_organization(tx, organization)?.into_iter().map(|key| key.id).collect();
    let mut elsewhere = BTreeSet::new();
    for key in &own {
        elsewhere.extend(owned_by(tx, key)?);
        tx.run("DELETE FROM grants WHERE identity_id = $1", &[key.into()])?;
    }
    let sql = "DELETE FROM grants WHERE organization_id = $1 RETURNING identity_id";
    let mut whose = tx.all(sql, &[organization.into()], |row| row.text(0))?;
    tx.run("DELETE FROM api_keys WHERE organization_id = $1", &[organization.into()])?;
    elsewhere.remove(organization);
    elsewhere.iter().try_for_each(|organization| an_owner_remains(tx, organization))?;
    whose.extend(own);
    Ok(whose)
}

/// Ends a key and its grants.
pub fn delete(
    tx: &Tx<'_>,
    granted: &Granted<Organization, right::WriteOrganization>,
    id: &str,
    now: Millis,
) -> Result<(), Refusal> {
    let owned = owned_by(tx, id)?;
    tx.run("DELETE FROM grants WHERE identity_id = $1", &[id.into()])?;
    let sql = "DELETE FROM api_keys WHERE id = $1 AND organization_id = $2";
    tx.run(sql, &[id.into(), granted.id().into()])?;
    owned.iter().try_for_each(|organization| an_owner_remains(tx, organization))?;
    Ok(record(tx, granted, id, "DeleteKey", now)?)
}

fn record(
    tx: &Tx<'_>,
    granted: &Granted<Organization, right::WriteOrganization>,
    id: &str,
    operation: &'static str,
    now: Millis,
) -> Result<(), DbError> {
    let entry = Entry { resource_type: "api key", resource_id: id, operation, detail: "" };
    audit::record_by(tx, granted.caller(), granted.id(), now, &entry)
}
