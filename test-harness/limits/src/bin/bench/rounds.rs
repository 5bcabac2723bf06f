//! The four operations that decide what a fleet costs, beside what transport and database do alone.
//!
//! The goal of an operation is a part of the composite limit `1/(1/echo + reads/R + writes/W)`: what a server could do
//! per second of CPU time if transport and database were all there is. `reads` and `writes` are the statements of a call
//! as the store counts them; R and W come from the very driver and engine it uses. W is a transaction of one statement, so
//! a store that puts many writes into one commit has an easier time than the limit supposes: the same figure with
//! transactions instead of statements stands beside it.
//!
//! A machine is not equally fast for two seconds together. So limits and operations take turns, in short rounds, the order
//! reversed in every second one; a figure is the median of what the rounds say, each by its own limits, and how far they
//! lie apart stands beside it. The first round is not counted: it fills the caches.

use std::{sync::Arc, time::Duration};

use api::pb::platform::app::{
    agent::v1::{DeviceAgentConfigRequest, DeviceAgentConfigResponse, agent_device_service},
    v1::{
        GetRobotPartRequest, GetRobotPartResponse, LogRequest, LogResponse, UpdateRobotPartRequest,
        UpdateRobotPartResponse, app_service, robot_service,
    },
};
use limits::load::{self, CONNECTIONS, Loop, Outcome};
use test_harness::real::fleet::Fleet;

use crate::{
    Trouble,
    fleet::{log_entry, sample_config},
    table::{Table, rounded},
    yardsticks::{Limits, Yardsticks},
};

/// Rounds that count; odd, so that one of them is the middle.
const ROUNDS: u64 = 7;
/// Before each turn: connections are made, and the processor has its clock.
const WARM_UP: Duration = Duration::from_millis(200);
/// Entries of one log call.
const LOG_ENTRIES: usize = 100;
/// Calls of a connection in one round are fewer: no round repeats what another one asked.
const CALLS_PER_ROUND: u64 = 1_000_000;

/// Who calls, and about what.
pub(crate) struct Callers {
    /// Of the device on each connection: its part and its token.
    pub(crate) devices: Vec<(String, String)>,
    /// Of somebody who looks and changes.
    pub(crate) person: String,
    /// What the n-th call of a connection is about: a part's id and name.
    pub(crate) any: Arc<dyn Fn(u64, u64) -> (String, String) + Send + Sync>,
}

/// What the rounds say of an operation: its part of the limit.
#[derive(Clone, Copy)]
pub(crate) struct Figure {
    pub(crate) median: f64,
    pub(crate) least: f64,
    pub(crate) most: f64,
}

/// One turn of an operation.
struct Turn {
    outcome: Outcome,
    spent: Statements,
    limits: Limits,
}

/// Statements that the store has run.
#[derive(Clone, Copy, Default)]
struct Statements {
    reads: f64,
    writes: f64,
    commits: f64,
}

#[derive(Clone, Copy, PartialEq)]
enum Operation {
    Heartbeat,
    Get,
    Update,
    Log,
}

const OPERATIONS: [Operation; 4] = [Operation::Heartbeat, Operation::Get, Operation::Update, Operation::Log];

/// Names of the four, in the order of the figures.
pub(crate) const NAMES: [&str; 4] = ["heartbeat", "GetRobotPart", "UpdateRobotPart", "Log"];

/// Measures all four and adds a row for each, and for the limits. `secs` is how long each is measured, all rounds together.
pub(crate) async fn measure(
    fleet: &Fleet,
    yardsticks: &mut Yardsticks,
    callers: &Callers,
    secs: u64,
    of: &str,
    table: &mut Table,
) -> Result<[Figure; 4], Trouble> {
    let length = Duration::from_secs(secs) / ROUNDS as u32;
    let mut turns: [Vec<Turn>; 4] = Default::default();
    for round in 0..=ROUNDS {
        let limits = if round % 2 == 0 { Some(yardsticks.measure(WARM_UP, length).await?) } else { None };
        let mut seen = Vec::new();
        for place in 0..OPERATIONS.len() {
            let place = if round % 2 == 0 { place } else { OPERATIONS.len() - 1 - place };
            seen.push((place, turn(fleet, callers, OPERATIONS[place], round, length).await?));
        }
        let limits = match limits {
            Some(limits) => limits,
            None => yardsticks.measure(WARM_UP, length).await?,
        };
        if round > 0 {
            seen.into_iter().for_each(|(place, (outcome, spent))| turns[place].push(Turn { outcome, spent, limits }));
        }
    }
    limit_rows(of, &turns[0], table);
    Ok(std::array::from_fn(|place| report(OPERATIONS[place], of, &turns[place], table)))
}

async fn turn(
    fleet: &Fleet,
    callers: &Callers,
    operation: Operation,
    round: u64,
    length: Duration,
) -> Result<(Outcome, Statements), Trouble> {
    // A device is one connection; who looks and changes does so everywhere.
    let connections = || (0..).zip(callers.devices.iter().cloned());
    let person = || Some(callers.person.clone());
    let number = move |call: u64| round * CALLS_PER_ROUND + call;
    match operation {
        Operation::Heartbeat => {
            let loops = connections().map(|(_, (id, token)): (u64, _)| {
                let request = move |_| DeviceAgentConfigRequest { id: id.clone(), ..Default::default() };
                Loop { bearer: Some(token), request: Box::new(request) as _ }
            });
            let path = agent_device_service::DEVICE_AGENT_CONFIG.path;
            run::<_, DeviceAgentConfigResponse>(fleet, path, loops.collect(), length).await
        }
        Operation::Get => {
            let loops = connections().map(|(connection, _)| {
                let any = callers.any.clone();
                let request = move |call| GetRobotPartRequest { id: any(connection, number(call)).0 };
                Loop { bearer: person(), request: Box::new(request) as _ }
            });
            run::<_, GetRobotPartResponse>(fleet, app_service::GET_ROBOT_PART.path, loops.collect(), length).await
        }
        Operation::Update => {
            let loops = connections().map(|(connection, _)| {
                let any = callers.any.clone();
                let request = move |call| {
                    // Others than those that were looked at, and nobody writes what is there already.
                    let number = number(call) + CALLS_PER_ROUND / 2;
                    let (id, name) = any(connection, number);
                    let config = sample_config(number * CONNECTIONS as u64 + connection).to_string();
                    UpdateRobotPartRequest { id, name, robot_config_json: Some(config), ..Default::default() }
                };
                Loop { bearer: person(), request: Box::new(request) as _ }
            });
            let path = app_service::UPDATE_ROBOT_PART.path;
            run::<_, UpdateRobotPartResponse>(fleet, path, loops.collect(), length).await
        }
        Operation::Log => {
            let loops = connections().map(|(_, (id, token)): (u64, _)| {
                let request = move |call| {
                    let logs = (0..LOG_ENTRIES).map(|entry| log_entry(number(call), entry)).collect();
                    LogRequest { id: id.clone(), logs }
                };
                Loop { bearer: Some(token), request: Box::new(request) as _ }
            });
            run::<_, LogResponse>(fleet, robot_service::LOG.path, loops.collect(), length).await
        }
    }
}

/// One operation, with the statements it cost in all.
async fn run<Q, A>(
    fleet: &Fleet,
    path: &'static str,
    loops: Vec<Loop<Q>>,
    length: Duration,
) -> Result<(Outcome, Statements), Trouble>
where
    Q: prost::Message + 'static,
    A: prost::Message + Default + 'static,
{
    let mut edges = Vec::new();
    let url = fleet.url.as_str();
    let outcome = load::run::<Q, A>(url, path, loops, (WARM_UP, length), fleet.process.pid(), async || {
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

impl Turn {
    fn calls(&self) -> f64 {
        (self.outcome.calls as f64).max(1.0)
    }

    /// What a call that needs so many statements that write would reach.
    fn limit(&self, writes: f64) -> f64 {
        let Limits { echo, reads, writes: write, .. } = self.limits;
        1.0 / (1.0 / echo + self.spent.reads / self.calls() / reads + writes / self.calls() / write)
    }

    /// The same for a call of log entries, as many rows.
    fn log_limit(&self) -> f64 {
        1.0 / (1.0 / self.limits.echo + LOG_ENTRIES as f64 / self.limits.log_rows)
    }
}

fn limit_rows(of: &str, turns: &[Turn], table: &mut Table) {
    let mut row = |what: &str, limit: fn(&Limits) -> f64, how: &str| {
        let seen = over(turns, |turn| limit(&turn.limits));
        let (least, most) = (rounded(seen.least), rounded(seen.most));
        table.row(&format!("{of}{what} per CPU-second"), rounded(seen.median), "", format!("{how}; {least} to {most}"));
    };
    row("bare echo, calls", |limits| limits.echo, "64 connections, 256 bytes");
    row("raw point reads", |limits| limits.reads, "R");
    row("raw one-row transactions", |limits| limits.writes, "W");
    row("raw log rows", |limits| limits.log_rows, "transactions of 100 rows");
}

fn report(operation: Operation, of: &str, turns: &[Turn], table: &mut Table) -> Figure {
    let (what, goal) = match operation {
        Operation::Heartbeat => ("heartbeat (DeviceAgentConfig unchanged), calls", "≥ 50 %"),
        Operation::Get => ("GetRobotPart, calls", "≥ 50 %"),
        Operation::Update => ("UpdateRobotPart, calls", "≥ 40 %"),
        Operation::Log => ("log entries (Log, 100 entries)", "≥ 60 %"),
    };
    let is_log = operation == Operation::Log;
    let limit = |turn: &Turn| if is_log { turn.log_limit() } else { turn.limit(turn.spent.writes) };
    let figure = over(turns, |turn| turn.outcome.per_cpu_second() / limit(turn));
    let strict = over(turns, |turn| {
        let Limits { echo, writes, .. } = turn.limits;
        let limit = match is_log {
            true => 1.0 / (1.0 / echo + turn.spent.writes / turn.calls() / writes),
            false => turn.limit(turn.spent.commits),
        };
        turn.outcome.per_cpu_second() / limit
    });
    let each = |count: fn(&Turn) -> f64| over(turns, |turn| count(turn) / turn.calls()).median;
    let entries = if is_log { LOG_ENTRIES as f64 } else { 1.0 };
    let reads = if is_log { String::new() } else { format!("{:.2} reads, ", each(|turn| turn.spent.reads)) };
    table.row(
        &format!("{of}{what} per CPU-second"),
        format!(
            "{} = {:.0} % of the limit",
            rounded(entries * over(turns, |turn| turn.outcome.per_cpu_second()).median),
            100.0 * figure.median
        ),
        goal,
        format!(
            "{:.0} to {:.0} % in {} rounds; limit {}; {reads}{:.2} writes and {:.3} commits a call ({:.0} % {}); {} calls a \
             second",
            100.0 * figure.least,
            100.0 * figure.most,
            turns.len(),
            rounded(entries * over(turns, limit).median),
            each(|turn| turn.spent.writes),
            each(|turn| turn.spent.commits),
            100.0 * strict.median,
            if is_log { "of echo and those writes" } else { "with commits for writes" },
            rounded(over(turns, |turn| turn.calls() / turn.outcome.wall_s).median),
        ),
    );
    figure
}

fn over(turns: &[Turn], of: impl Fn(&Turn) -> f64) -> Figure {
    let mut all: Vec<f64> = turns.iter().map(of).collect();
    all.sort_by(f64::total_cmp);
    let at = |place: usize| all.get(place).copied().unwrap_or(f64::NAN);
    Figure { median: at(all.len() / 2), least: at(0), most: at(all.len().saturating_sub(1)) }
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
