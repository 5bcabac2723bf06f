//! Machines; clients call them robots.

use super::{DbError, Row, Tx, audit, naming, news, news::News, parts, roles};
use crate::{
    authz::{Granted, Location, Machine, ResourceKind, right},
    clock::Millis,
    refusal::Refusal,
};

/// One row, with its main part's last access.
#[derive(Debug, Clone)]
pub struct Stored {
    /// UUID.
    pub id: String,
    /// Where it stands.
    pub location: String,
    /// Unique in its location.
    pub name: String,
    /// When it was created.
    pub created_at: Millis,
    /// Its main part.
    pub main_part: Option<String>,
    /// What the database knows about when that last spoke.
    pub last_access: Option<Millis>,
}

macro_rules! select {
    ($rest:literal) => {
        concat!(
            "SELECT m.id, m.location_id, m.name, m.created_at, p.id, s.last_access FROM machines m
             LEFT JOIN parts p ON p.machine_id = m.id AND p.main = 1 LEFT JOIN part_presence s ON s.part_id = p.id ",
            $rest
        )
    };
}

fn stored(row: &Row<'_>) -> Result<Stored, DbError> {
    Ok(Stored {
        id: row.text(0)?,
        location: row.text(1)?,
        name: row.text(2)?,
        created_at: row.int(3)?,
        main_part: row.maybe_text(4)?,
        last_access: row.maybe_int(5)?,
    })
}

/// By id.
pub fn get(tx: &Tx<'_>, id: &str) -> Result<Option<Stored>, DbError> {
    tx.first(select!("WHERE m.id = $1"), &[id.into()], stored)
}

/// Directly in a location.
pub fn of_location(tx: &Tx<'_>, location: &str) -> Result<Vec<Stored>, DbError> {
    tx.all(select!("WHERE m.location_id = $1 ORDER BY m.created_at, m.id"), &[location.into()], stored)
}

/// A new machine and its main part.
pub fn create(
    tx: &Tx<'_>,
    granted: &Granted<Location, right::WriteLocation>,
    id: &str,
    name: &str,
    main_part: &parts::New<'_>,
    now: Millis,
) -> Result<(), Refusal> {
    let sql = "INSERT INTO machines (id, location_id, name, created_at) VALUES ($1, $2, $3, $4)";
    tx.run(sql, &[id.into(), granted.id().into(), name.into(), now.into()]).map_err(|why| name_is_taken(why, name))?;
    parts::insert(tx, id, main_part, now)?;
    Ok(audit::record(tx, granted, now, "NewRobot", &format!("{id} {name:?}, main part {}", main_part.id))?)
}

/// Another name, in the same location.
pub fn rename(
    tx: &Tx<'_>,
    granted: &Granted<Machine, right::WriteRobot>,
    name: &str,
    now: Millis,
) -> Result<(), Refusal> {
    tx.run("UPDATE machines SET name = $2 WHERE id = $1", &[granted.id().into(), name.into()])
        .map_err(|why| name_is_taken(why, name))?;
    Ok(audit::record(tx, granted, now, "UpdateRobot", &format!("name {name:?}"))?)
}

/// To another location, where its owner may put machines.
pub fn move_to(
    tx: &Tx<'_>,
    granted: &Granted<Machine, right::WriteRobot>,
    to: &Granted<Location, right::WriteLocation>,
    name: &str,
    now: Millis,
) -> Result<(), Refusal> {
    let sql = "UPDATE machines SET name = $2, location_id = $3 WHERE id = $1";
    tx.run(sql, &[granted.id().into(), name.into(), to.id().into()]).map_err(|why| match why {
        DbError::Exists(_) => Refusal::precondition(format!("the location has a machine named {name:?} already")),
        other => other.into(),
    })?;
    parts::keep_labels_apart(tx, granted.id())?;
    news::tell(tx, News::Tree);
    // Calls that stay open (tails) belong to keys that may have lost their way here.
    news::tell(tx, News::Rights);
    Ok(audit::record(tx, granted, now, "UpdateRobot", &format!("name {name:?}, location {}", to.id()))?)
}

fn name_is_taken(why: DbError, name: &str) -> Refusal {
    match why {
        DbError::Exists(_) => Refusal::exists(format!("the location has a machine named {name:?} already")),
        DbError::Related => Refusal::not_found("location", ""),
        other => other.into(),
    }
}

/// Removes a machine with its parts, their secrets, histories, statuses, and the roles on it. Returns
/// the ids of the parts.
pub fn delete(tx: &Tx<'_>, granted: &Granted<Machine, right::WriteRobot>, now: Millis) -> Result<Vec<String>, Refusal> {
    let missing = || Refusal::not_found("robot", granted.id());
    let old = get(tx, granted.id())?.ok_or_else(missing)?;
    let parts = parts::of_machine(tx, granted.id())?.into_iter().map(|part| part.id).collect::<Vec<_>>();
    parts.iter().try_for_each(|part| naming::forget(tx, naming::Kind::Part, part))?;
    roles::end_on(tx, ResourceKind::Machine, granted.id())?;
    tx.run("DELETE FROM machines WHERE id = $1", &[granted.id().into()])?;
    let detail = format!("{:?}, parts {}", old.name, parts.join(", "));
    audit::record(tx, granted, now, "DeleteRobot", &detail)?;
    news::tell(tx, News::Tree);
    parts.iter().for_each(|part| news::tell(tx, News::PartGone(part.clone())));
    Ok(parts)
}
