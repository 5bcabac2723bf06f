//! Every row of the operations table, called by those who may not, and by those who may.

mod world;

#[path = "unauthorized/devices.rs"]
mod devices;
#[path = "unauthorized/levels.rs"]
mod levels;
#[path = "unauthorized/passwords.rs"]
mod passwords;
#[path = "unauthorized/requests.rs"]
mod requests;

use api::pb::platform::app::v1::*;
use bytes::Bytes;
use fleet::{authz::Role, operations::OPERATIONS, people};
use requests::Contract;
use tonic::Code;
use world::{Client, World, code, things::ours};

/// Open to everybody, with or without a key.
const OPEN: [&str; 1] = ["/proto.rpc.v1.AuthService/Authenticate"];
/// About the caller's own affairs: a stranger has some too.
const OWN_AFFAIRS: [&str; 3] = [
    "/platform.app.v1.AppService/CreateOrganization",
    "/platform.app.v1.AppService/ListOrganizations",
    "/platform.app.v1.AppService/GetOrganizationNamespaceAvailability",
];

/// A person and a client with their personal key.
async fn person(world: &World, email: &str, member: Option<(&str, Role)>) -> (String, Client) {
    let made = people::add(&world.server.context, email, member).await.unwrap();
    (made.user_id, world.login("api-key", &made.key_id, &made.key).await.unwrap())
}

#[tokio::test]
async fn nobody_is_answered_before_anything_else_is_looked_at() {
    let world = World::new().await;
    let nobody = world.nobody().await;
    let garbage = world::Client { token: Some("0".repeat(98)), ..nobody.clone() };
    let mut paths: Vec<String> = OPERATIONS.iter().map(|operation| operation.path.to_owned()).collect();
    // Not in the table, not in the contract, not even a service: the same answer.
    paths.extend(Contract::read().inputs.into_keys());
    paths.extend(["/platform.app.v1.AppService/Nothing".into(), "/nothing.at.All/Here".into()]);
    for path in paths {
        if !OPEN.contains(&&*path) {
            // Public applications are shown to everybody, so these two have to know which one is meant.
            let unread = if path.contains("/GetApp") { Bytes::new() } else { Bytes::from_static(b"\xff") };
            assert_eq!(code(nobody.raw(&path, unread).await), Code::Unauthenticated, "{path}");
            assert_eq!(code(garbage.raw(&path, Bytes::from_static(b"\xff")).await), Code::Unauthenticated, "{path}");
        }
    }
    world.end().await;
}

#[tokio::test]
async fn what_is_not_in_the_table_says_so_under_both_names() {
    let world = World::new().await;
    let owner = world.owner("Acme").await;
    let mut asked = 0;
    for path in Contract::read().inputs.keys() {
        if OPERATIONS.iter().any(|operation| operation.path == path) {
            continue;
        }
        for path in [path.clone(), path.replacen("/platform.", "/viam.", 1)] {
            assert_eq!(code(owner.client.raw(&path, Bytes::new()).await), Code::Unimplemented, "{path}");
            asked += 1;
        }
    }
    assert!(asked > 0, "the whole contract is done: this test can go");
    world.end().await;
}

#[tokio::test]
async fn a_stranger_finds_nothing() {
    let world = World::new().await;
    let owner = world.owner("Acme").await;
    let ours = ours(&world, &owner).await;
    let other = world.owner("Strangers").await;
    // One that worked with the location until a moment ago.
    let (location_id, organization_id) = (ours.location.clone(), other.organization.clone());
    let once = world.key(&other, "owner", "organization", &organization_id).await;
    let request = ShareLocationRequest { location_id: location_id.clone(), organization_id: organization_id.clone() };
    owner.client.app::<_, ShareLocationResponse>("ShareLocation", request).await.unwrap();
    let contract = Contract::read();
    assert!(contract.call(&once, "/platform.app.v1.AppService/GetRobot", &ours).await.is_ok());
    let request = UnshareLocationRequest { location_id, organization_id: organization_id.clone() };
    owner.client.app::<_, UnshareLocationResponse>("UnshareLocation", request).await.unwrap();
    // A key that had a role here until a moment ago is told of in `random_grants.rs`.
    let (_, loner) = person(&world, "loner@example.org", None).await;
    let (_, member) = person(&world, "other@example.org", Some((&organization_id, Role::Owner))).await;
    let strangers = [
        ("the owner of another organization", &other.client),
        ("one with whom the location was shared", &once),
        ("a person who is no member of anything", &loner),
        ("a person who owns another organization", &member),
    ];
    for (who, stranger) in strangers {
        for operation in OPERATIONS {
            let path = operation.path;
            if OPEN.contains(&path) {
                continue;
            }
            let expected = if OWN_AFFAIRS.contains(&path) { Code::Ok } else { Code::NotFound };
            assert_eq!(code(contract.call(stranger, path, &ours).await), expected, "{who}: {path}");
        }
    }
    world.end().await;
}

/// What an operator of the organization may do; everything else is denied, because it sees what it is about.
const OPERATOR_MAY: [&str; 39] = [
    "CreateOrganization",
    "ListOrganizations",
    "GetOrganization",
    "GetOrganizationNamespaceAvailability",
    "GetOrganizationsWithAccessToLocation",
    "GetOrganizationMetadata",
    "ListOrganizationMembers",
    "GetUserIDByEmail",
    "ListOrganizationsByUser",
    "CheckPermissions",
    "GetLocation",
    "GetLocationMetadata",
    "ListLocations",
    "GetRobot",
    "ListRobots",
    "GetRobotMetadata",
    "GetRobotParts",
    "GetRobotPart",
    "GetRobotPartByNameAndLocation",
    "GetRobotPartMetadata",
    "GetRobotPartHistory",
    "GetRobotPartLogs",
    "TailRobotPartLogs",
    "MarkPartForRestart",
    "ListFragments",
    "GetFragment",
    "GetFragmentHistory",
    "ListMachineFragments",
    "ListMachineSummaries",
    "GetRegistryItem",
    "ListRegistryItems",
    "GetModule",
    "ListModules",
    "GetAppContent",
    "GetAppBranding",
    "GetPackage",
    "ListPackages",
    "GetPartStatus",
    "RetryUpdate",
];

#[tokio::test]
async fn an_operator_reads_and_controls_and_is_denied_the_rest() {
    let world = World::new().await;
    let owner = world.owner("Acme").await;
    let ours = ours(&world, &owner).await;
    let key = world.key(&owner, "operator", "organization", &owner.organization).await;
    let (_, person) = person(&world, "ann@example.org", Some((&owner.organization, Role::Operator))).await;
    let contract = Contract::read();
    for operation in OPERATIONS {
        let path = operation.path;
        if OPEN.contains(&path) {
            continue;
        }
        let name = path.rsplit('/').next().unwrap();
        let expected = if OPERATOR_MAY.contains(&name) { Code::Ok } else { Code::PermissionDenied };
        for (who, operator) in [("a key", &key), ("a person", &person)] {
            assert_eq!(code(contract.call(operator, path, &ours).await), expected, "{who}: {path}");
        }
    }
    world.end().await;
}

#[tokio::test]
async fn a_machines_keys_are_listed_with_the_roles_that_their_reader_sees() {
    let world = World::new().await;
    let owner = world.owner("Acme").await;
    let north = owner.location("North", None).await;
    let (arm, leg) = (owner.machine(&north, "arm").await, owner.machine(&north, "leg").await);
    let south = owner.location("South", None).await;
    let role = |role: &str, kind: &str, id: &str| owner.key_request(role, kind, id).authorizations.remove(0);
    let roles = [
        ("organization_operator", role("operator", "organization", &owner.organization)),
        ("location_owner", role("owner", "location", &south)),
        ("robot_operator", role("operator", "robot", &arm)),
        ("robot_owner", role("owner", "robot", &leg)),
    ];
    let authorizations = roles.iter().map(|(_, role)| role.clone()).collect();
    let request = CreateKeyRequest { authorizations, name: "several".into() };
    let made: CreateKeyResponse = owner.client.app("CreateKey", request).await.unwrap();
    let table = [
        (
            "organization",
            &owner.organization,
            &["organization_operator", "location_owner", "robot_operator", "robot_owner"][..],
        ),
        ("location", &north, &["organization_operator", "robot_operator", "robot_owner"]),
        ("robot", &arm, &["organization_operator", "robot_operator"]),
    ];
    for (kind, id, expected) in table {
        let reader = world.key(&owner, "owner", kind, id).await;
        let request = GetRobotApiKeysRequest { robot_id: arm.clone() };
        let listed: GetRobotApiKeysResponse = reader.app("GetRobotAPIKeys", request).await.unwrap();
        let key = listed.api_keys.into_iter().find(|key| key.api_key.as_ref().unwrap().id == made.id).unwrap();
        let mut shown: Vec<String> = key.authorizations.into_iter().map(|role| role.authorization_id).collect();
        shown.sort_by_key(|shown| roles.iter().position(|(role, _)| role == shown));
        assert_eq!(shown, expected, "the owner of the {kind}");
    }
    world.end().await;
}
