//! The server is killed by `kill -9` while it is written to in every way, and started again.

use std::fs;

use api::pb::platform::app::v1::*;
use fleet::{
    artifacts::sweep,
    authn::digest_of,
    store::{DbError, Durability, Store, artifacts, parts},
    wiring,
};

use super::{
    world::{
        self, PATIENCE, World,
        process::{Server, init},
    },
    writers::{self, Load, There},
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_was_acknowledged_is_there_after_kill_9_and_nothing_is_half_done() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let keys = init(&data);
    let mut server = Server::start_unlimited(&data);
    for _ in 0..2 {
        let mut load = Load::begin(&There { url: server.url.clone(), keys: keys.clone() }).await;
        load.acknowledged(8).await;
        load.is_killed();
        server.kill();
        let mut writers = load.end().await;
        server = Server::start_unlimited(&data);
        writers::check(&mut writers, &There { url: server.url.clone(), keys: keys.clone() }).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_an_upload_that_a_kill_broke_off_nothing_stays() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let keys = init(&data);
    let mut server = Server::start_unlimited(&data);
    let owner = server.owner(&keys).await;
    let create = CreateModuleRequest { organization_id: owner.organization.clone(), name: "camera".into() };
    let module: CreateModuleResponse = owner.client.app("CreateModule", create).await.unwrap();
    // One is whole, and one is on its way.
    let whole = [writers::about(&module.module_id, "1.0.0"), writers::piece(b"all of it")];
    writers::upload(&owner.client, tokio_stream::iter(whole)).await.unwrap();
    let (sender, messages) = tokio::sync::mpsc::channel(4);
    let (client, messages) = (owner.client.clone(), tokio_stream::wrappers::ReceiverStream::new(messages));
    let broken_off = tokio::spawn(async move { writers::upload(&client, messages).await });
    sender.send(writers::about(&module.module_id, "2.0.0")).await.unwrap();
    sender.send(writers::piece(&vec![7; 1 << 20])).await.unwrap();
    let names = |folder: &str| -> Vec<String> {
        let Ok(entries) = fs::read_dir(data.join("artifacts").join(folder)) else { return Vec::new() };
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    };
    let incoming = |name: &str| fs::metadata(data.join("artifacts/incoming").join(name)).unwrap().len();
    let until = async |what: &str, holds: &dyn Fn() -> bool| {
        let wait = async {
            while !holds() {
                tokio::time::sleep(std::time::Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(PATIENCE, wait).await.unwrap_or_else(|_| panic!("never: {what}"));
    };
    until("half of it lies there", &|| names("incoming").iter().any(|name| incoming(name) > 0)).await;
    server.kill();
    assert!(broken_off.await.unwrap().is_err());
    assert!(matches!(&*names("incoming"), [one] if incoming(one) > 0), "a killed server tidies nothing up");
    // One more was killed after its bytes had their name, and before anybody referred to them.
    let (text, database) = ("named, and never referred to", world::engine::database(folder.path()));
    fs::write(data.join("artifacts/sha256").join(digest_of(text)), text).unwrap();
    let store = Store::open(&data, database.as_ref(), Durability::default()).unwrap();
    let announce = move |tx: &fleet::store::Tx<'_>| artifacts::announce(tx, &digest_of(text), 0);
    assert!(store.write::<_, DbError>(announce).await.unwrap());
    drop(store);

    let world = World::again(folder, |_: &mut wiring::Options| {}).await;
    until("the half is gone", &|| names("incoming").is_empty()).await;
    sweep::round(&world.server.context).await.unwrap();
    assert_eq!(names("sha256"), [digest_of("all of it")]);
    let client = world.login("api-key", &keys.1, &keys.2).await.unwrap();
    let request = GetModuleRequest { module_id: module.module_id, ..Default::default() };
    let got: GetModuleResponse = client.app("GetModule", request).await.unwrap();
    let versions: Vec<String> = got.module.unwrap().versions.into_iter().map(|one| one.version).collect();
    assert_eq!(versions, ["1.0.0"]);
    world.end().await;
}

/// It is written down once a second: what was heard since is lost with the server, what was written before is not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn when_a_device_last_spoke_outlives_a_kill_as_far_as_it_was_written_down() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let keys = init(&data);
    let mut server = Server::start_unlimited(&data);
    let owner = server.owner(&keys).await;
    let location = owner.location("North", None).await;
    let machine = owner.machine(&location, "arm").await;
    let part = owner.main_part(&machine).await;
    let device = server.login("robot-secret", &part.id, &part.secrets[0].secret).await;
    let last_access = async |owner: &world::Owner| {
        let at = owner.main_part(&machine).await.last_access.expect("it has spoken");
        at.seconds * 1000 + i64::from(at.nanos) / 1_000_000
    };
    // What another process finds in the database.
    let store = Store::open(&data, world::engine::database(folder.path()).as_ref(), Durability::default()).unwrap();
    let written = async || {
        let id = part.id.clone();
        let found = store.read::<_, DbError>(|tx| parts::get(tx, &id)).await.unwrap();
        found.unwrap().last_access.unwrap_or_default()
    };
    device.check_in(&part.id).await;
    let first = last_access(&owner).await;
    let wait = async {
        while written().await < first {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
            // It goes on speaking: what is written is never behind for long.
            device.check_in(&part.id).await;
        }
    };
    tokio::time::timeout(PATIENCE, wait).await.expect("it is written down");
    let last = last_access(&owner).await;
    server.kill();
    let stored = written().await;
    drop(store);
    let server = Server::start_unlimited(&data);
    let owner = server.owner(&keys).await;
    assert_eq!(last_access(&owner).await, stored, "as it was written down");
    assert!(first <= stored && stored <= last, "{first} {stored} {last}");
    let request = ListMachineSummariesRequest { organization_id: owner.organization.clone(), ..Default::default() };
    let listed: ListMachineSummariesResponse = owner.client.app("ListMachineSummaries", request).await.unwrap();
    let part = listed.location_summaries[0].machine_summaries[0].part_summaries[0].clone();
    assert_eq!(part.last_online.map(|at| at.seconds), Some(stored / 1000), "{part:?}");
    // And it goes on, as if nothing had been.
    let device = server
        .login("robot-secret", &part.part_id, &{ owner.main_part(&machine).await.secrets[0].secret.clone() })
        .await;
    device.check_in(&part.part_id).await;
    assert!(last_access(&owner).await > stored);
}
