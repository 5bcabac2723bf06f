//! What is kept only to be looked at later, and how it is made less: rows of the audit log, former states of parts.
//!
//! Found on a reader's connection and deleted by key in small steps, so that nobody's change waits for it.

use super::{DbError, Store, Tx};
use crate::clock::Millis;

/// Rows deleted in one transaction.
const AT_ONCE: i64 = 200;

/// What grows without end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kept {
    /// Rows of the audit log.
    Audit,
    /// What parts were before each change.
    Parts,
}

struct Statements {
    /// Owners of rows older than $1.
    owners: &'static str,
    /// The time of the last one of a step, of the owner $1, older than $2.
    step: &'static str,
    /// Everything of the owner $1 up to that time.
    delete: &'static str,
}

impl Kept {
    /// The key of each table begins with its owner and a time: no step reads through all of it.
    fn statements(self) -> Statements {
        match self {
            Self::Audit => Statements {
                owners: "SELECT DISTINCT organization_id FROM audit WHERE happened_at < $1",
                step: "SELECT MAX(happened_at) FROM (SELECT happened_at FROM audit
                       WHERE organization_id = $1 AND happened_at < $2 ORDER BY happened_at LIMIT $3) AS step",
                delete: "DELETE FROM audit WHERE organization_id = $1 AND happened_at <= $2",
            },
            Self::Parts => Statements {
                owners: "SELECT DISTINCT part_id FROM part_history WHERE changed_at < $1",
                step: "SELECT MAX(changed_at) FROM (SELECT changed_at FROM part_history
                       WHERE part_id = $1 AND changed_at < $2 ORDER BY changed_at LIMIT $3) AS step",
                delete: "DELETE FROM part_history WHERE part_id = $1 AND changed_at <= $2",
            },
        }
    }
}

/// Deletes what is older than that moment; how many rows.
pub async fn forget(store: &Store, what: Kept, before: Millis) -> Result<usize, DbError> {
    let Statements { owners, step, delete } = what.statements();
    let found = move |tx: &Tx<'_>| tx.all(owners, &[before.into()], |row| row.text(0));
    let mut deleted = 0;
    for owner in store.scan::<_, DbError>(found).await? {
        loop {
            let owner = owner.clone();
            let gone = store.write::<_, DbError>(move |tx| {
                let args = [(&owner).into(), before.into(), AT_ONCE.into()];
                match tx.first(step, &args, |row| row.maybe_int(0))?.flatten() {
                    Some(last) => tx.run(delete, &[(&owner).into(), last.into()]),
                    None => Ok(0),
                }
            });
            match gone.await? {
                0 => break,
                count => deleted += count,
            }
        }
    }
    Ok(deleted)
}
