//! Every operation with every field spoilt in turn: who is refused learns which field, what was in it and what to do.

use std::collections::BTreeSet;

use api::pb::{
    platform::app::v1::*,
    proto::rpc::v1::{AuthenticateRequest, AuthenticateResponse, Credentials},
};
use fleet::{contract, operations::OPERATIONS};
use prost::Message;
use prost_reflect::{DynamicMessage, Kind, MessageDescriptor, ReflectMessage, Value};
use tonic::{Code, Status};
use tonic_types::StatusExt;

use super::world::{
    World,
    things::{Ours, ours, value},
};

/// Messages inside a request that are filled and spoilt too.
const DEPTH: usize = 3;

/// A good request, as far as names tell.
fn request(message: &MessageDescriptor, path: &str, ours: &Ours, depth: usize) -> DynamicMessage {
    let mut made = DynamicMessage::new(message.clone());
    for field in message.fields().filter(|field| !field.is_map()) {
        let one = match field.kind() {
            Kind::String => Value::String(value(field.name(), path, ours).to_owned()),
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
    /// What a text field holds now.
    text: Option<String>,
    message: DynamicMessage,
}

/// The request once more for each way in which one of its fields can be wrong.
fn spoilt(good: &DynamicMessage, depth: usize) -> Vec<Spoilt> {
    let mut all = Vec::new();
    for field in good.descriptor().fields().filter(|field| !field.is_map()) {
        let mut with = |value: Option<Value>, text: Option<&str>| {
            let mut message = good.clone();
            match value {
                Some(value) if field.is_list() => message.set_field(&field, Value::List(vec![value])),
                Some(value) => message.set_field(&field, value),
                None => message.clear_field(&field),
            }
            all.push(Spoilt { field: field.name().to_owned(), text: text.map(str::to_owned), message });
        };
        match field.kind() {
            Kind::String => {
                with(None, None);
                for text in ["no such thing!", "bell \u{7}", "Ünïcode 日本", &"x".repeat(300)] {
                    with(Some(Value::String(text.to_owned())), Some(text));
                }
            }
            Kind::Enum(_) => with(Some(Value::EnumNumber(99)), Some("99")),
            Kind::Int32 => with(Some(Value::I32(-7)), Some("-7")),
            Kind::Int64 => with(Some(Value::I64(-7)), Some("-7")),
            Kind::Message(inner) => {
                with(None, None);
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

/// What comes back from a call that takes no time: a stream that opens is closed again.
async fn refusal(client: &super::world::Client, path: &str, message: &DynamicMessage) -> Option<Status> {
    client.raw(path, message.encode_to_vec().into()).await.err()
}

#[tokio::test]
async fn a_bad_field_is_named_with_what_is_in_it() {
    let world = World::new().await;
    let owner = world.owner("Acme").await;
    let ours = ours(&world, &owner).await;
    // What takes something away comes last, the organization itself at the very end.
    let mut table: Vec<_> = OPERATIONS.iter().collect();
    table.sort_by_key(|operation| {
        let takes = ["Delete", "Remove", "Unshare", "Rotate"].iter().any(|verb| operation.path.contains(verb));
        (takes, operation.path.contains("/DeleteOrganization"), operation.path.contains("/DeleteKey"))
    });
    let (mut refused, mut shown, mut wrong) = (BTreeSet::new(), 0, Vec::new());
    for operation in table {
        let path = operation.path;
        let input = contract::method(path).unwrap().input();
        let good = request(&input, path, &ours, 0);
        for one in spoilt(&good, 0) {
            // A tail is open as soon as it is not refused.
            if operation.streams && one.field != "id" {
                continue;
            }
            let Some(status) = refusal(&owner.client, path, &one.message).await else { continue };
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
    assert!(wrong.is_empty(), "{} refusals:\n{}", wrong.len(), wrong.join("\n"));
    assert!(refused.len() >= 70, "only {} operations refused a field: {refused:?}", refused.len());
    assert!(shown >= 300, "only {shown} values were shown");
    world.end().await;
}

#[tokio::test]
async fn a_refusal_never_repeats_a_secret() {
    let world = World::new().await;
    let owner = world.owner("Acme").await;
    let planted = "planted-secret-8231";
    let nobody = world.nobody().await;
    for kind in ["api-key", "robot-secret", "robot-location-secret", "no such kind"] {
        for entity in [&*owner.key_id, "x", ""] {
            let credentials = Some(Credentials { r#type: kind.into(), payload: planted.into() });
            let request = AuthenticateRequest { entity: entity.into(), credentials };
            let path = "/proto.rpc.v1.AuthService/Authenticate";
            let refused = nobody.call::<_, AuthenticateResponse>(path, request).await.unwrap_err();
            assert!(!format!("{refused:?}").contains(planted), "{refused:?}");
            let details = String::from_utf8_lossy(refused.details()).into_owned();
            assert!(!details.contains(planted), "{details}");
        }
    }
    // A configuration is full of passwords: what is wrong with it is said by place.
    let location = owner.location("North", None).await;
    let part = owner.main_part(&owner.machine(&location, "arm").await).await;
    for json in [format!("{{\"psk\": \"{planted}\""), format!("[\"{planted}\"]"), format!("\"{planted}\"")] {
        let request = UpdateRobotPartRequest {
            id: part.id.clone(),
            name: part.name.clone(),
            robot_config_json: Some(json.clone()),
            ..Default::default()
        };
        let refused = owner.client.app::<_, UpdateRobotPartResponse>("UpdateRobotPart", request).await.unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument, "{json}");
        let said = format!("{refused:?} {}", String::from_utf8_lossy(refused.details()));
        assert!(!said.contains(planted), "{said}");
    }
    world.end().await;
}
