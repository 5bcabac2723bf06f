//! Who would miss a fragment or a registry item: the reason why it cannot be deleted.
//!
//! That is who names it and may use it, by what they are now, and who names a former revision of a fragment that named it:
//! a configuration that is bound to a revision stays what it was.

use super::{Arg, DbError, Tx};

/// Who they are: those of the thing's own organization by name, others by number.
#[derive(Debug, Default)]
pub struct Dependents {
    here: Vec<String>,
    count: i64,
    /// How many of them are in other organizations.
    pub elsewhere: i64,
}

impl Dependents {
    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// For a sentence, not longer than a person reads.
    pub fn list(&self) -> String {
        let others = self.count - i64::try_from(self.here.len()).unwrap_or_default();
        let more = (others > 0).then(|| format!("{others} more"));
        self.here.iter().cloned().chain(more).collect::<Vec<_>>().join(", ")
    }
}

/// One statement on those who depend on a thing of organization $1, if $2 is 1 on those of that organization alone.
macro_rules! of_dependents {
    ($uses:literal, $rest:literal) => {
        concat!(
            // Revisions that named it, and those that name one of these, however many lie between. What is joined crosswise
            // SQLite takes in the order of the text: from the few to what they lead to.
            "WITH RECURSIVE former (id, revision) AS (
                 SELECT user_id, user_revision FROM ",
            $uses,
            " AND user_kind = 'fragment' AND user_revision <> ''
                 UNION
                 SELECT u.user_id, u.user_revision
                 FROM former r CROSS JOIN fragment_uses u
                 WHERE u.fragment_id = r.id AND u.user_kind = 'fragment' AND u.version = r.revision
                   AND u.user_revision <> ''
             ), present (kind, id, through) AS (
                 SELECT user_kind, user_id, '' FROM ",
            $uses,
            " AND user_revision = ''
                 UNION ALL
                 SELECT u.user_kind, u.user_id, r.revision || ' ' || r.id
                 FROM former r CROSS JOIN fragment_uses u
                 WHERE u.fragment_id = r.id AND u.user_kind IN ('part', 'fragment', 'organization')
                   AND u.version = r.revision AND u.user_revision = ''
             ), dependents (kind, id, through) AS (
                 SELECT kind, id, MIN(through) FROM present GROUP BY kind, id
             ), known (kind, id, through, name, machine, organization) AS (
                 SELECT d.kind, d.id, d.through, p.name, m.name, l.organization_id
                 FROM dependents d CROSS JOIN parts p
                      JOIN machines m ON m.id = p.machine_id JOIN locations l ON l.id = m.location_id
                 WHERE d.kind = 'part' AND p.id = d.id
                 UNION ALL
                 SELECT d.kind, d.id, d.through, f.name, '', f.organization_id
                 FROM dependents d CROSS JOIN fragments f WHERE d.kind = 'fragment' AND f.id = d.id
                 UNION ALL
                 SELECT d.kind, d.id, d.through, o.name, '', o.id
                 FROM dependents d CROSS JOIN organizations o WHERE d.kind = 'organization' AND o.id = d.id
             ) ",
            $rest
        )
    };
}

/// Both statements on whatever the uses are of.
macro_rules! statements {
    ($uses:literal) => {
        Statements {
            count: of_dependents!(
                $uses,
                "SELECT COUNT(*), COUNT(CASE WHEN organization <> $1 THEN 1 END) FROM known
                 WHERE $2 = 0 OR organization = $1"
            ),
            // The rest is counted.
            list: of_dependents!(
                $uses,
                "SELECT kind, id, name, machine, through FROM known WHERE organization = $1 AND $2 >= 0
                 ORDER BY CASE kind WHEN 'part' THEN 1 WHEN 'fragment' THEN 2 ELSE 3 END, id LIMIT 10"
            ),
        }
    };
}

struct Statements {
    count: &'static str,
    list: &'static str,
}

const ON_FRAGMENT: Statements = statements!("fragment_uses WHERE fragment_id = $3");
const ON_ITEM: Statements = statements!("registry_uses WHERE (owner = $1 OR owner = $3) AND name = $4");

/// On a fragment of organization $1, whose id is $3.
pub fn on_fragment(tx: &Tx<'_>, organization: &str, private: bool, id: &str) -> Result<Dependents, DbError> {
    dependents(tx, &ON_FRAGMENT, &[organization.into(), private.into(), id.into()])
}

/// On a registry item of organization $1, which is written with its namespace, $3, or its id.
pub fn on_item(
    tx: &Tx<'_>,
    organization: &str,
    private: bool,
    namespace: &str,
    name: &str,
) -> Result<Dependents, DbError> {
    dependents(tx, &ON_ITEM, &[organization.into(), private.into(), namespace.into(), name.into()])
}

fn dependents(tx: &Tx<'_>, statements: &Statements, args: &[Arg<'_>]) -> Result<Dependents, DbError> {
    let counted = tx.first(statements.count, args, |row| Ok((row.int(0)?, row.int(1)?)))?;
    let (count, elsewhere) = counted.unwrap_or_default();
    let here = tx.all(statements.list, args, |row| {
        let (kind, id, name, machine, through) = (row.str(0)?, row.str(1)?, row.str(2)?, row.str(3)?, row.str(4)?);
        let who = match kind {
            "part" => format!("part {name:?} of machine {machine:?} ({id})"),
            "fragment" => format!("fragment {name:?} ({id})"),
            _ => format!("default fragments of organization {name:?}"),
        };
        Ok(match through.split_once(' ') {
            Some((revision, fragment)) => format!("{who}, by revision {revision} of fragment {fragment},"),
            None => who,
        })
    })?;
    Ok(Dependents { here, count, elsewhere })
}

#[cfg(test)]
mod tests {
    use super::{
        super::{Durability, Store, fragment_users, fragments},
        *,
    };

    /// A million parts may use fragments: nobody goes through them all to learn about one.
    #[tokio::test]
    async fn uses_are_looked_for_by_what_is_used() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path(), None, Durability::default()).unwrap();
        let statements = [
            (fragment_users::USAGE, 1),
            (fragments::LEVELS_ABOVE, 3),
            (ON_FRAGMENT.count, 3),
            (ON_FRAGMENT.list, 3),
            (ON_ITEM.count, 4),
            (ON_ITEM.list, 4),
        ];
        for (sql, args) in statements {
            let explain: &'static str = format!("EXPLAIN QUERY PLAN {sql}").leak();
            let args = vec![Arg::from(""); args];
            let steps = store.read::<_, DbError>(|tx| tx.all(explain, &args, |row| row.text(3))).await.unwrap();
            let of_uses: Vec<&String> = steps.iter().filter(|step| step.contains("_uses_")).collect();
            let by_what_is_used =
                |step: &&String| step.contains("(fragment_id=?") || step.contains("(owner=? AND name=?");
            assert!(!of_uses.is_empty() && of_uses.iter().all(by_what_is_used), "{sql}: {steps:#?}");
            assert!(!steps.iter().any(|step| step.starts_with("SCAN") && step.contains("_uses")), "{sql}: {steps:#?}");
        }
    }
}
