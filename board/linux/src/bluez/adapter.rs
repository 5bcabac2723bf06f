//! Calls to BlueZ, and its adapters.

use std::{fs, path::Path};

use super::{OBJECT_MANAGER, PROPERTIES};
use crate::{
    bus::There,
    dbus::{Error, Inbox, Message, Rule, Value},
};
use board::bluetooth::BluetoothError;

pub(super) const ADAPTER: &str = "org.bluez.Adapter1";
pub(super) const GATT: &str = "org.bluez.GattManager1";
pub(super) const ADVERTISING: &str = "org.bluez.LEAdvertisingManager1";
/// What an adapter has to have.
const NEEDED: [&str; 3] = [ADAPTER, GATT, ADVERTISING];
/// Where the kernel says which radios are held off.
const RFKILL: &str = "/sys/class/rfkill";

/// BlueZ, as long as it is this very process.
pub(super) struct Daemon {
    pub there: There,
}

impl Daemon {
    pub(super) fn new(there: There) -> Daemon {
        Daemon { there }
    }

    pub(super) async fn call(
        &self,
        path: &str,
        interface: &'static str,
        method: &'static str,
        body: Vec<Value>,
    ) -> Result<Message, Error> {
        self.there.call(path, interface, method, body).await
    }

    /// The properties of one interface, by name.
    pub(super) async fn get_all(&self, path: &str, interface: &'static str) -> Result<Value, Error> {
        self.call(path, PROPERTIES, "GetAll", vec![Value::from(interface)]).await?.map().cloned()
    }

    pub(super) async fn set(
        &self,
        path: &str,
        interface: &'static str,
        name: &'static str,
        to: impl Into<Value>,
    ) -> Result<(), Error> {
        let value = Value::Variant(Box::new(to.into()));
        self.call(path, PROPERTIES, "Set", vec![Value::from(interface), Value::from(name), value]).await.map(drop)
    }

    /// Paths of the adapters that can advertise and have a table of services, in order.
    pub(super) async fn adapters(&self) -> Result<Vec<String>, Error> {
        let answer = self.call("/", OBJECT_MANAGER, "GetManagedObjects", Vec::new()).await?;
        let can = |interfaces: &Value| NEEDED.iter().all(|name| interfaces.get(name).is_some());
        let objects = answer.map()?.entries().unwrap_or_default();
        let able = objects.iter().filter(|(_, interfaces)| can(interfaces));
        let mut adapters: Vec<String> = Vec::new();
        for path in able.filter_map(|(path, _)| path.text()) {
            let at = adapters.partition_point(|there| &**there < path);
            adapters.insert(at, path.to_owned());
        }
        Ok(adapters)
    }

    /// Signals of this process from one object, or from all below it.
    pub(super) async fn signals(
        &self,
        path: &str,
        interface: &'static str,
        member: &'static str,
    ) -> Result<Inbox, Error> {
        let sender = self.there.owner().to_owned();
        self.there.listen(Rule { sender, below: path.to_owned(), interface, member, ..Rule::default() }).await
    }

    /// Calls of this process to our objects at and below `path`.
    pub(super) async fn calls(&self, path: &str) -> Result<Inbox, Error> {
        let sender = self.there.owner().to_owned();
        self.there.listen(Rule { calls: true, sender, below: path.to_owned(), ..Rule::default() }).await
    }

    /// Switches the adapter on. `true` when it had been off.
    pub(super) async fn power_on(&self, adapter: &str) -> Result<bool, BluetoothError> {
        let properties = self.get_all(adapter, ADAPTER).await.map_err(|error| refused(&error))?;
        if is(&properties, "Powered") {
            return Ok(false);
        }
        match self.set(adapter, ADAPTER, "Powered", true).await {
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
    let of = signal.nth(1);
    // Added has properties behind the names, removed has the names alone.
    let added = |name: &&str| of.is_some_and(|interfaces| interfaces.get(name).is_some());
    let removed = |value: &Value| value.text().is_some_and(|name| NEEDED.contains(&name));
    NEEDED.iter().any(added) || of.map(Value::list).unwrap_or_default().iter().any(removed)
}

pub(super) fn is(properties: &Value, name: &str) -> bool {
    properties.get(name).and_then(Value::boolean).unwrap_or(false)
}

/// What BlueZ says, without the library's words around it.
pub(super) fn said(error: &Error) -> String {
    match error {
        Error::Named { name, words } => {
            let kind = name.rsplit('.').next().unwrap_or_default();
            format!("{kind}: {}", if words == name { "no reason" } else { words })
        }
        other => other.to_string(),
    }
}

pub(super) fn refused(error: &Error) -> BluetoothError {
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
