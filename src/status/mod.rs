//! `status`: asks the agent that runs on this device how it is, and shows that.
//!
//! Needs no network and starts nothing: the agent answers through its console socket, whatever else it is doing. The
//! program that asks may be of another version than the one that answers.

mod json;

use std::{
    fmt::Write as _,
    io::{self, Read as _, Write as _},
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};

use actors::console::{ASK_STATUS, REFUSED, STATUS};
use api::{
    brand,
    pb::platform::fleet::v1::{DeviceStatus, LocalStatus},
    report,
};
use prost::Message as _;

use crate::platform;

/// It runs and all is well.
pub const WELL: u8 = 0;
/// No agent runs in this root folder, or it did not answer.
pub const NOT_RUNNING: u8 = 1;
/// It runs, and something is not well.
pub const IN_TROUBLE: u8 = 3;
/// The socket is somebody else's (EX_NOPERM of sysexits).
pub const NOT_PERMITTED: u8 = 77;

/// Longest silence of the agent that is waited out: it answers at once, and those who asked before take seconds at most.
const PATIENCE: Duration = Duration::from_secs(20);
/// Longest answer that is read, in bytes.
const ANSWER_BYTES_MAX: u64 = board::console::ANSWER_BYTES_MAX as u64 + 64;
/// Width of the table, in characters: any terminal has this.
const WIDTH: usize = 80;

/// What was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Root folder of the agent.
    pub root: PathBuf,
    /// A document for programs instead of a table for people.
    pub json: bool,
}

/// Why there is no status.
#[derive(Debug, thiserror::Error)]
pub enum StatusError {
    /// Nobody listens.
    #[error("no agent runs in {}: start it (systemctl start {agent}), or name its folder with --root", root.display(), agent = brand::AGENT)]
    NotRunning {
        /// The root folder.
        root: PathBuf,
    },
    /// The socket belongs to somebody else.
    #[error("the agent in {} answers only to the user whose it is: ask with sudo", root.display())]
    NotPermitted {
        /// The root folder.
        root: PathBuf,
    },
    /// It listens and does not answer.
    #[error("the agent in {} does not answer: {source}; its log may say why (journalctl -u {agent})", root.display(), agent = brand::AGENT)]
    Silent {
        /// The root folder.
        root: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// It answers something else.
    #[error("the agent in {} refuses: {answer}", root.display())]
    Strange {
        /// The root folder.
        root: PathBuf,
        /// What it said.
        answer: String,
    },
}

impl StatusError {
    pub(crate) fn exit(&self) -> u8 {
        match self {
            StatusError::NotPermitted { .. } => NOT_PERMITTED,
            StatusError::NotRunning { .. } | StatusError::Silent { .. } | StatusError::Strange { .. } => NOT_RUNNING,
        }
    }
}

/// Asks, shows, and says how the device is.
#[must_use]
pub fn run(options: &Options) -> ExitCode {
    let (text, exit) = match ask(&options.root) {
        Ok(status) => {
            let troubles = troubles(&status);
            let exit = if troubles.is_empty() { WELL } else { IN_TROUBLE };
            let text = if options.json { json::document(&status, &troubles) } else { table(&status, &troubles) };
            (text, exit)
        }
        Err(error) if options.json => (json::absence(&error.to_string()), error.exit()),
        Err(error) => {
            eprintln!("{}: {error}", brand::AGENT);
            return ExitCode::from(error.exit());
        }
    };
    match io::stdout().write_all(text.as_bytes()) {
        Ok(()) => ExitCode::from(exit),
        Err(_) => ExitCode::from(NOT_RUNNING),
    }
}

/// The status of the agent with this root folder.
pub fn ask(root: &Path) -> Result<LocalStatus, StatusError> {
    let answer = question(root, ASK_STATUS)?;
    read(&answer).ok_or_else(|| strange(root, &answer))
}

/// An answer that is none, in the words of whoever gave it.
pub(crate) fn strange(root: &Path, answer: &[u8]) -> StatusError {
    let said = String::from_utf8_lossy(answer);
    let line = said.lines().next().unwrap_or_default();
    let answer = report::plain(line.strip_prefix(REFUSED).unwrap_or("nonsense"));
    StatusError::Strange { root: root.to_owned(), answer }
}

/// What the agent with this root folder answers to this.
pub(crate) fn question(root: &Path, words: &str) -> Result<Vec<u8>, StatusError> {
    let whose = || root.to_owned();
    let failed = |source: io::Error| match source.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => StatusError::NotRunning { root: whose() },
        io::ErrorKind::PermissionDenied => StatusError::NotPermitted { root: whose() },
        _ => StatusError::Silent { root: whose(), source },
    };
    let silent = |source| StatusError::Silent { root: whose(), source };
    let mut stream = platform::ask_console(&root.join("run"), PATIENCE).map_err(failed)?;
    stream.write_all(format!("{words}\n").as_bytes()).map_err(silent)?;
    let mut answer = Vec::new();
    stream.take(ANSWER_BYTES_MAX).read_to_end(&mut answer).map_err(silent)?;
    if answer.is_empty() {
        return Err(silent(io::ErrorKind::UnexpectedEof.into()));
    }
    Ok(answer)
}

/// A whole answer, and nothing less.
fn read(answer: &[u8]) -> Option<LocalStatus> {
    let end = answer.iter().position(|&byte| byte == b'\n')?;
    let (head, body) = answer.split_at_checked(end)?;
    let length: usize = std::str::from_utf8(head).ok()?.strip_prefix(STATUS)?.parse().ok()?;
    let body = body.get(1..).filter(|body| body.len() == length)?;
    LocalStatus::decode(body).ok()
}

fn troubles(status: &LocalStatus) -> Vec<String> {
    let device = status.status.as_ref().map(report::troubles).unwrap_or_default();
    let cloud = status.cloud.as_ref().and_then(|cloud| report::cloud(cloud).1);
    cloud.into_iter().chain(device).collect()
}

fn table(status: &LocalStatus, troubles: &[String]) -> String {
    let nothing = DeviceStatus::default();
    let device = status.status.as_ref().unwrap_or(&nothing);
    let mut lines = report::facts(device);
    if let Some(cloud) = &status.cloud {
        lines.push(("fleet", report::cloud(cloud).0));
        if !cloud.part_id.is_empty() {
            lines.push(("part", cloud.part_id.clone()));
        }
    }
    let column = lines.iter().map(|(name, _)| name.len()).max().unwrap_or_default() + 2;
    let mut table = String::new();
    for (name, value) in &lines {
        wrap(&mut table, &format!("{name:column$}"), &report::plain(value));
    }
    for trouble in troubles {
        wrap(&mut table, "! ", &report::plain(trouble));
    }
    table
}

/// `text` after `head`, in lines of at most [`WIDTH`]; the further ones begin below the first. A word that is longer
/// than a line stays whole: it may be a path that somebody wants to copy.
fn wrap(table: &mut String, head: &str, text: &str) {
    let indent = head.chars().count();
    let (mut line, mut length, mut fresh) = (head.to_owned(), indent, true);
    for word in text.split_whitespace() {
        let letters = word.chars().count();
        if !fresh && length + 1 + letters > WIDTH {
            let _ = writeln!(table, "{}", line.trim_end());
            (line, length, fresh) = (" ".repeat(indent), indent, true);
        }
        if !fresh {
            line.push(' ');
            length += 1;
        }
        line.push_str(word);
        (length, fresh) = (length + letters, false);
    }
    let _ = writeln!(table, "{}", line.trim_end());
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::pb::platform::fleet::v1::{
        AgentStatus, CloudStatus, Complaint, Disk, Product, ServerStatus, UpdateStatus, cloud_status, server_status,
        update_status,
    };

    fn told() -> LocalStatus {
        let update = |product: Product, phase: update_status::Phase, error: &str| UpdateStatus {
            product: product.into(),
            phase: phase.into(),
            wanted: "stable".into(),
            target_version: "1.2.0".into(),
            installed_version: "1.1.0".into(),
            percent: 41,
            last_error: error.into(),
            bad_versions: vec!["1.1.9".into()],
            ..UpdateStatus::default()
        };
        let status = DeviceStatus {
            agent_version: "0.1.0".into(),
            platform: "linux/arm64".into(),
            hostname: "pump-7".into(),
            uptime_seconds: 90_000,
            agent_uptime_seconds: 3_700,
            agent: Some(AgentStatus {
                slot: "a".into(),
                starts: 12,
                crashes: 2,
                start_reason: "the device booted".into(),
                ..AgentStatus::default()
            }),
            server: Some(ServerStatus {
                phase: server_status::Phase::Running.into(),
                version: "1.1.0".into(),
                pid: 812,
                crashes: 3,
                last_exit: "signal 11 (SIGSEGV)".into(),
                last_lines: vec![
                    "motor: calibrating".into(),
                    "motor: \u{1b}[31mstall at 2048 steps, current 4.1 A, no answer on the bus".into(),
                ],
                url: "http://127.0.0.1:8081".into(),
                ..ServerStatus::default()
            }),
            updates: vec![
                update(Product::Agent, update_status::Phase::Committed, ""),
                update(
                    Product::MachineServer,
                    update_status::Phase::Downloading,
                    "1.1.9 was rolled back: it ended unasked while it was on probation; choose another version, or ask for a retry",
                ),
            ],
            disks: vec![Disk { path: "/opt/platform".into(), free_bytes: 3 << 30, total_bytes: 20 << 30 }],
            complaints: vec![Complaint {
                path: "a.b".into(),
                found: "x".into(),
                allowed: "y".into(),
                source: "cloud".into(),
            }],
            ..DeviceStatus::default()
        };
        let cloud = CloudStatus {
            reach: cloud_status::Reach::Unreachable.into(),
            why: "the fleet server cannot be reached: no route to host".into(),
            address: "https://fleet.example.com".into(),
            part_id: "0a000000-0000-4000-8000-000000000005".into(),
            ..CloudStatus::default()
        };
        LocalStatus { status: Some(status), cloud: Some(cloud) }
    }

    #[test]
    fn a_person_reads_it_at_eighty_columns() {
        let told = told();
        let shown = table(&told, &troubles(&told));
        let expected = "\
device    pump-7 on linux/arm64, up 25 h
agent     0.1.0, up 61 min, start 12 from slot a: the device booted; 2 unasked
          ends
server    1.1.0, running as process 812
url       http://127.0.0.1:8081
crashes   3, last: signal 11 (SIGSEGV)
it said   motor: calibrating
it said   motor: \\u{1b}[31mstall at 2048 steps, current 4.1 A, no answer on the
          bus
versions  agent runs 0.1.0, installed 1.1.0, wanted stable, failed here: 1.1.9
versions  server runs 1.1.0, installed 1.1.0, wanted stable, failed here: 1.1.9
update    agent up to date with \"stable\"
update    server downloading 1.2.0, 41 %
disk      /opt/platform: 3072 MiB of 20 GiB free
fleet     https://fleet.example.com, not reached
part      0a000000-0000-4000-8000-000000000005
! the fleet server cannot be reached: no route to host
! update of the server: 1.1.9 was rolled back: it ended unasked while it was on
  probation; choose another version, or ask for a retry
! a.b: found x, allowed is y (cloud)
";
        assert_eq!(shown, expected);
        assert!(shown.lines().all(|line| line.chars().count() <= WIDTH));
    }

    #[test]
    fn an_answer_is_read_whole_or_not_at_all() {
        let body = told().encode_to_vec();
        let answer = |length: usize, body: &[u8]| [format!("status {length}\n").as_bytes(), body].concat();
        assert_eq!(read(&answer(body.len(), &body)), Some(told()));
        for broken in [
            answer(body.len() + 1, &body),
            answer(body.len(), &body[..body.len() - 1]),
            answer(3, b"\xff\xff\xff"),
            b"status \n".to_vec(),
            b"status 0".to_vec(),
            b"error no\n".to_vec(),
            Vec::new(),
        ] {
            assert_eq!(read(&broken), None, "{:?}", String::from_utf8_lossy(&broken));
        }
        assert_eq!(read(b"status 0\n"), Some(LocalStatus::default()), "an agent that says nothing");
        let _ = table(&LocalStatus::default(), &[]);
    }

    #[test]
    fn nobody_there_is_said_with_what_to_do() {
        let folder = tempfile::tempdir().expect("a folder");
        let error = ask(folder.path()).expect_err("nobody");
        assert!(
            matches!(error, StatusError::NotRunning { .. }) && error.to_string().contains("systemctl start"),
            "{error}"
        );
        assert_eq!(error.exit(), NOT_RUNNING);
    }
}
