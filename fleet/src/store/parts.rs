//! Parts: what they are, what they were, when they spoke, whether they are to restart.

use std::sync::{Arc, LazyLock};

use super::{Arg, DbError, Row, Tx, audit, fragments, naming, news, news::News, secrets};
use crate::{
    authn::Caller,
    authz::{Granted, Machine, Part, right},
    clock::Millis,
    refusal::Refusal,
};

/// One row, with what lies around it.
#[derive(Debug, Clone)]
pub struct Stored {
    /// UUID.
    pub id: String,
    /// The machine it belongs to.
    pub machine: String,
    /// The location that machine lies in.
    pub location: String,
    /// As given.
    pub name: String,
    /// First label of its full name.
    pub dns_name: String,
    /// Every machine has exactly one main part.
    pub main: bool,
    /// JSON text of an object, as it was sent.
    pub config: String,
    /// Strictly increasing.
    pub updated_at: Millis,
    /// When somebody asked for a restart that has not happened.
    pub restart_marked_at: Option<Millis>,
    /// When it was created.
    pub created_at: Millis,
    /// What the database knows about when it last spoke; memory may know better.
    pub last_access: Option<Millis>,
}

macro_rules! select {
    ($rest:literal) => {
        concat!(
            "SELECT p.id, p.machine_id, m.location_id, p.name, p.dns_name, p.main, p.config, p.updated_at,
                    p.restart_marked_at, p.created_at, s.last_access
             FROM parts p JOIN machines m ON m.id = p.machine_id LEFT JOIN part_presence s ON s.part_id = p.id ",
            $rest
        )
    };
}

fn stored(row: &Row<'_>) -> Result<Stored, DbError> {
    Ok(Stored {
        id: row.text(0)?,
        machine: row.text(1)?,
        location: row.text(2)?,
        name: row.text(3)?,
        dns_name: row.text(4)?,
        main: row.flag(5)?,
        config: row.text(6)?,
        updated_at: row.int(7)?,
        restart_marked_at: row.maybe_int(8)?,
        created_at: row.int(9)?,
        last_access: row.maybe_int(10)?,
    })
}

/// By id.
pub fn get(tx: &Tx<'_>, id: &str) -> Result<Option<Stored>, DbError> {
    tx.first(select!("WHERE p.id = $1"), &[id.into()], stored)
}

/// By id, of a machine that is known to lie in that location: its row is not looked for.
pub fn get_in(tx: &Tx<'_>, id: &str, location: &str) -> Result<Option<Stored>, DbError> {
    let sql = "SELECT p.id, p.machine_id, CAST($2 AS TEXT), p.name, p.dns_name, p.main, p.config, p.updated_at,
                      p.restart_marked_at, p.created_at, s.last_access
               FROM parts p LEFT JOIN part_presence s ON s.part_id = p.id WHERE p.id = $1";
    tx.first(sql, &[id.into(), location.into()], stored)
}

/// Of a machine, the main part first.
pub fn of_machine(tx: &Tx<'_>, machine: &str) -> Result<Vec<Stored>, DbError> {
    tx.all(select!("WHERE p.machine_id = $1 ORDER BY p.main DESC, p.created_at, p.id"), &[machine.into()], stored)
}

/// In a location, by the first label of its full name, which one part has, or by its own name, which a part of each machine
/// may have: a thousand at most.
pub fn by_name(tx: &Tx<'_>, location: &str, name: &str) -> Result<Vec<Stored>, DbError> {
    let sql = select!(
        "WHERE m.location_id = $1 AND (p.dns_name = $2 OR p.name = $2) ORDER BY p.dns_name = $2 DESC, p.id LIMIT 1000"
    );
    tx.all(sql, &[location.into(), name.into()], stored)
}

/// A new part.
pub struct New<'a> {
    /// UUID.
    pub id: &'a str,
    /// As given.
    pub name: &'a str,
    /// The label it would like; a number is put behind it if it is taken in the location.
    pub label: &'a str,
    /// Every machine has exactly one main part.
    pub main: bool,
    /// Its configuration, JSON text.
    pub config: &'a str,
    /// What its device signs in with.
    pub secret: secrets::New<'a>,
}

/// Adds a part to a machine.
pub fn create(
    tx: &Tx<'_>,
    granted: &Granted<Machine, right::WriteRobot>,
    new: &New<'_>,
    now: Millis,
) -> Result<(), Refusal> {
    insert(tx, granted.id(), new, now).map_err(|why| match why {
        DbError::Exists(_) => Refusal::exists(format!("the machine has a part named {:?} already", new.name)),
        other => other.into(),
    })?;
    Ok(audit::record(tx, granted, now, "NewRobotPart", &format!("{} {:?}", new.id, new.name))?)
}

/// The row itself; for a new machine's first part, whose proof is the machine's.
pub(super) fn insert(tx: &Tx<'_>, machine: &str, new: &New<'_>, now: Millis) -> Result<(), DbError> {
    let dns_name = free_label(tx, machine, new.label)?;
    let sql = "INSERT INTO parts (id, machine_id, name, dns_name, main, config, updated_at, created_at)
               VALUES ($1, $2, $3, $4, $5, $6, $7, $7)";
    let (main, config) = (new.main.into(), new.config.into());
    tx.run(sql, &[new.id.into(), machine.into(), new.name.into(), (&dns_name).into(), main, config, now.into()])?;
    naming::note_new_part(tx, new.id, new.config)?;
    secrets::insert_for_part(tx, new.id, &new.secret, now)
}

/// The label itself, or with the first number behind it that nobody in the location has.
fn free_label(tx: &Tx<'_>, machine: &str, label: &str) -> Result<String, DbError> {
    let sql = "SELECT 1 FROM parts p JOIN machines m ON m.id = p.machine_id
               WHERE p.dns_name = $2 AND m.location_id = (SELECT location_id FROM machines WHERE id = $1)";
    let mut candidate = label.to_owned();
    for number in 2.. {
        if tx.first(sql, &[machine.into(), (&candidate).into()], |_| Ok(()))?.is_none() {
            break;
        }
        candidate = format!("{label}-{number}");
    }
    Ok(candidate)
}

/// After a machine came into a location: labels that somebody there has already get a number.
pub(super) fn keep_labels_apart(tx: &Tx<'_>, machine: &str) -> Result<(), DbError> {
    let sql = "SELECT p.id, p.dns_name FROM parts p WHERE p.machine_id = $1 AND EXISTS (
                   SELECT 1 FROM parts o JOIN machines m ON m.id = o.machine_id
                   WHERE o.dns_name = p.dns_name AND o.id <> p.id
                     AND m.location_id = (SELECT location_id FROM machines WHERE id = $1))";
    for (part, label) in tx.all(sql, &[machine.into()], |row| Ok((row.text(0)?, row.text(1)?)))? {
        let free = free_label(tx, machine, &label)?;
        tx.run("UPDATE parts SET dns_name = $2 WHERE id = $1", &[(&part).into(), (&free).into()])?;
    }
    Ok(())
}

/// What an update changes; `None` leaves it.
#[derive(Debug, Default)]
pub struct Change {
    /// New name.
    pub name: Option<String>,
    /// New configuration, JSON text.
    pub config: Option<String>,
    /// Refuse if it was changed after this.
    pub last_known_update: Option<Millis>,
}

/// Changes a part, and writes down what it was before. Returns what it is now.
pub fn update(
    tx: &Tx<'_>,
    granted: &Granted<Part, right::WriteRobot>,
    change: Change,
    now: Millis,
) -> Result<Stored, Refusal> {
    let old = get(tx, granted.id())?.ok_or_else(|| Refusal::not_found("robot part", granted.id()))?;
    if change.last_known_update.is_some_and(|known| known < old.updated_at) {
        return Err(Refusal::stale("the part was changed meanwhile: read it again, then repeat your change"));
    }
    let renamed = change.name.as_ref().is_some_and(|name| *name != old.name);
    let configured = change.config.as_ref().is_some_and(|config| *config != old.config);
    if !renamed && !configured {
        return Ok(old);
    }
    // Two changes within a millisecond, or a clock set back, must not look like one.
    let at = now.max(old.updated_at + 1);
    let new = Stored {
        name: change.name.unwrap_or_else(|| old.name.clone()),
        config: change.config.unwrap_or_else(|| old.config.clone()),
        updated_at: at,
        ..old.clone()
    };
    let sql = "UPDATE parts SET config = $2, updated_at = $3 WHERE id = $1";
    tx.run(sql, &[(&*new.id).into(), (&*new.config).into(), at.into()])?;
    if renamed {
        // Apart, because it is rare: the index of names is written whether the name is another one or not.
        let sql = "UPDATE parts SET name = $2 WHERE id = $1";
        tx.run(sql, &[(&*new.id).into(), (&*new.name).into()]).map_err(|why| match why {
            DbError::Exists(_) => Refusal::exists(format!("the machine has a part named {:?} already", new.name)),
            other => other.into(),
        })?;
    }
    // Cheaper than parsing documents that most often name nothing.
    if configured && (naming::may_name_something(&old.config) || naming::may_name_something(&new.config)) {
        fragments::note_names(tx, naming::Kind::Part, &new.id, granted.organization(), &new.config)?;
    }
    let (by_type, by) = editor(granted.caller());
    let sql = "INSERT INTO part_history
                   (part_id, changed_at, old_name, old_config, old_updated_at, edited_by_type, edited_by)
               VALUES ($1, $2, $3, $4, $5, $6, $7)";
    tx.run(
        sql,
        &[
            (&*old.id).into(),
            at.into(),
            (&*old.name).into(),
            (&*old.config).into(),
            old.updated_at.into(),
            by_type.into(),
            by.into(),
        ],
    )?;
    let detail = match (renamed, configured) {
        (true, true) => "name and configuration",
        (true, false) => "name",
        _ => "configuration",
    };
    news::tell(tx, News::Part(new.id.clone()));
    audit::record(tx, granted, now, "UpdateRobotPart", detail)?;
    Ok(new)
}

/// Who edits, as the contract tells it: (AuthenticationType, id).
pub fn editor(caller: &Caller) -> (i64, &str) {
    use crate::authn::Who;
    match caller.who() {
        Who::ApiKey { id, .. } => (2, id),
        Who::Part { part } => (3, part),
        Who::LocationSecret { location, .. } => (4, location),
        Who::Local => (0, "local"),
        Who::Nobody => (0, ""),
    }
}

/// What a part was before one change.
#[derive(Debug, Clone)]
pub struct Was {
    /// When it stopped being so.
    pub changed_at: Millis,
    /// Its name then.
    pub name: String,
    /// Its configuration then.
    pub config: String,
    /// When it became so.
    pub updated_at: Millis,
    /// Who ended it: AuthenticationType.
    pub edited_by_type: i64,
    /// Who ended it: id.
    pub edited_by: String,
}

/// The newest entry before `before` and within the span.
pub fn history_before(tx: &Tx<'_>, part: &str, span: (Millis, Millis), before: Millis) -> Result<Option<Was>, DbError> {
    let sql = "SELECT changed_at, old_name, old_config, old_updated_at, edited_by_type, edited_by FROM part_history
               WHERE part_id = $1 AND changed_at >= $2 AND changed_at <= $3 AND changed_at < $4
               ORDER BY changed_at DESC LIMIT 1";
    tx.first(sql, &[part.into(), span.0.into(), span.1.into(), before.into()], |row| {
        Ok(Was {
            changed_at: row.int(0)?,
            name: row.text(1)?,
            config: row.text(2)?,
            updated_at: row.int(3)?,
            edited_by_type: row.int(4)?,
            edited_by: row.text(5)?,
        })
    })
}

/// Makes it the main part of its machine instead of the one that was.
pub fn make_main(tx: &Tx<'_>, granted: &Granted<Part, right::WriteRobot>, now: Millis) -> Result<(), DbError> {
    let sql = "UPDATE parts SET main = CASE WHEN id = $1 THEN 1 ELSE 0 END
               WHERE machine_id = (SELECT machine_id FROM parts WHERE id = $1)";
    tx.run(sql, &[granted.id().into()])?;
    audit::record(tx, granted, now, "MarkPartAsMain", "")
}

/// Removes a part that is not its machine's main part.
pub fn delete(tx: &Tx<'_>, granted: &Granted<Part, right::WriteRobot>, now: Millis) -> Result<(), Refusal> {
    let old = get(tx, granted.id())?.ok_or_else(|| Refusal::not_found("robot part", granted.id()))?;
    if old.main {
        return Err(Refusal::precondition(
            "this is its machine's main part: make another part the main part first, or delete the machine",
        ));
    }
    naming::forget(tx, naming::Kind::Part, granted.id())?;
    tx.run("DELETE FROM parts WHERE id = $1", &[granted.id().into()])?;
    news::tell(tx, News::PartGone(granted.id().to_owned()));
    let detail = format!("{:?} of robot {}", old.name, old.machine);
    Ok(audit::record(tx, granted, now, "DeleteRobotPart", &detail)?)
}

/// Asks for a restart.
pub fn mark_for_restart(tx: &Tx<'_>, granted: &Granted<Part, right::ControlRobot>, now: Millis) -> Result<(), DbError> {
    tx.run("UPDATE parts SET restart_marked_at = $2 WHERE id = $1", &[granted.id().into(), now.into()])?;
    audit::record(tx, granted, now, "MarkPartForRestart", "")
}

/// Parts in one statement of [`store_last_access`]: with a database in another place the way there costs more than the row.
const HEARD_AT_ONCE: usize = 32;

static HEARD: LazyLock<String> = LazyLock::new(|| {
    let row = |n: usize| format!("SELECT CAST(${} AS TEXT) AS id, CAST(${} AS BIGINT) AS heard", 2 * n + 2, 2 * n + 3);
    let rows: Vec<String> = (0..HEARD_AT_ONCE).map(row).collect();
    format!(
        "INSERT INTO part_presence (part_id, last_access)
         SELECT parts.id, one.heard FROM ({}) AS one JOIN parts ON parts.id = one.id WHERE 1 = 1
         ON CONFLICT (part_id) DO UPDATE SET last_access = excluded.last_access
         WHERE part_presence.last_access < excluded.last_access OR part_presence.last_access > $1",
        rows.join(" UNION ALL ")
    )
});

/// When parts last spoke, each named once; silently nothing of those that are gone, and of those that another server heard
/// later. What is later than `believable` was written before some clock was set back, and gives way.
pub fn store_last_access(tx: &Tx<'_>, heard: &[(Arc<str>, Millis)], believable: Millis) -> Result<(), DbError> {
    for some in heard.chunks(HEARD_AT_ONCE) {
        let mut args = vec![Arg::from(believable)];
        for (part, at) in some {
            args.extend([Arg::from(&**part), Arg::from(*at)]);
        }
        // No part has this id.
        args.extend((some.len()..HEARD_AT_ONCE).flat_map(|_| [Arg::from(""), Arg::from(0_i64)]));
        tx.run(HEARD.as_str(), &args)?;
    }
    Ok(())
}

/// Which parts exist at all: for the log database's clean-up, which cannot ask by a join.
pub fn exists(tx: &Tx<'_>, part: &str) -> Result<bool, DbError> {
    Ok(tx.first("SELECT 1 FROM parts WHERE id = $1", &[Arg::from(part)], |_| Ok(()))?.is_some())
}
