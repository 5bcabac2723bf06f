//! What the device tells about itself, bounded.
//!
//! Owns the limits of a report, what of it counts as a change, and what needs saying as a sentence. Everything in it
//! comes from the other actors' published states; nothing here is a decision about the device.

use std::time::Duration;

use api::device_config as config;
use api::pb::platform::{
    app::agent::v1::{DeviceAgentConfigRequest, HostInfo, VersionInfo},
    fleet::v1::{
        AgentStatus, Complaint, DeviceStatus, Disk, LogStatus, NetworkLink, NetworkStatus, Product, ProvisioningStatus,
        ServerStatus, UpdateStatus, network_status, server_status, update_status,
    },
};
use board::{Wall, host::Facts};
use prost_types::Timestamp;

use crate::{
    config::ConfigStatus,
    logs::SpoolStatus,
    network::{self, Connectivity},
    server::{self, Phase},
};

/// Bytes of one text: a sentence, a path, a line.
const TEXT_BYTES_MAX: usize = 256;
/// Complaints in one report: the first ones are enough to find the mistake.
const COMPLAINTS_MAX: usize = 32;
/// Last lines of a machine server that died.
const LAST_LINES_MAX: usize = 20;
/// Versions remembered as bad, per product.
const BAD_VERSIONS_MAX: usize = 16;
/// Sentences for the operator.
const WARNINGS_MAX: usize = 16;
/// Links of one device.
const LINKS_MAX: usize = 16;
/// Percents of a download that are worth a report.
const PERCENT_STEP: u32 = 10;
/// Parts of a disk whose change is worth a report.
const DISK_STEPS: u64 = 20;

/// Everything a report is made of.
#[derive(Clone, Debug, Default)]
pub struct Parts {
    /// The agent's version.
    pub agent_version: String,
    /// Time since the device booted.
    pub uptime: Duration,
    /// Time since this agent started.
    pub agent_uptime: Duration,
    /// The agent's own life.
    pub agent: AgentStatus,
    /// The device's own clock.
    pub wall: Wall,
    /// Whether anything vouches for it.
    pub clock_synchronised: bool,
    /// Whether others on this machine can read the credentials, in a sentence.
    pub exposure: Option<String>,
    /// The configuration.
    pub config: ConfigStatus,
    /// The machine server.
    pub server: server::Report,
    /// The updates, one per product.
    pub updates: Vec<UpdateStatus>,
    /// Where the agent's files lie.
    pub disks: Vec<Disk>,
    /// The log queue.
    pub logs: SpoolStatus,
    /// The network, and since when it is so.
    pub network: Option<(network::Report, Wall)>,
    /// The doors; `None` where there are none.
    pub provisioning: Option<ProvisioningStatus>,
}

/// The report.
#[must_use]
pub fn compose(facts: &Facts, parts: Parts) -> DeviceStatus {
    let warnings = warnings(&parts);
    let Parts { server, logs, config, .. } = parts;
    DeviceStatus {
        agent_version: parts.agent_version,
        platform: facts.platform.clone(),
        hostname: cut(facts.hostname.clone()),
        boot_id: facts.boot_id.clone(),
        uptime_seconds: parts.uptime.as_secs(),
        agent_uptime_seconds: parts.agent_uptime.as_secs(),
        device_time: Some(timestamp(parts.wall)),
        clock_synchronised: parts.clock_synchronised,
        applied_revision: config.applied_revision.iter().flatten().map(|byte| format!("{byte:02x}")).collect(),
        complaints: config.complaints.iter().take(COMPLAINTS_MAX).map(complaint).collect(),
        server: Some(server_status(server)),
        updates: parts.updates.into_iter().map(bounded_update).collect(),
        disks: parts.disks,
        logs: Some(LogStatus { queued_bytes: logs.queued_bytes, dropped_lines: logs.dropped_lines }),
        warnings,
        agent: Some(bounded_agent(parts.agent)),
        network: parts.network.map(|(report, since)| network_status(report, since)),
        provisioning: parts.provisioning.map(bounded_doors),
    }
}

fn network_status(report: network::Report, since: Wall) -> NetworkStatus {
    use network_status::Connectivity as Wire;
    let network::Report { connectivity, links, trouble, reboots } = report;
    let (word, since) = match connectivity {
        Connectivity::Unknown => (Wire::Unknown, None),
        Connectivity::Online { .. } => (Wire::Online, Some(since)),
        Connectivity::Local { .. } => (Wire::Local, Some(since)),
        Connectivity::Offline { .. } => (Wire::Offline, Some(since)),
    };
    let links = links.into_iter().take(LINKS_MAX).map(|link| NetworkLink {
        interface: cut(link.interface),
        network: link.ssid.map(|ssid| cut(ssid.to_string())).unwrap_or_default(),
        address: link.address.map(|(address, prefix)| format!("{address}/{prefix}")).unwrap_or_default(),
        ours: link.key.is_some(),
        default_route: link.default_route,
    });
    NetworkStatus {
        connectivity: word.into(),
        since: since.map(timestamp),
        links: links.collect(),
        trouble: trouble.into_iter().take(WARNINGS_MAX).map(cut).collect(),
        offline_reboots: reboots,
    }
}

/// What is asked along with the configuration: who asks, and which versions run. The part id is the caller's.
#[must_use]
pub fn config_request(facts: &Facts, parts: &Parts) -> DeviceAgentConfigRequest {
    let running = parts.server.process.and(parts.server.program.as_ref()).map(|program| program.version.clone());
    let uptime = running.is_some().then_some(parts.server.started_at).flatten().map(|started| {
        let millis = parts.wall.as_millis().saturating_sub(started.as_millis());
        Duration::from_millis(u64::try_from(millis).unwrap_or_default())
    });
    let installed = |product: Product, running: &str| {
        let update = parts.updates.iter().find(|update| update.product == product as i32);
        let staged = update.filter(|update| {
            use update_status::Phase::{Probation, Staged, Switching, Waiting};
            [Staged, Waiting, Switching, Probation].contains(&update.phase())
        });
        staged
            .map_or_else(
                || {
                    let update = update?;
                    let known = [&update.installed_version, &update.running_version];
                    known.into_iter().find(|version| !version.is_empty()).cloned()
                },
                |update| Some(update.target_version.clone()),
            )
            .unwrap_or_else(|| running.to_owned())
    };
    let running = running.unwrap_or_default();
    DeviceAgentConfigRequest {
        host_info: Some(HostInfo { platform: facts.platform.clone(), distro: facts.distro.clone(), tags: Vec::new() }),
        version_info: Some(VersionInfo {
            agent_installed: installed(Product::Agent, &parts.agent_version),
            platform_server_installed: installed(Product::MachineServer, &running),
            agent_running: parts.agent_version.clone(),
            platform_server_running: running,
        }),
        agent_uptime: duration(parts.agent_uptime),
        platform_server_uptime: uptime.and_then(duration),
        ..DeviceAgentConfigRequest::default()
    }
}

/// Whether an update has failed in a way that an operator may want tried again.
#[must_use]
pub fn is_in_trouble(update: &UpdateStatus) -> bool {
    // Without a wish there is nobody who could try: an agent that was started without its launcher.
    !(update.wanted.is_empty() || update.last_error.is_empty() && update.bad_versions.is_empty())
}

/// Remembers what the server was told last.
#[derive(Clone, Debug, Default)]
pub struct Told {
    last: Option<DeviceStatus>,
}

impl Told {
    /// Whether this says anything that the server has not been told. What merely passes (time, bytes) does not count.
    #[must_use]
    pub fn is_news(&self, status: &DeviceStatus) -> bool {
        self.last.as_ref() != Some(&essence(status))
    }

    /// The server was told this.
    pub fn remember(&mut self, status: &DeviceStatus) {
        self.last = Some(essence(status));
    }
}

/// A status without what changes all the time.
fn essence(status: &DeviceStatus) -> DeviceStatus {
    let mut essence = DeviceStatus { uptime_seconds: 0, agent_uptime_seconds: 0, device_time: None, ..status.clone() };
    if let Some(logs) = &mut essence.logs {
        logs.queued_bytes = 0;
        // Twice as many are news: a machine server that floods for days must not be a report every few seconds.
        logs.dropped_lines = u64::from(u64::BITS - logs.dropped_lines.leading_zeros());
    }
    if let Some(network) = &mut essence.network {
        // A clock that is set changes it, too.
        network.since = None;
    }
    for update in &mut essence.updates {
        update.percent -= update.percent % PERCENT_STEP;
    }
    for disk in &mut essence.disks {
        disk.free_bytes = disk.free_bytes.saturating_mul(DISK_STEPS).checked_div(disk.total_bytes).unwrap_or_default();
    }
    essence
}

fn warnings(parts: &Parts) -> Vec<String> {
    let clock = (!parts.clock_synchronised)
        .then(|| "the clock is not synchronised: times of logs and of certificates may be wrong".to_owned());
    // Without their number, which may rise all the time: it stands elsewhere in the report.
    let lost = (parts.logs.dropped_lines > 0).then(|| "log lines were lost since the agent started".to_owned());
    let full = parts
        .disks
        .iter()
        .filter(|disk| disk.total_bytes > 0 && disk.free_bytes < disk.total_bytes / DISK_STEPS)
        .map(|disk| format!("the disk that holds {} is almost full: make room on it", disk.path));
    let unstored = parts.config.trouble.as_ref();
    let unstored = unstored.map(|why| format!("the configuration in force would be lost by a restart: {why}"));
    let windows = parts.server.trouble.iter().cloned();
    let launch = Some(parts.agent.launch_note.clone()).filter(|note| !note.is_empty());
    let safe = parts.agent.safe_mode.then(|| {
        "the agent runs in safe mode: what was stored on the device is set aside, and its settings come from the \
         defaults file and the fleet server only"
            .to_owned()
    });
    launch
        .into_iter()
        .chain(safe)
        .chain(parts.exposure.clone())
        .chain(clock)
        .chain(unstored)
        .chain(lost)
        .chain(full)
        .chain(windows)
        .take(WARNINGS_MAX)
        .map(cut)
        .collect()
}

fn server_status(report: server::Report) -> ServerStatus {
    use server_status::Phase as Wire;
    let phase = match report.phase {
        Phase::NoVersion => Wire::NoVersion,
        Phase::Disabled => Wire::Disabled,
        Phase::Starting => Wire::Starting,
        Phase::Running => Wire::Running,
        Phase::Stopping => Wire::Stopping,
        Phase::WaitingToRestart => Wire::WaitingToRestart,
    };
    let lines = report.last_lines.len().saturating_sub(LAST_LINES_MAX);
    ServerStatus {
        phase: phase.into(),
        version: report.program.map(|program| cut(program.version)).unwrap_or_default(),
        pid: report.process.map(|process| process.pid).unwrap_or_default(),
        started_at: report.started_at.map(timestamp),
        ready_at: report.ready_at.map(timestamp),
        crashes: report.crashes,
        last_exit: cut(report.last_exit),
        last_lines: report.last_lines.into_iter().skip(lines).map(cut).collect(),
        restart_pending: cut(report.restart_pending),
        url: cut(report.url),
        operator_restarts: report.operator_restarts,
    }
}

fn bounded_agent(agent: AgentStatus) -> AgentStatus {
    let AgentStatus { slot, launch_note, start_reason, .. } = agent;
    AgentStatus { slot: cut(slot), launch_note: cut(launch_note), start_reason: cut(start_reason), ..agent }
}

fn bounded_doors(doors: ProvisioningStatus) -> ProvisioningStatus {
    let ProvisioningStatus { last_network, last_result, trouble, .. } = doors;
    ProvisioningStatus {
        last_network: cut(last_network),
        last_result: cut(last_result),
        trouble: trouble.into_iter().take(WARNINGS_MAX).map(cut).collect(),
        ..doors
    }
}

fn complaint(complaint: &config::Complaint) -> Complaint {
    Complaint {
        path: cut(complaint.path.to_string()),
        found: cut(complaint.found.to_string()),
        allowed: cut(complaint.allowed.to_string()),
        source: cut(complaint.origin.to_string()),
    }
}

fn bounded_update(update: UpdateStatus) -> UpdateStatus {
    UpdateStatus {
        wanted: cut(update.wanted),
        target_version: cut(update.target_version),
        running_version: cut(update.running_version),
        installed_version: cut(update.installed_version),
        last_error: cut(update.last_error),
        bad_versions: update.bad_versions.into_iter().take(BAD_VERSIONS_MAX).map(cut).collect(),
        ..update
    }
}

fn cut(mut text: String) -> String {
    if text.len() > TEXT_BYTES_MAX {
        let end = (0..=TEXT_BYTES_MAX).rev().find(|&end| text.is_char_boundary(end)).unwrap_or(0);
        text.truncate(end);
    }
    text
}

pub(crate) fn timestamp(at: Wall) -> Timestamp {
    let millis = at.as_millis();
    Timestamp {
        seconds: millis.div_euclid(1_000),
        nanos: i32::try_from(millis.rem_euclid(1_000) * 1_000_000).unwrap_or_default(),
    }
}

fn duration(time: Duration) -> Option<prost_types::Duration> {
    time.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::Program;
    use board::process::ProcessId;

    fn facts() -> Facts {
        Facts {
            platform: "linux/arm64".into(),
            distro: "debian 12".into(),
            hostname: "robot".into(),
            boot_id: "b".into(),
            serial: "s".into(),
        }
    }

    fn parts() -> Parts {
        Parts {
            agent_version: "1.2.3".into(),
            wall: Wall::from_millis(1_700_000_060_500),
            clock_synchronised: true,
            server: server::Report {
                phase: Phase::Running,
                program: Some(Program { version: "4.5.6".into(), path: "/p".into() }),
                process: Some(ProcessId { pid: 77, start_ticks: 1 }),
                started_at: Some(Wall::from_millis(1_700_000_000_000)),
                ..server::Report::default()
            },
            disks: vec![Disk { path: "/".into(), free_bytes: 500, total_bytes: 1_000 }],
            ..Parts::default()
        }
    }

    fn complained(text: &str) -> config::Complaint {
        config::Complaint {
            origin: config::Origin::Cloud,
            path: text.into(),
            position: None,
            found: text.into(),
            allowed: text.into(),
        }
    }

    #[test]
    fn passing_time_is_no_news_and_everything_else_is() {
        let mut told = Told::default();
        let first = compose(&facts(), parts());
        assert!(told.is_news(&first), "nothing was told yet");
        told.remember(&first);
        type Change = fn(&mut Parts);
        let table: [(&str, bool, Change); 12] = [
            ("nothing", false, |_| {}),
            ("time", false, |parts| parts.uptime = Duration::from_secs(9)),
            ("a few bytes", false, |parts| parts.disks[0].free_bytes = 510),
            ("many bytes", true, |parts| parts.disks[0].free_bytes = 100),
            ("lines wait", false, |parts| parts.logs.queued_bytes = 10_000),
            ("lines are lost", true, |parts| parts.logs.dropped_lines = 1),
            ("others can read the credentials", true, |parts| parts.exposure = Some("chmod 600 it".into())),
            ("a window cannot be followed", true, |parts| parts.server.trouble = vec!["no such zone".into()]),
            ("the machine server died", true, |parts| parts.server.crashes = 1),
            ("another configuration", true, |parts| parts.config.applied_revision = Some([1; 32])),
            ("the network is looked at", true, |parts| parts.network = Some(Default::default())),
            ("a complaint", true, |parts| parts.config.complaints = [complained("p")].into()),
        ];
        for (case, news, change) in table {
            let mut parts = parts();
            change(&mut parts);
            assert_eq!(told.is_news(&compose(&facts(), parts)), news, "{case}");
        }
    }

    #[test]
    fn lines_that_go_on_being_lost_are_news_less_and_less() {
        let (mut told, mut news) = (Told::default(), 0);
        for dropped_lines in 0..10_000 {
            let mut parts = parts();
            parts.logs.dropped_lines = dropped_lines;
            let status = compose(&facts(), parts);
            if told.is_news(&status) {
                news += 1;
                told.remember(&status);
            }
        }
        assert_eq!(news, 15, "the first report, the first line, and each doubling");
    }

    #[test]
    fn a_report_is_bounded_whatever_it_is_made_of() {
        let long = || "ü".repeat(100_000);
        let mut parts = parts();
        parts.config.complaints = vec![complained(&long()); 1_000].into();
        let link = board::network::Link {
            interface: long(),
            ssid: board::network::Ssid::new(&[b'\n'; 32]),
            key: None,
            address: None,
            default_route: true,
        };
        let (links, trouble) = (vec![link; 1_000], vec![long(); 1_000]);
        parts.network = Some((network::Report { links, trouble, ..Default::default() }, Wall::default()));
        parts.server.last_lines = (0..1_000).map(|number| format!("{number} {}", long())).collect();
        parts.server.last_exit = long();
        parts.updates = vec![
            UpdateStatus {
                wanted: long(),
                target_version: long(),
                running_version: long(),
                last_error: long(),
                bad_versions: vec![long(); 1_000],
                ..UpdateStatus::default()
            };
            2
        ];
        let status = compose(&facts(), parts);
        assert!(prost::Message::encoded_len(&status) < 64 * 1024);
        assert_eq!(status.server.map(|server| server.last_lines.len()), Some(LAST_LINES_MAX));
        let last = status.complaints.last().map(|complaint| complaint.path.len());
        assert_eq!((status.complaints.len(), last), (COMPLAINTS_MAX, Some(TEXT_BYTES_MAX)));
    }

    #[test]
    fn versions_and_uptimes_are_what_runs_and_what_comes_next() {
        let request = config_request(&facts(), &parts());
        let versions = request.version_info.expect("always told");
        assert_eq!((versions.agent_running.as_str(), versions.agent_installed.as_str()), ("1.2.3", "1.2.3"));
        assert_eq!(versions.platform_server_running, "4.5.6");
        assert_eq!(request.platform_server_uptime.map(|uptime| uptime.seconds), Some(60));

        let mut parts = parts();
        parts.server.process = None;
        parts.updates = vec![UpdateStatus {
            product: Product::MachineServer.into(),
            phase: update_status::Phase::Waiting.into(),
            target_version: "4.6.0".into(),
            running_version: "4.5.6".into(),
            ..UpdateStatus::default()
        }];
        let request = config_request(&facts(), &parts);
        let versions = request.version_info.expect("always told");
        assert_eq!(versions.platform_server_running, "", "nothing runs");
        assert_eq!(versions.platform_server_installed, "4.6.0");
        assert_eq!(request.platform_server_uptime, None);
    }

    #[test]
    fn what_an_operator_should_read_is_said() {
        let mut parts = parts();
        parts.clock_synchronised = false;
        parts.logs.dropped_lines = 3;
        parts.disks[0].free_bytes = 1;
        parts.config.trouble = Some("the disk is full".into());
        parts.server.trouble = vec!["no such zone".into()];
        parts.agent = AgentStatus { launch_note: "fell back".into(), safe_mode: true, ..AgentStatus::default() };
        assert_eq!(compose(&facts(), parts).warnings.len(), 7);
    }
}
