//! The database dies under load and comes back: the server says UNAVAILABLE meanwhile, and goes on by itself.

#[path = "../world/mod.rs"]
mod world;

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::{Duration, Instant},
};

use api::pb::platform::app::v1::*;
use fleet::{store::Address, wiring};
use tonic::Code;

use world::{PATIENCE, World};

/// How long the server gives a statement: who waited for a dead database would have waited so long.
const STATEMENT_WITHIN: Duration = Duration::from_secs(30);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_acknowledged_write_is_lost_and_every_refusal_is_unavailable() {
    if test_postgres::database_or_skip("the database dies under load").is_none() {
        return;
    }
    let database = Arc::new(test_postgres::Server::start(&test_postgres::Options::default()).unwrap());
    let folder = tempfile::tempdir().unwrap();
    let options = wiring::Options {
        folder: folder.path().join("data"),
        database: Some(Address::parse(&database.database()).unwrap()),
        ..Default::default()
    };
    let world = World { folder, server: wiring::start(options).await.unwrap() };
    let owner = world.owner("Acme").await;

    let ended = Arc::new(AtomicBool::new(false));
    let (tell, mut heard) = tokio::sync::mpsc::unbounded_channel();
    for writer in 0..8 {
        let (client, tell, ended) = (owner.client.clone(), tell.clone(), ended.clone());
        let organization_id = owner.organization.clone();
        tokio::spawn(async move {
            for n in 0.. {
                let name = format!("{writer}-{n}");
                let organization_id = organization_id.clone();
                let request = CreateLocationRequest { organization_id, name: name.clone(), parent_location_id: None };
                let outcome = client.app::<_, CreateLocationResponse>("CreateLocation", request).await;
                let refused = outcome.is_err();
                let _ = tell.send((name, outcome.map(drop)));
                if ended.load(SeqCst) {
                    return;
                }
                if refused {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            }
        });
    }
    drop(tell);
    let mut acknowledged = Vec::new();
    let mut refused = 0;
    let mut note = |(name, outcome): (String, Result<(), tonic::Status>)| match outcome {
        Ok(()) => acknowledged.push(name),
        Err(status) => {
            assert_eq!(status.code(), Code::Unavailable, "{status:?}");
            refused += 1;
        }
    };
    for _ in 0..50 {
        note(heard.recv().await.unwrap());
    }
    let order = |what: fn(&test_postgres::Server)| {
        let database = database.clone();
        tokio::task::spawn_blocking(move || what(&database))
    };
    order(test_postgres::Server::crash).await.unwrap();
    // Dead: whoever asks hears so at once, and the server itself answers.
    let list = || ListLocationsRequest { organization_id: owner.organization.clone() };
    let begin = Instant::now();
    let asked = owner.client.app::<_, ListLocationsResponse>("ListLocations", list()).await;
    assert_eq!(asked.unwrap_err().code(), Code::Unavailable);
    assert!(begin.elapsed() < STATEMENT_WITHIN, "{:?}", begin.elapsed());
    order(test_postgres::Server::start_again).await.unwrap();
    let begin = Instant::now();
    while owner.client.app::<_, ListLocationsResponse>("ListLocations", list()).await.is_err() {
        assert!(begin.elapsed() < PATIENCE, "never reached again");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    println!("reached again after {:?}", begin.elapsed());
    // Writes go on too.
    while let Some(next) = heard.recv().await {
        let good = next.1.is_ok();
        note(next);
        if good && begin.elapsed() > Duration::from_millis(500) {
            ended.store(true, SeqCst);
        }
    }
    assert!(refused > 0, "the load met the outage");
    let listed: ListLocationsResponse = owner.client.app("ListLocations", list()).await.unwrap();
    let there: std::collections::HashSet<String> = listed.locations.into_iter().map(|one| one.name).collect();
    for name in &acknowledged {
        assert!(there.contains(name), "{name} was acknowledged and is gone");
    }
    world.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_whose_disk_is_full_is_told_and_written_to_again_when_it_is_not() {
    if test_postgres::database_or_skip("the database's disk is full").is_none() {
        return;
    }
    let database = test_postgres::Server::start(&test_postgres::Options::default()).unwrap();
    let url = database.database();
    let name = url.rsplit('/').next().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let options = wiring::Options {
        folder: folder.path().join("data"),
        database: Some(Address::parse(&url).unwrap()),
        ..Default::default()
    };
    let world = World { folder, server: wiring::start(options).await.unwrap() };
    let owner = world.owner("Acme").await;
    let make = async |name: &str| {
        let organization_id = owner.organization.clone();
        let request = CreateLocationRequest { organization_id, name: name.into(), parent_location_id: None };
        owner.client.app::<_, CreateLocationResponse>("CreateLocation", request).await
    };
    make("before").await.unwrap();
    // What the engine says when a table cannot grow (SQLSTATE 53100), at the first write of a location.
    database.sql(
        name,
        "SET search_path = fleet_state; CREATE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS
         $$ BEGIN RAISE EXCEPTION 'could not extend file' USING ERRCODE = 'disk_full'; END $$;
         CREATE TRIGGER full_disk BEFORE INSERT ON locations FOR EACH ROW EXECUTE FUNCTION full_disk()",
    );
    for n in 0..10 {
        let refused = make(&n.to_string()).await.unwrap_err();
        assert_eq!(refused.code(), Code::Unavailable, "{refused:?}");
        assert!(refused.message().contains("disk is full"), "{refused:?}");
        let list = ListLocationsRequest { organization_id: owner.organization.clone() };
        let listed: ListLocationsResponse = owner.client.app("ListLocations", list).await.expect("reads go on");
        assert_eq!(listed.locations.len(), 1, "nothing is left of what was refused");
    }
    database.sql(name, "DROP TRIGGER full_disk ON fleet_state.locations");
    make("after").await.unwrap();
    world.end().await;
}
