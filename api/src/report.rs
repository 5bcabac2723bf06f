//! How the status of a device reads to people: the same lines at the fleet's command line and at the device itself.
//!
//! Owns the words. Texts in a status come from devices and whatever runs on them: whoever prints these lines shows
//! control characters with [`plain`] instead of sending them to a terminal.

use std::time::{Duration, SystemTime};

use prost_types::Timestamp;

use crate::pb::platform::fleet::v1::{
    CloudStatus, Complaint, DeviceStatus, NetworkStatus, Product, ProvisioningStatus, ServerStatus, UpdateStatus,
    cloud_status::Reach, network_status, provisioning_status, server_status, update_status,
};

/// What is so: names and values, to be read from top to bottom. What is wrong is in [`troubles`].
#[must_use]
pub fn facts(device: &DeviceStatus) -> Vec<(&'static str, String)> {
    let up = |seconds| span(Duration::from_secs(seconds));
    let mut lines = vec![
        ("device", format!("{} on {}, up {}", device.hostname, device.platform, up(device.uptime_seconds))),
        ("agent", format!("{}, up {}{}", device.agent_version, up(device.agent_uptime_seconds), life(device))),
    ];
    lines.extend(device.network.iter().flat_map(network));
    lines.extend(device.server.iter().flat_map(server));
    lines.extend(versions(device));
    lines.extend(device.updates.iter().map(update));
    lines.extend(device.disks.iter().map(|disk| {
        ("disk", format!("{}: {} of {} free", disk.path, bytes(disk.free_bytes), bytes(disk.total_bytes)))
    }));
    lines.extend(device.provisioning.iter().flat_map(provisioning));
    if let Some(logs) = device.logs.filter(|logs| logs.queued_bytes > 0 || logs.dropped_lines > 0) {
        let waiting = bytes(logs.queued_bytes);
        lines.push(("logs", format!("{waiting} waiting to be sent, {} lines lost", logs.dropped_lines)));
    }
    lines
}

/// What is not well, as sentences; none when all is.
#[must_use]
pub fn troubles(device: &DeviceStatus) -> Vec<String> {
    let server = device.server.as_ref().and_then(|server| match server.phase() {
        server_status::Phase::NoVersion => Some("no version of the machine server is installed yet".to_owned()),
        server_status::Phase::WaitingToRestart => {
            Some(format!("the machine server ends again and again, last by {}", server.last_exit))
        }
        _ => None,
    });
    let updates = device.updates.iter().filter(|update| !update.last_error.is_empty());
    let updates = updates.map(|update| format!("update of the {}: {}", program(update), update.last_error));
    let network = device.network.iter().flat_map(|network| network.trouble.iter().cloned());
    let complaints = device.complaints.iter().map(complaint);
    let doors = device.provisioning.iter().flat_map(|doors| &doors.trouble).cloned();
    server
        .into_iter()
        .chain(updates)
        .chain(network)
        .chain(device.warnings.iter().cloned())
        .chain(doors)
        .chain(complaints)
        .collect()
}

/// One setting that was not accepted. The fleet server says of fragments what became of them, and not what is allowed.
fn complaint(Complaint { path, found, allowed, source }: &Complaint) -> String {
    let path = if path.is_empty() { String::new() } else { format!("{path}: ") };
    match allowed.as_str() {
        "" => format!("{path}{found} ({source})"),
        allowed => format!("{path}found {found}, allowed is {allowed} ({source})"),
    }
}

/// The fleet server as the device sees it, and what is not well about that.
#[must_use]
pub fn cloud(cloud: &CloudStatus) -> (String, Option<String>) {
    let since = cloud.since.map(|since| format!(", since {}", ago(Some(&since)).trim_end_matches(" ago")));
    let since = since.unwrap_or_default();
    let (state, wrong) = match cloud.reach() {
        Reach::Reached => ("reached", false),
        Reach::Unspecified | Reach::Unknown => ("not asked yet", false),
        Reach::Unreachable => ("not reached", true),
        Reach::CredentialsRefused => ("refuses the credentials", true),
        Reach::NoIdentity => ("this device has no identity", true),
    };
    let address = if cloud.address.is_empty() { String::new() } else { format!("{}, ", cloud.address) };
    let trouble = (wrong && !cloud.why.is_empty()).then(|| cloud.why.clone());
    (format!("{address}{state}{since}"), trouble.or_else(|| wrong.then(|| format!("fleet server: {state}"))))
}

/// One line for how it is, and one for each link.
fn network(network: &NetworkStatus) -> Vec<(&'static str, String)> {
    use network_status::Connectivity;
    let word = match network.connectivity() {
        Connectivity::Unspecified | Connectivity::Unknown => "not looked at yet",
        Connectivity::Online => "online",
        Connectivity::Local => "a link, and no internet",
        Connectivity::Offline => "offline",
    };
    let since = network.since.map(|since| format!(", since {}", ago(Some(&since)).trim_end_matches(" ago")));
    let reboots = match network.offline_reboots {
        0 => String::new(),
        reboots => format!("; {reboots} reboots for being offline"),
    };
    let mut lines = vec![("network", format!("{word}{}{reboots}", since.unwrap_or_default()))];
    lines.extend(network.links.iter().map(|link| {
        let name = if link.network.is_empty() { String::new() } else { format!(" {:?}", link.network) };
        let address = if link.address.is_empty() { "no address" } else { &link.address };
        let way = if link.default_route { "" } else { ", no way out" };
        ("link", format!("{}{name}: {address}{way}", link.interface))
    }));
    lines
}

fn life(device: &DeviceStatus) -> String {
    let Some(agent) = device.agent.as_ref().filter(|agent| agent.starts > 0) else { return String::new() };
    let slot = if agent.slot.is_empty() { String::new() } else { format!(" from slot {}", agent.slot) };
    let crashes = match agent.crashes {
        0 => String::new(),
        crashes => format!("; {crashes} unasked ends"),
    };
    format!(", start {}{slot}: {}{crashes}", agent.starts, agent.start_reason)
}

fn server(server: &ServerStatus) -> Vec<(&'static str, String)> {
    use server_status::Phase;
    let phase = match server.phase() {
        Phase::Unspecified => "unknown",
        Phase::Disabled => "disabled by configuration",
        Phase::Stopped => "stopped",
        Phase::Starting => "starting",
        Phase::Running => "running",
        Phase::Stopping => "stopping",
        Phase::WaitingToRestart => "waiting before it is started again",
        Phase::NoVersion => "not installed yet",
    };
    let mut text = match server.version.as_str() {
        "" => phase.to_owned(),
        version => format!("{version}, {phase}"),
    };
    if server.pid > 0 {
        text += &format!(" as process {}", server.pid);
    }
    if server.started_at.is_some() {
        text += &format!(", started {}", ago(server.started_at.as_ref()));
    }
    let mut lines = vec![("server", text)];
    if !server.url.is_empty() {
        lines.push(("url", server.url.clone()));
    }
    if server.crashes > 0 || !server.last_exit.is_empty() {
        let last = if server.last_exit.is_empty() { "-" } else { &server.last_exit };
        lines.push(("crashes", format!("{}, last: {last}", server.crashes)));
    }
    lines.extend(server.last_lines.iter().map(|line| ("it said", line.clone())));
    if !server.restart_pending.is_empty() {
        lines.push(("restart", server.restart_pending.clone()));
    }
    lines
}

/// One line for each product: what runs, what is installed, what is wanted.
fn versions(device: &DeviceStatus) -> Vec<(&'static str, String)> {
    let known = |text: &str| if text.is_empty() { "-".to_owned() } else { text.to_owned() };
    let line = |product: Product, name: &str, running: &str| {
        let runs = format!("{name} runs {}", known(running));
        // A product that nobody keeps up to date has no more to tell.
        let Some(update) = device.updates.iter().find(|update| update.product() == product) else {
            return ("versions", runs);
        };
        let bad = update.bad_versions.join(", ");
        let bad = if bad.is_empty() { bad } else { format!(", failed here: {bad}") };
        let (installed, wanted) = (known(&update.installed_version), known(&update.wanted));
        ("versions", format!("{runs}, installed {installed}, wanted {wanted}{bad}"))
    };
    let running = device.server.as_ref().filter(|server| server.pid > 0).map_or("", |server| &server.version);
    vec![line(Product::Agent, "agent", &device.agent_version), line(Product::MachineServer, "server", running)]
}

/// Whether people are invited, and what became of the last one; nothing where that never happened.
fn provisioning(doors: &ProvisioningStatus) -> Vec<(&'static str, String)> {
    use provisioning_status::Door;
    let mut lines = Vec::new();
    if doors.open {
        let mut open = Vec::new();
        if doors.hotspot() == Door::Open {
            open.push(format!("hotspot {} with its page at {}", doors.name, doors.address));
        }
        if doors.bluetooth() == Door::Open {
            open.push(format!("Bluetooth as {}", doors.name));
        }
        let open = if open.is_empty() { "no door is open yet".to_owned() } else { open.join(", ") };
        let asked = if doors.forced { ", asked for at the device" } else { "" };
        let since = ago(doors.since.as_ref());
        lines.push(("setup", format!("waits for a person since {}{asked}: {open}", since.trim_end_matches(" ago"))));
    }
    if !doors.last_network.is_empty() {
        let last = format!("{} was given {}: {}", doors.last_network, ago(doors.last_at.as_ref()), doors.last_result);
        lines.push(("setup", last));
    }
    lines
}

fn program(update: &UpdateStatus) -> &'static str {
    match update.product() {
        Product::Agent => "agent",
        Product::MachineServer => "server",
        Product::Unspecified => "program",
    }
}

fn update(update: &UpdateStatus) -> (&'static str, String) {
    use update_status::Phase;
    let target = &update.target_version;
    let phase = match update.phase() {
        Phase::Unspecified | Phase::Idle | Phase::Committed if update.wanted.is_empty() => "not updated".to_owned(),
        Phase::Unspecified | Phase::Idle | Phase::Committed if update.last_error.is_empty() => {
            format!("up to date with {:?}", update.wanted)
        }
        Phase::Unspecified | Phase::Idle | Phase::Committed => format!("could not be brought to {:?}", update.wanted),
        Phase::Downloading => format!("downloading {target}, {} %", update.percent),
        Phase::Verifying => format!("verifying {target}"),
        Phase::Staged => format!("{target} is ready and starts with the next restart"),
        Phase::Waiting => format!("{target} waits for the maintenance window"),
        Phase::Switching => format!("switching to {target}"),
        Phase::Probation => format!("{target} is on probation"),
        Phase::RolledBack => "went back to the version before".to_owned(),
    };
    ("update", format!("{} {phase}", program(update)))
}

/// A number of bytes as people read it.
#[must_use]
pub fn bytes(bytes: u64) -> String {
    const MIB: u64 = 1024 * 1024;
    match bytes {
        0..MIB => format!("{} KiB", bytes / 1024),
        _ if bytes < 10 * 1024 * MIB => format!("{} MiB", bytes / MIB),
        _ => format!("{} GiB", bytes / (1024 * MIB)),
    }
}

/// How long ago, roughly: "12 s ago", "3 h ago".
#[must_use]
pub fn ago(time: Option<&Timestamp>) -> String {
    let Some(then) = time.filter(|time| time.seconds > 0).and_then(|time| SystemTime::try_from(*time).ok()) else {
        return "never".to_owned();
    };
    match SystemTime::now().duration_since(then) {
        Ok(past) => format!("{} ago", span(past)),
        // The other's clock may run ahead of ours.
        Err(_) => "now".to_owned(),
    }
}

/// A length of time in its largest unit.
#[must_use]
pub fn span(length: Duration) -> String {
    let seconds = length.as_secs();
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7200 => format!("{} min", seconds / 60),
        7200..172_800 => format!("{} h", seconds / 3600),
        _ => format!("{} days", seconds / 86_400),
    }
}

/// A text with its control characters made visible.
#[must_use]
pub fn plain(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for sign in text.chars() {
        match sign {
            '\n' | '\t' => shown.push(sign),
            _ if sign.is_control() => shown.extend(sign.escape_default()),
            _ => shown.push(sign),
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_shown() {
        assert_eq!(plain("a\u{1b}[2Jb\r\u{7}ü\n\tc"), "a\\u{1b}[2Jb\\r\\u{7}ü\n\tc");
    }

    #[test]
    fn spans() {
        for (seconds, text) in [(0, "0 s"), (119, "119 s"), (120, "2 min"), (7200, "2 h"), (172_800, "2 days")] {
            assert_eq!(span(Duration::from_secs(seconds)), text);
        }
    }

    #[test]
    fn doors_are_named_when_people_are_invited() {
        use provisioning_status::Door;
        let closed =
            ProvisioningStatus { hotspot: Door::Closed.into(), name: "setup-pump".into(), ..Default::default() };
        assert_eq!(provisioning(&closed), []);
        let open = ProvisioningStatus {
            open: true,
            hotspot: Door::Open.into(),
            bluetooth: Door::Open.into(),
            address: "http://10.42.0.1".into(),
            forced: true,
            last_network: "home".into(),
            last_result: "wrong password for home".into(),
            ..closed.clone()
        };
        let expected = [
            "waits for a person since never, asked for at the device: hotspot setup-pump with its page at \
             http://10.42.0.1, Bluetooth as setup-pump",
            "home was given never: wrong password for home",
        ];
        assert_eq!(provisioning(&open), expected.map(|text| ("setup", text.to_owned())));
        let waiting = ProvisioningStatus { open: true, ..closed };
        assert!(provisioning(&waiting)[0].1.ends_with(": no door is open yet"));
    }

    #[test]
    fn an_update_in_each_phase() {
        use update_status::Phase;
        let table = [
            (Phase::Idle, "", "server up to date with \"stable\""),
            (Phase::Idle, "no such channel", "server could not be brought to \"stable\""),
            (Phase::Downloading, "", "server downloading 1.1.0, 40 %"),
            (Phase::Verifying, "", "server verifying 1.1.0"),
            (Phase::Staged, "", "server 1.1.0 is ready and starts with the next restart"),
            (Phase::Waiting, "", "server 1.1.0 waits for the maintenance window"),
            (Phase::Switching, "", "server switching to 1.1.0"),
            (Phase::Probation, "", "server 1.1.0 is on probation"),
            (Phase::Committed, "", "server up to date with \"stable\""),
            (Phase::RolledBack, "it crashed", "server went back to the version before"),
        ];
        for (phase, error, line) in table {
            let told = UpdateStatus {
                product: Product::MachineServer.into(),
                phase: phase.into(),
                wanted: "stable".into(),
                target_version: "1.1.0".into(),
                percent: 40,
                last_error: error.into(),
                ..UpdateStatus::default()
            };
            assert_eq!(update(&told), ("update", line.to_owned()));
            let troubles = troubles(&DeviceStatus { updates: vec![told], ..DeviceStatus::default() });
            assert_eq!(troubles.len(), usize::from(!error.is_empty()), "{phase:?}: {troubles:?}");
        }
        let unwished = UpdateStatus { last_error: "no launcher".into(), ..UpdateStatus::default() };
        assert_eq!(update(&unwished).1, "program not updated");
    }

    #[test]
    fn complaints_say_no_more_than_is_known() {
        let table = [
            (("a.b", "1", "true or false", "cloud"), "a.b: found 1, allowed is true or false (cloud)"),
            (
                ("", "33 more complaints", "32 at a time", "cloud"),
                "found 33 more complaints, allowed is 32 at a time (cloud)",
            ),
            (("fragment c", "it contains itself", "", "fragments"), "fragment c: it contains itself (fragments)"),
        ];
        for ((path, found, allowed, source), sentence) in table {
            let told =
                Complaint { path: path.into(), found: found.into(), allowed: allowed.into(), source: source.into() };
            let device = DeviceStatus { complaints: vec![told], ..DeviceStatus::default() };
            assert_eq!(troubles(&device), [sentence]);
        }
    }

    #[test]
    fn the_network() {
        use crate::pb::platform::fleet::v1::NetworkLink;
        let link = |interface: &str, network: &str, address: &str, default_route| NetworkLink {
            interface: interface.into(),
            network: network.into(),
            address: address.into(),
            ours: true,
            default_route,
        };
        let told = NetworkStatus {
            connectivity: network_status::Connectivity::Online.into(),
            since: None,
            links: vec![link("eth0", "", "10.0.0.2/24", false), link("wlan0", "a \\x07", "", true)],
            trouble: vec!["there is no WiFi device".into()],
            offline_reboots: 2,
        };
        let lines = network(&told);
        assert_eq!(
            lines,
            [
                ("network", "online; 2 reboots for being offline".to_owned()),
                ("link", "eth0: 10.0.0.2/24, no way out".to_owned()),
                ("link", "wlan0 \"a \\\\x07\": no address".to_owned()),
            ]
        );
        let device = DeviceStatus { network: Some(told), ..DeviceStatus::default() };
        assert_eq!(troubles(&device), ["there is no WiFi device"]);
    }

    #[test]
    fn the_fleet_server_as_the_device_sees_it() {
        let told = |reach: Reach, why: &str| {
            cloud(&CloudStatus {
                reach: reach.into(),
                why: why.into(),
                address: "https://f".into(),
                ..Default::default()
            })
        };
        assert_eq!(told(Reach::Reached, ""), ("https://f, reached".into(), None));
        assert_eq!(told(Reach::Unknown, ""), ("https://f, not asked yet".into(), None));
        assert_eq!(told(Reach::Unreachable, "no route"), ("https://f, not reached".into(), Some("no route".into())));
        let refused = "fleet server: refuses the credentials".to_owned();
        assert_eq!(told(Reach::CredentialsRefused, ""), ("https://f, refuses the credentials".into(), Some(refused)));
    }
}
