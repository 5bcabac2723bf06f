//! Listens to the air.

use std::time::Duration;

use board::{
    Clock,
    network::{NetworkError, Ssid},
};
use smol::future::FutureExt as _;

use super::{
    daemon::{ACCESS_POINT, Daemon, PROPERTIES, WIRELESS, trouble},
    security::{Heard, Offer},
};
use crate::dbus::{Said, Value};

/// Longest time that a radio may take to listen on all channels.
const LISTEN_MAX: Duration = Duration::from_secs(20);
/// What was heard this short a time ago is as good as new; the network manager refuses to listen again so soon.
const FRESH: Duration = Duration::from_secs(10);

/// Listens now. `wanted` is asked for by name, so that a hidden network answers, and it ends when that
/// is heard.
pub(super) async fn listen(
    daemon: &Daemon,
    device: &str,
    wanted: Option<&Ssid>,
    clock: &dyn Clock,
) -> Result<(), NetworkError> {
    let mut changes = daemon.signals(Some(device), PROPERTIES, "PropertiesChanged", Some(WIRELESS)).await?;
    let before = daemon.all(device, WIRELESS).await?.signed("LastScan");
    let names = |wanted: &Ssid| ("ssids", Value::List("ay".into(), vec![Value::from(wanted.bytes().to_vec())]));
    let options = Value::dict(wanted.map(names));
    if let Err(refused) = daemon.call(device, WIRELESS, "RequestScan", vec![options]).await {
        let now = i64::try_from(clock.now().as_nanos() / 1_000_000).unwrap_or(i64::MAX);
        let fresh = i64::try_from(FRESH.as_millis()).unwrap_or(i64::MAX);
        if before >= 0 && now.saturating_sub(before) < fresh {
            return Ok(());
        }
        if matches!(refused, NetworkError::Absent(_)) {
            return Err(refused);
        }
        log::debug!("listening to the air was refused, which is so while it is done already: {refused}");
    }
    let heard = async {
        while let Some(said) = changes.next().await {
            let Said::Message(message) = said else {
                if daemon.all(device, WIRELESS).await?.signed("LastScan") != before {
                    return Ok(());
                }
                continue;
            };
            let Some(changed) = message.nth(1) else { continue };
            if changed.get("LastScan").and_then(Value::signed).is_some_and(|last| last != before) {
                return Ok(());
            }
            // It need not be listened to the end once it answers.
            if let Some(wanted) = wanted
                && changed.get("AccessPoints").is_some()
                && self::heard(daemon, device).await?.iter().any(|one| one.ssid.as_ref() == Some(wanted))
            {
                return Ok(());
            }
        }
        Err(NetworkError::Absent("it went away".to_owned()))
    };
    let over = async {
        clock.sleep_until(clock.now() + LISTEN_MAX).await;
        Err(NetworkError::Refused("the radio did not finish listening".to_owned()))
    };
    heard.or(over).await
}

/// What the radio has heard lately, the same name as often as it was heard.
pub(super) async fn heard(daemon: &Daemon, device: &str) -> Result<Vec<Heard>, NetworkError> {
    // One call for all access points, and not one for each.
    let answer = daemon.objects().await?;
    let objects = answer.map().map_err(trouble)?;
    let list = objects.at(device, WIRELESS).and_then(|radio| radio.get("AccessPoints"));
    let one = |path: &str| {
        let properties = objects.at(path, ACCESS_POINT)?;
        let number = |name| properties.get(name).and_then(Value::unsigned).unwrap_or(0);
        Some(Heard {
            ssid: properties.get("Ssid").and_then(Value::bytes).and_then(Ssid::new),
            signal: u8::try_from(number("Strength")).unwrap_or(100),
            offer: Offer { flags: number("Flags"), wpa: number("WpaFlags"), rsn: number("RsnFlags") },
            frequency: number("Frequency"),
            last: properties.get("LastSeen").and_then(Value::signed).unwrap_or(-1),
        })
    };
    Ok(list.map(Value::list).unwrap_or_default().iter().filter_map(Value::text).filter_map(one).collect())
}
