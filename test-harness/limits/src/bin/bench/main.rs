//! `make bench`: speed and memory of fleet server and agent, as ratios to limits measured in the same minute.
//!
//! `bench [--secs 5] [--idle-secs 30] [--record FILE] [--only fleet|storm|downloads|scale|logs|abuse|agent|doors] [--sizes 10,10000]` prints a table;
//! with `--record` it also appends it to that file. It judges nothing: goals stand beside the figures, people read them.

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

use std::{fs, path::PathBuf, time::SystemTime};

use limits::arg;
use table::Table;

/// Whatever went wrong, for people.
type Trouble = Box<dyn std::error::Error + Send + Sync>;

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> Result<(), Trouble> {
    let folder = std::env::temp_dir().join(format!("bench-{}", std::process::id()));
    fs::create_dir_all(&folder)?;
    let only = arg("only", String::new());
    let load_before = load();
    let measured = async {
        let mut table = Table::default();
        let wanted = |part: &str| only.is_empty() || only == part;
        if wanted("fleet") {
            fleet::measure(&folder, arg("secs", 5), &mut table).await?;
        }
        // Not without being asked for: a million machines and ten million lines take minutes and gigabytes.
        if only == "scale" {
            let sizes = arg("sizes", String::new());
            let sizes =
                sizes.split(',').filter(|size| !size.is_empty()).map(str::parse).collect::<Result<Vec<_>, _>>()?;
            let sizes = if sizes.is_empty() { &scale::SIZES[..] } else { &sizes };
            scale::measure(&folder, arg("secs", 5), sizes, &mut table).await?;
        }
        if only == "logs" {
            scale::logs(&folder, &mut table).await?;
        }
        if only == "abuse" {
            abuse::measure(&folder, arg("secs", 5), &mut table).await?;
        }
        if wanted("storm") {
            let (folder, secs) = (folder.clone(), arg("secs", 5));
            table = tokio::task::spawn_blocking(move || {
                storm::measure(&folder, secs, &mut table)?;
                Ok::<Table, Trouble>(table)
            })
            .await??;
        }
        if wanted("downloads") {
            let folder = folder.clone();
            table = tokio::task::spawn_blocking(move || {
                downloads::measure(&folder, &mut table)?;
                Ok::<Table, Trouble>(table)
            })
            .await??;
        }
        if wanted("doors") {
            let (folder, secs) = (folder.clone(), arg("secs", 5));
            table = tokio::task::spawn_blocking(move || {
                doors::measure(&folder, secs, &mut table)?;
                Ok::<Table, Trouble>(table)
            })
            .await??;
        }
        if wanted("agent") {
            let (folder, idle) = (folder.clone(), arg("idle-secs", 30));
            table = tokio::task::spawn_blocking(move || agent::measure(&folder, idle, table)).await??;
        }
        Ok::<Table, Trouble>(table)
    }
    .await;
    fs::remove_dir_all(&folder)?;
    let table = measured?;

    let text = table.markdown(&machine(&load_before));
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
