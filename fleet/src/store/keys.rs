//! API keys and the grants of whoever holds one.

use std::collections::BTreeSet;

use super::{
    DbError, Row, Tx, audit,
    audit::Entry,
    news::{self, News},
    roles::{self, Identity, IdentityKind},
};
use crate::{
    authn::{Caller, Who},
    authz::{Grant, Granted, Organization, ResourceKind, Role, right},
    clock::Millis,
    limits::KEYS_PER_USER_MAX,
    refusal::Refusal,
};

/// What a login needs to know of a key.
pub struct Login {
    /// Of the secret.
    pub digest: String,
    /// Rises when the key is rotated.
    pub generation: u64,
    /// The person it belongs to; otherwise it is an organization's.
    pub user: Option<String>,
    /// When it ends, if a sign-in gave it.
    pub expires_at: Option<Millis>,
}

/// By id, for a login or a token.
pub fn for_login(tx: &Tx<'_>, id: &str) -> Result<Option<Login>, DbError> {
    let sql = "SELECT digest, generation, user_id, expires_at FROM api_keys WHERE id = $1";
    tx.first(sql, &[id.into()], |row| {
        Ok(Login {
            digest: row.text(0)?,
            generation: row.int(1)?.unsigned_abs(),
            user: row.maybe_text(2)?,
            expires_at: row.maybe_int(3)?,
        })
    })
}

/// One row; of the secret nothing can be shown.
#[derive(Debug, Clone)]
pub struct Stored {
    /// UUID.
    pub id: String,
    /// The organization it belongs to, unless it is a person's.
    pub organization: Option<String>,
    /// The person it belongs to, unless it is an organization's.
    pub user: Option<String>,
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
    Ok(Stored {
        id: row.text(0)?,
        organization: row.maybe_text(1)?,
        user: row.maybe_text(2)?,
        name: row.text(3)?,
        created_at: row.int(4)?,
    })
}

/// By id.
pub fn get(tx: &Tx<'_>, id: &str) -> Result<Option<Stored>, DbError> {
    tx.first("SELECT id, organization_id, user_id, name, created_at FROM api_keys WHERE id = $1", &[id.into()], stored)
}

/// Of an organization.
pub fn of_organization(tx: &Tx<'_>, organization: &str) -> Result<Vec<Stored>, DbError> {
    let sql = "SELECT id, organization_id, user_id, name, created_at FROM api_keys WHERE organization_id = $1
               ORDER BY created_at, id";
    tx.all(sql, &[organization.into()], stored)
}

/// Of others, with a role in an organization.
pub fn guests_of(tx: &Tx<'_>, organization: &str) -> Result<Vec<Stored>, DbError> {
    let sql = "SELECT DISTINCT k.id, k.organization_id, k.user_id, k.name, k.created_at FROM api_keys k
               JOIN grants g ON g.identity_id = k.id
               WHERE g.organization_id = $1 AND k.organization_id <> $1 ORDER BY k.created_at, k.id";
    tx.all(sql, &[organization.into()], stored)
}

/// Of a person, those that have not ended.
pub fn of_user(tx: &Tx<'_>, user: &str, now: Millis) -> Result<Vec<Stored>, DbError> {
    let sql = "SELECT id, organization_id, user_id, name, created_at FROM api_keys
               WHERE user_id = $1 AND (expires_at IS NULL OR expires_at > $2) ORDER BY created_at, id";
    tx.all(sql, &[user.into(), now.into()], stored)
}

/// When a key of that person ends, if it ever does.
fn end_of(tx: &Tx<'_>, id: &str, user: &str, now: Millis) -> Result<Option<Millis>, Refusal> {
    let sql = "SELECT expires_at FROM api_keys
               WHERE id = $1 AND user_id = $2 AND (expires_at IS NULL OR expires_at > $3)";
    let found = tx.first(sql, &[id.into(), user.into(), now.into()], |row| row.maybe_int(0))?;
    found.ok_or_else(|| Refusal::not_found("API key", id))
}

/// Whose it is, if it is a person's.
pub fn user_of(tx: &Tx<'_>, key: &str) -> Result<Option<String>, DbError> {
    let found = tx.first("SELECT user_id FROM api_keys WHERE id = $1", &[key.into()], |row| row.maybe_text(0))?;
    Ok(found.flatten())
}

/// With a role on that very machine.
pub fn of_machine(tx: &Tx<'_>, machine: &str) -> Result<Vec<Stored>, DbError> {
    let sql = "SELECT DISTINCT k.id, k.organization_id, k.user_id, k.name, k.created_at FROM api_keys k
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
    let to = Identity { kind: IdentityKind::ApiKey, id: new.id.to_owned() };
    for grant in new.grants {
        roles::insert(tx, &to, grant, now)?;
    }
    let roles = new.grants.iter().map(roles::said).collect::<Vec<_>>().join(", ");
    let detail = format!("{:?}, {roles}", new.name);
    let entry = Entry { resource_type: "api key", resource_id: new.id, operation, detail: &detail };
    audit::record_by(tx, caller, organization, now, &entry)
}

/// One more key of a person, until `expires_at` or for good. It has the roles of the person.
pub fn create_for_user(
    tx: &Tx<'_>,
    caller: &Caller,
    user: &str,
    new: &New<'_>,
    expires_at: Option<Millis>,
    now: Millis,
) -> Result<(), Refusal> {
    if of_user(tx, user, now)?.len() >= KEYS_PER_USER_MAX {
        return Err(Refusal::precondition(format!("they have {KEYS_PER_USER_MAX} keys already: delete one first")));
    }
    debug_assert!(new.grants.is_empty(), "roles are the person's");
    let sql = "INSERT INTO api_keys (id, user_id, name, digest, generation, created_at, expires_at)
               VALUES ($1, $2, $3, $4, 1, $5, $6)";
    let row = [new.id.into(), user.into(), new.name.into(), new.digest.into(), now.into(), expires_at.into()];
    tx.run(sql, &row)?;
    let entry = Entry { resource_type: "api key", resource_id: new.id, operation: "CreateKey", detail: user };
    Ok(audit::record_by(tx, caller, audit::SERVER, now, &entry)?)
}

/// A key that a sign-in gives, until `expires_at`. Those that ended go; where a person has as many as may be, the oldest
/// of those that end makes room.
pub fn create_for_sign_in(
    tx: &Tx<'_>,
    caller: &Caller,
    user: &str,
    new: &New<'_>,
    expires_at: Millis,
    now: Millis,
) -> Result<(), Refusal> {
    let ended = "DELETE FROM api_keys WHERE expires_at <= $1 RETURNING id";
    let mut gone = tx.all(ended, &[now.into()], |row| row.text(0))?;
    if of_user(tx, user, now)?.len() >= KEYS_PER_USER_MAX {
        let oldest = "DELETE FROM api_keys WHERE id = (SELECT id FROM api_keys WHERE user_id = $1
                        AND expires_at IS NOT NULL ORDER BY created_at, id LIMIT 1) RETURNING id";
        gone.extend(tx.all(oldest, &[user.into()], |row| row.text(0))?);
    }
    create_for_user(tx, caller, user, new, Some(expires_at), now)?;
    gone.into_iter().for_each(|key| news::tell(tx, News::Key(key)));
    Ok(())
}

/// One more key of the caller itself beside its key `like`. It ends with that one, and with the one that calls: who came in
/// for some days does not stay by copying.
pub fn create_like(tx: &Tx<'_>, caller: &Caller, like: &str, new: &New<'_>, now: Millis) -> Result<(), Refusal> {
    let (calling, user) = own(caller, like)?;
    let ends = [end_of(tx, like, user, now)?, end_of(tx, calling, user, now)?];
    create_for_user(tx, caller, user, new, ends.into_iter().flatten().min(), now)
}

/// Whoever creates an organization owns it: the person, or the key of a program.
pub fn give_owner_of_new(tx: &Tx<'_>, to: &Identity, organization: &str, now: Millis) -> Result<(), DbError> {
    let grant = Grant {
        role: Role::Owner,
        kind: ResourceKind::Organization,
        resource: organization.into(),
        organization: organization.into(),
    };
    roles::insert(tx, to, &grant, now).map(drop)
}

/// Another secret for the caller's own key, or for another one of the same person that does not outlive it.
pub fn rotate_own(tx: &Tx<'_>, caller: &Caller, id: &str, digest: &str, now: Millis) -> Result<(), Refusal> {
    let (calling, user) = own(caller, id)?;
    let (until, after) = (end_of(tx, calling, user, now)?, end_of(tx, id, user, now)?);
    if until.is_some_and(|until| after.is_none_or(|after| after > until)) {
        return Err(Refusal::forbidden(
            "the key that calls ends before this one: rotate it with itself, or delete it and ask for another one",
        ));
    }
    let sql = "UPDATE api_keys SET digest = $2, generation = generation + 1 WHERE id = $1 AND user_id = $3";
    if tx.run(sql, &[id.into(), digest.into(), user.into()])? == 0 {
        return Err(Refusal::not_found("API key", id));
    }
    news::tell(tx, News::Key(id.to_owned()));
    let entry = Entry { resource_type: "api key", resource_id: id, operation: "RotateKey", detail: user };
    Ok(audit::record_by(tx, caller, audit::SERVER, now, &entry)?)
}

/// Ends a key of the caller itself; not the last one of who is some organization's last owner.
pub fn delete_own(tx: &Tx<'_>, caller: &Caller, id: &str, now: Millis) -> Result<(), Refusal> {
    let (_, user) = own(caller, id)?;
    if tx.run("DELETE FROM api_keys WHERE id = $1 AND user_id = $2", &[id.into(), user.into()])? == 0 {
        return Err(Refusal::not_found("API key", id));
    }
    // Who deletes the last one goes, also where the identity provider would let them in again.
    let without = if of_user(tx, user, now)?.is_empty() { user } else { "" };
    let owned = roles::owned_by(tx, user)?;
    owned.iter().try_for_each(|organization| roles::an_owner_remains_beside(tx, organization, without))?;
    news::tell(tx, News::Key(id.to_owned()));
    let entry = Entry { resource_type: "api key", resource_id: id, operation: "DeleteKey", detail: user };
    Ok(audit::record_by(tx, caller, audit::SERVER, now, &entry)?)
}

/// Every key of a person ends. Another one is about to be made for them.
pub fn end_all_of_user(tx: &Tx<'_>, caller: &Caller, user: &str, now: Millis) -> Result<(), DbError> {
    let ended = tx.all("DELETE FROM api_keys WHERE user_id = $1 RETURNING id", &[user.into()], |row| row.text(0))?;
    for key in ended {
        let entry = Entry { resource_type: "api key", resource_id: &key, operation: "DeleteKey", detail: user };
        audit::record_by(tx, caller, audit::SERVER, now, &entry)?;
        news::tell(tx, News::Key(key));
    }
    Ok(())
}

/// The key and the person that call: what is theirs needs no other permission.
fn own<'c>(caller: &'c Caller, key: &str) -> Result<(&'c str, &'c str), Refusal> {
    match caller.who() {
        Who::ApiKey { id, user: Some(user), .. } => Ok((id, user)),
        _ => Err(Refusal::not_found("API key", key)),
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
    let name = get(tx, id)?.map(|key| key.name).unwrap_or_default();
    record(tx, granted, (id, &name), "RotateKey", now)
}

/// An organization is about to go: its keys end, with every role they have anywhere, and so do all roles in it.
/// Refused while one of its keys is all that another organization has for an owner.
pub(super) fn end_all_of(tx: &Tx<'_>, organization: &str) -> Result<(), Refusal> {
    let own: Vec<String> = of_organization(tx, organization)?.into_iter().map(|key| key.id).collect();
    let mut elsewhere = BTreeSet::new();
    for key in &own {
        elsewhere.extend(roles::owned_by(tx, key)?);
        tx.run("DELETE FROM grants WHERE identity_id = $1", &[key.into()])?;
    }
    let sql = "DELETE FROM grants WHERE organization_id = $1 RETURNING identity_id";
    let whose = tx.all(sql, &[organization.into()], |row| row.text(0))?;
    tx.run("DELETE FROM api_keys WHERE organization_id = $1", &[organization.into()])?;
    tx.run("DELETE FROM invites WHERE organization_id = $1", &[organization.into()])?;
    elsewhere.remove(organization);
    elsewhere.iter().try_for_each(|organization| roles::an_owner_remains(tx, organization))?;
    news::tell_identities(tx, whose.iter().chain(&own));
    Ok(())
}

/// Ends a key and its grants.
pub fn delete(
    tx: &Tx<'_>,
    granted: &Granted<Organization, right::WriteOrganization>,
    id: &str,
    now: Millis,
) -> Result<(), Refusal> {
    let owned = roles::owned_by(tx, id)?;
    let name = get(tx, id)?.map(|key| key.name).unwrap_or_default();
    tx.run("DELETE FROM grants WHERE identity_id = $1", &[id.into()])?;
    let sql = "DELETE FROM api_keys WHERE id = $1 AND organization_id = $2";
    tx.run(sql, &[id.into(), granted.id().into()])?;
    for organization in owned {
        if !roles::has_owner_beside(tx, &organization, id)? {
            return Err(Refusal::precondition(format!(
                "the key is the only owner of organization {organization} who can sign in: give it another owner first, or \
                 replace the key's secret with RotateKey"
            )));
        }
    }
    Ok(record(tx, granted, (id, &name), "DeleteKey", now)?)
}

fn record(
    tx: &Tx<'_>,
    granted: &Granted<Organization, right::WriteOrganization>,
    (id, name): (&str, &str),
    operation: &'static str,
    now: Millis,
) -> Result<(), DbError> {
    news::tell(tx, News::Key(id.to_owned()));
    let entry = Entry { resource_type: "api key", resource_id: id, operation, detail: &format!("{name:?}") };
    audit::record_by(tx, granted.caller(), granted.id(), now, &entry)
}
