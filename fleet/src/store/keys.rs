//! API keys and the grants of whoever holds one.

use std::sync::Arc;

use super::{DbError, Row, Tx};
use crate::authz::{Grant, ResourceKind, Role};

/// What a login needs to know of a key.
pub struct Login {
    /// Of the secret.
    pub digest: String,
    /// Rises when the key is rotated.
    pub generation: u64,
    /// The organization it belongs to.
    pub organization: String,
}

/// By id, for a login or a token.
pub fn for_login(tx: &Tx<'_>, id: &str) -> Result<Option<Login>, DbError> {
    tx.first("SELECT digest, generation, organization_id FROM api_keys WHERE id = $1", &[id.into()], |row| {
        Ok(Login { digest: row.text(0)?, generation: row.int(1)?.unsigned_abs(), organization: row.text(2)? })
    })
}

/// What an identity was given.
pub fn grants_of(tx: &Tx<'_>, identity: &str) -> Result<Vec<Grant>, DbError> {
    let sql = "SELECT role, resource_type, resource_id, organization_id FROM grants
               WHERE identity_id = $1 ORDER BY created_at, resource_id";
    // A word that this version does not know gives nothing.
    Ok(tx.all(sql, &[identity.into()], grant)?.into_iter().flatten().collect())
}

fn grant(row: &Row<'_>) -> Result<Option<Grant>, DbError> {
    let (Some(role), Some(kind)) = (Role::parse(row.str(0)?), ResourceKind::parse(row.str(1)?)) else {
        return Ok(None);
    };
    Ok(Some(Grant { role, kind, resource: Arc::from(row.str(2)?), organization: Arc::from(row.str(3)?) }))
}
