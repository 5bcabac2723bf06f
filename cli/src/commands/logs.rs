//! `part logs`: what a device and its machine server said, read back or as it comes.
//!
//! Following goes on for as long as the person wants: a broken connection is told and made again, and what was logged
//! meanwhile is read back, so that nothing is missing and nothing comes twice.

use std::{
    collections::VecDeque,
    convert::Infallible,
    thread,
    time::{Duration, SystemTime},
};

use api::{
    client::{CallOptions, Code},
    pb::platform::{
        app::v1::{self as app, LogOrder, app_service},
        common::v1::LogEntry,
    },
};
use clap::Args;
use prost::Message;

use super::part::Which;
use crate::{
    failure::Failure,
    output::{Output, json_of, plain},
    session::Session,
    when::moment,
};

/// Entries read in one page.
const PAGE: i64 = 500;
/// A stream without a line for so long is opened anew, in case the other end is gone without a word.
const IDLE: Duration = Duration::from_secs(300);
/// First pause before a stream is opened again; doubles.
const PAUSE_FIRST: Duration = Duration::from_secs(1);
/// No pause is longer.
const PAUSE_MAX: Duration = Duration::from_secs(15);
/// Entries remembered to recognise a repetition after a break.
const REMEMBERED: usize = 1000;
/// What the fleet server takes for one of its levels, in any case. It keeps others too, each found by its own word.
const LEVELS: [&str; 9] = ["trace", "debug", "info", "warn", "warning", "error", "dpanic", "panic", "fatal"];
/// How far before the last line is read again after a break: entries arrive in batches, and not all in order.
const OVERLAP_SECONDS: i64 = 10;

#[derive(Args)]
pub(crate) struct Logs {
    #[command(flatten)]
    which: Which,
    /// Go on with new lines as they come
    #[arg(long, short)]
    follow: bool,
    /// How many lines back; 0 for all (with --follow: none)
    #[arg(long, short = 'n', default_value_t = 50)]
    lines: usize,
    /// Only these levels, such as error,warn; usual are trace, debug, info, warn, error, panic and fatal
    #[arg(long, value_delimiter = ',', value_name = "LEVEL", value_parser = level)]
    level: Vec<String>,
    /// Only lines that contain this
    #[arg(long, value_name = "TEXT")]
    filter: Option<String>,
    /// Only lines of this logger and those below it, such as platform-agent or platform-agent.update
    #[arg(long, value_name = "LOGGER")]
    source: Option<String>,
    /// Only lines of this last stretch of time, such as 10m, 3h, 2d
    #[arg(long, value_name = "LENGTH")]
    since: Option<String>,
}

impl Logs {
    /// What the stream is not asked for, because it knows neither levels nor sources; the reading back does.
    fn wants(&self, entry: &LogEntry) -> bool {
        let level = self.level.is_empty() || self.level.iter().any(|level| is(level, &entry.level));
        let below = |source: &String| {
            let rest = entry.logger_name.strip_prefix(source.as_str());
            source.is_empty() || rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        };
        level && self.source.as_ref().is_none_or(below)
    }
}

/// In the form of which words are compared. None at all is asked for like any.
fn level(word: &str) -> Result<String, Infallible> {
    Ok(word.trim().to_ascii_lowercase())
}

/// Some words are one level to the server, and so they are where the stream is not asked for levels.
fn is(asked: &str, said: &str) -> bool {
    let meant = |level: &str| match level.to_ascii_lowercase().as_str() {
        "warning" => "warn".to_owned(),
        "dpanic" => "panic".to_owned(),
        other => other.to_owned(),
    };
    meant(asked) == meant(said)
}

pub(super) fn run(session: &Session, mut logs: Logs, output: &mut Output) -> Result<(), Failure> {
    logs.level.retain(|level| !level.is_empty());
    let part = logs.which.find(session)?;
    if !logs.follow {
        let entries = back(session, &part.id, &logs)?;
        if entries.is_empty() && !output.is_json() {
            // Not on standard output, where a script counts lines.
            eprintln!("No such lines in the log of {:?}.", part.name);
            // Perhaps mistyped; devices may have levels of their own.
            if let Some(odd) = logs.level.iter().find(|level| !LEVELS.contains(&level.as_str())) {
                eprintln!("The usual levels are {}, and not {odd:?}.", LEVELS.join(", "));
            }
        }
        for entry in &entries {
            show(output, entry)?;
        }
        return Ok(());
    }
    Follower { session, part_id: part.id, logs, seen: Seen::default() }.run(output)
}

/// The newest entries, oldest of them first.
fn back(session: &Session, part_id: &str, logs: &Logs) -> Result<Vec<LogEntry>, Failure> {
    if logs.follow && logs.lines == 0 {
        return Ok(Vec::new());
    }
    let wanted = if logs.lines == 0 { usize::MAX } else { logs.lines };
    let request = app::GetRobotPartLogsRequest {
        range: logs.since.clone(),
        order: Some(LogOrder::Descending.into()),
        ..question(part_id, logs)
    };
    let mut entries = pages(session, request, wanted)?;
    entries.reverse();
    Ok(entries)
}

fn question(part_id: &str, logs: &Logs) -> app::GetRobotPartLogsRequest {
    app::GetRobotPartLogsRequest {
        id: part_id.to_owned(),
        filter: logs.filter.clone(),
        levels: logs.level.clone(),
        source: logs.source.clone(),
        limit: Some(PAGE),
        ..Default::default()
    }
}

fn pages(session: &Session, request: app::GetRobotPartLogsRequest, wanted: usize) -> Result<Vec<LogEntry>, Failure> {
    let (mut entries, mut page_token) = (Vec::new(), None);
    loop {
        let missing = i64::try_from(wanted.saturating_sub(entries.len())).unwrap_or(PAGE);
        let request = app::GetRobotPartLogsRequest { page_token, limit: Some(missing.min(PAGE)), ..request.clone() };
        let page = session.ask("could not read the log", app_service::GET_ROBOT_PART_LOGS, &request)?;
        entries.extend(page.logs);
        page_token = Some(page.next_page_token).filter(|token| !token.is_empty());
        if page_token.is_none() || entries.len() >= wanted {
            entries.truncate(wanted);
            return Ok(entries);
        }
    }
}

struct Follower<'a> {
    session: &'a Session,
    part_id: String,
    logs: Logs,
    seen: Seen,
}

impl Follower<'_> {
    fn run(mut self, output: &mut Output) -> Result<(), Failure> {
        let mut pause = PAUSE_FIRST;
        // Until the first stream stood, a failure is the command's; afterwards it is a break to get over.
        let mut stood = false;
        loop {
            match self.stream(output, &mut stood, &mut pause) {
                // The server ended the stream in good order: it is being restarted.
                Ok(()) => {}
                Err(failure) if !stood || is_final(&failure) => return Err(failure),
                Err(failure) => {
                    output.flush()?;
                    eprintln!("{} (trying again)", plain(&failure.to_string()));
                }
            }
            thread::sleep(pause);
            pause = pause.saturating_mul(2).min(PAUSE_MAX);
        }
    }

    fn stream(&mut self, output: &mut Output, stood: &mut bool, pause: &mut Duration) -> Result<(), Failure> {
        let request = app::TailRobotPartLogsRequest {
            id: self.part_id.clone(),
            errors_only: false,
            filter: self.logs.filter.clone(),
        };
        let options = CallOptions::lasting().idle_at_most(IDLE);
        // Opened first: what is logged while the past is read comes twice rather than not at all.
        let stream =
            self.session.follow("could not follow the log", app_service::TAIL_ROBOT_PART_LOGS, &request, options)?;
        let past = if *stood { self.missed()? } else { back(self.session, &self.part_id, &self.logs)? };
        if *stood {
            eprintln!("(connected again)");
        }
        *stood = true;
        for entry in past {
            self.show_new(output, entry)?;
        }
        output.flush()?;
        for response in stream {
            let entries = match response {
                Ok(response) => response.logs,
                // Silence for long is nothing to tell a person.
                Err(error) if error.code() == Code::DeadlineExceeded => return Ok(()),
                Err(error) => return Err(Failure::call("the log broke off")(error)),
            };
            *pause = PAUSE_FIRST;
            for entry in entries {
                self.show_new(output, entry)?;
            }
            output.flush()?;
        }
        Ok(())
    }

    /// What was logged since the last line that was shown.
    fn missed(&self) -> Result<Vec<LogEntry>, Failure> {
        let start = self.seen.last.unwrap_or_else(|| SystemTime::now().into());
        let start = prost_types::Timestamp { seconds: start.seconds.saturating_sub(OVERLAP_SECONDS), ..start };
        let request = app::GetRobotPartLogsRequest {
            start: Some(start),
            order: Some(LogOrder::Ascending.into()),
            ..question(&self.part_id, &self.logs)
        };
        pages(self.session, request, usize::MAX)
    }

    fn show_new(&mut self, output: &mut Output, entry: LogEntry) -> Result<(), Failure> {
        if self.logs.wants(&entry) && self.seen.is_new(&entry) { show(output, &entry) } else { Ok(()) }
    }
}

/// Whether opening the stream again cannot help.
fn is_final(failure: &Failure) -> bool {
    matches!(failure, Failure::Output(_))
        || matches!(
            failure.code(),
            Some(Code::NotFound | Code::PermissionDenied | Code::Unauthenticated | Code::Unimplemented)
        )
}

/// The last entries, to tell a new one from one that comes again.
#[derive(Default)]
struct Seen {
    recent: VecDeque<Vec<u8>>,
    last: Option<prost_types::Timestamp>,
}

impl Seen {
    fn is_new(&mut self, entry: &LogEntry) -> bool {
        let encoded = entry.encode_to_vec();
        if self.recent.contains(&encoded) {
            return false;
        }
        if self.recent.len() == REMEMBERED {
            self.recent.pop_front();
        }
        self.recent.push_back(encoded);
        self.last = entry.time.or(self.last);
        true
    }
}

fn show(output: &mut Output, entry: &LogEntry) -> Result<(), Failure> {
    if output.is_json() {
        return output.json_line(&json_of(entry));
    }
    let mut line = format!("{}  {:5}  {}", moment(entry.time.as_ref()), entry.level.to_uppercase(), entry.logger_name);
    line.push_str("  ");
    line.push_str(entry.message.trim_end());
    if !entry.stack.is_empty() {
        line.push('\n');
        line.push_str(entry.stack.trim_end());
    }
    // Further lines of one entry are set off, so that none of them can pose as an entry.
    output.line(&plain(&line).replace('\n', "\n    "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_what_the_server_takes_them_for() {
        for (given, read) in [("error", "error"), (" Warning ", "warning"), ("", ""), ("Notice", "notice")] {
            assert_eq!(level(given).as_deref(), Ok(read), "{given:?}");
        }
        for (asked, said, same) in [
            ("warn", "WARNING", true),
            ("warning", "warn", true),
            ("panic", "dpanic", true),
            ("error", "Error", true),
            ("error", "fatal", false),
            ("info", "notice", false),
            ("notice", "NOTICE", true),
        ] {
            assert_eq!(is(asked, said), same, "{asked} {said}");
        }
    }
}
