//! A module's own description of itself, as module authors keep it beside their sources (`meta.json`).
//!
//! Only what the server keeps is read; build instructions and the like are somebody else's.

use api::pb::platform::app::v1 as app;
use serde::Deserialize;

use crate::failure::Failure;

#[derive(Debug, Default, Deserialize)]
pub(super) struct Meta {
    pub(super) visibility: Option<String>,
    pub(super) url: Option<String>,
    pub(super) description: Option<String>,
    pub(super) models: Option<Vec<Model>>,
    pub(super) entrypoint: Option<String>,
    pub(super) first_run: Option<String>,
    #[serde(default)]
    pub(super) applications: Vec<Application>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Model {
    api: String,
    model: String,
    #[serde(alias = "short_description")]
    description: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Application {
    name: String,
    r#type: String,
    entrypoint: String,
    #[serde(default)]
    fragment_ids: Vec<String>,
    logo_path: Option<String>,
    customizations: Option<Customizations>,
    allowed_org_ids: Option<Vec<String>>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Customizations {
    machine_picker: Option<MachinePicker>,
}

#[derive(Debug, Deserialize)]
struct MachinePicker {
    heading: Option<String>,
    subheading: Option<String>,
}

impl Meta {
    pub(super) fn read(text: &str) -> Result<Self, Failure> {
        serde_json::from_str(text).map_err(|error| Failure::Configuration(format!("this describes no module: {error}")))
    }

    pub(super) fn visibility(&self) -> Result<Option<app::Visibility>, Failure> {
        let Some(word) = self.visibility.as_deref() else { return Ok(None) };
        match word {
            "private" => Ok(Some(app::Visibility::Private)),
            "public" => Ok(Some(app::Visibility::Public)),
            "public_unlisted" => Ok(Some(app::Visibility::PublicUnlisted)),
            _ => Err(Failure::Configuration(format!(
                "visibility is {word:?}; it may be private, public or public_unlisted"
            ))),
        }
    }
}

impl From<Model> for app::Model {
    fn from(model: Model) -> Self {
        Self { api: model.api, model: model.model, description: model.description, ..Self::default() }
    }
}

impl From<Application> for app::App {
    fn from(given: Application) -> Self {
        let picker = given.customizations.and_then(|all| all.machine_picker);
        let machine_picker = picker
            .map(|picker| app::MachinePickerCustomizations { heading: picker.heading, subheading: picker.subheading });
        Self {
            name: given.name,
            r#type: given.r#type,
            entrypoint: given.entrypoint,
            fragment_ids: given.fragment_ids,
            logo_path: given.logo_path,
            customizations: machine_picker.map(|picker| app::AppCustomizations { machine_picker: Some(picker) }),
            allowed_org_ids: given.allowed_org_ids.map(|ids| app::AllowedOrgIDs { ids }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_authors_write() {
        let text = r#"{"$schema": "x", "module_id": "acme:camera", "visibility": "public", "build": {"setup": "make"},
            "models": [{"api": "a:b:c", "model": "acme:camera:usb", "short_description": "USB"}], "entrypoint": "bin/run",
            "applications": [{"name": "dashboard", "type": "multi_machine", "entrypoint": "index.html",
                "fragmentIds": ["f"], "customizations": {"machinePicker": {"heading": "Choose"}}}]}"#;
        let meta = Meta::read(text).unwrap();
        assert_eq!(meta.visibility().unwrap(), Some(app::Visibility::Public));
        let models: Vec<app::Model> = meta.models.unwrap().into_iter().map(Into::into).collect();
        assert_eq!((&*models[0].model, models[0].description.as_deref()), ("acme:camera:usb", Some("USB")));
        let apps: Vec<app::App> = meta.applications.into_iter().map(Into::into).collect();
        let heading = apps[0].customizations.clone().unwrap().machine_picker.unwrap().heading;
        assert_eq!((&*apps[0].fragment_ids[0], heading.as_deref()), ("f", Some("Choose")));
        for wrong in ["", "[]", r#"{"models": [{"api": "a"}]}"#] {
            assert!(Meta::read(wrong).is_err(), "{wrong}");
        }
        let odd = Meta { visibility: Some("secret".to_owned()), ..Meta::default() };
        assert!(odd.visibility().is_err());
    }
}
