//! Every operation with every field spoilt in turn: who is refused learns which field, what was in it and what to do.

#[path = "taken.rs"]
mod taken;

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    sync::{
        Mutex,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
};

use api::pb::proto::rpc::v1::{AuthenticateRequest, AuthenticateResponse, Credentials};
use fleet::{
    contract,
    edge::throttle::Limits,
    operations::{OPERATIONS, Operation},
};
use prost::Message;
use prost_reflect::{DynamicMessage, Kind, MapKey, MessageDescriptor, ReflectMessage, Value};
use prost_types::value::Kind::{NumberValue as Number, StringValue as Text};
use tonic::{Code, Status};
use tonic_types::StatusExt;

use taken::{A_DEVICE_SAYS, TAKEN};

use super::world::{
    Client, Owner, World,
    http::ask,
    things::{Ours, ours, value},
};

/// Messages inside a request that are filled and spoilt too.
const DEPTH: usize = 3;

/// What a text field of that name holds in a good request.
fn text<'a>(field: &str, path: &str, ours: &'a Ours) -> &'a str {
    let operation = path.rsplit('/').next().unwrap();
    match (operation, field) {
        ("UploadModuleFile", "version") => "1.0.0",
        ("UploadModuleFile", "platform") => "any",
        ("UpdateModule" | "UpdateRegistryItem", "type") => "single_machine",
        ("UpdateModule" | "UpdateRegistryItem", "entrypoint") => "index.html",
        // Any UUID will do.
        (_, "spool_id") => &ours.part,
        _ => value(field, path, ours),
    }
}

/// A good request, as far as names tell.
fn request(message: &MessageDescriptor, path: &str, ours: &Ours, depth: usize) -> DynamicMessage {
    let mut made = DynamicMessage::new(message.clone());
    for field in message.fields().filter(|field| !field.is_map()) {
        // Of several that exclude each other, the first.
        if field.containing_oneof().is_some_and(|one| !one.is_synthetic() && one.fields().any(|of| made.has_field(&of)))
        {
            continue;
        }
        let one = match field.kind() {
            Kind::String => Value::String(text(field.name(), path, ours).to_owned()),
            Kind::Uint64 if field.name() == "batch_number" => Value::U64(1),
            Kind::Message(inner) if depth < DEPTH && inner.full_name().starts_with("platform.") => {
                Value::Message(request(&inner, path, ours, depth + 1))
            }
            _ => continue,
        };
        let present = !field.supports_presence() || field.kind().as_message().is_some();
        match (field.is_list(), &one) {
            (_, Value::String(text)) if text.is_empty() => {}
            (true, _) => made.set_field(&field, Value::List(vec![one])),
            (false, _) if present => made.set_field(&field, one),
            (false, _) => {}
        }
    }
    made
}

struct Spoilt {
    /// "authorizations.resource_id"
    field: String,
    /// How: a letter of the list of what is taken.
    way: char,
    /// What a text field holds now.
    text: Option<String>,
    message: DynamicMessage,
}

/// The request once more for each way in which one of its fields can be wrong.
fn spoilt(good: &DynamicMessage, depth: usize) -> Vec<Spoilt> {
    let mut all = Vec::new();
    for field in good.descriptor().fields().filter(|field| !field.is_map()) {
        let mut with = |way: char, value: Option<Value>, text: Option<&str>| {
            let mut message = good.clone();
            match value {
                Some(value) if field.is_list() => message.set_field(&field, Value::List(vec![value])),
                Some(value) => message.set_field(&field, value),
                None => message.clear_field(&field),
            }
            all.push(Spoilt { field: field.name().to_owned(), way, text: text.map(str::to_owned), message });
        };
        match field.kind() {
            Kind::String => {
                with('a', None, None);
                let long = "x".repeat(300);
                for (way, text) in [('w', "no such thing!"), ('b', "bell \u{7}"), ('u', "Ünïcode 日本"), ('x', &long)]
                {
                    with(way, Some(Value::String(text.to_owned())), Some(text));
                }
            }
            Kind::Enum(_) => with('n', Some(Value::EnumNumber(99)), Some("99")),
            Kind::Int32 => with('n', Some(Value::I32(-7)), Some("-7")),
            Kind::Int64 => with('n', Some(Value::I64(-7)), Some("-7")),
            Kind::Message(inner) => {
                with('a', None, None);
                let (list, now) = (field.is_list(), good.get_field(&field).into_owned());
                let now = match now {
                    Value::List(list) => list.into_iter().next(),
                    one => Some(one),
                };
                let Some(Value::Message(now)) = now else { continue };
                if depth >= DEPTH || !inner.full_name().starts_with("platform.") {
                    continue;
                }
                for deeper in spoilt(&now, depth + 1) {
                    let mut message = good.clone();
                    let value = Value::Message(deeper.message);
                    message.set_field(&field, if list { Value::List(vec![value]) } else { value });
                    all.push(Spoilt {
                        field: format!("{}.{}", field.name(), deeper.field),
                        way: deeper.way,
                        text: deeper.text,
                        message,
                    });
                }
            }
            _ => {}
        }
    }
    all
}

/// Whether the message has a field at that path.
fn leads_somewhere(message: &MessageDescriptor, path: &str) -> bool {
    let (first, rest) = path.split_once('.').map_or((path, None), |(first, rest)| (first, Some(rest)));
    let Some(field) = message.get_field_by_name(first) else { return false };
    match (rest, field.kind()) {
        (None, _) => true,
        (Some(rest), Kind::Message(inner)) => leads_somewhere(&inner, rest),
        (Some(_), _) => false,
    }
}

/// Whoever is wrong so often would hear of nothing but its limits: here are none.
async fn begun() -> (World, Owner, Ours) {
    let boundless = Limits { calls_per_key: 1_000_000, ..Limits::default() };
    let world = World::with(|options| options.limits = boundless).await;
    let owner = world.owner("Acme").await;
    let ours = ours(&world, &owner).await;
    (world, owner, ours)
}

/// What takes something away comes last, the organization itself at the very end.
fn operations() -> Vec<&'static Operation> {
    let mut table: Vec<_> = OPERATIONS.iter().collect();
    table.sort_by_key(|operation| {
        let takes = ["Delete", "Remove", "Unshare", "Rotate"].iter().any(|verb| operation.path.contains(verb));
        (takes, operation.path.contains("/DeleteOrganization"), operation.path.contains("/DeleteKey"))
    });
    table
}

/// What comes back from a call that takes no time: a stream that opens is closed again.
async fn refusal(client: &Client, path: &str, message: &DynamicMessage) -> Option<Status> {
    client.raw(path, message.encode_to_vec().into()).await.err()
}

#[tokio::test]
async fn a_bad_field_is_named_with_what_is_in_it() {
    let (world, owner, ours) = begun().await;
    let (mut refused, mut shown, mut wrong) = (BTreeSet::new(), 0, Vec::new());
    let mut taken: BTreeMap<String, BTreeSet<char>> = BTreeMap::new();
    for operation in operations() {
        let path = operation.path;
        let input = contract::method(path).unwrap().input();
        let good = request(&input, path, &ours, 0);
        for one in spoilt(&good, 0) {
            // A tail is open as soon as it is not refused.
            if operation.streams && one.field != "id" {
                continue;
            }
            let answer = refusal(&owner.client, path, &one.message).await;
            if answer.as_ref().is_none_or(|status| status.code() != Code::InvalidArgument) {
                let name = path.rsplit('/').next().unwrap();
                taken.entry(format!("{name} {}", one.field)).or_default().insert(one.way);
            }
            let Some(status) = answer else { continue };
            let info = status.get_details_error_info();
            if info.is_none_or(|info| info.domain != "platform.fleet" || info.reason.is_empty()) {
                wrong.push(format!("{path} {}: {status:?} has no reason", one.field));
            }
            if matches!(status.code(), Code::Internal | Code::Unknown) {
                wrong.push(format!("{path} {}: {status:?}", one.field));
            }
            if status.code() != Code::InvalidArgument {
                continue;
            }
            refused.insert(path);
            let violation = status.get_details_bad_request().and_then(|bad| bad.field_violations.into_iter().next());
            let Some(violation) = violation else {
                wrong.push(format!("{path} {}: {} names no field", one.field, status.message()));
                continue;
            };
            let around = |one: &str, other: &str| one == other || one.starts_with(&format!("{other}."));
            // What is looked at before the rest: credentials, and whether there is a file behind what is said of it.
            let first = matches!(&*violation.field, "credentials" | "file");
            if !first && !around(&violation.field, &one.field) && !around(&one.field, &violation.field) {
                wrong.push(format!("{path} {} spoilt by {}: {}", one.field, one.way, status.message()));
            }
            if !leads_somewhere(&input, &violation.field) {
                wrong.push(format!("{path} {}: there is no field {:?}", one.field, violation.field));
            }
            let last = violation.field.rsplit('.').next().unwrap();
            if !status.message().contains(last) || violation.description != status.message() {
                wrong.push(format!("{path} {}: {} does not name {last}", one.field, status.message()));
            }
            // What it says beside the field and the value is what to do.
            // A configuration may hold passwords: it is not repeated.
            let repeated = violation.field == one.field && !one.field.ends_with("_json");
            if let Some(text) = one.text.filter(|_| repeated) {
                let cut: String = text.chars().take(64).collect();
                let quoted = format!("{cut:?}");
                let rest = status.message().replace(&quoted, "").replace(last, "");
                if !status.message().contains(&quoted) || rest.chars().filter(|c| c.is_alphabetic()).count() < 12 {
                    wrong.push(format!("{path} {}: {} does not say what was there", one.field, status.message()));
                }
                shown += 1;
            }
        }
    }
    taken.retain(|field, _| !A_DEVICE_SAYS.iter().any(|start| field.starts_with(start)));
    let mut expected: BTreeMap<String, BTreeSet<char>> = BTreeMap::new();
    for (operation, ways, fields, _) in TAKEN {
        for field in fields.split(' ') {
            expected.entry(format!("{operation} {field}")).or_default().extend(ways.chars());
        }
    }
    for field in taken.keys().chain(expected.keys()).collect::<BTreeSet<_>>() {
        let (now, then) = (taken.get(field), expected.get(field));
        if now != then {
            wrong.push(format!("{field}: taken {now:?}, listed {then:?}"));
        }
    }
    assert!(wrong.is_empty(), "{} refusals:\n{}", wrong.len(), wrong.join("\n"));
    assert!(refused.len() >= 70, "only {} operations refused a field: {refused:?}", refused.len());
    assert!(shown >= 300, "only {shown} values were shown");
    world.end().await;
}

/// A key that was given in the place of an id, a name, a version: whoever reads the answer, a log of the client or a
/// screen shared with others is not to read it again.
#[tokio::test]
async fn a_secret_in_the_place_of_something_else_is_not_repeated() {
    let (world, owner, ours) = begun().await;
    let secret = fleet::ids::new_secret();
    let mut refused = BTreeSet::new();
    for operation in operations().into_iter().filter(|operation| !operation.streams) {
        let path = operation.path;
        let good = request(&contract::method(path).unwrap().input(), path, &ours, 0);
        for one in with_text(&good, &secret, 0) {
            let Some(status) = refusal(&owner.client, path, &one).await else { continue };
            let told = format!("{status:?} {}", String::from_utf8_lossy(status.details()));
            // What a name is used for already is told by that name, which is its owner's to see.
            assert!(!told.contains(&secret) || status.code() == Code::AlreadyExists, "{path}: {told}");
            refused.insert(path);
        }
    }
    assert!(refused.len() >= 70, "only {} operations refused it: {refused:?}", refused.len());
    world.end().await;
}

/// The request once more for each of its texts, which is this one.
fn with_text(good: &DynamicMessage, text: &str, depth: usize) -> Vec<DynamicMessage> {
    let mut all = Vec::new();
    for field in good.descriptor().fields().filter(|field| !field.is_map()) {
        let values = match field.kind() {
            Kind::String => vec![Value::String(text.to_owned())],
            Kind::Message(inner) if depth < DEPTH && inner.full_name().starts_with("platform.") => {
                let now = match good.get_field(&field).into_owned() {
                    Value::List(list) => list.into_iter().next(),
                    one => Some(one),
                };
                let Some(Value::Message(now)) = now else { continue };
                with_text(&now, text, depth + 1).into_iter().map(Value::Message).collect()
            }
            _ => continue,
        };
        all.extend(values.into_iter().map(|value| {
            let mut message = good.clone();
            message.set_field(&field, if field.is_list() { Value::List(vec![value]) } else { value });
            message
        }));
    }
    all
}

/// In everything that is planted as a secret.
const PLANTED: &str = "planted-secret-8231";

/// Log lines of the whole server, on every level, while somebody listens.
static HEARD: Mutex<Vec<u8>> = Mutex::new(Vec::new());
static LISTENING: AtomicBool = AtomicBool::new(false);

struct Ear;

impl io::Write for Ear {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if LISTENING.load(SeqCst) {
            HEARD.lock().unwrap().extend_from_slice(line);
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// How a planted secret is wrapped.
#[derive(Debug, Clone, Copy)]
enum Wrapped {
    Well,
    /// Beside a number that is none.
    Odd,
    /// In a text that breaks off.
    Broken,
}

/// Plants a secret wherever a request has room for one: in objects, JSON texts, maps, credentials.
fn plant(message: &mut DynamicMessage, how: Wrapped, depth: usize) -> usize {
    let mut planted = 0;
    for field in message.descriptor().fields() {
        let value = match field.kind() {
            Kind::String if field.name().ends_with("_json") => {
                let end = if matches!(how, Wrapped::Broken) { "" } else { "}" };
                Value::String(format!(r#"{{"psk": "{PLANTED}", "list": ["{PLANTED}"]{end}"#))
            }
            Kind::String if matches!(field.name(), "payload" | "secret" | "key") => Value::String(PLANTED.into()),
            Kind::Message(_) if field.is_map() => {
                let kind = field.kind();
                let of = kind.as_message().unwrap().map_entry_value_field().kind();
                if of != Kind::String {
                    continue;
                }
                let entry = (MapKey::String("password".into()), Value::String(PLANTED.into()));
                message.set_field(&field, Value::Map([entry].into()));
                planted += 1;
                continue;
            }
            Kind::Message(inner) if inner.full_name() == "google.protobuf.Struct" => {
                let text = |text: &str| prost_types::Value { kind: Some(Text(text.into())) };
                let odd = prost_types::Value { kind: Some(Number(f64::NAN)) };
                let mut object = prost_types::Struct {
                    fields: ["psk", "password", "token"].map(|name| (name.to_owned(), text(PLANTED))).into(),
                };
                if !matches!(how, Wrapped::Well) {
                    object.fields.insert("odd".into(), odd);
                }
                Value::Message(DynamicMessage::decode(inner, &*object.encode_to_vec()).unwrap())
            }
            Kind::Message(inner) if depth < DEPTH && inner.full_name().starts_with("google.") => continue,
            Kind::Message(inner) if depth < DEPTH => {
                let now = message.get_field(&field).into_owned();
                let now = match now {
                    Value::List(list) => list.into_iter().next(),
                    one => Some(one),
                };
                let Some(Value::Message(mut now)) = now.or(Some(Value::Message(DynamicMessage::new(inner)))) else {
                    continue;
                };
                let inside = plant(&mut now, how, depth + 1);
                if inside == 0 {
                    continue;
                }
                planted += inside - 1;
                Value::Message(now)
            }
            _ => continue,
        };
        message.set_field(&field, if field.is_list() { Value::List(vec![value]) } else { value });
        planted += 1;
    }
    planted
}

/// Everything that the server wrote down of changes, as rows and as they are exported.
async fn written_down(world: &World) -> String {
    let store = &world.server.context.store;
    let mut told = Vec::new();
    fleet::audit_export::export(store, &fleet::audit_export::Range::default(), &mut told).await.unwrap();
    String::from_utf8(told).unwrap()
}

#[tokio::test]
async fn no_refusal_log_line_audit_row_or_metric_repeats_a_secret() {
    let listens = tracing_subscriber::fmt().with_ansi(false).with_env_filter("off,fleet=trace").with_writer(|| Ear);
    listens.try_init().expect("nobody else in this program listens");
    LISTENING.store(true, SeqCst);
    let (world, owner, ours) = begun().await;
    // The bytes of this file were never uploaded: that the server's log says so shows that it is heard.
    let file = format!("/packages/v1/{}/camera/1.0.0/any", owner.organization);
    let by_key = [("key_id", &*owner.key_id), ("key", &*owner.key)];
    assert_eq!(ask(&world, "GET", &file, &by_key, b"").await.status, 503);
    let part = owner.main_part(&ours.machine).await;
    let device = world.login("robot-secret", &part.id, &part.secret).await.unwrap();
    let said = std::cell::RefCell::new(Vec::new());
    let hear = |whence: &str, status: Option<Status>| {
        let Some(status) = status else { return };
        said.borrow_mut().push(format!("{whence}: {status:?} {}", String::from_utf8_lossy(status.details())));
    };

    // Each operation: with a token that is none, and with secrets in every place for them; what takes away comes last.
    let pretender = Client { token: Some(PLANTED.into()), ..owner.client.clone() };
    let mut planted = BTreeSet::new();
    for operation in operations() {
        let path = operation.path;
        let input = contract::method(path).unwrap().input();
        let good = request(&input, path, &ours, 0);
        hear(path, refusal(&pretender, path, &good).await);
        if operation.streams {
            continue;
        }
        for how in [Wrapped::Well, Wrapped::Odd, Wrapped::Broken] {
            let mut message = good.clone();
            if plant(&mut message, how, 0) > 0 {
                planted.insert(path.rsplit('/').next().unwrap());
                hear(path, refusal(&owner.client, path, &message).await);
            }
        }
    }
    let places = [
        "Authenticate",
        "CreateFragment",
        "Log",
        "UpdateFragment",
        "UpdateLocationMetadata",
        "UpdateOrganization",
        "UpdateOrganizationMetadata",
        "UpdateRobotMetadata",
        "UpdateRobotPart",
        "UpdateRobotPartMetadata",
        "UploadLogs",
    ];
    assert!(places.iter().all(|place| planted.contains(place)), "{planted:?}");

    // Signing in, with every kind of credentials and of who it is said to be.
    let nobody = world.nobody().await;
    for kind in ["api-key", "robot-secret", "robot-location-secret", "no such kind"] {
        for entity in [&*owner.key_id, &*ours.part, "x", ""] {
            let credentials = Some(Credentials { r#type: kind.into(), payload: PLANTED.into() });
            let request = AuthenticateRequest { entity: entity.into(), credentials };
            let path = "/proto.rpc.v1.AuthService/Authenticate";
            let refused = nobody.call::<_, AuthenticateResponse>(path, request).await;
            hear(&format!("{kind} {entity}"), Some(refused.expect_err("a wrong secret")));
        }
    }
    // The doors that are not gRPC's: tokens and keys in headers, a configuration as JSON.
    let bearer = format!("Bearer {PLANTED}");
    let doors: [&[(&str, &str)]; 3] = [
        &[("authorization", &bearer)],
        &[("key_id", &owner.key_id), ("key", PLANTED)],
        &[("part_id", &ours.part), ("secret", PLANTED)],
    ];
    for headers in doors {
        for path in [&file, &format!("/install/credentials?part={}", ours.part), "/metrics"] {
            let answer = ask(&world, "GET", path, headers, b"").await;
            said.borrow_mut().push(format!("{path}: {} {}", answer.head, String::from_utf8_lossy(&answer.body)));
        }
        let headers = [headers, &[("content-type", "application/json")]].concat();
        let body = format!(r#"{{"id": "x", "robotConfigJson": "{PLANTED}", "robotConfig": "{PLANTED}"}}"#);
        let path = "/platform.app.v1.AppService/UpdateRobotPart";
        let answer = ask(&world, "POST", path, &headers, body.as_bytes()).await;
        said.borrow_mut().push(format!("{path}: {} {}", answer.head, String::from_utf8_lossy(&answer.body)));
    }
    let said = said.into_inner();
    assert!(said.len() > 130, "only {} refusals", said.len());
    for said in said {
        assert!(!said.contains(PLANTED), "{said}");
    }

    let metrics = ask(&world, "GET", "/metrics", &[], b"").await;
    assert_eq!(metrics.status, 200);
    LISTENING.store(false, SeqCst);
    let heard = String::from_utf8(std::mem::take(&mut *HEARD.lock().unwrap())).unwrap();
    assert!(heard.contains("a file of the registry cannot be read"), "{heard}");
    let metrics = String::from_utf8(metrics.body).unwrap();
    let audit = written_down(&world).await;
    assert!(audit.lines().count() > 15, "the walk changes much: {audit}");
    let tokens = [&owner.client, &device].map(|client| client.token.clone().unwrap());
    let theirs = &ours.planted;
    let real = [&*owner.key, &part.secret, &tokens[0], &tokens[1], &theirs.location_secret];
    let real = [&real[..], &[&*theirs.in_part, &theirs.in_fragment, &theirs.in_defaults]].concat();
    for secret in real.into_iter().chain([PLANTED]) {
        for (place, text) in [("the log", &heard), ("the audit log", &audit), ("the metrics", &metrics)] {
            assert!(!text.contains(secret), "{place} has {secret}");
        }
    }
    world.end().await;
}
