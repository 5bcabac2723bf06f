//! The status for programs. `status` is, key by key, what `machine status -o json` of the command line shows: the names
//! of the contract's messages. Keys are only ever added.
//!
//! A message that is not there (a start that never was) is a key that is not there; everything else always is.

use std::fmt::Write as _;

use api::{
    json::quoted,
    pb::platform::fleet::v1::{
        AgentStatus, CloudStatus, Complaint, DeviceStatus, Disk, LocalStatus, LogStatus, NetworkLink, NetworkStatus,
        Product, ProvisioningStatus, ServerStatus, UpdateStatus,
    },
};
use prost_types::Timestamp;

/// The document of an agent that runs.
pub(super) fn document(status: &LocalStatus, troubles: &[String]) -> String {
    let mut root = Object::new(0);
    root.raw("running", "true");
    root.list("troubles", troubles, |text| quoted(text).to_string());
    root.message("cloud", status.cloud.as_ref(), cloud);
    root.message("status", status.status.as_ref(), device);
    root.end() + "\n"
}

/// The document of one that does not, or does not answer.
pub(super) fn absence(why: &str) -> String {
    let mut root = Object::new(0);
    root.raw("running", "false");
    root.list("troubles", &[why], |text| quoted(text).to_string());
    root.end() + "\n"
}

/// An object that is being written.
struct Object {
    text: String,
    depth: usize,
}

impl Object {
    fn new(depth: usize) -> Self {
        Object { text: "{".to_owned(), depth }
    }

    fn raw(&mut self, key: &str, value: &str) {
        let comma = if self.text.len() > 1 { "," } else { "" };
        let _ = write!(self.text, "{comma}\n{:indent$}\"{key}\": {value}", "", indent = 2 * (self.depth + 1));
    }

    fn text(&mut self, key: &str, value: &str) {
        self.raw(key, &quoted(value).to_string());
    }

    fn number(&mut self, key: &str, value: impl Into<u64>) {
        self.raw(key, &value.into().to_string());
    }

    fn flag(&mut self, key: &str, value: bool) {
        self.raw(key, if value { "true" } else { "false" });
    }

    /// As every reader of such times expects it; one that is no moment is none.
    fn moment(&mut self, key: &str, value: Option<&Timestamp>) {
        if let Some(value) = value {
            self.text(key, &value.to_string());
        }
    }

    fn list<T>(&mut self, key: &str, items: &[T], show: impl Fn(&T) -> String) {
        let items: Vec<String> = items.iter().map(show).collect();
        self.raw(key, &format!("[{}]", items.join(", ")));
    }

    fn messages<T>(&mut self, key: &str, items: &[T], fill: impl Fn(&mut Object, &T)) {
        let depth = self.depth + 1;
        self.list(key, items, |item| {
            let mut object = Object::new(depth);
            fill(&mut object, item);
            object.end()
        });
    }

    fn message<T>(&mut self, key: &str, item: Option<&T>, fill: impl Fn(&mut Object, &T)) {
        if let Some(item) = item {
            let mut object = Object::new(self.depth + 1);
            fill(&mut object, item);
            self.raw(key, &object.end());
        }
    }

    fn end(mut self) -> String {
        let _ = write!(self.text, "\n{:indent$}}}", "", indent = 2 * self.depth);
        self.text
    }
}

fn cloud(object: &mut Object, cloud: &CloudStatus) {
    object.text("reach", cloud.reach().as_str_name());
    object.moment("since", cloud.since.as_ref());
    object.text("why", &cloud.why);
    object.text("address", &cloud.address);
    object.text("part_id", &cloud.part_id);
}

fn device(object: &mut Object, device: &DeviceStatus) {
    object.text("agent_version", &device.agent_version);
    object.text("platform", &device.platform);
    object.text("hostname", &device.hostname);
    object.text("boot_id", &device.boot_id);
    object.number("uptime_seconds", device.uptime_seconds);
    object.number("agent_uptime_seconds", device.agent_uptime_seconds);
    object.moment("device_time", device.device_time.as_ref());
    object.flag("clock_synchronised", device.clock_synchronised);
    object.text("applied_revision", &device.applied_revision);
    object.messages("complaints", &device.complaints, |object, Complaint { path, found, allowed, source }| {
        object.text("path", path);
        object.text("found", found);
        object.text("allowed", allowed);
        object.text("source", source);
    });
    object.message("server", device.server.as_ref(), server);
    object.messages("updates", &device.updates, update);
    object.messages("disks", &device.disks, |object, Disk { path, free_bytes, total_bytes }| {
        object.text("path", path);
        object.number("free_bytes", *free_bytes);
        object.number("total_bytes", *total_bytes);
    });
    object.message("logs", device.logs.as_ref(), |object, LogStatus { queued_bytes, dropped_lines }| {
        object.number("queued_bytes", *queued_bytes);
        object.number("dropped_lines", *dropped_lines);
    });
    object.list("warnings", &device.warnings, |text| quoted(text).to_string());
    object.message("agent", device.agent.as_ref(), |object, agent: &AgentStatus| {
        object.text("slot", &agent.slot);
        object.text("launch_note", &agent.launch_note);
        object.flag("safe_mode", agent.safe_mode);
        object.number("starts", agent.starts);
        object.number("crashes", agent.crashes);
        object.text("start_reason", &agent.start_reason);
    });
    object.message("network", device.network.as_ref(), network);
    object.message("provisioning", device.provisioning.as_ref(), |object, doors: &ProvisioningStatus| {
        object.flag("open", doors.open);
        object.moment("since", doors.since.as_ref());
        object.text("hotspot", doors.hotspot().as_str_name());
        object.text("bluetooth", doors.bluetooth().as_str_name());
        object.text("name", &doors.name);
        object.text("address", &doors.address);
        object.flag("forced", doors.forced);
        object.text("last_network", &doors.last_network);
        object.text("last_result", &doors.last_result);
        object.moment("last_at", doors.last_at.as_ref());
        object.list("trouble", &doors.trouble, |text| quoted(text).to_string());
    });
}

fn network(object: &mut Object, network: &NetworkStatus) {
    object.text("connectivity", network.connectivity().as_str_name());
    object.moment("since", network.since.as_ref());
    object.messages("links", &network.links, |object, link: &NetworkLink| {
        object.text("interface", &link.interface);
        object.text("network", &link.network);
        object.text("address", &link.address);
        object.flag("ours", link.ours);
        object.flag("default_route", link.default_route);
    });
    object.list("trouble", &network.trouble, |text| quoted(text).to_string());
    object.number("offline_reboots", network.offline_reboots);
}

fn server(object: &mut Object, server: &ServerStatus) {
    object.text("phase", server.phase().as_str_name());
    object.text("version", &server.version);
    object.number("pid", server.pid);
    object.moment("started_at", server.started_at.as_ref());
    object.moment("ready_at", server.ready_at.as_ref());
    object.number("crashes", server.crashes);
    object.text("last_exit", &server.last_exit);
    object.list("last_lines", &server.last_lines, |text| quoted(text).to_string());
    object.text("restart_pending", &server.restart_pending);
    object.text("url", &server.url);
    object.number("operator_restarts", server.operator_restarts);
}

fn update(object: &mut Object, update: &UpdateStatus) {
    let product = Product::try_from(update.product).unwrap_or_default();
    object.text("product", product.as_str_name());
    object.text("phase", update.phase().as_str_name());
    object.text("wanted", &update.wanted);
    object.text("target_version", &update.target_version);
    object.text("running_version", &update.running_version);
    object.text("installed_version", &update.installed_version);
    object.number("percent", update.percent);
    object.text("last_error", &update.last_error);
    object.list("bad_versions", &update.bad_versions, |text| quoted(text).to_string());
    object.number("retried", update.retried);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_json_whatever_a_device_says() {
        let text = || "\"\\\u{1b}\n{ü".to_owned();
        let status = LocalStatus {
            cloud: Some(CloudStatus { why: text(), ..CloudStatus::default() }),
            status: Some(DeviceStatus {
                hostname: text(),
                complaints: vec![Complaint::default(); 2],
                server: Some(ServerStatus { last_lines: vec![text(), text()], ..ServerStatus::default() }),
                updates: vec![UpdateStatus { product: 77, phase: 99, ..UpdateStatus::default() }],
                network: Some(NetworkStatus {
                    links: vec![NetworkLink { network: text(), ..NetworkLink::default() }],
                    trouble: vec![text()],
                    ..NetworkStatus::default()
                }),
                uptime_seconds: u64::MAX,
                device_time: Some(Timestamp { seconds: i64::MAX, nanos: i32::MIN }),
                ..DeviceStatus::default()
            }),
        };
        for shown in [document(&status, &[text()]), document(&LocalStatus::default(), &[]), absence(&text())] {
            let limits = api::json::Limits::DOCUMENT;
            let root =
                api::json::parse(shown.trim_end().as_bytes(), limits).unwrap_or_else(|why| panic!("{why}: {shown}"));
            assert!(root.get("running").is_some() && root.get("troubles").is_some());
        }
        let shown = document(&status, &[]);
        let root = api::json::parse(shown.as_bytes(), api::json::Limits::DOCUMENT).expect("JSON");
        let device = root.get("status").expect("given");
        assert_eq!(device.get("hostname").and_then(|name| name.as_text()).as_deref(), Some(&*text()));
        assert!(
            shown.contains("\"phase\": \"PHASE_UNSPECIFIED\"") && shown.contains("18446744073709551615"),
            "{shown}"
        );
    }
}
