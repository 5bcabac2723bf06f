//! Locations, whom they are shared with, and their secrets.

use super::{Arg, DbError, Row, Tx, audit, news, news::News, roles};
use crate::{
    authz::{Granted, Location, Organization, ResourceKind, TargetKind, right},
    clock::Millis,
    refusal::Refusal,
};

/// One row.
#[derive(Debug, Clone)]
pub struct Stored {
    /// UUID.
    pub id: String,
    /// The one that owns it.
    pub organization: String,
    /// The location it lies in.
    pub parent: Option<String>,
    /// As given.
    pub name: String,
    /// "" if nobody said.
    pub region: String,
    /// When it was created.
    pub created_at: Millis,
}

/// What an update changes; `None` leaves it.
#[derive(Debug, Default)]
pub struct Change {
    /// New name.
    pub name: Option<String>,
    /// Into that location, or with `Some(None)` to the top.
    pub parent: Option<Option<String>>,
    /// New region.
    pub region: Option<String>,
}

fn stored(row: &Row<'_>) -> Result<Stored, DbError> {
    Ok(Stored {
        id: row.text(0)?,
        organization: row.text(1)?,
        parent: row.maybe_text(2)?,
        name: row.text(3)?,
        region: row.text(4)?,
        created_at: row.int(5)?,
    })
}

/// By id.
pub fn get(tx: &Tx<'_>, id: &str) -> Result<Option<Stored>, DbError> {
    let sql = "SELECT id, organization_id, parent_id, name, region, created_at FROM locations WHERE id = $1";
    tx.first(sql, &[id.into()], stored)
}

/// Those an organization owns and those shared with it.
pub fn of_organization(tx: &Tx<'_>, organization: &str) -> Result<Vec<Stored>, DbError> {
    let sql = "SELECT id, organization_id, parent_id, name, region, created_at FROM locations
               WHERE organization_id = $1
                  OR id IN (SELECT location_id FROM location_shares WHERE organization_id = $1)
               ORDER BY created_at, id";
    tx.all(sql, &[organization.into()], stored)
}

/// The same, and whatever lies in those that are shared with it.
pub fn reached_by(tx: &Tx<'_>, organization: &str) -> Result<Vec<Stored>, DbError> {
    let sql = "WITH RECURSIVE shared (id) AS (
                   SELECT location_id FROM location_shares WHERE organization_id = $1
                   UNION SELECT l.id FROM locations l JOIN shared s ON l.parent_id = s.id)
               SELECT id, organization_id, parent_id, name, region, created_at FROM locations
               WHERE organization_id = $1 OR id IN (SELECT id FROM shared)
               ORDER BY created_at, id";
    tx.all(sql, &[organization.into()], stored)
}

/// What lies directly in it.
pub fn children(tx: &Tx<'_>, id: &str) -> Result<Vec<Stored>, DbError> {
    let sql = "SELECT id, organization_id, parent_id, name, region, created_at FROM locations
               WHERE parent_id = $1 ORDER BY created_at, id";
    tx.all(sql, &[id.into()], stored)
}

/// How many machines lie directly in it.
pub fn machine_count(tx: &Tx<'_>, id: &str) -> Result<i64, DbError> {
    let sql = "SELECT COUNT(*) FROM machines WHERE location_id = $1";
    Ok(tx.first(sql, &[id.into()], |row| row.int(0))?.unwrap_or(0))
}

/// Organizations it is shared with, (id, name).
pub fn shared_with(tx: &Tx<'_>, id: &str) -> Result<Vec<(String, String)>, DbError> {
    let sql = "SELECT o.id, o.name FROM location_shares s JOIN organizations o ON o.id = s.organization_id
               WHERE s.location_id = $1 ORDER BY s.created_at, o.id";
    tx.all(sql, &[id.into()], |row| Ok((row.text(0)?, row.text(1)?)))
}

/// At the top of an organization.
pub fn create(
    tx: &Tx<'_>,
    granted: &Granted<Organization, right::WriteOrganization>,
    id: &str,
    name: &str,
    now: Millis,
) -> Result<(), DbError> {
    insert(tx, granted, id, None, name, now)
}

/// Inside another one.
pub fn create_in(
    tx: &Tx<'_>,
    granted: &Granted<Location, right::WriteLocation>,
    id: &str,
    name: &str,
    now: Millis,
) -> Result<(), DbError> {
    insert(tx, granted, id, Some(granted.id()), name, now)
}

fn insert<T: TargetKind, R: right::Right>(
    tx: &Tx<'_>,
    granted: &Granted<T, R>,
    id: &str,
    parent: Option<&str>,
    name: &str,
    now: Millis,
) -> Result<(), DbError> {
    let sql = "INSERT INTO locations (id, organization_id, parent_id, name, region, created_at)
               VALUES ($1, $2, $3, $4, '', $5)";
    tx.run(sql, &[id.into(), granted.organization().into(), Arg::from(parent), name.into(), now.into()])?;
    audit::record(tx, granted, now, "CreateLocation", &format!("{id} {name:?}"))
}

/// Changes what is given. The caller has looked that a new parent is no descendant.
pub fn update(
    tx: &Tx<'_>,
    granted: &Granted<Location, right::WriteLocation>,
    change: &Change,
    now: Millis,
) -> Result<(), DbError> {
    let parent = change.parent.as_ref().and_then(Option::as_deref);
    let sql = "UPDATE locations SET name = COALESCE($2, name), region = COALESCE($3, region),
                   parent_id = CASE WHEN $4 = 1 THEN $5 ELSE parent_id END
               WHERE id = $1";
    tx.run(
        sql,
        &[
            granted.id().into(),
            Arg::from(change.name.as_deref()),
            Arg::from(change.region.as_deref()),
            change.parent.is_some().into(),
            Arg::from(parent),
        ],
    )?;
    let detail = [
        change.name.as_ref().map(|name| format!("name {name:?}")),
        change.parent.as_ref().map(|parent| format!("parent {}", parent.as_deref().unwrap_or("none"))),
        change.region.as_ref().map(|region| format!("region {region:?}")),
    ];
    let detail = detail.into_iter().flatten().collect::<Vec<_>>().join(", ");
    if change.parent.is_some() {
        news::tell(tx, News::Tree);
        news::tell(tx, News::Configurations);
        // Calls that stay open (tails) belong to keys that may have lost their way here.
        news::tell(tx, News::Rights);
    }
    audit::record(tx, granted, now, "UpdateLocation", &detail)
}

/// Gives another organization access. Whether it had it already is the same to the caller.
pub fn share(
    tx: &Tx<'_>,
    granted: &Granted<Location, right::WriteLocation>,
    organization: &str,
    now: Millis,
) -> Result<(), DbError> {
    let sql = "INSERT INTO location_shares (location_id, organization_id, created_at) VALUES ($1, $2, $3)
               ON CONFLICT (location_id, organization_id) DO NOTHING";
    tx.run(sql, &[granted.id().into(), organization.into(), now.into()])?;
    news::tell(tx, News::Tree);
    audit::record(tx, granted, now, "ShareLocation", organization)
}

/// Ends that access; false if there was none.
pub fn unshare(
    tx: &Tx<'_>,
    granted: &Granted<Location, right::WriteLocation>,
    organization: &str,
    now: Millis,
) -> Result<bool, DbError> {
    let sql = "DELETE FROM location_shares WHERE location_id = $1 AND organization_id = $2";
    if tx.run(sql, &[granted.id().into(), organization.into()])? == 0 {
        return Ok(false);
    }
    news::tell(tx, News::Tree);
    // Calls that stay open (tails) belong to keys that may have lost their way here.
    news::tell(tx, News::Rights);
    audit::record(tx, granted, now, "UnshareLocation", organization)?;
    Ok(true)
}

/// Removes an empty location, with its secrets, its shares and the roles on it.
pub fn delete(tx: &Tx<'_>, granted: &Granted<Location, right::WriteLocation>, now: Millis) -> Result<(), Refusal> {
    let old = get(tx, granted.id())?.ok_or_else(|| Refusal::not_found("location", granted.id()))?;
    let (machines, inside) = (machine_count(tx, granted.id())?, children(tx, granted.id())?.len());
    if machines > 0 || inside > 0 {
        return Err(Refusal::precondition(format!(
            "the location holds {machines} machines and {inside} locations: move or delete them first"
        )));
    }
    roles::end_on(tx, ResourceKind::Location, granted.id())?;
    tx.run("DELETE FROM locations WHERE id = $1", &[granted.id().into()])?;
    news::tell(tx, News::Tree);
    news::tell(tx, News::LocationSecrets(granted.id().to_owned()));
    Ok(audit::record(tx, granted, now, "DeleteLocation", &format!("{:?}", old.name))?)
}
