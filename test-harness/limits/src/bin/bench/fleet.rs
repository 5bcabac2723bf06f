//! The fleet server beside a bare echo and the raw database engine.
//!
//! The goal of an operation is a part of the composite limit `1/(1/echo + reads/R + writes/W)`: what a server could do
//! per second of CPU time if transport and database were all there is. `reads` and `writes` are the statements of a call
//! as the store counts them; R and W come from the very driver and engine it uses. W is a transaction of one statement, so
//! a store that puts many writes into one commit has an easier time than the limit supposes: the same figure with
//! transactions instead of statements stands beside it.

use std::{
    io::{BufRead as _, BufReader},
    path::Path,
    process::{Command, Stdio},
    time::{Duration, SystemTime},
};

use api::{
    client::Client,
    pb::platform::{
        app::{
            agent::v1::{DeviceAgentConfigRequest, DeviceAgentConfigResponse, agent_device_service},
            v1::{
                GetRobotPartRequest, GetRobotPartResponse, LogRequest, LogResponse, UpdateRobotPartRequest,
                UpdateRobotPartResponse, app_service, robot_service,
            },
        },
        common::v1::LogEntry,
    },
    pb::proto::rpc::v1::{AuthenticateRequest, Credentials, auth_service},
};
use limits::{
    Msg,
    load::{self, CONNECTIONS, Loop, Outcome},
};
use prost_types::Timestamp;
use test_harness::real::{
    device::Device,
    fleet::{Fleet, call, init},
    programs,
};

use crate::{
    Trouble,
    table::{Table, rounded},
};

/// Entries of one log call.
const LOG_ENTRIES: usize = 100;
/// Rows of the raw database: enough not to fit into a processor's cache.
const RAW_ROWS: u64 = 100_000;

/// What transport and database do alone, per second of CPU time.
pub(crate) struct Limits {
    echo: f64,
    reads: f64,
    writes: f64,
    log_rows: f64,
}

/// Statements that the store has run so far.
#[derive(Clone, Copy, Default)]
pub(crate) struct Statements {
    reads: f64,
    writes: f64,
    commits: f64,
}

/// Measures limits and operations and adds a row for each.
pub(crate) async fn measure(folder: &Path, secs: u64, table: &mut Table) -> Result<(), Trouble> {
    let length = Duration::from_secs(secs);
    let limits = limits(folder, length, RAW_ROWS).await?;
    table.row(
        "bare echo, calls per CPU-second",
        rounded(limits.echo),
        "",
        format!("{CONNECTIONS} connections, 256 bytes"),
    );
    table.row("raw point reads per CPU-second", rounded(limits.reads), "", "R");
    table.row("raw one-row transactions per CPU-second", rounded(limits.writes), "", "W");
    table.row("raw log rows per CPU-second", rounded(limits.log_rows), "", "transactions of 100 rows");

    let data = folder.join("fleet");
    // One key asks as fast as it can.
    let fleet = Fleet::start_with(&data, "127.0.0.1:0", None, &folder.join("fleet.log"), &["--calls-per-key", "0"])?;
    let owner = init(&data, None)?;
    let client = fleet.client(&owner)?;
    let idle = resident_mb(fleet.process.pid());
    table.row("fleet server, idle RSS", format!("{idle:.1} MB"), "≤ 40 MB", "after start, one organization");
    crate::idle::measure(&fleet, table)?;

    let mut devices = Vec::new();
    for number in 0..CONNECTIONS {
        let device =
            Device::create(&client, &owner.organization_id, &format!("hall {number}"), &format!("machine-{number}"))?;
        device.configure(&client, &sample_config(0))?;
        devices.push(device);
    }
    let owner_token = token(&client, &owner.key_id, "api-key", owner.key.expose())?;
    let mut device_tokens = Vec::new();
    for device in &devices {
        device_tokens.push(token(&client, &device.part_id, "robot-secret", device.part_secret.expose())?);
    }
    let bench = Bench { fleet: &fleet, limits: &limits, length };

    let loops = devices.iter().zip(&device_tokens).map(|(device, token)| {
        let id = device.part_id.clone();
        Loop {
            bearer: Some(token.clone()),
            request: Box::new(move |_| DeviceAgentConfigRequest { id: id.clone(), ..Default::default() }),
        }
    });
    let path = agent_device_service::DEVICE_AGENT_CONFIG.path;
    let row = bench.run::<_, DeviceAgentConfigResponse>(path, loops.collect()).await?;
    bench.report(table, "heartbeat (DeviceAgentConfig unchanged)", row, "≥ 50 %");

    let loops = devices.iter().map(|device| {
        let id = device.part_id.clone();
        Loop { bearer: Some(owner_token.clone()), request: Box::new(move |_| GetRobotPartRequest { id: id.clone() }) }
    });
    let path = app_service::GET_ROBOT_PART.path;
    let row = bench.run::<_, GetRobotPartResponse>(path, loops.collect()).await?;
    bench.report(table, "GetRobotPart", row, "≥ 50 %");

    let loops = devices.iter().map(|device| {
        let (id, name) = (device.part_id.clone(), device.part_name.clone());
        let request = move |number: u64| UpdateRobotPartRequest {
            id: id.clone(),
            name: name.clone(),
            robot_config_json: Some(sample_config(number + 1).to_string()),
            ..Default::default()
        };
        Loop { bearer: Some(owner_token.clone()), request: Box::new(request) }
    });
    let path = app_service::UPDATE_ROBOT_PART.path;
    let row = bench.run::<_, UpdateRobotPartResponse>(path, loops.collect()).await?;
    bench.report(table, "UpdateRobotPart", row, "≥ 40 %");

    let loops = devices.iter().zip(&device_tokens).map(|(device, token)| {
        let id = device.part_id.clone();
        let request = move |number: u64| LogRequest {
            id: id.clone(),
            logs: (0..LOG_ENTRIES).map(|entry| log_entry(number, entry)).collect(),
        };
        Loop { bearer: Some(token.clone()), request: Box::new(request) }
    });
    let row = bench.run::<_, LogResponse>(robot_service::LOG.path, loops.collect()).await?;
    bench.report_log(table, "log entries", row);
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

/// A server, and what it is measured by.
pub(crate) struct Bench<'b> {
    pub(crate) fleet: &'b Fleet,
    pub(crate) limits: &'b Limits,
    pub(crate) length: Duration,
}

impl Bench<'_> {
    /// One operation, with the statements it cost in all.
    pub(crate) async fn run<Q, A>(
        &self,
        path: &'static str,
        loops: Vec<Loop<Q>>,
    ) -> Result<(Outcome, Statements), Trouble>
    where
        Q: prost::Message + 'static,
        A: prost::Message + Default + 'static,
    {
        let mut edges = Vec::new();
        let url = self.fleet.url.as_str();
        let outcome = load::run::<Q, A>(url, path, loops, self.length, self.fleet.process.pid(), async || {
            edges.push(statements(url).await);
        })
        .await?;
        let mut edges = edges.into_iter();
        let (before, after) = (edges.next().ok_or("no count")??, edges.next().ok_or("no count")??);
        let spent = Statements {
            reads: after.reads - before.reads,
            writes: after.writes - before.writes,
            commits: after.commits - before.commits,
        };
        Ok((outcome, spent))
    }

    /// A row with the part of the composite limit that was reached, which is returned.
    pub(crate) fn report(
        &self,
        table: &mut Table,
        what: &str,
        (outcome, spent): (Outcome, Statements),
        goal: &str,
    ) -> f64 {
        let calls = (outcome.calls as f64).max(1.0);
        let (reads, writes, commits) = (spent.reads / calls, spent.writes / calls, spent.commits / calls);
        let Limits { echo, reads: read, writes: write, .. } = *self.limits;
        let composite = |writes: f64| 1.0 / (1.0 / echo + reads / read + writes / write);
        let (limit, strict) = (composite(writes), composite(commits));
        let figure = outcome.per_cpu_second();
        table.row(
            &format!("{what}, calls per CPU-second"),
            format!("{} = {:.0} % of the limit", rounded(figure), 100.0 * figure / limit),
            goal,
            format!(
                "limit {}; {reads:.2} reads, {writes:.2} writes and {commits:.3} commits a call ({:.0} % with commits for \
                 writes); {} calls a second",
                rounded(limit),
                100.0 * figure / strict,
                rounded(outcome.calls as f64 / outcome.wall_s)
            ),
        );
        figure / limit
    }

    /// The same for calls of log entries.
    pub(crate) fn report_log(&self, table: &mut Table, what: &str, (outcome, spent): (Outcome, Statements)) -> f64 {
        let (limits, entries, calls) = (self.limits, LOG_ENTRIES as f64, outcome.per_cpu_second());
        let limit = 1.0 / (1.0 / limits.echo + entries / limits.log_rows);
        let (writes, commits) =
            (spent.writes / outcome.calls.max(1) as f64, spent.commits / outcome.calls.max(1) as f64);
        table.row(
            &format!("{what} (Log, 100 entries) per CPU-second"),
            format!("{} = {:.0} % of the limit", rounded(calls * entries), 100.0 * calls / limit),
            "≥ 60 %",
            format!(
                "limit {} entries from echo and raw log rows; {writes:.2} writes and {commits:.3} commits a call ({:.0} % of \
                 echo and those writes)",
                rounded(limit * entries),
                100.0 * calls * (1.0 / limits.echo + writes / limits.writes),
            ),
        );
        calls / limit
    }
}

/// The counts on the server's metrics page.
async fn statements(url: &str) -> Result<Statements, Trouble> {
    let url = format!("{url}/metrics");
    let page = tokio::task::spawn_blocking(move || http_get(&url)).await??;
    let sum = |prefix: &str, holds: &str| -> f64 {
        let lines = page.lines().filter(|line| line.starts_with(prefix) && line.contains(holds));
        lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
    };
    let counted = Statements {
        reads: sum("fleet_store_statements_total", "kind=\"read\""),
        writes: sum("fleet_store_statements_total", "kind=\"write\""),
        commits: sum("fleet_store_commits_total", ""),
    };
    if page.contains("fleet_store_statements_total{") {
        Ok(counted)
    } else {
        Err("the metrics page counts nothing".into())
    }
}

/// A page by HTTP/1.1; only for a server on this machine.
fn http_get(url: &str) -> Result<String, Trouble> {
    use std::io::{Read as _, Write as _};
    let rest = url.strip_prefix("http://").ok_or("not http")?;
    let (host, path) = rest.split_once('/').ok_or("no path")?;
    let mut stream = std::net::TcpStream::connect(host)?;
    write!(stream, "GET /{path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n")?;
    let mut page = String::new();
    stream.read_to_string(&mut page)?;
    Ok(page)
}

/// What transport and database do alone, with a table of that many rows.
pub(crate) async fn limits(folder: &Path, length: Duration, rows: u64) -> Result<Limits, Trouble> {
    let mut server = Command::new(programs::find("echo_server")?).stdout(Stdio::piped()).spawn()?;
    let mut line = String::new();
    BufReader::new(server.stdout.take().ok_or("no output")?).read_line(&mut line)?;
    let url = format!("http://{}", line.trim());
    let loops = (0..CONNECTIONS).map(|_| Loop {
        bearer: None,
        request: Box::new(|seq| Msg { seq, body: vec![7; 256] }) as Box<dyn Fn(u64) -> Msg + Send>,
    });
    let outcome =
        load::run::<Msg, Msg>(&url, "/limits.v1.Echo/Unary", loops.collect(), length, server.id(), async || ()).await;
    server.kill()?;
    server.wait()?;

    let mut raw = Command::new(programs::find("sqlite_limits")?);
    raw.args(["--rows", &rows.to_string(), "--secs", &length.as_secs().clamp(1, 3).to_string(), "--dir"]).arg(folder);
    let raw = raw.output()?;
    let raw = String::from_utf8(raw.stdout)?;
    let figure = |name: &str| -> Result<f64, Trouble> {
        let line = raw.lines().find_map(|line| line.strip_prefix(name));
        Ok(line.ok_or("sqlite_limits left a figure out")?.trim().parse::<f64>()?)
    };
    Ok(Limits {
        echo: outcome?.per_cpu_second(),
        reads: figure("reads_per_cpu_s")?,
        writes: figure("write_transactions_per_cpu_s")?,
        log_rows: figure("log_rows_per_cpu_s")?,
    })
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
