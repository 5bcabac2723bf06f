//! The outbox: mails that invitations wait for, written in the transaction of the invitation.
//!
//! Whoever sends one takes it for a while first; a server that dies meanwhile leaves it to be sent again later. So a
//! mail leaves at least once, and at most once while no server dies and no answer of the mail server is lost.

use super::{DbError, Tx, audit, audit::Entry};
use crate::{authn::Caller, clock::Millis, ids};

/// A mail whose time has come, and what it says.
#[derive(Debug)]
pub struct Due {
    /// UUID; the same for each attempt.
    pub id: String,
    /// The organization somebody is invited to.
    pub organization: String,
    /// Its name.
    pub organization_name: String,
    /// Whom.
    pub email: String,
    /// The link's secret, sealed for `digest`.
    pub sealed: String,
    /// The invitation's.
    pub digest: String,
    /// When the link stops working.
    pub expires_at: Millis,
    /// When it was queued.
    pub queued_at: Millis,
    /// Which attempt this is, from 1.
    pub attempt: u32,
}

/// Queues the mail of an invitation, in place of one that has not left yet.
pub(super) fn queue(
    tx: &Tx<'_>,
    organization: &str,
    email: &str,
    sealed: Option<&str>,
    now: Millis,
) -> Result<(), DbError> {
    tx.run("DELETE FROM mails WHERE organization_id = $1 AND email = $2", &[organization.into(), email.into()])?;
    let Some(sealed) = sealed else { return Ok(()) };
    let sql = "INSERT INTO mails (organization_id, email, id, sealed, queued_at, attempts, due_at)
               VALUES ($1, $2, $3, $4, $5, 0, $5)";
    tx.run(sql, &[organization.into(), email.into(), (&ids::new_id()).into(), sealed.into(), now.into()])?;
    Ok(())
}

/// What is in the outbox.
#[derive(Debug, Default)]
pub struct Waiting {
    /// How many mails.
    pub count: i64,
    /// When the first is due.
    pub next: Option<Millis>,
    /// When the oldest was queued.
    pub oldest: Option<Millis>,
}

/// What waits.
pub fn waiting(tx: &Tx<'_>) -> Result<Waiting, DbError> {
    let found = tx.first("SELECT COUNT(*), MIN(due_at), MIN(queued_at) FROM mails", &[], |row| {
        Ok(Waiting { count: row.int(0)?, next: row.maybe_int(1)?, oldest: row.maybe_int(2)? })
    })?;
    Ok(found.unwrap_or_default())
}

/// Takes the first one that is due until `lease`: nobody else sends it before.
pub fn take(tx: &Tx<'_>, now: Millis, lease: Millis) -> Result<Option<Due>, DbError> {
    let sql =
        "SELECT m.id, m.organization_id, o.name, m.email, m.sealed, i.digest, i.expires_at, m.queued_at, m.attempts
               FROM mails m
               JOIN invites i ON i.organization_id = m.organization_id AND i.email = m.email
               JOIN organizations o ON o.id = m.organization_id
               WHERE m.due_at <= $1 ORDER BY m.due_at, m.id LIMIT 1";
    let due = tx.first(sql, &[now.into()], |row| {
        Ok(Due {
            id: row.text(0)?,
            organization: row.text(1)?,
            organization_name: row.text(2)?,
            email: row.text(3)?,
            sealed: row.text(4)?,
            digest: row.maybe_text(5)?.unwrap_or_default(),
            expires_at: row.int(6)?,
            queued_at: row.int(7)?,
            attempt: u32::try_from(row.int(8)?.saturating_add(1)).unwrap_or(u32::MAX),
        })
    })?;
    if let Some(due) = &due {
        let sql = "UPDATE mails SET due_at = $2, attempts = attempts + 1 WHERE id = $1";
        tx.run(sql, &[(&due.id).into(), lease.into()])?;
    }
    Ok(due)
}

/// The mail server has it.
pub fn sent(tx: &Tx<'_>, id: &str) -> Result<(), DbError> {
    tx.run("DELETE FROM mails WHERE id = $1", &[id.into()]).map(drop)
}

/// Tried again at `due`.
pub fn later(tx: &Tx<'_>, id: &str, due: Millis) -> Result<(), DbError> {
    tx.run("UPDATE mails SET due_at = $2 WHERE id = $1", &[id.into(), due.into()]).map(drop)
}

/// Never tried again. The organization's owners read why in the audit log.
pub fn give_up(tx: &Tx<'_>, due: &Due, why: &str, now: Millis) -> Result<(), DbError> {
    if tx.run("DELETE FROM mails WHERE id = $1", &[(&due.id).into()])? == 0 {
        return Ok(());
    }
    let entry = Entry { resource_type: "invitation", resource_id: &due.email, operation: "mail not sent", detail: why };
    audit::record_by(tx, &Caller::local(), &due.organization, now, &entry)
}
