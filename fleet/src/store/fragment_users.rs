//! Who uses a fragment: counted, named, and the reason why it cannot be deleted.
//!
//! Anybody may write any id into a configuration; a use is what the fragment's visibility allows.

use api::pb::platform::app::v1::FragmentImportList;
use prost::Message;

use super::{DbError, Tx, audit, fragments, news, news::News, registry_users};
use crate::{
    authz::{Fragment, Granted, right},
    clock::Millis,
    hex,
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

/// Counted now.
pub fn usage(tx: &Tx<'_>, id: &str) -> Result<Usage, DbError> {
    let sql = of_uses!(
        "COUNT(*), COUNT(DISTINCT p.machine_id), COUNT(DISTINCT l.organization_id),
         COUNT(DISTINCT CASE WHEN l.organization_id <> f.organization_id THEN l.organization_id END)"
    );
    let counted = tx.first(sql, &[id.into()], |row| {
        Ok(Usage { parts: row.int(0)?, machines: row.int(1)?, organizations: row.int(2)?, others: row.int(3)? })
    });
    Ok(counted?.unwrap_or_default())
}

/// How many machines of one organization name it directly in one of their parts, and may use it.
pub fn machines_in(tx: &Tx<'_>, id: &str, organization: &str) -> Result<i64, DbError> {
    let sql = of_uses!("COUNT(DISTINCT p.machine_id)" and "l.organization_id = $2");
    Ok(tx.first(sql, &[id.into(), organization.into()], |row| row.int(0))?.unwrap_or_default())
}

/// Named in a refusal; the rest is counted.
const USERS_NAMED: i64 = 10;

/// Who uses a fragment, for the person who wants it gone: those of its organization by name, others by number.
#[derive(Debug, Default)]
pub struct Users {
    /// "part \"arm-main\" of machine \"arm\" (ID)"; not more than a person reads.
    pub here: Vec<String>,
    /// All of them, in this organization and in others.
    pub count: i64,
    /// Whether some are in others.
    pub elsewhere: bool,
}

/// Whoever names it and may use it: parts, fragments, default fragments of organizations.
pub fn users(tx: &Tx<'_>, id: &str) -> Result<Users, DbError> {
    let by_parts = usage(tx, id)?;
    let mut users = Users { count: by_parts.parts, elsewhere: by_parts.others > 0, here: Vec::new() };
    let sql = "SELECT p.id, p.name, m.name
               FROM fragment_uses u JOIN fragments f ON f.id = u.fragment_id JOIN parts p ON p.id = u.user_id
                    JOIN machines m ON m.id = p.machine_id JOIN locations l ON l.id = m.location_id
               WHERE u.fragment_id = $1 AND u.user_kind = 'part' AND l.organization_id = f.organization_id
               ORDER BY p.id LIMIT $2";
    users.here = tx.all(sql, &[id.into(), USERS_NAMED.into()], |row| {
        Ok(format!("part {:?} of machine {:?} ({})", row.str(1)?, row.str(2)?, row.str(0)?))
    })?;
    let sql = "SELECT o.id, o.name, CAST(CASE WHEN o.organization_id = f.organization_id THEN 1 ELSE 0 END AS BIGINT)
               FROM fragment_uses u JOIN fragments f ON f.id = u.fragment_id JOIN fragments o ON o.id = u.user_id
               WHERE u.fragment_id = $1 AND u.user_kind = 'fragment'
                 AND (f.visibility <> 1 OR f.organization_id = o.organization_id) ORDER BY o.id";
    let fragments = tx.all(sql, &[id.into()], |row| Ok((row.text(0)?, row.text(1)?, row.flag(2)?)))?;
    users.count += i64::try_from(fragments.len()).unwrap_or(i64::MAX);
    users.elsewhere |= fragments.iter().any(|(.., own)| !own);
    let own = fragments.into_iter().filter(|(.., own)| *own);
    users.here.extend(own.map(|(id, name, _)| format!("fragment {name:?} ({id})")));
    let sql =
        "SELECT o.id, o.name, o.default_fragments, CAST(CASE WHEN o.id = f.organization_id THEN 1 ELSE 0 END AS BIGINT)
               FROM organizations o JOIN fragments f ON f.id = $1
               WHERE o.default_fragments IS NOT NULL AND (f.visibility <> 1 OR f.organization_id = o.id)";
    let defaults = tx.all(sql, &[id.into()], |row| Ok((row.text(1)?, row.text(2)?, row.flag(3)?)))?;
    for (name, list, own) in defaults {
        let named = hex::decode(&list).and_then(|bytes| FragmentImportList::decode(&*bytes).ok()).unwrap_or_default();
        if named.fragments.iter().any(|one| one.fragment_id == id) {
            users.count += 1;
            users.elsewhere |= !own;
            users.here.extend(own.then(|| format!("default fragments of organization {name:?}")));
        }
    }
    users.here.truncate(usize::try_from(USERS_NAMED).unwrap_or_default());
    Ok(users)
}

/// Removes a fragment that nobody uses, with every revision.
pub fn delete(tx: &Tx<'_>, granted: &Granted<Fragment, right::WriteFragment>, now: Millis) -> Result<(), Refusal> {
    let old = fragments::get(tx, granted.id())?.ok_or_else(|| Refusal::not_found("fragment", granted.id()))?;
    let users = users(tx, granted.id())?;
    if users.count > 0 {
        let others = users.count - i64::try_from(users.here.len()).unwrap_or_default();
        let more = (others > 0).then(|| format!("{others} more"));
        let list = users.here.into_iter().chain(more).collect::<Vec<_>>().join(", ");
        return Err(Refusal::precondition(format!("the fragment is in use: take it out of {list} first")));
    }
    remove(tx, granted.id())?;
    news::tell(tx, News::Tree);
    news::tell(tx, News::Configurations);
    Ok(audit::record(tx, granted, now, "DeleteFragment", &format!("{:?}", old.name))?)
}

/// The rows. Those who named it without being allowed to use it go on naming what is not there.
pub(super) fn remove(tx: &Tx<'_>, id: &str) -> Result<(), DbError> {
    let sql = "DELETE FROM fragment_uses WHERE fragment_id = $1 OR (user_kind = 'fragment' AND user_id = $1)";
    tx.run(sql, &[id.into()])?;
    registry_users::forget(tx, "fragment", id)?;
    tx.run("DELETE FROM fragments WHERE id = $1", &[id.into()])?;
    Ok(())
}
