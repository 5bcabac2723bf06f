//! What the database engine does without a server around it, per second of CPU time.
//!
//! `sqlite_limits [--dir D] [--rows 100000]` fills a table and says "ready". Each line it is given after that names a
//! figure and for how many milliseconds to measure it, and is answered with the figure: `reads` (point reads), `writes`
//! (transactions that update one row), `log_rows` (rows inserted in transactions of a hundred, of as many parts as there
//! are connections). Ends, and deletes what it made, when there are no more lines. The settings are those of the fleet server (write-ahead log, `synchronous=NORMAL`).

use std::{
    fs::File,
    io::{BufRead as _, Write as _},
    path::Path,
    time::{Duration, Instant},
};

use limits::{arg, load::CONNECTIONS};
use rusqlite::{Connection, params};

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
fn per_cpu_second(length: Duration, mut call: impl FnMut() -> rusqlite::Result<()>) -> rusqlite::Result<f64> {
    let cpu = || {
        let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
        text.split_whitespace().next().and_then(|nanos| nanos.parse::<f64>().ok()).unwrap_or(0.0) / 1e9
    };
    let (begin, cpu_before, mut calls) = (Instant::now(), cpu(), 0u64);
    while begin.elapsed() < length {
        call()?;
        calls += 1;
    }
    Ok(calls as f64 / (cpu() - cpu_before).max(1e-6))
}

fn fill(connection: &mut Connection, rows: u64) -> rusqlite::Result<()> {
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
    connection.execute_batch("PRAGMA wal_checkpoint(TRUNCATE);")
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (folder, rows) = (arg("dir", ".".to_owned()), arg("rows", 100_000u64));
    let path = Path::new(&folder).join("limits.db");
    let mut connection = open(&path)?;
    fill(&mut connection, rows)?;
    File::open(&path)?.sync_all()?;
    let say = |what: String| -> std::io::Result<()> {
        let mut out = std::io::stdout();
        writeln!(out, "{what}")?;
        out.flush()
    };
    say("ready".to_owned())?;
    let mut state = 88_172_645_463_325_252;
    for question in std::io::stdin().lock().lines() {
        let question = question?;
        let (what, millis) = question.split_once(' ').ok_or("a figure and for how many milliseconds")?;
        let length = Duration::from_millis(millis.parse()?);
        let figure = match what {
            "reads" => per_cpu_second(length, || read(&connection, &key(random(&mut state) % rows)))?,
            "writes" => per_cpu_second(length, || {
                let wanted = key(random(&mut state) % rows);
                connection
                    .prepare_cached("UPDATE part SET last_access=last_access+1 WHERE id=?")?
                    .execute([&wanted])?;
                Ok(())
            })?,
            "log_rows" => 100.0 * per_cpu_second(length, || log(&mut connection, &mut state))?,
            other => return Err(format!("there is no figure {other:?}").into()),
        };
        say(format!("{figure:.0}"))?;
    }
    drop(connection);
    for suffix in ["", "-wal", "-shm"] {
        let _ = std::fs::remove_file(format!("{}{suffix}", path.display()));
    }
    Ok(())
}

fn read(connection: &Connection, wanted: &str) -> rusqlite::Result<()> {
    let mut statement = connection.prepare_cached("SELECT name, config, last_access FROM part WHERE id=?")?;
    let found: (String, String, i64) =
        statement.query_row([wanted], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
    std::hint::black_box(found);
    Ok(())
}

fn log(connection: &mut Connection, state: &mut u64) -> rusqlite::Result<()> {
    let batch = connection.transaction()?;
    for _ in 0..100 {
        let part = key(random(state) % CONNECTIONS as u64);
        batch.prepare_cached("INSERT INTO log(part,level,at,message) VALUES(?,?,?,?)")?.execute(params![
            part,
            1,
            1_700_000_000_000i64,
            "a log line of an ordinary length, say some eighty bytes of text in it, like this"
        ])?;
    }
    batch.commit()
}
