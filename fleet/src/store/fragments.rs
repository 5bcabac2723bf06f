//! Fragments, every revision they had, and who uses them.

use std::sync::Arc;

use serde_json::{Map, Value};

use super::{
    DbError, Row, Tx, audit,
    audit::Entry,
    naming::{self, Kind, Named},
    news,
    news::News,
    parts,
};
use crate::{
    authz::{Fragment, Granted, Organization, right},
    clock::Millis,
    compose::{self, Key, Library},
    refusal::Refusal,
};

/// FragmentVisibility on the wire.
pub const PRIVATE: i64 = 1;
/// Listed for everybody.
pub const PUBLIC: i64 = 2;
/// Usable by whoever knows the id.
pub const PUBLIC_UNLISTED: i64 = 3;

/// In the place of an organization that owns nothing.
const NOBODY: &str = "";

/// One row.
#[derive(Debug, Clone)]
pub struct Stored {
    /// UUID.
    pub id: String,
    /// The one that owns it.
    pub organization: String,
    /// Its name.
    pub organization_name: String,
    /// Its namespace.
    pub organization_namespace: Option<String>,
    /// As given.
    pub name: String,
    /// [`PRIVATE`], [`PUBLIC`] or [`PUBLIC_UNLISTED`].
    pub visibility: i64,
    /// JSON text of an object, as it was sent.
    pub config: String,
    /// Counted from 1.
    pub revision: String,
    /// Strictly increasing.
    pub updated_at: Millis,
    /// When it was created.
    pub created_at: Millis,
}

macro_rules! select {
    ($rest:literal) => {
        concat!(
            "SELECT f.id, f.organization_id, o.name, o.public_namespace, f.name, f.visibility, f.config, f.revision,
                    f.updated_at, f.created_at
             FROM fragments f JOIN organizations o ON o.id = f.organization_id ",
            $rest
        )
    };
}

/// Of a fragment ($1) as it is, if an organization ($2) may use it.
macro_rules! present {
    ($columns:literal) => {
        concat!(
            "SELECT ",
            $columns,
            " FROM fragments f WHERE f.id = $1 AND (f.organization_id = $2 OR f.visibility <> 1)"
        )
    };
}

/// Of one of its revisions ($3), which has to be one that was shown then and may be shown now.
macro_rules! former {
    ($columns:literal) => {
        concat!(
            "SELECT ",
            $columns,
            " FROM fragment_revisions r JOIN fragments f ON f.id = r.fragment_id
             WHERE f.id = $1 AND r.revision = $3
               AND (f.organization_id = $2 OR (f.visibility <> 1 AND r.visibility <> 1))"
        )
    };
}

fn stored(row: &Row<'_>) -> Result<Stored, DbError> {
    Ok(Stored {
        id: row.text(0)?,
        organization: row.text(1)?,
        organization_name: row.text(2)?,
        organization_namespace: row.maybe_text(3)?,
        name: row.text(4)?,
        visibility: row.int(5)?,
        config: row.text(6)?,
        revision: row.text(7)?,
        updated_at: row.int(8)?,
        created_at: row.int(9)?,
    })
}

/// By id.
pub fn get(tx: &Tx<'_>, id: &str) -> Result<Option<Stored>, DbError> {
    tx.first(select!("WHERE f.id = $1"), &[id.into()], stored)
}

/// Of one organization.
pub fn of_organization(tx: &Tx<'_>, organization: &str) -> Result<Vec<Stored>, DbError> {
    tx.all(select!("WHERE f.organization_id = $1 ORDER BY f.created_at, f.id"), &[organization.into()], stored)
}

/// Public ones of every other organization.
pub fn public_elsewhere(tx: &Tx<'_>, organization: &str) -> Result<Vec<Stored>, DbError> {
    let sql = select!("WHERE f.visibility = 2 AND f.organization_id <> $1 ORDER BY f.created_at, f.id");
    tx.all(sql, &[organization.into()], stored)
}

/// Puts into `library` everything `document` names that `organization` may use: its own and public ones.
pub fn fill(
    tx: &Tx<'_>,
    organization: &str,
    document: &Map<String, Value>,
    library: &mut Library,
) -> Result<(), DbError> {
    // Each round goes one level deeper; the last one finds nothing missing.
    for _ in 0..=compose::DEPTH_MAX {
        let missing = compose::missing(document, library);
        // With so much at hand it is certain that composing refuses; the rest need not be read to know.
        if missing.is_empty() || library.is_beyond_composing() {
            break;
        }
        for key in missing {
            if library.is_beyond_composing() {
                break;
            }
            let found = usable(tx, organization, &key)?;
            library.add(
                key,
                found.and_then(|(revision, config)| compose::Fragment::read(revision, &config)).map(Arc::new),
            );
        }
    }
    Ok(())
}

/// A fragment as somebody who names it gets it: in the revision that is asked for, if their organization may use it.
pub fn used(tx: &Tx<'_>, organization: &str, key: &Key) -> Result<Option<Stored>, DbError> {
    let Some((revision, config)) = usable(tx, organization, key)? else { return Ok(None) };
    Ok(get(tx, &key.id)?.map(|stored| Stored { revision, config, ..stored }))
}

/// Whether [`used`] finds something, without reading it.
pub fn may_be_used(tx: &Tx<'_>, organization: &str, key: &Key) -> Result<bool, DbError> {
    Ok(usable_as(tx, organization, key, [present!("1"), former!("1")], |_| Ok(()))?.is_some())
}

/// Whether every organization may use it: it is public now, and was in the revision that is asked for.
pub fn may_be_used_by_anybody(tx: &Tx<'_>, key: &Key) -> Result<bool, DbError> {
    may_be_used(tx, NOBODY, key)
}

/// (revision, config) of the revision that is asked for, or of the present one.
fn usable(tx: &Tx<'_>, organization: &str, key: &Key) -> Result<Option<(String, String)>, DbError> {
    let columns = [present!("f.revision, f.config"), former!("r.revision, r.config")];
    usable_as(tx, organization, key, columns, |row| Ok((row.text(0)?, row.text(1)?)))
}

fn usable_as<T>(
    tx: &Tx<'_>,
    organization: &str,
    key: &Key,
    [present, former]: [&'static str; 2],
    read: impl Fn(&Row<'_>) -> Result<T, DbError>,
) -> Result<Option<T>, DbError> {
    let (id, organization) = ((&*key.id).into(), organization.into());
    match &key.version {
        None => tx.first(present, &[id, organization], read),
        Some(version) => tx.first(former, &[id, organization, (&**version).into()], read),
    }
}

/// A new fragment, private unless said otherwise.
pub fn create(
    tx: &Tx<'_>,
    granted: &Granted<Organization, right::WriteFragment>,
    new: &New<'_>,
    now: Millis,
) -> Result<(), Refusal> {
    let sql = "INSERT INTO fragments (id, organization_id, name, visibility, config, revision, updated_at, created_at)
               VALUES ($1, $2, $3, $4, $5, '1', $6, $6)";
    let args = [
        new.id.into(),
        granted.organization().into(),
        new.name.into(),
        new.visibility.into(),
        new.config.into(),
        now.into(),
    ];
    tx.run(sql, &args).map_err(|why| name_is_taken(why, new.name))?;
    keep_revision(tx, granted.caller(), new, "1", now)?;
    note_names(tx, Kind::Fragment, new.id, granted.organization(), new.config)?;
    let entry = Entry { resource_type: "fragment", resource_id: new.id, operation: "CreateFragment", detail: new.name };
    Ok(audit::record_by(tx, granted.caller(), granted.organization(), now, &entry)?)
}

/// What a fragment is to be.
pub struct New<'a> {
    /// UUID.
    pub id: &'a str,
    /// As given.
    pub name: &'a str,
    /// JSON text of an object.
    pub config: &'a str,
    /// [`PRIVATE`], [`PUBLIC`] or [`PUBLIC_UNLISTED`].
    pub visibility: i64,
}

/// What a caller says about who may use a fragment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Visibility {
    /// [`PRIVATE`], [`PUBLIC`] or [`PUBLIC_UNLISTED`].
    Exactly(i64),
    /// Public in the words of old clients, which know no unlisted one: what is public already stays as it is.
    Public,
}

impl Visibility {
    fn over(self, present: i64) -> i64 {
        match self {
            Self::Exactly(visibility) => visibility,
            Self::Public if present == PRIVATE => PUBLIC,
            Self::Public => present,
        }
    }
}

/// What an update changes; `None` leaves it.
#[derive(Debug, Default)]
pub struct Change {
    /// New name.
    pub name: Option<String>,
    /// New configuration, JSON text.
    pub config: Option<String>,
    /// Who may use it.
    pub visibility: Option<Visibility>,
    /// Refuse if it was changed after this.
    pub last_known_update: Option<Millis>,
}

/// Changes a fragment; every change makes a revision. Returns what it is now.
pub fn update(
    tx: &Tx<'_>,
    granted: &Granted<Fragment, right::WriteFragment>,
    change: Change,
    now: Millis,
) -> Result<Stored, Refusal> {
    let old = get(tx, granted.id())?.ok_or_else(|| Refusal::not_found("fragment", granted.id()))?;
    if change.last_known_update.is_some_and(|known| known < old.updated_at) {
        return Err(Refusal::stale("the fragment was changed meanwhile: read it again, then repeat your change"));
    }
    let new = Stored {
        name: change.name.unwrap_or_else(|| old.name.clone()),
        config: change.config.unwrap_or_else(|| old.config.clone()),
        visibility: change.visibility.map_or(old.visibility, |said| said.over(old.visibility)),
        revision: next_revision(&old.revision),
        updated_at: now.max(old.updated_at + 1),
        ..old.clone()
    };
    if (&new.name, &new.config, new.visibility) == (&old.name, &old.config, old.visibility) {
        return Ok(old);
    }
    let sql = "UPDATE fragments SET name = $2, visibility = $3, config = $4, revision = $5, updated_at = $6
               WHERE id = $1";
    let args = [
        (&*new.id).into(),
        (&*new.name).into(),
        new.visibility.into(),
        (&*new.config).into(),
        (&*new.revision).into(),
        new.updated_at.into(),
    ];
    tx.run(sql, &args).map_err(|why| name_is_taken(why, &new.name))?;
    let what = New { id: &new.id, name: &new.name, config: &new.config, visibility: new.visibility };
    keep_revision(tx, granted.caller(), &what, &new.revision, new.updated_at)?;
    naming::becomes_former(tx, &old.id, &old.revision)?;
    if new.config != old.config {
        note_names(tx, Kind::Fragment, &new.id, &new.organization, &new.config)?;
    }
    news::tell(tx, News::Configurations);
    audit::record(tx, granted, now, "UpdateFragment", &format!("revision {}", new.revision))?;
    Ok(new)
}

fn next_revision(revision: &str) -> String {
    revision.parse::<u64>().map_or_else(|_| format!("{revision}.1"), |number| (number + 1).to_string())
}

fn name_is_taken(why: DbError, name: &str) -> Refusal {
    match why {
        DbError::Exists(_) => Refusal::exists(format!("the organization has a fragment named {name:?} already")),
        other => other.into(),
    }
}

fn keep_revision(
    tx: &Tx<'_>,
    caller: &crate::authn::Caller,
    what: &New<'_>,
    revision: &str,
    at: Millis,
) -> Result<(), DbError> {
    let (by_type, by) = parts::editor(caller);
    let sql = "INSERT INTO fragment_revisions
                   (fragment_id, revision, name, visibility, config, made_at, edited_by_type, edited_by)
               VALUES ($1, $2, $3, $4, $5, $6, $7, $8)";
    let args = [
        what.id.into(),
        revision.into(),
        what.name.into(),
        what.visibility.into(),
        what.config.into(),
        at.into(),
        by_type.into(),
        by.into(),
    ];
    tx.run(sql, &args)?;
    Ok(())
}

/// Looks that the fragments a configuration names neither contain it nor lie too deep, and notes what it names.
/// Called in the transaction that stores it: two changes at once cannot close a circle between them.
pub fn note_names(tx: &Tx<'_>, kind: Kind, id: &str, organization: &str, config: &str) -> Result<(), Refusal> {
    let document: Map<String, Value> = serde_json::from_str(config).unwrap_or_default();
    let named = Named::by(&document);
    let (count, most) = (named.fragments.len(), crate::limits::FRAGMENTS_PER_CONFIG_MAX);
    if count > most {
        return Err(Refusal::invalid("config", format_args!("names {count} fragments, at most {most} are allowed")));
    }
    if count > 0 {
        let mut library = Library::default();
        fill(tx, organization, &document, &mut library)?;
        let check = if kind == Kind::Fragment {
            compose::check_fragment(id, levels_above(tx, id, organization)?, &document, &library)
        } else {
            compose::check_part(&document, &library)
        };
        check.map_err(|why| Refusal::invalid("config", why))?;
    }
    Ok(naming::note(tx, kind, id, &named)?)
}

/// SQLite would go through all uses by fragments first: it takes what is joined crosswise in the order of the text.
pub(super) const LEVELS_ABOVE: &str = "WITH RECURSIVE above (id, level) AS (
         SELECT CAST($1 AS TEXT), CAST(0 AS BIGINT)
         UNION
         SELECT u.user_id, a.level + 1
         FROM above a CROSS JOIN fragment_uses u JOIN fragments f ON f.id = u.user_id
         WHERE u.fragment_id = a.id AND u.user_kind = 'fragment' AND u.user_revision = ''
           AND f.organization_id = $2 AND a.level < $3
     )
     SELECT MAX(level) FROM above";

/// How many levels of its organization's own fragments one lies in. What others put around it is their affair: it is left
/// out there where it is too deep.
fn levels_above(tx: &Tx<'_>, id: &str, organization: &str) -> Result<usize, DbError> {
    let most = i64::try_from(compose::DEPTH_MAX).unwrap_or(i64::MAX);
    let levels = tx.first(LEVELS_ABOVE, &[id.into(), organization.into(), most.into()], |row| row.int(0))?;
    Ok(usize::try_from(levels.unwrap_or_default()).unwrap_or_default())
}

/// One revision.
#[derive(Debug, Clone)]
pub struct Revision {
    /// Counted from 1.
    pub revision: String,
    /// Its name then.
    pub name: String,
    /// Its visibility then.
    pub visibility: i64,
    /// Its configuration then.
    pub config: String,
    /// When it was made.
    pub made_at: Millis,
    /// By whom: AuthenticationType.
    pub edited_by_type: i64,
    /// By whom: id.
    pub edited_by: String,
}

/// Which revisions a reader sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reader {
    /// Of the organization: all.
    Own,
    /// Anybody: those made while the fragment was public. What it held before that was not meant for others.
    Stranger,
}

/// The newest revision a reader sees that was made before `before`. One at a time: each may be a mebibyte.
pub fn revision_before(tx: &Tx<'_>, id: &str, before: Millis, reader: Reader) -> Result<Option<Revision>, DbError> {
    let sql = "SELECT revision, name, visibility, config, made_at, edited_by_type, edited_by FROM fragment_revisions
               WHERE fragment_id = $1 AND made_at < $2 AND (visibility <> 1 OR $3 = 1)
               ORDER BY made_at DESC LIMIT 1";
    tx.first(sql, &[id.into(), before.into(), (reader == Reader::Own).into()], revision)
}

/// The revision of that name, if the reader sees it.
pub fn revision_named(tx: &Tx<'_>, id: &str, name: &str, reader: Reader) -> Result<Option<Revision>, DbError> {
    let sql = "SELECT revision, name, visibility, config, made_at, edited_by_type, edited_by FROM fragment_revisions
               WHERE fragment_id = $1 AND revision = $2 AND (visibility <> 1 OR $3 = 1)";
    tx.first(sql, &[id.into(), name.into(), (reader == Reader::Own).into()], revision)
}

/// (revision, when it was made) of the newest ones, newest first.
pub fn revision_names(tx: &Tx<'_>, id: &str, reader: Reader, limit: i64) -> Result<Vec<(String, Millis)>, DbError> {
    let sql = "SELECT revision, made_at FROM fragment_revisions
               WHERE fragment_id = $1 AND (visibility <> 1 OR $2 = 1) ORDER BY made_at DESC LIMIT $3";
    let args = [id.into(), (reader == Reader::Own).into(), limit.into()];
    tx.all(sql, &args, |row| Ok((row.text(0)?, row.int(1)?)))
}

fn revision(row: &Row<'_>) -> Result<Revision, DbError> {
    Ok(Revision {
        revision: row.text(0)?,
        name: row.text(1)?,
        visibility: row.int(2)?,
        config: row.text(3)?,
        made_at: row.int(4)?,
        edited_by_type: row.int(5)?,
        edited_by: row.text(6)?,
    })
}

/// (id, name) of the fragments that a part names itself and may use.
pub fn named_by_part(tx: &Tx<'_>, part: &str) -> Result<Vec<(String, String)>, DbError> {
    // A part may name what its organization may not use, and must not learn from it what others call theirs.
    let sql = "SELECT DISTINCT f.id, f.name FROM fragment_uses u JOIN fragments f ON f.id = u.fragment_id
                    JOIN parts p ON p.id = u.user_id JOIN machines m ON m.id = p.machine_id
                    JOIN locations l ON l.id = m.location_id
               WHERE u.user_kind = 'part' AND u.user_id = $1
                 AND (f.visibility <> 1 OR f.organization_id = l.organization_id) ORDER BY f.id";
    tx.all(sql, &[part.into()], |row| Ok((row.text(0)?, row.text(1)?)))
}
