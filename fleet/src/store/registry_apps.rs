//! Web applications that modules bring, by their name within the organization.

use super::{DbError, Tx, registry::Stored};
use crate::refusal::Refusal;

/// The module brings these from now on, and no others.
pub fn set(tx: &Tx<'_>, item: &Stored, names: &[&str]) -> Result<(), Refusal> {
    tx.run("DELETE FROM registry_apps WHERE item_id = $1", &[(&*item.id).into()])?;
    for name in names {
        let sql = "INSERT INTO registry_apps (organization_id, name, item_id) VALUES ($1, $2, $3)";
        let args = [(&*item.organization).into(), (*name).into(), (&*item.id).into()];
        tx.run(sql, &args).map_err(|why| match why {
            DbError::Exists(_) => {
                Refusal::exists(format!("another module of the organization has an application named {name:?}"))
            }
            other => other.into(),
        })?;
    }
    Ok(())
}

/// The module that brings an application.
pub fn item_of(tx: &Tx<'_>, namespace: &str, name: &str) -> Result<Option<String>, DbError> {
    let sql = "SELECT a.item_id FROM registry_apps a JOIN organizations o ON o.id = a.organization_id
               WHERE o.public_namespace = $1 AND a.name = $2";
    tx.first(sql, &[namespace.into(), name.into()], |row| row.text(0))
}
