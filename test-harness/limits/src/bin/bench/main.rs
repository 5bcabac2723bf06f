//! `make bench`: speed and memory of fleet server and agent, as ratios to limits measured in the same minute.
//!
//! `bench [--secs 5] [--idle-secs 30] [--record FILE] [--only PART,PART] [--sizes 10,10000]` prints a table; with `--record` it
//! also appends it to that file. It judges nothing: goals stand beside the figures, people read them.

mod abuse;
mod agent;
mod doors;
mod downloads;
mod fleet;
mod idle;
mod nonsense;
mod reader;
mod rounds;
mod scale;
mod storm;
mod subject;
mod table;
mod updates;
mod web;
mod yardsticks;

use std::{
    fs,
    path::{Path, PathBuf},
    time::SystemTime,
};

use limits::arg;
use table::Table;

/// What can be measured alone, in the order in which it is.
const PARTS: [&str; 8] = ["fleet", "scale", "logs", "abuse", "storm", "downloads", "doors", "agent"];

/// Whatever went wrong, for people.
type Trouble = Box<dyn std::error::Error + Send + Sync>;

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> Result<(), Trouble> {
    let only = arg("only", String::new());
    let only: Vec<&str> = only.split(',').filter(|part| !part.is_empty()).collect();
    if let Some(unknown) = only.iter().find(|part| !PARTS.contains(part)) {
        return Err(format!("--only {unknown}: the parts are {}", PARTS.join(", ")).into());
    }
    let mut failed = Vec::new();
    for part in PARTS.into_iter().filter(|part| only.is_empty() || only.contains(part)) {
        let folder = std::env::temp_dir().join(format!("bench-{}-{part}", std::process::id()));
        fs::create_dir_all(&folder)?;
        let (load_before, mut table) = (load(), Table::default());
        let measured = measure(part, &folder, &mut table).await;
        if !table.is_empty() {
            record(&table.markdown(&format!("{}: {part}", machine(&load_before))))?;
        }
        if let Err(left) = fs::remove_dir_all(&folder) {
            eprintln!("{} is left behind: {left}", folder.display());
        }
        if let Err(error) = measured {
            eprintln!("{part}: {error}");
            failed.push(part);
        }
    }
    if failed.is_empty() { Ok(()) } else { Err(format!("not measured to the end: {}", failed.join(", ")).into()) }
}

/// Adds a part's rows. What was measured before it fails stays in the table.
async fn measure(part: &str, folder: &Path, table: &mut Table) -> Result<(), Trouble> {
    let secs = arg("secs", 5);
    match part {
        "fleet" => fleet::measure(folder, secs, table).await,
        "scale" => {
            let sizes = arg("sizes", String::new());
            let sizes =
                sizes.split(',').filter(|size| !size.is_empty()).map(str::parse).collect::<Result<Vec<_>, _>>()?;
            scale::measure(folder, secs, if sizes.is_empty() { &scale::SIZES } else { &sizes }, table).await
        }
        "logs" => scale::logs(folder, table).await,
        "abuse" => abuse::measure(folder, secs, table).await,
        "storm" => tokio::task::block_in_place(|| storm::measure(folder, secs, table)),
        "downloads" => tokio::task::block_in_place(|| downloads::measure(folder, table)),
        "doors" => tokio::task::block_in_place(|| doors::measure(folder, secs, table)),
        "agent" => tokio::task::block_in_place(|| agent::measure(folder, arg("idle-secs", 30), table)),
        unknown => Err(format!("nothing measures {unknown}").into()),
    }
}

/// Printed, and kept where `--record` says.
fn record(text: &str) -> Result<(), Trouble> {
    println!("{text}");
    let record: PathBuf = arg("record", PathBuf::new());
    if !record.as_os_str().is_empty() {
        use std::io::Write as _;
        write!(fs::File::options().append(true).create(true).open(record)?, "\n{text}")?;
    }
    Ok(())
}

/// Runnable processes of the last minute, others' included.
fn load() -> String {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split_whitespace().next().unwrap_or("unknown").to_owned()
}

/// Day, processor, kernel and load: what the figures depend on.
fn machine(load_before: &str) -> String {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let days = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs() / 86_400);
    let cpu = read("/proc/cpuinfo");
    let model = cpu.lines().find_map(|line| line.strip_prefix("model name")).unwrap_or_default();
    let cores = cpu.lines().filter(|line| line.starts_with("processor")).count();
    format!(
        "{}, {cores} × {}, Linux {}, load {load_before} before and {} after",
        table::date(days),
        model.trim_start_matches([' ', '\t', ':']),
        read("/proc/sys/kernel/osrelease").trim(),
        load(),
    )
}
