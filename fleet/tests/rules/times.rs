//! The time of a thing's last change: it strictly rises, whatever the clock does and however many write; and what it is
//! good for, which is to refuse a change by who knows an older one.

use std::collections::BTreeSet;

use api::pb::platform::app::{packages::v1::PackageType, v1::*};
use fleet::clock::{millis, timestamp};
use prost_types::Timestamp;
use tonic::{Code, Status};

use super::world::{Client, Owner, World, code};

const HOUR: i64 = 60 * 60 * 1000;
const WRITERS: usize = 200;

/// What tells when it was last changed.
#[derive(Debug, Clone)]
enum Thing {
    Part(String),
    Fragment(String),
    Item(String),
    Module(String),
}

impl Thing {
    /// A change like no other. Parts and fragments answer with its time.
    async fn change(&self, client: &Client, n: usize, known: Option<Timestamp>) -> Result<Option<i64>, Status> {
        let at = |at: Option<Timestamp>| Some(millis(&at.expect("a time")));
        let (name, config) = ("it".to_owned(), format!(r#"{{"n": {n}}}"#));
        match self.clone() {
            Self::Part(id) => {
                let request = UpdateRobotPartRequest {
                    id,
                    name,
                    robot_config_json: Some(config),
                    last_known_update: known,
                    ..Default::default()
                };
                let changed: UpdateRobotPartResponse = client.app("UpdateRobotPart", request).await?;
                Ok(at(changed.part.unwrap().last_updated))
            }
            Self::Fragment(id) => {
                let request = UpdateFragmentRequest {
                    id,
                    name,
                    fragment_config_json: Some(config),
                    last_known_update: known,
                    ..Default::default()
                };
                let changed: UpdateFragmentResponse = client.app("UpdateFragment", request).await?;
                Ok(at(changed.fragment.unwrap().last_updated))
            }
            Self::Item(item_id) => {
                let request = UpdateRegistryItemRequest {
                    item_id,
                    r#type: PackageType::MlModel.into(),
                    description: config,
                    ..Default::default()
                };
                client.app::<_, UpdateRegistryItemResponse>("UpdateRegistryItem", request).await.map(|_| None)
            }
            Self::Module(module_id) => {
                let request = UpdateModuleRequest { module_id, description: config, ..Default::default() };
                client.app::<_, UpdateModuleResponse>("UpdateModule", request).await.map(|_| None)
            }
        }
    }

    async fn time(&self, client: &Client) -> i64 {
        let at = match self.clone() {
            Self::Part(id) => {
                let request = GetRobotPartRequest { id };
                let got: GetRobotPartResponse = client.app("GetRobotPart", request).await.unwrap();
                got.part.unwrap().last_updated
            }
            Self::Fragment(id) => {
                let request = GetFragmentRequest { id, ..Default::default() };
                let got: GetFragmentResponse = client.app("GetFragment", request).await.unwrap();
                got.fragment.unwrap().last_updated
            }
            Self::Item(item_id) | Self::Module(item_id) => {
                let request = GetRegistryItemRequest { item_id, ..Default::default() };
                let got: GetRegistryItemResponse = client.app("GetRegistryItem", request).await.unwrap();
                got.item.unwrap().updated_at
            }
        };
        millis(&at.expect("a time"))
    }

    /// When each of its changes was made, newest first, if that is told.
    async fn history(&self, client: &Client) -> Vec<i64> {
        match self.clone() {
            Self::Part(id) => {
                let request = GetRobotPartHistoryRequest { id, ..Default::default() };
                let got: GetRobotPartHistoryResponse = client.app("GetRobotPartHistory", request).await.unwrap();
                got.history.iter().map(|entry| millis(entry.when.as_ref().unwrap())).collect()
            }
            Self::Fragment(id) => {
                let (mut found, mut token) = (Vec::new(), String::new());
                loop {
                    let request = GetFragmentHistoryRequest {
                        id: id.clone(),
                        page_token: Some(token.clone()),
                        page_limit: Some(100),
                    };
                    let got: GetFragmentHistoryResponse = client.app("GetFragmentHistory", request).await.unwrap();
                    found.extend(got.history.iter().map(|entry| millis(entry.edited_on.as_ref().unwrap())));
                    token = got.next_page_token;
                    if token.is_empty() {
                        return found;
                    }
                }
            }
            Self::Item(_) | Self::Module(_) => Vec::new(),
        }
    }
}

/// One of each.
async fn things(owner: &Owner) -> [Thing; 4] {
    let location = owner.location("North", None).await;
    let part = owner.main_part(&owner.machine(&location, "arm").await).await.id;
    let organization_id = owner.organization.clone();
    let request = CreateFragmentRequest {
        name: "it".into(),
        organization_id: organization_id.clone(),
        ..CreateFragmentRequest::default()
    };
    let fragment: CreateFragmentResponse = owner.client.app("CreateFragment", request).await.unwrap();
    let request = CreateModuleRequest { organization_id: organization_id.clone(), name: "camera".into() };
    let module: CreateModuleResponse = owner.client.app("CreateModule", request).await.unwrap();
    let item = format!("{organization_id}:model");
    let request =
        CreateRegistryItemRequest { organization_id, name: "model".into(), r#type: PackageType::MlModel.into() };
    owner.client.app::<_, CreateRegistryItemResponse>("CreateRegistryItem", request).await.unwrap();
    [
        Thing::Part(part),
        Thing::Fragment(fragment.fragment.unwrap().id),
        Thing::Item(item),
        Thing::Module(module.module_id),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_time_of_the_last_change_strictly_rises_on_every_clock_and_for_many_at_once() {
    let world = World::new().await;
    let owner = world.owner("Acme").await;
    let clock = &world.server.context.clock;
    for thing in things(&owner).await {
        let (client, mut last) = (&owner.client, thing.time(&owner.client).await);
        // Back, far back, ahead, back again: a step each.
        for (n, step) in [-1, -HOUR, 2 * HOUR, -1, -2 * HOUR].into_iter().enumerate() {
            clock.push(step);
            let told = thing.change(client, n, None).await.unwrap();
            let now = thing.time(client).await;
            assert!(now > last, "{thing:?} after {step}: {now} after {last}");
            assert!(told.is_none_or(|told| told == now), "{thing:?}: what is answered is what is read");
            last = now;
        }
        // On a clock that is two hours behind the last change only the changes themselves move the time.
        let writers: Vec<_> = (0..WRITERS)
            .map(|n| {
                let (thing, client) = (thing.clone(), client.clone());
                tokio::spawn(async move { thing.change(&client, 1000 + n, None).await.unwrap() })
            })
            .collect();
        let mut told = BTreeSet::new();
        for writer in writers {
            told.extend(writer.await.unwrap());
        }
        let now = thing.time(client).await;
        assert_eq!(now - last, WRITERS as i64, "{thing:?}: each change has a time of its own");
        assert!(told.is_empty() || told.len() == WRITERS && told.last() == Some(&now), "{thing:?}");
        let history = thing.history(client).await;
        assert!(history.is_sorted_by(|newer, older| newer > older), "{thing:?}: {history:?}");
        assert!(history.first().is_none_or(|first| *first == now), "{thing:?}");
        assert!(told.iter().all(|at| history.contains(at)), "{thing:?}: the history has the same times");
        clock.push(HOUR);
    }
    world.end().await;
}

/// Which moment a caller says that it knows.
#[derive(Clone, Copy)]
enum Known {
    /// Milliseconds after the last change.
    Beside(i64),
    /// The last change, with what is smaller than a millisecond.
    Finer,
    /// Seconds since 1970.
    At(i64),
}

impl Known {
    fn moment(self, last: i64) -> Timestamp {
        match self {
            Self::Beside(millis) => timestamp(last + millis),
            Self::Finer => Timestamp { nanos: timestamp(last).nanos + 999_000, ..timestamp(last) },
            Self::At(seconds) => Timestamp { seconds, nanos: 0 },
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_knows_an_older_state_of_a_part_or_fragment_is_refused_and_of_many_at_once_one_wins() {
    let world = World::new().await;
    let owner = world.owner("Acme").await;
    let [part, fragment, ..] = things(&owner).await;
    for thing in [part, fragment] {
        thing.change(&owner.client, 0, None).await.unwrap();
        // "Has it changed since": a moment of the caller's own, later than the last change, is a good answer too.
        let table = [
            // case, of the last change: which moment is known
            ("a millisecond before", Known::Beside(-1), Code::Aborted),
            ("before anything", Known::At(0), Code::Aborted),
            ("the beginning of time", Known::At(i64::MIN), Code::Aborted),
            ("the last change", Known::Beside(0), Code::Ok),
            ("the same in microseconds", Known::Finer, Code::Ok),
            ("later", Known::Beside(HOUR), Code::Ok),
            ("the end of time", Known::At(i64::MAX), Code::Ok),
        ];
        for (n, (case, known, expected)) in table.into_iter().enumerate() {
            let last = thing.time(&owner.client).await;
            let done = thing.change(&owner.client, 10 + n, Some(known.moment(last))).await;
            assert_eq!(code(done), expected, "{thing:?}: {case}");
            let moved = thing.time(&owner.client).await > last;
            assert_eq!(moved, expected == Code::Ok, "{thing:?}: {case}");
        }
        let known = Some(timestamp(thing.time(&owner.client).await));
        let changes = thing.history(&owner.client).await.len();
        let writers: Vec<_> = (0..WRITERS)
            .map(|n| {
                let (thing, client) = (thing.clone(), owner.client.clone());
                tokio::spawn(async move { code(thing.change(&client, 1000 + n, known).await) })
            })
            .collect();
        let mut said = Vec::new();
        for writer in writers {
            said.push(writer.await.unwrap());
        }
        assert_eq!(said.iter().filter(|code| **code == Code::Ok).count(), 1, "{thing:?}");
        assert_eq!(said.iter().filter(|code| **code == Code::Aborted).count(), WRITERS - 1, "{thing:?}");
        assert_eq!(thing.history(&owner.client).await.len(), changes + 1, "{thing:?}");
    }
    world.end().await;
}
