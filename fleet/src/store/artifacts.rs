//! Which digests the artifact store holds, so that several servers with one store never remove what another one adds.
//!
//! The order is the whole point. Who adds bytes writes the row first ([`announce`]), then gives the bytes their name,
//! then refers to them. Who removes marks the row ([`leave`]), removes the bytes, then removes the row ([`left`]).
//! Writers of all servers run one after another, so nobody announces what is leaving, and nothing leaves that was
//! announced a moment ago.

use super::{DbError, Tx};
use crate::clock::Millis;

/// Bytes that were announced may take this long to be referred to; after that they count as left behind by a crash.
pub const UNREFERRED_MAX: Millis = 60 * 60 * 1000;
/// One round of removals.
const LEAVING_MAX: i64 = 100;

/// Says that bytes with this digest are about to lie in the store. False while others are being removed: try again.
pub fn announce(tx: &Tx<'_>, digest: &str, now: Millis) -> Result<bool, DbError> {
    let leaving = tx.first("SELECT leaving FROM artifacts WHERE digest = $1", &[digest.into()], |row| row.flag(0))?;
    if leaving == Some(true) {
        return Ok(false);
    }
    let sql = "INSERT INTO artifacts (digest, touched_at, leaving) VALUES ($1, $2, 0)
               ON CONFLICT (digest) DO UPDATE SET touched_at = excluded.touched_at";
    tx.run(sql, &[digest.into(), now.into()])?;
    Ok(true)
}

/// Whether bytes that were announced, and have their name by now, may be referred to. Asked in the transaction that
/// refers to them.
pub fn stays(tx: &Tx<'_>, digest: &str) -> Result<bool, DbError> {
    let leaving = tx.first("SELECT leaving FROM artifacts WHERE digest = $1", &[digest.into()], |row| row.flag(0))?;
    Ok(leaving == Some(false))
}

/// Who announced or referred to the bytes does not need them: they may go at once, if nobody refers to them. Another
/// one who announced them a moment ago and does not find them any more is told to try again.
pub fn withdraw(tx: &Tx<'_>, digest: &str) -> Result<(), DbError> {
    let sql = "INSERT INTO artifacts (digest, touched_at, leaving) VALUES ($1, 0, 0)
               ON CONFLICT (digest) DO UPDATE SET touched_at = 0";
    tx.run(sql, &[digest.into()])?;
    Ok(())
}

/// Every digest that somebody refers to.
pub fn referred(tx: &Tx<'_>) -> Result<Vec<String>, DbError> {
    tx.all("SELECT DISTINCT digest FROM registry_files ORDER BY digest", &[], |row| row.text(0))
}

/// Marks what nobody refers to, and names it, together with what an earlier round marked and did not finish.
pub fn leave(tx: &Tx<'_>, now: Millis) -> Result<Vec<String>, DbError> {
    let sql = "SELECT digest FROM artifacts WHERE (leaving = 1 OR touched_at < $1)
                 AND NOT EXISTS (SELECT 1 FROM registry_files f WHERE f.digest = artifacts.digest)
               ORDER BY digest LIMIT $2";
    let unreferred = tx.all(sql, &[(now - UNREFERRED_MAX).into(), LEAVING_MAX.into()], |row| row.text(0))?;
    for digest in &unreferred {
        tx.run("UPDATE artifacts SET leaving = 1 WHERE digest = $1", &[digest.into()])?;
    }
    Ok(unreferred)
}

/// Whether the bytes may be removed: they are marked, and have not been removed meanwhile.
pub fn is_leaving(tx: &Tx<'_>, digest: &str) -> Result<bool, DbError> {
    let leaving = tx.first("SELECT leaving FROM artifacts WHERE digest = $1", &[digest.into()], |row| row.flag(0))?;
    Ok(leaving == Some(true))
}

/// The bytes are gone.
pub fn left(tx: &Tx<'_>, digest: &str) -> Result<(), DbError> {
    tx.run("DELETE FROM artifacts WHERE digest = $1 AND leaving = 1", &[digest.into()])?;
    Ok(())
}
