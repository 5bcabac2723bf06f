//! Joins networks.

use std::time::Duration;

use board::{
    Mono,
    network::{Address, JoinError, Link, Medium, NetworkError, Networks as _, Profile, Security, Ssid},
};
use secret::Secret;
use smol::future::FutureExt as _;

use super::{
    NetworkManager,
    activation::{Failure, Watching},
    daemon::{DEVICE, Daemon, Kept, Owned, WIRED},
    known::{self, Device, NOT_READY, state},
    reasons::{self, Target},
    scan, security,
    security::{How, Impossible},
    settings,
};
use crate::dbus::Value;

/// Longest time that joining takes, whatever is tried.
pub(super) const JOIN_MAX: Duration = Duration::from_secs(60);
/// The first time may be the end of a listening that began before, which heard only a part.
const LISTEN_TIMES: u32 = 2;
/// The kernel tells an address a moment after the network manager says that it is there.
const ADDRESS_MAX: Duration = Duration::from_secs(2);

/// A network to join by WiFi.
struct Wanted<'a> {
    kept: &'a Kept,
    profile: &'a Profile,
    ssid: &'a Ssid,
    psk: Option<&'a Secret>,
    device: &'a Device,
    /// What is connected by this profile was made before it was changed.
    stale: bool,
    limit: Mono,
}

/// How long a radio is waited for that is not ready yet. It counts within [`JOIN_MAX`].
const READY_MAX: Duration = Duration::from_secs(20);

impl NetworkManager {
    pub(super) async fn join_by_key(&self, key: &str) -> Result<Link, JoinError> {
        let limit = self.clock().now() + JOIN_MAX;
        let daemon = self.daemon()?;
        let kept = daemon.kept().await?;
        let Some(kept) = kept.into_iter().find(|kept| self.mark().key(&kept.settings).as_deref() == Some(key)) else {
            return Err(NetworkError::Refused(format!("there is no profile {key}")).into());
        };
        // The network manager uses it also when it does not tell it now.
        let secrets = match daemon.secrets(&kept).await {
            Err(NetworkError::Refused(words)) => {
                log::debug!("the password of {key} is not told: {words}");
                Value::dict_of_dicts::<&str>([])
            }
            secrets => secrets?,
        };
        let Some(profile) = settings::to_profile(self.mark(), &kept.settings, &secrets) else {
            return Err(NetworkError::Refused(format!("the profile {key} cannot be read")).into());
        };
        let stale = self.take_stale(key);
        match &profile.medium {
            Medium::Wired => {
                let device = self.cable(&daemon, profile.interface.as_deref(), key).await?;
                let target = Target { ssid: None, interface: &device.interface, with_password: false, heard: None };
                let joined = match self.activate(&daemon, &kept.path, &device, stale, limit).await {
                    Ok(()) => self.link(&daemon, &device.interface, limit).await,
                    Err(failure) => match said(failure, target) {
                        JoinError::NoAddress(_) => None,
                        other => return Err(other),
                    },
                };
                match joined {
                    Some(link) => Ok(link),
                    None => Err(self.without_address(&daemon, &device, profile.address).await),
                }
            }
            Medium::Wifi { ssid, psk, hidden } => {
                let device = self.ready_radio(profile.interface.as_deref()).await?;
                let psk = psk.as_ref();
                let wanted = Wanted { kept: &kept, profile: &profile, ssid, psk, device: &device, stale, limit };
                self.join_wifi(&daemon, &wanted, *hidden).await
            }
        }
    }

    /// By what the radio heard; listens when it heard nothing, and when that may be out of date.
    async fn join_wifi(&self, daemon: &Daemon, wanted: &Wanted<'_>, hidden: bool) -> Result<Link, JoinError> {
        let Wanted { ssid, device, .. } = *wanted;
        let mut offered = offered(daemon, device, ssid).await?;
        let mut listened = 0;
        loop {
            if offered.is_some() || listened == LISTEN_TIMES {
                if offered.is_none() && !hidden {
                    return Err(JoinError::NotInRange(ssid.clone()));
                }
                match self.join_by_ways(daemon, wanted, offered).await {
                    Err(JoinError::NotInRange(_) | JoinError::TimedOut(_) | JoinError::Unsuitable { .. })
                        if listened == 0 => {}
                    Err(JoinError::WrongPassword(_)) if listened == 0 && wanted.psk.is_none() => {}
                    ended => return ended,
                }
            }
            if let Err(trouble) = scan::listen(daemon, &device.path, Some(ssid), self.clock()).await {
                log::debug!("{}: {trouble}", device.interface);
            }
            listened += 1;
            offered = self::offered(daemon, device, ssid).await?;
        }
    }

    /// One way of using the password after another, where there are several.
    async fn join_by_ways(
        &self,
        daemon: &Daemon,
        wanted: &Wanted<'_>,
        offered: Option<Security>,
    ) -> Result<Link, JoinError> {
        let Wanted { kept, profile, ssid, psk, device, stale, limit } = *wanted;
        let target =
            Target { ssid: Some(ssid), interface: &device.interface, with_password: psk.is_some(), heard: offered };
        let ways = security::ways(offered, psk).map_err(|why| impossible(why, ssid))?;
        let mut current = settings::how(&kept.settings);
        // The way that worked before is tried first.
        let before = Some(current).filter(|way| ways.contains(way));
        let others = ways.iter().copied().filter(|way| Some(*way) != before);
        let mut failed = JoinError::TimedOut(target.name());
        for (index, way) in before.into_iter().chain(others).enumerate() {
            if way != current {
                self.set_way(daemon, kept, profile, way).await?;
                current = way;
            }
            match self.activate(daemon, &kept.path, device, stale || index > 0, limit).await {
                Ok(()) => {
                    let link = self.link(daemon, &device.interface, limit).await;
                    return link.ok_or_else(|| JoinError::NoAddress(target.name()));
                }
                Err(Failure::WrongPassword) => return Err(JoinError::WrongPassword(ssid.clone())),
                Err(failure) => failed = said(failure, target),
            }
            // Only what another way of using the password could mend.
            if !matches!(failed, JoinError::WrongPassword(_) | JoinError::TimedOut(_) | JoinError::Unsuitable { .. }) {
                break;
            }
        }
        if current != How::usual(psk) && offered == Some(Security::Wpa2Wpa3) {
            self.set_way(daemon, kept, profile, How::usual(psk)).await?;
        }
        Err(failed)
    }

    /// A profile of somebody else's, the best that the system itself holds possible.
    pub(super) async fn join_best_known(&self, interface: Option<&str>) -> Result<bool, JoinError> {
        let limit = self.clock().now() + JOIN_MAX;
        let daemon = self.daemon()?;
        let mut best: Option<(i64, u64, Device, String, Option<Ssid>)> = None;
        for device in self.known_devices().into_iter().filter(|device| device.wifi || device.ethernet) {
            let ours = device.owned == Some(Owned::Hotspot) || device.interface == self.own_interface();
            let other = interface.is_some_and(|wanted| wanted != device.interface);
            if ours || other || device.state < state::DISCONNECTED {
                continue;
            }
            let Ok(properties) = daemon.all(&device.path, DEVICE).await else { continue };
            for path in properties.paths("AvailableConnections") {
                let Ok(settings) = daemon.settings(path).await else { continue };
                if self.mark().key(&settings).is_some() || self.mark().is_hotspot(&settings) {
                    continue;
                }
                let of = |section: &str, name: &str| settings.at(section, name);
                let by_itself = of("connection", "autoconnect").and_then(Value::boolean).unwrap_or(true);
                let mode = of(settings::WIFI, "mode").and_then(Value::text).unwrap_or("infrastructure");
                if !by_itself || mode != "infrastructure" {
                    continue;
                }
                let priority = of("connection", "autoconnect-priority").and_then(Value::signed).unwrap_or(0);
                let used = match of("connection", "timestamp").map(Value::bare) {
                    Some(Value::U64(at)) => *at,
                    _ => 0,
                };
                if best.as_ref().is_none_or(|(p, u, ..)| (priority, used) > (*p, *u)) {
                    let ssid = of(settings::WIFI, "ssid").and_then(Value::bytes).and_then(Ssid::new);
                    best = Some((priority, used, device.clone(), path.to_owned(), ssid));
                }
            }
        }
        let Some((_, _, device, path, ssid)) = best else { return Ok(false) };
        let target = Target { ssid: ssid.as_ref(), interface: &device.interface, with_password: true, heard: None };
        self.activate(&daemon, &path, &device, false, limit).await.map_err(|failure| said(failure, target))?;
        Ok(true)
    }

    /// Brings a profile up on a device, or waits for it where that is under way. `anew` also when it is up already.
    async fn activate(
        &self,
        daemon: &Daemon,
        profile: &str,
        device: &Device,
        anew: bool,
        limit: Mono,
    ) -> Result<(), Failure> {
        let mut watching = Watching::begin(daemon, &device.path).await?;
        if device.wifi {
            watching = watching.with_supplicant(daemon, &device.interface).await;
        }
        let active = match self.active_with(daemon, profile, device).await {
            Some(active) if !anew => active,
            _ => daemon.activate(profile, &device.path).await?,
        };
        let ended = watching.up(daemon, &active, limit, self.clock()).await;
        let give_up = match &ended {
            Err(Failure::WrongPassword) => true,
            // One that is only slow, and has joined, may still get there.
            Err(Failure::TimedOut) => {
                let state = daemon.all(&device.path, DEVICE).await.map_or(0, |properties| properties.number("State"));
                state < state::IP_CHECK
            }
            _ => false,
        };
        if give_up {
            let _ = daemon.deactivate(&active).await;
        }
        ended
    }

    /// The connection of a device, when it is by this profile.
    async fn active_with(&self, daemon: &Daemon, profile: &str, device: &Device) -> Option<String> {
        let properties = daemon.all(&device.path, DEVICE).await.ok()?;
        let active = properties.path("ActiveConnection")?;
        let by = daemon.all(active, super::daemon::ACTIVE).await.ok()?;
        (by.path("Connection") == Some(profile)).then(|| active.to_owned())
    }

    /// Something is connected by this profile, or is being connected.
    pub(super) async fn is_used(&self, daemon: &Daemon, profile: &str) -> bool {
        for device in self.known_devices() {
            if self.active_with(daemon, profile, &device).await.is_some() {
                return true;
            }
        }
        false
    }

    async fn set_way(&self, daemon: &Daemon, kept: &Kept, profile: &Profile, way: How) -> Result<(), NetworkError> {
        let uuid = settings::uuid(&kept.settings);
        daemon.update(&kept.path, settings::of_profile(self.mark(), profile, way, &uuid)).await
    }

    /// The radio to join by. After a start of the network manager each needs some seconds until it is ready.
    async fn ready_radio(&self, interface: Option<&str>) -> Result<Device, NetworkError> {
        let wanted = |name: &str| interface.is_none_or(|wanted| wanted == name);
        let until = self.clock().now() + READY_MAX;
        loop {
            let found = self.radio(interface);
            let links = self.links_now();
            let mut radios = links.radios.iter().filter(|radio| wanted(&radio.interface));
            if found.is_ok() || !radios.any(|radio| radio.blocked.as_deref() == Some(NOT_READY)) {
                return found;
            }
            let late = async {
                self.clock().sleep_until(until).await;
                true
            };
            let changed = async {
                self.changed().await;
                false
            };
            if changed.or(late).await {
                return found;
            }
        }
    }

    /// The radio to use: the first that can be used, and rather one that can be an access point.
    pub(super) fn radio(&self, interface: Option<&str>) -> Result<Device, NetworkError> {
        let wanted = |name: &str| interface.is_none_or(|wanted| wanted == name);
        let links = self.links_now();
        let radios = links.radios.iter().filter(|radio| wanted(&radio.interface));
        let Some(radio) = radios.min_by_key(|radio| (radio.blocked.is_some(), !radio.access_point)) else {
            return Err(NetworkError::NoRadio(interface.map(str::to_owned)));
        };
        if let Some(why) = &radio.blocked {
            return Err(NetworkError::Refused(format!("{} cannot be used: {why}", radio.interface)));
        }
        let found = self.known_devices().into_iter().find(|device| device.interface == radio.interface);
        found.ok_or_else(|| NetworkError::NoRadio(Some(radio.interface.clone())))
    }

    /// The cable to use: one that is plugged in, and rather one that nothing else uses.
    async fn cable(&self, daemon: &Daemon, interface: Option<&str>, key: &str) -> Result<Device, JoinError> {
        let mut unplugged = None;
        let mut best: Option<(u8, Device)> = None;
        for device in self.known_devices().into_iter().filter(|device| device.ethernet) {
            if interface.is_some_and(|wanted| wanted != device.interface) {
                continue;
            }
            if !daemon.all(&device.path, WIRED).await?.is("Carrier") {
                unplugged.get_or_insert(device.interface);
                continue;
            }
            let mine = device.owned == Some(Owned::Profile(key.to_owned()));
            let rank = if mine { 0 } else { 1 + u8::from(device.active.is_some()) };
            if best.as_ref().is_none_or(|(other, _)| rank < *other) {
                best = Some((rank, device));
            }
        }
        best.map(|(_, device)| device).ok_or_else(|| {
            JoinError::NoCable(unplugged.or(interface.map(str::to_owned)).unwrap_or_else(|| "this device".to_owned()))
        })
    }

    /// Why there is no address on a cable: it was pulled meanwhile, or nobody gave one.
    async fn without_address(&self, daemon: &Daemon, device: &Device, wanted: Address) -> JoinError {
        let name = device.interface.clone();
        match wanted {
            _ if daemon.all(&device.path, WIRED).await.is_ok_and(|cable| !cable.is("Carrier")) => {
                JoinError::NoCable(name)
            }
            Address::Auto => JoinError::NoAddress(name),
            Address::Fixed(address, _) => {
                NetworkError::Refused(format!("{name} did not keep its address {address}")).into()
            }
        }
    }

    /// The link of an interface that was just made. `None` when it has gone again.
    async fn link(&self, daemon: &Daemon, interface: &str, limit: Mono) -> Option<Link> {
        // The signals that say so may still be under way: what was connected before must not be taken for it.
        if let Ok(known) = known::ask(daemon, self.mark()).await {
            self.learn(known);
        }
        self.link_until(interface, limit.min(self.clock().now() + ADDRESS_MAX)).await
    }
}

/// What a network asks for, by what the radio heard last; `None` when it did not.
async fn offered(daemon: &Daemon, device: &Device, ssid: &Ssid) -> Result<Option<Security>, NetworkError> {
    let seen = security::strongest(scan::heard(daemon, &device.path).await?);
    Ok(seen.into_iter().find(|seen| seen.ssid == *ssid).map(|seen| seen.security))
}

fn impossible(why: Impossible, ssid: &Ssid) -> JoinError {
    match why {
        Impossible::PasswordMissing => JoinError::WrongPassword(ssid.clone()),
        Impossible::Unsuitable(why) => JoinError::Unsuitable { ssid: ssid.clone(), why: why.to_owned() },
    }
}

fn said(failure: Failure, target: Target<'_>) -> JoinError {
    match failure {
        Failure::Reason(reason) => reasons::failure(reason, target),
        Failure::TimedOut => JoinError::TimedOut(target.name()),
        Failure::WrongPassword => reasons::failure(reasons::device::NO_SECRETS, target),
        Failure::Network(error) => error.into(),
    }
}
