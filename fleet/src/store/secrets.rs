//! Secrets of parts and locations: digests for logins, sealed text for their owners.

use super::{DbError, Tx, tree};
use crate::authz::Target;

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
