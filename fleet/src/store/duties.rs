//! Work that one server does for all of them. A duty is held for a while and held again before that ends; when its
//! holder dies, another one takes it over after that while.

use super::{DbError, Tx};
use crate::clock::Millis;

/// Takes or keeps a duty until `until`; false while another server has it. `now` is
/// the database's time ([`crate::skew`]): `until` has to be further away than they are apart, and no longer than its work may rest.
pub fn hold(tx: &Tx<'_>, duty: &'static str, server: &str, now: Millis, until: Millis) -> Result<bool, DbError> {
    let sql = "INSERT INTO duties (name, server, until) VALUES ($1, $2, $4)
               ON CONFLICT (name) DO UPDATE SET server = excluded.server, until = excluded.until
               WHERE duties.server = excluded.server OR duties.until < $3";
    Ok(tx.run(sql, &[duty.into(), server.into(), now.into(), until.into()])? > 0)
}

/// The time of the database that several servers share. There is no such thing on SQLite, which one server has.
pub fn clock_of_database(tx: &Tx<'_>) -> Result<Millis, DbError> {
    // Not of the transaction's begin; and cut off as every clock here is, where a cast would round up to what is not yet.
    let sql = "SELECT CAST(FLOOR(EXTRACT(EPOCH FROM clock_timestamp()) * 1000) AS BIGINT)";
    tx.first(sql, &[], |row| row.int(0))?.ok_or(DbError::Closed)
}

/// Gives it up, so that another one need not wait.
pub fn release(tx: &Tx<'_>, server: &str) -> Result<(), DbError> {
    tx.run("DELETE FROM duties WHERE server = $1", &[server.into()]).map(drop)
}

/// Digest of the key that the secrets in this database are sealed with; none before the first server has started.
pub fn key(tx: &Tx<'_>) -> Result<Option<String>, DbError> {
    tx.first("SELECT digest FROM server_keys", &[], |row| row.text(0))
}

/// The same in a file of SQLite that a version may have written which noted no key.
pub fn key_in_file(tx: &Tx<'_>) -> Result<Option<String>, DbError> {
    let notes_keys = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'server_keys'";
    match tx.first(notes_keys, &[], |_| Ok(()))? {
        Some(()) => key(tx),
        None => Ok(None),
    }
}

/// Whether the secrets in this database are sealed with the key of that digest. The first server to ask decides, until
/// one says that this key is to `replace` the one before.
pub fn fits_key(tx: &Tx<'_>, digest: &str, replace: bool) -> Result<bool, DbError> {
    if replace {
        tx.run("DELETE FROM server_keys WHERE digest <> $1", &[digest.into()])?;
    }
    match key(tx)? {
        Some(known) => Ok(known == digest),
        None => tx.run("INSERT INTO server_keys (digest) VALUES ($1)", &[digest.into()]).map(|_| true),
    }
}
