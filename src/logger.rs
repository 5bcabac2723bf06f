//! The agent's own log: to the screen or the journal, and into the ring that the `logs` actor reads.
//!
//! Owns what becomes of a record: which ones are kept, how they look on standard error, and their form as a line on the
//! way to the fleet server. Libraries are heard from warnings on; what they say in detail is theirs. Never blocks: the
//! ring drops its oldest line when nobody reads it.

use std::{
    fmt::Write as _,
    io,
    time::{SystemTime, UNIX_EPOCH},
};

use actors::{
    kit::lossy,
    logs::line::{self, Line, TEXT_BYTES_MAX},
};
use api::brand;
use board::Wall;
use log::{Level, LevelFilter, Log, Metadata, Record};

/// The crates whose words are the agent's own.
const OWN: [&str; 6] = ["platform_agent", "actors", "api", "board", "board_linux", "board_portable"];

/// Starts the log; a second call changes nothing. `ring` takes every record that is also shown.
pub fn start(ring: lossy::Writer, debug: bool) {
    let journal = is_journal();
    let stderr = env_logger::Builder::new()
        .filter_level(LevelFilter::Trace)
        .write_style(env_logger::WriteStyle::Never)
        .target(env_logger::Target::Stderr)
        .format(move |out, record| if journal { for_journal(out, record) } else { for_people(out, record) })
        .build();
    if log::set_boxed_logger(Box::new(Logger { stderr, ring })).is_ok() {
        set_debug(debug);
    }
}

/// Shows debug records too, or no longer.
pub fn set_debug(debug: bool) {
    log::set_max_level(if debug { LevelFilter::Debug } else { LevelFilter::Info });
}

struct Logger {
    stderr: env_logger::Logger,
    ring: lossy::Writer,
}

impl Log for Logger {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.level() <= log::max_level()
    }

    fn log(&self, record: &Record<'_>) {
        if !self.enabled(record.metadata()) || !is_heard(record) {
            return;
        }
        self.stderr.log(record);
        for line in lines(record) {
            self.ring.push(&line.encode());
        }
    }

    fn flush(&self) {
        self.stderr.flush();
    }
}

/// Whether a record is the agent's own, or grave enough.
fn is_heard(record: &Record<'_>) -> bool {
    let origin = record.module_path().unwrap_or_else(|| record.target());
    let first = origin.split("::").next().unwrap_or_default();
    record.level() <= Level::Warn || OWN.contains(&first)
}

/// A record as lines for the fleet server: a long text is split, never cut.
fn lines(record: &Record<'_>) -> impl Iterator<Item = Line> {
    let at = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let line = Line {
        at: Wall::from_millis(i64::try_from(at.as_millis()).unwrap_or(i64::MAX)),
        level: match record.level() {
            Level::Error => line::Level::Error,
            Level::Warn => line::Level::Warn,
            Level::Info => line::Level::Info,
            Level::Debug | Level::Trace => line::Level::Debug,
        },
        logger: logger_name(record.target()),
        file: record.file().unwrap_or_default().to_owned(),
        line: record.line().unwrap_or_default(),
        text: String::new(),
    };
    pieces(record.args().to_string()).into_iter().map(move |text| Line { text, ..line.clone() })
}

/// "actors::update::machine" is `platform-agent.update`, "board_linux::process" is `platform-agent.board-linux`.
fn logger_name(target: &str) -> String {
    let mut parts = target.split("::");
    let name = match (parts.next(), parts.next()) {
        (Some("actors" | "platform_agent"), Some(module)) => module,
        (krate, _) => krate.unwrap_or_default(),
    };
    format!("{}.{}", brand::AGENT, name.replace('_', "-"))
}

fn pieces(text: String) -> Vec<String> {
    if text.len() <= TEXT_BYTES_MAX {
        return vec![text];
    }
    let mut rest = text.as_str();
    let mut pieces = Vec::new();
    while !rest.is_empty() {
        let end = (0..=TEXT_BYTES_MAX.min(rest.len())).rev().find(|&end| rest.is_char_boundary(end)).unwrap_or(0);
        let (piece, after) = rest.split_at(end);
        pieces.push(piece.to_owned());
        rest = after;
    }
    pieces
}

/// Whether standard error ends in the journal. The variable alone proves nothing: it is inherited by everything that a
/// service starts, so the file it names is compared with ours.
#[must_use]
pub fn is_journal() -> bool {
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt as _;
        let Ok(named) = std::env::var("JOURNAL_STREAM") else { return false };
        std::fs::metadata("/proc/self/fd/2").is_ok_and(|file| named == format!("{}:{}", file.dev(), file.ino()))
    }
    #[cfg(not(unix))]
    false
}

/// The journal adds time and name; a priority in front of each line is all it needs.
fn for_journal(out: &mut impl io::Write, record: &Record<'_>) -> io::Result<()> {
    let priority = match record.level() {
        Level::Error => 3,
        Level::Warn => 4,
        Level::Info => 6,
        Level::Debug | Level::Trace => 7,
    };
    let text = record.args().to_string();
    for line in text.lines() {
        writeln!(out, "<{priority}>{}: {line}", short_name(record.target()))?;
    }
    Ok(())
}

fn for_people(out: &mut impl io::Write, record: &Record<'_>) -> io::Result<()> {
    let at = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let (level, name) = (record.level(), short_name(record.target()));
    writeln!(out, "{} {level:<5} {name}: {}", utc(at), record.args())
}

fn short_name(target: &str) -> String {
    let name = logger_name(target);
    name.split_once('.').map(|(_, name)| name.to_owned()).unwrap_or(name)
}

/// `2026-11-20T08:12:33Z`.
fn utc(seconds: u64) -> String {
    let (days, time) = (seconds / 86_400, seconds % 86_400);
    // Days to year, month, day (Howard Hinnant's "civil_from_days", for dates after 1970).
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let march_based = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * march_based + 2) / 5 + 1;
    let month = if march_based < 10 { march_based + 3 } else { march_based - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    let mut text = String::with_capacity(20);
    // Writing to a string cannot fail.
    let _ = write!(text, "{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z", time / 3_600, time / 60 % 60, time % 60);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_is_readable() {
        let table = [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_795_162_353, "2026-11-20T08:12:33Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ];
        for (seconds, text) in table {
            assert_eq!(utc(seconds), text);
        }
    }

    #[test]
    fn loggers_are_named_after_rooms() {
        let table = [
            ("actors::update::machine", "platform-agent.update"),
            ("cloud", "platform-agent.cloud"),
            ("platform_agent::uplink", "platform-agent.uplink"),
            ("board_linux::process", "platform-agent.board-linux"),
            ("platform_agent", "platform-agent.platform-agent"),
        ];
        for (target, name) in table {
            assert_eq!(logger_name(target), name);
        }
    }

    #[test]
    fn a_record_is_a_line_and_a_long_one_is_several() {
        let record = |text: &'static str, check: &dyn Fn(Vec<Line>)| {
            check(
                lines(
                    &Record::builder()
                        .args(format_args!("{text}"))
                        .level(Level::Warn)
                        .target("actors::logs::actor")
                        .file(Some("actors/src/logs/actor.rs"))
                        .line(Some(7))
                        .build(),
                )
                .collect(),
            );
        };
        record("short", &|lines| {
            let [line] = &lines[..] else { panic!("{lines:?}") };
            assert_eq!((line.text.as_str(), line.level, line.line), ("short", line::Level::Warn, 7));
            assert_eq!((line.logger.as_str(), line.file.as_str()), ("platform-agent.logs", "actors/src/logs/actor.rs"));
        });
        let long: &'static str = "ü".repeat(1_200).leak();
        record(long, &|lines| {
            assert_eq!(lines.len(), 3);
            assert!(lines.iter().all(|line| line.text.len() <= TEXT_BYTES_MAX));
            assert_eq!(lines.iter().map(|line| line.text.as_str()).collect::<String>(), long);
        });
    }

    #[test]
    fn libraries_are_heard_when_it_matters() {
        let heard =
            |level, target| is_heard(&Record::builder().args(format_args!("")).level(level).target(target).build());
        assert!(heard(Level::Debug, "actors::cloud::actor") && heard(Level::Info, "platform_agent"));
        assert!(heard(Level::Warn, "rustls::conn") && !heard(Level::Info, "rustls::conn"));
        assert!(!heard(Level::Debug, "ureq::pool"));
    }

    #[test]
    fn both_looks() {
        let look = |format: &dyn Fn(&mut Vec<u8>, &Record<'_>) -> io::Result<()>| {
            let mut out = Vec::new();
            let mut record = Record::builder();
            record.level(Level::Error).target("actors::server");
            format(&mut out, &record.args(format_args!("one\ntwo")).build()).expect("a vector takes everything");
            String::from_utf8(out).expect("text")
        };
        assert_eq!(look(&|out, record| for_journal(out, record)), "<3>server: one\n<3>server: two\n");
        assert!(look(&|out, record| for_people(out, record)).ends_with("Z ERROR server: one\ntwo\n"));
    }
}
