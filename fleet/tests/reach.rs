//! How far a grant reaches: a shared location, a nested one, a key for one machine.

mod world;

use api::pb::platform::{app::v1::*, common::v1::LogEntry};
use prost::Message;
use tonic::Code;
use world::{Client, Owner, World, code};

/// Two organizations; the first has north ⊃ hall ⊃ shelf with a machine, and south with another one.
struct Places {
    first: Owner,
    second: Owner,
    north: String,
    hall: String,
    shelf: String,
    deep: String,
    south: String,
    elsewhere: String,
}

async fn places(world: &World) -> Places {
    let (first, second) = (world.owner("First").await, world.owner("Second").await);
    let north = first.location("north", None).await;
    let hall = first.location("hall", Some(&north)).await;
    let shelf = first.location("shelf", Some(&hall)).await;
    let deep = first.machine(&shelf, "deep").await;
    let south = first.location("south", None).await;
    let elsewhere = first.machine(&south, "elsewhere").await;
    Places { first, second, north, hall, shelf, deep, south, elsewhere }
}

async fn reads(client: &Client, machine: &str) -> Code {
    code(client.app::<_, GetRobotResponse>("GetRobot", GetRobotRequest { id: machine.into() }).await)
}

async fn writes(client: &Client, machine: &str) -> Code {
    let request =
        UpdateRobotRequest { id: machine.into(), name: format!("n{}", &machine[..8]), location: String::new() };
    code(client.app::<_, UpdateRobotResponse>("UpdateRobot", request).await)
}

async fn secrets(client: &Client, location: &str) -> Code {
    code(
        client
            .app::<_, LocationAuthResponse>("LocationAuth", LocationAuthRequest { location_id: location.into() })
            .await,
    )
}

async fn moves(client: &Client, location: &str, parent: &str) -> Code {
    let request = UpdateLocationRequest {
        location_id: location.into(),
        parent_location_id: Some(parent.into()),
        ..Default::default()
    };
    code(client.app::<_, UpdateLocationResponse>("UpdateLocation", request).await)
}

use Code::{InvalidArgument, NotFound, Ok as Yes, PermissionDenied as Denied};

#[tokio::test]
async fn a_location_owner_owns_everything_inside_and_nothing_beside() {
    let world = World::new().await;
    let p = places(&world).await;
    let owner = world.key(&p.first, "owner", "location", &p.hall).await;
    let operator = world.key(&p.first, "operator", "location", &p.north).await;
    let table = [
        // what                                   owner of hall                     operator of north
        ("read the machine two levels down", reads(&owner, &p.deep).await, reads(&operator, &p.deep).await, Yes, Yes),
        ("write it", writes(&owner, &p.deep).await, writes(&operator, &p.deep).await, Yes, Denied),
        (
            "read the machine beside",
            reads(&owner, &p.elsewhere).await,
            reads(&operator, &p.elsewhere).await,
            NotFound,
            NotFound,
        ),
        (
            "secrets of the shelf inside",
            secrets(&owner, &p.shelf).await,
            secrets(&operator, &p.shelf).await,
            Yes,
            Denied,
        ),
        (
            "secrets of north around",
            secrets(&owner, &p.north).await,
            secrets(&operator, &p.north).await,
            Denied,
            Denied,
        ),
        ("secrets of south", secrets(&owner, &p.south).await, secrets(&operator, &p.south).await, NotFound, NotFound),
    ];
    for (what, by_owner, by_operator, owner_may, operator_may) in table {
        assert_eq!((by_owner, by_operator), (owner_may, operator_may), "{what}");
    }
    // Lists hold what is visible, and the empty location is the only one the key names.
    let list = ListLocationsRequest { organization_id: p.first.organization.clone() };
    let listed: ListLocationsResponse = owner.app("ListLocations", list).await.unwrap();
    // Two that were made within one millisecond come in the order of their ids, which is chance.
    let mut names: Vec<&str> = listed.locations.iter().map(|location| &*location.name).collect();
    names.sort_unstable();
    assert_eq!(names, ["hall", "shelf"]);
    let own: GetLocationResponse =
        owner.app("GetLocation", GetLocationRequest { location_id: String::new() }).await.unwrap();
    assert_eq!(own.location.unwrap().id, p.hall);
    world.end().await;
}

#[tokio::test]
async fn a_key_for_one_machine_reaches_that_machine() {
    let world = World::new().await;
    let p = places(&world).await;
    let twin = p.first.machine(&p.shelf, "twin").await;
    let owner = world.key(&p.first, "owner", "robot", &p.deep).await;
    let operator = world.key(&p.first, "operator", "robot", &p.deep).await;
    for (client, may_write) in [(&owner, Yes), (&operator, Denied)] {
        assert_eq!(reads(client, &p.deep).await, Yes);
        assert_eq!(writes(client, &p.deep).await, may_write);
        assert_eq!(reads(client, &twin).await, NotFound, "its neighbour");
        assert_eq!(secrets(client, &p.shelf).await, Denied, "it sees where the machine stands, and no more");
        assert_eq!(secrets(client, &p.south).await, NotFound);
        let list = ListRobotsRequest { location_id: p.shelf.clone() };
        let listed: ListRobotsResponse = client.app("ListRobots", list).await.unwrap();
        assert_eq!(listed.robots.len(), 1);
        assert_eq!(listed.robots[0].id, p.deep);
    }
    let add = NewRobotRequest { name: "third".into(), location: String::new() };
    assert_eq!(code(owner.app::<_, NewRobotResponse>("NewRobot", add).await), Denied);
    world.end().await;
}

#[tokio::test]
async fn a_shared_location_is_worked_in_by_both_and_owned_by_one() {
    let world = World::new().await;
    let p = places(&world).await;
    let other_owner = &p.second.client;
    let other_operator = world.key(&p.second, "operator", "organization", &p.second.organization).await;
    assert_eq!(reads(other_owner, &p.deep).await, NotFound, "before");

    let share = ShareLocationRequest { location_id: p.north.clone(), organization_id: p.second.organization.clone() };
    assert_eq!(code(other_owner.app::<_, ShareLocationResponse>("ShareLocation", share.clone()).await), NotFound);
    let north_owner = world.key(&p.first, "owner", "location", &p.north).await;
    let by_location_owner = code(north_owner.app::<_, ShareLocationResponse>("ShareLocation", share.clone()).await);
    assert_eq!(by_location_owner, Denied, "giving rights away is the organization's decision");
    p.first.client.app::<_, ShareLocationResponse>("ShareLocation", share).await.unwrap();

    let table = [
        (
            "read a machine far inside",
            reads(other_owner, &p.deep).await,
            reads(&other_operator, &p.deep).await,
            Yes,
            Yes,
        ),
        ("write it", writes(other_owner, &p.deep).await, writes(&other_operator, &p.deep).await, Yes, Denied),
        (
            "secrets of the location",
            secrets(other_owner, &p.north).await,
            secrets(&other_operator, &p.north).await,
            Denied,
            Denied,
        ),
        (
            "what is not shared",
            reads(other_owner, &p.elsewhere).await,
            reads(&other_operator, &p.elsewhere).await,
            NotFound,
            NotFound,
        ),
        (
            "take it away",
            moves(other_owner, &p.hall, "").await,
            moves(&other_operator, &p.hall, "").await,
            Denied,
            Denied,
        ),
    ];
    for (what, by_owner, by_operator, owner_may, operator_may) in table {
        assert_eq!((by_owner, by_operator), (owner_may, operator_may), "{what}");
    }
    let who = GetOrganizationsWithAccessToLocationRequest { location_id: p.north.clone() };
    let who: GetOrganizationsWithAccessToLocationResponse =
        other_owner.app("GetOrganizationsWithAccessToLocation", who).await.unwrap();
    let names: Vec<&str> = who.organization_identities.iter().map(|one| &*one.name).collect();
    assert_eq!(names, ["First", "Second"]);
    let list = ListLocationsRequest { organization_id: p.second.organization.clone() };
    let listed: ListLocationsResponse = other_owner.app("ListLocations", list).await.unwrap();
    let mut names: Vec<&str> = listed.locations.iter().map(|one| &*one.name).collect();
    names.sort_unstable();
    assert_eq!(names, ["hall", "north", "shelf"], "with all that lies in it");
    let shared = listed.locations.iter().find(|one| one.id == p.north).unwrap();
    assert!(shared.organizations.iter().any(|one| !one.primary));

    let unshare =
        UnshareLocationRequest { location_id: p.north.clone(), organization_id: p.second.organization.clone() };
    p.first.client.app::<_, UnshareLocationResponse>("UnshareLocation", unshare.clone()).await.unwrap();
    assert_eq!(reads(other_owner, &p.deep).await, NotFound, "after");
    let again = p.first.client.app::<_, UnshareLocationResponse>("UnshareLocation", unshare).await;
    assert_eq!(code(again), NotFound);
    world.end().await;
}

#[tokio::test]
async fn moving_changes_who_reaches_it_and_needs_both_ends() {
    let world = World::new().await;
    let p = places(&world).await;
    let hall_owner = world.key(&p.first, "owner", "location", &p.hall).await;
    let first = &p.first.client;

    // Circles and other organizations are refused, whoever asks.
    assert_eq!(moves(first, &p.north, &p.shelf).await, InvalidArgument);
    assert_eq!(moves(first, &p.north, &p.north).await, InvalidArgument);
    let foreign = p.second.location("foreign", None).await;
    assert_eq!(moves(first, &p.north, &foreign).await, NotFound);

    // Where it lies already is no move, and needs no right beyond the location's own.
    assert_eq!(moves(&hall_owner, &p.hall, &p.north).await, Yes);
    let north_owner = world.key(&p.first, "owner", "location", &p.north).await;
    assert_eq!(moves(&north_owner, &p.north, "").await, Yes);
    assert_eq!(moves(&north_owner, &p.hall, "").await, Denied);

    // Absent: unchanged. Out of hall and back needs both.
    let rename =
        UpdateLocationRequest { location_id: p.shelf.clone(), name: Some("rack".into()), ..Default::default() };
    let renamed: UpdateLocationResponse = hall_owner.app("UpdateLocation", rename).await.unwrap();
    assert_eq!(renamed.location.unwrap().parent_location_id, p.hall);
    assert_eq!(moves(&hall_owner, &p.shelf, &p.south).await, NotFound);
    assert_eq!(moves(&hall_owner, &p.shelf, "").await, Denied);
    assert_eq!(moves(first, &p.shelf, "").await, Yes);
    assert_eq!(reads(&hall_owner, &p.deep).await, NotFound, "it lies in hall no more");
    assert_eq!(moves(first, &p.shelf, &p.hall).await, Yes);
    assert_eq!(reads(&hall_owner, &p.deep).await, Yes);

    // A machine: within the organization, by who owns both places; names stay unique in a place.
    let to = |location: &str, name: &str| UpdateRobotRequest {
        id: p.deep.clone(),
        name: name.into(),
        location: location.into(),
    };
    let by_hall = hall_owner.app::<_, UpdateRobotResponse>("UpdateRobot", to(&p.south, "deep")).await;
    assert_eq!(code(by_hall), NotFound);
    let taken = first.app::<_, UpdateRobotResponse>("UpdateRobot", to(&p.south, "elsewhere")).await;
    assert_eq!(code(taken), Code::FailedPrecondition);
    let moved: UpdateRobotResponse = first.app("UpdateRobot", to(&p.south, "deep")).await.unwrap();
    assert_eq!(moved.robot.unwrap().location, p.south);
    assert_eq!(reads(&hall_owner, &p.deep).await, NotFound);
    let share = ShareLocationRequest { location_id: foreign.clone(), organization_id: p.first.organization.clone() };
    p.second.client.app::<_, ShareLocationResponse>("ShareLocation", share).await.unwrap();
    let abroad = first.app::<_, UpdateRobotResponse>("UpdateRobot", to(&foreign, "deep")).await;
    assert_eq!(code(abroad), Code::FailedPrecondition, "shared or not");
    world.end().await;
}

async fn default_location(client: &Client) -> Result<String, Code> {
    let found = client.app::<_, GetLocationResponse>("GetLocation", GetLocationRequest::default()).await;
    found.map(|found| found.location.unwrap().id).map_err(|refused| refused.code())
}

#[tokio::test]
async fn an_organizations_only_location_stays_the_default_whatever_others_share() {
    let world = World::new().await;
    let p = places(&world).await;
    assert_eq!(default_location(&p.second.client).await, Err(InvalidArgument), "none");
    let share = ShareLocationRequest { location_id: p.north.clone(), organization_id: p.second.organization.clone() };
    p.first.client.app::<_, ShareLocationResponse>("ShareLocation", share).await.unwrap();
    assert_eq!(default_location(&p.second.client).await, Ok(p.north.clone()), "the only one it reaches");
    let own = p.second.location("own", None).await;
    assert_eq!(default_location(&p.second.client).await, Ok(own), "the only one it owns");
    p.second.location("another", None).await;
    assert_eq!(default_location(&p.second.client).await, Err(InvalidArgument), "several");
    world.end().await;
}

async fn fragment(owner: &Owner, name: &str, config: &str) -> String {
    let request = CreateFragmentRequest {
        name: name.into(),
        organization_id: owner.organization.clone(),
        visibility: Some(0),
        ..Default::default()
    };
    let made: CreateFragmentResponse = owner.client.app("CreateFragment", request).await.unwrap();
    let id = made.fragment.unwrap().id;
    change(owner, &id, name, config, None).await;
    id
}

async fn change(owner: &Owner, id: &str, name: &str, config: &str, public: Option<bool>) {
    let request = UpdateFragmentRequest {
        id: id.into(),
        name: name.into(),
        fragment_config_json: Some(config.into()),
        public,
        ..Default::default()
    };
    owner.client.app::<_, UpdateFragmentResponse>("UpdateFragment", request).await.unwrap();
}

#[tokio::test]
async fn of_a_public_fragment_strangers_see_nothing_from_before_it_was_public() {
    let world = World::new().await;
    let p = places(&world).await;
    let (owner, stranger) = (&p.first, &p.second.client);
    let id = fragment(owner, "shared", r#"{"note":"for us only"}"#).await;
    let get = |version: Option<&str>| GetFragmentRequest {
        id: id.clone(),
        version: version.map(Into::into),
        ..Default::default()
    };
    assert_eq!(code(stranger.app::<_, GetFragmentResponse>("GetFragment", get(None)).await), NotFound);
    change(owner, &id, "shared", r#"{"note":"for all"}"#, Some(true)).await;
    change(owner, &id, "shared", r#"{"note":"for all, 2"}"#, None).await;

    let seen: GetFragmentResponse = stranger.app("GetFragment", get(None)).await.unwrap();
    let names: Vec<&str> = seen.revisions.iter().map(|one| &*one.revision).collect();
    assert_eq!(names, ["4", "3"]);
    assert_eq!(code(stranger.app::<_, GetFragmentResponse>("GetFragment", get(Some("2"))).await), NotFound);
    let third: GetFragmentResponse = stranger.app("GetFragment", get(Some("3"))).await.unwrap();
    assert_eq!(third.fragment.unwrap().fragment_config_json.as_deref(), Some(r#"{"note":"for all"}"#));
    let history = GetFragmentHistoryRequest { id: id.clone(), ..Default::default() };
    let theirs: GetFragmentHistoryResponse = stranger.app("GetFragmentHistory", history.clone()).await.unwrap();
    assert_eq!(theirs.history.len(), 2);
    assert!(theirs.history.iter().all(|entry| entry.edited_by.is_none()));
    assert!(!format!("{theirs:?}").contains("for us only"));
    let ours: GetFragmentHistoryResponse = owner.client.app("GetFragmentHistory", history).await.unwrap();
    assert_eq!(ours.history.len(), 4);
    assert!(ours.history.iter().all(|entry| entry.edited_by.is_some()));

    // Pages give every entry once, and end.
    let (mut token, mut found) = (String::new(), Vec::new());
    loop {
        let request = GetFragmentHistoryRequest { id: id.clone(), page_token: Some(token), page_limit: Some(1) };
        let page: GetFragmentHistoryResponse = owner.client.app("GetFragmentHistory", request).await.unwrap();
        found.extend(page.history.into_iter().map(|entry| (entry.revision, entry.old.is_some())));
        token = page.next_page_token;
        if token.is_empty() {
            break;
        }
    }
    assert_eq!(found, [("4", true), ("3", true), ("2", true), ("1", false)].map(|(n, old)| (n.to_owned(), old)));
    world.end().await;
}

#[tokio::test]
async fn naming_somebodys_private_fragment_tells_nothing_about_it() {
    let world = World::new().await;
    let p = places(&world).await;
    let secret = fragment(&p.first, "project falcon", r#"{"components":[{"name":"falcon"}]}"#).await;
    let place = p.second.location("place", None).await;
    let machine = p.second.machine(&place, "curious").await;
    let part = p.second.main_part(&machine).await;
    let request = UpdateRobotPartRequest {
        id: part.id.clone(),
        name: part.name.clone(),
        robot_config_json: Some(format!(r#"{{"fragments":["{secret}"],"components":[{{"name":"own"}}]}}"#)),
        ..Default::default()
    };
    let client = &p.second.client;
    client.app::<_, UpdateRobotPartResponse>("UpdateRobotPart", request).await.unwrap();
    // Each of them shows what is theirs, and only that.
    let request = ListMachineSummariesRequest::default();
    let seen: ListMachineSummariesResponse = client.app("ListMachineSummaries", request).await.unwrap();
    let seen = format!("{seen:?}");
    assert!(seen.contains(&part.id) && !seen.contains("falcon"), "{seen}");
    let request = GetRobotPartRequest { id: part.id.clone() };
    let seen: GetRobotPartResponse = client.app("GetRobotPart", request).await.unwrap();
    assert!(seen.config_json.contains("own") && !format!("{seen:?}").contains("falcon"), "{seen:?}");
    let device = world.login("robot-secret", &part.id, &part.secret).await.unwrap();
    let request = ConfigRequest { id: part.id, ..ConfigRequest::default() };
    let composed: ConfigResponse = device.call("/platform.app.v1.RobotService/Config", request).await.unwrap();
    assert!(!format!("{composed:?}").contains("falcon"), "{composed:?}");
    let components = composed.config.unwrap().components;
    assert_eq!(components.iter().map(|one| &*one.name).collect::<Vec<_>>(), ["own"]);
    let seen = made_of(client, &machine, &[]).await.unwrap();
    assert_eq!((names(&seen).len(), seen.resolved_fragments.len()), (0, 1), "{seen:?}");
    assert_eq!(seen.resolved_fragments[0].error.as_ref().unwrap().error_type(), FragmentErrorType::NoAccess);
    assert!(!format!("{seen:?}").contains("falcon"), "{seen:?}");
    world.end().await;
}

#[tokio::test]
async fn a_list_of_keys_holds_what_its_organization_gave() {
    let world = World::new().await;
    let p = places(&world).await;
    let request = p.first.key_request("operator", "robot", &p.deep);
    let made: CreateKeyResponse = p.first.client.app("CreateKey", request).await.unwrap();
    let key = world.login("api-key", &made.id, &made.key).await.unwrap();
    let own: CreateOrganizationResponse =
        key.app("CreateOrganization", CreateOrganizationRequest { name: "Third".into() }).await.unwrap();
    let third = own.organization.unwrap().id;
    let list = ListKeysRequest { org_id: p.first.organization.clone() };
    let listed: ListKeysResponse = p.first.client.app("ListKeys", list).await.unwrap();
    let list = GetRobotApiKeysRequest { robot_id: p.deep.clone() };
    let of_machine: GetRobotApiKeysResponse = p.first.client.app("GetRobotAPIKeys", list).await.unwrap();
    assert_eq!((listed.api_keys.len(), of_machine.api_keys.len()), (2, 1));
    assert!(!format!("{listed:?}{of_machine:?}").contains(&third));
    for operation in ["DeleteKey", "RotateKey", "CreateKeyFromExistingKeyAuthorizations"] {
        let refused =
            p.first.client.app::<_, DeleteKeyResponse>(operation, DeleteKeyRequest { id: "abc".into() }).await;
        assert_eq!(code(refused), InvalidArgument, "{operation}");
    }
    world.end().await;
}

async fn made_of(client: &Client, machine: &str, additional: &[&str]) -> Result<ListMachineFragmentsResponse, Code> {
    let request = ListMachineFragmentsRequest {
        machine_id: machine.into(),
        additional_fragment_ids: additional.iter().map(ToString::to_string).collect(),
        ..Default::default()
    };
    client.app("ListMachineFragments", request).await.map_err(|refused| refused.code())
}

fn names(made_of: &ListMachineFragmentsResponse) -> Vec<&str> {
    made_of.fragments.iter().map(|fragment| &*fragment.name).collect()
}

#[tokio::test]
async fn a_machines_fragments_are_listed_with_what_lies_in_them_and_no_more_than_one_may_read() {
    let world = World::new().await;
    let p = places(&world).await;
    let owner = &p.first;
    let base =
        fragment(owner, "base", r#"{"agent":{"password":{"psk":"hush hush"}},"pressed":{"$variable":{"name":"v"}}}"#)
            .await;
    let nest = format!(r#"{{"fragments":["{base}"],"around":true}}"#);
    let around = fragment(owner, "around", &nest).await;
    let pinned = fragment(owner, "pinned", r#"{"n":2}"#).await;
    change(owner, &pinned, "pinned", r#"{"n":3}"#, None).await;
    let other = fragment(owner, "other", r#"{"other":1}"#).await;
    let private = fragment(&p.second, "theirs", "{}").await;
    let part = owner.main_part(&p.deep).await;
    let config = format!(
        r#"{{"fragments":[{{"id":"{around}","variables":{{"v":"let me in"}}}},{{"id":"{base}","variables":{{"v":"let me in"}}}},
           {{"id":"{pinned}","version":"2"}},"{private}"]}}"#
    );
    let request =
        UpdateRobotPartRequest { id: part.id, name: part.name, robot_config_json: Some(config), ..Default::default() };
    owner.client.app::<_, UpdateRobotPartResponse>("UpdateRobotPart", request).await.unwrap();

    let seen = made_of(&owner.client, &p.deep, &[]).await.unwrap();
    assert_eq!(names(&seen), ["around", "base", "pinned"]);
    let revisions: Vec<&str> = seen.fragments.iter().map(|one| &*one.revision).collect();
    assert_eq!((revisions[2], seen.fragments[2].fragment_config_json()), ("2", r#"{"n":2}"#));
    let resolved = |id: &str| seen.resolved_fragments.iter().find(|one| one.fragment_id == id).unwrap();
    assert!(format!("{:?}", resolved(&base)).contains("let me in"), "variables are filled in");
    assert!(format!("{:?}", resolved(&around)).contains("hush hush"), "what lies inside is in it");
    assert_eq!(resolved(&private).error.as_ref().unwrap().error_type(), FragmentErrorType::NoAccess);
    assert!(resolved(&private).resolved_config.is_none());

    // With one more, which is there already or not.
    let more = made_of(&owner.client, &p.deep, &[&other, &base]).await.unwrap();
    assert_eq!(names(&more), ["around", "base", "pinned", "other"]);
    assert_eq!(made_of(&owner.client, &p.deep, &[&private]).await.map(drop), Err(NotFound));
    assert_eq!(made_of(&owner.client, &p.deep, &["x"]).await.map(drop), Err(InvalidArgument));
    let bound = async |client: &Client, id: &str, version: &str| {
        let one = AdditionalFragment { fragment_id: id.into(), version: Some(version.into()) };
        let request = ListMachineFragmentsRequest {
            machine_id: p.deep.clone(),
            additional_fragments: vec![one],
            ..Default::default()
        };
        client.app::<_, ListMachineFragmentsResponse>("ListMachineFragments", request).await
    };
    let with_version = async |version: &str| bound(&owner.client, &pinned, version).await;
    assert_eq!(code(with_version("9").await), NotFound);
    // In a version that is there, beside the one that the machine names itself.
    for (version, config) in [("1", "{}"), ("3", r#"{"n":3}"#), ("", r#"{"n":3}"#)] {
        let told = with_version(version).await.unwrap();
        assert_eq!(names(&told), ["around", "base", "pinned", "pinned"], "{version:?}");
        let last = told.fragments.last().unwrap();
        let revision = if version.is_empty() { "3" } else { version };
        assert_eq!((&*last.revision, last.fragment_config_json()), (revision, config), "{version:?}");
        let resolved = told.resolved_fragments.last().unwrap();
        assert_eq!((&resolved.fragment_id, &*resolved.revision), (&pinned, revision), "{version:?}");
    }
    let same = with_version("2").await.unwrap();
    assert_eq!(names(&same), ["around", "base", "pinned"], "the one that is there already");

    // A key for the machine sees what the machine is made of, without its secrets, and nothing beside it.
    let operator = world.key(owner, "operator", "robot", &p.deep).await;
    let masked = made_of(&operator, &p.deep, &[]).await.unwrap();
    assert_eq!(names(&masked), ["around", "base", "pinned"]);
    let text = format!("{masked:?}");
    assert!(!text.contains("hush hush") && !text.contains("let me in"), "{text}");
    assert_eq!(made_of(&operator, &p.deep, &[&other]).await.map(drop), Err(NotFound));
    let shared = fragment(owner, "shared", &format!(r#"{{"fragments":["{other}"]}}"#)).await;
    change(owner, &shared, "shared", &format!(r#"{{"fragments":["{other}"]}}"#), Some(true)).await;
    let through = made_of(&operator, &p.deep, &[&shared]).await.unwrap();
    assert_eq!(names(&through), ["around", "base", "pinned", "shared"], "no way around");
    assert_eq!(names(&bound(&operator, &shared, "3").await.unwrap()), names(&through), "public since this one");
    for before in ["1", "2"] {
        assert_eq!(code(bound(&operator, &shared, before).await), NotFound, "{before}: not public yet");
        bound(&owner.client, &shared, before).await.unwrap();
    }
    assert!(!format!("{:?}", through.resolved_fragments).contains("other"));
    assert_eq!(made_of(&p.second.client, &p.deep, &[]).await.map(drop), Err(NotFound));
    world.end().await;
}

/// What moves ends the calls of those who lose sight of it, and nobody else's.
#[tokio::test]
async fn a_tail_ends_with_the_right_to_read_and_goes_on_otherwise() {
    let world = World::new().await;
    let (owner, other) = (world.owner("Acme").await, world.owner("Other").await);
    let (north, south) = (owner.location("North", None).await, owner.location("South", None).await);
    let machine = owner.machine(&north, "arm").await;
    let part = owner.main_part(&machine).await;
    let elsewhere = other.main_part(&other.machine(&other.location("East", None).await, "leg").await).await;
    let tail = |part: &str| TailRobotPartLogsRequest { id: part.to_owned(), ..Default::default() };
    const TAIL: &str = "/platform.app.v1.AppService/TailRobotPartLogs";
    let mut stays = owner.client.stream(TAIL, tail(&part.id)).await;
    let mut strangers = other.client.stream(TAIL, tail(&elsewhere.id)).await;
    // Twice: a tail looks once a second, so that by the second end all of them have looked after the first move.
    for (from, to) in [(&north, &south), (&south, &north)] {
        let there = world.key(&owner, "operator", "location", from).await;
        let mut loses = there.stream(TAIL, tail(&part.id)).await;
        let to = UpdateRobotRequest { id: machine.clone(), name: "arm".into(), location: to.clone() };
        owner.client.app::<_, UpdateRobotResponse>("UpdateRobot", to).await.unwrap();
        let ended = tokio::time::timeout(world::PATIENCE, loses.message()).await.expect("its tail ends");
        assert_eq!(code(ended), NotFound, "what it may not see any more is not there for it");
    }
    for (part, stream) in [(&part, &mut stays), (&elsewhere, &mut strangers)] {
        let device = world.login("robot-secret", &part.id, &part.secret).await.unwrap();
        let entry = LogEntry { level: "info".into(), message: "still here".into(), ..LogEntry::default() };
        let log = LogRequest { id: part.id.clone(), logs: vec![entry] };
        device.call::<_, LogResponse>("/platform.app.v1.RobotService/Log", log).await.unwrap();
        let told = tokio::time::timeout(world::PATIENCE, stream.message()).await.expect("a line");
        let told = TailRobotPartLogsResponse::decode(told.expect("no end").expect("no end")).unwrap();
        assert_eq!(told.logs[0].message, "still here");
    }
    world.end().await;
}

#[tokio::test]
async fn a_tail_ends_with_its_key_and_with_the_share_that_let_it_in() {
    let world = World::new().await;
    let (owner, other) = (world.owner("Acme").await, world.owner("Other").await);
    let north = owner.location("North", None).await;
    let part = owner.main_part(&owner.machine(&north, "arm").await).await;
    const TAIL: &str = "/platform.app.v1.AppService/TailRobotPartLogs";
    let tail = || TailRobotPartLogsRequest { id: part.id.clone(), ..Default::default() };
    let ends = async |mut stream: tonic::Streaming<bytes::Bytes>| {
        code(tokio::time::timeout(world::PATIENCE, stream.message()).await.expect("it ends"))
    };
    for rotated in [true, false] {
        let made: CreateKeyResponse =
            owner.client.app("CreateKey", owner.key_request("operator", "location", &north)).await.unwrap();
        let key = world.login("api-key", &made.id, &made.key).await.unwrap();
        let open = key.stream(TAIL, tail()).await;
        match rotated {
            true => drop(
                owner.client.app::<_, RotateKeyResponse>("RotateKey", RotateKeyRequest { id: made.id }).await.unwrap(),
            ),
            false => drop(
                owner.client.app::<_, DeleteKeyResponse>("DeleteKey", DeleteKeyRequest { id: made.id }).await.unwrap(),
            ),
        }
        assert_eq!(ends(open).await, Code::Unauthenticated, "rotated: {rotated}");
    }
    let (location_id, organization_id) = (north.clone(), other.organization.clone());
    let share = ShareLocationRequest { location_id: location_id.clone(), organization_id: organization_id.clone() };
    owner.client.app::<_, ShareLocationResponse>("ShareLocation", share).await.unwrap();
    let open = other.client.stream(TAIL, tail()).await;
    let wrong = UnshareLocationRequest { location_id: location_id.clone(), organization_id: "x".into() };
    assert_eq!(code(owner.client.app::<_, UnshareLocationResponse>("UnshareLocation", wrong).await), InvalidArgument);
    let unshare = UnshareLocationRequest { location_id, organization_id };
    owner.client.app::<_, UnshareLocationResponse>("UnshareLocation", unshare).await.unwrap();
    assert_eq!(ends(open).await, NotFound);
    world.end().await;
}
