//! Where the parts of a status come from: one composition for everybody who wants to know, at the fleet server and at
//! the device.

use std::{path::PathBuf, rc::Rc};

use api::pb::platform::fleet::v1::{AgentStatus, DeviceStatus, Disk, ProvisioningStatus, UpdateStatus};
use board::{Board, Mono, Wall};

use super::status::{self, Parts};
use crate::{
    config::ConfigStatus,
    kit::latest::Watch,
    logs::SpoolStatus,
    network::{self, Connectivity},
    server,
};

/// What the others publish, and what the device knows of itself.
pub struct Sources {
    /// Clock, files and names of the device.
    pub board: Board,
    /// The folder whose disk is reported.
    pub root: PathBuf,
    /// The agent's own version.
    pub agent_version: String,
    /// When this agent was started.
    pub started: Mono,
    /// Its own life so far.
    pub agent: AgentStatus,
    /// Whether others on this machine can read the credentials, in a sentence.
    pub exposure: Rc<dyn Fn() -> Option<String>>,
    /// How the configuration is.
    pub config: Watch<ConfigStatus>,
    /// The machine server.
    pub server: Watch<server::Report>,
    /// The updates, one per product.
    pub updates: Vec<Watch<UpdateStatus>>,
    /// The log queue.
    pub spool: Watch<SpoolStatus>,
    /// The network.
    pub network: Watch<network::Report>,
    /// The doors; nothing is ever published where there are none.
    pub provisioning: Watch<ProvisioningStatus>,
}

impl Sources {
    /// Everything as it is now.
    #[must_use]
    pub fn parts(&self) -> Parts {
        let Board { clock, files, .. } = &self.board;
        let now = clock.now();
        let disk = files.space(&self.root).ok().map(|space| Disk {
            path: self.root.display().to_string(),
            free_bytes: space.free,
            total_bytes: space.total,
        });
        Parts {
            agent_version: self.agent_version.clone(),
            uptime: now.since(Mono::BOOT),
            agent_uptime: now.since(self.started),
            agent: self.agent.clone(),
            wall: clock.wall(),
            clock_synchronised: clock.wall_is_synchronised(),
            exposure: (self.exposure)(),
            config: self.config.get().unwrap_or_default(),
            server: self.server.get().unwrap_or_default(),
            updates: self.updates.iter().filter_map(Watch::get).collect(),
            disks: disk.into_iter().collect(),
            logs: self.spool.get().unwrap_or_default(),
            network: self.network.get().map(|report| {
                let since = match report.connectivity {
                    Connectivity::Unknown => now,
                    Connectivity::Online { since }
                    | Connectivity::Local { since }
                    | Connectivity::Offline { since } => since,
                };
                let passed = i64::try_from(now.since(since).as_millis()).unwrap_or(i64::MAX);
                (report, Wall::from_millis(clock.wall().as_millis().saturating_sub(passed)))
            }),
            provisioning: self.provisioning.get(),
        }
    }

    /// The status as it is now.
    #[must_use]
    pub fn status(&self) -> DeviceStatus {
        status::compose(self.board.host.facts(), self.parts())
    }
}
