//! Calls to BlueZ, and its adapters.

use std::collections::HashMap;

use board::bluetooth::BluetoothError;
use serde::Serialize;
use zbus::{
    MatchRule, Message, MessageStream,
    message::Type,
    zvariant::{DynamicType, ObjectPath, OwnedObjectPath, OwnedValue, Value},
};

use super::{OBJECT_MANAGER, PROPERTIES};
use crate::bus::There;

pub(super) const ADAPTER: &str = "org.bluez.Adapter1";
pub(super) const GATT: &str = "org.bluez.GattManager1";
pub(super) const ADVERTISING: &str = "org.bluez.LEAdvertisingManager1";
/// Messages that wait while their reader waits for an answer.
const QUEUE: usize = 32;

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

    /// Signals of this process from one object, or from all below it. They must be read until they are dropped.
    pub(super) async fn signals(
        &self,
        path: &str,
        interface: &'static str,
        member: &'static str,
    ) -> zbus::Result<MessageStream> {
        let rule = MatchRule::builder()
            .msg_type(Type::Signal)
            .sender(self.there.owner().as_str().to_owned())?
            .path_namespace(path.to_owned())?
            .interface(interface)?
            .member(member)?
            .build();
        MessageStream::for_match_rule(rule, self.there.connection(), Some(QUEUE)).await
    }

    /// Calls of this process to our objects at and below `path`.
    pub(super) async fn calls(&self, path: &str) -> zbus::Result<MessageStream> {
        let rule = MatchRule::builder()
            .msg_type(Type::MethodCall)
            .sender(self.there.owner().as_str().to_owned())?
            .path_namespace(path.to_owned())?
            .build();
        MessageStream::for_match_rule(rule, self.there.connection(), Some(QUEUE)).await
    }

    /// Switches the adapter on. `true` when it had been off.
    pub(super) async fn power_on(&self, adapter: &str) -> Result<bool, BluetoothError> {
        let properties = self.get_all(adapter, ADAPTER).await.map_err(|error| refused(&error))?;
        if is(&properties, "Powered") {
            return Ok(false);
        }
        match self.set(adapter, ADAPTER, "Powered", Value::from(true)).await {
            Ok(()) => Ok(true),
            Err(error) if said(&error).contains("lock") => Err(BluetoothError::Blocked(format!(
                "{adapter} is held by rfkill: try 'rfkill unblock bluetooth', or the switch of this device"
            ))),
            Err(error) => Err(refused(&error)),
        }
    }
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
