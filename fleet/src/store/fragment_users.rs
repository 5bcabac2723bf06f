//! Who uses a fragment, counted; and its end, when nobody does.
//!
//! Anybody may write any id into a configuration; a use is what the fragment's visibility allows.

use super::{DbError, Tx, audit, dependents::Dependents, fragments, naming, news, news::News};
use crate::{
    authz::{Fragment, Granted, right},
    clock::Millis,
    refusal::Refusal,
};

/// Who names a fragment directly and may use it.
#[derive(Debug, Default, Clone, Copy)]
pub struct Usage {
    /// Parts that do.
    pub parts: i64,
    /// Machines that these belong to.
    pub machines: i64,
    /// Organizations that these lie in.
    pub organizations: i64,
    /// Of these, all but the fragment's own.
    pub others: i64,
}

/// Of the parts that name a fragment ($1) directly and may use it.
macro_rules! of_uses {
    ($columns:literal $(and $condition:literal)?) => {
        concat!(
            "SELECT ",
            $columns,
            " FROM fragment_uses u JOIN fragments f ON f.id = u.fragment_id JOIN parts p ON p.id = u.user_id
                   JOIN machines m ON m.id = p.machine_id JOIN locations l ON l.id = m.location_id
              WHERE u.fragment_id = $1 AND u.user_kind = 'part'
                AND (f.visibility <> 1 OR f.organization_id = l.organization_id)"
            $(, " AND ", $condition)?
        )
    };
}

pub(super) const USAGE: &str = of_uses!(
    "COUNT(DISTINCT p.id), COUNT(DISTINCT p.machine_id), COUNT(DISTINCT l.organization_id),
     COUNT(DISTINCT CASE WHEN l.organization_id <> f.organization_id THEN l.organization_id END)"
);

/// Counted now.
pub fn usage(tx: &Tx<'_>, id: &str) -> Result<Usage, DbError> {
    let counted = tx.first(USAGE, &[id.into()], |row| {
        Ok(Usage { parts: row.int(0)?, machines: row.int(1)?, organizations: row.int(2)?, others: row.int(3)? })
    });
    Ok(counted?.unwrap_or_default())
}

/// How many machines of one organization name it directly in one of their parts, and may use it.
pub fn machines_in(tx: &Tx<'_>, id: &str, organization: &str) -> Result<i64, DbError> {
    let sql = of_uses!("COUNT(DISTINCT p.machine_id)" and "l.organization_id = $2");
    Ok(tx.first(sql, &[id.into(), organization.into()], |row| row.int(0))?.unwrap_or_default())
}

/// Removes a fragment that nobody uses, with every revision.
pub fn delete(tx: &Tx<'_>, granted: &Granted<Fragment, right::WriteFragment>, now: Millis) -> Result<(), Refusal> {
    let old = fragments::get(tx, granted.id())?.ok_or_else(|| Refusal::not_found("fragment", granted.id()))?;
    if let Some(who) = dependents(&old).told(tx)? {
        return Err(Refusal::precondition(format!("the fragment is in use: {who}")));
    }
    remove(tx, granted.id())?;
    news::tell(tx, News::Tree);
    news::tell(tx, News::Configurations);
    Ok(audit::record(tx, granted, now, "DeleteFragment", &format!("{:?}", old.name))?)
}

/// Who keeps it from being deleted.
pub(super) fn dependents(fragment: &fragments::Stored) -> Dependents<'_> {
    Dependents::on_fragment(&fragment.organization, fragment.visibility == fragments::PRIVATE, &fragment.id)
}

/// The rows. Those who named it without being allowed to use it go on naming what is not there.
pub(super) fn remove(tx: &Tx<'_>, id: &str) -> Result<(), DbError> {
    naming::forget(tx, naming::Kind::Fragment, id)?;
    tx.run("DELETE FROM fragment_uses WHERE fragment_id = $1", &[id.into()])?;
    tx.run("DELETE FROM fragments WHERE id = $1", &[id.into()])?;
    Ok(())
}
