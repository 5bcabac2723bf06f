//! The fleet server with a few parts, beside a bare echo and the raw database engine; and what it takes of memory.

use std::{path::Path, sync::Arc, time::SystemTime};

use api::{
    client::Client,
    pb::platform::common::v1::LogEntry,
    pb::proto::rpc::v1::{AuthenticateRequest, Credentials, auth_service},
};
use limits::load::CONNECTIONS;
use prost_types::Timestamp;
use test_harness::real::{
    device::Device,
    fleet::{Fleet, call, init},
};

use crate::{
    Trouble,
    rounds::{self, Callers},
    table::Table,
    yardsticks::Yardsticks,
};

/// Rows of the raw database: enough not to fit into a processor's cache.
const RAW_ROWS: u64 = 100_000;

/// Measures limits and operations and adds a row for each.
pub(crate) async fn measure(folder: &Path, secs: u64, table: &mut Table) -> Result<(), Trouble> {
    let mut yardsticks = Yardsticks::start(folder, RAW_ROWS)?;
    let data = folder.join("fleet");
    // One key asks as fast as it can.
    let fleet = Fleet::start_with(&data, "127.0.0.1:0", None, &folder.join("fleet.log"), &["--calls-per-key", "0"])?;
    let owner = init(&data, None)?;
    let client = fleet.client(&owner)?;
    let idle = resident_mb(fleet.process.pid());
    table.row("fleet server, idle RSS", format!("{idle:.1} MB"), "≤ 40 MB", "after start, one organization");
    crate::idle::measure(&fleet, table)?;

    let mut devices = Vec::new();
    let mut parts = Vec::new();
    for number in 0..CONNECTIONS {
        let device =
            Device::create(&client, &owner.organization_id, &format!("hall {number}"), &format!("machine-{number}"))?;
        device.configure(&client, &sample_config(0))?;
        let token = token(&client, &device.part_id, "robot-secret", device.part_secret.expose())?;
        devices.push((device.part_id.clone(), token));
        parts.push((device.part_id, device.part_name));
    }
    let person = token(&client, &owner.key_id, "api-key", owner.key.expose())?;
    let any = Arc::new(move |connection: u64, _| parts[connection as usize % CONNECTIONS].clone());
    rounds::measure(&fleet, &mut yardsticks, &Callers { devices, person, any }, secs, "", table).await?;
    let after = resident_mb(fleet.process.pid());
    table.row(
        "fleet server, RSS after all that",
        format!("{after:.1} MB"),
        "",
        format!("{CONNECTIONS} parts, connections closed"),
    );
    fleet.process.stop()?;
    Ok(())
}

pub(crate) fn token(client: &Client, entity: &str, r#type: &str, payload: &str) -> Result<String, Trouble> {
    let credentials = Credentials { r#type: r#type.to_owned(), payload: payload.to_owned() };
    let request = AuthenticateRequest { entity: entity.to_owned(), credentials: Some(credentials) };
    Ok(call(client, auth_service::AUTHENTICATE, &request)?.access_token)
}

/// A configuration of an ordinary size, different for each `edition`.
pub(crate) fn sample_config(edition: u64) -> serde_json::Value {
    let component = |number: u64| {
        serde_json::json!({
            "name": format!("motor-{number}"), "api": "rdk:component:motor", "model": "acme:motors:stepper",
            "attributes": {"pins": {"step": number, "direction": number + 1}, "ticks_per_rotation": 200}
        })
    };
    serde_json::json!({
        "components": (0..4).map(component).collect::<Vec<_>>(),
        "agent": {"advanced_settings": {"platform_server_env": {"EDITION": edition.to_string()}}}
    })
}

pub(crate) fn log_entry(call: u64, entry: usize) -> LogEntry {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    LogEntry {
        host: "bench".into(),
        level: "info".into(),
        time: Some(Timestamp { seconds: since.as_secs() as i64, nanos: since.subsec_nanos() as i32 }),
        logger_name: "platform-server.motor".into(),
        message: format!("call {call} entry {entry}: a log line of an ordinary length, some eighty bytes of text"),
        ..Default::default()
    }
}

pub(crate) fn resident_mb(pid: u32) -> f64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.split_whitespace().next()?.parse::<f64>().ok()).unwrap_or(f64::NAN) / 1024.0
}
