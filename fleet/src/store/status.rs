//! What devices last told about themselves, and what operators want them to try again.

use super::{DbError, Tx, audit};
use crate::{
    authz::{Granted, Part, right},
    clock::Millis,
};

/// Replaces what is known. `status` is an encoded DeviceStatus in hex.
pub fn store(
    tx: &Tx<'_>,
    granted: &Granted<Part, right::ActAsDevice>,
    status: &str,
    now: Millis,
) -> Result<(), DbError> {
    let sql = "INSERT INTO part_status (part_id, status, reported_at) VALUES ($1, $2, $3)
               ON CONFLICT (part_id) DO UPDATE SET status = excluded.status, reported_at = excluded.reported_at";
    tx.run(sql, &[granted.id().into(), status.into(), now.into()])?;
    Ok(())
}

/// The status in hex, and when it was told.
pub fn get(tx: &Tx<'_>, part: &str) -> Result<Option<(String, Millis)>, DbError> {
    let sql = "SELECT status, reported_at FROM part_status WHERE part_id = $1";
    tx.first(sql, &[part.into()], |row| Ok((row.text(0)?, row.int(1)?)))
}

/// An operator wants bad versions of a product tried again. The time of the wish is also its edition, which a device
/// compares with the last one it carried out: it rises even if the clock went back.
pub fn ask_for_retry(
    tx: &Tx<'_>,
    granted: &Granted<Part, right::ControlRobot>,
    product: i32,
    now: Millis,
) -> Result<(), DbError> {
    let sql = "INSERT INTO part_update_retries (part_id, product, asked_at) VALUES ($1, $2, $3)
               ON CONFLICT (part_id, product) DO UPDATE SET asked_at =
               CASE WHEN excluded.asked_at > part_update_retries.asked_at
                    THEN excluded.asked_at ELSE part_update_retries.asked_at + 1 END";
    tx.run(sql, &[granted.id().into(), i64::from(product).into(), now.into()])?;
    audit::record(tx, granted, now, "RetryUpdate", &format!("product {product}"))
}

/// (product, edition): what operators wanted the device to try again, done or not.
pub fn retries(tx: &Tx<'_>, part: &str) -> Result<Vec<(i32, Millis)>, DbError> {
    let sql = "SELECT product, asked_at FROM part_update_retries WHERE part_id = $1 ORDER BY product";
    tx.all(sql, &[part.into()], |row| Ok((i32::try_from(row.int(0)?).unwrap_or_default(), row.int(1)?)))
}
