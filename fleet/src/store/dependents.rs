//! Who depends on a fragment or a registry item: the reason why it cannot be deleted.
//!
//! That is who names it, and may use it, by what they are now; and who is bound to a former revision of a fragment that
//! named it: a configuration that is bound to a revision stays what it was. However many such revisions lie between, each
//! of them has to be one that may be used there.

use super::{Arg, DbError, Tx, naming::of_any_kind};

/// A statement on those who depend on a thing of organization $1, which is private if $2 is 1.
///
/// What is joined crosswise SQLite takes in the order of the text: from the few to what they lead to. `whose` is the one
/// organization that may use what lies on the way, or nothing where anybody may.
macro_rules! of_dependents {
    ($uses:literal, $condition:literal, $rest:literal) => {
        concat!(
            "WITH RECURSIVE former (id, revision, whose) AS (
                 SELECT u.user_id, u.user_revision,
                        CASE WHEN $2 = 1 THEN $1
                             WHEN f.visibility = 1 OR v.visibility = 1 THEN f.organization_id ELSE '' END
                 FROM ",
            $uses,
            " u CROSS JOIN fragments f CROSS JOIN fragment_revisions v
                 WHERE ",
            $condition,
            " AND u.user_kind = 'fragment' AND u.user_revision <> ''
                   AND f.id = u.user_id AND v.fragment_id = u.user_id AND v.revision = u.user_revision
                   AND ($2 = 0 OR f.organization_id = $1 OR (f.visibility <> 1 AND v.visibility <> 1))
                 UNION
                 SELECT u.user_id, u.user_revision,
                        CASE WHEN r.whose <> '' THEN r.whose
                             WHEN f.visibility = 1 OR v.visibility = 1 THEN f.organization_id ELSE '' END
                 FROM former r CROSS JOIN fragment_uses u CROSS JOIN fragments f CROSS JOIN fragment_revisions v
                 WHERE u.fragment_id = r.id AND u.user_kind = 'fragment' AND u.version = r.revision
                   AND u.user_revision <> ''
                   AND f.id = u.user_id AND v.fragment_id = u.user_id AND v.revision = u.user_revision
                   AND (r.whose = '' OR f.organization_id = r.whose OR (f.visibility <> 1 AND v.visibility <> 1))
             ), present (kind, id, through, whose) AS (
                 SELECT u.user_kind, u.user_id, '', CASE WHEN $2 = 1 THEN $1 ELSE '' END FROM ",
            $uses,
            " u WHERE ",
            $condition,
            " AND u.user_revision = ''
                 UNION ALL
                 SELECT u.user_kind, u.user_id, r.revision || ' ' || r.id, r.whose
                 FROM former r CROSS JOIN fragment_uses u
                 WHERE u.fragment_id = r.id AND u.version = r.revision AND u.user_revision = '' AND u.",
            of_any_kind!(),
            "), known (kind, id, through, whose, name, machine, organization) AS (
                 SELECT n.kind, n.id, n.through, n.whose, p.name, m.name, l.organization_id
                 FROM present n CROSS JOIN parts p
                      JOIN machines m ON m.id = p.machine_id JOIN locations l ON l.id = m.location_id
                 WHERE n.kind = 'part' AND p.id = n.id
                 UNION ALL
                 SELECT n.kind, n.id, n.through, n.whose, f.name, '', f.organization_id
                 FROM present n CROSS JOIN fragments f WHERE n.kind = 'fragment' AND f.id = n.id
                 UNION ALL
                 SELECT n.kind, n.id, n.through, n.whose, o.name, '', o.id
                 FROM present n CROSS JOIN organizations o WHERE n.kind = 'organization' AND o.id = n.id
             ), dependents (kind, id, name, machine, organization, through) AS (
                 SELECT kind, id, name, machine, organization, MIN(through) FROM known
                 WHERE whose = '' OR whose = organization GROUP BY kind, id, name, machine, organization
             ) ",
            $rest
        )
    };
}

struct Statements {
    count: &'static str,
    list: &'static str,
}

/// Both statements, on whatever the uses are of.
macro_rules! statements {
    ($uses:literal, $condition:literal) => {
        Statements {
            count: of_dependents!(
                $uses,
                $condition,
                "SELECT COUNT(*), COUNT(CASE WHEN organization <> $1 THEN 1 END) FROM dependents"
            ),
            // The rest is counted.
            list: of_dependents!(
                $uses,
                $condition,
                "SELECT kind, id, name, machine, through FROM dependents WHERE organization = $1
                 ORDER BY CASE kind WHEN 'part' THEN 1 WHEN 'fragment' THEN 2 ELSE 3 END, id LIMIT 10"
            ),
        }
    };
}

const ON_FRAGMENT: Statements = statements!("fragment_uses", "u.fragment_id = $3");
const ON_ITEM: Statements = statements!("registry_uses", "(u.owner = $1 OR u.owner = $3) AND u.name = $4");

/// Of one thing; not looked for yet.
pub struct Dependents<'a> {
    statements: &'static Statements,
    args: Vec<Arg<'a>>,
}

/// How many there are.
#[derive(Debug, Default, Clone, Copy)]
pub struct Count {
    /// Everywhere.
    pub all: i64,
    /// In other organizations than the thing's own.
    pub elsewhere: i64,
}

impl<'a> Dependents<'a> {
    /// On a fragment of that organization.
    pub fn on_fragment(organization: &'a str, private: bool, id: &'a str) -> Self {
        Self { statements: &ON_FRAGMENT, args: vec![organization.into(), private.into(), id.into()] }
    }

    /// On a registry item of that organization, which is written with its namespace or its id.
    pub fn on_item(organization: &'a str, private: bool, namespace: &'a str, name: &'a str) -> Self {
        let args = vec![organization.into(), private.into(), namespace.into(), name.into()];
        Self { statements: &ON_ITEM, args }
    }

    /// Counts them.
    pub fn count(&self, tx: &Tx<'_>) -> Result<Count, DbError> {
        let counted =
            tx.first(self.statements.count, &self.args, |row| Ok(Count { all: row.int(0)?, elsewhere: row.int(1)? }))?;
        Ok(counted.unwrap_or_default())
    }

    /// For a refusal: those of its own organization by name, others by number, and what is to be done about them. `None` if
    /// nobody depends on it.
    pub fn told(&self, tx: &Tx<'_>) -> Result<Option<String>, DbError> {
        let count = self.count(tx)?;
        if count.all == 0 {
            return Ok(None);
        }
        let here = tx.all(self.statements.list, &self.args, |row| {
            let (kind, id, name, machine, through) = (row.str(0)?, row.str(1)?, row.str(2)?, row.str(3)?, row.str(4)?);
            let who = match kind {
                "part" => format!("part {name:?} of machine {machine:?} ({id})"),
                "fragment" => format!("fragment {name:?} ({id})"),
                _ => format!("default fragments of organization {name:?}"),
            };
            Ok(match through.split_once(' ') {
                Some((revision, fragment)) => format!("{who} (by revision {revision} of fragment {fragment})"),
                None => who,
            })
        })?;
        let unnamed = count.all - count.elsewhere - i64::try_from(here.len()).unwrap_or_default();
        let more = (unnamed > 0).then(|| format!("{unnamed} more"));
        let others = (count.elsewhere > 0).then(|| format!("{} in other organizations", count.elsewhere));
        let list = here.into_iter().chain(more).chain(others).collect::<Vec<_>>().join(", ");
        let private = if count.elsewhere > 0 { "; others lose it when it is made private" } else { "" };
        Ok(Some(format!("take it out of {list} first, or name another revision there{private}")))
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::{Durability, Store, fragment_history, fragment_users, fragments, registry_users},
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
            (fragment_history::FREE, 4),
            (fragment_history::END, 2),
            (registry_users::USAGE, 4),
            (ON_FRAGMENT.count, 3),
            (ON_FRAGMENT.list, 3),
            (ON_ITEM.count, 4),
            (ON_ITEM.list, 4),
        ];
        // What is gone through from end to end: only what was found before.
        let found = ["CONSTANT", "a", "n", "r", "known", "dependents"];
        for (sql, args) in statements {
            let explain: &'static str = format!("EXPLAIN QUERY PLAN {sql}").leak();
            let args = vec![Arg::from(""); args];
            let steps = store.read::<_, DbError>(|tx| tx.all(explain, &args, |row| row.text(3))).await.unwrap();
            let mut looked = 0;
            for step in &steps {
                if let Some(scanned) = step.strip_prefix("SCAN ") {
                    assert!(found.contains(&scanned.split(' ').next().unwrap()), "{sql}: {step} in {steps:#?}");
                }
                if step.contains("_uses_") {
                    let by = ["(fragment_id=? AND user_kind=?", "(owner=? AND name=?"].map(|by| step.contains(by));
                    // All uses of one fragment, where all of them are asked for.
                    let of_one = step.contains("(fragment_id=?)") && sql.contains("u.fragment_id = $3");
                    assert!(by[0] || by[1] || of_one, "{sql}: {step} in {steps:#?}");
                    looked += 1;
                }
            }
            assert!(looked > 0, "{sql}: {steps:#?}");
        }
    }
}
