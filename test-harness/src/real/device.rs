//! A machine in the fleet and the credentials of its main part.

use std::path::Path;

use api::{
    client::Client,
    pb::platform::app::v1::{
        CreateLocationRequest, GetRobotPartsRequest, NewRobotRequest, RobotPart, UpdateRobotPartRequest, app_service,
    },
};

use super::{Trouble, fleet::call};

/// One machine with its main part.
#[derive(Clone, Debug)]
pub struct Device {
    /// Location it is in.
    pub location_id: String,
    /// Machine.
    pub machine_id: String,
    /// Main part.
    pub part_id: String,
    /// Name of the main part.
    pub part_name: String,
    /// Secret of the main part.
    pub part_secret: api::Secret,
}

impl Device {
    /// Creates a location and a machine in it.
    pub fn create(client: &Client, organization_id: &str, location: &str, machine: &str) -> Result<Device, Trouble> {
        let request = CreateLocationRequest {
            organization_id: organization_id.to_owned(),
            name: location.to_owned(),
            ..Default::default()
        };
        let location = call(client, app_service::CREATE_LOCATION, &request)?;
        let location_id = location.location.ok_or_else(|| Trouble("CreateLocation gave no location".into()))?.id;
        let request = NewRobotRequest { name: machine.to_owned(), location: location_id.clone() };
        let machine_id = call(client, app_service::NEW_ROBOT, &request)?.id;
        let parts = call(client, app_service::GET_ROBOT_PARTS, &GetRobotPartsRequest { robot_id: machine_id.clone() })?;
        let main = parts.parts.into_iter().find(|part| part.main_part);
        let main = main.ok_or_else(|| Trouble("the new machine has no main part".into()))?;
        Ok(Device {
            location_id,
            machine_id,
            part_secret: newest_secret(&main)?,
            part_id: main.id,
            part_name: main.name,
        })
    }

    /// Replaces the part's configuration by this JSON text.
    pub fn configure(&self, client: &Client, config: &serde_json::Value) -> Result<(), Trouble> {
        let request = UpdateRobotPartRequest {
            id: self.part_id.clone(),
            name: self.part_name.clone(),
            robot_config_json: Some(config.to_string()),
            ..Default::default()
        };
        call(client, app_service::UPDATE_ROBOT_PART, &request).map(drop)
    }

    /// Writes the credentials file of the device, readable by its owner only.
    pub fn write_credentials(&self, url: &str, path: &Path) -> Result<(), Trouble> {
        write_private(path, &self.credentials(url))
    }

    /// What stands in that file.
    #[must_use]
    pub fn credentials(&self, url: &str) -> String {
        let cloud = serde_json::json!({"app_address": url, "id": self.part_id, "secret": self.part_secret.expose()});
        serde_json::json!({"cloud": cloud}).to_string()
    }
}

fn newest_secret(part: &RobotPart) -> Result<api::Secret, Trouble> {
    let secret = part.secrets.first().map(|secret| secret.secret.as_str()).filter(|secret| !secret.is_empty());
    secret.map(api::Secret::new).ok_or_else(|| Trouble("the new part has no secret that its owner can read".into()))
}

/// Writes a file that only its owner can read.
pub fn write_private(path: &Path, content: &str) -> Result<(), Trouble> {
    use std::{io::Write as _, os::unix::fs::OpenOptionsExt as _};
    let trouble = |error| Trouble::of(path.display(), error);
    let mut options = std::fs::OpenOptions::new();
    let mut file = options.create(true).write(true).truncate(true).mode(0o600).open(path).map_err(trouble)?;
    file.write_all(content.as_bytes()).map_err(trouble)
}
