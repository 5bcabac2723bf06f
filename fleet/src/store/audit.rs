//! Who changed what: one row per change, written in the transaction of the change itself.

use super::{DbError, Tx};
use crate::{
    authn::Caller,
    authz::{Granted, right::Right},
    clock::Millis,
    ids,
};

/// Writes down that the holder of `granted` did `operation`; `detail` names what changed, never a secret.
pub fn record<T: crate::authz::TargetKind, R: Right>(
    tx: &Tx<'_>,
    granted: &Granted<T, R>,
    now: Millis,
    operation: &'static str,
    detail: &str,
) -> Result<(), DbError> {
    let entry = Entry { resource_type: granted.target().word(), resource_id: granted.id(), operation, detail };
    record_by(tx, granted.caller(), granted.organization(), now, &entry)
}

/// What is written beside who and when.
pub struct Entry<'a> {
    /// "organization", "location", "robot", "robot part", "fragment", "api key".
    pub resource_type: &'a str,
    /// Which one.
    pub resource_id: &'a str,
    /// The operation's name on the wire, or the local command.
    pub operation: &'static str,
    /// What changed.
    pub detail: &'a str,
}

/// The same for changes that need no proof about an existing thing: creating one.
pub fn record_by(
    tx: &Tx<'_>,
    caller: &Caller,
    organization: &str,
    now: Millis,
    entry: &Entry<'_>,
) -> Result<(), DbError> {
    let sql = "INSERT INTO audit (organization_id, happened_at, id, actor, from_address, operation, resource_type, resource_id, detail)
               VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)";
    let (id, actor, from) = (ids::new_id(), caller.name(), caller.from().to_string());
    tx.run(
        sql,
        &[
            organization.into(),
            now.into(),
            (&id).into(),
            (&actor).into(),
            (&from).into(),
            entry.operation.into(),
            entry.resource_type.into(),
            entry.resource_id.into(),
            entry.detail.into(),
        ],
    )?;
    Ok(())
}
