//! Names and ids: what none may hold, which of several is meant, and whom a place is told to be open to.

use api::pb::platform::app::v1::*;
use tonic::Code;

use super::world::{Client, Owner, World, code};

use Code::{InvalidArgument, Ok as Yes, Unauthenticated};

async fn configure(owner: &Owner, part: &RobotPart, config: &str) -> Code {
    let request = UpdateRobotPartRequest {
        id: part.id.clone(),
        name: part.name.clone(),
        robot_config_json: Some(config.into()),
        ..UpdateRobotPartRequest::default()
    };
    code(owner.client.app::<_, UpdateRobotPartResponse>("UpdateRobotPart", request).await)
}

/// One of the two engines refuses it, so nobody else may let it through.
#[tokio::test]
async fn nul_is_nobodys_fault_but_the_callers_wherever_it_stands() {
    let world = World::new().await;
    let owner = world.owner("Acme").await;
    let location = owner.location("North", None).await;
    let part = owner.main_part(&owner.machine(&location, "arm").await).await;
    let made = CreateFragmentRequest {
        name: "base".into(),
        organization_id: owner.organization.clone(),
        ..CreateFragmentRequest::default()
    };
    let made: CreateFragmentResponse = owner.client.app("CreateFragment", made).await.unwrap();
    let fragment = made.fragment.unwrap().id;

    let find = GetRobotPartByNameAndLocationRequest { name: "a\0".into(), location_id: location.clone() };
    let operation = "GetRobotPartByNameAndLocation";
    let found = owner.client.app::<_, GetRobotPartByNameAndLocationResponse>(operation, find).await;
    assert_eq!(code(found), InvalidArgument);
    let get = GetFragmentRequest { id: fragment.clone(), version: Some("a\0".into()), ..Default::default() };
    assert_eq!(code(owner.client.app::<_, GetFragmentResponse>("GetFragment", get).await), InvalidArgument);
    for kind in ["api-key", "robot-secret", "robot-location-secret"] {
        assert_eq!(code(world.login(kind, "a\0", "x").await.map(drop)), Unauthenticated, "{kind}");
    }
    let long = "x".repeat(5_000);
    for reference in [
        r#"{"id": "a\u0000"}"#.to_owned(),
        format!(r#"{{"id": "{fragment}", "version": "\u0000"}}"#),
        format!(r#"{{"id": "{long}"}}"#),
        format!(r#"{{"id": "{fragment}", "version": "{long}"}}"#),
    ] {
        let config = format!(r#"{{"fragments": [{reference}]}}"#);
        // Like every reference that leads nowhere: kept, and complained about at the device.
        assert_eq!(configure(&owner, &part, &config).await, Yes, "{config}");
        let list = ListMachineFragmentsRequest { machine_id: part.robot.clone(), ..Default::default() };
        let listed = owner.client.app::<_, ListMachineFragmentsResponse>("ListMachineFragments", list).await;
        assert_eq!(code(listed), Yes, "{config}");
    }
    world.end().await;
}

#[tokio::test]
async fn of_parts_with_the_same_name_the_one_is_meant_that_the_caller_may_read() {
    let world = World::new().await;
    let owner = world.owner("Acme").await;
    let location = owner.location("North", None).await;
    let mut parts = Vec::new();
    for machine in ["one", "two", "three"] {
        let machine = owner.machine(&location, machine).await;
        let request = NewRobotPartRequest { robot_id: machine.clone(), part_name: "wrist".into() };
        let made: NewRobotPartResponse = owner.client.app("NewRobotPart", request).await.unwrap();
        parts.push((world.key(&owner, "operator", "robot", &machine).await, made.part_id));
    }
    for (client, part) in &parts {
        let find = GetRobotPartByNameAndLocationRequest { name: "wrist".into(), location_id: location.clone() };
        let found: GetRobotPartByNameAndLocationResponse =
            client.app("GetRobotPartByNameAndLocation", find).await.unwrap();
        assert_eq!(&found.part.unwrap().id, part);
    }
    world.end().await;
}

#[tokio::test]
async fn a_machine_with_the_longest_name_has_a_part_that_may_be_changed() {
    let world = World::new().await;
    let owner = world.owner("Acme").await;
    let location = owner.location("North", None).await;
    let part = owner.main_part(&owner.machine(&location, &"ä".repeat(200)).await).await;
    assert_eq!(part.name.chars().count(), 200);
    assert!(part.name.ends_with("ä-main"), "{}", part.name);
    assert_eq!(configure(&owner, &part, "{}").await, Yes);
    world.end().await;
}

#[tokio::test]
async fn who_has_access_by_a_share_further_up_is_told_of_every_location_below() {
    let world = World::new().await;
    let (owner, partner, third) = (world.owner("Acme").await, world.owner("Partner").await, world.owner("Third").await);
    let north = owner.location("North", None).await;
    let shelf = owner.location("Shelf", Some(&north)).await;
    for (location, with) in [(&north, &partner), (&shelf, &partner), (&shelf, &third)] {
        let share = ShareLocationRequest { location_id: location.clone(), organization_id: with.organization.clone() };
        let _: ShareLocationResponse = owner.client.app("ShareLocation", share).await.unwrap();
    }
    let access = async |client: &Client, location: &str| {
        let request = GetOrganizationsWithAccessToLocationRequest { location_id: location.into() };
        let told: GetOrganizationsWithAccessToLocationResponse =
            client.app("GetOrganizationsWithAccessToLocation", request).await.unwrap();
        let mut names: Vec<String> = told.organization_identities.into_iter().map(|one| one.name).collect();
        names[1..].sort();
        names
    };
    let below = owner.location("Box", Some(&shelf)).await;
    assert_eq!(access(&owner.client, &north).await, ["Acme", "Partner"]);
    assert_eq!(access(&owner.client, &below).await, ["Acme", "Partner", "Third"]);
    assert_eq!(access(&third.client, &shelf).await, ["Acme", "Partner", "Third"]);
    world.end().await;
}

#[tokio::test]
async fn the_machines_that_use_a_fragment_are_counted_everywhere_and_in_the_callers_own_organization() {
    let world = World::new().await;
    let (owner, other) = (world.owner("Acme").await, world.owner("Other").await);
    let made = CreateFragmentRequest {
        name: "base".into(),
        organization_id: owner.organization.clone(),
        visibility: Some(FragmentVisibility::Public.into()),
        ..CreateFragmentRequest::default()
    };
    let made: CreateFragmentResponse = owner.client.app("CreateFragment", made).await.unwrap();
    let fragment = made.fragment.unwrap().id;
    let only_by_owner = async || {
        let request = GetFragmentRequest { id: fragment.clone(), ..GetFragmentRequest::default() };
        let told: GetFragmentResponse = owner.client.app("GetFragment", request).await.unwrap();
        told.fragment.unwrap().only_used_by_owner
    };
    assert!(only_by_owner().await, "by nobody");
    for (user, machines) in [(&other, 3), (&owner, 2)] {
        let location = user.location("North", None).await;
        for n in 0..machines {
            let part = user.main_part(&user.machine(&location, &format!("arm-{n}")).await).await;
            let config = format!(r#"{{"fragments": ["{fragment}"]}}"#);
            assert_eq!(configure(user, &part, &config).await, Yes);
        }
        assert!(!only_by_owner().await, "by another one, alone or not");
    }
    let usage = async |client: &Client, current: &str| {
        let request = GetFragmentRequest {
            id: fragment.clone(),
            current_organization_id: current.into(),
            ..GetFragmentRequest::default()
        };
        let told: GetFragmentResponse = client.app("GetFragment", request).await.unwrap();
        let usage = told.fragment_usage.unwrap();
        (usage.machines, usage.organizations, usage.machines_in_current_org)
    };
    assert_eq!(usage(&owner.client, "").await, (5, 2, 0));
    assert_eq!(usage(&owner.client, &owner.organization).await, (5, 2, 2));
    assert_eq!(usage(&other.client, &other.organization).await, (5, 2, 3));
    assert_eq!(usage(&owner.client, &other.organization).await, (5, 2, 0), "another's is not counted for a stranger");
    assert_eq!(usage(&owner.client, "nonsense").await, (5, 2, 0));
    world.end().await;
}
