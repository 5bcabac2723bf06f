//! Who somebody is at an identity provider: remembered from the first sign-in on, because addresses change hands.

use super::{DbError, Tx, audit, audit::Entry};
use crate::{authn::Caller, clock::Millis, refusal::Refusal};

/// The person that the provider calls so.
pub fn user_of(tx: &Tx<'_>, issuer: &str, subject: &str) -> Result<Option<String>, DbError> {
    let sql = "SELECT user_id FROM identities WHERE issuer = $1 AND subject = $2";
    tx.first(sql, &[issuer.into(), subject.into()], |row| row.text(0))
}

/// Whether the provider calls this person something already.
pub fn is_known(tx: &Tx<'_>, issuer: &str, user: &str) -> Result<bool, DbError> {
    let sql = "SELECT 1 FROM identities WHERE issuer = $1 AND user_id = $2 LIMIT 1";
    Ok(tx.first(sql, &[issuer.into(), user.into()], |_| Ok(()))?.is_some())
}

/// Where people sign in from now on, if anywhere. Whom only another provider knows is nobody who can.
pub fn sign_in_at(tx: &Tx<'_>, issuer: Option<&str>) -> Result<(), DbError> {
    tx.run("DELETE FROM sign_in_issuers", &[])?;
    if let Some(issuer) = issuer {
        tx.run("INSERT INTO sign_in_issuers (issuer) VALUES ($1)", &[issuer.into()])?;
    }
    Ok(())
}

/// From now on this person is who the provider calls so.
pub fn remember(
    tx: &Tx<'_>,
    caller: &Caller,
    issuer: &str,
    subject: &str,
    user: &str,
    now: Millis,
) -> Result<(), Refusal> {
    let sql = "INSERT INTO identities (issuer, subject, user_id, created_at) VALUES ($1, $2, $3, $4)";
    tx.run(sql, &[issuer.into(), subject.into(), user.into(), now.into()])?;
    let detail = format!("{subject} of {issuer}");
    let entry = Entry { resource_type: "user", resource_id: user, operation: "identity", detail: &detail };
    Ok(audit::record_by(tx, caller, audit::SERVER, now, &entry)?)
}
