//! Organizations.

use super::{
    Arg, DbError, Row, Tx, audit, audit::Entry, fragment_users, fragments, keys, naming, news, news::News, registry,
    registry_users,
};
use crate::{
    authn::Caller,
    authz::{Granted, Organization, right},
    clock::Millis,
    refusal::Refusal,
};

/// One row.
#[derive(Debug, Clone)]
pub struct Stored {
    /// UUID.
    pub id: String,
    /// As given.
    pub name: String,
    /// Set once or never.
    pub public_namespace: Option<String>,
    /// "" if nobody said.
    pub region: String,
    /// Id in somebody's customer system.
    pub cid: Option<String>,
    /// A FragmentImportList in hex.
    pub default_fragments: Option<String>,
    /// When it was created.
    pub created_at: Millis,
}

/// What an update changes; `None` leaves it.
#[derive(Debug, Default)]
pub struct Change {
    /// New name.
    pub name: Option<String>,
    /// Only while there is none.
    pub public_namespace: Option<String>,
    /// New region.
    pub region: Option<String>,
    /// New id in somebody's customer system.
    pub cid: Option<String>,
    /// A FragmentImportList in hex.
    pub default_fragments: Option<String>,
}

fn stored(row: &Row<'_>) -> Result<Stored, DbError> {
    Ok(Stored {
        id: row.text(0)?,
        name: row.text(1)?,
        public_namespace: row.maybe_text(2)?,
        region: row.text(3)?,
        cid: row.maybe_text(4)?,
        default_fragments: row.maybe_text(5)?,
        created_at: row.int(6)?,
    })
}

/// By id.
pub fn get(tx: &Tx<'_>, id: &str) -> Result<Option<Stored>, DbError> {
    let sql = "SELECT id, name, public_namespace, region, cid, default_fragments, created_at FROM organizations
               WHERE id = $1";
    tx.first(sql, &[id.into()], stored)
}

/// Whoever creates an organization owns it; so this takes no proof, only who it is.
pub fn create(tx: &Tx<'_>, caller: &Caller, id: &str, name: &str, now: Millis) -> Result<(), DbError> {
    let sql = "INSERT INTO organizations (id, name, region, created_at) VALUES ($1, $2, '', $3)";
    tx.run(sql, &[id.into(), name.into(), now.into()])?;
    let entry = Entry { resource_type: "organization", resource_id: id, operation: "CreateOrganization", detail: name };
    audit::record_by(tx, caller, id, now, &entry)
}

/// Changes what is given. The namespace is set only while there is none; the caller looks before.
pub fn update(
    tx: &Tx<'_>,
    granted: &Granted<Organization, right::WriteOrganization>,
    change: &Change,
    now: Millis,
) -> Result<(), DbError> {
    let sql = "UPDATE organizations SET name = COALESCE($2, name),
                   public_namespace = COALESCE(public_namespace, $3), region = COALESCE($4, region),
                   cid = COALESCE($5, cid), default_fragments = COALESCE($6, default_fragments)
               WHERE id = $1";
    tx.run(
        sql,
        &[
            granted.id().into(),
            Arg::from(change.name.as_deref()),
            Arg::from(change.public_namespace.as_deref()),
            Arg::from(change.region.as_deref()),
            Arg::from(change.cid.as_deref()),
            Arg::from(change.default_fragments.as_deref()),
        ],
    )?;
    if let Some(list) = &change.default_fragments {
        naming::note_defaults(tx, granted.id(), list)?;
    }
    let detail = [
        change.name.as_ref().map(|name| format!("name {name:?}")),
        change.public_namespace.as_ref().map(|namespace| format!("namespace {namespace:?}")),
        change.region.as_ref().map(|region| format!("region {region:?}")),
        change.cid.as_ref().map(|cid| format!("cid {cid:?}")),
        change.default_fragments.as_ref().map(|_| "default fragments".to_owned()),
    ];
    let detail = detail.into_iter().flatten().collect::<Vec<_>>().join(", ");
    audit::record(tx, granted, now, "UpdateOrganization", &detail)
}

/// Every organization: for the server's own commands.
pub fn all(tx: &Tx<'_>) -> Result<Vec<Stored>, DbError> {
    let sql = "SELECT id, name, public_namespace, region, cid, default_fragments, created_at FROM organizations
               ORDER BY created_at, id";
    tx.all(sql, &[], stored)
}

/// Whether somebody has that namespace.
pub fn namespace_is_taken(tx: &Tx<'_>, namespace: &str) -> Result<bool, DbError> {
    let sql = "SELECT 1 FROM organizations WHERE public_namespace = $1";
    Ok(tx.first(sql, &[namespace.into()], |_| Ok(()))?.is_some())
}

/// Removes an organization that has no locations any more: with its fragments, its keys and every role in it. Its audit
/// rows stay.
pub fn delete(
    tx: &Tx<'_>,
    granted: &Granted<Organization, right::WriteOrganization>,
    now: Millis,
) -> Result<(), Refusal> {
    let id = granted.id();
    let old = get(tx, id)?.ok_or_else(|| Refusal::not_found("organization", id))?;
    let sql = "SELECT COUNT(*) FROM locations WHERE organization_id = $1";
    let locations = tx.first(sql, &[id.into()], |row| row.int(0))?.unwrap_or_default();
    if locations > 0 {
        return Err(Refusal::precondition(format!("the organization has {locations} locations: delete them first")));
    }
    let own = fragments::of_organization(tx, id)?;
    for fragment in &own {
        if fragment_users::dependents(fragment).count(tx)?.elsewhere > 0 {
            return Err(Refusal::precondition(format!(
                "other organizations use the public fragment {:?} ({}): make it private first",
                fragment.name, fragment.id
            )));
        }
    }
    let items = registry::of_organization(tx, id)?;
    for item in &items {
        if registry_users::dependents(item).count(tx)?.elsewhere > 0 {
            return Err(Refusal::precondition(format!(
                "other organizations use the public registry item {:?}: make it private first",
                item.item_id()
            )));
        }
    }
    own.iter().try_for_each(|fragment| fragment_users::remove(tx, &fragment.id))?;
    items.iter().try_for_each(|item| registry::remove(tx, &item.id))?;
    naming::forget(tx, naming::Kind::Organization, id)?;
    tx.run("DELETE FROM location_shares WHERE organization_id = $1", &[id.into()])?;
    keys::end_all_of(tx, id)?;
    tx.run("DELETE FROM organizations WHERE id = $1", &[id.into()])?;
    news::tell(tx, News::Tree);
    news::tell(tx, News::Configurations);
    Ok(audit::record(tx, granted, now, "DeleteOrganization", &format!("{:?}", old.name))?)
}
