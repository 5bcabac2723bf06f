//! Calls to the network manager of one session.

use std::{
    cell::RefCell,
    fs::{self, File},
    path::{Path, PathBuf},
};

use super::settings::{self, Settings, WIFI_SECURITY};
use crate::{
    bus::There,
    dbus::{Error, Inbox, Message, Rule, Value},
};
use board::network::NetworkError;

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
pub(super) struct Properties(Message);

impl Properties {
    fn of(&self, name: &str) -> Option<&Value> {
        self.0.first()?.get(name)
    }

    pub(super) fn text(&self, name: &str) -> &str {
        self.of(name).and_then(Value::text).unwrap_or_default()
    }

    pub(super) fn is(&self, name: &str) -> bool {
        self.of(name).and_then(Value::boolean).unwrap_or(false)
    }

    pub(super) fn number(&self, name: &str) -> u32 {
        self.of(name).and_then(Value::unsigned).unwrap_or(0)
    }

    pub(super) fn signed(&self, name: &str) -> i64 {
        self.of(name).and_then(Value::signed).unwrap_or(0)
    }

    pub(super) fn bytes(&self, name: &str) -> &[u8] {
        self.of(name).and_then(Value::bytes).unwrap_or_default()
    }

    /// The path of an object, where there is one.
    pub(super) fn path(&self, name: &str) -> Option<&str> {
        self.of(name).and_then(Value::text).filter(|path| *path != NOTHING && !path.is_empty())
    }

    pub(super) fn paths<'a>(&'a self, name: &str) -> impl Iterator<Item = &'a str> {
        self.of(name).map(Value::list).unwrap_or_default().iter().filter_map(Value::text)
    }
}

/// One profile that the network manager has.
pub(super) struct Kept {
    pub path: String,
    pub settings: Value,
}

/// The network manager, as long as it is this very process.
pub(super) struct Daemon {
    pub there: There,
    /// Keys of profiles by their paths; `None` is somebody else's.
    pub keys: RefCell<Vec<(String, Option<Owned>)>>,
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

    pub(super) async fn call(
        &self,
        path: &str,
        interface: &'static str,
        method: &'static str,
        body: Vec<Value>,
    ) -> Result<Message, NetworkError> {
        self.there.call(path, interface, method, body).await.map_err(trouble)
    }

    pub(super) async fn all(&self, path: &str, interface: &'static str) -> Result<Properties, NetworkError> {
        let answer = self.call(path, PROPERTIES, "GetAll", vec![Value::from(interface)]).await?;
        answer.map().map_err(trouble)?;
        Ok(Properties(answer))
    }

    /// All objects, each with the properties of each of its interfaces, in one call.
    pub(super) async fn objects(&self) -> Result<Message, NetworkError> {
        self.call("/org/freedesktop", "org.freedesktop.DBus.ObjectManager", "GetManagedObjects", Vec::new()).await
    }

    /// Signals of this process.
    pub(super) async fn signals(
        &self,
        path: Option<&str>,
        interface: &'static str,
        member: &'static str,
        first: Option<&'static str>,
    ) -> Result<Inbox, NetworkError> {
        let rule = Rule {
            sender: self.there.owner().to_owned(),
            path: path.unwrap_or_default().to_owned(),
            interface,
            member,
            first: first.unwrap_or_default(),
            ..Rule::default()
        };
        self.there.listen(rule).await.map_err(trouble)
    }

    /// Every profile that there is, without its secrets.
    pub(super) async fn kept(&self) -> Result<Vec<Kept>, NetworkError> {
        let answer = self.call(SETTINGS_PATH, SETTINGS, "ListConnections", Vec::new()).await?;
        let Some(Value::List(..)) = answer.first() else {
            return Err(trouble(Error::Nonsense("no list where one belongs")));
        };
        let mut kept = Vec::new();
        for path in answer.first().map(Value::list).unwrap_or_default().iter().filter_map(Value::text) {
            // One that is removed meanwhile is not there.
            if let Ok(settings) = self.settings(path).await {
                kept.push(Kept { path: path.to_owned(), settings });
            }
        }
        Ok(kept)
    }

    pub(super) async fn settings(&self, path: &str) -> Result<Value, NetworkError> {
        let answer = self.call(path, CONNECTION, "GetSettings", Vec::new()).await?;
        answer.map().cloned().map_err(trouble)
    }

    /// The password of a profile, where it has one. One that is not told is an error, and not an open network.
    pub(super) async fn secrets(&self, kept: &Kept) -> Result<Value, NetworkError> {
        let nothing = Value::dict_of_dicts::<&str>([]);
        if !settings::how(&kept.settings).is_by_password() {
            return Ok(nothing);
        }
        let asked = self.there.call(&kept.path, CONNECTION, "GetSecrets", vec![Value::from(WIFI_SECURITY)]);
        match asked.await {
            Ok(answer) => answer.map().cloned().map_err(trouble),
            // Somebody has taken it from the disk: there is nothing that could be told the next time.
            Err(error) if error.name().is_some_and(|name| name.ends_with(NO_SECRETS)) => Ok(nothing),
            Err(error) => Err(trouble(error)),
        }
    }

    /// Adds a profile, on stable storage when it returns.
    pub(super) async fn add(&self, settings: Settings) -> Result<(), NetworkError> {
        let body = vec![settings::value(settings), Value::from(TO_DISK), Value::dict::<&str>([])];
        let answer = self.call(SETTINGS_PATH, SETTINGS, "AddConnection2", body).await?;
        self.settle(answer.object().map_err(trouble)?).await;
        Ok(())
    }

    /// Changes a profile, on stable storage when it returns.
    pub(super) async fn update(&self, path: &str, settings: Settings) -> Result<(), NetworkError> {
        let body = vec![settings::value(settings), Value::from(TO_DISK), Value::dict::<&str>([])];
        self.call(path, CONNECTION, "Update2", body).await?;
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
        self.call(path, CONNECTION, "Delete", Vec::new()).await.map(drop)
    }

    pub(super) async fn deactivate(&self, active: &str) -> Result<(), NetworkError> {
        self.call(PATH, NAME, "DeactivateConnection", vec![Value::path(active)]).await.map(drop)
    }

    /// Connects by a profile on a device. The path of what is now active.
    pub(super) async fn activate(&self, profile: &str, device: &str) -> Result<String, NetworkError> {
        let body = vec![Value::path(profile), Value::path(device), Value::path(NOTHING)];
        let answer = self.call(PATH, NAME, "ActivateConnection", body).await?;
        answer.object().map(str::to_owned).map_err(trouble)
    }
}

/// A new name for a profile.
pub(super) fn uuid() -> Result<String, NetworkError> {
    let text = fs::read_to_string("/proc/sys/kernel/random/uuid");
    text.map(|text| text.trim().to_owned())
        .map_err(|error| NetworkError::Refused(format!("no random numbers: {error}")))
}

/// The bus's own complaints mean that nobody is there; the rest are the network manager's words, which hold no secret.
pub(super) fn trouble(error: Error) -> NetworkError {
    let Error::Named { name, words } = error else { return NetworkError::Absent(error.to_string()) };
    let nobody = ["ServiceUnknown", "NameHasNoOwner", "NoReply", "Disconnected"];
    match name.strip_prefix("org.freedesktop.DBus.Error.") {
        Some(kind) if nobody.contains(&kind) => NetworkError::Absent(words),
        _ => NetworkError::Refused(words),
    }
}
