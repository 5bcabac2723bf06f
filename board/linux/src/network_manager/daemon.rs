//! Calls to the network manager of one session.

use std::{
    cell::RefCell,
    collections::HashMap,
    fs::{self, File},
    path::{Path, PathBuf},
};

use board::network::NetworkError;
use serde::Serialize;
use zbus::{
    MatchRule, Message,
    message::Type,
    zvariant::{DynamicType, ObjectPath, OwnedObjectPath, OwnedValue, Value},
};

use super::{
    settings::{self, Received, WIFI_SECURITY},
    value,
};
use crate::bus::{Inbox, There};

/// Its name, and the interface of its first object.
pub(super) const NAME: &str = "org.freedesktop.NetworkManager";
pub(super) const PATH: &str = "/org/freedesktop/NetworkManager";
pub(super) const DEVICE: &str = "org.freedesktop.NetworkManager.Device";
pub(super) const WIRELESS: &str = "org.freedesktop.NetworkManager.Device.Wireless";
pub(super) const WIRED: &str = "org.freedesktop.NetworkManager.Device.Wired";
pub(super) const ACCESS_POINT: &str = "org.freedesktop.NetworkManager.AccessPoint";
pub(super) const ACTIVE: &str = "org.freedesktop.NetworkManager.Connection.Active";
pub(super) const SETTINGS: &str = "org.freedesktop.NetworkManager.Settings";
pub(super) const CONNECTION: &str = "org.freedesktop.NetworkManager.Settings.Connection";
const SETTINGS_PATH: &str = "/org/freedesktop/NetworkManager/Settings";
pub(super) const PROPERTIES: &str = "org.freedesktop.DBus.Properties";
/// The end of the error's name when a password is neither on the disk nor known to anybody.
const NO_SECRETS: &str = ".NoSecrets";
/// No object.
pub(super) const NOTHING: &str = "/";
/// A profile is written to disk.
const TO_DISK: u32 = 0x1;

/// The properties of one object.
pub(super) struct Properties(pub HashMap<String, OwnedValue>);

impl Properties {
    fn of<'a>(&'a self, name: &str) -> Option<&'a Value<'a>> {
        self.0.get(name).map(|value| &**value)
    }

    pub(super) fn text(&self, name: &str) -> &str {
        self.of(name).and_then(value::text).unwrap_or_default()
    }

    pub(super) fn is(&self, name: &str) -> bool {
        self.of(name).and_then(value::boolean).unwrap_or(false)
    }

    pub(super) fn number(&self, name: &str) -> u32 {
        self.of(name).and_then(value::unsigned).unwrap_or(0)
    }

    pub(super) fn signed(&self, name: &str) -> i64 {
        self.of(name).and_then(value::signed).unwrap_or(0)
    }

    pub(super) fn bytes(&self, name: &str) -> Vec<u8> {
        self.of(name).and_then(value::bytes).unwrap_or_default()
    }

    /// The path of an object, where there is one.
    pub(super) fn path(&self, name: &str) -> Option<&str> {
        self.of(name).and_then(value::text).filter(|path| *path != NOTHING && !path.is_empty())
    }

    pub(super) fn paths<'a>(&'a self, name: &str) -> impl Iterator<Item = &'a str> {
        self.of(name).into_iter().flat_map(value::list).filter_map(value::text)
    }
}

/// One profile that the network manager has.
pub(super) struct Kept {
    pub path: String,
    pub settings: Received,
}

/// The network manager, as long as it is this very process.
pub(super) struct Daemon {
    pub there: There,
    /// Keys of profiles by their paths; `None` is somebody else's.
    pub keys: RefCell<HashMap<String, Option<Owned>>>,
}

/// Whose a profile is, when it is the agent's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Owned {
    Profile(String),
    Hotspot,
}

impl Daemon {
    pub(super) fn new(there: There) -> Daemon {
        Daemon { there, keys: RefCell::default() }
    }

    pub(super) async fn call<B>(
        &self,
        path: &str,
        interface: &'static str,
        method: &'static str,
        body: &B,
    ) -> Result<Message, NetworkError>
    where
        B: Serialize + DynamicType,
    {
        let destination = Some(self.there.owner().as_str());
        self.there.connection().call_method(destination, path, Some(interface), method, body).await.map_err(trouble)
    }

    pub(super) async fn all(&self, path: &str, interface: &'static str) -> Result<Properties, NetworkError> {
        let answer = self.call(path, PROPERTIES, "GetAll", &interface).await?;
        answer.body().deserialize().map(Properties).map_err(trouble)
    }

    /// All objects, each with the properties of each of its interfaces, in one call.
    pub(super) async fn objects(&self) -> Result<Message, NetworkError> {
        self.call("/org/freedesktop", "org.freedesktop.DBus.ObjectManager", "GetManagedObjects", &()).await
    }

    /// Signals of this process.
    pub(super) async fn signals(
        &self,
        path: Option<&str>,
        interface: &'static str,
        member: &'static str,
        first: Option<&'static str>,
    ) -> Result<Inbox, NetworkError> {
        let rule = || {
            let mut rule = MatchRule::builder()
                .msg_type(Type::Signal)
                .sender(self.there.owner().as_str().to_owned())?
                .interface(interface)?
                .member(member)?;
            if let Some(path) = path {
                rule = rule.path(path.to_owned())?;
            }
            if let Some(first) = first {
                rule = rule.arg(0, first)?;
            }
            Ok::<_, zbus::Error>(rule.build())
        };
        self.there.listen(rule().map_err(trouble)?).await.map_err(trouble)
    }

    /// Every profile that there is, without its secrets.
    pub(super) async fn kept(&self) -> Result<Vec<Kept>, NetworkError> {
        let answer = self.call(SETTINGS_PATH, SETTINGS, "ListConnections", &()).await?;
        let paths: Vec<OwnedObjectPath> = answer.body().deserialize().map_err(trouble)?;
        let mut kept = Vec::new();
        for path in paths {
            // One that is removed meanwhile is not there.
            if let Ok(settings) = self.settings(path.as_str()).await {
                kept.push(Kept { path: path.as_str().to_owned(), settings });
            }
        }
        Ok(kept)
    }

    pub(super) async fn settings(&self, path: &str) -> Result<Received, NetworkError> {
        let answer = self.call(path, CONNECTION, "GetSettings", &()).await?;
        answer.body().deserialize().map_err(trouble)
    }

    /// The password of a profile, where it has one. One that is not told is an error, and not an open network.
    pub(super) async fn secrets(&self, kept: &Kept) -> Result<Received, NetworkError> {
        if !settings::how(&kept.settings).is_by_password() {
            return Ok(Received::new());
        }
        let owner = Some(self.there.owner().as_str());
        let asked = (Some(CONNECTION), "GetSecrets");
        match self.there.connection().call_method(owner, &*kept.path, asked.0, asked.1, &WIFI_SECURITY).await {
            Ok(answer) => answer.body().deserialize().map_err(trouble),
            // Somebody has taken it from the disk: there is nothing that could be told the next time.
            Err(zbus::Error::MethodError(name, ..)) if name.ends_with(NO_SECRETS) => Ok(Received::new()),
            Err(error) => Err(trouble(error)),
        }
    }

    /// Adds a profile, on stable storage when it returns.
    pub(super) async fn add(&self, settings: &super::settings::Settings) -> Result<(), NetworkError> {
        let none: HashMap<&str, Value<'_>> = HashMap::new();
        let answer = self.call(SETTINGS_PATH, SETTINGS, "AddConnection2", &(settings, TO_DISK, none)).await?;
        let body = answer.body();
        let (path, _): (ObjectPath<'_>, HashMap<String, OwnedValue>) = body.deserialize().map_err(trouble)?;
        self.settle(path.as_str()).await;
        Ok(())
    }

    /// Changes a profile, on stable storage when it returns.
    pub(super) async fn update(&self, path: &str, settings: &super::settings::Settings) -> Result<(), NetworkError> {
        let none: HashMap<&str, Value<'_>> = HashMap::new();
        self.call(path, CONNECTION, "Update2", &(settings, TO_DISK, none)).await?;
        self.settle(path).await;
        Ok(())
    }

    /// The network manager writes its files without waiting for the disk.
    async fn settle(&self, path: &str) {
        let Ok(properties) = self.all(path, CONNECTION).await else { return };
        let file = PathBuf::from(properties.text("Filename"));
        // A slow card takes seconds, in which the agent must not stand still.
        let synced = smol::unblock(move || {
            let sync = |path: &Path| File::open(path).and_then(|file| file.sync_all());
            sync(&file).and(file.parent().map_or(Ok(()), sync)).map_err(|error| (file, error))
        });
        if let Err((file, error)) = synced.await {
            log::debug!("could not sync {}: {error}", file.display());
        }
    }

    pub(super) async fn delete(&self, path: &str) -> Result<(), NetworkError> {
        self.call(path, CONNECTION, "Delete", &()).await.map(drop)
    }

    pub(super) async fn deactivate(&self, active: &str) -> Result<(), NetworkError> {
        self.call(PATH, NAME, "DeactivateConnection", &object(active)?).await.map(drop)
    }

    /// Connects by a profile on a device. The path of what is now active.
    pub(super) async fn activate(&self, profile: &str, device: &str) -> Result<String, NetworkError> {
        let body = (object(profile)?, object(device)?, object(NOTHING)?);
        let answer = self.call(PATH, NAME, "ActivateConnection", &body).await?;
        let body = answer.body();
        let path: ObjectPath<'_> = body.deserialize().map_err(trouble)?;
        Ok(path.as_str().to_owned())
    }
}

/// A path that came from the network manager.
pub(super) fn object(path: &str) -> Result<ObjectPath<'_>, NetworkError> {
    ObjectPath::try_from(path).map_err(|error| NetworkError::Refused(error.to_string()))
}

/// A new name for a profile.
pub(super) fn uuid() -> Result<String, NetworkError> {
    let text = fs::read_to_string("/proc/sys/kernel/random/uuid");
    text.map(|text| text.trim().to_owned())
        .map_err(|error| NetworkError::Refused(format!("no random numbers: {error}")))
}

/// The bus's own complaints mean that nobody is there; the rest are the network manager's words, which hold no secret.
pub(super) fn trouble(error: impl Into<zbus::Error>) -> NetworkError {
    let error = error.into();
    match &error {
        zbus::Error::MethodError(name, words, _) => {
            let words = words.clone().unwrap_or_else(|| name.to_string());
            let nobody = ["ServiceUnknown", "NameHasNoOwner", "NoReply", "Disconnected"];
            match name.strip_prefix("org.freedesktop.DBus.Error.") {
                Some(kind) if nobody.contains(&kind) => NetworkError::Absent(words),
                _ => NetworkError::Refused(words),
            }
        }
        error => NetworkError::Absent(error.to_string()),
    }
}
