//! Good requests, each as gRPC and as JSON: the answers say the same.

use api::pb::platform::{app::v1::*, common::v1::LogEntry, fleet::v1::*};
use bytes::Bytes;
use fleet::{contract, operations::OPERATIONS, presence::LIVE_WITHIN};
use prost::Message;
use prost_reflect::{DynamicMessage, MethodDescriptor};
use serde_json::Value;

use super::{
    json::post,
    requests::Contract,
    world::{
        Client, Owner, World,
        things::{APPLICATION, Ours, ours},
    },
};

/// What a device reads.
const READ_BY_DEVICES: [&str; 4] = ["Config", "DeviceAgentConfig", "LocationAuth", "NeedsRestart"];
/// What is read here and has nothing to say.
const SILENT: [&str; 1] = ["GetOrganizationNamespaceAvailability"];

fn name(path: &str) -> &str {
    path.rsplit('/').next().unwrap()
}

/// Operations of one message and one answer, those that only read or the others.
fn unary(reads: bool) -> Vec<(&'static str, MethodDescriptor)> {
    let all = OPERATIONS.iter().map(|row| (row.path, contract::method(row.path).unwrap()));
    let unary = all.filter(|(_, method)| !method.is_client_streaming() && !method.is_server_streaming());
    let read = |path: &str| {
        ["Get", "List", "Check"].iter().any(|word| name(path).starts_with(word))
            || READ_BY_DEVICES.contains(&name(path))
    };
    unary.filter(|(path, _)| read(path) == reads).collect()
}

/// The answer to the same request as JSON.
async fn by_json(
    world: &World,
    client: &Client,
    path: &str,
    method: &MethodDescriptor,
    request: Bytes,
) -> DynamicMessage {
    let request = DynamicMessage::decode(method.input(), request).unwrap();
    let answer = post(world, client, path, &serde_json::to_value(&request).unwrap()).await;
    assert_eq!(answer.status, 200, "{path}: {}", String::from_utf8_lossy(&answer.body));
    DynamicMessage::deserialize(method.output(), answer.json()).unwrap_or_else(|odd| panic!("{path}: {odd}"))
}

/// Something of everything that can be read.
async fn fill(owner: &Owner, ours: &Ours) {
    let words = [("words".to_owned(), prost_types::Value::from("Süd 日本"))];
    let data = Some(prost_types::Struct { fields: words.into() });
    let (app, client) = ("/platform.app.v1.AppService", &owner.client);
    let does = async |operation: &str, request: Vec<u8>| {
        client.raw(&format!("{app}/{operation}"), request.into()).await.unwrap_or_else(|no| panic!("{operation}: {no}"))
    };
    let organization_id = ours.organization.clone();
    let request = UpdateOrganizationMetadataRequest { organization_id, data: data.clone() };
    does("UpdateOrganizationMetadata", request.encode_to_vec()).await;
    let request = UpdateLocationMetadataRequest { location_id: ours.location.clone(), data: data.clone() };
    does("UpdateLocationMetadata", request.encode_to_vec()).await;
    let request = UpdateRobotMetadataRequest { id: ours.machine.clone(), data: data.clone() };
    does("UpdateRobotMetadata", request.encode_to_vec()).await;
    let request = UpdateRobotPartMetadataRequest { id: ours.part.clone(), data };
    does("UpdateRobotPartMetadata", request.encode_to_vec()).await;
    let config = format!(r#"{{"fragments":["{}"],"n":1.5,"none":null,"log":[{{"pattern":"*"}}]}}"#, ours.fragment);
    let request = UpdateRobotPartRequest {
        id: ours.part.clone(),
        name: "arm-main".into(),
        robot_config_json: Some(config),
        ..UpdateRobotPartRequest::default()
    };
    does("UpdateRobotPart", request.encode_to_vec()).await;
    does("CreateKey", owner.key_request("operator", "robot", &ours.machine).encode_to_vec()).await;
    let machine_picker = MachinePickerCustomizations { heading: Some("Süd".into()), subheading: None };
    let dashboard = App {
        name: APPLICATION.into(),
        r#type: "multi_machine".into(),
        entrypoint: "index.html".into(),
        customizations: Some(AppCustomizations { machine_picker: Some(machine_picker) }),
        ..App::default()
    };
    let request =
        UpdateModuleRequest { module_id: ours.module.clone(), apps: vec![dashboard], ..UpdateModuleRequest::default() };
    does("UpdateModule", request.encode_to_vec()).await;
    let entry = LogEntry { level: "info".into(), message: "Süd 日本".into(), ..LogEntry::default() };
    let logs =
        UploadLogsRequest { part_id: ours.part.clone(), spool_id: "filled".into(), batch_number: 1, logs: vec![entry] };
    client.call::<_, UploadLogsResponse>("/platform.fleet.v1.DeviceService/UploadLogs", logs).await.unwrap();
}

/// Its device was heard just now: answers tell whether it is there, and for how long it was not.
fn stays_online(world: &World, ours: &Ours) {
    let context = &world.server.context;
    context.presence.touch(&ours.part, context.clock.now() + LIVE_WITHIN);
}

#[tokio::test]
async fn what_is_read_is_the_same_in_both_forms_under_both_names() {
    let world = World::new().await;
    let owner = world.owner("Acme").await;
    let ours = ours(&world, &owner).await;
    fill(&owner, &ours).await;
    let contract = Contract::read();
    let mut silent = Vec::new();
    let operations = unary(true);
    for (path, method) in &operations {
        stays_online(&world, &ours);
        let told = contract.call(&owner.client, path, &ours).await.unwrap_or_else(|no| panic!("{path}: {no}"));
        if told.is_empty() {
            silent.push(name(path));
        }
        let told = DynamicMessage::decode(method.output(), told).unwrap();
        let request = contract.request(path, &ours);
        for path in [(*path).to_owned(), path.replacen("/platform.", "/viam.", 1)] {
            let twin = by_json(&world, &owner.client, &path, method, request.clone()).await;
            assert!(twin == told, "{path}: as JSON {twin}, by gRPC {told}");
        }
    }
    assert_eq!(silent, SILENT);
    assert!(operations.len() >= 40, "{}", operations.len());
    world.end().await;
}

/// A newer client or device says more than this server knows (contract, "Unknown fields must be tolerated").
#[tokio::test]
async fn what_a_newer_version_says_beside_it_changes_no_answer() {
    // Fields 1000, a number, and 1001, a text, in the wire format.
    const UNKNOWN: &[u8] = b"\xc0\x3e\x07\xca\x3e\x05newer";
    let world = World::new().await;
    let owner = world.owner("Acme").await;
    let ours = ours(&world, &owner).await;
    fill(&owner, &ours).await;
    let contract = Contract::read();
    for (path, method) in unary(true) {
        stays_online(&world, &ours);
        let request = contract.request(path, &ours);
        let newer = Bytes::from([&request[..], UNKNOWN].concat());
        let [told, newer] = [request, newer].map(|request| owner.client.raw(path, request));
        let decoded = |told| DynamicMessage::decode(method.output(), told).unwrap();
        let (told, newer) = (decoded(told.await.unwrap()), decoded(newer.await.unwrap()));
        assert!(newer == told, "{path}: {newer} in place of {told}");
    }
    // What a device tells.
    let entry = LogEntry { level: "info".into(), message: "newer".into(), ..LogEntry::default() };
    let log = LogRequest { id: ours.part.clone(), logs: vec![entry.clone()] }.encode_to_vec();
    let part_id = ours.part.clone();
    let spooled = UploadLogsRequest { part_id, spool_id: "newer".into(), batch_number: 1, logs: vec![entry] };
    let report = contract.request("/platform.fleet.v1.DeviceService/Report", &ours);
    for (path, request) in [
        ("/platform.app.v1.RobotService/Log", log),
        ("/platform.fleet.v1.DeviceService/UploadLogs", spooled.encode_to_vec()),
        ("/platform.fleet.v1.DeviceService/Report", report.to_vec()),
    ] {
        let newer = [&request[..], UNKNOWN].concat();
        owner.client.raw(path, newer.into()).await.unwrap_or_else(|no| panic!("{path}: {no}"));
    }
    world.end().await;
}

/// Which fields there are, and of which kind; ids, names and moments differ.
fn shape(told: &Value) -> Value {
    match told {
        Value::Object(fields) => fields.iter().map(|(name, value)| (name.clone(), shape(value))).collect(),
        Value::Array(values) => values.iter().map(shape).collect(),
        Value::String(_) => "".into(),
        Value::Number(_) => 0.into(),
        Value::Bool(_) | Value::Null => told.clone(),
    }
}

/// What takes something away comes after what needs it, and what holds other things last.
fn order(path: &str) -> usize {
    let last = ["DeleteOrganizationMember", "DeleteRobot", "DeleteLocation", "DeleteOrganization"];
    match last.iter().position(|last| *last == name(path)) {
        Some(place) => 2 + place,
        None => usize::from(name(path).starts_with("Delete") || name(path).starts_with("Remove")),
    }
}

#[tokio::test]
async fn what_is_changed_is_answered_alike_in_both_forms() {
    let world = World::new().await;
    let mut stages = Vec::new();
    for name in ["Acme", "Twin", "Acme", "Twin"] {
        let owner = world.owner(name).await;
        let ours = ours(&world, &owner).await;
        stages.push((owner, ours));
    }
    let contract = Contract::read();
    let mut operations = unary(false);
    operations.retain(|(path, _)| name(path) != "Authenticate");
    operations.sort_by_key(|(path, _)| order(path));
    for (path, method) in &operations {
        // What has to be empty is deleted where nothing was made.
        let [(owner, ours), (twin, theirs)] = &stages[if order(path) > 2 { 2..4 } else { 0..2 }] else {
            unreachable!()
        };
        let told = contract.call(&owner.client, path, ours).await.unwrap_or_else(|no| panic!("{path}: {no}"));
        let told = DynamicMessage::decode(method.output(), told).unwrap();
        let other = path.replacen("/platform.", "/viam.", 1);
        let twins = by_json(&world, &twin.client, &other, method, contract.request(path, theirs)).await;
        let [told, twins] = [told, twins].map(|message| shape(&serde_json::to_value(&message).unwrap()));
        assert_eq!(twins, told, "{path}");
    }
    assert!(operations.len() >= 45, "{}", operations.len());
    world.end().await;
}
