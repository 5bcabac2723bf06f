//! Parts.

use super::{DbError, Tx};
use crate::clock::Millis;

/// When a part last spoke; silently nothing if the part is gone.
pub fn store_last_access(tx: &Tx<'_>, part: &str, at: Millis) -> Result<(), DbError> {
    let sql = "INSERT INTO part_presence (part_id, last_access)
               SELECT id, $2 FROM parts WHERE id = $1
               ON CONFLICT (part_id) DO UPDATE SET last_access = excluded.last_access
               WHERE part_presence.last_access < excluded.last_access";
    tx.run(sql, &[part.into(), at.into()])?;
    Ok(())
}
