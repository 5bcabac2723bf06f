//! What the database engine does without a server around it, per second of CPU time.
//!
//! `sqlite_limits [--dir D] [--rows 100000] [--secs 2]` prints one `name value` line per figure: point reads,
//! transactions that update one row, and rows inserted in transactions of a hundred. The settings are those of the
//! fleet server (write-ahead log, `synchronous=NORMAL`).

use std::{
    path::Path,
    time::{Duration, Instant},
};

use limits::arg;
use rusqlite::{Connection, params};

/// Parts that the log rows are of: as many as write to the server that is compared with this.
const LOG_PARTS: u64 = limits::load::CONNECTIONS as u64;

fn open(path: &Path) -> rusqlite::Result<Connection> {
    let connection = Connection::open(path)?;
    connection.execute_batch(
        "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL; PRAGMA cache_size=-65536; PRAGMA foreign_keys=ON;",
    )?;
    Ok(connection)
}

/// xorshift64: cheap enough not to be measured.
fn random(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

fn key(number: u64) -> String {
    format!("{:08x}-part-{number:016x}", number.wrapping_mul(2_654_435_761) as u32)
}

/// Calls per second of this thread's CPU time.
fn per_cpu_second(secs: u64, mut call: impl FnMut() -> rusqlite::Result<()>) -> rusqlite::Result<f64> {
    let cpu = || {
        let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
        text.split_whitespace().next().and_then(|nanos| nanos.parse::<f64>().ok()).unwrap_or(0.0) / 1e9
    };
    let (begin, cpu_before, mut calls) = (Instant::now(), cpu(), 0u64);
    while begin.elapsed() < Duration::from_secs(secs) {
        call()?;
        calls += 1;
    }
    Ok(calls as f64 / (cpu() - cpu_before).max(1e-6))
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (folder, rows, secs) = (arg("dir", ".".to_owned()), arg("rows", 100_000u64), arg("secs", 2u64));
    let path = Path::new(&folder).join("limits.db");
    let mut connection = open(&path)?;
    connection.execute_batch(
        "CREATE TABLE part(id TEXT PRIMARY KEY, robot INTEGER NOT NULL, name TEXT NOT NULL, config TEXT NOT NULL, \
         last_access INTEGER NOT NULL) WITHOUT ROWID;
         CREATE INDEX part_robot ON part(robot);
         CREATE TABLE log(id INTEGER PRIMARY KEY, part TEXT NOT NULL, level INTEGER NOT NULL, at INTEGER NOT NULL, \
         message TEXT NOT NULL);
         CREATE INDEX log_part ON log(part, id);",
    )?;
    let config = format!("{{\"components\":[],\"pad\":\"{}\"}}", "x".repeat(400));
    let filling = connection.transaction()?;
    for row in 0..rows {
        filling.prepare_cached("INSERT INTO part VALUES(?,?,?,?,0)")?.execute(params![
            key(row),
            (row / 3) as i64,
            format!("part{row}"),
            config
        ])?;
    }
    filling.commit()?;

    let mut state = 88_172_645_463_325_252;
    let reads = per_cpu_second(secs, || {
        let wanted = key(random(&mut state) % rows);
        let mut statement = connection.prepare_cached("SELECT name, config, last_access FROM part WHERE id=?")?;
        let found: (String, String, i64) =
            statement.query_row([&wanted], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
        std::hint::black_box(found);
        Ok(())
    })?;
    println!("reads_per_cpu_s {reads:.0}");

    let writes = per_cpu_second(secs, || {
        let wanted = key(random(&mut state) % rows);
        connection.prepare_cached("UPDATE part SET last_access=last_access+1 WHERE id=?")?.execute([&wanted])?;
        Ok(())
    })?;
    println!("write_transactions_per_cpu_s {writes:.0}");

    let batches = per_cpu_second(secs, || {
        let batch = connection.transaction()?;
        for _ in 0..100 {
            let part = key(random(&mut state) % rows.min(LOG_PARTS));
            batch.prepare_cached("INSERT INTO log(part,level,at,message) VALUES(?,?,?,?)")?.execute(params![
                part,
                1,
                1_700_000_000_000i64,
                "a log line of an ordinary length, say some eighty bytes of text in it, like this"
            ])?;
        }
        batch.commit()
    })?;
    println!("log_rows_per_cpu_s {:.0}", batches * 100.0);

    drop(connection);
    for suffix in ["", "-wal", "-shm"] {
        let _ = std::fs::remove_file(format!("{}{suffix}", path.display()));
    }
    Ok(())
}
