//! A device of the bench: its part in the fleet, its agent, its machine server's processes.

use std::{
    fs,
    net::TcpListener,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use api::{
    client::Client,
    pb::platform::fleet::v1::{DeviceStatus, GetPartStatusRequest, admin_service, server_status},
};
use serde_json::json;
use test_harness::real::{agent::AgentOptions, device::Device, eventually, fleet::call};

use crate::Trouble;

/// A certificate for a fleet server on this machine, and whom to believe it.
pub(crate) struct Certificate {
    pub(crate) chain: PathBuf,
    pub(crate) key: PathBuf,
    /// The system's authorities and this one.
    pub(crate) authorities: PathBuf,
}

impl Certificate {
    pub(crate) fn make(folder: &Path) -> Result<Self, Trouble> {
        /// Where Debian, Alpine and Arch keep theirs; without it the agent believes one authority and is a little smaller.
        const OF_THE_SYSTEM: &str = "/etc/ssl/certs/ca-certificates.crt";
        let [chain, key, authorities] = ["chain.pem", "key.pem", "authorities.pem"].map(|name| folder.join(name));
        let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned(), "127.0.0.1".to_owned()])?;
        fs::write(&chain, made.cert.pem())?;
        fs::write(&key, made.signing_key.serialize_pem())?;
        let of_the_system = fs::read_to_string(OF_THE_SYSTEM).unwrap_or_default();
        fs::write(&authorities, of_the_system + &made.cert.pem())?;
        Ok(Certificate { chain, key, authorities })
    }
}

/// The fleet server that the agents talk to.
pub(crate) struct Site {
    pub(crate) client: Client,
    pub(crate) organization_id: String,
    pub(crate) url: String,
}

/// A device of the bench, and how its agent is started.
pub(crate) struct Subject<'s> {
    client: &'s Client,
    device: Device,
    pub(crate) options: AgentOptions,
    /// Of its machine server: a port that nobody else on this machine has.
    pub(crate) status_url: String,
}

impl<'s> Subject<'s> {
    pub(crate) fn new(site: &'s Site, name: &str, options: AgentOptions) -> Result<Self, Trouble> {
        let device = Device::create(&site.client, &site.organization_id, name, name)?;
        fs::create_dir_all(&options.folder)?;
        device.write_credentials(&site.url, &options.credentials())?;
        let free = TcpListener::bind(("127.0.0.1", 0))?.local_addr()?;
        Ok(Subject { client: &site.client, device, options, status_url: format!("http://{free}") })
    }

    /// Sets the `agent` section of the configuration.
    pub(crate) fn configure(&self, mut agent: serde_json::Value) -> Result<(), Trouble> {
        agent["advanced_settings"]["server_status_url"] = json!(self.status_url);
        Ok(self.device.configure(self.client, &json!({ "agent": agent }))?)
    }

    pub(crate) fn wait_until_running(&self) -> Result<(), Trouble> {
        self.status_when("a machine server that runs", |status| {
            status.server.as_ref().is_some_and(|server| server.phase == i32::from(server_status::Phase::Running))
        })
    }

    pub(crate) fn status_when(&self, what: &str, accept: impl Fn(&DeviceStatus) -> bool) -> Result<(), Trouble> {
        let request = GetPartStatusRequest { part_id: self.device.part_id.clone() };
        let accepted = eventually(what, || {
            let status = call(self.client, admin_service::GET_PART_STATUS, &request).ok()?.status?;
            accept(&status).then_some(())
        });
        Ok(accepted?)
    }
}

/// The threads of a process.
pub(crate) fn tasks(pid: u32) -> impl Iterator<Item = PathBuf> {
    fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten().map(|task| task.path())
}

/// The process that the agent has started.
pub(crate) fn child(pid: u32) -> Option<u32> {
    let children = tasks(pid).filter_map(|task| fs::read_to_string(task.join("children")).ok());
    children.flat_map(|list| list.split_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<u32>>()).next()
}

/// Waits for a child that is not `old` and runs its program already.
pub(crate) fn next_child(agent: u32, old: u32) -> Result<u32, Trouble> {
    let own = fs::read_link(format!("/proc/{agent}/exe"))?;
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_secs(60) {
        if let Some(new) = child(agent).filter(|pid| *pid != old)
            && fs::read_link(format!("/proc/{new}/exe")).is_ok_and(|program| program != own)
        {
            return Ok(new);
        }
        // Not without a pause: the agent needs a processor too.
        std::thread::sleep(Duration::from_micros(20));
    }
    Err("no machine server came back".into())
}
