//! How much one caller gets, and that others do not notice.

use api::pb::platform::app::v1::*;
use fleet::edge::throttle::Limits;
use serde_json::json;
use tonic::{Code, Status};
use tonic_types::StatusExt;

use super::world::{Client, Owner, PATIENCE, World, code, http::ask, metric};

/// Several times what a burst lets through.
const AT_ONCE: usize = 100;

async fn list(client: &Client) -> Result<ListOrganizationsResponse, Status> {
    client.app("ListOrganizations", ListOrganizationsRequest {}).await
}

/// Many calls at once, on a machine however slow; those that were refused.
async fn hurry<F>(call: impl Fn() -> F) -> Vec<Status>
where
    F: Future<Output = Option<Status>> + Send + 'static,
{
    let mut calls = tokio::task::JoinSet::new();
    (0..AT_ONCE).for_each(|_| drop(calls.spawn(call())));
    calls.join_all().await.into_iter().flatten().collect()
}

#[tokio::test]
async fn a_key_that_hurries_is_told_when_to_come_again_and_others_go_on() {
    // A burst of 5, then one in a second.
    let world = World::with(|options| options.limits = Limits { calls_per_key: 1, ..Limits::default() }).await;
    let owner = world.owner("Acme").await;
    let other = world.owner("Other").await;
    let hurried = || {
        let client = owner.client.clone();
        hurry(move || {
            let client = client.clone();
            async move { list(&client).await.err() }
        })
    };
    let refused = hurried().await;
    assert!((1..=AT_ONCE - 5).contains(&refused.len()), "{} of {AT_ONCE} were refused", refused.len());
    assert!(refused.iter().all(|status| status.code() == Code::ResourceExhausted));
    let status = refused.into_iter().next().unwrap();
    let wait = status.get_details_retry_info().unwrap().retry_delay.unwrap();
    assert!(wait.as_secs_f64() > 0.0 && wait.as_secs_f64() <= 1.0, "{wait:?}");
    let info = status.get_details_error_info().unwrap();
    assert_eq!((&*info.reason, &*info.metadata["limit"]), ("LIMIT_REACHED", "calls_per_key"));
    assert_eq!(code(list(&other.client).await), Code::Ok, "another key is not concerned");
    // As JSON, for who reads statuses of HTTP.
    let token = format!("Bearer {}", owner.client.token.clone().unwrap());
    let headers = [("Content-Type", "application/json"), ("Authorization", &*token)];
    // Several at once: one that comes alone finds room again, because those before it were told late.
    let asked = || ask(&world, "POST", "/viam.app.v1.AppService/ListOrganizations", &headers, b"{}");
    let refused = loop {
        let (first, second, third) = tokio::join!(asked(), asked(), asked());
        if let Some(refused) = [first, second, third].into_iter().find(|answer| answer.status != 200) {
            break refused;
        }
    };
    assert_eq!((refused.status, refused.header("retry-after")), (429, Some("1")));
    assert_eq!(refused.json()["code"], json!("resource_exhausted"));
    assert!(metric(&world.server, "fleet_refused_total{limit=\"calls_per_key\"}") > 0);
    world.end().await;
}

#[tokio::test]
async fn what_devices_ask_for_costs_little() {
    let world = World::with(|options| options.limits = Limits { calls_per_key: 1, ..Limits::default() }).await;
    let owner = world.owner("Acme").await;
    let location = owner.location("North", None).await;
    let machine = owner.machine(&location, "arm").await;
    let part = owner.main_part(&machine).await;
    let device = world.login("robot-secret", &part.id, &part.secret).await.unwrap();
    for call in 0..40 {
        let request = NeedsRestartRequest { id: part.id.clone() };
        let answer =
            device.call::<_, NeedsRestartResponse>("/platform.app.v1.RobotService/NeedsRestart", request).await;
        assert_eq!(code(answer), Code::Ok, "call {call}");
    }
    // It does not go on without end: so many take ten times what a burst lets through.
    let hurried = || {
        let (device, part) = (device.clone(), part.id.clone());
        hurry(move || {
            let (device, id) = (device.clone(), part.clone());
            async move {
                let path = "/platform.app.v1.RobotService/NeedsRestart";
                device.call::<_, NeedsRestartResponse>(path, NeedsRestartRequest { id }).await.err()
            }
        })
    };
    let (a, b, c, d, e) = tokio::join!(hurried(), hurried(), hurried(), hurried(), hurried());
    let refused = [a, b, c, d, e].concat();
    assert!(
        !refused.is_empty() && refused.iter().all(|status| status.code() == Code::ResourceExhausted),
        "{refused:?}"
    );
    world.end().await;
}

#[tokio::test]
async fn a_key_whose_calls_are_wrong_again_and_again_is_refused_like_one_that_hurries() {
    // 50 at once and 10 a second, of which a wrong one takes 20.
    let world = World::with(|options| options.limits = Limits { calls_per_key: 10, ..Limits::default() }).await;
    let (owner, other) = (world.owner("Acme").await, world.owner("Other").await);
    let mut wrong = 0;
    let refused = loop {
        let request = GetRobotPartRequest { id: "x".into() };
        let status = owner.client.app::<_, GetRobotPartResponse>("GetRobotPart", request).await.unwrap_err();
        if status.code() == Code::ResourceExhausted {
            break status;
        }
        assert_eq!(status.code(), Code::InvalidArgument);
        wrong += 1;
        assert!(wrong < AT_ONCE, "nobody stops it");
    };
    assert!(wrong > 0);
    assert!(refused.message().contains("one that is wrong counts as 20"), "{}", refused.message());
    assert_eq!(code(list(&other.client).await), Code::Ok, "another key is not concerned");
    world.end().await;
}

async fn tail(owner: &Owner, part: &str) -> Result<tonic::Streaming<bytes::Bytes>, Status> {
    let request = TailRobotPartLogsRequest { id: part.into(), errors_only: true, ..Default::default() };
    owner.client.try_stream("/platform.app.v1.AppService/TailRobotPartLogs", request).await
}

#[tokio::test]
async fn a_key_has_so_many_streams_open_and_a_closed_one_makes_room() {
    let world = World::with(|options| options.limits = Limits { streams_per_key: 3, ..Limits::default() }).await;
    let owner = world.owner("Acme").await;
    let other = world.owner("Other").await;
    let location = owner.location("North", None).await;
    let part = owner.main_part(&owner.machine(&location, "arm").await).await.id;
    let mut open = Vec::new();
    for _ in 0..3 {
        open.push(tail(&owner, &part).await.unwrap());
    }
    let before = late(&world);
    let refused = tail(&owner, &part).await.unwrap_err();
    assert_eq!(late(&world), before + 1);
    assert_eq!(refused.code(), Code::ResourceExhausted);
    assert_eq!(refused.get_details_error_info().unwrap().metadata["limit"], "streams_per_key");
    assert!(refused.get_details_retry_info().is_some());
    assert_eq!(metric(&world.server, "fleet_streams_open"), 3);
    // A stream that is refused for another reason holds no place.
    for _ in 0..5 {
        assert_eq!(code(tail(&other, &part).await), Code::NotFound);
    }
    drop(open.pop());
    let again = async {
        loop {
            if let Ok(stream) = tail(&owner, &part).await {
                return stream;
            }
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, again).await.expect("there is room again");
    world.end().await;
}

/// What goes on and needs no key: whether the server is well.
async fn watch(client: &Client) -> Result<tonic::Streaming<bytes::Bytes>, Status> {
    client.try_stream("/grpc.health.v1.Health/Watch", ListOrganizationsRequest {}).await
}

fn is_told(status: &Status, limit: &str) {
    assert_eq!(status.code(), Code::ResourceExhausted, "{status:?}");
    let info = status.get_details_error_info().unwrap();
    assert_eq!((&*info.reason, &*info.metadata["limit"]), ("LIMIT_REACHED", limit));
    let wait = status.get_details_retry_info().unwrap().retry_delay.unwrap();
    assert!(!wait.is_zero(), "{wait:?}");
}

#[tokio::test]
async fn an_address_without_a_key_that_hurries_is_told_when_to_come_again_and_keys_from_there_go_on() {
    let limits = Limits { open_calls_per_address: 1, ..Limits::default() };
    let world = World::with(|options| options.limits = limits).await;
    let owner = world.owner("Acme").await;
    let nobody = world.nobody().await;
    let refused = hurry(|| {
        let nobody = nobody.clone();
        async move { watch(&nobody).await.err() }
    });
    let refused = refused.await;
    assert!((1..=AT_ONCE - 5).contains(&refused.len()), "{} of {AT_ONCE} were refused", refused.len());
    refused.iter().for_each(|status| is_told(status, "open_calls_per_address"));
    for _ in 0..AT_ONCE {
        assert_eq!(code(list(&owner.client).await), Code::Ok, "who shows a key is not of that address");
    }
    world.end().await;
}

#[tokio::test]
async fn an_address_without_a_key_has_so_many_streams_open_and_keys_from_there_have_their_own() {
    let world = World::with(|options| options.limits = Limits { streams_per_key: 2, ..Limits::default() }).await;
    let owner = world.owner("Acme").await;
    let nobody = world.nobody().await;
    // Whichever connection they come on.
    let (first, second) = (watch(&nobody).await.unwrap(), watch(&world.nobody().await).await.unwrap());
    let refused = watch(&world.nobody().await).await.unwrap_err();
    is_told(&refused, "streams_per_key");
    assert!(refused.message().contains("from this address"), "{}", refused.message());
    let location = owner.location("North", None).await;
    let part = owner.main_part(&owner.machine(&location, "arm").await).await.id;
    let of_key = [tail(&owner, &part).await.unwrap(), tail(&owner, &part).await.unwrap()];
    is_told(&tail(&owner, &part).await.unwrap_err(), "streams_per_key");
    drop(first);
    let again = async { while watch(&nobody).await.is_err() {} };
    tokio::time::timeout(PATIENCE, again).await.expect("one that was closed makes room");
    drop((second, of_key));
    world.end().await;
}

#[tokio::test]
async fn a_key_holds_its_share_of_connections_and_others_come_in() {
    let world = World::with(|options| options.limits = Limits { connections_per_key: 2, ..Limits::default() }).await;
    let owner = world.owner("Acme").await;
    let other = world.owner("Other").await;
    assert_eq!(code(list(&owner.client).await), Code::Ok);
    let again = || async {
        let client = world.nobody().await;
        Client { token: owner.client.token.clone(), ..client }
    };
    let second = again().await;
    assert_eq!(code(list(&second).await), Code::Ok);
    let third = again().await;
    let before = late(&world);
    let refused = list(&third).await.unwrap_err();
    assert_eq!(late(&world), before + 1);
    assert_eq!(refused.code(), Code::ResourceExhausted);
    assert_eq!(refused.get_details_error_info().unwrap().metadata["limit"], "connections_per_key");
    assert!(refused.get_details_retry_info().is_some());
    for _ in 0..5 {
        assert_eq!(code(list(&second).await), Code::Ok, "what it holds it may use");
    }
    // It is nobody's yet.
    let others = Client { token: other.client.token.clone(), ..third };
    assert_eq!(code(list(&others).await), Code::Ok);
    drop(second);
    let room = async {
        let fourth = again().await;
        while list(&fourth).await.is_err() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, room).await.expect("one that was closed makes room");
    world.end().await;
}

#[tokio::test]
async fn wrong_sign_ins_are_slowed_down_by_id_and_right_ones_never() {
    let world = World::new().await;
    let owner = world.owner("Acme").await;
    let victim = world.owner("Other").await;
    for attempt in 0..10 {
        let refused = world.login("api-key", &victim.key_id, "wrong").await.err().unwrap();
        assert_eq!(refused.code(), Code::Unauthenticated, "attempt {attempt}");
    }
    let slowed = async {
        loop {
            let refused = world.login("api-key", &victim.key_id, "wrong").await.err().unwrap();
            if refused.code() == Code::ResourceExhausted {
                return refused;
            }
        }
    };
    let refused = tokio::time::timeout(PATIENCE, slowed).await.expect("it is slowed down");
    assert!(refused.get_details_retry_info().is_some());
    assert_eq!(refused.get_details_error_info().unwrap().metadata["limit"], "sign_in_failures");
    for _ in 0..100 {
        world.login("api-key", &owner.key_id, &owner.key).await.unwrap();
        world.login("api-key", &victim.key_id, &victim.key).await.expect("nobody is kept out by who is wrong");
    }
    assert_eq!(code(list(&victim.client).await), Code::Ok, "who is signed in stays so");
    // The same over the way of installers.
    let headers = [("key_id", &*victim.key_id), ("key", "wrong")];
    let slowed =
        async { while ask(&world, "GET", "/install/credentials?part=x", &headers, b"").await.status != 429 {} };
    tokio::time::timeout(PATIENCE, slowed).await.expect("it is slowed down there too");
    world.end().await;
}

/// How many refusals were told late so far.
fn late(world: &World) -> u64 {
    metric(&world.server, "fleet_refusals_late_total")
}

#[tokio::test]
async fn refusals_are_told_late_at_every_door() {
    let limits = Limits { calls_per_key: 1, open_calls_per_address: 1, ..Limits::default() };
    let world = World::with(|options| options.limits = limits).await;
    let owner = world.owner("Acme").await;
    let good = format!("Bearer {}", owner.client.token.clone().unwrap());
    let json = ("Content-Type", "application/json");
    let plain: &[_] = &[json];
    let good: &[_] = &[json, ("Authorization", &*good)];
    let bad: &[_] = &[json, ("Authorization", "Bearer x"), ("X-Forwarded-For", "1.1.1.1")];
    let right = json!({"entity": owner.key_id, "credentials": {"type": "api-key", "payload": owner.key}}).to_string();
    let wrong = json!({"entity": owner.key_id, "credentials": {"type": "api-key", "payload": "x"}}).to_string();
    let (list, login) = ("/viam.app.v1.AppService/ListOrganizations", "/proto.rpc.v1.AuthService/Authenticate");
    let package = "/packages/v1/acme/camera/1.0.0/any";
    for (door, method, path, headers, body, status) in [
        ("calls", "POST", list, good, "{}", 429),
        ("pages for people", "GET", "/invite/x", &[], "", 429),
        ("downloads", "GET", package, good, "", 429),
        ("calls of strangers", "POST", list, bad, "{}", 401),
        ("downloads of strangers", "GET", package, bad, "", 401),
        ("metrics for strangers", "GET", "/metrics", bad, "", 401),
        ("right sign-ins", "POST", login, plain, &right, 429),
        ("wrong sign-ins", "POST", login, plain, &wrong, 429),
    ] {
        let before = late(&world);
        let told = async {
            // Until it is refused, as many as a burst lets through, and told late then.
            while ask(&world, method, path, headers, body.as_bytes()).await.status != status || late(&world) == before {
            }
        };
        tokio::time::timeout(PATIENCE, told).await.expect(door);
    }
    world.end().await;
}

#[tokio::test]
async fn headers_are_bounded() {
    let world = World::new().await;
    for (bytes, status) in [(15 << 10, 200), (17 << 10, 431)] {
        let long = "x".repeat(bytes);
        assert_eq!(ask(&world, "GET", "/healthz", &[("X-Long", &long)], b"").await.status, status, "{bytes}");
    }
    world.end().await;
}

async fn audited(world: &World, owner: &Owner, forwarded: &str) -> String {
    let token = format!("Bearer {}", owner.client.token.clone().unwrap());
    let headers = [("Content-Type", "application/json"), ("Authorization", &*token), ("X-Forwarded-For", forwarded)];
    let name = format!("for {forwarded}").replace([',', '.', ' '], "-");
    let body = json!({"organizationId": owner.organization, "name": name}).to_string();
    let made = ask(world, "POST", "/platform.app.v1.AppService/CreateLocation", &headers, body.as_bytes()).await;
    assert_eq!(made.status, 200);
    let body = json!({"organizationId": owner.organization}).to_string();
    let told = ask(world, "POST", "/platform.fleet.v1.AdminService/ListAuditEvents", &headers, body.as_bytes()).await;
    told.json()["events"][0].to_string()
}

#[tokio::test]
async fn where_a_call_comes_from_is_believed_of_proxies_only() {
    let world = World::new().await;
    let owner = world.owner("Acme").await;
    let event = audited(&world, &owner, "203.0.113.7").await;
    assert!(event.contains("127.0.0.1") && !event.contains("203.0.113.7\""), "{event}");
    world.end().await;
    let world = World::with(|options| options.trusted_proxies = vec!["127.0.0.0/8".parse().unwrap()]).await;
    let owner = world.owner("Acme").await;
    let event = audited(&world, &owner, "198.51.100.1, 203.0.113.7").await;
    assert!(event.contains("\"203.0.113.7\""), "{event}");
    world.end().await;
}

/// Calls whose answers nobody reads: over HTTP/2, where pings are answered all the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_that_nobody_reads_are_bounded_by_caller_and_given_back() {
    let world = World::new().await;
    let owner = world.owner("Acme").await;
    let other = world.key(&owner, "operator", "organization", &owner.organization).await;
    let location = owner.location("North", None).await;
    let part = owner.main_part(&owner.machine(&location, "arm").await).await;
    let config = format!(r#"{{"text": "{}"}}"#, "x".repeat(1000 * 1000));
    let change = UpdateRobotPartRequest {
        id: part.id.clone(),
        name: part.name.clone(),
        robot_config_json: Some(config),
        ..Default::default()
    };
    owner.client.app::<_, UpdateRobotPartResponse>("UpdateRobotPart", change.clone()).await.unwrap();
    let get = || GetRobotPartRequest { id: part.id.clone() };
    let path = "/platform.app.v1.AppService/GetRobotPart";
    // Some megabyte each; 32 MiB are one caller's.
    let mut unread = Vec::new();
    let refused = loop {
        match owner.client.try_stream(path, get()).await {
            Ok(answer) => unread.push(answer),
            Err(refused) => break refused,
        }
        assert!(unread.len() < 64, "no end of it");
    };
    assert!(unread.len() >= 8, "{}", unread.len());
    assert_eq!(refused.code(), Code::ResourceExhausted);
    assert_eq!(refused.get_details_error_info().unwrap().metadata["limit"], "unread_bytes");
    assert!(refused.get_details_retry_info().is_some());
    // What is small is answered, what changes something too, and others do not notice. On another connection: nothing
    // comes through the first one as long as those answers fill it.
    let owner_too = Client { token: owner.client.token.clone(), ..world.nobody().await };
    assert_eq!(list(&owner_too).await.unwrap().organizations.len(), 1);
    let changed: UpdateRobotPartResponse = owner_too.app("UpdateRobotPart", change).await.unwrap();
    assert_eq!(changed.part.unwrap().id, part.id);
    let found: GetRobotPartResponse = other.app("GetRobotPart", get()).await.unwrap();
    assert!(found.config_json.contains(&"x".repeat(1000 * 1000)), "a whole answer, in pieces");
    // As JSON the same.
    let token = format!("Bearer {}", owner.client.token.clone().unwrap());
    let headers = [("Content-Type", "application/json"), ("Authorization", &*token)];
    let body = json!({"id": part.id}).to_string();
    assert_eq!(ask(&world, "POST", path, &headers, body.as_bytes()).await.status, 429);
    assert_eq!(metric(&world.server, "fleet_refused_total{limit=\"unread_bytes\"}"), 2);
    assert_eq!(late(&world), 2, "either way it was told late");
    // Read, or given up, it is room again.
    drop(unread);
    let again = async {
        while owner.client.app::<_, GetRobotPartResponse>("GetRobotPart", get()).await.is_err() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, again).await.expect("there is room again");
    let whole = ask(&world, "POST", path, &headers, body.as_bytes()).await;
    assert_eq!(whole.status, 200);
    assert!(whole.header("content-length").is_some() && whole.body.len() > 1_000_000);
    world.end().await;
}
