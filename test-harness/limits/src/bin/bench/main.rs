//! `make bench`: speed and memory of fleet server and agent, as ratios to limits measured in the same minute.
//!
//! `bench [--secs 5] [--rounds 5] [--idle-secs 30] [--agent FILE] [--record FILE] [--only PART,PART] [--sizes 10,10000]`
//! prints a table; with `--record` it also appends it to that file. It judges nothing: goals stand beside the figures,
//! people read them.

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

/// What can be measured alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Fleet,
    Scale,
    Logs,
    Abuse,
    Storm,
    Downloads,
    Doors,
    Agent,
}

impl Part {
    /// In the order in which they are measured.
    const ALL: [Self; 8] =
        [Self::Fleet, Self::Scale, Self::Logs, Self::Abuse, Self::Storm, Self::Downloads, Self::Doors, Self::Agent];

    fn word(self) -> &'static str {
        match self {
            Self::Fleet => "fleet",
            Self::Scale => "scale",
            Self::Logs => "logs",
            Self::Abuse => "abuse",
            Self::Storm => "storm",
            Self::Downloads => "downloads",
            Self::Doors => "doors",
            Self::Agent => "agent",
        }
    }

    fn read(word: &str) -> Result<Self, Trouble> {
        Self::ALL.into_iter().find(|part| part.word() == word).ok_or_else(|| {
            let words = Self::ALL.map(Self::word).join(", ");
            format!("--only {word}: the parts are {words}").into()
        })
    }
}

/// Whatever went wrong, for people.
type Trouble = Box<dyn std::error::Error + Send + Sync>;

/// Each takes a value.
const OPTIONS: [&str; 7] = ["--agent", "--idle-secs", "--only", "--record", "--rounds", "--secs", "--sizes"];

/// A mistyped option would cost half an hour of measuring something else.
fn check_options() -> Result<(), Trouble> {
    let mut given = std::env::args().skip(1);
    while let Some(option) = given.next() {
        if !OPTIONS.contains(&option.as_str()) || given.next().is_none() {
            return Err(format!("{option}: the options are {}, each with a value", OPTIONS.join(", ")).into());
        }
    }
    Ok(())
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> Result<(), Trouble> {
    check_options()?;
    let only = arg("only", String::new());
    let only = only.split(',').filter(|word| !word.is_empty()).map(Part::read).collect::<Result<Vec<_>, _>>()?;
    let mut failed = Vec::new();
    for part in Part::ALL.into_iter().filter(|part| only.is_empty() || only.contains(part)) {
        let word = part.word();
        let folder = std::env::temp_dir().join(format!("bench-{}-{word}", std::process::id()));
        fs::create_dir_all(&folder)?;
        let (load_before, mut table) = (load(), Table::default());
        let measured = measure(part, &folder, &mut table).await;
        if !table.is_empty() {
            record(&table.markdown(&format!("{}: {word}", machine(&load_before))))?;
        }
        if let Err(left) = fs::remove_dir_all(&folder) {
            eprintln!("{} is left behind: {left}", folder.display());
        }
        if let Err(error) = measured {
            eprintln!("{word}: {error}");
            failed.push(word);
        }
    }
    if failed.is_empty() { Ok(()) } else { Err(format!("not measured to the end: {}", failed.join(", ")).into()) }
}

/// Adds a part's rows. What was measured before it fails stays in the table.
async fn measure(part: Part, folder: &Path, table: &mut Table) -> Result<(), Trouble> {
    let secs = arg("secs", 5);
    match part {
        Part::Fleet => fleet::measure(folder, secs, table).await,
        Part::Scale => {
            let sizes = arg("sizes", String::new());
            let sizes =
                sizes.split(',').filter(|size| !size.is_empty()).map(str::parse).collect::<Result<Vec<_>, _>>()?;
            scale::measure(folder, secs, if sizes.is_empty() { &scale::SIZES } else { &sizes }, table).await
        }
        Part::Logs => scale::logs(folder, table).await,
        Part::Abuse => abuse::measure(folder, secs, table).await,
        Part::Storm => tokio::task::block_in_place(|| storm::measure(folder, secs, table)),
        Part::Downloads => tokio::task::block_in_place(|| downloads::measure(folder, table)),
        Part::Doors => tokio::task::block_in_place(|| doors::measure(folder, secs, table)),
        Part::Agent => tokio::task::block_in_place(|| agent::measure(folder, arg("idle-secs", 30), table)),
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
