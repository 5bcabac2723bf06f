//! Operations as JSON over plain HTTP, as somebody with curl calls them.

use api::pb::platform::app::v1::{UpdateRobotPartRequest, UpdateRobotPartResponse};
use fleet::operations::OPERATIONS;
use prost::Message;
use serde_json::{Value, json};
use tonic::Code;

use super::world::{
    Client, Owner, World, code,
    http::{Answer, ask},
};

pub(super) async fn post(world: &World, client: &Client, path: &str, body: &Value) -> Answer {
    let token = client.token.as_ref().map(|token| format!("Bearer {token}")).unwrap_or_default();
    let mut headers = vec![("Content-Type", "application/json")];
    if client.token.is_some() {
        headers.push(("Authorization", &*token));
    }
    ask(world, "POST", path, &headers, body.to_string().as_bytes()).await
}

async fn app(world: &World, owner: &Owner, operation: &str, body: Value) -> Value {
    let answer = post(world, &owner.client, &format!("/platform.app.v1.AppService/{operation}"), &body).await;
    assert_eq!(answer.status, 200, "{operation}: {}", String::from_utf8_lossy(&answer.body));
    answer.json()
}

/// "NotFound" → "not_found", as the protocol names codes.
fn word(code: Code) -> String {
    let mut word = String::new();
    for letter in format!("{code:?}").chars() {
        if letter.is_uppercase() && !word.is_empty() {
            word.push('_');
        }
        word.extend(letter.to_lowercase());
    }
    word.replace("cancelled", "canceled")
}

#[tokio::test]
async fn every_unary_operation_answers_as_it_does_over_grpc_under_both_names() {
    let world = World::new().await;
    let owner = world.owner("Acme").await;
    let nobody = world.nobody().await;
    let (mut same, mut streams) = (0, 0);
    for operation in OPERATIONS {
        let path = operation.path;
        let method = fleet::contract::method(path).unwrap();
        if method.is_client_streaming() || method.is_server_streaming() {
            let answer = post(&world, &owner.client, path, &json!({})).await;
            assert_eq!((answer.status, &answer.json()["code"]), (501, &json!("unimplemented")), "{path}");
            streams += 1;
            continue;
        }
        let expected = code(owner.client.raw(path, bytes::Bytes::new()).await);
        for path in [path.to_owned(), path.replacen("/platform.", "/viam.", 1)] {
            let answer = post(&world, &owner.client, &path, &json!({})).await;
            let told = answer.json();
            match expected {
                Code::Ok => assert_eq!(answer.status, 200, "{path}: {told}"),
                refused => assert_eq!(told["code"], word(refused), "{path}: {told}"),
            }
            if !path.ends_with("/Authenticate") {
                // Nonsense in it is not looked at before that.
                let headers = [("Content-Type", "application/json")];
                let unread: &[u8] = if path.contains("/GetApp") { b"{}" } else { b"{nonsense" };
                let answer = ask(&world, "POST", &path, &headers, unread).await;
                assert_eq!((answer.status, &answer.json()["code"]), (401, &json!("unauthenticated")), "{path}");
            }
            same += 1;
        }
    }
    assert!(same >= 2 * 85 && streams >= 2, "{same} calls, {streams} streams");
    let answer = post(&world, &nobody, "/platform.app.v1.AppService/NoSuchThing", &json!({})).await;
    assert_eq!(answer.status, 401, "whether there is such a thing is not told");
    let answer = post(&world, &owner.client, "/platform.app.v1.AppService/NoSuchThing", &json!({})).await;
    assert_eq!((answer.status, &answer.json()["code"]), (501, &json!("unimplemented")));
    world.end().await;
}

#[tokio::test]
async fn a_day_with_curl() {
    let world = World::new().await;
    let owner = world.owner("Acme").await;
    let login = json!({"entity": owner.key_id, "credentials": {"type": "api-key", "payload": owner.key}});
    let answer = post(&world, &world.nobody().await, "/proto.rpc.v1.AuthService/Authenticate", &login).await;
    let token = answer.json()["accessToken"].as_str().unwrap().to_owned();
    let owner = Owner { client: Client { token: Some(token), ..owner.client }, ..owner };

    let organization = owner.organization.clone();
    let location =
        app(&world, &owner, "CreateLocation", json!({"organizationId": organization, "name": "Süd 日本"})).await;
    let location = &location["location"];
    assert_eq!(location["name"], "Süd 日本");
    assert!(location["createdOn"].as_str().unwrap().ends_with('Z'), "a timestamp is RFC 3339: {location}");
    // Names as in the contract are understood too.
    let machine = app(&world, &owner, "NewRobot", json!({"name": "arm", "location": location["id"]})).await;
    let parts = app(&world, &owner, "GetRobotParts", json!({"robot_id": machine["id"]})).await;
    let part = &parts["parts"][0];
    assert_eq!(part["mainPart"], true);
    let config = json!({"components": [{"name": "camera", "fps": 30, "on": true, "note": null}]});
    let update = json!({"id": part["id"], "name": part["name"], "robotConfig": config});
    let updated = app(&world, &owner, "UpdateRobotPart", update).await;
    let told = app(&world, &owner, "GetRobotPart", json!({"id": part["id"]})).await;
    // A Struct knows doubles only.
    assert_eq!(told["part"]["robotConfig"]["components"][0]["fps"].as_f64(), Some(30.0));
    assert_eq!(told["part"]["robotConfig"]["components"][0]["note"], Value::Null);
    // What was read is good for the optimistic lock, once.
    let stale = json!({"id": part["id"], "name": "arm-main", "robotConfig": {}, "lastKnownUpdate": updated["part"]["lastUpdated"]});
    app(&world, &owner, "UpdateRobotPart", stale.clone()).await;
    let refused = post(&world, &owner.client, "/viam.app.v1.AppService/UpdateRobotPart", &stale).await;
    assert_eq!((refused.status, &refused.json()["code"]), (409, &json!("aborted")));

    // Enums are names, in both directions; numbers are understood.
    let fragment = json!({"organizationId": organization, "name": "base", "visibility": "FRAGMENT_VISIBILITY_PRIVATE"});
    let fragment = app(&world, &owner, "CreateFragment", fragment).await;
    assert_eq!(fragment["fragment"]["visibility"], "FRAGMENT_VISIBILITY_PRIVATE");
    let update = json!({"id": fragment["fragment"]["id"], "name": "base", "visibility": 3});
    let updated = app(&world, &owner, "UpdateFragment", update).await;
    assert_eq!(updated["fragment"]["visibility"], "FRAGMENT_VISIBILITY_PUBLIC_UNLISTED");

    // 64-bit numbers are strings, and taken as numbers too.
    for number in [json!("1"), json!(2)] {
        let logs = json!({"partId": part["id"], "spoolId": "s", "batchNumber": number, "logs": [{"message": "hi", "level": "info"}]});
        let answer = post(&world, &owner.client, "/platform.fleet.v1.DeviceService/UploadLogs", &logs).await;
        assert_eq!(answer.status, 200, "{}", answer.json());
    }
    let logs = app(&world, &owner, "GetRobotPartLogs", json!({"id": part["id"]})).await;
    assert_eq!(logs["logs"].as_array().unwrap().len(), 2);

    // The same in protobuf's own form.
    let token = format!("Bearer {}", owner.client.token.clone().unwrap());
    let headers =
        [("Content-Type", "application/proto"), ("Authorization", &*token), ("Connect-Protocol-Version", "1")];
    let answer = ask(&world, "POST", "/platform.app.v1.AppService/ListOrganizations", &headers, b"").await;
    assert_eq!((answer.status, answer.header("content-type")), (200, Some("application/proto")));
    let list = api::pb::platform::app::v1::ListOrganizationsResponse::decode(&*answer.body).unwrap();
    assert_eq!(list.organizations[0].name, "Acme");
    world.end().await;
}

#[tokio::test]
async fn a_refusal_is_json_with_its_details_readable() {
    let world = World::new().await;
    let owner = world.owner("Acme").await;
    let path = "/platform.app.v1.AppService/GetRobot";
    let answer = post(&world, &owner.client, path, &json!({"id": "nonsense"})).await;
    let told = answer.json();
    assert_eq!((answer.status, &told["code"]), (400, &json!("invalid_argument")), "{told}");
    assert!(told["message"].as_str().unwrap().contains("\"nonsense\""), "{told}");
    let detail = |kind: &str| {
        let details = told["details"].as_array().unwrap();
        details.iter().find(|detail| detail["type"] == format!("google.rpc.{kind}")).cloned().unwrap_or_default()
    };
    assert_eq!(detail("BadRequest")["debug"]["fieldViolations"][0]["field"], "id", "{told}");
    assert_eq!(detail("ErrorInfo")["debug"]["reason"], "INVALID_FIELD", "{told}");
    assert!(!detail("BadRequest")["value"].as_str().unwrap().contains('='), "without padding");

    let missing = post(&world, &owner.client, path, &json!({"id": "00000000-0000-4000-8000-000000000000"})).await;
    assert_eq!((missing.status, &missing.json()["code"]), (404, &json!("not_found")));
    world.end().await;
}

#[tokio::test]
async fn what_is_no_request_is_refused_without_repeating_it() {
    let world = World::new().await;
    let owner = world.owner("Acme").await;
    let token = format!("Bearer {}", owner.client.token.clone().unwrap());
    let path = "/platform.app.v1.AppService/UpdateRobotPart";
    let plain = [("Content-Type", "application/json"), ("Authorization", &*token)];
    let planted = "planted-secret-4711";
    let deep = format!("{{\"robotConfig\":{}1{}}}", "{\"a\":".repeat(5000), "}".repeat(5000));
    let broken = [
        format!("{{\"id\": \"{planted}\""),
        format!("[\"{planted}\"]"),
        format!("{{\"robotConfig\": \"{planted}\"}}"),
        format!("{{\"lastKnownUpdate\": \"{planted}\"}}"),
        format!("{{}}{planted}"),
        deep,
    ];
    for body in broken {
        let answer = ask(&world, "POST", path, &plain, body.as_bytes()).await;
        let told = answer.json();
        assert_eq!((answer.status, &told["code"]), (400, &json!("invalid_argument")), "{told}");
        assert!(told["message"].as_str().unwrap().contains("line 1 column"), "{told}");
        assert!(!told.to_string().contains(planted), "{told}");
    }
    let answer = ask(&world, "POST", path, &plain, &[0xff, 0xfe, 0x00]).await;
    assert_eq!(answer.status, 400);
    let long = format!("{{\"name\": \"{}\"}}", "x".repeat(5 << 20));
    let answer = ask(&world, "POST", path, &plain, long.as_bytes()).await;
    assert_eq!((answer.status, &answer.json()["code"]), (400, &json!("invalid_argument")));

    let with = |name: &'static str, value: &'static str| [plain[0], plain[1], (name, value)];
    let table = [
        (with("Connect-Protocol-Version", "2"), 400, "invalid_argument"),
        (with("Connect-Timeout-Ms", "soon"), 400, "invalid_argument"),
        (with("Content-Encoding", "gzip"), 501, "unimplemented"),
        (with("Connect-Timeout-Ms", "60000"), 400, "invalid_argument"),
    ];
    for (headers, status, code) in table {
        let answer = ask(&world, "POST", path, &headers, b"{}").await;
        assert_eq!((answer.status, &answer.json()["code"]), (status, &json!(code)), "{headers:?}");
    }
    // A stream's error is in its last frame, which is marked by a 2.
    let stream = [("Content-Type", "application/connect+json"), ("Authorization", &*token)];
    let answer = ask(&world, "POST", "/viam.app.v1.AppService/TailRobotPartLogs", &stream, b"").await;
    let told: Value = serde_json::from_slice(&answer.body[5..]).unwrap();
    assert_eq!((answer.status, answer.body[0], &told["error"]["code"]), (200, 2, &json!("unimplemented")));
    let answer = ask(&world, "POST", "/viam.app.v1.AppService/TailRobotPartLogs", &stream[..1], b"").await;
    let told: Value = serde_json::from_slice(&answer.body[5..]).unwrap();
    assert_eq!(told["error"]["code"], json!("unauthenticated"), "who it is comes first");
    assert!(answer.header("x-request-id").is_some());
    world.end().await;
}

/// Each value takes hundreds of bytes on its way: two bytes of a request must not become that many.
#[tokio::test]
async fn a_message_of_a_million_values_is_refused_before_it_takes_memory() {
    let world = World::new().await;
    let owner = world.owner("Acme").await;
    let location = owner.location("North", None).await;
    let part = owner.main_part(&owner.machine(&location, "arm").await).await.id;
    let path = "/platform.app.v1.AppService/UpdateRobotPart";
    let config = |values: usize| json!({"id": part, "name": "arm", "robotConfig": {"a": vec![0; values]}});
    let answer = post(&world, &owner.client, path, &config(1_000_000)).await;
    let told = answer.json();
    assert_eq!((answer.status, &told["code"]), (400, &json!("invalid_argument")), "{told}");
    assert!(told["message"].as_str().unwrap().contains("more than 50000 values"), "{told}");
    app(&world, &owner, "UpdateRobotPart", config(40_000)).await;
    let read = app(&world, &owner, "GetRobotPart", json!({"id": part})).await;
    assert_eq!(read["part"]["robotConfig"]["a"].as_array().unwrap().len(), 40_000);
    // What came another way is told where it does not fit.
    let list = vec![0.0; 60_000].into_iter().map(prost_types::Value::from).collect::<Vec<_>>();
    let fields = [("a".to_owned(), prost_types::Value::from(list))].into();
    let request = UpdateRobotPartRequest {
        id: part.clone(),
        name: "arm".into(),
        robot_config: Some(prost_types::Struct { fields }),
        ..Default::default()
    };
    owner.client.app::<_, UpdateRobotPartResponse>("UpdateRobotPart", request).await.unwrap();
    let answer = post(&world, &owner.client, "/platform.app.v1.AppService/GetRobotPart", &json!({"id": part})).await;
    assert_eq!((answer.status, &answer.json()["code"]), (400, &json!("out_of_range")));
    world.end().await;
}

#[tokio::test]
async fn a_call_is_found_again_by_its_id() {
    let world = World::new().await;
    let owner = world.owner("Acme").await;
    let token = format!("Bearer {}", owner.client.token.clone().unwrap());
    let path = "/platform.app.v1.AppService/ListOrganizations";
    let given =
        |id: &'static str| [("Content-Type", "application/json"), ("Authorization", &*token), ("X-Request-Id", id)];
    let answer = ask(&world, "POST", path, &given("mine-0815"), b"{}").await;
    assert_eq!(answer.header("x-request-id"), Some("mine-0815"));
    let mut ids = std::collections::BTreeSet::new();
    for nonsense in ["", "with blank", "über", "x\"y"] {
        let answer = ask(&world, "POST", path, &given(nonsense), b"{}").await;
        let id = answer.header("x-request-id").unwrap().to_owned();
        assert_ne!(id, nonsense);
        assert!(ids.insert(id), "each has its own");
    }
    // Also where a call is refused, and over gRPC-Web.
    let web = [
        ("Content-Type", "application/grpc-web+proto"),
        ("X-Request-Id", "web-1"),
        ("Origin", "http://elsewhere.test"),
    ];
    let answer = ask(&world, "POST", path, &web, &[0; 5]).await;
    assert_eq!(answer.header("x-request-id"), Some("web-1"));
    assert!(answer.header("access-control-expose-headers").unwrap().contains("x-request-id"));
    let json = [("Content-Type", "application/json"), ("Origin", "http://elsewhere.test")];
    let answer = ask(&world, "POST", path, &json, b"{}").await;
    assert_eq!((answer.status, answer.header("access-control-allow-origin")), (401, Some("*")));
    world.end().await;
}

/// A page of another origin is run by people who are somewhere else at the same time: in a network that it cannot reach
/// itself, or on the server's own machine.
#[tokio::test]
async fn pages_of_other_origins_are_shown_what_programs_ask_for_and_nothing_else() {
    let world = World::new().await;
    let table = [
        ("/platform.app.v1.AppService/GetRobot", true),
        ("/proto.rpc.v1.AuthService/Authenticate", true),
        ("/packages/v1/acme/camera/1.0.0/any", true),
        ("/releases/root.1.json", true),
        ("/healthz", true),
        ("/metrics", false),
        ("/install.sh", false),
        ("/install/credentials?part=x", false),
        ("/invite/abc", false),
        ("/sign-in", false),
        ("/sign-in/token", false),
        ("/nothing", false),
    ];
    let here = [("Origin", "http://elsewhere.test"), ("Content-Type", "application/json")];
    let asks = [here[0], ("Access-Control-Request-Method", "POST")];
    for (path, shown) in table {
        for (method, headers) in [("GET", &here), ("POST", &here), ("OPTIONS", &asks)] {
            let answer = ask(&world, method, path, headers, b"{}").await;
            let allowed = answer.header("access-control-allow-origin");
            assert_eq!(allowed, shown.then_some("*"), "{method} {path}: {}", answer.head);
        }
    }
    world.end().await;
}
