//! Programs that start at the same moment on one database: an empty one, and one of the first version.

use std::{
    collections::BTreeSet,
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use api::pb::platform::{
    app::v1::*,
    fleet::v1::{ListAuditEventsRequest, ListAuditEventsResponse},
};
use fleet::{
    authn::digest_of,
    store::{Db, DbError, Durability, Migration, Place, Store, Tx},
    wiring::{self, Options},
};
use tokio::sync::watch;

use super::world::{
    engine::{self, ON_POSTGRES},
    process::{Keys, Server, init},
};

/// Servers that one database may have: of SQLite there is one, and commands may run beside it.
const SERVERS: usize = if ON_POSTGRES { 4 } else { 1 };
const COMMANDS: usize = 4;
/// They meet at another place each time.
const ROUNDS: usize = 3;

/// Where programs keep what they do not keep in the database. On PostgreSQL each has a folder of its own, with one key.
fn folders(folder: &tempfile::TempDir) -> Vec<PathBuf> {
    if !ON_POSTGRES {
        return vec![folder.path().join("data"); SERVERS + COMMANDS];
    }
    (0..SERVERS + COMMANDS)
        .map(|n| {
            let data = folder.path().join(format!("data{n}"));
            fs::create_dir(&data).unwrap();
            fs::write(data.join("server.key"), [7; 32]).unwrap();
            fs::set_permissions(data.join("server.key"), PermissionsExt::from_mode(0o600)).unwrap();
            data
        })
        .collect()
}

/// All of them at once: the servers, and the keys that the commands made.
fn start_together(folders: &[PathBuf]) -> (Vec<Server>, Vec<Keys>) {
    // Where it is has to be known before anybody looks.
    engine::url(folders[0].parent().unwrap());
    let (for_servers, for_commands) = folders.split_at(SERVERS);
    std::thread::scope(|scope| {
        let servers: Vec<_> = for_servers.iter().map(|data| scope.spawn(|| Server::start(data))).collect();
        let commands: Vec<_> = for_commands.iter().map(|data| scope.spawn(|| init(data))).collect();
        let servers = servers.into_iter().map(|one| one.join().unwrap()).collect();
        (servers, commands.into_iter().map(|one| one.join().unwrap()).collect())
    })
}

/// The changes of the tables that were made, in order: of the state, and of the logs.
async fn changes(data: &Path) -> [Vec<i64>; 2] {
    let store = Store::open(data, engine::database(data.parent().unwrap()).as_ref(), Durability::default()).unwrap();
    let list = |tx: &Tx<'_>| tx.all("SELECT number FROM migrations ORDER BY number", &[], |row| row.int(0));
    [store.state.read::<_, DbError, _>(list).await.unwrap(), store.logs.read::<_, DbError, _>(list).await.unwrap()]
}

/// Each key is good at each server, and each server can be written to.
async fn all_work(servers: &[Server], keys: &[Keys]) {
    for server in servers {
        for key in keys {
            let owner = server.owner(key).await;
            owner.location("North", None).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn programs_that_start_together_fill_an_empty_database_once() {
    for _ in 0..ROUNDS {
        let folder = tempfile::tempdir().unwrap();
        let folders = folders(&folder);
        let (servers, keys) = start_together(&folders);
        all_work(&servers, &keys).await;
        drop(servers);
        assert_eq!(changes(&folders[0]).await, [(1..=fleet::store::CHANGES).collect::<Vec<i64>>(), vec![1]]);
        // Each of them has the key that lies there: another one would be refused by the database.
        all_work(&[Server::start(&folders[0])], &keys).await;
    }
}

/// None of them takes the key that another one has just made for one that is lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn those_that_start_together_in_a_new_folder_have_one_key() {
    for _ in 0..20 {
        let folder = tempfile::tempdir().unwrap();
        let database = engine::database(folder.path());
        let starts: Vec<_> = (0..4)
            .map(|_| {
                let options =
                    Options { folder: folder.path().join("data"), database: database.clone(), ..Options::default() };
                let (_stop, draining) = watch::channel(false);
                tokio::spawn(async move { wiring::context(&options, None, draining).await })
            })
            .collect();
        let mut keys = BTreeSet::new();
        for start in starts {
            let context = start.await.unwrap().unwrap_or_else(|why| panic!("{why}"));
            keys.insert(context.authn.sealer.digest().to_owned());
        }
        assert_eq!(keys.len(), 1);
    }
}

/// As the first version left it: one of everything, in the tables that it had.
async fn fill(state: &Db, old: &Old) {
    let (Old { organization, location, machine, part, key, key_digest, secret_digest }, config) = (old.clone(), CONFIG);
    let fill = move |tx: &Tx<'_>| {
        tx.run(
            "INSERT INTO organizations (id, name, region, created_at) VALUES ($1, 'Acme', '', 1)",
            &[(&organization).into()],
        )?;
        tx.run(
            "INSERT INTO locations (id, organization_id, name, region, created_at) VALUES ($1, $2, 'North', '', 2)",
            &[(&location).into(), (&organization).into()],
        )?;
        tx.run(
            "INSERT INTO machines (id, location_id, name, created_at) VALUES ($1, $2, 'arm', 3)",
            &[(&machine).into(), (&location).into()],
        )?;
        tx.run(
            "INSERT INTO parts (id, machine_id, name, dns_name, main, config, updated_at, restart_marked_at, created_at)
             VALUES ($1, $2, 'arm-main', 'arm-main', 1, $3, 1000, 900, 3)",
            &[(&part).into(), (&machine).into(), config.into()],
        )?;
        tx.run(
            "INSERT INTO part_secrets (id, part_id, digest, sealed, created_at) VALUES ($1, $2, $3, '', 3)",
            &[(&fleet::ids::new_id()).into(), (&part).into(), (&secret_digest).into()],
        )?;
        tx.run(
            "INSERT INTO part_history
                 (part_id, changed_at, old_name, old_config, old_updated_at, edited_by_type, edited_by)
             VALUES ($1, 1000, 'arm-main', '{\"former\": true}', 3, 1, 'somebody')",
            &[(&part).into()],
        )?;
        tx.run("INSERT INTO part_presence (part_id, last_access) VALUES ($1, 5500)", &[(&part).into()])?;
        tx.run(
            "INSERT INTO api_keys (id, organization_id, name, digest, generation, created_at)
             VALUES ($1, $2, 'first', $3, 7, 2)",
            &[(&key).into(), (&organization).into(), (&key_digest).into()],
        )?;
        tx.run(
            "INSERT INTO grants (identity_type, identity_id, organization_id, role, resource_type, resource_id, created_at)
             VALUES ('api-key', $1, $2, 'owner', 'organization', $2, 2)",
            &[(&key).into(), (&organization).into()],
        )?;
        tx.run(
            "INSERT INTO audit (organization_id, happened_at, id, actor, from_address, operation, resource_type,
                 resource_id, detail) VALUES ($1, 1000, 'first', 'local', '', 'UpdateRobotPart', 'part', $2, '')",
            &[(&organization).into(), (&part).into()],
        )
        .map(drop)
    };
    state.write::<_, DbError, _>(fill).await.unwrap();
}

/// What it is of, by ids.
#[derive(Clone)]
struct Old {
    organization: String,
    location: String,
    machine: String,
    part: String,
    key: String,
    key_digest: String,
    secret_digest: String,
}

/// Names a module: there was no registry yet that could have noted it.
const CONFIG: &str =
    r#"{"modules": [{"name": "camera", "type": "registry", "module_id": "acme:camera", "version": "1.0.0"}]}"#;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn programs_that_start_together_bring_an_old_database_up_to_date_once_and_keep_its_rows() {
    let folder = tempfile::tempdir().unwrap();
    let folders = folders(&folder);
    fs::create_dir_all(&folders[0]).unwrap();
    let first = Migration { number: 1, name: "first", sql: include_str!("../../migrations/state/0001_first.sql") };
    let place = match engine::database(folder.path()) {
        Some(address) => Place::Schema(address, "fleet_state"),
        None => Place::File(folders[0].join("state.db")),
    };
    let id = fleet::ids::new_id;
    let old = Old {
        organization: id(),
        location: id(),
        machine: id(),
        part: id(),
        key: id(),
        key_digest: digest_of("the key"),
        secret_digest: digest_of("the secret"),
    };
    let state = Db::open(&place, &[first], Durability::default()).unwrap();
    fill(&state, &old).await;
    drop(state);

    let (servers, mut keys) = start_together(&folders);
    let theirs = (old.organization.clone(), old.key.clone(), "the key".to_owned());
    keys.push(theirs.clone());
    for server in &servers {
        let owner = server.owner(&theirs).await;
        let part = owner.main_part(&old.machine).await;
        assert_eq!((&part.id, part.robot_config_json.as_deref()), (&old.part, Some(CONFIG)));
        // Of half a second more: servers tell it by their own clocks.
        assert_eq!(part.last_access.map(|at| at.seconds), Some(5));
        let request = GetRobotPartHistoryRequest { id: old.part.clone(), ..Default::default() };
        let history: GetRobotPartHistoryResponse = owner.client.app("GetRobotPartHistory", request).await.unwrap();
        let former: Vec<_> = history.history.into_iter().map(|one| one.old.unwrap().robot_config_json).collect();
        assert_eq!(former, [Some(r#"{"former": true}"#.to_owned())]);
        let request = ListAuditEventsRequest { organization_id: old.organization.clone(), ..Default::default() };
        let path = "/platform.fleet.v1.AdminService/ListAuditEvents";
        let listed: ListAuditEventsResponse = owner.client.call(path, request).await.unwrap();
        assert_eq!(listed.events.iter().filter(|event| event.resource_id == old.part).count(), 1);
    }
    // Its restart still stands, for the device that asks first.
    let device = servers[0].login("robot-secret", &old.part, "the secret").await;
    let request = NeedsRestartRequest { id: old.part.clone() };
    let answer: NeedsRestartResponse =
        device.call("/platform.app.v1.RobotService/NeedsRestart", request).await.unwrap();
    assert!(answer.must_restart);
    all_work(&servers, &keys).await;
    drop(servers);
    assert_eq!(changes(&folders[0]).await, [(1..=fleet::store::CHANGES).collect::<Vec<i64>>(), vec![1]]);
    // What SQL cannot read was done too, once.
    let store = Store::open(&folders[0], engine::database(folder.path()).as_ref(), Durability::default()).unwrap();
    let uses = |tx: &Tx<'_>| {
        let sql = "SELECT owner, name FROM registry_uses WHERE user_id = $1";
        tx.all(sql, &[(&old.part).into()], |row| Ok((row.text(0)?, row.text(1)?)))
    };
    assert_eq!(store.read::<_, DbError>(uses).await.unwrap(), [("acme".to_owned(), "camera".to_owned())]);
}
