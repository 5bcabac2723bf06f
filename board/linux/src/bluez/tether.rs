//! A paired phone's own internet connection (PAN): a profile of the network manager's, which brings the address too.

use std::time::Duration;

use board::{Clock, bluetooth::BluetoothError};
use smol::future::FutureExt as _;

use super::{
    PROPERTIES,
    adapter::{Daemon, is, refused, said},
    offering::DEVICE,
};
use crate::{
    bus::Bus,
    dbus::{Error, Value},
};

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
    let Ok(properties) = daemon.get_all(path, DEVICE).await else { return false };
    let services = properties.get("UUIDs").map(Value::list).unwrap_or_default();
    let offered = is(&properties, "Paired") && services.iter().any(|one| one.text() == Some(ACCESS_POINT));
    if offered && let Err(error) = daemon.set(path, DEVICE, "Trusted", true).await {
        log::debug!("trusting a paired phone: {}", said(&error));
    }
    offered
}

/// Connects; resolves when the link is up.
pub(super) async fn connect(bus: &Bus, clock: &dyn Clock, phone: &str) -> Result<(), BluetoothError> {
    let Some(address) = octets(phone) else {
        return Err(BluetoothError::Refused(format!("{phone} is no address of a phone")));
    };
    let trouble = |error: Error| refused(&error);
    let connection = bus.connection().await.map_err(|error| BluetoothError::Absent(error.to_string()))?;
    let settings = [
        ("id", Value::from(format!("bluetooth {phone}"))),
        ("type", Value::from("bluetooth")),
        ("autoconnect", Value::from(false)),
    ];
    let pan = [("bdaddr", Value::from(address)), ("type", Value::from("panu"))];
    let profile = Value::dict_of_dicts([("connection", Value::dict(settings)), ("bluetooth", Value::dict(pan))]);
    // Not kept on the disk: it belongs to this phone, today.
    let options = Value::dict([("persist", Value::from("volatile"))]);
    let body = vec![profile, Value::path("/"), Value::path("/"), options];
    let answer = connection.call(MANAGER, MANAGER_PATH, MANAGER, "AddAndActivateConnection2", body).await;
    let answer = answer.map_err(trouble)?;
    let Some(Value::Path(active)) = answer.nth(1) else {
        return Err(trouble(Error::Nonsense("no connection where one belongs")));
    };
    let up = async {
        loop {
            let all = connection.call(MANAGER, active, PROPERTIES, "GetAll", vec![Value::from(ACTIVE)]).await;
            match all.map_err(trouble)?.map().map_err(trouble)?.get("State").and_then(Value::unsigned) {
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
