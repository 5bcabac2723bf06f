//! The main job through the port: organizations down to parts, what they are configured with, who gets in.

mod world;

use api::pb::platform::{app::v1::*, fleet::v1::*};
use prost_types::{Struct, Value, value::Kind};
use tonic::{Code, Status};
use tonic_types::StatusExt;
use world::{World, code};

fn update(part: &RobotPart, json: &str) -> UpdateRobotPartRequest {
    UpdateRobotPartRequest {
        id: part.id.clone(),
        name: part.name.clone(),
        robot_config_json: Some(json.into()),
        ..Default::default()
    }
}

#[tokio::test]
async fn from_an_empty_folder_to_a_configured_part() {
    let world = World::new().await;
    let owner = world.owner("Acme").await;
    let organizations: ListOrganizationsResponse =
        owner.client.app("ListOrganizations", ListOrganizationsRequest {}).await.unwrap();
    assert_eq!(organizations.organizations[0].name, "Acme");

    let location = owner.location("North", None).await;
    // The key's only location is what an empty id means.
    let machine = owner.machine("", "Arm 1").await;
    let robots: ListRobotsResponse =
        owner.client.app("ListRobots", ListRobotsRequest { location_id: String::new() }).await.unwrap();
    assert_eq!((robots.robots[0].id.as_str(), robots.robots[0].location.as_str()), (&*machine, &*location));
    assert_eq!(robots.robots[0].online_state(), OnlineState::AwaitingSetup);

    let part = owner.main_part(&machine).await;
    assert_eq!((part.name.as_str(), part.dns_name.as_str()), ("Arm 1-main", "arm-1-main"));
    assert_eq!(part.secrets.len(), 1);
    assert_eq!(part.secret, part.secrets[0].secret);

    // The exact text is kept: order of keys, spelling of numbers.
    let text = r#"{"zebra": 1, "agent": {"x": 10}, "big": 1e2}"#;
    let changed: UpdateRobotPartResponse = owner.client.app("UpdateRobotPart", update(&part, text)).await.unwrap();
    let changed = changed.part.unwrap();
    assert!(changed.last_updated.unwrap().nanos % 1_000_000 == 0, "whole milliseconds");
    let read: GetRobotPartResponse =
        owner.client.app("GetRobotPart", GetRobotPartRequest { id: part.id.clone() }).await.unwrap();
    assert_eq!(read.config_json, text);
    let number = |config: &Struct, name: &str| match config.fields[name].kind {
        Some(Kind::NumberValue(number)) => number,
        _ => f64::NAN,
    };
    assert_eq!(number(&read.part.unwrap().robot_config.unwrap(), "big"), 100.0);

    // A Struct comes back as JSON with whole numbers whole; an empty one is an empty configuration, an absent one none.
    let ten = Value { kind: Some(Kind::NumberValue(10.0)) };
    let object = Struct { fields: [("minutes".to_owned(), ten)].into() };
    let request = UpdateRobotPartRequest { robot_config: Some(object), robot_config_json: None, ..update(&part, "") };
    owner.client.app::<_, UpdateRobotPartResponse>("UpdateRobotPart", request).await.unwrap();
    let rename = UpdateRobotPartRequest { name: "renamed".into(), robot_config_json: None, ..update(&part, "") };
    let renamed: UpdateRobotPartResponse = owner.client.app("UpdateRobotPart", rename).await.unwrap();
    let renamed = renamed.part.unwrap();
    assert_eq!((renamed.name.as_str(), renamed.robot_config_json()), ("renamed", r#"{"minutes":10}"#));
    let empty = UpdateRobotPartRequest { robot_config: Some(Struct::default()), ..update(&part, "") };
    let emptied: UpdateRobotPartResponse = owner.client.app("UpdateRobotPart", empty).await.unwrap();
    assert_eq!(emptied.part.unwrap().robot_config_json(), "{}");
    world.end().await;
}

#[tokio::test]
async fn updates_are_ordered_stale_ones_refused_and_history_keeps_what_was() {
    let world = World::new().await;
    let owner = world.owner("Acme").await;
    owner.location("North", None).await;
    let part = owner.main_part(&owner.machine("", "arm").await).await;
    let mut last = part.last_updated.unwrap();
    for n in 0..20 {
        // Each carries the time of the last one, as an editor does: none may be refused, and time must rise.
        let mut request = update(&part, &format!("{{\"n\":{n}}}"));
        request.last_known_update = Some(last);
        let done: UpdateRobotPartResponse = owner.client.app("UpdateRobotPart", request).await.unwrap();
        let now = done.part.unwrap().last_updated.unwrap();
        assert!((now.seconds, now.nanos) > (last.seconds, last.nanos), "{n}");
        last = now;
    }
    // Not even a clock that is set back by an hour makes a later change look earlier.
    world.server.context.clock.push(-3_600_000);
    let mut request = update(&part, r#"{"n":20}"#);
    request.last_known_update = Some(last);
    let done: UpdateRobotPartResponse = owner.client.app("UpdateRobotPart", request).await.unwrap();
    let now = done.part.unwrap().last_updated.unwrap();
    assert!((now.seconds, now.nanos) > (last.seconds, last.nanos));
    world.server.context.clock.push(3_600_000);

    let mut stale = update(&part, "{}");
    stale.last_known_update = part.last_updated;
    assert_eq!(code(owner.client.app::<_, UpdateRobotPartResponse>("UpdateRobotPart", stale).await), Code::Aborted);

    let all = GetRobotPartHistoryRequest { id: part.id.clone(), ..Default::default() };
    let history: GetRobotPartHistoryResponse = owner.client.app("GetRobotPartHistory", all.clone()).await.unwrap();
    assert_eq!(history.history.len(), 21);
    assert!(history.next_page_token.is_empty());
    assert_eq!(history.history[0].old.as_ref().unwrap().robot_config_json(), r#"{"n":19}"#);
    assert_eq!(history.history[0].edited_by.as_ref().unwrap().value, owner.key_id);
    assert_eq!(history.history[20].old.as_ref().unwrap().robot_config_json(), "{}");

    let mut pages = Vec::new();
    let mut request = GetRobotPartHistoryRequest { page_limit: Some(6), ..all };
    loop {
        let page: GetRobotPartHistoryResponse = owner.client.app("GetRobotPartHistory", request.clone()).await.unwrap();
        pages.extend(page.history);
        if page.next_page_token.is_empty() {
            break;
        }
        request.page_token = Some(page.next_page_token);
    }
    assert_eq!(pages, history.history);
    // A token is good for the list that gave it.
    let other = owner.main_part(&owner.machine("", "leg").await).await;
    let foreign = GetRobotPartHistoryRequest { id: other.id, ..request };
    let refused = owner.client.app::<_, GetRobotPartHistoryResponse>("GetRobotPartHistory", foreign).await;
    assert_eq!(code(refused), Code::InvalidArgument);
    world.end().await;
}

#[tokio::test]
async fn bad_configurations_and_names_are_refused_by_field() {
    let world = World::new().await;
    let owner = world.owner("Acme").await;
    let location = owner.location("North", None).await;
    let machine = owner.machine("", "arm").await;
    let part = owner.main_part(&machine).await;
    let field = |refused: &Status| -> Vec<String> {
        let told = refused.get_details_bad_request().unwrap_or_else(|| panic!("no details: {refused:?}"));
        told.field_violations.into_iter().map(|violation| violation.field).collect()
    };
    for text in ["[]", "{", "{\"a\":\"\u{0}\"}", &"[".repeat(200), &format!("{{\"a\":\"{}\"}}", "x".repeat(1 << 20))] {
        let refused = owner.client.app::<_, UpdateRobotPartResponse>("UpdateRobotPart", update(&part, text)).await;
        let refused = refused.unwrap_err();
        let begin = &text[..text.len().min(20)];
        assert_eq!(
            (refused.code(), field(&refused)),
            (Code::InvalidArgument, vec!["robot_config_json".to_owned()]),
            "{begin}"
        );
    }
    for name in ["", " ", "a\u{7}b", &"x".repeat(201)] {
        let request = NewRobotRequest { name: name.into(), location: location.clone() };
        let refused = owner.client.app::<_, NewRobotResponse>("NewRobot", request).await.unwrap_err();
        assert_eq!((refused.code(), field(&refused)), (Code::InvalidArgument, vec!["name".to_owned()]), "{name:?}");
    }
    let twice = NewRobotRequest { name: "arm".into(), location };
    assert_eq!(code(owner.client.app::<_, NewRobotResponse>("NewRobot", twice).await), Code::AlreadyExists);
    let get = async |id: &str| {
        owner.client.app::<_, GetRobotResponse>("GetRobot", GetRobotRequest { id: id.into() }).await.unwrap_err()
    };
    let refused = get("not-an-id").await;
    assert_eq!((refused.code(), field(&refused)), (Code::InvalidArgument, vec!["id".to_owned()]));
    let refused = get("00000000-0000-4000-8000-000000000000").await;
    assert_eq!(refused.code(), Code::NotFound);
    assert!(!refused.details().is_empty(), "refusals carry google.rpc details");
    world.end().await;
}

#[tokio::test]
async fn keys_open_doors_until_they_are_rotated_or_deleted_and_tokens_survive_a_restart() {
    let world = World::new().await;
    let owner = world.owner("Acme").await;
    let request = owner.key_request("owner", "organization", &owner.organization);
    let made: CreateKeyResponse = owner.client.app("CreateKey", request).await.unwrap();
    assert_eq!(code(world.login("api-key", &made.id, "wrong").await.map(|_| ())), Code::Unauthenticated);
    assert_eq!(code(world.login("api-key", &owner.key_id, &made.key).await.map(|_| ())), Code::Unauthenticated);
    let second = world.login("api-key", &made.id, &made.key).await.unwrap();
    let list = |client: world::Client| async move {
        code(client.app::<_, ListOrganizationsResponse>("ListOrganizations", ListOrganizationsRequest {}).await)
    };
    assert_eq!(list(second.clone()).await, Code::Ok);

    let listed: ListKeysResponse =
        owner.client.app("ListKeys", ListKeysRequest { org_id: owner.organization.clone() }).await.unwrap();
    assert_eq!(listed.api_keys.len(), 2);
    assert!(listed.api_keys.iter().all(|key| key.api_key.as_ref().unwrap().key.is_empty()), "shown once only");

    // Rotated: the same id, the old secret and its tokens dead at once.
    let rotated: RotateKeyResponse =
        owner.client.app("RotateKey", RotateKeyRequest { id: made.id.clone() }).await.unwrap();
    assert_eq!(rotated.id, made.id);
    assert_eq!(list(second).await, Code::Unauthenticated);
    assert_eq!(code(world.login("api-key", &made.id, &made.key).await.map(|_| ())), Code::Unauthenticated);
    let third = world.login("api-key", &made.id, &rotated.key).await.unwrap();

    // A restart in between, with both databases and the server's key on disk.
    let token = third.token.clone();
    let world = world.restart().await;
    let third = world::Client { token, ..world.nobody().await };
    assert_eq!(list(third.clone()).await, Code::Ok);
    let owner_client = world::Client { token: owner.client.token.clone(), ..world.nobody().await };
    let copy = CreateKeyFromExistingKeyAuthorizationsRequest { id: made.id.clone() };
    let copied: CreateKeyFromExistingKeyAuthorizationsResponse =
        owner_client.app("CreateKeyFromExistingKeyAuthorizations", copy).await.unwrap();
    let copied = world.login("api-key", &copied.id, &copied.key).await.unwrap();
    assert_eq!(list(copied).await, Code::Ok);
    owner_client.app::<_, DeleteKeyResponse>("DeleteKey", DeleteKeyRequest { id: made.id }).await.unwrap();
    assert_eq!(list(third).await, Code::Unauthenticated);
    world.end().await;
}

#[tokio::test]
async fn the_last_owner_key_stays() {
    let world = World::new().await;
    let owner = world.owner("Acme").await;
    let delete = DeleteKeyRequest { id: owner.key_id.clone() };
    let refused = owner.client.app::<_, DeleteKeyResponse>("DeleteKey", delete).await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition);
    assert!(refused.message().contains("RotateKey"), "{refused}");
    world.end().await;
}

#[tokio::test]
async fn devices_sign_in_with_secrets_of_part_or_location_and_do_only_their_own_calls() {
    let world = World::new().await;
    let owner = world.owner("Acme").await;
    let location = owner.location("North", None).await;
    let hall = owner.location("Hall", Some(&location)).await;
    let part = owner.main_part(&owner.machine(&hall, "arm").await).await;
    let other = owner.main_part(&owner.machine(&hall, "leg").await).await;
    let status = || Some(DeviceStatus::default());
    let report = |part: &RobotPart| ReportRequest { part_id: part.id.clone(), status: status(), ..Default::default() };
    const REPORT: &str = "/platform.fleet.v1.DeviceService/Report";

    for entity in [&part.id, &part.fqdn] {
        let device = world.login("robot-secret", entity, &part.secret).await.unwrap();
        device.call::<_, ReportResponse>(REPORT, report(&part)).await.unwrap();
        assert_eq!(code(device.call::<_, ReportResponse>(REPORT, report(&other)).await), Code::NotFound);
        let read = GetRobotPartRequest { id: part.id.clone() };
        let refused = code(device.app::<_, GetRobotPartResponse>("GetRobotPart", read).await);
        assert_eq!(refused, Code::PermissionDenied, "a device is no operator of itself");
        let found = CreateOrganizationRequest { name: "Evil".into() };
        let refused = code(device.app::<_, CreateOrganizationResponse>("CreateOrganization", found).await);
        assert_eq!(refused, Code::PermissionDenied);
    }

    // A secret of a location above works for every part below, and ends when it is deleted.
    let made = CreateLocationSecretRequest { location_id: location.clone() };
    let made: CreateLocationSecretResponse = owner.client.app("CreateLocationSecret", made).await.unwrap();
    let secret = made.auth.unwrap().secrets.remove(0);
    let device = world.login("robot-location-secret", &part.id, &secret.secret).await.unwrap();
    device.call::<_, ReportResponse>(REPORT, report(&part)).await.unwrap();
    assert_eq!(code(device.call::<_, ReportResponse>(REPORT, report(&other)).await), Code::NotFound);
    let delete = DeleteLocationSecretRequest { location_id: location, secret_id: secret.id };
    owner.client.app::<_, DeleteLocationSecretResponse>("DeleteLocationSecret", delete).await.unwrap();
    assert_eq!(code(device.call::<_, ReportResponse>(REPORT, report(&part)).await), Code::Unauthenticated);

    // Two secrets at most; the old one dies at once when it is deleted.
    let device = world.login("robot-secret", &part.id, &part.secret).await.unwrap();
    let add = CreateRobotPartSecretRequest { part_id: part.id.clone() };
    let added: CreateRobotPartSecretResponse = owner.client.app("CreateRobotPartSecret", add.clone()).await.unwrap();
    assert_eq!(added.part.unwrap().secrets.len(), 2);
    let third = owner.client.app::<_, CreateRobotPartSecretResponse>("CreateRobotPartSecret", add).await;
    assert_eq!(code(third), Code::FailedPrecondition);
    let delete = DeleteRobotPartSecretRequest { part_id: part.id.clone(), secret_id: part.secrets[0].id.clone() };
    owner.client.app::<_, DeleteRobotPartSecretResponse>("DeleteRobotPartSecret", delete).await.unwrap();
    assert_eq!(code(device.call::<_, ReportResponse>(REPORT, report(&part)).await), Code::Unauthenticated);

    let credentials = GetPartCredentialsRequest { part_id: part.id.clone() };
    let credentials: GetPartCredentialsResponse =
        owner.client.call("/platform.fleet.v1.AdminService/GetPartCredentials", credentials).await.unwrap();
    let file: serde_json::Value = serde_json::from_str(&credentials.credentials_json).unwrap();
    assert_eq!(file["cloud"]["app_address"], world.server.url);
    let secret = file["cloud"]["secret"].as_str().unwrap();
    world.login("robot-secret", file["cloud"]["id"].as_str().unwrap(), secret).await.unwrap();
    world.end().await;
}

#[tokio::test]
async fn credentials_need_an_address_that_devices_can_reach() {
    let world = World::new().await;
    let owner = world.owner("Acme").await;
    owner.location("North", None).await;
    let part = owner.main_part(&owner.machine("", "arm").await).await;
    // As a server that listens on every address and was not told more.
    let (folder, database) = (world.folder.path().join("data"), world::engine::database(world.folder.path()));
    let options = fleet::wiring::Options { folder, database, ..Default::default() };
    let (_stop, draining) = tokio::sync::watch::channel(false);
    let context = fleet::wiring::context(&options, None, draining).await.unwrap();
    let request = GetPartCredentialsRequest { part_id: part.id };
    let refused = fleet::services::admin::part_credentials(&context, fleet::authn::Caller::local(), request).await;
    assert!(refused.unwrap_err().message().contains("--address"));
    world.end().await;
}

#[tokio::test]
async fn nothing_secret_lies_readable_in_the_files() {
    let world = World::new().await;
    let owner = world.owner("Acme").await;
    let location = owner.location("North", None).await;
    let part = owner.main_part(&owner.machine("", "arm").await).await;
    let made = CreateLocationSecretRequest { location_id: location };
    let made: CreateLocationSecretResponse = owner.client.app("CreateLocationSecret", made).await.unwrap();
    let secrets = [owner.key.clone(), part.secret.clone(), made.auth.unwrap().secrets[0].secret.clone()];
    let folder = world.folder.path().join("data");
    let Some(token) = owner.client.token.clone() else { panic!("the owner has a token") };
    if let Some(url) = world::engine::url(world.folder.path()) {
        let dumped = test_postgres::shared().unwrap().dump(&url);
        assert!(dumped.contains("fleet_state"), "{dumped}");
        std::fs::write(folder.join("dump"), dumped).unwrap();
    }
    // While it runs: what was committed lies in some file now. A server that stops moves it, and ends a moment later.
    let has = |bytes: &[u8], text: &str| bytes.windows(text.len()).any(|window| window == text.as_bytes());
    let mut found = false;
    for entry in std::fs::read_dir(&folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_file() {
            let bytes = std::fs::read(&path).unwrap();
            for secret in secrets.iter().chain([&token]) {
                assert!(!has(&bytes, secret), "a secret lies in {}", path.display());
            }
            found |= has(&bytes, &owner.organization);
        }
    }
    assert!(found, "what is no secret is found in the same way");
    world.end().await;
}

#[tokio::test]
async fn operators_see_no_passwords_and_no_secrets() {
    let world = World::new().await;
    let owner = world.owner("Acme").await;
    owner.location("North", None).await;
    let part = owner.main_part(&owner.machine("", "arm").await).await;
    let text = r#"{"agent":{"additional_networks":{"home":{"psk":"open sesame"}},
        "advanced_settings":{"platform_server_env":{"TOKEN":"abracadabra"}}}}"#;
    owner.client.app::<_, UpdateRobotPartResponse>("UpdateRobotPart", update(&part, text)).await.unwrap();
    owner.client.app::<_, UpdateRobotPartResponse>("UpdateRobotPart", update(&part, "{}")).await.unwrap();
    owner.client.app::<_, UpdateRobotPartResponse>("UpdateRobotPart", update(&part, text)).await.unwrap();
    let operator = world.key(&owner, "operator", "organization", &owner.organization).await;
    let read: GetRobotPartResponse =
        operator.app("GetRobotPart", GetRobotPartRequest { id: part.id.clone() }).await.unwrap();
    let history = GetRobotPartHistoryRequest { id: part.id.clone(), ..Default::default() };
    let history: GetRobotPartHistoryResponse = operator.app("GetRobotPartHistory", history).await.unwrap();
    let shown = format!("{read:?}{history:?}");
    for secret in ["open sesame", "abracadabra", &part.secret] {
        assert!(!shown.contains(secret), "{secret}");
    }
    assert!(read.part.unwrap().secrets.is_empty());
    let read: GetRobotPartResponse =
        owner.client.app("GetRobotPart", GetRobotPartRequest { id: part.id }).await.unwrap();
    assert_eq!(read.config_json, text);
    world.end().await;
}

#[tokio::test]
async fn restart_marks_main_parts_and_the_overview() {
    let world = World::new().await;
    let owner = world.owner("Acme").await;
    owner.location("North", None).await;
    let machine = owner.machine("", "arm").await;
    let part = owner.main_part(&machine).await;
    let second = NewRobotPartRequest { robot_id: machine.clone(), part_name: "camera".into() };
    let second: NewRobotPartResponse = owner.client.app("NewRobotPart", second).await.unwrap();
    let delete = DeleteRobotPartRequest { part_id: part.id.clone() };
    let refused = owner.client.app::<_, DeleteRobotPartResponse>("DeleteRobotPart", delete.clone()).await;
    assert_eq!(code(refused), Code::FailedPrecondition, "the main part goes with its machine only");
    let main = MarkPartAsMainRequest { part_id: second.part_id.clone() };
    owner.client.app::<_, MarkPartAsMainResponse>("MarkPartAsMain", main).await.unwrap();
    assert_eq!(owner.main_part(&machine).await.id, second.part_id);
    owner.client.app::<_, DeleteRobotPartResponse>("DeleteRobotPart", delete).await.unwrap();
    let gone = owner.client.app::<_, GetRobotPartResponse>("GetRobotPart", GetRobotPartRequest { id: part.id }).await;
    assert_eq!(code(gone), Code::NotFound);

    let mark = MarkPartForRestartRequest { part_id: second.part_id.clone() };
    owner.client.app::<_, MarkPartForRestartResponse>("MarkPartForRestart", mark).await.unwrap();
    const STATUS: &str = "/platform.fleet.v1.AdminService/GetPartStatus";
    let ask = GetPartStatusRequest { part_id: second.part_id.clone() };
    let status: GetPartStatusResponse = owner.client.call(STATUS, ask.clone()).await.unwrap();
    assert!(status.restart_marked_at.is_some() && !status.live && status.status.is_none());

    let part = owner.main_part(&machine).await;
    let device = world.login("robot-secret", &part.id, &part.secret).await.unwrap();
    let config =
        api::pb::platform::app::agent::v1::DeviceAgentConfigRequest { id: part.id.clone(), ..Default::default() };
    const CONFIG: &str = "/viam.app.agent.v1.AgentDeviceService/DeviceAgentConfig";
    device.call::<_, api::pb::platform::app::agent::v1::DeviceAgentConfigResponse>(CONFIG, config).await.unwrap();
    let status = DeviceStatus { agent_version: "1.2.3".into(), platform: "linux/arm64".into(), ..Default::default() };
    let report = ReportRequest { part_id: part.id.clone(), status: Some(status), ..Default::default() };
    device.call::<_, ReportResponse>("/platform.fleet.v1.DeviceService/Report", report).await.unwrap();

    let seen: GetPartStatusResponse = owner.client.call(STATUS, ask).await.unwrap();
    assert!(seen.live);
    assert_eq!(seen.status.unwrap().agent_version, "1.2.3");
    let all: ListMachineSummariesResponse =
        owner.client.app("ListMachineSummaries", ListMachineSummariesRequest::default()).await.unwrap();
    let summary = &all.location_summaries[0].machine_summaries[0].part_summaries[0];
    assert_eq!((summary.online_state(), summary.platform()), (OnlineState::Online, "linux/arm64"));

    // What the clock says is what counts: eleven seconds later nobody is there.
    world.server.context.clock.push(11_000);
    let robot: GetRobotResponse = owner.client.app("GetRobot", GetRobotRequest { id: machine.clone() }).await.unwrap();
    let robot = robot.robot.unwrap();
    assert_eq!(robot.online_state(), OnlineState::Offline);
    assert!(robot.seconds_since_online >= 11);
    world.end().await;
}

#[tokio::test]
async fn fragments_have_revisions_and_cannot_contain_themselves() {
    let world = World::new().await;
    let owner = world.owner("Acme").await;
    let organization_id = owner.organization.clone();
    let create =
        CreateFragmentRequest { name: "base".into(), organization_id: organization_id.clone(), ..Default::default() };
    let base: CreateFragmentResponse = owner.client.app("CreateFragment", create.clone()).await.unwrap();
    let base = base.fragment.unwrap();
    assert_eq!((base.visibility(), base.public, &*base.revision), (FragmentVisibility::Private, false, "1"));
    let again = owner.client.app::<_, CreateFragmentResponse>("CreateFragment", create).await;
    assert_eq!(code(again), Code::AlreadyExists);

    let change = |id: &str, json: &str| UpdateFragmentRequest {
        id: id.into(),
        name: "base".into(),
        fragment_config_json: Some(json.into()),
        ..Default::default()
    };
    let changed: UpdateFragmentResponse =
        owner.client.app("UpdateFragment", change(&base.id, r#"{"b": 1, "a": 2}"#)).await.unwrap();
    let changed = changed.fragment.unwrap();
    assert_eq!((&*changed.revision, changed.fragment_config_json()), ("2", r#"{"b": 1, "a": 2}"#));
    let old = GetFragmentRequest { id: base.id.clone(), version: Some("1".into()), ..Default::default() };
    let old: GetFragmentResponse = owner.client.app("GetFragment", old).await.unwrap();
    assert_eq!((old.fragment.unwrap().fragment_config_json(), old.revisions.len()), ("{}", 2));
    let none = GetFragmentRequest { id: base.id.clone(), version: Some("9".into()), ..Default::default() };
    assert_eq!(code(owner.client.app::<_, GetFragmentResponse>("GetFragment", none).await), Code::NotFound);

    let mut stale = change(&base.id, "{}");
    stale.last_known_update = base.last_updated;
    assert_eq!(code(owner.client.app::<_, UpdateFragmentResponse>("UpdateFragment", stale).await), Code::Aborted);
    let mut torn = change(&base.id, "{}");
    (torn.public, torn.visibility) = (Some(true), Some(FragmentVisibility::Private.into()));
    assert_eq!(
        code(owner.client.app::<_, UpdateFragmentResponse>("UpdateFragment", torn).await),
        Code::InvalidArgument
    );

    let circle = change(&base.id, &format!(r#"{{"fragments": ["{}"]}}"#, base.id));
    let refused = owner.client.app::<_, UpdateFragmentResponse>("UpdateFragment", circle).await.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument);
    assert!(refused.message().contains("contain itself"), "{}", refused.message());

    let history = GetFragmentHistoryRequest { id: base.id.clone(), page_limit: Some(1), ..Default::default() };
    let page: GetFragmentHistoryResponse = owner.client.app("GetFragmentHistory", history.clone()).await.unwrap();
    assert_eq!((page.history.len(), &*page.history[0].revision), (1, "2"));
    assert_eq!(page.history[0].old.as_ref().unwrap().fragment_config_json(), "{}");
    let next = GetFragmentHistoryRequest { page_token: Some(page.next_page_token), ..history.clone() };
    let page: GetFragmentHistoryResponse = owner.client.app("GetFragmentHistory", next).await.unwrap();
    assert_eq!((page.history.len(), &*page.history[0].revision, &*page.next_page_token), (1, "1", ""));
    for limit in [-1, 101] {
        let bad = GetFragmentHistoryRequest { page_limit: Some(limit), ..history.clone() };
        let refused = owner.client.app::<_, GetFragmentHistoryResponse>("GetFragmentHistory", bad).await;
        assert_eq!(code(refused), Code::InvalidArgument);
    }

    // Whoever uses it is counted.
    owner.location("North", None).await;
    let part = owner.main_part(&owner.machine("", "arm").await).await;
    let uses = update(&part, &format!(r#"{{"fragments": ["{}"]}}"#, base.id));
    owner.client.app::<_, UpdateRobotPartResponse>("UpdateRobotPart", uses).await.unwrap();
    let list = ListFragmentsRequest { organization_id, show_public: false, ..Default::default() };
    let listed: ListFragmentsResponse = owner.client.app("ListFragments", list).await.unwrap();
    assert_eq!((listed.fragments.len(), listed.fragments[0].robot_part_count), (1, 1));
    world.end().await;
}

#[tokio::test]
async fn whoever_creates_an_organization_owns_it_and_every_change_is_written_down() {
    let world = World::new().await;
    let owner = world.owner("Acme").await;
    let found = CreateOrganizationRequest { name: "Second".into() };
    let made: CreateOrganizationResponse = owner.client.app("CreateOrganization", found).await.unwrap();
    let made = made.organization.unwrap();
    let rename = UpdateOrganizationRequest {
        organization_id: made.id.clone(),
        name: Some("Renamed".into()),
        public_namespace: Some("acme".into()),
        ..Default::default()
    };
    let renamed: UpdateOrganizationResponse = owner.client.app("UpdateOrganization", rename.clone()).await.unwrap();
    assert_eq!(renamed.organization.unwrap().name, "Renamed");
    let again = UpdateOrganizationRequest { public_namespace: Some("other".into()), ..rename };
    let refused = owner.client.app::<_, UpdateOrganizationResponse>("UpdateOrganization", again).await;
    assert_eq!(code(refused), Code::FailedPrecondition);

    const EVENTS: &str = "/platform.fleet.v1.AdminService/ListAuditEvents";
    let mut ask = ListAuditEventsRequest { organization_id: made.id.clone(), limit: 1, page_token: String::new() };
    let mut operations = Vec::new();
    loop {
        let page: ListAuditEventsResponse = owner.client.call(EVENTS, ask.clone()).await.unwrap();
        operations.extend(page.events.into_iter().map(|event| (event.operation, event.actor)));
        if page.next_page_token.is_empty() {
            break;
        }
        ask.page_token = page.next_page_token;
    }
    let by = format!("api-key:{}", owner.key_id);
    assert_eq!(operations, [("UpdateOrganization".into(), by.clone()), ("CreateOrganization".into(), by)]);
    world.end().await;
}
