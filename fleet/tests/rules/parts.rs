//! Parts: found by name, exactly one main part, secrets, the span of a history.

use api::pb::platform::app::v1::*;
use tonic::Code;

use super::world::{Client, World, code};

use Code::{FailedPrecondition, InvalidArgument, NotFound, Ok as Yes};

const NOBODY: &str = "00000000-0000-4000-8000-000000000000";

#[tokio::test]
async fn a_part_is_found_by_its_name_and_by_its_dns_name() {
    let world = World::new().await;
    let (owner, stranger) = (world.owner("Acme").await, world.owner("Strangers").await);
    let location = owner.location("North", None).await;
    let part = owner.main_part(&owner.machine(&location, "Robo Arm").await).await;
    // Another machine, whose part would have the same label.
    let twin = owner.main_part(&owner.machine(&location, "robo arm").await).await;
    assert_ne!(part.dns_name, twin.dns_name);
    let find = async |client: &Client, name: &str, location: &str| {
        let request = GetRobotPartByNameAndLocationRequest { name: name.into(), location_id: location.into() };
        let operation = "GetRobotPartByNameAndLocation";
        let found = client.app::<_, GetRobotPartByNameAndLocationResponse>(operation, request).await;
        found.map(|found| found.part.unwrap().id).map_err(|refused| refused.code())
    };
    let table = [
        ("its name", "Robo Arm-main", &*location, Ok(&part.id)),
        ("its label", &*part.dns_name, &location, Ok(&part.id)),
        ("the twin's label", &*twin.dns_name, &location, Ok(&twin.id)),
        ("the only location", "Robo Arm-main", "", Ok(&part.id)),
        ("no such name", "leg-main", &location, Err(NotFound)),
        ("no such place", "Robo Arm-main", NOBODY, Err(NotFound)),
    ];
    for (case, name, location, expected) in table {
        assert_eq!(find(&owner.client, name, location).await.as_ref().map_err(|code| *code), expected, "{case}");
    }
    assert_eq!(find(&stranger.client, "Robo Arm-main", &location).await, Err(NotFound));
    world.end().await;
}

#[tokio::test]
async fn a_machine_has_one_main_part_and_a_part_two_secrets_at_most() {
    let world = World::new().await;
    let owner = world.owner("Acme").await;
    owner.location("North", None).await;
    let machine = owner.machine("", "arm").await;
    let new = async |machine: &str, name: &str| {
        let request = NewRobotPartRequest { robot_id: machine.into(), part_name: name.into() };
        let made = owner.client.app::<_, NewRobotPartResponse>("NewRobotPart", request).await;
        made.map(|made| made.part_id).map_err(|refused| refused.code())
    };
    for name in ["", "  ", "a\0b", &"x".repeat(201)] {
        assert_eq!(new(&machine, name).await, Err(InvalidArgument), "{name:?}");
    }
    assert_eq!(new(NOBODY, "wrist").await, Err(NotFound));
    let mains = async || {
        let request = GetRobotPartsRequest { robot_id: machine.clone() };
        let told: GetRobotPartsResponse = owner.client.app("GetRobotParts", request).await.unwrap();
        let mains = told.parts.iter().filter(|part| part.main_part).map(|part| part.id.clone()).collect::<Vec<_>>();
        (told.parts.len(), mains)
    };
    let first = owner.main_part(&machine).await;
    assert_eq!(mains().await, (1, vec![first.id.clone()]));
    let (wrist, hand) = (new(&machine, "wrist").await.unwrap(), new(&machine, "hand").await.unwrap());
    for part in [&wrist, &hand, &hand, &first.id] {
        let request = MarkPartAsMainRequest { part_id: part.clone() };
        owner.client.app::<_, MarkPartAsMainResponse>("MarkPartAsMain", request).await.unwrap();
        assert_eq!(mains().await, (3, vec![part.clone()]));
    }

    let add = async || {
        // Two that were made within one millisecond have no order.
        world.server.context.clock.push(10);
        let request = CreateRobotPartSecretRequest { part_id: wrist.clone() };
        let made = owner.client.app::<_, CreateRobotPartSecretResponse>("CreateRobotPartSecret", request).await;
        made.map(|made| made.part.unwrap()).map_err(|refused| refused.code())
    };
    let delete = async |part: &str, secret: &str| {
        let request = DeleteRobotPartSecretRequest { part_id: part.into(), secret_id: secret.into() };
        code(owner.client.app::<_, DeleteRobotPartSecretResponse>("DeleteRobotPartSecret", request).await)
    };
    let two = add().await.unwrap();
    assert_eq!((two.secrets.len(), &two.secret), (2, &two.secrets[0].secret), "the single one is the newest");
    assert_ne!(two.secrets[0].secret, two.secrets[1].secret);
    assert_eq!(add().await, Err(FailedPrecondition));
    let table = [
        ("no such secret", delete(&wrist, NOBODY).await, NotFound),
        ("another part's", delete(&hand, &two.secrets[0].id).await, NotFound),
        ("no such part", delete(NOBODY, &two.secrets[0].id).await, NotFound),
        ("malformed", delete("x", &two.secrets[0].id).await, InvalidArgument),
        ("a malformed secret", delete(&wrist, "x").await, InvalidArgument),
        ("itself", delete(&wrist, &two.secrets[0].id).await, Yes),
        ("again", delete(&wrist, &two.secrets[0].id).await, NotFound),
    ];
    for (case, answer, expected) in table {
        assert_eq!(answer, expected, "{case}");
    }
    add().await.unwrap();
    world.end().await;
}

#[tokio::test]
async fn a_history_is_of_the_span_that_is_asked_for() {
    let world = World::new().await;
    let owner = world.owner("Acme").await;
    owner.location("North", None).await;
    let part = owner.main_part(&owner.machine("", "arm").await).await;
    for n in 0..4 {
        world.server.context.clock.push(1_000);
        let request = UpdateRobotPartRequest {
            id: part.id.clone(),
            name: part.name.clone(),
            robot_config_json: Some(format!("{{\"n\":{n}}}")),
            ..UpdateRobotPartRequest::default()
        };
        owner.client.app::<_, UpdateRobotPartResponse>("UpdateRobotPart", request).await.unwrap();
    }
    let all = GetRobotPartHistoryRequest { id: part.id.clone(), ..GetRobotPartHistoryRequest::default() };
    let ask = async |request: GetRobotPartHistoryRequest| {
        let told = owner.client.app::<_, GetRobotPartHistoryResponse>("GetRobotPartHistory", request).await;
        told.map(|told| told.history).map_err(|refused| refused.code())
    };
    let whole = ask(all.clone()).await.unwrap();
    assert_eq!(whole.len(), 4);
    let at = |place: usize| whole[place].when;
    let table = [
        ("since", at(1), None, 0..2),
        ("until", None, at(2), 2..4),
        ("between", at(2), at(1), 1..3),
        ("the wrong way round", at(1), at(2), 0..0),
    ];
    for (case, start, end, expected) in table {
        let span = GetRobotPartHistoryRequest { start, end, ..all.clone() };
        assert_eq!(ask(span).await.as_deref(), Ok(&whole[expected]), "{case}");
    }
    for token in ["x", "1.2", "ffff.0123456789abcdef"] {
        let wrong = GetRobotPartHistoryRequest { page_token: Some(token.into()), ..all.clone() };
        assert_eq!(ask(wrong).await, Err(InvalidArgument), "{token}");
    }
    for limit in [-1, 1001] {
        let wrong = GetRobotPartHistoryRequest { page_limit: Some(limit), ..all.clone() };
        assert_eq!(ask(wrong).await, Err(InvalidArgument), "{limit}");
    }
    world.end().await;
}

#[tokio::test]
async fn an_operator_of_more_than_the_machine_does_not_speak_as_its_device() {
    use api::pb::platform::app::agent::v1::{DeviceAgentConfigRequest, DeviceAgentConfigResponse};
    let world = World::new().await;
    let owner = world.owner("Acme").await;
    let location = owner.location("North", None).await;
    let machine = owner.machine(&location, "arm").await;
    let part = owner.main_part(&machine).await;
    let request = UpdateRobotPartRequest {
        id: part.id.clone(),
        name: part.name.clone(),
        robot_config_json: Some(r#"{"agent":{"additional_networks":{"home":{"psk":"open sesame"}}}}"#.into()),
        ..UpdateRobotPartRequest::default()
    };
    owner.client.app::<_, UpdateRobotPartResponse>("UpdateRobotPart", request).await.unwrap();
    let config = async |client: &Client| {
        let request = DeviceAgentConfigRequest { id: part.id.clone(), ..DeviceAgentConfigRequest::default() };
        let path = "/platform.app.agent.v1.AgentDeviceService/DeviceAgentConfig";
        client.call::<_, DeviceAgentConfigResponse>(path, request).await.map(|read| format!("{read:?}"))
    };
    let organization = &*owner.organization;
    let table = [
        ("owner", "organization", organization, Yes),
        ("operator", "organization", organization, Code::PermissionDenied),
        ("owner", "location", &location, Yes),
        ("operator", "location", &location, Code::PermissionDenied),
        // Made for the device, as the part's secret is.
        ("owner", "robot", &machine, Yes),
        ("operator", "robot", &machine, Yes),
    ];
    for (role, kind, resource, expected) in table {
        let key = world.key(&owner, role, kind, resource).await;
        match config(&key).await {
            Ok(read) => assert!(expected == Yes && read.contains("open sesame"), "{role} of {kind}: {read}"),
            Err(refused) => {
                assert_eq!(refused.code(), expected, "{role} of {kind}");
                assert!(!refused.message().contains("open sesame"), "{refused}");
            }
        }
    }
    world.end().await;
}
