//! Locations and what stands in them: names, nesting, secrets, moves, the overview.

use api::pb::platform::app::v1::*;
use tonic::Code;

use super::world::{Client, Owner, World, code};

use Code::{AlreadyExists, FailedPrecondition, InvalidArgument, NotFound, Ok as Yes, PermissionDenied as Denied};

const NOBODY: &str = "00000000-0000-4000-8000-000000000000";

async fn create(owner: &Owner, name: &str, parent: Option<&str>) -> Result<Location, Code> {
    let request = CreateLocationRequest {
        organization_id: owner.organization.clone(),
        name: name.into(),
        parent_location_id: parent.map(Into::into),
    };
    let made = owner.client.app::<_, CreateLocationResponse>("CreateLocation", request).await;
    made.map(|made| made.location.unwrap()).map_err(|refused| refused.code())
}

async fn update(owner: &Owner, request: UpdateLocationRequest) -> Result<Location, Code> {
    let made = owner.client.app::<_, UpdateLocationResponse>("UpdateLocation", request).await;
    made.map(|made| made.location.unwrap()).map_err(|refused| refused.code())
}

#[tokio::test]
async fn a_location_has_a_name_a_place_and_a_region_and_lies_not_too_deep() {
    let world = World::new().await;
    let (owner, other) = (world.owner("Acme").await, world.owner("Other").await);
    let foreign = other.location("foreign", None).await;
    let top = create(&owner, " Werk Süd ", Some("")).await.unwrap();
    assert_eq!((&*top.name, &*top.parent_location_id), ("Werk Süd", ""), "an empty parent is none");
    let table = [
        ("no name", "", None, InvalidArgument),
        ("blanks", "  ", None, InvalidArgument),
        ("NUL", "a\0b", None, InvalidArgument),
        ("no such parent", "x", Some(NOBODY), NotFound),
        ("no id", "x", Some("north"), InvalidArgument),
        ("another's location", "x", Some(&*foreign), NotFound),
    ];
    for (case, name, parent, expected) in table {
        assert_eq!(create(&owner, name, parent).await, Err(expected), "{case}");
    }
    let change = UpdateLocationRequest { location_id: top.id.clone(), ..Default::default() };
    let region = UpdateLocationRequest { region: Some("eu-north".into()), ..change.clone() };
    let changed = update(&owner, region).await.unwrap();
    assert_eq!(changed.config.as_ref().unwrap().region, "eu-north");
    let unnamed = UpdateLocationRequest { name: Some(String::new()), ..change.clone() };
    for nothing in [change.clone(), unnamed] {
        assert_eq!(update(&owner, nothing).await.as_ref(), Ok(&changed));
    }
    for wrong in [
        UpdateLocationRequest { name: Some("  ".into()), ..change.clone() },
        UpdateLocationRequest { region: Some("a\u{7}".into()), ..change.clone() },
        UpdateLocationRequest { parent_location_id: Some("x".into()), ..change.clone() },
    ] {
        assert_eq!(update(&owner, wrong).await, Err(InvalidArgument));
    }
    let lost = UpdateLocationRequest { parent_location_id: Some(NOBODY.into()), ..change };
    assert_eq!(update(&owner, lost).await, Err(NotFound));

    let mut inner = top.id.clone();
    for depth in 2..=32 {
        inner = create(&owner, &format!("level {depth}"), Some(&inner)).await.unwrap().id;
    }
    assert_eq!(create(&owner, "too deep", Some(&inner)).await, Err(InvalidArgument));
    // Nor by moving all of it into another one.
    let around = create(&owner, "around", None).await.unwrap().id;
    let into = UpdateLocationRequest {
        location_id: top.id,
        parent_location_id: Some(around),
        ..UpdateLocationRequest::default()
    };
    assert_eq!(update(&owner, into).await, Err(InvalidArgument));
    world.end().await;
}

#[tokio::test]
async fn a_location_has_two_secrets_at_most_and_an_empty_id_is_the_only_location() {
    let world = World::new().await;
    let owner = world.owner("Acme").await;
    let location = owner.location("North", None).await;
    let auth = async |id: &str| {
        let request = LocationAuthRequest { location_id: id.into() };
        let told = owner.client.app::<_, LocationAuthResponse>("LocationAuth", request).await;
        told.map(|told| told.auth.unwrap()).map_err(|refused| refused.code())
    };
    let add = async |id: &str| {
        // Two that were made within one millisecond have no order.
        world.server.context.clock.push(10);
        let request = CreateLocationSecretRequest { location_id: id.into() };
        let made = owner.client.app::<_, CreateLocationSecretResponse>("CreateLocationSecret", request).await;
        made.map(|made| made.auth.unwrap()).map_err(|refused| refused.code())
    };
    let delete = async |id: &str, secret: &str| {
        let request = DeleteLocationSecretRequest { location_id: id.into(), secret_id: secret.into() };
        code(owner.client.app::<_, DeleteLocationSecretResponse>("DeleteLocationSecret", request).await)
    };
    #[allow(deprecated, reason = "old clients read the single secret")]
    let single = |auth: &LocationAuth| auth.secret.clone();
    let first = add("").await.unwrap();
    assert_eq!((&first.location_id, first.secrets.len()), (&location, 1));
    let second = add(&location).await.unwrap();
    assert_eq!((second.secrets.len(), &second.secrets[1]), (2, &first.secrets[0]), "newest first");
    assert!(second.secrets.iter().all(|secret| secret.state() == shared_secret::State::Enabled));
    assert_eq!(single(&second), second.secrets[0].secret, "the single one is the newest");
    assert_eq!(auth("").await, Ok(second.clone()));
    assert_eq!(add("").await, Err(FailedPrecondition), "a third");
    let south = owner.location("South", None).await;
    assert_eq!((auth("").await, add("").await), (Err(InvalidArgument), Err(InvalidArgument)), "which one?");
    let table = [
        ("no such secret", delete(&location, NOBODY).await, NotFound),
        ("no location", delete(NOBODY, &first.secrets[0].id).await, NotFound),
        ("another location", delete(&south, &first.secrets[0].id).await, NotFound),
        ("malformed", delete("x", &first.secrets[0].id).await, InvalidArgument),
        ("a malformed secret", delete(&location, "x").await, InvalidArgument),
        ("itself", delete(&location, &second.secrets[0].id).await, Yes),
    ];
    for (case, answer, expected) in table {
        assert_eq!(answer, expected, "{case}");
    }
    assert_eq!(single(&auth(&location).await.unwrap()), first.secrets[0].secret, "of those that are left");
    add(&location).await.unwrap();
    world.end().await;
}

async fn put(client: &Client, machine: &str, name: &str, location: &str) -> Code {
    let request = UpdateRobotRequest { id: machine.into(), name: name.into(), location: location.into() };
    code(client.app::<_, UpdateRobotResponse>("UpdateRobot", request).await)
}

/// A key with several roles.
async fn key(world: &World, owner: &Owner, roles: &[(&str, &str, &str)]) -> Client {
    let one = |(role, kind, id): &(&str, &str, &str)| owner.key_request(role, kind, id).authorizations.remove(0);
    let request = CreateKeyRequest { authorizations: roles.iter().map(one).collect(), name: "several".into() };
    let made: CreateKeyResponse = owner.client.app("CreateKey", request).await.unwrap();
    world.login("api-key", &made.id, &made.key).await.unwrap()
}

#[tokio::test]
async fn a_machine_is_moved_by_owners_of_both_ends_and_keeps_its_name_apart() {
    let world = World::new().await;
    let owner = world.owner("Acme").await;
    let (north, south) = (owner.location("North", None).await, owner.location("South", None).await);
    let arm = owner.machine(&north, "arm").await;
    owner.machine(&north, "leg").await;
    let north_owner = ("owner", "location", &*north);
    let south_owner = ("owner", "location", &*south);
    let south_operator = ("operator", "location", &*south);
    let both = key(&world, &owner, &[north_owner, south_owner]).await;
    let table = [
        ("the machine alone", vec![("owner", "robot", &*arm)], Denied),
        ("the machine, and there", vec![("owner", "robot", &*arm), south_owner], Denied),
        ("here", vec![north_owner], NotFound),
        ("here, and sees there", vec![north_owner, south_operator], Denied),
        ("there", vec![("operator", "location", &*north), south_owner], Denied),
        ("operator of all", vec![("operator", "organization", &*owner.organization)], Denied),
    ];
    for (case, roles, expected) in table {
        let key = key(&world, &owner, &roles).await;
        assert_eq!(put(&key, &arm, "arm", &south).await, expected, "{case}");
    }
    // Its part was asked for before: where it lies is known, and has to be known anew at once.
    let part = owner.main_part(&arm).await.id;
    let lies_in = async |location: &str| {
        let request = GetRobotPartRequest { id: part.clone() };
        let got: GetRobotPartResponse = owner.client.app("GetRobotPart", request).await.unwrap();
        let part = got.part.unwrap();
        let label = part.fqdn.split('.').nth(1).unwrap().to_owned();
        assert_eq!((&*part.location_id, &*label), (location, location));
    };
    lies_in(&north).await;
    assert_eq!(put(&both, &arm, "arm", &south).await, Yes);
    lies_in(&south).await;
    assert_eq!(put(&both, &arm, "arm", "").await, Yes, "nowhere named: it stays");
    assert_eq!(put(&both, &arm, "leg", &north).await, FailedPrecondition, "that name is taken there");
    assert_eq!(put(&owner.client, &arm, "arm", &north).await, Yes);
    lies_in(&north).await;
    assert_eq!(put(&owner.client, &arm, "leg", "").await, AlreadyExists, "and here");
    assert_eq!(put(&owner.client, &arm, "arm", NOBODY).await, NotFound);
    let get = GetRobotRequest { id: arm };
    let robot: GetRobotResponse = owner.client.app("GetRobot", get).await.unwrap();
    let robot = robot.robot.unwrap();
    assert_eq!((&*robot.name, &robot.location), ("arm", &north), "what was refused changed nothing");
    world.end().await;
}

#[tokio::test]
async fn the_overview_is_of_the_places_and_fragments_that_are_named_and_has_an_end() {
    let world = World::new().await;
    let owner = world.owner("Acme").await;
    let (north, south) = (owner.location("North", None).await, owner.location("South", None).await);
    let (arm, leg) = (owner.machine(&north, "arm").await, owner.machine(&north, "leg").await);
    let eye = owner.machine(&south, "eye").await;
    let fragment = CreateFragmentRequest {
        name: "base".into(),
        organization_id: owner.organization.clone(),
        ..CreateFragmentRequest::default()
    };
    let fragment: CreateFragmentResponse = owner.client.app("CreateFragment", fragment).await.unwrap();
    let fragment = fragment.fragment.unwrap().id;
    let part = owner.main_part(&leg).await;
    let uses = UpdateRobotPartRequest {
        id: part.id,
        name: part.name,
        robot_config_json: Some(format!(r#"{{"fragments":["{fragment}"]}}"#)),
        ..UpdateRobotPartRequest::default()
    };
    owner.client.app::<_, UpdateRobotPartResponse>("UpdateRobotPart", uses).await.unwrap();
    let list = async |request: ListMachineSummariesRequest| {
        let told = owner.client.app::<_, ListMachineSummariesResponse>("ListMachineSummaries", request).await;
        let told = told.map_err(|refused| refused.code())?.location_summaries;
        let machines = told.into_iter().flat_map(|location| location.machine_summaries);
        Ok::<_, Code>(machines.map(|machine| machine.machine_id).collect::<Vec<_>>())
    };
    let all = ListMachineSummariesRequest { organization_id: owner.organization.clone(), ..Default::default() };
    // Made within one millisecond, they come in the order of their ids.
    let sorted = |mut ids: Vec<String>| {
        ids.sort();
        ids
    };
    let everything = sorted(vec![arm.clone(), leg.clone(), eye.clone()]);
    assert_eq!(list(all.clone()).await.map(sorted), Ok(everything.clone()));
    assert_eq!(list(ListMachineSummariesRequest::default()).await.map(sorted), Ok(everything), "no organization: all");
    let there = ListMachineSummariesRequest { location_ids: vec![south], ..all.clone() };
    assert_eq!(list(there.clone()).await, Ok(vec![eye]));
    let with = ListMachineSummariesRequest { fragment_ids: vec![fragment.clone()], ..all.clone() };
    assert_eq!(list(with).await, Ok(vec![leg]));
    let neither = ListMachineSummariesRequest { fragment_ids: vec![fragment], ..there };
    assert_eq!(list(neither).await, Ok(vec![]));
    let two = ListMachineSummariesRequest { limit: Some(2), ..all.clone() };
    assert_eq!(list(two).await.map(|found| found.len()), Ok(2));
    for limit in [-1, 1001] {
        let wrong = ListMachineSummariesRequest { limit: Some(limit), ..all.clone() };
        assert_eq!(list(wrong).await, Err(InvalidArgument), "{limit}");
    }
    for (id, expected) in [("x", Err(InvalidArgument)), (NOBODY, Ok(vec![]))] {
        let wrong = ListMachineSummariesRequest { location_ids: vec![id.into()], ..all.clone() };
        assert_eq!(list(wrong).await, expected, "a location {id}");
        let wrong = ListMachineSummariesRequest { fragment_ids: vec![id.into()], ..all.clone() };
        assert_eq!(list(wrong).await, expected, "a fragment {id}");
    }
    let nowhere = ListMachineSummariesRequest { organization_id: NOBODY.into(), ..all.clone() };
    assert_eq!(list(nowhere).await, Err(NotFound));
    for n in 0..100 {
        owner.machine(&north, &format!("more {n}")).await;
    }
    assert_eq!(list(all).await.map(|found| found.len()), Ok(100), "unless more are asked for");
    world.end().await;
}
