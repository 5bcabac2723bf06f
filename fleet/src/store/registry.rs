//! Registry items: modules, models, training scripts. Their versions and files are `registry_files.rs`.

use super::{Arg, DbError, Row, Tx, audit, audit::Entry, news, news::News, registry_files, registry_users};
use crate::{
    authz::{Granted, Organization, Permission, RegistryItem, right},
    clock::Millis,
    ids,
    refusal::Refusal,
};

/// Visibility on the wire: only the organization's.
pub const PRIVATE: i64 = 1;
/// Everybody's, and listed for everybody.
pub const PUBLIC: i64 = 2;

/// One row.
#[derive(Debug, Clone)]
pub struct Stored {
    /// UUID; clients never see it.
    pub id: String,
    /// The organization that owns it.
    pub organization: String,
    /// That organization's namespace.
    pub namespace: Option<String>,
    /// Letters, digits, dashes and underscores.
    pub name: String,
    /// PackageType.
    pub kind: i64,
    /// Visibility.
    pub visibility: i64,
    /// Where its sources are.
    pub url: String,
    /// For people.
    pub description: String,
    /// An encoded RegistryItem of which only `metadata` and `billing` are set.
    pub details: Vec<u8>,
    /// When it was created.
    pub created_at: Millis,
    /// Strictly increasing.
    pub updated_at: Millis,
}

impl Stored {
    /// What its ids begin with: the namespace once there is one.
    pub fn owner(&self) -> &str {
        self.namespace.as_deref().unwrap_or(&self.organization)
    }

    /// As clients know it.
    pub fn item_id(&self) -> String {
        format!("{}:{}", self.owner(), self.name)
    }
}

macro_rules! select {
    ($rest:literal) => {
        concat!(
            "SELECT i.id, i.organization_id, o.public_namespace, i.name, i.type, i.visibility, i.url, i.description,
                    i.details, i.created_at, i.updated_at
             FROM registry_items i JOIN organizations o ON o.id = i.organization_id ",
            $rest
        )
    };
}

fn stored(row: &Row<'_>) -> Result<Stored, DbError> {
    Ok(Stored {
        id: row.text(0)?,
        organization: row.text(1)?,
        namespace: row.maybe_text(2)?,
        name: row.text(3)?,
        kind: row.int(4)?,
        visibility: row.int(5)?,
        url: row.text(6)?,
        description: row.text(7)?,
        details: row.blob(8)?.to_vec(),
        created_at: row.int(9)?,
        updated_at: row.int(10)?,
    })
}

/// By its own id.
pub fn get(tx: &Tx<'_>, id: &str) -> Result<Option<Stored>, DbError> {
    tx.first(select!("WHERE i.id = $1"), &[id.into()], stored)
}

/// By a namespace or an organization's id, and its name. No namespace is written like an id.
pub fn find(tx: &Tx<'_>, owner: &str, name: &str) -> Result<Option<Stored>, DbError> {
    let sql = match ids::is_id(owner) {
        true => select!("WHERE i.organization_id = $1 AND i.name = $2"),
        false => select!("WHERE o.public_namespace = $1 AND i.name = $2"),
    };
    tx.first(sql, &[owner.into(), name.into()], stored)
}

/// Of one organization.
pub fn of_organization(tx: &Tx<'_>, organization: &str) -> Result<Vec<Stored>, DbError> {
    tx.all(select!("WHERE i.organization_id = $1 ORDER BY i.id"), &[organization.into()], stored)
}

/// How many an organization has.
pub fn count(tx: &Tx<'_>, organization: &str) -> Result<i64, DbError> {
    let sql = "SELECT COUNT(*) FROM registry_items WHERE organization_id = $1";
    Ok(tx.first(sql, &[organization.into()], |row| row.int(0))?.unwrap_or_default())
}

/// Listed for everybody.
pub fn public(tx: &Tx<'_>) -> Result<Vec<Stored>, DbError> {
    tx.all(select!("WHERE i.visibility = 2 ORDER BY i.id"), &[], stored)
}

/// What an item is to be.
pub struct New<'a> {
    /// UUID.
    pub id: &'a str,
    /// As checked.
    pub name: &'a str,
    /// PackageType.
    pub kind: i64,
    /// See [`Stored::details`].
    pub details: &'a [u8],
    /// "CreateModule" or "CreateRegistryItem".
    pub operation: &'static str,
}

/// A new item, private and without a file.
pub fn create(
    tx: &Tx<'_>,
    granted: &Granted<Organization, right::WritePrivateRegistryItem>,
    new: &New<'_>,
    now: Millis,
) -> Result<(), Refusal> {
    let sql = "INSERT INTO registry_items
                   (id, organization_id, name, type, visibility, url, description, details, created_at, updated_at)
               VALUES ($1, $2, $3, $4, $5, '', '', $6, $7, $7)";
    let args = [
        new.id.into(),
        granted.id().into(),
        new.name.into(),
        new.kind.into(),
        PRIVATE.into(),
        Arg::Blob(new.details),
        now.into(),
    ];
    tx.run(sql, &args).map_err(|why| match why {
        DbError::Exists(_) => Refusal::exists(format!("the organization has a registry item named {:?}", new.name)),
        other => other.into(),
    })?;
    let entry = Entry {
        resource_type: "registry item",
        resource_id: new.id,
        operation: new.operation,
        detail: &format!("{:?}", new.name),
    };
    Ok(audit::record_by(tx, granted.caller(), granted.id(), now, &entry)?)
}

/// Replaces what was read in this very transaction.
pub fn update(
    tx: &Tx<'_>,
    granted: &Granted<RegistryItem, right::WritePrivateRegistryItem>,
    old: &Stored,
    new: &Stored,
    (operation, now): (&'static str, Millis),
) -> Result<(), Refusal> {
    if new.visibility != PRIVATE && new.namespace.is_none() {
        return Err(Refusal::precondition(
            "only an organization with a public namespace can have public items: give it one with UpdateOrganization",
        ));
    }
    may_touch(granted, old)?;
    may_touch(granted, new)?;
    let sql = "UPDATE registry_items SET visibility = $2, url = $3, description = $4, details = $5, updated_at = $6
               WHERE id = $1";
    let args = [
        granted.id().into(),
        new.visibility.into(),
        (&*new.url).into(),
        (&*new.description).into(),
        Arg::Blob(&new.details),
        // Two changes within a millisecond, or a clock set back, must not look like one.
        now.max(old.updated_at + 1).into(),
    ];
    tx.run(sql, &args)?;
    let detail = match old.visibility == new.visibility {
        true => format!("{:?}", new.name),
        false => format!("{:?}, visibility {} → {}", new.name, word(old.visibility), word(new.visibility)),
    };
    Ok(audit::record(tx, granted, now, operation, &detail)?)
}

/// What others see needs a permission of its own.
pub fn may_touch(
    granted: &Granted<RegistryItem, right::WritePrivateRegistryItem>,
    item: &Stored,
) -> Result<(), Refusal> {
    match item.visibility == PRIVATE || granted.also::<right::WritePublicRegistryItem>().is_some() {
        true => Ok(()),
        false => Err(Refusal::denied(Permission::WritePublicRegistryItem.word())),
    }
}

fn word(visibility: i64) -> &'static str {
    match visibility {
        PRIVATE => "private",
        PUBLIC => "public",
        _ => "public but unlisted",
    }
}

/// Removes an item that nobody uses, with its versions. The files stay in the artifact store until it is swept.
pub fn delete(
    tx: &Tx<'_>,
    granted: &Granted<RegistryItem, right::WritePrivateRegistryItem>,
    now: Millis,
) -> Result<(), Refusal> {
    let old = get(tx, granted.id())?.ok_or_else(|| Refusal::not_found("registry item", ""))?;
    may_touch(granted, &old)?;
    if let Some(who) = registry_users::dependents(&old).told(tx)? {
        return Err(Refusal::precondition(format!("the registry item is in use: {who}")));
    }
    remove(tx, &old.id)?;
    news::tell(tx, News::Tree);
    Ok(audit::record(tx, granted, now, "DeleteRegistryItem", &format!("{:?}", old.name))?)
}

/// The rows. Whoever names it without being allowed to use it goes on naming what is not there.
pub(super) fn remove(tx: &Tx<'_>, id: &str) -> Result<(), DbError> {
    registry_files::let_go(tx, id)?;
    tx.run("DELETE FROM registry_items WHERE id = $1", &[id.into()])?;
    Ok(())
}
