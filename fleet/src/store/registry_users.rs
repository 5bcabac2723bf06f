//! Who uses a registry item, counted.
//!
//! Anybody may write any id into a configuration, also before there is an item of that name; a use is what the item's
//! visibility allows.

use super::{
    DbError, Tx,
    dependents::Dependents,
    registry::{PRIVATE, Stored},
};

/// How many use it, directly or by fragments.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// Machines.
    pub machines: i64,
    /// Organizations that these are in.
    pub organizations: i64,
    /// Machines of other organizations.
    pub machines_elsewhere: i64,
    /// Other organizations.
    pub organizations_elsewhere: i64,
}

/// A revision ('' is the present one) is used by who names it, and the present one by who names the newest.
pub(super) const USAGE: &str = "WITH RECURSIVE named (kind, id, revision) AS (
         SELECT user_kind, user_id, user_revision FROM registry_uses
         WHERE name = $2 AND (owner = $1 OR owner = $3)
         UNION
         SELECT u.user_kind, u.user_id, u.user_revision
         FROM named n JOIN fragments f ON n.kind = 'fragment' AND f.id = n.id
              CROSS JOIN fragment_uses u
         WHERE u.fragment_id = n.id AND u.user_kind IN ('part', 'fragment')
           AND u.version IN (n.revision, CASE n.revision WHEN '' THEN f.revision ELSE n.revision END)
     )
     SELECT COUNT(DISTINCT p.machine_id), COUNT(DISTINCT l.organization_id),
            COUNT(DISTINCT CASE WHEN l.organization_id <> $1 THEN p.machine_id END),
            COUNT(DISTINCT CASE WHEN l.organization_id <> $1 THEN l.organization_id END)
     FROM named n JOIN parts p ON p.id = n.id JOIN machines m ON m.id = p.machine_id
          JOIN locations l ON l.id = m.location_id
     WHERE n.kind = 'part' AND ($4 = 0 OR l.organization_id = $1)";

/// Counts.
pub fn usage(tx: &Tx<'_>, item: &Stored) -> Result<Usage, DbError> {
    let args =
        [(&*item.organization).into(), (&*item.name).into(), item.owner().into(), (item.visibility == PRIVATE).into()];
    let counted = tx.first(USAGE, &args, |row| {
        Ok(Usage {
            machines: row.int(0)?,
            organizations: row.int(1)?,
            machines_elsewhere: row.int(2)?,
            organizations_elsewhere: row.int(3)?,
        })
    });
    Ok(counted?.unwrap_or_default())
}

/// Who keeps it from being deleted.
pub(super) fn dependents(item: &Stored) -> Dependents<'_> {
    Dependents::on_item(&item.organization, item.visibility == PRIVATE, item.owner(), &item.name)
}
