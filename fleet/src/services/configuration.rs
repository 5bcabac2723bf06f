//! The configuration of a device: composed, taken apart as the contract wants it, encoded once and kept.
//!
//! A device asks every few seconds and the answer rarely changes. So the answer is kept as the bytes that go out,
//! with the numbers it was made under (`changes`, the releases): an unchanged heartbeat is one look into a map, no
//! statement, no composition and no encoding. A configuration that cannot be composed is kept the same way.

use std::{
    collections::HashMap,
    sync::{Arc, PoisonError, RwLock},
    time::Duration,
};

use api::{
    brand,
    device_config::{self, AGENT_KEY, Origin},
    pb::platform::{
        app::agent::v1::{DeviceAgentConfigResponse, UpdateInfo},
        fleet::v1::Complaint,
    },
};
use bytes::Bytes;
use prost::Message as _;
use prost_types::Struct;
use serde_json::{Map, Value};

use crate::{
    authz::{
        Granted, Part,
        right::{ActAsDevice, Right},
    },
    changes::Edition,
    clock::Millis,
    compose::{self, Composed, Library, wire},
    context::Context,
    refusal::Refusal,
    releases::catalog,
    store::{devices, fragments},
    written::Written,
};

/// How often a device asks for its configuration unless the operator of this server says otherwise: a change arrives within this, and a device is live for two of them.
pub const CHECK_EVERY: Duration = Duration::from_secs(5);
/// Bytes of kept answers; at 4 KiB each, those of 16,000 devices.
const KEPT_MAX_BYTES: usize = 64 << 20;
/// What a kept answer costs beside its bytes.
const KEPT_OVERHEAD_BYTES: usize = 256;
/// "linux/arm64"; longer ones are no platform of ours.
const PLATFORM_MAX_BYTES: usize = 64;

/// The answers that are kept.
#[derive(Default)]
pub struct Configurations {
    kept: RwLock<Kept>,
}

#[derive(Default)]
struct Kept {
    answers: HashMap<Box<str>, Arc<Answer>>,
    bytes: usize,
}

struct Answer {
    made_under: MadeUnder,
    platform: Box<str>,
    /// The bytes, or the sentence that says why there are none.
    outcome: Result<Bytes, Box<str>>,
}

/// Everything an answer depends on, taken before it is made.
#[derive(Clone, Copy, PartialEq, Eq)]
struct MadeUnder {
    edition: Edition,
    releases: u64,
}

impl Configurations {
    fn get(&self, part: &str, platform: &str, now: MadeUnder) -> Option<Arc<Answer>> {
        let kept = self.kept.read().unwrap_or_else(PoisonError::into_inner);
        kept.answers.get(part).filter(|answer| answer.made_under == now && *answer.platform == *platform).cloned()
    }

    fn put(&self, part: &str, answer: Arc<Answer>) {
        let mut kept = self.kept.write().unwrap_or_else(PoisonError::into_inner);
        let cost = |answer: &Answer| answer.outcome.as_ref().map_or(0, Bytes::len) + KEPT_OVERHEAD_BYTES;
        if kept.bytes + cost(&answer) > KEPT_MAX_BYTES {
            // Every device asks again within seconds; those that still exist are back at once.
            *kept = Kept::default();
        }
        kept.bytes += cost(&answer);
        if let Some(before) = kept.answers.insert(part.into(), answer) {
            kept.bytes -= cost(&before);
        }
    }
}

/// The answer to a device on that platform.
pub async fn encoded(
    context: &Context,
    part: &Granted<Part, ActAsDevice>,
    platform: &str,
    now: Millis,
) -> Result<Written<DeviceAgentConfigResponse>, Refusal> {
    let platform = if platform.len() <= PLATFORM_MAX_BYTES { platform } else { "" };
    let made_under =
        MadeUnder { edition: context.changes.edition(part.id()), releases: context.releases.revision(now) };
    let answer = match context.configurations.get(part.id(), platform, made_under) {
        Some(answer) => answer,
        None => {
            let outcome = match composed(context, part).await? {
                Ok(composed) => Ok(response(context, &composed, platform).encode_to_vec().into()),
                Err(refused) => Err(refused.to_string().into()),
            };
            let answer = Arc::new(Answer { made_under, platform: platform.into(), outcome });
            context.configurations.put(part.id(), answer.clone());
            answer
        }
    };
    answer.outcome.clone().map(Written::from).map_err(Refusal::precondition)
}

/// The part's document, composed now. The inner error is for the person who wrote it.
pub async fn composed<R: Right>(
    context: &Context,
    part: &Granted<Part, R>,
) -> Result<Result<Composed, compose::ComposeError>, Refusal> {
    let (document, library) = context
        .store
        .read::<_, Refusal>(|tx| {
            let text = devices::config(tx, part)?.ok_or_else(|| Refusal::not_found("robot part", part.id()))?;
            let document = match serde_json::from_str(&text) {
                Ok(Value::Object(document)) => document,
                // Written by nobody through this server: it refuses such documents.
                _ => Map::new(),
            };
            let mut library = Library::default();
            fragments::fill(tx, part.organization(), &document, &mut library)?;
            Ok((document, library))
        })
        .await?;
    Ok(compose::compose(&document, &library))
}

/// What is wrong with the part's configuration, for its status, beside what its device complains of itself (`None` when
/// it never spoke). A device cannot say what never reached it: left-out fragments, sections that are none.
pub async fn complaints<R: Right>(
    context: &Context,
    part: &Granted<Part, R>,
    device: Option<&[Complaint]>,
) -> Result<Vec<Complaint>, Refusal> {
    let fragments =
        |path: String, found: String| Complaint { path, found, source: "fragments".into(), ..Complaint::default() };
    let composed = match composed(context, part).await? {
        Ok(composed) => composed,
        Err(refused) => return Ok(vec![fragments("the part".into(), refused.to_string())]),
    };
    let agent = agent_complaints(&composed.config, device);
    let mut complaints: Vec<_> = composed.complaints.into_iter().map(|one| fragments(one.at, one.says)).collect();
    complaints.extend(agent);
    Ok(complaints)
}

/// What the device's own reader says to the `agent` section. About settings inside a section only as long as the device
/// says nothing: it knows its manufacturer's defaults, which decide some of them.
fn agent_complaints(config: &Map<String, Value>, device: Option<&[Complaint]>) -> Vec<Complaint> {
    let Some(agent) = config.get(AGENT_KEY) else { return Vec::new() };
    let document = serde_json::json!({ AGENT_KEY: agent }).to_string();
    let ours = device_config::check(document.as_bytes(), Origin::Cloud).into_iter();
    let is_section = |path: &str| !(path.is_empty() || path.contains('.'));
    let said = |path: &str| device.is_some_and(|said| said.iter().any(|one| one.path == path));
    ours.filter(|one| device.is_none() || (is_section(&one.path) && !said(&one.path)))
        .map(|one| Complaint {
            path: one.path.into(),
            found: one.found.into(),
            allowed: one.allowed.into(),
            source: one.origin.name().into(),
        })
        .collect()
}

fn response(context: &Context, composed: &Composed, platform: &str) -> DeviceAgentConfigResponse {
    let empty = Map::new();
    let agent = composed.config.get(AGENT_KEY).and_then(Value::as_object).unwrap_or(&empty);
    let section = |name: &str| agent.get(name).and_then(Value::as_object).map(wire::to_struct);
    let hint = |product, setting| hint(context, agent, product, setting, platform);
    let [agent_product, server_product] = catalog::PRODUCTS;
    DeviceAgentConfigResponse {
        check_interval: prost_types::Duration::try_from(context.check_every).ok(),
        agent_update_info: hint(agent_product.0, agent_product.1),
        platform_server_update_info: hint(server_product.0, server_product.1),
        advanced_settings: advanced_settings(agent),
        network_configuration: section("network_configuration"),
        additional_networks: section("additional_networks"),
        system_configuration: section("system_configuration"),
        ..DeviceAgentConfigResponse::default()
    }
}

/// The contract has no place for `version_control`; the device expects it here, as it was written.
fn advanced_settings(agent: &Map<String, Value>) -> Option<Struct> {
    let settings = agent.get("advanced_settings").and_then(Value::as_object).map(wire::to_struct);
    let Some(versions) = agent.get("version_control") else { return settings };
    let mut settings = settings.unwrap_or_default();
    settings.fields.insert("version_control".into(), wire::to_wire(versions));
    Some(settings)
}

/// What a product's version setting means today. Nothing for a URL, which the device fetches itself, and for what is
/// not released for this platform.
fn hint(
    context: &Context,
    agent: &Map<String, Value>,
    product: &str,
    setting: &str,
    platform: &str,
) -> Option<UpdateInfo> {
    let versions = agent.get("version_control").and_then(Value::as_object);
    let wanted = versions.and_then(|versions| versions.get(setting)).and_then(Value::as_str);
    let wanted = wanted.unwrap_or(catalog::DEFAULT_SETTING);
    let hint = context.releases.catalog().resolve(product, wanted, platform)?;
    debug_assert!(product == brand::AGENT || product == brand::MACHINE_SERVER);
    // Without an address of our own, a path on the server that was asked.
    Some(hint.into_update_info(context.address.as_deref().unwrap_or_default()))
}
