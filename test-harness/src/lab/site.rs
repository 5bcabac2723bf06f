//! What a board needs of the rest of the world: a fleet server, a manufacturer, and a machine that is to be this board.

use std::{
    fs,
    path::{Path, PathBuf},
};

use api::{
    brand::{AGENT, LAUNCHER},
    client::Client,
    pb::platform::{
        app::v1::{GetRobotPartLogsRequest, GetRobotPartLogsResponse, app_service},
        fleet::v1::{
            DeviceStatus, GetPartStatusRequest, Product, ServerStatus, UpdateStatus, admin_service, server_status,
        },
    },
};
use serde_json::{Value, json};

use super::board::Target;
use crate::real::{
    Trouble, agents,
    device::Device,
    eventually,
    fleet::{Fleet, Owner, call, client, init},
    http, programs,
    releases::{self, Factory},
    stand_in,
};

/// Where a person puts the programs on the board.
pub const DOWNLOADS: &str = "/root/download";
/// Where the machine server of the board answers.
const STATUS_URL: &str = "http://127.0.0.1:8081";
/// The version that a board is made with.
pub const FIRST: &str = "1.0.0";

/// Everything beside the board.
pub struct Site {
    /// The server.
    pub fleet: Fleet,
    /// Its owner.
    pub owner: Owner,
    /// The machine.
    pub device: Device,
    factory: Factory,
    client: Client,
    folder: PathBuf,
    numbers: u64,
    kind: Kind,
}

/// What the board is made of, and where the programs for it are.
#[derive(Clone, Debug)]
pub struct Kind {
    /// As releases name it.
    pub platform: String,
    /// Where agent, launcher and stand-in are; those that are not there are the ones built beside this program.
    pub programs: Option<PathBuf>,
}

impl Kind {
    /// This machine's own kind. `LAB_PROGRAMS` names a folder with other programs, such as those of the device's build.
    #[must_use]
    pub fn own() -> Kind {
        Kind { platform: releases::this_platform(), programs: std::env::var_os("LAB_PROGRAMS").map(PathBuf::from) }
    }

    fn find(&self, name: &str) -> Result<PathBuf, Trouble> {
        let there = self.programs.as_ref().map(|folder| folder.join(name)).filter(|path| path.is_file());
        there.map_or_else(|| programs::find(name), Ok)
    }
}

impl Site {
    /// A fleet server with the first version of each product.
    pub fn open(folder: &Path) -> Result<Site, Trouble> {
        Site::open_for(Kind::own(), folder)
    }

    /// The same for a board of another kind.
    pub fn open_for(kind: Kind, folder: &Path) -> Result<Site, Trouble> {
        fs::create_dir_all(folder).map_err(|error| Trouble::of(folder.display(), error))?;
        let data = folder.join("fleet");
        let owner = init(&data, None)?;
        let factory = Factory::open(&folder.join("factory"), &data)?;
        let fleet =
            Fleet::start_with(&data, "127.0.0.1:0", None, &folder.join("fleet.log"), &["--check-seconds", "1"])?;
        let client = client(&fleet.url, &owner)?;
        let device = Device::create(&client, &owner.organization_id, "Hillside", "board")?;
        let mut site = Site { fleet, owner, device, factory, client, folder: folder.to_owned(), numbers: 0, kind };
        let server = folder.join("stand-in");
        stand_in::build_from(&site.kind.find(stand_in::PROGRAM)?, FIRST, &[], 0, &server)?;
        site.publish("platform-server", FIRST, &server)?;
        let agent = folder.join(AGENT);
        agents::build_from(&site.kind.find(AGENT)?, FIRST, &agent)?;
        site.publish(AGENT, FIRST, &agent)?;
        let launcher = site.kind.find(LAUNCHER)?;
        site.publish(LAUNCHER, FIRST, &launcher)?;
        Ok(site)
    }

    /// Signs and publishes a version of a product, and makes it stable.
    pub fn publish(&mut self, product: &str, version: &str, artifact: &Path) -> Result<(), Trouble> {
        self.numbers += 1;
        self.factory.publish_for(&self.kind.platform, product, version, self.numbers, artifact)
    }

    /// A path for a program that is to be published.
    #[must_use]
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Puts onto the board what a manufacturer puts there: defaults with the release keys.
    pub fn make(&self, board: &dyn Target) -> Result<(), Trouble> {
        self.make_with(board, json!({}))
    }

    /// The same with settings of the section `network_configuration`.
    pub fn make_with(&self, board: &dyn Target, network: Value) -> Result<(), Trouble> {
        let text = fs::read(self.factory.key()).map_err(|error| Trouble::of("the release key", error))?;
        let key: Value = serde_json::from_slice(&text).map_err(|error| Trouble::of("the release key", error))?;
        let defaults =
            json!({"advanced_settings": {"release_keys": [key["public"]]}, "network_configuration": network});
        board.write("/etc/platform-defaults.json", 0o644, defaults.to_string().as_bytes())
    }

    /// Puts the credentials onto the board.
    pub fn introduce(&self, board: &dyn Target) -> Result<(), Trouble> {
        board.write("/etc/platform.json", 0o600, self.device.credentials(&self.address(board)).as_bytes())
    }

    /// The fleet server's address, as the board has to call it.
    #[must_use]
    pub fn address(&self, board: &dyn Target) -> String {
        self.fleet.url.replace("127.0.0.1", board.outside())
    }

    /// Puts onto the board what a person does: credentials, agent and launcher; and installs them.
    pub fn install(&self, board: &dyn Target) -> Result<String, Trouble> {
        self.make(board)?;
        self.introduce(board)?;
        self.install_without_identity(board)
    }

    /// The same without credentials.
    pub fn install_without_identity(&self, board: &dyn Target) -> Result<String, Trouble> {
        for (name, from) in [(AGENT, self.path(AGENT)), (LAUNCHER, self.kind.find(LAUNCHER)?)] {
            board.put(&from, &format!("{DOWNLOADS}/{name}"))?;
        }
        board.run(&format!("{DOWNLOADS}/{AGENT} --install"))
    }

    /// Replaces the `agent` section of the part's configuration.
    pub fn configure(&self, agent: &Value) -> Result<(), Trouble> {
        self.device.configure(&self.client, &json!({"agent": agent}))
    }

    /// What the board says of itself.
    pub fn status(&self) -> Result<DeviceStatus, Trouble> {
        let request = GetPartStatusRequest { part_id: self.device.part_id.clone() };
        Ok(call(&self.client, admin_service::GET_PART_STATUS, &request)?.status.unwrap_or_default())
    }

    /// Waits until it says something like this.
    pub fn until(
        &self,
        board: &dyn Target,
        what: &str,
        wanted: impl Fn(&DeviceStatus) -> bool,
    ) -> Result<DeviceStatus, Trouble> {
        eventually(what, || self.status().ok().filter(&wanted)).map_err(|trouble| {
            let status = self.status().unwrap_or_default();
            Trouble(format!("{trouble}; the board says {status:#?}\n{}", board.journal()))
        })
    }

    /// Waits for a machine server that is ready.
    pub fn until_ready(&self, board: &dyn Target) -> Result<ServerStatus, Trouble> {
        let ready = |status: &DeviceStatus| {
            let server = status.server.clone().unwrap_or_default();
            server.phase() == server_status::Phase::Running && server.ready_at.is_some()
        };
        Ok(self.until(board, "a machine server that is ready", ready)?.server.unwrap_or_default())
    }

    /// The lines of the part whose text contains this.
    pub fn lines(&self, filter: &str) -> Result<usize, Trouble> {
        let part = self.device.part_id.clone();
        let request = GetRobotPartLogsRequest { id: part, filter: Some(filter.to_owned()), ..Default::default() };
        let answer: GetRobotPartLogsResponse = call(&self.client, app_service::GET_ROBOT_PART_LOGS, &request)?;
        Ok(answer.logs.len())
    }
}

/// The update of a product in a status.
#[must_use]
pub fn update(status: &DeviceStatus, product: Product) -> UpdateStatus {
    status.updates.iter().find(|update| update.product() == product).cloned().unwrap_or_default()
}

/// The number of the machine server's process, as it knows itself; nothing while none answers.
#[must_use]
pub fn server_pid() -> Option<u32> {
    http::get(&format!("{STATUS_URL}/pid")).ok().filter(|(status, _)| *status == 200)?.1.parse().ok()
}

/// Has the machine server print a line.
pub fn say(text: &str) -> Result<(), Trouble> {
    http::post(&format!("{STATUS_URL}/say/INFO/{text}")).map(drop)
}

/// Has the machine server end by a signal.
pub fn crash() {
    // It may be gone before it has answered.
    let _ = http::post(&format!("{STATUS_URL}/behave/crash/SEGV"));
}
