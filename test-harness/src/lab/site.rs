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
    releases::Factory,
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
}

impl Site {
    /// A fleet server with the first version of each product.
    pub fn open(folder: &Path) -> Result<Site, Trouble> {
        fs::create_dir_all(folder).map_err(|error| Trouble::of(folder.display(), error))?;
        let data = folder.join("fleet");
        let owner = init(&data, None)?;
        let factory = Factory::open(&folder.join("factory"), &data)?;
        let fleet =
            Fleet::start_with(&data, "127.0.0.1:0", None, &folder.join("fleet.log"), &["--check-seconds", "1"])?;
        let client = client(&fleet.url, &owner)?;
        let device = Device::create(&client, &owner.organization_id, "Hillside", "board")?;
        let mut site = Site { fleet, owner, device, factory, client, folder: folder.to_owned(), numbers: 0 };
        let server = folder.join("stand-in");
        stand_in::build(FIRST, &server)?;
        site.publish("platform-server", FIRST, &server)?;
        let agent = folder.join(AGENT);
        agents::build(FIRST, &agent)?;
        site.publish(AGENT, FIRST, &agent)?;
        site.publish(LAUNCHER, FIRST, &programs::find(LAUNCHER)?)?;
        Ok(site)
    }

    /// Signs and publishes a version of a product, and makes it stable.
    pub fn publish(&mut self, product: &str, version: &str, artifact: &Path) -> Result<(), Trouble> {
        self.numbers += 1;
        self.factory.publish(product, version, self.numbers, artifact)
    }

    /// A path for a program that is to be published.
    #[must_use]
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Puts onto the board what a manufacturer puts there: defaults with the release keys.
    pub fn make(&self, board: &dyn Target) -> Result<(), Trouble> {
        let text = fs::read(self.factory.key()).map_err(|error| Trouble::of("the release key", error))?;
        let key: Value = serde_json::from_slice(&text).map_err(|error| Trouble::of("the release key", error))?;
        let defaults = json!({"advanced_settings": {"release_keys": [key["public"]]}});
        board.write("/etc/platform-defaults.json", 0o644, defaults.to_string().as_bytes())
    }

    /// The fleet server's address, as the board has to call it.
    #[must_use]
    pub fn address(&self, board: &dyn Target) -> String {
        self.fleet.url.replace("127.0.0.1", board.outside())
    }

    /// Puts onto the board what a person does: credentials, agent and launcher; and installs them.
    pub fn install(&self, board: &dyn Target) -> Result<String, Trouble> {
        self.make(board)?;
        board.write("/etc/platform.json", 0o600, self.device.credentials(&self.address(board)).as_bytes())?;
        self.install_without_identity(board)
    }

    /// The same without credentials.
    pub fn install_without_identity(&self, board: &dyn Target) -> Result<String, Trouble> {
        for (name, from) in [(AGENT, self.path(AGENT)), (LAUNCHER, programs::find(LAUNCHER)?)] {
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
