//! What devices tell and ask: their status, and whether to restart.

use api::pb::platform::fleet::v1::DeviceStatus;
use prost::Message as _;

use super::{DbError, Tx};
use crate::{
    authz::{Granted, Part, right::ActAsDevice},
    clock::Millis,
    hex,
};

/// A part's configuration as it was written.
pub fn config(tx: &Tx<'_>, part: &Granted<Part, ActAsDevice>) -> Result<Option<String>, DbError> {
    tx.first("SELECT config FROM parts WHERE id = $1", &[part.id().into()], |row| row.text(0))
}

/// Keeps what a device says of itself, instead of what it said before.
pub fn keep_status(
    tx: &Tx<'_>,
    part: &Granted<Part, ActAsDevice>,
    status: &DeviceStatus,
    now: Millis,
) -> Result<(), DbError> {
    tx.run(
        "INSERT INTO part_status (part_id, status, reported_at) SELECT id, $2, $3 FROM parts WHERE id = $1
         ON CONFLICT (part_id) DO UPDATE SET status = excluded.status, reported_at = excluded.reported_at",
        &[part.id().into(), (&hex::encode(&status.encode_to_vec())).into(), now.into()],
    )?;
    Ok(())
}

/// What a device said of itself last, and when. One that this version cannot read reads as none.
pub fn status(tx: &Tx<'_>, part: &str) -> Result<Option<(DeviceStatus, Millis)>, DbError> {
    let sql = "SELECT status, reported_at FROM part_status WHERE part_id = $1";
    let kept = tx.first(sql, &[part.into()], |row| Ok((row.text(0)?, row.int(1)?)))?;
    Ok(kept.and_then(|(text, at)| Some((DeviceStatus::decode(hex::decode(&text)?.as_slice()).ok()?, at))))
}

/// A wish that the device restart its machine server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RestartMark {
    /// When an operator wished it.
    pub at: Millis,
    /// When the device was told.
    pub told: Option<Millis>,
}

/// The wish that stands, if one does.
pub fn restart_mark(tx: &Tx<'_>, part: &Granted<Part, ActAsDevice>) -> Result<Option<RestartMark>, DbError> {
    let sql = "SELECT restart_marked_at, restart_told_at FROM parts WHERE id = $1";
    let columns = tx.first(sql, &[part.id().into()], |row| Ok((row.maybe_int(0)?, row.maybe_int(1)?)))?;
    Ok(columns.and_then(|(at, told)| at.map(|at| RestartMark { at, told: told.filter(|told| *told >= at) })))
}

/// Remembers that the device was told of this very mark.
pub fn restart_told(
    tx: &Tx<'_>,
    part: &Granted<Part, ActAsDevice>,
    mark: RestartMark,
    now: Millis,
) -> Result<(), DbError> {
    let sql = "UPDATE parts SET restart_told_at = $3 WHERE id = $1 AND restart_marked_at = $2";
    // Never before the mark, whatever the clock did in between.
    tx.run(sql, &[part.id().into(), mark.at.into(), now.max(mark.at).into()])?;
    Ok(())
}

/// Clears a mark that is not later than `until`; a newer one stays.
pub fn clear_restart_mark(
    tx: &Tx<'_>,
    part: &Granted<Part, ActAsDevice>,
    until: Millis,
) -> Result<bool, DbError> {
    let sql = "UPDATE parts SET restart_marked_at = NULL, restart_told_at = NULL
               WHERE id = $1 AND restart_marked_at <= $2";
    Ok(tx.run(sql, &[part.id().into(), until.into()])? > 0)
}
