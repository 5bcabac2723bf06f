//! Who changed what: one row per change, written in the transaction of the change itself.

use std::sync::{
    OnceLock,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use super::{DbError, Row, Tx};
use crate::{
    authn::{Caller, digest_of},
    authz::{
        Granted, Organization,
        right::{Right, WriteOrganization},
    },
    clock::Millis,
    hex, ids,
    refusal::Refusal,
};

/// Writes down that the holder of `granted` did `operation`; `detail` names what changed, never a secret.
pub fn record<T: crate::authz::TargetKind, R: Right>(
    tx: &Tx<'_>,
    granted: &Granted<T, R>,
    now: Millis,
    operation: &'static str,
    detail: &str,
) -> Result<(), DbError> {
    let entry = Entry { resource_type: granted.target().word(), resource_id: granted.id(), operation, detail };
    record_by(tx, granted.caller(), granted.organization(), now, &entry)
}

/// Stands for an organization where what changed belongs to none: people and their keys. Read on the server itself.
pub const SERVER: &str = "";

/// What is written beside who and when.
pub struct Entry<'a> {
    /// "organization", "location", "robot", "robot part", "fragment", "api key", "user", "invitation".
    pub resource_type: &'a str,
    /// Which one.
    pub resource_id: &'a str,
    /// The operation's name on the wire, or the local command.
    pub operation: &'static str,
    /// What changed.
    pub detail: &'a str,
}

/// The same for changes that need no proof about an existing thing: creating one.
pub fn record_by(
    tx: &Tx<'_>,
    caller: &Caller,
    organization: &str,
    now: Millis,
    entry: &Entry<'_>,
) -> Result<(), DbError> {
    let sql = "INSERT INTO audit (organization_id, happened_at, id, actor, from_address, operation, resource_type, resource_id, detail)
               VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)";
    let (id, actor, from) = (next_id(), caller.name(), caller.from().to_string());
    tx.run(
        sql,
        &[
            organization.into(),
            now.into(),
            (&id).into(),
            (&actor).into(),
            (&from).into(),
            entry.operation.into(),
            entry.resource_type.into(),
            entry.resource_id.into(),
            entry.detail.into(),
        ],
    )?;
    Ok(())
}

/// One row.
#[derive(Debug, Clone)]
pub struct Event {
    /// Orders events of one millisecond.
    pub id: String,
    /// When.
    pub happened_at: Millis,
    /// Who.
    pub actor: String,
    /// From where.
    pub from_address: String,
    /// Did what.
    pub operation: String,
    /// To what kind of thing.
    pub resource_type: String,
    /// To which.
    pub resource_id: String,
    /// In which way.
    pub detail: String,
}

/// Rises within one run of the server; another run has another ending, so that no two are ever the same.
fn next_id() -> String {
    static RUN: OnceLock<String> = OnceLock::new();
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let run = RUN.get_or_init(|| hex::encode(&ids::random::<8>()));
    format!("{:012x}-{run}", COUNT.fetch_add(1, Relaxed))
}

/// Where a page of events begins: below this one.
#[derive(Debug, Clone)]
pub struct Place {
    at: Millis,
    id: String,
}

impl Place {
    /// Behind the last event of a page.
    pub fn after(event: &Event) -> Self {
        Self { at: event.happened_at, id: event.id.clone() }
    }

    /// As text for the caller, bound to one organization.
    pub fn token(&self, organization: &str) -> String {
        format!("{:x}.{}.{}", self.at, self.id, mark(organization))
    }

    /// From that text; empty is the beginning, which is now.
    pub fn read(organization: &str, token: &str) -> Result<Self, Refusal> {
        if token.is_empty() {
            return Ok(Self { at: Millis::MAX, id: String::new() });
        }
        let mut parts = token.splitn(3, '.');
        let place = (parts.next(), parts.next(), parts.next());
        let (Some(at), Some(id), Some(of)) = place else { return Err(Refusal::foreign_token(token)) };
        let at = Millis::from_str_radix(at, 16).map_err(|_| Refusal::foreign_token(token))?;
        if of != mark(organization) {
            return Err(Refusal::foreign_token(token));
        }
        Ok(Self { at, id: id.to_owned() })
    }
}

fn mark(organization: &str) -> String {
    digest_of(&format!("audit {organization}")).chars().take(16).collect()
}

/// An organization's events below a place, newest first.
pub fn list(
    tx: &Tx<'_>,
    granted: &Granted<Organization, WriteOrganization>,
    below: &Place,
    limit: i64,
) -> Result<Vec<Event>, DbError> {
    let sql = "SELECT id, happened_at, actor, from_address, operation, resource_type, resource_id, detail FROM audit
               WHERE organization_id = $1 AND (happened_at < $2 OR (happened_at = $2 AND id < $3))
               ORDER BY happened_at DESC, id DESC LIMIT $4";
    tx.all(sql, &[granted.id().into(), below.at.into(), (&below.id).into(), limit.into()], event)
}

fn event(row: &Row<'_>) -> Result<Event, DbError> {
    Ok(Event {
        id: row.text(0)?,
        happened_at: row.int(1)?,
        actor: row.text(2)?,
        from_address: row.text(3)?,
        operation: row.text(4)?,
        resource_type: row.text(5)?,
        resource_id: row.text(6)?,
        detail: row.text(7)?,
    })
}

/// Whoever has events, organizations that are gone and [`SERVER`] included. For this server's administrator.
pub fn organizations(tx: &Tx<'_>) -> Result<Vec<String>, DbError> {
    tx.all("SELECT DISTINCT organization_id FROM audit ORDER BY organization_id", &[], |row| row.text(0))
}

/// Events after a place and before `until`, oldest first. For this server's administrator.
pub fn onward(
    tx: &Tx<'_>,
    organization: &str,
    after: &(Millis, String),
    until: Millis,
    limit: i64,
) -> Result<Vec<Event>, DbError> {
    let sql = "SELECT id, happened_at, actor, from_address, operation, resource_type, resource_id, detail FROM audit
               WHERE organization_id = $1 AND (happened_at > $2 OR (happened_at = $2 AND id > $3)) AND happened_at < $4
               ORDER BY happened_at, id LIMIT $5";
    let args = [organization.into(), after.0.into(), (&after.1).into(), until.into(), limit.into()];
    tx.all(sql, &args, event)
}
