//! The contract's provisioning service as gRPC-Web: what apps and web pages call instead of using the page.
//!
//! One request is one message, one answer is one message and a status. A web page of another origin may call: the service
//! has no token, because the clients that exist send none; who is on the hotspot may use it, and what he may do is the
//! machine's to say.

use std::borrow::Cow;

use api::pb::platform::provisioning::v1::{
    CloudConfig, ExitProvisioningResponse, GetNetworkListResponse, GetSmartMachineStatusResponse, NetworkInfo,
    ProvisioningInfo, SetNetworkCredentialsRequest, SetNetworkCredentialsResponse, SetSmartMachineCredentialsRequest,
    SetSmartMachineCredentialsResponse,
};
use board::{
    doorway::{Request, Response},
    network::{Security, Seen, Ssid},
};
use prost::Message;

use super::{Permits, Visits, base64, html};
use crate::provisioning::{
    visit::{self, Door, Identity, Proof, Visit},
    welcome::{Attempt, Result as Outcome, Welcome},
};

/// Behind the first word of the package, which is a vendor's: clients of each vendor's contract call their own.
const SERVICE: &str = "provisioning.v1.ProvisioningService";
/// The kinds of WiFi there are: one.
const WIFI: &str = "wifi";
/// Longest list of header names that is sent back to a page that asks for them.
const NAMES_BYTES_MAX: usize = 512;

/// Status codes of gRPC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Code {
    Ok = 0,
    InvalidArgument = 3,
    FailedPrecondition = 9,
    Unimplemented = 12,
}

/// What went wrong, for the one who called.
struct Trouble(Code, String);

impl Trouble {
    fn argument(sentence: impl ToString) -> Trouble {
        Trouble(Code::InvalidArgument, sentence.to_string())
    }
}

/// A request to the service.
pub(super) struct Call<'a> {
    request: &'a Request,
    method: &'a str,
}

impl<'a> Call<'a> {
    /// `None` when it is something else.
    pub(super) fn of(request: &'a Request, path: &'a str) -> Option<Call<'a>> {
        let (service, method) = path.strip_prefix('/')?.split_once('/')?;
        let (vendor, service) = service.split_once('.')?;
        let is_word = !vendor.is_empty() && vendor.bytes().all(|byte| byte.is_ascii_alphanumeric());
        (is_word && service == SERVICE).then_some(Call { request, method })
    }

    /// Answers. `comes` says whether this visitor has not been here before.
    pub(super) fn answer(
        self,
        welcome: &Welcome,
        permits: Permits<'_>,
        comes: impl FnOnce() -> bool,
    ) -> (Response, Visits) {
        let mut visits = Visits::new();
        if self.request.method == "OPTIONS" {
            return (self.preflight(), visits);
        }
        let kind = self.request.header("content-type").unwrap_or_default();
        let Some(as_text) = encoding(kind).filter(|_| self.request.method == "POST") else {
            let body = b"this is a service: call it by gRPC-Web";
            return (Response { status: 415, headers: cross_origin(), body: Cow::Borrowed(body) }, visits);
        };
        let result = self.content(as_text).and_then(|message| self.call(&message, welcome));
        let result = result.and_then(|(answer, visit)| match visit {
            Some(visit) => match permits(Door::App, &visit) {
                Ok(()) => Ok((answer, Some(visit))),
                Err(refused) => Err(Trouble(Code::FailedPrecondition, refused.to_string())),
            },
            None => Ok((answer, None)),
        });
        if comes() {
            let _ = visits.push((Door::App, Visit::Came));
        }
        let frames = match result {
            Ok((answer, visit)) => {
                let _ = visit.map(|visit| visits.push((Door::App, visit)));
                [frame(0, &answer), status(Code::Ok, "")].concat()
            }
            Err(Trouble(code, sentence)) => status(code, &sentence),
        };
        let mut headers = cross_origin();
        headers.push(("Cache-Control", Cow::Borrowed("no-store")));
        let (kind, body) = match as_text {
            true => ("application/grpc-web-text+proto", base64::encoded(&frames).into_bytes()),
            false => ("application/grpc-web+proto", frames),
        };
        headers.push(("Content-Type", Cow::Borrowed(kind)));
        (Response { status: 200, headers, body: Cow::Owned(body) }, visits)
    }

    /// The one message of the request.
    fn content(&self, as_text: bool) -> Result<Vec<u8>, Trouble> {
        let damaged = || Trouble::argument("the request is no single message of gRPC-Web");
        let body = match as_text {
            true => Cow::Owned(base64::decoded(&self.request.body).ok_or_else(damaged)?),
            false => Cow::Borrowed(&*self.request.body),
        };
        match &*body {
            // Some clients leave an empty message out.
            [] => Ok(Vec::new()),
            [0, a, b, c, d, message @ ..] if u32::from_be_bytes([*a, *b, *c, *d]) as usize == message.len() => {
                Ok(message.to_vec())
            }
            _ => Err(damaged()),
        }
    }

    fn call(&self, message: &[u8], welcome: &Welcome) -> Result<(Vec<u8>, Option<Visit>), Trouble> {
        match self.method {
            "GetSmartMachineStatus" => {
                let saw = html::has_ended(welcome).then_some(Visit::SawResult);
                Ok((machine_status(welcome).encode_to_vec(), saw))
            }
            "GetNetworkList" => {
                let networks = welcome.networks.iter().map(|seen| network(seen, welcome)).collect();
                Ok((GetNetworkListResponse { networks }.encode_to_vec(), None))
            }
            "SetNetworkCredentials" => {
                let SetNetworkCredentialsRequest { r#type, ssid, psk } = read(message)?;
                if r#type != WIFI {
                    return Err(Trouble::argument(format!("the only type of network is {WIFI}")));
                }
                // What the radio has not heard is looked for by its name.
                let hidden = !welcome.networks.iter().any(|seen| shown(&seen.ssid) == ssid);
                let name = welcome.networks.iter().find(|seen| shown(&seen.ssid) == ssid);
                let name = name.map_or(ssid.as_bytes(), |seen| seen.ssid.bytes());
                let given = visit::network(name, &psk, hidden).map_err(Trouble::argument)?;
                Ok((SetNetworkCredentialsResponse {}.encode_to_vec(), Some(Visit::Network(given))))
            }
            "SetSmartMachineCredentials" => {
                let SetSmartMachineCredentialsRequest { cloud } = read(message)?;
                let identity = identity(cloud.unwrap_or_default()).map_err(Trouble::argument)?;
                Ok((SetSmartMachineCredentialsResponse {}.encode_to_vec(), Some(Visit::Identity(identity))))
            }
            "ExitProvisioning" => Ok((ExitProvisioningResponse {}.encode_to_vec(), Some(Visit::Leave))),
            _ => Err(Trouble(Code::Unimplemented, "this service has no such method".to_owned())),
        }
    }

    /// What a browser asks before a page of another origin may call.
    fn preflight(&self) -> Response {
        let mut headers = cross_origin();
        headers.push(("Access-Control-Allow-Methods", Cow::Borrowed("POST")));
        headers.push(("Access-Control-Max-Age", Cow::Borrowed("600")));
        let is_list = |names: &&str| {
            let is_name = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b',' | b' ');
            names.len() <= NAMES_BYTES_MAX && names.bytes().all(is_name)
        };
        // As they were asked for: a star would not stand for all of them in every browser.
        if let Some(names) = self.request.header("access-control-request-headers").filter(is_list) {
            headers.push(("Access-Control-Allow-Headers", Cow::Owned(names.to_owned())));
        }
        if self.request.header("access-control-request-private-network") == Some("true") {
            headers.push(("Access-Control-Allow-Private-Network", Cow::Borrowed("true")));
        }
        Response { status: 204, headers, body: Cow::Borrowed(b"") }
    }
}

/// Whether the frames travel as text; `None` when this is another protocol.
fn encoding(content_type: &str) -> Option<bool> {
    match content_type.split(';').next().unwrap_or_default().trim() {
        "application/grpc-web" | "application/grpc-web+proto" => Some(false),
        "application/grpc-web-text" | "application/grpc-web-text+proto" => Some(true),
        _ => None,
    }
}

fn cross_origin() -> Vec<(&'static str, Cow<'static, str>)> {
    vec![
        ("Access-Control-Allow-Origin", Cow::Borrowed("*")),
        ("Access-Control-Expose-Headers", Cow::Borrowed("grpc-status, grpc-message, grpc-status-details-bin")),
    ]
}

fn frame(flag: u8, content: &[u8]) -> Vec<u8> {
    let length = u32::try_from(content.len()).unwrap_or(u32::MAX).to_be_bytes();
    [&[flag], &length[..], content].concat()
}

/// The last frame.
fn status(code: Code, sentence: &str) -> Vec<u8> {
    let mut lines = format!("grpc-status:{}\r\n", code as u8);
    if !sentence.is_empty() {
        lines.push_str("grpc-message:");
        for byte in sentence.bytes() {
            match byte {
                b'%' | ..b' ' | b'~'.. => lines.push_str(&format!("%{byte:02X}")),
                plain => lines.push(char::from(plain)),
            }
        }
        lines.push_str("\r\n");
    }
    frame(0x80, lines.as_bytes())
}

fn read<M: Message + Default>(message: &[u8]) -> Result<M, Trouble> {
    M::decode(message).map_err(|_| Trouble::argument("the message cannot be read"))
}

/// A name as the messages can carry it.
fn shown(ssid: &Ssid) -> Cow<'_, str> {
    String::from_utf8_lossy(ssid.bytes())
}

fn network(seen: &Seen, welcome: &Welcome) -> NetworkInfo {
    NetworkInfo {
        r#type: WIFI.to_owned(),
        ssid: shown(&seen.ssid).into_owned(),
        security: security(seen.security).to_owned(),
        signal: i32::from(seen.signal),
        connected: welcome.joined.as_ref() == Some(&seen.ssid),
        last_error: match &welcome.attempt {
            Some(Attempt { ssid, result: Outcome::Failed(reason), .. }) if *ssid == seen.ssid => reason.to_string(),
            _ => String::new(),
        },
    }
}

fn machine_status(welcome: &Welcome) -> GetSmartMachineStatusResponse {
    let attempt = welcome.attempt.as_ref().map(|Attempt { ssid, result, .. }| {
        let seen = welcome.networks.iter().find(|seen| seen.ssid == *ssid);
        let connected = matches!(result, Outcome::Joined { .. });
        let info = seen.map_or_else(
            || NetworkInfo { r#type: WIFI.to_owned(), ssid: shown(ssid).into_owned(), ..NetworkInfo::default() },
            |seen| network(seen, welcome),
        );
        let last_error = match result {
            Outcome::Failed(reason) => reason.to_string(),
            Outcome::Trying | Outcome::Joined { .. } => String::new(),
        };
        NetworkInfo { connected, last_error, ..info }
    });
    let failed = attempt.as_ref().map(|attempt| attempt.last_error.clone()).filter(|error| !error.is_empty());
    GetSmartMachineStatusResponse {
        provisioning_info: Some(ProvisioningInfo {
            fragment_id: welcome.fragment_id.as_deref().unwrap_or_default().to_owned(),
            model: welcome.model.to_string(),
            manufacturer: welcome.manufacturer.to_string(),
        }),
        has_smart_machine_credentials: welcome.has_identity,
        is_online: welcome.online,
        latest_connection_attempt: attempt,
        errors: failed.into_iter().chain(welcome.complaints.iter().map(ToString::to_string)).collect(),
        agent_version: welcome.agent_version.to_string(),
    }
}

fn identity(cloud: CloudConfig) -> Result<Identity, &'static str> {
    let CloudConfig { id, secret, app_address, api_key } = cloud;
    if app_address.is_empty() || id.is_empty() {
        return Err("credentials have an app_address and an id");
    }
    let proof = match api_key.filter(|key| !key.id.is_empty() || !key.key.is_empty()) {
        Some(key) if key.id.is_empty() || key.key.is_empty() => return Err("an API key has an id and a key"),
        Some(key) => Proof::ApiKey { id: key.id, key: key.key.into() },
        None if secret.is_empty() => return Err("credentials have a secret or an API key"),
        None => Proof::Secret(secret.into()),
    };
    Ok(Identity { app_address, part_id: id, proof })
}

/// The words that existing apps show.
const fn security(security: Security) -> &'static str {
    match security {
        Security::Open => "-",
        Security::EnhancedOpen => "OWE",
        Security::Wep => "WEP",
        Security::Wpa => "WPA1",
        Security::Wpa2 => "WPA2",
        Security::Wpa2Wpa3 => "WPA2 WPA3",
        Security::Wpa3 => "WPA3",
        Security::Enterprise => "802.1X",
    }
}
