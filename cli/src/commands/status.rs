//! `machine status`: what the devices of a machine say about themselves, problems first.

use api::{
    client::Code,
    pb::platform::{
        app::v1 as app,
        fleet::v1::{self as fleet, admin_service},
    },
    report,
};
use serde_json::Value;

use super::machine::online;
use crate::{
    failure::Failure,
    find,
    output::{Output, json_of, plain},
    session::Session,
    when::ago,
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
    // Not only a device's own word: the server complains of a configuration that never reached one.
    let unsaid = fleet::DeviceStatus::default();
    let device = status.status.as_ref().unwrap_or(&unsaid);
    if status.reported_at.is_some() {
        lines.extend(report::facts(device));
        lines.push(("reported", ago(status.reported_at.as_ref())));
    } else {
        lines.push(("device", "has not reported yet".to_owned()));
    }
    output.facts(&lines)?;
    for trouble in report::troubles(device) {
        output.line(&format!("! {}", plain(&trouble)))?;
    }
    Ok(())
}
