//! Secrets of parts and locations: digests for logins, sealed text for their owners.

use super::{DbError, Row, Tx, audit, news, news::News, tree};
use crate::{
    authz::{Granted, Location, Part, Target, right},
    clock::Millis,
    limits::SECRETS_MAX,
    refusal::Refusal,
};

/// A secret that only the server's key opens.
#[derive(Clone)]
pub struct Sealed {
    /// UUID; the text opens for this id only.
    pub id: String,
    /// See [`crate::authn::Sealer`].
    pub sealed: String,
    /// When it was created.
    pub created_at: Millis,
}

/// What is stored of a new secret.
pub struct New<'a> {
    /// UUID.
    pub id: &'a str,
    /// For logins.
    pub digest: &'a str,
    /// For its owners.
    pub sealed: &'a str,
}

fn sealed(row: &Row<'_>) -> Result<Sealed, DbError> {
    Ok(Sealed { id: row.text(0)?, sealed: row.text(1)?, created_at: row.int(2)? })
}

/// A part's secrets, newest first.
pub fn of_part(tx: &Tx<'_>, granted: &Granted<Part, right::ReadRobotSecret>) -> Result<Vec<Sealed>, DbError> {
    let sql = "SELECT id, sealed, created_at FROM part_secrets WHERE part_id = $1 ORDER BY created_at DESC, id";
    tx.all(sql, &[granted.id().into()], sealed)
}

/// A location's secrets, newest first.
pub fn of_location(
    tx: &Tx<'_>,
    granted: &Granted<Location, right::ReadLocationSecret>,
) -> Result<Vec<Sealed>, DbError> {
    let sql = "SELECT id, sealed, created_at FROM location_secrets WHERE location_id = $1 ORDER BY created_at DESC, id";
    tx.all(sql, &[granted.id().into()], sealed)
}

/// One more for a part.
pub fn add_to_part(
    tx: &Tx<'_>,
    granted: &Granted<Part, right::WriteRobot>,
    new: &New<'_>,
    now: Millis,
) -> Result<(), Refusal> {
    room(tx.all("SELECT 1 FROM part_secrets WHERE part_id = $1", &[granted.id().into()], |_| Ok(()))?.len())?;
    insert_for_part(tx, granted.id(), new, now)?;
    Ok(audit::record(tx, granted, now, "CreateRobotPartSecret", new.id)?)
}

/// The row itself; for a new part's first secret, whose proof is the part's.
pub(super) fn insert_for_part(tx: &Tx<'_>, part: &str, new: &New<'_>, now: Millis) -> Result<(), DbError> {
    let sql = "INSERT INTO part_secrets (id, part_id, digest, sealed, created_at) VALUES ($1, $2, $3, $4, $5)";
    tx.run(sql, &[new.id.into(), part.into(), new.digest.into(), new.sealed.into(), now.into()])?;
    Ok(())
}

/// One more for a location.
pub fn add_to_location(
    tx: &Tx<'_>,
    granted: &Granted<Location, right::WriteLocation>,
    new: &New<'_>,
    now: Millis,
) -> Result<(), Refusal> {
    room(tx.all("SELECT 1 FROM location_secrets WHERE location_id = $1", &[granted.id().into()], |_| Ok(()))?.len())?;
    let sql = "INSERT INTO location_secrets (id, location_id, digest, sealed, created_at) VALUES ($1, $2, $3, $4, $5)";
    tx.run(sql, &[new.id.into(), granted.id().into(), new.digest.into(), new.sealed.into(), now.into()])?;
    Ok(audit::record(tx, granted, now, "CreateLocationSecret", new.id)?)
}

fn room(there: usize) -> Result<(), Refusal> {
    if there < SECRETS_MAX {
        return Ok(());
    }
    Err(Refusal::precondition(format!(
        "there are {SECRETS_MAX} secrets already: delete the one that is not used any more"
    )))
}

/// Ends a part's secret.
pub fn delete_of_part(
    tx: &Tx<'_>,
    granted: &Granted<Part, right::WriteRobot>,
    secret: &str,
    now: Millis,
) -> Result<(), Refusal> {
    let sql = "DELETE FROM part_secrets WHERE id = $1 AND part_id = $2";
    if tx.run(sql, &[secret.into(), granted.id().into()])? == 0 {
        return Err(Refusal::not_found("secret", secret));
    }
    news::tell(tx, News::PartSecrets(granted.id().to_owned()));
    Ok(audit::record(tx, granted, now, "DeleteRobotPartSecret", secret)?)
}

/// Ends a location's secret.
pub fn delete_of_location(
    tx: &Tx<'_>,
    granted: &Granted<Location, right::WriteLocation>,
    secret: &str,
    now: Millis,
) -> Result<(), Refusal> {
    let sql = "DELETE FROM location_secrets WHERE id = $1 AND location_id = $2";
    if tx.run(sql, &[secret.into(), granted.id().into()])? == 0 {
        return Err(Refusal::not_found("secret", secret));
    }
    news::tell(tx, News::LocationSecrets(granted.id().to_owned()));
    Ok(audit::record(tx, granted, now, "DeleteLocationSecret", secret)?)
}

/// The part that a device names at login: by id, or by its full name (`DNS_NAME.LOCATION_ID.…`).
pub fn part_for_login(tx: &Tx<'_>, entity: &str) -> Result<Option<String>, DbError> {
    if let Some((dns_name, rest)) = entity.split_once('.') {
        let location = rest.split('.').next().unwrap_or_default();
        let sql = "SELECT p.id FROM parts p JOIN machines m ON m.id = p.machine_id
                   WHERE p.dns_name = $1 AND m.location_id = $2";
        return tx.first(sql, &[dns_name.into(), location.into()], |row| row.text(0));
    }
    tx.first("SELECT id FROM parts WHERE id = $1", &[entity.into()], |row| row.text(0))
}

/// (id, digest) of a part's secrets.
pub fn digests_of_part(tx: &Tx<'_>, part: &str) -> Result<Vec<(String, String)>, DbError> {
    let sql = "SELECT id, digest FROM part_secrets WHERE part_id = $1";
    tx.all(sql, &[part.into()], |row| Ok((row.text(0)?, row.text(1)?)))
}

/// (id, digest) of the secrets of every location that a part lies in.
pub fn digests_of_locations_above(tx: &Tx<'_>, part: &str) -> Result<Vec<(String, String)>, DbError> {
    let mut found = Vec::new();
    for location in tree::way_up(tx, Target::Part, part)?.into_iter().flat_map(|chain| chain.locations) {
        let sql = "SELECT id, digest FROM location_secrets WHERE location_id = $1";
        found.extend(tx.all(sql, &[(&*location).into()], |row| Ok((row.text(0)?, row.text(1)?)))?);
    }
    Ok(found)
}

/// Whose secret it is.
pub fn location_of_secret(tx: &Tx<'_>, secret: &str) -> Result<Option<String>, DbError> {
    tx.first("SELECT location_id FROM location_secrets WHERE id = $1", &[secret.into()], |row| row.text(0))
}
