//! Devices: what a secret opens, whose it is, and what is left of it when its machine or its location has moved.

use api::pb::platform::app::v1::*;
use fleet::operations::OPERATIONS;
use tonic::Code;

use super::{
    OPEN,
    requests::Contract,
    world::{
        Client, Owner, World, code,
        things::{Ours, ours},
    },
};

/// Whether it is for devices at all.
fn of_devices(path: &str) -> bool {
    !path.contains("AppService") && !path.contains("AdminService")
}

/// Calls everything that is for devices; the answers, each once.
async fn answers(client: &Client, ours: &Ours) -> Vec<Code> {
    let contract = Contract::read();
    let mut answers = Vec::new();
    for path in
        OPERATIONS.iter().map(|operation| operation.path).filter(|path| of_devices(path) && !OPEN.contains(path))
    {
        let answer = code(contract.call(client, path, ours).await);
        if !answers.contains(&answer) {
            answers.push(answer);
        }
    }
    answers
}

/// A new secret of a location.
async fn location_secret(owner: &Owner, location: &str) -> String {
    let request = CreateLocationSecretRequest { location_id: location.into() };
    let made: CreateLocationSecretResponse = owner.client.app("CreateLocationSecret", request).await.unwrap();
    made.auth.unwrap().secrets.remove(0).secret
}

async fn sign_in(world: &World, part: &str, secret: &str) -> Result<Client, Code> {
    world.login("robot-location-secret", part, secret).await.map_err(|refused| refused.code())
}

async fn move_machine(owner: &Owner, machine: &str, location: &str) {
    let request = UpdateRobotRequest { id: machine.into(), name: "arm".into(), location: location.into() };
    owner.client.app::<_, UpdateRobotResponse>("UpdateRobot", request).await.unwrap();
}

async fn move_location(owner: &Owner, location: &str, parent: &str) {
    let request = UpdateLocationRequest {
        location_id: location.into(),
        parent_location_id: Some(parent.into()),
        ..UpdateLocationRequest::default()
    };
    owner.client.app::<_, UpdateLocationResponse>("UpdateLocation", request).await.unwrap();
}

#[tokio::test]
async fn a_device_does_nothing_but_its_own_calls() {
    let world = World::new().await;
    let owner = world.owner("Acme").await;
    let ours = ours(&world, &owner).await;
    let device = world.login("robot-secret", &ours.part, &ours.planted.part_secret).await.unwrap();
    let by_location = sign_in(&world, &ours.part, &ours.planted.location_secret).await.unwrap();
    // Beside it: another part of the machine, another machine in the location, and one of another organization.
    let beside = owner.main_part(&owner.machine(&ours.location, "leg").await).await;
    let beside = world.login("robot-secret", &beside.id, &beside.secret).await.unwrap();
    let spare = sign_in(&world, &ours.spare, &ours.planted.location_secret).await.unwrap();
    let other = world.owner("Strangers").await;
    let foreign = other.main_part(&other.machine(&other.location("theirs", None).await, "arm").await).await;
    let foreign = world.login("robot-secret", &foreign.id, &foreign.secret).await.unwrap();
    let devices = [
        ("its own secret", &device, Code::Ok, Code::Ok),
        ("its location's secret", &by_location, Code::Ok, Code::Ok),
        // Machines of one organization run the same packages.
        ("another machine there", &beside, Code::NotFound, Code::Ok),
        ("another part, by the location's secret", &spare, Code::NotFound, Code::Ok),
        ("one of another organization", &foreign, Code::NotFound, Code::NotFound),
    ];
    let contract = Contract::read();
    for (who, device, own, packages) in devices {
        for path in OPERATIONS.iter().map(|operation| operation.path).filter(|path| !OPEN.contains(path)) {
            let expected = match path {
                _ if !of_devices(path) => Code::PermissionDenied,
                _ if path.contains("PackageService") => packages,
                _ => own,
            };
            assert_eq!(code(contract.call(device, path, &ours).await), expected, "{who}: {path}");
        }
    }
    world.end().await;
}

#[tokio::test]
async fn a_secret_opens_what_it_is_of_and_nothing_beside() {
    let world = World::new().await;
    let owner = world.owner("Acme").await;
    let ours = ours(&world, &owner).await;
    let south = owner.location("South", None).await;
    let inside = owner.location("inside", Some(&ours.location)).await;
    let other = world.owner("Strangers").await;
    let theirs = location_secret(&other, &other.location("theirs", None).await).await;
    let (of_south, of_inside) = (location_secret(&owner, &south).await, location_secret(&owner, &inside).await);
    let (part, own) = (&*ours.part, &*ours.planted.part_secret);
    let of_location = &*ours.planted.location_secret;
    let table = [
        ("its own", "robot-secret", part, own, true),
        ("its location's", "robot-location-secret", part, of_location, true),
        ("another part's", "robot-secret", &*ours.spare, own, false),
        // Devices in the field send either kind under either name.
        ("its location's as a part's", "robot-secret", part, of_location, true),
        ("its own as a location's", "robot-location-secret", part, own, true),
        ("another location's", "robot-location-secret", part, &*of_south, false),
        ("that of a location inside", "robot-location-secret", part, &*of_inside, false),
        ("that of another organization's", "robot-location-secret", part, &*theirs, false),
        ("a part's as a key", "api-key", part, own, false),
        ("a location's as a key", "api-key", &*ours.location, of_location, false),
        ("a key as a part's", "robot-secret", &*owner.key_id, &*owner.key, false),
        ("a key as a location's", "robot-location-secret", part, &*owner.key, false),
    ];
    for (case, kind, entity, secret, opens) in table {
        let expected = if opens { Code::Ok } else { Code::Unauthenticated };
        let answer = world.login(kind, entity, secret).await.map(drop);
        assert_eq!(code(answer), expected, "{case}");
    }
    world.end().await;
}

#[tokio::test]
async fn a_locations_secret_ends_for_a_machine_that_has_left_it() {
    let world = World::new().await;
    let owner = world.owner("Acme").await;
    let ours = ours(&world, &owner).await;
    let of_north = ours.planted.location_secret.clone();
    let south = owner.location("South", None).await;
    let of_south = location_secret(&owner, &south).await;
    let own = world.login("robot-secret", &ours.part, &ours.planted.part_secret).await.unwrap();
    let by_north = sign_in(&world, &ours.part, &of_north).await.unwrap();
    assert_eq!(answers(&by_north, &ours).await, [Code::Ok]);

    move_machine(&owner, &ours.machine, &south).await;
    assert_eq!(answers(&by_north, &ours).await, [Code::NotFound], "by the token it had");
    assert_eq!(sign_in(&world, &ours.part, &of_north).await.err(), Some(Code::Unauthenticated));
    let by_south = sign_in(&world, &ours.part, &of_south).await.unwrap();
    assert_eq!(answers(&by_south, &ours).await, [Code::Ok]);
    assert_eq!(answers(&own, &ours).await, [Code::Ok], "its own goes with it");

    // A location takes its machines along.
    let hall = owner.location("Hall", None).await;
    let of_hall = location_secret(&owner, &hall).await;
    assert_eq!(sign_in(&world, &ours.part, &of_hall).await.err(), Some(Code::Unauthenticated));
    move_location(&owner, &south, &hall).await;
    let by_hall = sign_in(&world, &ours.part, &of_hall).await.unwrap();
    for device in [&by_hall, &by_south, &own] {
        assert_eq!(answers(device, &ours).await, [Code::Ok]);
    }
    move_location(&owner, &south, "").await;
    assert_eq!(answers(&by_hall, &ours).await, [Code::NotFound]);
    assert_eq!(sign_in(&world, &ours.part, &of_hall).await.err(), Some(Code::Unauthenticated));
    assert_eq!(answers(&by_south, &ours).await, [Code::Ok]);

    // The machine is back, and so is what its location's secret opens.
    move_machine(&owner, &ours.machine, &ours.location).await;
    assert_eq!(answers(&by_south, &ours).await, [Code::NotFound]);
    assert_eq!(answers(&by_north, &ours).await, [Code::Ok]);
    world.end().await;
}
