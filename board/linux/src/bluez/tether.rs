//! A paired phone's own internet connection (PAN): a profile of the network manager's, which brings the address too.

use std::time::Duration;

use board::{Clock, bluetooth::BluetoothError};
use smol::future::FutureExt as _;

use super::{
    OBJECT_MANAGER, PROPERTIES,
    adapter::{ADAPTER, Daemon, is, refused, said},
    answers::address,
    offering::DEVICE,
    presence,
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

/// A phone's connection, as far as BlueZ has made one.
const NETWORK: &str = "org.bluez.Network1";
/// Phones that are looked for at one time: each that is not near keeps the radio calling for five seconds.
const LOOKED_FOR_MAX: usize = 4;

/// Phones that were let in and offered their connection, and are near; none while one is connected.
pub(super) async fn sharers(daemon: &Daemon, clock: &dyn Clock) -> Result<Vec<String>, Error> {
    let answer = daemon.call("/", OBJECT_MANAGER, "GetManagedObjects", Vec::new()).await?;
    let known = known(answer.map()?);
    // Not held while phones are called.
    drop(answer);
    let mut near = Vec::new();
    for (adapter, path) in known.into_iter().take(LOOKED_FOR_MAX) {
        let phone = address(&path);
        let octets = octets(&phone).and_then(|octets| <[u8; 6]>::try_from(octets).ok());
        let Some(octets) = octets else { continue };
        match presence::is_near(clock, &adapter, octets).await {
            Ok(true) => near.push(phone),
            Ok(false) => {}
            Err(error) => log::debug!("whether {phone} is near: {error}"),
        }
    }
    Ok(near)
}

/// Adapter and path of phones that may be asked, among all that BlueZ has.
fn known(objects: &Value) -> Vec<(String, String)> {
    let all = objects.entries().unwrap_or_default();
    let connected = |has: &Value| has.get(NETWORK).is_some_and(|network| is(network, "Connected"));
    if all.iter().any(|(_, has)| connected(has)) {
        return Vec::new();
    }
    let is_on = |adapter: &str| {
        let adapter = all.iter().find(|(path, _)| path.text() == Some(adapter));
        adapter.and_then(|(_, has)| has.get(ADAPTER)).is_some_and(|adapter| is(adapter, "Powered"))
    };
    let phone = |(path, has): &(Value, Value)| {
        let phone = has.get(DEVICE).filter(|phone| was_let_in(phone))?;
        let adapter = phone.get("Adapter").and_then(Value::text).filter(|adapter| is_on(adapter))?;
        Some((adapter.to_owned(), path.text()?.to_owned()))
    };
    all.iter().filter_map(phone).collect()
}

fn offers(phone: &Value) -> bool {
    let services = phone.get("UUIDs").map(Value::list).unwrap_or_default();
    is(phone, "Paired") && services.iter().any(|one| one.text() == Some(ACCESS_POINT))
}

/// Whether a phone has offered its connection and may come back without being asked.
fn was_let_in(phone: &Value) -> bool {
    offers(phone) && is(phone, "Trusted") && !is(phone, "Blocked")
}

/// Whether this phone was let in before and offers its connection.
pub(super) async fn is_known(daemon: &Daemon, path: &str) -> bool {
    daemon.get_all(path, DEVICE).await.is_ok_and(|phone| was_let_in(&phone))
}

/// Whether this phone is paired and offers its connection; if so, it may come back without being asked.
pub(super) async fn is_offered(daemon: &Daemon, path: &str) -> bool {
    let Ok(properties) = daemon.get_all(path, DEVICE).await else { return false };
    let offered = offers(&properties);
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

#[cfg(test)]
mod tests {
    use super::*;

    const ADAPTER_PATH: &str = "/org/bluez/hci0";
    const PHONE: &str = "/org/bluez/hci0/dev_AA_BB_CC_DD_EE_FF";

    /// What it is about, whether the adapter is on, what the phone is, its service, whether it is connected, whether it counts.
    type Row<'a> = (&'a str, bool, &'a [&'static str], &'a str, bool, bool);

    fn flags(names: &[&'static str]) -> Vec<(&'static str, Value)> {
        names.iter().map(|name| (*name, Value::from(true))).collect()
    }

    /// BlueZ's objects: an adapter, and a phone with these properties, whose connection is as said.
    fn objects(on: bool, phone: &[&'static str], service: &str, connected: bool) -> Value {
        let mut properties = flags(phone);
        properties.push(("UUIDs", Value::texts([service])));
        properties.push(("Adapter", Value::path(ADAPTER_PATH)));
        let network = Value::dict([("Connected", Value::from(connected))]);
        Value::dict_of_dicts([
            (ADAPTER_PATH, Value::dict_of_dicts([(ADAPTER, Value::dict([("Powered", Value::from(on))]))])),
            (PHONE, Value::dict_of_dicts([(DEVICE, Value::dict(properties)), (NETWORK, network)])),
        ])
    }

    #[test]
    fn only_phones_that_were_let_in_are_looked_for() {
        let speaker = "0000110b-0000-1000-8000-00805f9b34fb";
        let table: [Row<'_>; 8] = [
            ("let in", true, &["Paired", "Trusted"], ACCESS_POINT, false, true),
            ("near for another reason", true, &["Paired", "Trusted", "Connected"], ACCESS_POINT, false, true),
            ("it shares", true, &["Paired", "Trusted"], ACCESS_POINT, true, false),
            ("the adapter is off", false, &["Paired", "Trusted"], ACCESS_POINT, false, false),
            ("forgotten", true, &["Trusted"], ACCESS_POINT, false, false),
            ("not let in", true, &["Paired"], ACCESS_POINT, false, false),
            ("blocked by hand", true, &["Paired", "Trusted", "Blocked"], ACCESS_POINT, false, false),
            ("no phone", true, &["Paired", "Trusted"], speaker, false, false),
        ];
        for (case, on, phone, service, connected, expected) in table {
            let expected = expected.then(|| (ADAPTER_PATH.to_owned(), PHONE.to_owned()));
            let found = known(&objects(on, phone, service, connected));
            assert_eq!(found, expected.into_iter().collect::<Vec<_>>(), "{case}");
        }
        assert_eq!(known(&Value::from(7_u32)), Vec::new(), "nonsense");
    }
}
