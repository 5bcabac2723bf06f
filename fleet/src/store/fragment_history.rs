//! Former revisions of fragments, and how they are made less: those that were replaced long ago and that nobody names.
//!
//! A revision may be named by a part, by any revision of another fragment, which a part may name in its turn, and by an
//! organization's default fragments. What names what is read on a reader's connection, all of it; what was written since
//! is looked at again in the transaction that deletes, so that nothing is deleted that somebody names.

use std::collections::HashSet;

use api::pb::platform::app::v1::FragmentImportList;
use prost::Message;
use serde_json::Value;

use super::{DbError, Store, Tx};
use crate::{
    clock::Millis,
    compose::{self, Key, Library},
    hex,
};

/// Configurations read at once: each may be a mebibyte.
const PAGE: i64 = 20;
/// Rows deleted in one transaction.
const AT_ONCE: usize = 200;

/// Deletes the revisions that were replaced before that moment and that nobody names; how many. What was written before
/// `lately` must be there to be read.
pub async fn forget(store: &Store, before: Millis, lately: Millis) -> Result<usize, DbError> {
    // The newest of those made before that moment was not replaced by then, as far as this tells.
    let sql = "SELECT fragment_id, MAX(made_at) FROM fragment_revisions WHERE made_at < $1
               GROUP BY fragment_id HAVING COUNT(*) > 1 ORDER BY fragment_id";
    let found = move |tx: &Tx<'_>| tx.all(sql, &[before.into()], |row| Ok((row.text(0)?, row.int(1)?)));
    let old: Vec<(String, Millis)> = store.scan::<_, DbError>(found).await?;
    if old.is_empty() {
        return Ok(0);
    }
    let named = all_named(store).await?;
    let mut deleted = 0;
    for (id, last) in old {
        let sql = "SELECT revision FROM fragment_revisions WHERE fragment_id = $1 AND made_at < $2 ORDER BY made_at";
        let of = id.clone();
        let revisions = move |tx: &Tx<'_>| tx.all(sql, &[(&*of).into(), last.into()], |row| row.text(0));
        let keys = store.scan::<_, DbError>(revisions).await?;
        let keys = keys.into_iter().map(|revision| Key { id: id.clone(), version: Some(revision) });
        let free: Vec<Key> = keys.filter(|key| !named.contains(key)).collect();
        for step in free.chunks(AT_ONCE) {
            let (id, step) = (id.clone(), step.to_vec());
            let gone = store.write::<usize, DbError>(move |tx| {
                let named = named_lately(tx, &id, lately)?;
                let sql = "DELETE FROM fragment_revisions WHERE fragment_id = $1 AND revision = $2";
                let free = step.iter().filter(|key| !named.contains(key));
                free.map(|key| tx.run(sql, &[(&*key.id).into(), key.version.as_deref().into()])).sum()
            });
            deleted += gone.await?;
        }
    }
    Ok(deleted)
}

/// Every revision of any fragment that something names.
async fn all_named(store: &Store) -> Result<HashSet<Key>, DbError> {
    let mut named = store.scan::<_, DbError>(named_by_defaults).await?;
    let mut after = String::new();
    loop {
        let sql = "SELECT id, config FROM parts WHERE id > $1
                       AND EXISTS (SELECT 1 FROM fragment_uses WHERE user_kind = 'part' AND user_id = parts.id)
                   ORDER BY id LIMIT $2";
        let from = after.clone();
        let page = move |tx: &Tx<'_>| {
            tx.all(sql, &[(&*from).into(), PAGE.into()], |row| Ok((row.text(0)?, named_by(&row.text(1)?))))
        };
        let page: Vec<(String, Vec<Key>)> = store.scan::<_, DbError>(page).await?;
        let Some((last, _)) = page.last() else { break };
        after.clone_from(last);
        named.extend(page.into_iter().flat_map(|(_, keys)| keys));
    }
    let mut after = (String::new(), Millis::MIN);
    loop {
        let sql = "SELECT fragment_id, made_at, config FROM fragment_revisions
                   WHERE fragment_id >= $1 AND (fragment_id > $1 OR made_at > $2)
                   ORDER BY fragment_id, made_at LIMIT $3";
        let (id, made_at) = after.clone();
        let page = move |tx: &Tx<'_>| {
            tx.all(sql, &[(&*id).into(), made_at.into(), PAGE.into()], |row| {
                Ok(((row.text(0)?, row.int(1)?), named_by(&row.text(2)?)))
            })
        };
        let page: Vec<((String, Millis), Vec<Key>)> = store.scan::<_, DbError>(page).await?;
        let Some((last, _)) = page.last() else { break };
        after.clone_from(last);
        named.extend(page.into_iter().flat_map(|(_, keys)| keys));
    }
    Ok(named)
}

/// The revisions of that fragment that are named by what was written after that moment.
fn named_lately(tx: &Tx<'_>, id: &str, lately: Millis) -> Result<HashSet<Key>, DbError> {
    let mut named = named_by_defaults(tx)?;
    // Ids tell kinds apart. Asked for the kind as well, SQLite goes through all uses of that kind and not of the fragment.
    for sql in [
        "SELECT p.config FROM fragment_uses u JOIN parts p ON p.id = u.user_id
         WHERE u.fragment_id = $1 AND p.updated_at >= $2",
        "SELECT r.config FROM fragment_uses u JOIN fragment_revisions r ON r.fragment_id = u.user_id
         WHERE u.fragment_id = $1 AND r.made_at >= $2",
    ] {
        let keys = tx.all(sql, &[id.into(), lately.into()], |row| Ok(named_by(&row.text(0)?)))?;
        named.extend(keys.into_iter().flatten());
    }
    Ok(named)
}

/// What a document names by revision.
fn named_by(config: &str) -> Vec<Key> {
    let Ok(Value::Object(document)) = serde_json::from_str(config) else { return Vec::new() };
    let named = compose::missing(&document, &Library::default());
    named.into_iter().filter(|key| key.version.is_some()).collect()
}

/// What organizations want in their new machines. Kept as the bytes of a message, in hexadecimal digits.
fn named_by_defaults(tx: &Tx<'_>) -> Result<HashSet<Key>, DbError> {
    let sql = "SELECT default_fragments FROM organizations WHERE default_fragments IS NOT NULL";
    let lists = tx.all(sql, &[], |row| row.text(0))?;
    let lists = lists.iter().filter_map(|list| FragmentImportList::decode(&*hex::decode(list)?).ok());
    Ok(lists
        .flat_map(|list| list.fragments)
        .map(|one| Key { id: one.fragment_id, version: Some(one.version) })
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Durability;

    #[tokio::test]
    async fn what_was_named_since_it_was_looked_for_stays() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path(), None, Durability::default()).unwrap();
        let filled = store.write::<_, DbError>(|tx| {
            tx.run("INSERT INTO organizations (id, name, region, created_at) VALUES ('o', 'Acme', '', 0)", &[])?;
            for id in ["base", "over"] {
                let sql = "INSERT INTO fragments (id, organization_id, name, visibility, config, revision, updated_at,
                               created_at) VALUES ($1, 'o', $1, 1, '{}', '2', 1000, 0)";
                tx.run(sql, &[id.into()])?;
            }
            for (id, revision, config, made_at) in [
                ("base", "1", "{}", 0),
                ("base", "2", "{}", 1000),
                ("over", "1", r#"{"fragments": [{"id": "base", "version": "1"}]}"#, 1000),
            ] {
                let sql = "INSERT INTO fragment_revisions (fragment_id, revision, name, visibility, config, made_at,
                               edited_by_type, edited_by) VALUES ($1, $2, '', 1, $3, $4, 0, '')";
                tx.run(sql, &[id.into(), revision.into(), config.into(), made_at.into()])?;
            }
            tx.run(
                "INSERT INTO fragment_uses (user_kind, user_id, fragment_id) VALUES ('fragment', 'over', 'base')",
                &[],
            )
        });
        filled.await.unwrap();
        let first = Key { id: "base".into(), version: Some("1".into()) };
        for (lately, expected) in [(1000, HashSet::from([first])), (1001, HashSet::new())] {
            let named = store.read::<_, DbError>(|tx| named_lately(tx, "base", lately)).await.unwrap();
            assert_eq!(named, expected, "since {lately}");
        }
        assert_eq!(forget(&store, 2000, 1001).await.unwrap(), 0, "it was there to be seen");
        let silent = "UPDATE fragment_revisions SET config = '{}' WHERE fragment_id = 'over'";
        store.write::<_, DbError>(move |tx| tx.run(silent, &[])).await.unwrap();
        assert_eq!(forget(&store, 2000, 1001).await.unwrap(), 1);
    }
}
