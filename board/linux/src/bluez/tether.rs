//! A paired phone's own internet connection (PAN): a profile of the network manager's, which brings the address too.

use std::{collections::HashMap, time::Duration};

use board::{Clock, bluetooth::BluetoothError};
use smol::future::FutureExt as _;
use zbus::zvariant::{ObjectPath, OwnedObjectPath, OwnedValue, Value};

use super::{
    PROPERTIES,
    adapter::{Daemon, Properties, is, refused, said},
    offering::DEVICE,
};
use crate::bus::Bus;

/// A phone that is a way to other networks (Bluetooth PAN profile: NAP).
const ACCESS_POINT: &str = "00001116-0000-1000-8000-00805f9b34fb";
const MANAGER: &str = "org.freedesktop.NetworkManager";
const MANAGER_PATH: &str = "/org/freedesktop/NetworkManager";
const ACTIVE: &str = "org.freedesktop.NetworkManager.Connection.Active";
/// States of a connection (`NMActiveConnectionState`).
const UP: u32 = 2;
const DOWN: u32 = 4;
/// The network manager's own limit is 45 seconds.
const LIMIT: Duration = Duration::from_secs(50);
/// Between two looks, for at most a minute.
const LOOK: Duration = Duration::from_secs(2);

/// Whether this phone is paired and offers its connection; if so, it may come back without being asked.
pub(super) async fn is_offered(daemon: &Daemon, path: &str) -> bool {
    let properties = daemon.get_all(path, DEVICE).await.unwrap_or_default();
    let services = properties.get("UUIDs").and_then(|value| Vec::<String>::try_from(value.clone()).ok());
    let offered = is(&properties, "Paired") && services.is_some_and(|all| all.iter().any(|one| one == ACCESS_POINT));
    if offered && let Err(error) = daemon.set(path, DEVICE, "Trusted", Value::from(true)).await {
        log::debug!("trusting a paired phone: {}", said(&error));
    }
    offered
}

/// Connects; resolves when the link is up.
pub(super) async fn connect(bus: &Bus, clock: &dyn Clock, phone: &str) -> Result<(), BluetoothError> {
    let Some(address) = octets(phone) else {
        return Err(BluetoothError::Refused(format!("{phone} is no address of a phone")));
    };
    let trouble = |error: zbus::Error| refused(&error);
    let connection = bus.connection().await.map_err(|error| BluetoothError::Absent(error.to_string()))?;
    let profile = HashMap::from([
        (
            "connection",
            HashMap::from([
                ("id", Value::from(format!("bluetooth {phone}"))),
                ("type", Value::from("bluetooth")),
                ("autoconnect", Value::from(false)),
            ]),
        ),
        ("bluetooth", HashMap::from([("bdaddr", Value::from(address)), ("type", Value::from("panu"))])),
    ]);
    let nothing = ObjectPath::try_from("/").map_err(|error| BluetoothError::Refused(error.to_string()))?;
    // Not kept on the disk: it belongs to this phone, today.
    let options = HashMap::from([("persist", Value::from("volatile"))]);
    let body = (profile, &nothing, &nothing, options);
    let answer =
        connection.call_method(Some(MANAGER), MANAGER_PATH, Some(MANAGER), "AddAndActivateConnection2", &body).await;
    let answer = answer.map_err(trouble)?;
    let (_, active, _) = answer
        .body()
        .deserialize::<(OwnedObjectPath, OwnedObjectPath, HashMap<String, OwnedValue>)>()
        .map_err(trouble)?;
    let up = async {
        loop {
            let all = connection.call_method(Some(MANAGER), &*active, Some(PROPERTIES), "GetAll", &ACTIVE).await;
            let all: Properties = all.map_err(trouble)?.body().deserialize().map_err(trouble)?;
            match all.get("State").and_then(|state| u32::try_from(state).ok()) {
                Some(UP) => return Ok(()),
                Some(DOWN) => break,
                _ => clock.sleep_until(clock.now() + LOOK).await,
            }
        }
        Err(BluetoothError::Refused(format!("{phone} does not share its connection: is tethering switched on there?")))
    };
    let late = async {
        clock.sleep_until(clock.now() + LIMIT).await;
        Err(BluetoothError::Refused(format!("{phone} does not answer")))
    };
    up.or(late).await
}

/// The bytes of `AA:BB:CC:DD:EE:FF`.
fn octets(address: &str) -> Option<Vec<u8>> {
    let octets: Option<Vec<u8>> = address.split(':').map(|part| u8::from_str_radix(part, 16).ok()).collect();
    octets.filter(|octets| octets.len() == 6)
}
