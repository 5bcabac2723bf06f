//! What devices ask: their configuration, and whether to restart.

use super::{DbError, Tx};
use crate::{
    authz::{
        Granted, Part,
        right::{ActAsDevice, Right},
    },
    clock::Millis,
};

/// A part's configuration as it was written.
pub fn config<R: Right>(tx: &Tx<'_>, part: &Granted<Part, R>) -> Result<Option<String>, DbError> {
    tx.first("SELECT config FROM parts WHERE id = $1", &[part.id().into()], |row| row.text(0))
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

/// Forgets that the device was told: the answer may not have arrived.
pub fn restart_untold(tx: &Tx<'_>, part: &Granted<Part, ActAsDevice>) -> Result<(), DbError> {
    let sql = "UPDATE parts SET restart_told_at = NULL WHERE id = $1 AND restart_told_at IS NOT NULL";
    tx.run(sql, &[part.id().into()])?;
    Ok(())
}

/// Clears a mark that is not later than `until`; a newer one stays.
pub fn clear_restart_mark(tx: &Tx<'_>, part: &Granted<Part, ActAsDevice>, until: Millis) -> Result<bool, DbError> {
    let sql = "UPDATE parts SET restart_marked_at = NULL, restart_told_at = NULL
               WHERE id = $1 AND restart_marked_at <= $2";
    Ok(tx.run(sql, &[part.id().into(), until.into()])? > 0)
}
