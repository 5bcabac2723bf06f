//! The fleet server with ten, ten thousand and a million machines in its store, and with ten million lines of logs.
//!
//! The store is filled by SQL, in the server's own tables and before it starts, and is on the disk when measuring begins:
//! what is asked is what it costs to have them, not to make them. Each figure is a part of the composite limit measured with
//! a raw table of as many rows, so that what a larger tree costs any engine is taken out; what is left should not depend on
//! the size.

use std::{
    fs::File,
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use api::pb::platform::{
    app::v1::{GetRobotPartLogsRequest, GetRobotPartRequest, LogRequest, app_service, robot_service},
    common::v1::LogEntry,
};
use limits::load::CONNECTIONS;
use prost::Message as _;
use prost_types::Timestamp;
use rusqlite::{Connection, params};
use test_harness::real::fleet::{Fleet, call, init};

use crate::{
    Trouble,
    fleet::{log_entry, sample_config, token},
    rounds::{self, Callers, Figure},
    table::Table,
    yardsticks::Yardsticks,
};

/// Machines in the store, unless others are asked for.
pub(crate) const SIZES: [u64; 3] = [10, 10_000, 1_000_000];
/// Rows of the raw table at least: with ten it would be measured how fast one page is.
const RAW_ROWS_MIN: u64 = 1_000;
/// Parts at least: each connection is another device, also where there are fewer machines, which then have several parts.
const PARTS_MIN: u64 = CONNECTIONS as u64;
/// Of one location.
const MACHINES_PER_LOCATION: u64 = 100;
/// Lines of an ordinary part, and how many parts have them.
const LINES: u64 = 10_000;
const PARTS: u64 = 1_000;
/// Lines of the part that is searched.
const LINES_SEARCHED: u64 = 100_000;
/// Lines of one call, which is one block.
const LINES_PER_BLOCK: u64 = 100;
/// Between two lines.
const MILLIS_PER_LINE: u64 = 10;
/// Calls of which the median is taken.
const CALLS: usize = 200;

/// Adds a row for each operation and size, and one for each operation that compares them.
pub(crate) async fn measure(folder: &Path, secs: u64, sizes: &[u64], table: &mut Table) -> Result<(), Trouble> {
    let mut all: [Vec<Figure>; 4] = Default::default();
    for machines in sizes.iter().copied() {
        let data = folder.join(format!("scale-{machines}"));
        let owner = init(&data, None)?;
        let begin = Instant::now();
        fill(&data.join("state.db"), &owner.organization_id, machines, MACHINES_PER_LOCATION)?;
        println!("filled with {machines} machines in {:.1} s", begin.elapsed().as_secs_f64());
        let raw = folder.join(format!("raw-{machines}"));
        std::fs::create_dir_all(&raw)?;
        let parts = machines.max(PARTS_MIN);
        let mut yardsticks = Yardsticks::start(&raw, parts.max(RAW_ROWS_MIN))?;
        // One key asks as fast as it can.
        let fleet =
            Fleet::start_with(&data, "127.0.0.1:0", None, &folder.join("scale.log"), &["--calls-per-key", "0"])?;
        let client = fleet.client(&owner)?;
        let person = token(&client, &owner.key_id, "api-key", owner.key.expose())?;
        let of_device = |connection: u64| (part(connection * parts / CONNECTIONS as u64), person.clone());
        let callers = Callers {
            devices: (0..CONNECTIONS as u64).map(of_device).collect(),
            person: person.clone(),
            any: Arc::new(move |connection, number| {
                let any = scattered((connection << 40) + number) % parts;
                (part(any), name(any, machines))
            }),
        };
        let of = format!("{machines} machines: ");
        let figures = rounds::measure(&fleet, &mut yardsticks, &callers, secs, &of, table).await?;
        figures.into_iter().zip(&mut all).for_each(|(figure, all)| all.push(figure));
        fleet.process.stop()?;
        drop(yardsticks);
        std::fs::remove_dir_all(&raw)?;
        std::fs::remove_dir_all(&data)?;
    }
    let named = sizes.iter().map(u64::to_string).collect::<Vec<_>>().join(" … ");
    for (what, figures) in rounds::NAMES.iter().zip(&all) {
        let medians = || figures.iter().map(|figure| figure.median);
        let (least, most) = (medians().fold(f64::INFINITY, f64::min), medians().fold(0.0, f64::max));
        // What a repetition may differ by: how far the rounds of one size lie apart.
        let apart = figures.iter().map(|figure| 1.0 - figure.least / figure.most).fold(0.0, f64::max);
        table.row(
            &format!("{what}: part of the limit at {named} machines"),
            medians().map(|part| format!("{:.0} %", 100.0 * part)).collect::<Vec<_>>().join(" … "),
            "within 20 %",
            format!(
                "they differ by {:.0} %; rounds of one size by {:.0} % at most",
                100.0 * (1.0 - least / most),
                100.0 * apart
            ),
        );
    }
    Ok(())
}

/// Ten million lines of a thousand parts, and more of one.
pub(crate) async fn logs(folder: &Path, table: &mut Table) -> Result<(), Trouble> {
    let data = folder.join("scale-logs");
    let owner = init(&data, None)?;
    fill(&data.join("state.db"), &owner.organization_id, PARTS, MACHINES_PER_LOCATION)?;
    // One line by the server itself: how it marks a block is its own affair.
    let started = || Fleet::start(&data, "127.0.0.1:0", None, &folder.join("scale.log"));
    let mut fleet = started()?;
    let mut client = fleet.client(&owner)?;
    let first = LogRequest { id: part(0), logs: vec![log_entry(0, 0)] };
    call(&client, robot_service::LOG, &first)?;
    fleet.process.stop()?;
    let begin = Instant::now();
    let bytes = fill_logs(&data.join("logs.db"))?;
    let lines = PARTS * LINES + LINES_SEARCHED;
    println!("filled with {lines} lines in {:.1} s, {} MB", begin.elapsed().as_secs_f64(), bytes >> 20);
    fleet = started()?;
    client = fleet.client(&owner)?;

    let median = |mut ask: Box<dyn FnMut(usize) -> Result<(), Trouble>>| -> Result<Duration, Trouble> {
        let mut times = Vec::new();
        for number in 0..CALLS {
            let begin = Instant::now();
            ask(number)?;
            times.push(begin.elapsed());
        }
        times.sort();
        times.get(CALLS / 2).copied().ok_or_else(|| "no calls".into())
    };
    let anyone = |number: usize| part(1 + scattered(number as u64) % (PARTS - 1));
    let point = median(Box::new(|number| {
        call(&client, app_service::GET_ROBOT_PART, &GetRobotPartRequest { id: anyone(number) })?;
        Ok(())
    }))?;
    let page = median(Box::new(|number| {
        let request = GetRobotPartLogsRequest { id: anyone(number), ..Default::default() };
        let page = call(&client, app_service::GET_ROBOT_PART_LOGS, &request)?;
        (page.logs.len() == 100).then_some(()).ok_or_else(|| "a page of a hundred lines".into())
    }))?;
    table.row(
        "logs, 10 million lines of 1,000 parts: first page of 100",
        format!("{:.1} point reads", page.as_secs_f64() / point.as_secs_f64()),
        "≤ 20",
        format!("medians of {CALLS} calls: {page:.2?}, GetRobotPart {point:.2?}"),
    );
    let mut longest = Duration::ZERO;
    for filter in ["needle", "there is no such word"] {
        for _ in 0..5 {
            let request =
                GetRobotPartLogsRequest { id: part(0), filter: Some(filter.to_owned()), ..Default::default() };
            let begin = Instant::now();
            let page = call(&client, app_service::GET_ROBOT_PART_LOGS, &request)?;
            longest = longest.max(begin.elapsed());
            if page.logs.len() != usize::from(filter == "needle") || !page.next_page_token.is_empty() {
                return Err(format!("{} lines with {filter:?}", page.logs.len()).into());
            }
        }
    }
    table.row(
        "logs: a rare word in a part's 100,000 lines",
        format!("{longest:.2?}"),
        "≤ 1 s",
        "the longest of ten; in the oldest line, or in none".to_owned(),
    );
    fleet.process.stop()?;
    std::fs::remove_dir_all(&data)?;
    Ok(())
}

/// A number that is nowhere near the one for the next.
fn scattered(number: u64) -> u64 {
    let mixed = (number ^ 0x9e37_79b9_7f4a_7c15).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    (mixed ^ (mixed >> 29)).wrapping_mul(0x94d0_49bb_1331_11eb) >> 20
}

/// The id of a part. The first ones are the main parts of the machines, in their order.
fn part(number: u64) -> String {
    format!("0a000000-0000-4000-8000-{number:012x}")
}

/// Its name, and that of its machine, where there are so many.
fn name(number: u64, machines: u64) -> String {
    let machine = number % machines;
    if number < machines { format!("machine-{machine}-main") } else { format!("machine-{machine}-part-{number}") }
}

/// Locations, machines, parts and what else each has; the first location. A machine has one part, or several where there
/// would be fewer than [`PARTS_MIN`].
pub(crate) fn fill(
    state: &Path,
    organization: &str,
    machines: u64,
    machines_per_location: u64,
) -> Result<String, Trouble> {
    let mut connection = Connection::open(state)?;
    connection.execute_batch("PRAGMA synchronous = OFF; PRAGMA cache_size = -262144;")?;
    let transaction = connection.transaction()?;
    let numbers = "WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i + 1 < ?1)";
    let (parts, locations) = (machines.max(PARTS_MIN), machines.div_ceil(machines_per_location));
    let [machines, parts, locations] = [machines, parts, locations].map(i64::try_from);
    let (machines, parts, locations) = (machines?, parts?, locations?);
    let statement = |rest: &str| format!("{numbers} {rest}").replace("EVERY", &machines_per_location.to_string());
    transaction.execute(
        &statement(
            "INSERT INTO locations (id, organization_id, parent_id, name, region, created_at)
             SELECT printf('0b000000-0000-4000-8000-%012x', i), ?2, NULL, 'hall ' || i, '', 1 FROM n",
        ),
        params![locations, organization],
    )?;
    transaction.execute(
        &statement(
            "INSERT INTO machines (id, location_id, name, created_at)
             SELECT printf('0c000000-0000-4000-8000-%012x', i),
                    printf('0b000000-0000-4000-8000-%012x', i / EVERY), 'machine-' || i, 1 FROM n",
        ),
        params![machines],
    )?;
    transaction.execute(
        &statement(
            "INSERT INTO parts (id, machine_id, name, dns_name, main, config, updated_at, created_at)
             SELECT id, printf('0c000000-0000-4000-8000-%012x', machine), name, name, main, ?2, 1, 1 FROM
             (SELECT printf('0a000000-0000-4000-8000-%012x', i) AS id, i % ?3 AS machine, i < ?3 AS main,
                     'machine-' || (i % ?3) || CASE WHEN i < ?3 THEN '-main' ELSE '-part-' || i END AS name FROM n)",
        ),
        params![parts, sample_config(0).to_string(), machines],
    )?;
    transaction.execute(
        &statement(
            "INSERT INTO part_presence (part_id, last_access)
             SELECT printf('0a000000-0000-4000-8000-%012x', i), 1 FROM n",
        ),
        params![parts],
    )?;
    transaction.commit()?;
    connection.execute_batch("ANALYZE; PRAGMA wal_checkpoint(TRUNCATE);")?;
    File::open(state)?.sync_all()?;
    Ok("0b000000-0000-4000-8000-000000000000".to_owned())
}

/// Blocks as the server writes them; how many bytes.
fn fill_logs(logs: &Path) -> Result<u64, Trouble> {
    let mut connection = Connection::open(logs)?;
    connection.execute_batch("PRAGMA synchronous = OFF; PRAGMA cache_size = -262144;")?;
    let (last, levels): (i64, i64) =
        connection.query_row("SELECT id, levels FROM log_blocks", [], |row| Ok((row.get(0)?, row.get(1)?)))?;
    connection.execute("DELETE FROM log_blocks", [])?;
    // Older than the line that was there, so that nothing is from the future.
    let blocks = PARTS * LINES / LINES_PER_BLOCK + LINES_SEARCHED / LINES_PER_BLOCK;
    let mut id = last - i64::try_from(blocks)? - 1;
    let now = u64::try_from(last / 1_000)?;
    let transaction = connection.transaction()?;
    let mut bytes = 0;
    {
        let mut insert = transaction.prepare(
            "INSERT INTO log_blocks (id, part_id, first_ms, last_ms, levels, bytes, body)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
        )?;
        let mut put = |machine: u64, block: u64, blocks: u64| -> Result<(), Trouble> {
            let first = now - (blocks - block) * LINES_PER_BLOCK * MILLIS_PER_LINE;
            let mut body = Vec::new();
            for n in 0..LINES_PER_BLOCK {
                let at = first + n * MILLIS_PER_LINE;
                let time =
                    Timestamp { seconds: i64::try_from(at / 1000)?, nanos: i32::try_from(at % 1000 * 1_000_000)? };
                let mut entry = LogEntry { time: Some(time), ..log_entry(block, usize::try_from(n)?) };
                if machine == 0 && block == 0 && n == 0 {
                    entry.message.push_str(", and a needle");
                }
                // One element of a repeated field, as the block's encoding is.
                body.push(0x0a);
                entry.encode_length_delimited(&mut body)?;
            }
            id += 1;
            bytes += body.len() as u64;
            let last = first + (LINES_PER_BLOCK - 1) * MILLIS_PER_LINE;
            insert.execute(params![
                id,
                part(machine),
                i64::try_from(first)?,
                i64::try_from(last)?,
                levels,
                i64::try_from(body.len())?,
                body
            ])?;
            Ok(())
        };
        for block in 0..LINES_SEARCHED / LINES_PER_BLOCK {
            put(0, block, LINES_SEARCHED / LINES_PER_BLOCK)?;
        }
        // As they would have come: everybody a block, and again.
        for block in 0..LINES / LINES_PER_BLOCK {
            for machine in 1..PARTS {
                put(machine, block, LINES / LINES_PER_BLOCK)?;
            }
        }
    }
    transaction.commit()?;
    connection.execute_batch("PRAGMA wal_checkpoint(TRUNCATE);")?;
    File::open(logs)?.sync_all()?;
    Ok(bytes)
}
