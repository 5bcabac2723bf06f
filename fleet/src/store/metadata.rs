//! What people keep about a thing, as one JSON object: organizations, locations, machines and parts have it.

use super::{DbError, Tx, audit};
use crate::{
    authz::{Granted, Target, TargetKind, right::Right},
    clock::Millis,
};

/// Things that have metadata: the SQL of each, written out because a table cannot be a parameter.
pub trait Described: TargetKind {
    /// Reads it.
    const READ: &'static str;
    /// Replaces it.
    const REPLACE: &'static str;
    /// The operation's name on the wire.
    const OPERATION: &'static str;
}

macro_rules! described {
    ($($kind:ident in $table:literal by $operation:literal,)*) => {$(
        impl Described for crate::authz::$kind {
            const READ: &'static str = concat!("SELECT metadata FROM ", $table, " WHERE id = $1");
            const REPLACE: &'static str = concat!("UPDATE ", $table, " SET metadata = $2 WHERE id = $1");
            const OPERATION: &'static str = $operation;
        }
    )*};
}

described! {
    Organization in "organizations" by "UpdateOrganizationMetadata",
    Location in "locations" by "UpdateLocationMetadata",
    Machine in "machines" by "UpdateRobotMetadata",
    Part in "parts" by "UpdateRobotPartMetadata",
}

/// JSON text of an object; `None` if nobody wrote any. The outer `None`: the thing is gone.
pub fn get<T: Described, R: Right>(tx: &Tx<'_>, granted: &Granted<T, R>) -> Result<Option<Option<String>>, DbError> {
    tx.first(T::READ, &[granted.id().into()], |row| row.maybe_text(0))
}

/// Replaces all of it; false if the thing is gone. That `R` is a right to write, the one caller looks.
pub fn replace<T: Described, R: Right>(
    tx: &Tx<'_>,
    granted: &Granted<T, R>,
    text: &str,
    now: Millis,
) -> Result<bool, DbError> {
    debug_assert!(R::PERMISSION.word().starts_with("write_"), "{} changes nothing", R::PERMISSION.word());
    debug_assert!(T::TARGET != Target::Fragment, "fragments have no metadata");
    if tx.run(T::REPLACE, &[granted.id().into(), text.into()])? == 0 {
        return Ok(false);
    }
    audit::record(tx, granted, now, T::OPERATION, &format!("{} bytes", text.len()))?;
    Ok(true)
}
