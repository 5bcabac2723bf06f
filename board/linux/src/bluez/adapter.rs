//! Calls to BlueZ, and its adapters.

use std::{collections::HashMap, fs, path::Path};

use board::bluetooth::BluetoothError;
use serde::Serialize;
use zbus::{
    MatchRule, Message,
    message::Type,
    zvariant::{DynamicType, ObjectPath, OwnedObjectPath, OwnedValue, Value},
};

use super::{OBJECT_MANAGER, PROPERTIES};
use crate::bus::{Inbox, There};

pub(super) const ADAPTER: &str = "org.bluez.Adapter1";
pub(super) const GATT: &str = "org.bluez.GattManager1";
pub(super) const ADVERTISING: &str = "org.bluez.LEAdvertisingManager1";
/// Where the kernel says which radios are held off.
const RFKILL: &str = "/sys/class/rfkill";

/// The properties of one interface, by name.
pub(super) type Properties = HashMap<String, OwnedValue>;
type Interfaces = HashMap<String, Properties>;

/// BlueZ, as long as it is this very process.
pub(super) struct Daemon {
    pub there: There,
}

impl Daemon {
    pub(super) fn new(there: There) -> Daemon {
        Daemon { there }
    }

    pub(super) async fn call<B>(
        &self,
        path: &str,
        interface: &'static str,
        method: &'static str,
        body: &B,
    ) -> zbus::Result<Message>
    where
        B: Serialize + DynamicType,
    {
        let owner = Some(self.there.owner().as_str());
        self.there.connection().call_method(owner, path, Some(interface), method, body).await
    }

    pub(super) async fn get_all(&self, path: &str, interface: &'static str) -> zbus::Result<Properties> {
        self.call(path, PROPERTIES, "GetAll", &interface).await?.body().deserialize()
    }

    pub(super) async fn set(
        &self,
        path: &str,
        interface: &'static str,
        name: &'static str,
        value: Value<'_>,
    ) -> zbus::Result<()> {
        self.call(path, PROPERTIES, "Set", &(interface, name, value)).await.map(drop)
    }

    /// Paths of the adapters that can advertise and have a table of services, in order.
    pub(super) async fn adapters(&self) -> zbus::Result<Vec<String>> {
        let answer = self.call("/", OBJECT_MANAGER, "GetManagedObjects", &()).await?;
        let objects: HashMap<OwnedObjectPath, Interfaces> = answer.body().deserialize()?;
        let can =
            |interfaces: &Interfaces| [ADAPTER, GATT, ADVERTISING].iter().all(|name| interfaces.contains_key(*name));
        let mut adapters: Vec<String> =
            objects.iter().filter(|(_, has)| can(has)).map(|(path, _)| path.as_str().to_owned()).collect();
        adapters.sort();
        Ok(adapters)
    }

    /// Signals of this process from one object, or from all below it.
    pub(super) async fn signals(
        &self,
        path: &str,
        interface: &'static str,
        member: &'static str,
    ) -> zbus::Result<Inbox> {
        let rule = MatchRule::builder()
            .msg_type(Type::Signal)
            .sender(self.there.owner().as_str().to_owned())?
            .path_namespace(path.to_owned())?
            .interface(interface)?
            .member(member)?
            .build();
        self.there.listen(rule).await
    }

    /// Calls of this process to our objects at and below `path`.
    pub(super) async fn calls(&self, path: &str) -> zbus::Result<Inbox> {
        let rule = MatchRule::builder()
            .msg_type(Type::MethodCall)
            .sender(self.there.owner().as_str().to_owned())?
            .path_namespace(path.to_owned())?
            .build();
        self.there.listen(rule).await
    }

    /// Switches the adapter on. `true` when it had been off.
    pub(super) async fn power_on(&self, adapter: &str) -> Result<bool, BluetoothError> {
        let properties = self.get_all(adapter, ADAPTER).await.map_err(|error| refused(&error))?;
        if is(&properties, "Powered") {
            return Ok(false);
        }
        match self.set(adapter, ADAPTER, "Powered", Value::from(true)).await {
            Ok(()) => Ok(true),
            // BlueZ says no more than that it failed.
            Err(error) => Err(match blocked(Path::new(RFKILL), adapter) {
                Some(Block::Switch) => BluetoothError::Blocked(format!("a switch of this device holds {adapter} off")),
                Some(Block::Software) => {
                    BluetoothError::Blocked(format!("rfkill holds {adapter} off: try 'rfkill unblock bluetooth'"))
                }
                None => refused(&error),
            }),
        }
    }
}

/// What holds a radio off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Block {
    /// A switch that a person can reach.
    Switch,
    /// A setting.
    Software,
}

/// What the kernel says of the radio behind `/org/bluez/hci0`.
fn blocked(folder: &Path, adapter: &str) -> Option<Block> {
    let name = adapter.rsplit('/').next()?;
    let read = |path: &Path, what: &str| fs::read_to_string(path.join(what)).unwrap_or_default().trim().to_owned();
    fs::read_dir(folder).ok()?.flatten().map(|entry| entry.path()).find_map(|path| {
        if read(&path, "name") != name {
            return None;
        }
        match (read(&path, "hard").as_str(), read(&path, "soft").as_str()) {
            ("1", _) => Some(Block::Switch),
            (_, "1") => Some(Block::Software),
            _ => None,
        }
    })
}

/// Whether an adapter came or went, or what it can do.
pub(super) fn concerns_adapters(signal: &Message) -> bool {
    let body = signal.body();
    // Added has properties behind the names, removed has the names alone.
    if let Ok((_, interfaces)) = body.deserialize::<(ObjectPath<'_>, Vec<&str>)>() {
        return interfaces.iter().any(|name| [ADAPTER, GATT, ADVERTISING].contains(name));
    }
    body.deserialize::<(OwnedObjectPath, Interfaces)>()
        .is_ok_and(|(_, interfaces)| [ADAPTER, GATT, ADVERTISING].iter().any(|name| interfaces.contains_key(*name)))
}

pub(super) fn is(properties: &Properties, name: &str) -> bool {
    properties.get(name).is_some_and(|value| matches!(**value, Value::Bool(true)))
}

/// What BlueZ says, without the library's words around it.
pub(super) fn said(error: &zbus::Error) -> String {
    match error {
        zbus::Error::MethodError(name, words, _) => {
            format!(
                "{}: {}",
                name.as_str().rsplit('.').next().unwrap_or_default(),
                words.as_deref().unwrap_or("no reason")
            )
        }
        other => other.to_string(),
    }
}

pub(super) fn refused(error: &zbus::Error) -> BluetoothError {
    BluetoothError::Refused(said(error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_holds_it_off() {
        let folder = tempfile::tempdir().unwrap();
        for (radio, name, soft, hard) in [
            ("rfkill0", "phy0", "1", "1"),
            ("rfkill1", "hci0", "0", "0"),
            ("rfkill2", "hci1", "1", "0"),
            ("rfkill3", "hci2", "1", "1"),
        ] {
            let radio = folder.path().join(radio);
            fs::create_dir(&radio).unwrap();
            for (file, value) in [("name", name), ("soft", soft), ("hard", hard)] {
                fs::write(radio.join(file), format!("{value}\n")).unwrap();
            }
        }
        let table = [("hci0", None), ("hci1", Some(Block::Software)), ("hci2", Some(Block::Switch)), ("hci3", None)];
        for (adapter, expected) in table {
            assert_eq!(blocked(folder.path(), &format!("/org/bluez/{adapter}")), expected, "{adapter}");
        }
        assert_eq!(blocked(Path::new("/nonexistent"), "/org/bluez/hci0"), None);
    }
}
