//! A fleet server that fits on a page: one organization, as much as the commands ask for, kept in memory.

#![allow(unreachable_pub, reason = "a module of a test, not of a library")]

mod registry;

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex},
};

use api::pb::{
    platform::{
        app::v1::{self as app, OnlineState},
        common::v1::LogEntry,
        fleet::v1 as fleet,
    },
    proto::rpc::v1 as auth,
};
use prost::Message;
use prost_types::Timestamp;

use crate::server::{CLOSE, Line, Request, Server, answer, begin, message, piece, status, trailers_only};

pub const ORGANIZATION: &str = "0a000000-0000-4000-8000-000000000001";
pub const PLANT: &str = "0a000000-0000-4000-8000-000000000002";
pub const LAB: &str = "0a000000-0000-4000-8000-000000000003";
pub const ROVER: &str = "0a000000-0000-4000-8000-000000000004";
pub const ROVER_MAIN: &str = "0a000000-0000-4000-8000-000000000005";
pub const ARM: &str = "0a000000-0000-4000-8000-000000000006";
pub const ARM_MAIN: &str = "0a000000-0000-4000-8000-000000000007";
pub const KEY_ID: &str = "0a000000-0000-4000-8000-000000000008";

/// What the server knows.
#[derive(Default)]
pub struct State {
    /// Only the rover, or also an arm of the same name elsewhere.
    pub two_machines: bool,
    pub config: String,
    pub revision: i64,
    /// Somebody else changes the part just before each of the next so many writes.
    pub rivals: u32,
    pub marked: bool,
    pub logs: Vec<LogEntry>,
    /// What each further stream of the log does.
    pub tails: VecDeque<Tail>,
    pub status: Option<fleet::DeviceStatus>,
    /// When the device said so, if it was the device.
    pub reported_at: Option<Timestamp>,
    pub audit: Vec<fleet::AuditEvent>,
    pub fragments: Vec<app::Fragment>,
    pub registry: registry::Registry,
    /// Operations that are not known here answer with nothing in it.
    pub lenient: bool,
    /// Operations that are refused with this code.
    pub refused: Option<(&'static str, i32)>,
}

/// One stream: these lines, then this end.
pub struct Tail {
    pub lines: Vec<LogEntry>,
    /// Appears in the log, but not in the stream, after the end.
    pub missed: Vec<LogEntry>,
    pub end: End,
}

pub enum End {
    Break,
    Status(i32),
}

pub struct Fleet {
    pub server: Server,
    pub state: Arc<Mutex<State>>,
}

pub fn time(seconds: i64) -> Option<Timestamp> {
    Some(Timestamp { seconds: 1_700_000_000 + seconds, nanos: 500_000_000 })
}

pub fn log(seconds: i64, level: &str, message: &str) -> LogEntry {
    LogEntry {
        level: level.into(),
        time: time(seconds),
        logger_name: "rover.server".into(),
        message: message.into(),
        ..Default::default()
    }
}

impl Fleet {
    pub fn start() -> Self {
        let state = Arc::new(Mutex::new(State {
            config: r#"{"components": [], "agent": {"advanced_settings": {"debug": true}}}"#.into(),
            ..State::default()
        }));
        let there = state.clone();
        Self { server: Server::start(move |request, line| serve(&mut there.lock().unwrap(), request, line)), state }
    }

    pub fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }
}

fn serve(state: &mut State, request: &Request, line: &mut dyn Line) {
    if request.line.starts_with("GET /packages/v1/") {
        return registry::download(&state.registry, request, line);
    }
    if request.line == "GET /sign-in" {
        // As a server without an identity provider does.
        let page = "<h1>Sign in</h1><p>This server has no identity provider: sign in with an API key.</p>";
        let head = "HTTP/1.1 404 Not Found\r\ncontent-type: text/html; charset=utf-8\r\n";
        return write!(line, "{head}content-length: {}\r\n\r\n{page}", page.len()).unwrap();
    }
    let method = request.line.rsplit('/').next().unwrap();
    if method == "Authenticate" {
        let credentials = read::<auth::AuthenticateRequest>(request).credentials.unwrap();
        return match credentials.payload.as_str() {
            "right" => reply(line, &auth::AuthenticateResponse { access_token: "token".into() }),
            _ => trailers_only(line, 16, "no%20such%20key"),
        };
    }
    if request.header("authorization") != Some("Bearer token") {
        return trailers_only(line, 16, "no%20token");
    }
    if let Some((refused, code)) = state.refused
        && refused == method
    {
        return trailers_only(line, code, "refused%20for%20the%20test");
    }
    match method {
        "ListOrganizations" => reply(line, &app::ListOrganizationsResponse { organizations: vec![organization()] }),
        "CreateOrganization" => {
            let name = read::<app::CreateOrganizationRequest>(request).name;
            reply(
                line,
                &app::CreateOrganizationResponse { organization: Some(app::Organization { name, ..organization() }) },
            );
        }
        "ListLocations" => {
            reply(line, &app::ListLocationsResponse { locations: vec![location(PLANT, "plant"), location(LAB, "lab")] })
        }
        "GetLocation" => reply(line, &app::GetLocationResponse { location: Some(location(PLANT, "plant")) }),
        "CreateLocation" => {
            let name = read::<app::CreateLocationRequest>(request).name;
            reply(line, &app::CreateLocationResponse { location: Some(location(LAB, &name)) });
        }
        "ListRobots" => {
            let robots = match read::<app::ListRobotsRequest>(request).location_id.as_str() {
                PLANT => vec![robot(ROVER, PLANT, OnlineState::Online)],
                LAB if state.two_machines => vec![robot(ARM, LAB, OnlineState::AwaitingSetup)],
                _ => vec![],
            };
            reply(line, &app::ListRobotsResponse { robots });
        }
        "GetRobot" => reply(line, &app::GetRobotResponse { robot: Some(robot(ROVER, PLANT, OnlineState::Online)) }),
        "NewRobot" => reply(line, &app::NewRobotResponse { id: ARM.into() }),
        "GetRobotParts" => {
            let main = match read::<app::GetRobotPartsRequest>(request).robot_id.as_str() {
                ROVER => ROVER_MAIN,
                ARM => ARM_MAIN,
                _ => return trailers_only(line, 5, "no%20such%20machine"),
            };
            reply(line, &app::GetRobotPartsResponse { parts: vec![part(state, main)] });
        }
        "GetRobotPart" => {
            let id = read::<app::GetRobotPartRequest>(request).id;
            if [ROVER, ARM].contains(&id.as_str()) {
                return trailers_only(line, 5, "no%20such%20part");
            }
            let part = part(state, &id);
            reply(line, &app::GetRobotPartResponse { part: Some(part), config_json: state.config.clone() });
        }
        "UpdateRobotPart" => update(state, read(request), line),
        "MarkPartForRestart" => {
            state.marked = true;
            reply(line, &app::MarkPartForRestartResponse {});
        }
        "GetRobotPartHistory" => {
            let by = Some(app::AuthenticatorInfo { value: KEY_ID.into(), ..Default::default() });
            let entry = app::RobotPartHistoryEntry {
                when: time(0),
                edited_by: by,
                old: Some(part(state, ROVER_MAIN)),
                ..Default::default()
            };
            reply(line, &app::GetRobotPartHistoryResponse { history: vec![entry], next_page_token: String::new() });
        }
        "CreateRobotPartSecret" => {
            reply(line, &app::CreateRobotPartSecretResponse { part: Some(part(state, ROVER_MAIN)) })
        }
        "DeleteRobotPartSecret" => reply(line, &app::DeleteRobotPartSecretResponse {}),
        "GetRobotPartLogs" => logs(state, &read(request), line),
        "TailRobotPartLogs" => tail(state, line),
        "GetPartStatus" => {
            let marked = if state.marked { time(0) } else { None };
            let response = fleet::GetPartStatusResponse {
                status: state.status.clone(),
                reported_at: state.reported_at,
                live: true,
                restart_marked_at: marked,
                ..Default::default()
            };
            reply(line, &response);
        }
        "RetryUpdate" => reply(line, &fleet::RetryUpdateResponse {}),
        "GetPartCredentials" => {
            reply(
                line,
                &fleet::GetPartCredentialsResponse { credentials_json: r#"{"cloud": {"secret": "s3cret"}}"#.into() },
            );
        }
        "ListAuditEvents" => audit(state, &read(request), line),
        "ListKeys" => {
            let right = app::AuthorizationDetails {
                authorization_id: "organization_owner".into(),
                resource_id: ORGANIZATION.into(),
                ..Default::default()
            };
            let key =
                app::ApiKey { id: KEY_ID.into(), name: "first".into(), created_on: time(0), ..Default::default() };
            reply(
                line,
                &app::ListKeysResponse {
                    api_keys: vec![app::ApiKeyWithAuthorizations { api_key: Some(key), authorizations: vec![right] }],
                },
            );
        }
        "CreateKey" => reply(line, &app::CreateKeyResponse { key: "fresh".into(), id: KEY_ID.into() }),
        "RotateKey" => reply(line, &app::RotateKeyResponse { key: "fresher".into(), id: KEY_ID.into() }),
        "DeleteKey" => reply(line, &app::DeleteKeyResponse {}),
        "ListFragments" => {
            reply(line, &app::ListFragmentsResponse { fragments: state.fragments.clone(), fragment_usages: vec![] })
        }
        "CreateFragment" => {
            let request: app::CreateFragmentRequest = read(request);
            let fragment = app::Fragment {
                id: LAB.into(),
                name: request.name,
                fragment: request.config,
                organization_owner: request.organization_id,
                revision: "1".into(),
                last_updated: time(0),
                ..Default::default()
            };
            state.fragments.push(fragment.clone());
            reply(line, &app::CreateFragmentResponse { fragment: Some(fragment) });
        }
        "GetFragment" => {
            reply(line, &app::GetFragmentResponse { fragment: state.fragments.first().cloned(), ..Default::default() })
        }
        other if registry::serve(&mut state.registry, other, request, line) => {}
        "GetOrganization" => reply(line, &app::GetOrganizationResponse { organization: Some(organization()) }),
        _ if state.lenient => reply(line, &app::DeleteKeyResponse {}),
        other => trailers_only(line, 12, &format!("{other}%20is%20not%20offered")),
    }
}

fn update(state: &mut State, request: app::UpdateRobotPartRequest, line: &mut dyn Line) {
    if state.rivals > 0 {
        state.rivals -= 1;
        state.revision += 1;
    }
    if request.last_known_update.is_some() && request.last_known_update != time(state.revision) {
        return trailers_only(line, 10, "the%20part%20was%20changed%20meanwhile");
    }
    if let Some(config) = request.robot_config_json {
        state.config = config;
    }
    state.revision += 1;
    reply(
        line,
        &app::UpdateRobotPartResponse { part: Some(app::RobotPart { name: request.name, ..part(state, &request.id) }) },
    );
}

fn logs(state: &State, request: &app::GetRobotPartLogsRequest, line: &mut dyn Line) {
    let wanted = |entry: &&LogEntry| {
        (request.levels.is_empty() || request.levels.contains(&entry.level))
            && request.filter.as_ref().is_none_or(|text| entry.message.contains(text))
            && request.start.is_none_or(|start| entry.time.is_some_and(|time| time.seconds >= start.seconds))
    };
    let mut found: Vec<LogEntry> = state.logs.iter().filter(wanted).cloned().collect();
    if request.order() == app::LogOrder::Descending {
        found.reverse();
    }
    // Pages of two, so that paging is always exercised.
    let from: usize = request.page_token.as_deref().unwrap_or("0").parse().unwrap();
    let size = usize::try_from(request.limit.unwrap_or(2)).unwrap().min(2);
    let next = if from + size < found.len() { (from + size).to_string() } else { String::new() };
    let logs = found.into_iter().skip(from).take(size).collect();
    reply(line, &app::GetRobotPartLogsResponse { logs, next_page_token: next });
}

fn tail(state: &mut State, line: &mut dyn Line) {
    let Some(tail) = state.tails.pop_front() else { return trailers_only(line, 5, "the%20part%20is%20gone") };
    begin(line);
    for entry in &tail.lines {
        piece(line, &message(&app::TailRobotPartLogsResponse { logs: vec![entry.clone()] }));
    }
    state.logs.extend(tail.lines.into_iter().chain(tail.missed));
    match tail.end {
        End::Break => line.write_all(CLOSE).unwrap(),
        End::Status(code) => {
            piece(line, &status(code, ""));
            piece(line, b"");
        }
    }
}

fn audit(state: &State, request: &fleet::ListAuditEventsRequest, line: &mut dyn Line) {
    let from: usize = request.page_token.parse().unwrap_or(0);
    let size = usize::try_from(request.limit).unwrap().min(2);
    let events = state.audit.iter().skip(from).take(size).cloned().collect();
    let next_page_token = if from + size < state.audit.len() { (from + size).to_string() } else { String::new() };
    reply(line, &fleet::ListAuditEventsResponse { events, next_page_token });
}

fn organization() -> app::Organization {
    app::Organization { id: ORGANIZATION.into(), name: "acme".into(), created_on: time(0), ..Default::default() }
}

fn location(id: &str, name: &str) -> app::Location {
    let secret = app::SharedSecret { secret: "location-s3cret".into(), ..Default::default() };
    let auth = Some(app::LocationAuth { secrets: vec![secret], ..Default::default() });
    app::Location { id: id.into(), name: name.into(), robot_count: 1, auth, created_on: time(0), ..Default::default() }
}

fn robot(id: &str, location: &str, state: OnlineState) -> app::Robot {
    app::Robot {
        id: id.into(),
        name: "rover".into(),
        location: location.into(),
        online_state: state.into(),
        created_on: time(0),
        ..Default::default()
    }
}

fn part(state: &State, id: &str) -> app::RobotPart {
    let secret = app::SharedSecret { id: KEY_ID.into(), secret: "part-s3cret".into(), created_on: time(0), state: 1 };
    app::RobotPart {
        id: id.into(),
        name: if id == ARM_MAIN { "arm-main" } else { "rover-main" }.into(),
        secret: "part-s3cret".into(),
        secrets: vec![secret],
        robot: ROVER.into(),
        main_part: true,
        online_state: OnlineState::Online.into(),
        created_on: time(0),
        last_updated: time(state.revision),
        robot_config_json: Some(state.config.clone()),
        ..Default::default()
    }
}

fn read<M: Message + Default>(request: &Request) -> M {
    request.messages().remove(0)
}

fn reply(line: &mut dyn Line, response: &impl Message) {
    answer(line, &[message(response), status(0, "")]);
}
