//! What is deleted, what goes with it, and what may not be deleted.

mod world;

#[path = "deleting/revisions.rs"]
mod revisions;
#[path = "deleting/traces.rs"]
mod traces;

use std::collections::BTreeMap;

use api::pb::platform::{app::v1::*, common::v1::LogEntry, fleet::v1::*};
use fleet::logs::retention::forget_orphans;
use prost_types::{Struct, Value, value::Kind};
use tonic::Code;
use world::{Client, Owner, World, code};

use Code::{FailedPrecondition, InvalidArgument, NotFound, Ok as Yes, PermissionDenied as Denied};

async fn delete_machine(client: &Client, id: &str) -> Code {
    code(client.app::<_, DeleteRobotResponse>("DeleteRobot", DeleteRobotRequest { id: id.into() }).await)
}

async fn delete_location(client: &Client, id: &str) -> Code {
    let request = DeleteLocationRequest { location_id: id.into() };
    code(client.app::<_, DeleteLocationResponse>("DeleteLocation", request).await)
}

async fn delete_organization(client: &Client, id: &str) -> Code {
    let request = DeleteOrganizationRequest { organization_id: id.into() };
    code(client.app::<_, DeleteOrganizationResponse>("DeleteOrganization", request).await)
}

async fn delete_fragment(client: &Client, id: &str) -> Result<DeleteFragmentResponse, tonic::Status> {
    client.app("DeleteFragment", DeleteFragmentRequest { id: id.into() }).await
}

async fn audit(owner: &Owner) -> Vec<(String, String)> {
    let request =
        ListAuditEventsRequest { organization_id: owner.organization.clone(), limit: 1000, ..Default::default() };
    let listed: ListAuditEventsResponse =
        owner.client.call("/platform.fleet.v1.AdminService/ListAuditEvents", request).await.unwrap();
    listed.events.into_iter().map(|event| (event.operation, event.resource_id)).collect()
}

#[tokio::test]
async fn with_a_machine_go_its_parts_secrets_roles_logs_and_signs_of_life() {
    let world = World::new().await;
    let owner = world.owner("Acme").await;
    let location = owner.location("North", None).await;
    let machine = owner.machine(&location, "arm").await;
    let part = owner.main_part(&machine).await;
    let second = NewRobotPartRequest { robot_id: machine.clone(), part_name: "wrist".into() };
    owner.client.app::<_, NewRobotPartResponse>("NewRobotPart", second).await.unwrap();
    let used = owner.fragment("base", FragmentVisibility::Private).await;
    owner.configure(&part, &format!(r#"{{"fragments":["{used}"]}}"#)).await;

    // Its device speaks, and somebody who has a role on nothing else looks on.
    let device = world.login("robot-secret", &part.id, &part.secret).await.unwrap();
    let entry = LogEntry { level: "info".into(), message: "here I am".into(), ..LogEntry::default() };
    let log = LogRequest { id: part.id.clone(), logs: vec![entry] };
    device.call::<_, LogResponse>("/platform.app.v1.RobotService/Log", log.clone()).await.unwrap();
    let operator = world.key(&owner, "operator", "robot", &machine).await;
    let tail = TailRobotPartLogsRequest { id: part.id.clone(), ..Default::default() };
    let mut followed = owner.client.stream("/platform.app.v1.AppService/TailRobotPartLogs", tail).await;

    for (who, may) in [(&operator, Denied), (&world.owner("Strangers").await.client, NotFound)] {
        assert_eq!(delete_machine(who, &machine).await, may);
    }
    assert_eq!(delete_location(&owner.client, &location).await, FailedPrecondition);
    assert_eq!(delete_machine(&owner.client, &machine).await, Yes);

    let ended = tokio::time::timeout(world::PATIENCE, followed.message()).await.expect("the tail ends");
    assert_eq!(code(ended), NotFound);
    assert_eq!(delete_machine(&owner.client, &machine).await, NotFound);
    let again = device.call::<_, LogResponse>("/platform.app.v1.RobotService/Log", log).await;
    assert_eq!(code(again), Code::Unauthenticated, "its secret is gone");
    assert_eq!(code(world.login("robot-secret", &part.id, &part.secret).await.map(drop)), Code::Unauthenticated);
    let alone = ListOrganizationsRequest {};
    let left: ListOrganizationsResponse = operator.app("ListOrganizations", alone).await.unwrap();
    assert!(left.organizations.is_empty(), "the role went with the machine");
    let context = &world.server.context;
    assert!(context.logs.parts().await.unwrap().is_empty());
    assert_eq!(context.presence.last_access(&part.id, None, context.clock.now()), None);
    delete_fragment(&owner.client, &used).await.unwrap();
    assert_eq!(delete_location(&owner.client, &location).await, Yes);
    let audit = audit(&owner).await;
    let expected = [("DeleteLocation", &location), ("DeleteFragment", &used), ("DeleteRobot", &machine)];
    assert_eq!(audit[..3], expected.map(|(operation, id)| (operation.to_owned(), id.clone())));
    world.end().await;
}

#[tokio::test]
async fn log_entries_that_outlived_their_part_are_cleaned_up() {
    let world = World::new().await;
    let owner = world.owner("Acme").await;
    let location = owner.location("North", None).await;
    let part = owner.main_part(&owner.machine(&location, "arm").await).await;
    let context = &world.server.context;
    let entry = || vec![LogEntry { level: "info".into(), message: "late".into(), ..LogEntry::default() }];
    for id in [&*part.id, "00000000-0000-4000-8000-000000000000"] {
        context.logs.take(id, fleet::logs::Source::Unnumbered, entry(), context.clock.now()).await.unwrap();
    }
    assert_eq!(forget_orphans(context).await.unwrap(), 1);
    assert_eq!(context.logs.parts().await.unwrap(), [part.id]);
    world.end().await;
}

#[tokio::test]
async fn a_location_goes_when_it_is_empty_with_the_roles_and_secrets_on_it() {
    let world = World::new().await;
    let owner = world.owner("Acme").await;
    let north = owner.location("north", None).await;
    let hall = owner.location("hall", Some(&north)).await;
    let hall_owner = world.key(&owner, "owner", "location", &hall).await;
    let hall_operator = world.key(&owner, "operator", "location", &hall).await;
    let other = world.owner("Second").await;
    let share = ShareLocationRequest { location_id: north.clone(), organization_id: other.organization.clone() };
    owner.client.app::<_, ShareLocationResponse>("ShareLocation", share).await.unwrap();
    let secret = CreateLocationSecretRequest { location_id: hall.clone() };
    owner.client.app::<_, CreateLocationSecretResponse>("CreateLocationSecret", secret).await.unwrap();
    let table = [
        ("operator", delete_location(&hall_operator, &hall).await, Denied),
        ("owner by a share", delete_location(&other.client, &hall).await, Denied),
        ("location around it", delete_location(&hall_owner, &north).await, Denied),
        ("something inside", delete_location(&owner.client, &north).await, FailedPrecondition),
        ("its own owner", delete_location(&hall_owner, &hall).await, Yes),
        ("again", delete_location(&owner.client, &hall).await, NotFound),
        ("no id", delete_location(&owner.client, "x").await, InvalidArgument),
        ("shared, but empty", delete_location(&owner.client, &north).await, Yes),
    ];
    for (case, answer, expected) in table {
        assert_eq!(answer, expected, "{case}");
    }
    let nothing: ListLocationsResponse = other
        .client
        .app("ListLocations", ListLocationsRequest { organization_id: other.organization.clone() })
        .await
        .unwrap();
    assert!(nothing.locations.is_empty());
    world.end().await;
}

#[tokio::test]
async fn an_organization_goes_when_it_is_empty_and_nobody_depends_on_it() {
    let world = World::new().await;
    let owner = world.owner("Acme").await;
    let other = world.owner("Second").await;
    let operator = world.key(&owner, "operator", "organization", &owner.organization).await;
    let location = owner.location("north", None).await;
    assert_eq!(delete_organization(&operator, &owner.organization).await, Denied);
    assert_eq!(delete_organization(&other.client, &owner.organization).await, NotFound);
    assert_eq!(delete_organization(&owner.client, &owner.organization).await, FailedPrecondition, "a location");
    assert_eq!(delete_location(&owner.client, &location).await, Yes);

    // A public fragment that others use.
    let shared = owner.fragment("shared", FragmentVisibility::PublicUnlisted).await;
    let place = other.location("place", None).await;
    let part = other.main_part(&other.machine(&place, "arm").await).await;
    other.configure(&part, &format!(r#"{{"fragments":["{shared}"]}}"#)).await;
    assert_eq!(delete_organization(&owner.client, &owner.organization).await, FailedPrecondition, "a fragment");
    other.configure(&part, "{}").await;

    // Its key founded another organization, which would lose its only owner.
    let found = CreateOrganizationRequest { name: "Third".into() };
    let third: CreateOrganizationResponse = owner.client.app("CreateOrganization", found).await.unwrap();
    let third = third.organization.unwrap().id;
    assert_eq!(delete_organization(&owner.client, &owner.organization).await, FailedPrecondition, "an orphan");
    assert_eq!(delete_organization(&owner.client, &third).await, Yes);
    let places = other.location("shared", None).await;
    let share = ShareLocationRequest { location_id: places, organization_id: owner.organization.clone() };
    other.client.app::<_, ShareLocationResponse>("ShareLocation", share).await.unwrap();

    assert_eq!(delete_organization(&owner.client, &owner.organization).await, Yes);
    let gone = owner.client.app::<_, ListOrganizationsResponse>("ListOrganizations", ListOrganizationsRequest {}).await;
    assert_eq!(code(gone), Code::Unauthenticated, "its keys went with it");
    assert_eq!(code(world.login("api-key", &owner.key_id, &owner.key).await.map(drop)), Code::Unauthenticated);
    let world = world.restart().await;
    assert_eq!(code(world.login("api-key", &owner.key_id, &owner.key).await.map(drop)), Code::Unauthenticated);
    world.end().await;
}

#[tokio::test]
async fn a_fragment_in_use_stays_and_its_users_are_named() {
    let world = World::new().await;
    let (owner, other) = (world.owner("Acme").await, world.owner("Second").await);
    let operator = world.key(&owner, "operator", "organization", &owner.organization).await;
    let base = owner.fragment("base", FragmentVisibility::Public).await;
    let around = owner.fragment("around", FragmentVisibility::Private).await;
    let nest = UpdateFragmentRequest {
        id: around.clone(),
        name: "around".into(),
        fragment_config_json: Some(format!(r#"{{"fragments":["{base}"]}}"#)),
        ..Default::default()
    };
    owner.client.app::<_, UpdateFragmentResponse>("UpdateFragment", nest).await.unwrap();
    let mut parts = Vec::new();
    for one in [&owner, &other] {
        let place = one.location("place", None).await;
        let part = one.main_part(&one.machine(&place, "arm").await).await;
        one.configure(&part, &format!(r#"{{"fragments":["{base}","{around}"]}}"#)).await;
        parts.push(part);
    }
    let import = FragmentImport { fragment_id: base.clone(), ..Default::default() };
    let defaults = UpdateOrganizationRequest {
        organization_id: owner.organization.clone(),
        default_fragments: Some(FragmentImportList { fragments: vec![import] }),
        ..Default::default()
    };
    owner.client.app::<_, UpdateOrganizationResponse>("UpdateOrganization", defaults.clone()).await.unwrap();

    assert_eq!(code(delete_fragment(&operator, &base).await), Denied);
    assert_eq!(code(delete_fragment(&other.client, &base).await), Denied, "public: seen");
    assert_eq!(code(delete_fragment(&other.client, &around).await), NotFound);
    let refused = delete_fragment(&owner.client, &base).await.unwrap_err();
    assert_eq!(refused.code(), FailedPrecondition);
    for named in [&*parts[0].id, "arm-main", &*around, "default fragments", "1 in other organizations"] {
        assert!(refused.message().contains(named), "{named}: {}", refused.message());
    }
    assert!(!refused.message().contains(&parts[1].id), "what others have is theirs");

    // Naming a private one is no use of it, wherever it is counted.
    let seen: GetFragmentResponse =
        owner.client.app("GetFragment", GetFragmentRequest { id: around.clone(), ..Default::default() }).await.unwrap();
    assert_eq!(seen.fragment.unwrap().robot_part_count, 1);
    owner.configure(&parts[0], "{}").await;
    delete_fragment(&owner.client, &around).await.unwrap();
    let none = UpdateOrganizationRequest { default_fragments: Some(FragmentImportList::default()), ..defaults };
    owner.client.app::<_, UpdateOrganizationResponse>("UpdateOrganization", none).await.unwrap();
    assert_eq!(code(delete_fragment(&owner.client, &base).await), FailedPrecondition, "the other one's part");
    let private =
        UpdateFragmentRequest { id: base.clone(), name: "base".into(), public: Some(false), ..Default::default() };
    owner.client.app::<_, UpdateFragmentResponse>("UpdateFragment", private).await.unwrap();
    delete_fragment(&owner.client, &base).await.unwrap();
    assert_eq!(code(delete_fragment(&owner.client, &base).await), NotFound);
    world.end().await;
}

#[tokio::test]
async fn public_said_by_an_old_client_does_not_list_what_was_unlisted() {
    let world = World::new().await;
    let owner = world.owner("Acme").await;
    let id = owner.fragment("base", FragmentVisibility::PublicUnlisted).await;
    let table = [
        (Some(true), None, FragmentVisibility::PublicUnlisted),
        (Some(false), None, FragmentVisibility::Private),
        (Some(true), None, FragmentVisibility::Public),
        (Some(true), Some(FragmentVisibility::PublicUnlisted), FragmentVisibility::PublicUnlisted),
        (None, None, FragmentVisibility::PublicUnlisted),
    ];
    for (public, visibility, expected) in table {
        let visibility = visibility.map(i32::from);
        let request =
            UpdateFragmentRequest { id: id.clone(), name: "base".into(), public, visibility, ..Default::default() };
        let changed: UpdateFragmentResponse = owner.client.app("UpdateFragment", request).await.unwrap();
        assert_eq!(changed.fragment.unwrap().visibility(), expected, "{public:?} {visibility:?}");
    }
    world.end().await;
}

fn object(pairs: &[(&str, Kind)]) -> Struct {
    let field = |(name, kind): &(&str, Kind)| ((*name).to_owned(), Value { kind: Some(kind.clone()) });
    Struct { fields: pairs.iter().map(field).collect::<BTreeMap<_, _>>() }
}

#[tokio::test]
async fn metadata_is_kept_replaced_as_a_whole_and_bounded() {
    let world = World::new().await;
    let owner = world.owner("Acme").await;
    let location = owner.location("North", None).await;
    let machine = owner.machine(&location, "arm").await;
    let part = owner.main_part(&machine).await.id;
    let operator = world.key(&owner, "operator", "organization", &owner.organization).await;
    let stranger = world.owner("Strangers").await.client;
    // The four requests are alike on the wire: an id, and the object in field 2.
    let things =
        [("Organization", &owner.organization), ("Location", &location), ("Robot", &machine), ("RobotPart", &part)];
    for (thing, id) in things {
        let (get, update) = (format!("Get{thing}Metadata"), format!("Update{thing}Metadata"));
        let asked = GetRobotMetadataRequest { id: id.clone() };
        let change = |data: Option<Struct>| UpdateRobotMetadataRequest { id: id.clone(), data };
        let read = async |client: &Client| client.app::<_, GetRobotMetadataResponse>(&get, asked.clone()).await;
        let write = async |client: &Client, data| {
            code(client.app::<_, UpdateRobotMetadataResponse>(&update, change(data)).await)
        };
        assert_eq!(read(&owner.client).await.unwrap().data, Some(Struct::default()), "{thing}");
        let first = object(&[("a", Kind::NumberValue(1.5)), ("none", Kind::NullValue(0))]);
        let second = object(&[("b", Kind::StringValue("x".repeat(1_000_000)))]);
        for data in [first, second, Struct::default()] {
            assert_eq!(write(&owner.client, Some(data.clone())).await, Yes, "{thing}");
            assert_eq!(read(&owner.client).await.unwrap().data.as_ref(), Some(&data), "{thing}");
            assert_eq!(read(&operator).await.unwrap().data, Some(data), "{thing}");
        }
        // 1 MiB of JSON to the byte, and one more.
        let around = r#"{"b":""}"#.len();
        let longest = object(&[("b", Kind::StringValue("x".repeat((1 << 20) - around)))]);
        assert_eq!(write(&owner.client, Some(longest.clone())).await, Yes, "{thing}");
        assert_eq!(read(&owner.client).await.unwrap().data, Some(longest), "{thing}");
        let long = object(&[("b", Kind::StringValue("x".repeat((1 << 20) - around + 1)))]);
        let odd = object(&[("n", Kind::NumberValue(f64::NAN))]);
        for (case, data) in [("too long", Some(long)), ("not a number", Some(odd)), ("none", None)] {
            assert_eq!(write(&owner.client, data).await, InvalidArgument, "{thing} {case}");
        }
        let kept = read(&owner.client).await.unwrap().data.unwrap();
        assert!(kept.fields.contains_key("b"), "{thing}: what was refused changed nothing");
        assert_eq!(write(&owner.client, Some(Struct::default())).await, Yes, "{thing}");
        assert_eq!(write(&operator, Some(Struct::default())).await, Denied, "{thing}");
        assert_eq!(write(&stranger, Some(Struct::default())).await, NotFound, "{thing}");
        assert_eq!(code(read(&stranger).await), NotFound, "{thing}");
        assert!(audit(&owner).await.contains(&(update, id.clone())), "{thing}");
    }
    world.end().await;
}

#[tokio::test]
async fn a_server_may_keep_the_founding_of_organizations_to_itself() {
    let world = World::with(|options| options.organizations_are_open = false).await;
    let owner = world.owner("Acme").await;
    let found = CreateOrganizationRequest { name: "Third".into() };
    let refused = owner.client.app::<_, CreateOrganizationResponse>("CreateOrganization", found).await;
    assert_eq!(code(refused), Denied);
    world.end().await;
}

#[tokio::test]
async fn a_key_for_a_machine_does_not_learn_with_whom_its_location_is_shared() {
    let world = World::new().await;
    let (owner, other) = (world.owner("Acme").await, world.owner("Second").await);
    let location = owner.location("North", None).await;
    let machine = owner.machine(&location, "arm").await;
    let share = ShareLocationRequest { location_id: location, organization_id: other.organization.clone() };
    owner.client.app::<_, ShareLocationResponse>("ShareLocation", share).await.unwrap();
    let key = world.key(&owner, "owner", "robot", &machine).await;
    let get = async |id: &str| {
        let request = GetOrganizationRequest { organization_id: id.into() };
        code(key.app::<_, GetOrganizationResponse>("GetOrganization", request).await)
    };
    assert_eq!(get(&owner.organization).await, Denied, "its own it sees from below");
    assert_eq!(get(&other.organization).await, NotFound);
    world.end().await;
}
