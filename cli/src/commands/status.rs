//! `machine status`: what the devices of a machine say about themselves, problems first.

use std::time::Duration;

use api::{
    client::Code,
    pb::platform::{
        app::v1 as app,
        fleet::v1::{self as fleet, Product, admin_service, server_status, update_status},
    },
};
use serde_json::Value;

use super::machine::online;
use crate::{
    failure::Failure,
    find,
    output::{Output, json_of, plain},
    session::Session,
    when::{ago, span},
};

/// Prints every part of the machine.
pub(super) fn show(session: &Session, machine: &app::Robot, output: &mut Output) -> Result<(), Failure> {
    let mut documents = Vec::new();
    for (number, part) in find::parts(session, &machine.id)?.into_iter().enumerate() {
        let request = fleet::GetPartStatusRequest { part_id: part.id.clone() };
        let status = match session.ask("could not read the status", admin_service::GET_PART_STATUS, &request) {
            Ok(status) => status,
            // A server of another make still knows when the part was last seen.
            Err(failure) if failure.code() == Some(Code::Unimplemented) => fleet::GetPartStatusResponse {
                last_access: part.last_access,
                live: part.online_state == i32::from(app::OnlineState::Online),
                ..Default::default()
            },
            Err(failure) => return Err(failure),
        };
        if output.is_json() {
            let mut document = json_of(&status);
            if let Some(document) = document.as_object_mut() {
                document.insert("part_id".to_owned(), part.id.into());
                document.insert("part_name".to_owned(), part.name.into());
                document.insert("main_part".to_owned(), part.main_part.into());
            }
            documents.push(document);
            continue;
        }
        if number > 0 {
            output.line("")?;
        }
        print(output, machine, &part, &status)?;
    }
    if output.is_json() { output.json(&Value::Array(documents)) } else { Ok(()) }
}

fn print(
    output: &mut Output,
    machine: &app::Robot,
    part: &app::RobotPart,
    status: &fleet::GetPartStatusResponse,
) -> Result<(), Failure> {
    let state = if status.live { "live".to_owned() } else { online(part.online_state, status.last_access.as_ref()) };
    let mut lines =
        vec![("machine", machine.name.clone()), ("part", format!("{}  {}", part.name, part.id)), ("state", state)];
    if status.restart_marked_at.is_some() {
        lines.push(("restart", format!("marked {}, not done yet", ago(status.restart_marked_at.as_ref()))));
    }
    let Some(device) = &status.status else {
        lines.push(("device", "has not reported yet".to_owned()));
        return output.facts(&lines);
    };
    lines.push((
        "device",
        format!("{} on {}, up {}", device.hostname, device.platform, span(Duration::from_secs(device.uptime_seconds))),
    ));
    lines.push((
        "agent",
        format!("{}, up {}", device.agent_version, span(Duration::from_secs(device.agent_uptime_seconds))),
    ));
    lines.extend(device.server.iter().flat_map(server));
    lines.extend(device.updates.iter().map(update));
    lines.extend(device.disks.iter().map(|disk| {
        ("disk", format!("{}: {} of {} free", disk.path, bytes(disk.free_bytes), bytes(disk.total_bytes)))
    }));
    if let Some(logs) = device.logs.filter(|logs| logs.queued_bytes > 0 || logs.dropped_lines > 0) {
        lines.push((
            "logs",
            format!("{} waiting to be sent, {} lines lost", bytes(logs.queued_bytes), logs.dropped_lines),
        ));
    }
    lines.push(("reported", ago(status.reported_at.as_ref())));
    output.facts(&lines)?;
    for warning in &device.warnings {
        output.line(&format!("! {}", plain(warning)))?;
    }
    for one in &device.complaints {
        let text = format!("! {}: found {}, allowed is {} ({})", one.path, one.found, one.allowed, one.source);
        output.line(&plain(&text))?;
    }
    Ok(())
}

fn server(server: &fleet::ServerStatus) -> Vec<(&'static str, String)> {
    use server_status::Phase;
    let phase = match server.phase() {
        Phase::Unspecified => "unknown",
        Phase::Disabled => "disabled by configuration",
        Phase::Stopped => "stopped",
        Phase::Starting => "starting",
        Phase::Running => "running",
        Phase::Stopping => "stopping",
        Phase::WaitingToRestart => "waiting before it is started again",
        Phase::NoVersion => "not installed yet",
    };
    let mut text = match server.version.as_str() {
        "" => phase.to_owned(),
        version => format!("{version}, {phase}"),
    };
    if server.pid > 0 {
        text += &format!(" as process {}", server.pid);
    }
    if server.started_at.is_some() {
        text += &format!(", started {}", ago(server.started_at.as_ref()));
    }
    let mut lines = vec![("server", text)];
    if !server.url.is_empty() {
        lines.push(("url", server.url.clone()));
    }
    if server.crashes > 0 || !server.last_exit.is_empty() {
        lines.push((
            "crashes",
            format!("{}, last: {}", server.crashes, if server.last_exit.is_empty() { "-" } else { &server.last_exit }),
        ));
    }
    if !server.restart_pending.is_empty() {
        lines.push(("restart", server.restart_pending.clone()));
    }
    lines
}

fn update(update: &fleet::UpdateStatus) -> (&'static str, String) {
    use update_status::Phase;
    let program = match update.product() {
        Product::Agent => "agent",
        Product::MachineServer => "server",
        Product::Unspecified => "program",
    };
    let target = &update.target_version;
    let phase = match update.phase() {
        Phase::Unspecified | Phase::Idle | Phase::Committed => format!("up to date with {:?}", update.wanted),
        Phase::Downloading => format!("downloading {target}, {} %", update.percent),
        Phase::Verifying => format!("verifying {target}"),
        Phase::Staged => format!("{target} is ready and starts with the next restart"),
        Phase::Waiting => format!("{target} waits for the maintenance window"),
        Phase::Switching => format!("switching to {target}"),
        Phase::Probation => format!("{target} is on probation"),
        Phase::RolledBack => "went back to the version before".to_owned(),
    };
    let error = if update.last_error.is_empty() { String::new() } else { format!("; {}", update.last_error) };
    ("update", format!("{program} {phase}{error}"))
}

fn bytes(bytes: u64) -> String {
    const MIB: u64 = 1024 * 1024;
    match bytes {
        0..MIB => format!("{} KiB", bytes / 1024),
        _ if bytes < 10 * 1024 * MIB => format!("{} MiB", bytes / MIB),
        _ => format!("{} GiB", bytes / (1024 * MIB)),
    }
}
