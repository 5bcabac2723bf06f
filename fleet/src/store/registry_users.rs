//! Who uses a registry item: counted, named, and the reason why it cannot be deleted.
//!
//! Anybody may write any id into a configuration; a use is what the item's visibility allows. What is noted is the
//! present configuration, also before there is an item of that name.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{
    DbError, Tx,
    registry::{PRIVATE, Stored},
};

/// Named in a refusal; the rest is counted.
const USERS_NAMED: usize = 10;

/// Notes what a configuration names, in the transaction that stores it.
pub fn note(tx: &Tx<'_>, kind: &str, id: &str, config: &str) -> Result<(), DbError> {
    forget(tx, kind, id)?;
    for (owner, name) in named(config) {
        let sql = "INSERT INTO registry_uses (user_kind, user_id, owner, name) VALUES ($1, $2, $3, $4)";
        tx.run(sql, &[kind.into(), id.into(), (&owner).into(), (&name).into()])?;
    }
    Ok(())
}

/// Configurations of one page; each may be a mebibyte.
const PAGE: i64 = 50;
/// Stands in the place of a user once everything older is noted; no user is of this kind.
const NOTED: &str = "noted";

/// Notes what configurations with an id above `after` name, one page of them: the id after which to go on, or nothing
/// when all are noted, now or long ago.
pub fn note_older(tx: &Tx<'_>, kind: &'static str, after: &str) -> Result<Option<String>, DbError> {
    let done = "SELECT 1 FROM registry_uses WHERE user_kind = $1 AND user_id = $2";
    if tx.first(done, &[NOTED.into(), kind.into()], |_| Ok(()))?.is_some() {
        return Ok(None);
    }
    let sql = match kind {
        "part" => "SELECT id, config FROM parts WHERE id > $1 ORDER BY id LIMIT $2",
        _ => "SELECT id, config FROM fragments WHERE id > $1 ORDER BY id LIMIT $2",
    };
    let page = tx.all(sql, &[after.into(), PAGE.into()], |row| Ok((row.text(0)?, row.text(1)?)))?;
    for (id, config) in &page {
        if may_name_some(config) {
            note(tx, kind, id, config)?;
        }
    }
    match page.into_iter().next_back() {
        Some((last, _)) => Ok(Some(last)),
        None => {
            let sql = "INSERT INTO registry_uses (user_kind, user_id, owner, name) VALUES ($1, $2, '', '')";
            tx.run(sql, &[NOTED.into(), kind.into()])?;
            Ok(None)
        }
    }
}

/// The part or fragment is gone.
pub fn forget(tx: &Tx<'_>, kind: &str, id: &str) -> Result<(), DbError> {
    tx.run("DELETE FROM registry_uses WHERE user_kind = $1 AND user_id = $2", &[kind.into(), id.into()])?;
    Ok(())
}

/// Whether it is worth reading a configuration for this.
pub fn may_name_some(config: &str) -> bool {
    config.contains("\"module_id\"") || config.contains("\"package\"")
}

/// `modules` say `module_id: OWNER:NAME`, `packages` say `package: OWNER/NAME`.
fn named(config: &str) -> BTreeSet<(String, String)> {
    if !may_name_some(config) {
        return BTreeSet::new();
    }
    let Ok(document) = serde_json::from_str::<Value>(config) else { return BTreeSet::new() };
    let list = |name: &str, field: &str, sign: char| -> Vec<(String, String)> {
        let elements = document.get(name).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        let ids = elements.iter().filter_map(|element| element.get(field).and_then(Value::as_str));
        let split = ids.filter_map(|id| id.split_once(sign));
        split.map(|(owner, name)| (owner.to_owned(), name.to_owned())).collect()
    };
    let modules = list("modules", "module_id", ':');
    modules
        .into_iter()
        .chain(list("packages", "package", '/'))
        .filter(|(owner, name)| fits(owner) && fits(name))
        .collect()
}

/// Nothing longer is the name of anything, and nothing longer shall fill an index.
fn fits(word: &str) -> bool {
    (1..=crate::limits::NAME_CHARS_MAX).contains(&word.len()) && !word.contains('\0')
}

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

/// Counts.
pub fn usage(tx: &Tx<'_>, item: &Stored) -> Result<Usage, DbError> {
    let sql = "WITH RECURSIVE named (kind, id) AS (
                   SELECT user_kind, user_id FROM registry_uses WHERE name = $2 AND (owner = $1 OR owner = $3)
                   UNION
                   SELECT u.user_kind, u.user_id FROM fragment_uses u
                        JOIN named n ON n.kind = 'fragment' AND u.fragment_id = n.id
               )
               SELECT COUNT(DISTINCT p.machine_id), COUNT(DISTINCT l.organization_id),
                      COUNT(DISTINCT CASE WHEN l.organization_id <> $1 THEN p.machine_id END),
                      COUNT(DISTINCT CASE WHEN l.organization_id <> $1 THEN l.organization_id END)
               FROM named n JOIN parts p ON p.id = n.id JOIN machines m ON m.id = p.machine_id
                    JOIN locations l ON l.id = m.location_id
               WHERE n.kind = 'part' AND ($4 = 0 OR l.organization_id = $1)";
    let args =
        [(&*item.organization).into(), (&*item.name).into(), item.owner().into(), (item.visibility == PRIVATE).into()];
    let counted = tx.first(sql, &args, |row| {
        Ok(Usage {
            machines: row.int(0)?,
            organizations: row.int(1)?,
            machines_elsewhere: row.int(2)?,
            organizations_elsewhere: row.int(3)?,
        })
    });
    Ok(counted?.unwrap_or_default())
}

/// Who names an item and may use it: those of its organization by name, others by number.
#[derive(Debug, Default)]
pub struct Users {
    /// "part \"arm-main\" of machine \"arm\" (ID)"; not more than a person reads.
    pub here: Vec<String>,
    /// All of them, in this organization and in others.
    pub count: usize,
    /// Whether some are in others.
    pub elsewhere: bool,
}

impl Users {
    /// For a sentence.
    pub fn list(&self) -> String {
        let others = self.count.saturating_sub(self.here.len());
        let more = (others > 0).then(|| format!("{others} more"));
        self.here.iter().cloned().chain(more).collect::<Vec<_>>().join(", ")
    }
}

/// Parts and fragments that name it themselves.
pub fn users(tx: &Tx<'_>, item: &Stored) -> Result<Users, DbError> {
    let mut users = Users::default();
    let parts = "SELECT p.id, p.name, m.name, l.organization_id
                 FROM registry_uses u JOIN parts p ON p.id = u.user_id JOIN machines m ON m.id = p.machine_id
                      JOIN locations l ON l.id = m.location_id
                 WHERE u.user_kind = 'part' AND u.name = $2 AND (u.owner = $1 OR u.owner = $3)
                   AND ($4 = 0 OR l.organization_id = $1) ORDER BY p.id";
    let fragments = "SELECT f.id, f.name, '', f.organization_id
                     FROM registry_uses u JOIN fragments f ON f.id = u.user_id
                     WHERE u.user_kind = 'fragment' AND u.name = $2 AND (u.owner = $1 OR u.owner = $3)
                       AND ($4 = 0 OR f.organization_id = $1) ORDER BY f.id";
    let args =
        [(&*item.organization).into(), (&*item.name).into(), item.owner().into(), (item.visibility == PRIVATE).into()];
    for sql in [parts, fragments] {
        tx.all(sql, &args, |row| {
            users.count += 1;
            if row.str(3)? != item.organization {
                users.elsewhere = true;
            } else if users.here.len() < USERS_NAMED {
                let (id, name, machine) = (row.str(0)?, row.str(1)?, row.str(2)?);
                users.here.push(match machine {
                    "" => format!("fragment {name:?} ({id})"),
                    machine => format!("part {name:?} of machine {machine:?} ({id})"),
                });
            }
            Ok(())
        })?;
    }
    Ok(users)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_configuration_names() {
        let both = |list: &[(&str, &str)]| list.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect();
        let long = format!(r#"{{"modules":[{{"module_id":"a:{}"}}]}}"#, "x".repeat(300));
        let table: [(&str, &[(&str, &str)]); 8] = [
            ("{}", &[]),
            (r#"{"modules":[{"module_id":"acme:camera"},{"module_id":"acme:camera"}]}"#, &[("acme", "camera")]),
            (
                r#"{"packages":[{"package":"acme/model"}],"modules":[{"module_id":"a:b"}]}"#,
                &[("a", "b"), ("acme", "model")],
            ),
            (r#"{"modules":[{"module_id":"local"},{"module_id":":x"},{"module_id":7},3]}"#, &[]),
            (r#"{"modules":{"module_id":"a:b"}}"#, &[]),
            (r#"{"components":[{"attributes":{"module_id":"a:b"}}]}"#, &[]),
            (r#"["module_id"]"#, &[]),
            (&long, &[]),
        ];
        for (config, names) in table {
            assert_eq!(named(config), both(names), "{config}");
        }
    }
}
