//! Everything the server keeps, and the only place with SQL in it.
//!
//! Two databases: `state` (who owns what) and `logs` (what devices said), each with its own writer, so that a flood of
//! log lines cannot hold up a change of configuration. Each is a file of SQLite, or a schema in one PostgreSQL database.
//!
//! One SQL text for every engine: `$n` parameters, TEXT ids and JSON, BIGINT for times (milliseconds), counts and
//! flags, `RETURNING`, `ON CONFLICT`. Where engines differ, it is stated here: `SUM` of BIGINT wants a cast; `LIKE`
//! ignores case on one of them only (do not use it on names); NUL in text is refused by one only (the edge refuses it);
//! ORDER BY text only on ids and explicit keys, because collations differ.
//!
//! A function that changes something or reads a secret takes a [`crate::authz::Granted`], which only the
//! authorization module can make: a forgotten check does not compile.

pub mod artifacts;
pub mod audit;
pub mod db;
pub mod dependents;
pub mod devices;
pub mod duties;
pub mod fragment_history;
pub mod fragment_users;
pub mod fragments;
pub mod history;
pub mod identities;
pub mod invites;
pub mod keys;
pub mod locations;
pub mod logs;
pub mod machines;
pub mod mails;
pub mod metadata;
pub mod naming;
pub mod news;
pub mod organizations;
pub mod parts;
pub mod registry;
pub mod registry_apps;
pub mod registry_files;
pub mod registry_users;
pub mod roles;
pub mod secrets;
pub mod status;
pub mod tree;
pub mod users;

use std::{
    path::Path,
    sync::{Arc, OnceLock},
};

pub use db::{
    Address, AddressError, Arg, Counted, Db, DbError, Durability, Migration, Note, OpenError, PageCache, Place, Row,
    Still, StillError, TlsSetupError, Tx,
};

use crate::clock::Clock;

const STATE: &[Migration] = &[
    Migration { number: 1, name: "first", sql: include_str!("../../migrations/state/0001_first.sql") },
    Migration { number: 2, name: "restart_told", sql: include_str!("../../migrations/state/0002_restart_told.sql") },
    Migration {
        number: 3,
        name: "fragment_revision_names",
        sql: include_str!("../../migrations/state/0003_fragment_revision_names.sql"),
    },
    Migration { number: 4, name: "people", sql: include_str!("../../migrations/state/0004_people.sql") },
    Migration { number: 5, name: "registry", sql: include_str!("../../migrations/state/0005_registry.sql") },
    Migration {
        number: 6,
        name: "people_from_outside",
        sql: include_str!("../../migrations/state/0006_people_from_outside.sql"),
    },
    Migration { number: 7, name: "servers", sql: include_str!("../../migrations/state/0007_servers.sql") },
    Migration { number: 8, name: "signing_in", sql: include_str!("../../migrations/state/0008_signing_in.sql") },
    Migration {
        number: 9,
        name: "names_by_revision",
        sql: include_str!("../../migrations/state/0009_names_by_revision.sql"),
    },
];

/// How many changes the state database has seen when it is up to date.
pub const CHANGES: i64 = STATE.len() as i64;

/// The changes of the log database, in order.
const LOGS: &[Migration] =
    &[Migration { number: 1, name: "blocks", sql: include_str!("../../migrations/logs/0001_blocks.sql") }];

/// A database says which change was its last: one that came in before it later would never be made.
const _: () = assert!(are_counted(STATE) && are_counted(LOGS), "changes are counted from 1, without gaps");

const fn are_counted(migrations: &[Migration]) -> bool {
    let mut counted = 0;
    while counted < migrations.len() {
        if migrations[counted].number != counted as i64 + 1 {
            return false;
        }
        counted += 1;
    }
    true
}

/// The databases of SQLite, in the data folder.
pub const STATE_FILE: &str = "state.db";
/// See [`STATE_FILE`].
pub const LOGS_FILE: &str = "logs.db";

/// Of each of the five connections that read points and write: ten thousand machines, and of a million the upper pages of
/// every index. A commit empties the caches of those who read, so more would only be filled again.
const STATE_CACHE: PageCache = PageCache(16 * 1024);

/// Both databases. `store.read`, `store.scan` and `store.write` speak to `state`.
#[derive(Clone)]
pub struct Store {
    /// Organizations, locations, machines, parts, fragments, keys, audit.
    pub state: Db,
    /// Log entries and batch numbers.
    pub logs: Db,
    ear: Arc<OnceLock<Ear>>,
}

/// Who hears what this process tells, between the commit and the answer.
type Ear = Box<dyn Fn(&[news::Numbered]) + Send + Sync>;

impl Store {
    /// Opens both: files of the data folder, or schemas of a PostgreSQL database.
    pub fn open(folder: &Path, database: Option<&Address>, durability: Durability) -> Result<Self, OpenError> {
        let place = |file, schema| match database {
            Some(address) => Place::Schema(address.clone(), schema),
            None => Place::File(folder.join(file)),
        };
        Ok(Self {
            state: Db::open_caching(&place(STATE_FILE, "fleet_state"), STATE, durability, STATE_CACHE)?,
            logs: Db::open(&place(LOGS_FILE, "fleet_logs"), LOGS, durability)?,
            ear: Arc::default(),
        })
    }

    /// See [`Db::read`].
    pub async fn read<T, E: From<DbError>>(&self, work: impl FnOnce(&Tx<'_>) -> Result<T, E>) -> Result<T, E> {
        self.state.read(work).await
    }

    /// See [`Db::scan`].
    pub async fn scan<T, E>(&self, work: impl FnOnce(&Tx<'_>) -> Result<T, E> + Send + 'static) -> Result<T, E>
    where
        T: Send + 'static,
        E: From<DbError> + Send + 'static,
    {
        self.state.scan(work).await
    }

    /// From now on `ear` hears what changes of this process tell (see [`news`]), before their answer goes out. It must
    /// not hold this store, and may wait for nothing. Once.
    pub fn heard_by(&self, ear: impl Fn(&[news::Numbered]) + Send + Sync + 'static) {
        let set = self.ear.set(Box::new(ear));
        assert!(set.is_ok(), "one ear is enough");
    }

    /// See [`Db::write`]. What `work` told is written down with it, and heard here before this returns.
    pub async fn write<T, E>(&self, work: impl FnOnce(&Tx<'_>) -> Result<T, E> + Send + 'static) -> Result<T, E>
    where
        T: Send + 'static,
        E: From<DbError> + Send + 'static,
    {
        let ear = self.ear.clone();
        let work = move |tx: &Tx<'_>| {
            let done = work(tx)?;
            let told = news::write(tx, Clock::default().now())?;
            Ok((done, told))
        };
        let hear = move |(_, told): &(T, Vec<news::Numbered>)| {
            if let Some(ear) = ear.get().filter(|_| !told.is_empty()) {
                ear(told);
            }
        };
        self.state.write_then(work, hear).await.map(|(done, _)| done)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn keys_of_an_older_server_are_good_after_the_upgrade() {
        upgrade(None).await;
        if let Some(url) = test_postgres::database_or_skip("an upgrade on PostgreSQL") {
            upgrade(Some(Address::parse(&url).unwrap())).await;
        }
    }

    async fn upgrade(database: Option<Address>) {
        let folder = tempfile::tempdir().unwrap();
        let before = &STATE[..2];
        let place = match &database {
            Some(address) => Place::Schema(address.clone(), "fleet_state"),
            None => Place::File(folder.path().join("state.db")),
        };
        let old = Db::open(&place, before, Durability::default()).unwrap();
        let fill = |tx: &Tx<'_>| {
            let statements = [
                "INSERT INTO organizations (id, name, region, created_at) VALUES ('org', 'Acme', '', 1)",
                "INSERT INTO api_keys (id, organization_id, name, digest, generation, created_at)
                 VALUES ('key', 'org', 'first', 'digest', 7, 2)",
                "INSERT INTO grants (identity_type, identity_id, organization_id, role, resource_type, resource_id, created_at)
                 VALUES ('api-key', 'key', 'org', 'owner', 'organization', 'org', 2)",
            ];
            statements.iter().try_for_each(|sql| tx.run(sql, &[]).map(drop))
        };
        old.write::<_, DbError, _>(fill).await.unwrap();
        drop(old);
        let store = Store::open(folder.path(), database.as_ref(), Durability::default()).unwrap();
        let read =
            |tx: &Tx<'_>| Ok((keys::for_login(tx, "key")?, keys::get(tx, "key")?, roles::of_identity(tx, "key")?));
        let (login, key, grants) = store.read::<_, DbError>(read).await.unwrap();
        let (login, key) = (login.unwrap(), key.unwrap());
        assert_eq!((&*login.digest, login.generation, login.user), ("digest", 7, None));
        assert_eq!(
            (key.organization.as_deref(), key.user, &*key.name, key.created_at),
            (Some("org"), None, "first", 2)
        );
        assert_eq!(grants.len(), 1);
        let neither = "INSERT INTO api_keys (id, name, digest, generation, created_at) VALUES ('x', '', '', 1, 1)";
        assert!(store.write::<_, DbError>(move |tx| tx.run(neither, &[])).await.is_err(), "whose key is that?");
    }
}
