//! Former revisions of fragments, and how they are made less: those that were replaced long ago and that nobody names.
//!
//! A revision may be named by a part, by any revision of another fragment, which a part may name in its turn, and by an
//! organization's default fragments.

use super::{
    DbError, Store, Tx,
    naming::{self, of_any_kind},
};
use crate::clock::Millis;

/// Looked for at once, and deleted in one transaction.
const AT_ONCE: i64 = 200;

/// Behind revision ($1, made at $2), those that were replaced before $3. The newest of those made before that moment was not
/// replaced by then, as far as this tells.
pub(super) const FREE: &str = concat!(
    "SELECT r.fragment_id, r.made_at, r.revision FROM fragment_revisions r
     WHERE r.fragment_id >= $1 AND (r.fragment_id > $1 OR r.made_at > $2)
       AND EXISTS (SELECT 1 FROM fragment_revisions l
                   WHERE l.fragment_id = r.fragment_id AND l.made_at > r.made_at AND l.made_at < $3)
       AND NOT EXISTS (SELECT 1 FROM fragment_uses u
                       WHERE u.fragment_id = r.fragment_id AND u.version = r.revision AND u.",
    of_any_kind!(),
    ") ORDER BY r.fragment_id, r.made_at LIMIT $4"
);
pub(super) const END: &str = concat!(
    "DELETE FROM fragment_revisions WHERE fragment_id = $1 AND revision = $2
     AND NOT EXISTS (SELECT 1 FROM fragment_uses WHERE fragment_id = $1 AND version = $2 AND ",
    of_any_kind!(),
    ")"
);

/// Deletes the revisions that were replaced before that moment and that nobody names; how many.
pub async fn forget(store: &Store, before: Millis) -> Result<usize, DbError> {
    let mut deleted = 0;
    loop {
        match pass(store, before).await? {
            0 => return Ok(deleted),
            // What these named may be free now.
            gone => deleted += gone,
        }
    }
}

async fn pass(store: &Store, before: Millis) -> Result<usize, DbError> {
    let mut deleted = 0;
    let mut after = (String::new(), Millis::MIN);
    loop {
        let (id, made_at) = after.clone();
        let free = move |tx: &Tx<'_>| {
            let args = [(&*id).into(), made_at.into(), before.into(), AT_ONCE.into()];
            tx.all(FREE, &args, |row| Ok((row.text(0)?, row.int(1)?, row.text(2)?)))
        };
        let free: Vec<(String, Millis, String)> = store.scan::<_, DbError>(free).await?;
        let Some((id, made_at, _)) = free.last() else { break };
        after = (id.clone(), *made_at);
        deleted +=
            store.write::<usize, DbError>(move |tx| free.iter().map(|(id, _, name)| end(tx, id, name)).sum()).await?;
    }
    Ok(deleted)
}

/// Unless somebody came to name it since it was looked for.
fn end(tx: &Tx<'_>, fragment: &str, revision: &str) -> Result<usize, DbError> {
    let gone = tx.run(END, &[fragment.into(), revision.into()])?;
    if gone > 0 {
        naming::forget_former(tx, fragment, revision)?;
    }
    Ok(gone)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Durability;

    #[tokio::test]
    async fn what_was_named_since_it_was_looked_for_stays() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path(), None, Durability::default()).unwrap();
        let ended = store.write::<_, DbError>(|tx| {
            tx.run("INSERT INTO organizations (id, name, region, created_at) VALUES ('o', 'Acme', '', 0)", &[])?;
            let sql = "INSERT INTO fragments (id, organization_id, name, visibility, config, revision, updated_at,
                           created_at) VALUES ('base', 'o', '', 1, '{}', '2', 1000, 0)";
            tx.run(sql, &[])?;
            for (revision, made_at) in [("1", 0), ("2", 1000)] {
                let sql = "INSERT INTO fragment_revisions (fragment_id, revision, name, visibility, config, made_at,
                               edited_by_type, edited_by) VALUES ('base', $1, '', 1, '{}', $2, 0, '')";
                tx.run(sql, &[revision.into(), made_at.into()])?;
            }
            let names = "INSERT INTO fragment_uses (user_kind, user_id, user_revision, fragment_id, version)
                         VALUES ('part', 'arm', '', 'base', '1')";
            tx.run(names, &[])?;
            end(tx, "base", "1")
        });
        assert_eq!(ended.await.unwrap(), 0);
        assert_eq!(forget(&store, 2000).await.unwrap(), 0);
        let silent = "DELETE FROM fragment_uses";
        store.write::<_, DbError>(move |tx| tx.run(silent, &[])).await.unwrap();
        assert_eq!(forget(&store, 1000).await.unwrap(), 0, "it was the present one until then");
        assert_eq!(forget(&store, 2000).await.unwrap(), 1);
    }
}
