//! The network manager as the agent of one life sees it. Wrong use is asserted here, as hardware would punish it.

use std::{
    cell::{Cell, RefCell},
    collections::BTreeSet,
    rc::Rc,
    time::Duration,
};

use async_trait::async_trait;
use board::network::{
    Hotspot, JoinError, Link, Links, Manager, Medium, NetworkError, Networks, Profile, Seen, overlap,
};

use super::{CALL_TAKES, HOTSPOT_TAKES, SCAN_TAKES, SimNetworks};
use crate::power::Alive;

/// Longest key of a profile, in bytes.
const KEY_BYTES_MAX: usize = 128;
/// Longest join, by the port's word.
const JOIN_MAX: Duration = Duration::from_secs(60);
/// A call that is not answered is given up after this.
const CALL_LIMIT: Duration = Duration::from_secs(25);

pub(crate) struct NetworksPort {
    pub(crate) networks: SimNetworks,
    pub(crate) alive: Alive,
    /// Changed in this life since they were last joined: what is up by them uses what was.
    pub(crate) stale: RefCell<BTreeSet<String>>,
}

impl NetworksPort {
    /// Waits for `takes`; fails when the network manager is not there, before or after.
    async fn call(&self, takes: Duration) -> Result<(), NetworkError> {
        self.alive.or_for_ever().await;
        self.is_there()?;
        if self.networks.fails_now() {
            // Some are refused at once, some are never answered.
            let refused = self.networks.random(2) == 0;
            self.networks.inner.clock.sleep(if refused { CALL_TAKES } else { CALL_LIMIT }).await;
            self.alive.or_for_ever().await;
            let words = "it is busy".to_owned();
            return Err(if refused { NetworkError::Refused(words) } else { NetworkError::Absent(words) });
        }
        self.networks.inner.clock.sleep(takes).await;
        self.alive.or_for_ever().await;
        self.is_there()
    }

    /// A call that does nothing long.
    async fn brief(&self) -> Result<(), NetworkError> {
        self.call(self.networks.inner.call_takes.get()).await
    }

    fn is_there(&self) -> Result<(), NetworkError> {
        match self.networks.manager() {
            Manager::Ready => Ok(()),
            Manager::Absent => Err(NetworkError::Absent("it is not running".to_owned())),
            Manager::Unusable(why) => Err(NetworkError::Absent(why)),
        }
    }

    async fn connect(&self, profile: &Profile, admin: bool) -> Result<Link, JoinError> {
        self.brief().await?;
        let networks = &self.networks;
        let (takes, first) = networks.attempt(profile);
        let mut coming = None;
        assert!(takes <= JOIN_MAX, "a join takes at most {JOIN_MAX:?}");
        if let Some(interface) = networks.interface_of(profile) {
            // One connection per device: the old one ends when the new one begins, also when that fails, and so does a
            // hotspot in its way.
            if networks.is_taken(&interface) {
                networks.close_hotspot();
            }
            networks.disconnect(|link| link.interface == interface);
            coming = Some(Coming { networks, number: networks.begins(&interface, &profile.key), interface });
        }
        let session = networks.inner.ended.get();
        let called = self.call(takes).await;
        if networks.inner.ended.get() != session {
            return Err(NetworkError::Restarted.into());
        }
        called?;
        drop(coming);
        // What it found at the beginning may have gone meanwhile.
        let (_, last) = networks.attempt(profile);
        let interface = first.and(last)?;
        if networks.is_wpa3_only(profile) {
            networks.inner.learned.borrow_mut().insert(profile.key.clone());
        }
        Ok(networks.connect(profile, &interface, admin))
    }
}

/// A profile that is being written when the caller goes, or the power: it may have been written or not.
struct Begun<'a> {
    networks: &'a SimNetworks,
    profile: &'a Profile,
    ended: Cell<bool>,
}

impl Drop for Begun<'_> {
    fn drop(&mut self) {
        if !self.ended.get() && self.networks.manager() == Manager::Ready && self.networks.random(2) == 0 {
            let _ = self.networks.store(self.profile);
        }
    }
}

/// A device that is being connected, until the caller goes.
struct Coming<'a> {
    networks: &'a SimNetworks,
    interface: String,
    number: u64,
}

impl Drop for Coming<'_> {
    fn drop(&mut self) {
        if self.networks.ends(&self.interface, self.number) {
            self.networks.moved();
        }
    }
}

fn check(profile: &Profile) {
    let Profile { key, medium, priority, .. } = profile;
    assert!(!key.is_empty() && key.len() <= KEY_BYTES_MAX && !key.contains(char::is_control), "{key:?} is no key");
    assert!((-999..=999).contains(priority), "{key}: priority {priority}");
    if let Medium::Wifi { psk: Some(psk), .. } = medium {
        let hexadecimal = psk.len() == 64 && psk.expose().bytes().all(|byte| byte.is_ascii_hexdigit());
        assert!(
            psk.is_empty() || hexadecimal || (8..=63).contains(&psk.len()),
            "{key}: a password of {} bytes",
            psk.len()
        );
    }
}

#[async_trait(?Send)]
impl Networks for NetworksPort {
    fn links(&self) -> Links {
        self.networks.snapshot()
    }

    async fn changed(&self) {
        self.alive.or_for_ever().await;
        let before = self.networks.snapshot();
        while self.networks.snapshot() == before {
            self.networks.moves().await;
            self.alive.or_for_ever().await;
        }
    }

    async fn profiles(&self) -> Result<Vec<Profile>, NetworkError> {
        self.networks.count(|_| ());
        self.brief().await?;
        let mut ours = self.networks.ours();
        for profile in &mut ours {
            if let Medium::Wifi { psk: Some(psk), .. } = &mut profile.medium
                && self.networks.inner.keeps_secrets.get()
            {
                *psk = "".into();
            }
        }
        Ok(ours)
    }

    async fn put(&self, profile: &Profile) -> Result<(), NetworkError> {
        check(profile);
        self.networks.count(|counts| counts.puts += 1);
        let refuses = self.networks.inner.refuses.borrow().clone();
        if let Some(why) = refuses {
            self.brief().await?;
            return Err(NetworkError::Refused(why));
        }
        self.stale.borrow_mut().insert(profile.key.clone());
        let begun = Begun { networks: &self.networks, profile, ended: Cell::new(false) };
        let called = self.brief().await;
        begun.ended.set(true);
        called?;
        let used = |key: &String| *key == profile.key;
        let connected = self.networks.links().iter().filter_map(|link| link.key.as_ref()).any(used);
        if !connected && !self.networks.inner.coming.borrow().values().any(|(key, _)| used(key)) {
            self.stale.borrow_mut().remove(&profile.key);
        }
        self.networks.store(profile)
    }

    async fn remove(&self, key: &str) -> Result<(), NetworkError> {
        self.networks.count(|counts| counts.removes += 1);
        self.brief().await?;
        self.networks.inner.ours.borrow_mut().remove(key);
        self.networks.disconnect(|link| link.key.as_deref() == Some(key));
        Ok(())
    }

    async fn join(&self, key: &str) -> Result<Link, JoinError> {
        self.networks.count(|counts| counts.joins += 1);
        self.is_there()?;
        let profile = self.networks.inner.ours.borrow().get(key).cloned();
        // Somebody else may have removed it since it was listed.
        let profile = profile.ok_or_else(|| NetworkError::Refused(format!("there is no profile {key}")))?;
        let stale = self.stale.borrow_mut().remove(key);
        let there = self.networks.links().into_iter().find(|link| link.key.as_deref() == Some(key));
        if let Some(link) = there.filter(|_| !stale) {
            self.brief().await?;
            return Ok(link);
        }
        self.connect(&profile, false).await
    }

    async fn join_known(&self, interface: Option<&str>) -> Result<bool, JoinError> {
        self.networks.count(|_| ());
        self.brief().await?;
        match self.networks.known(interface) {
            Some(profile) => self.connect(&profile, true).await.map(|_| true),
            None => Ok(false),
        }
    }

    async fn scan(&self, interface: Option<&str>, fresh: bool) -> Result<Vec<Seen>, NetworkError> {
        self.networks.count(|counts| counts.scans += u64::from(fresh));
        let radio = self.networks.radio(interface);
        let radio = radio.ok_or_else(|| NetworkError::NoRadio(interface.map(str::to_owned)))?;
        if let Some(why) = radio.blocked {
            return Err(NetworkError::Refused(why));
        }
        self.call(if fresh { SCAN_TAKES } else { self.networks.inner.call_takes.get() }).await?;
        Ok(self.networks.heard())
    }

    async fn open_hotspot(&self, hotspot: &Hotspot) -> Result<(), NetworkError> {
        assert!((8..=63).contains(&hotspot.password.len()), "a password of {} bytes", hotspot.password.len());
        assert!((1..=13).contains(&hotspot.channel), "channel {} of the 2.4 GHz band", hotspot.channel);
        self.networks.count(|counts| counts.hotspots += 1);
        let radio = self.networks.radio(Some(&hotspot.interface));
        let radio = radio.ok_or_else(|| NetworkError::NoRadio(Some(hotspot.interface.clone())))?;
        if let Some(why) = radio.blocked.or_else(|| (!radio.access_point).then(|| "it joins only".to_owned())) {
            return Err(NetworkError::Refused(why));
        }
        let own = self.networks.links().into_iter().find(|link| link.interface == hotspot.interface);
        let own = own.and_then(|link| link.address);
        let others = self.networks.subnets().into_iter().filter(|other| Some(*other) != own);
        if let Some((other, length)) = others.into_iter().find(|other| overlap(hotspot.address, *other)) {
            return Err(NetworkError::Refused(format!("the hotspot's network is that of {other}/{length} already")));
        }
        self.call(HOTSPOT_TAKES).await?;
        self.networks.inner.hotspot.replace(Some(hotspot.clone()));
        self.networks.moved();
        Ok(())
    }

    async fn close_hotspot(&self) -> Result<(), NetworkError> {
        self.networks.count(|_| ());
        self.brief().await?;
        self.networks.close_hotspot();
        self.networks.moved();
        Ok(())
    }

    async fn set_power_save(&self, on: Option<bool>) -> Result<bool, NetworkError> {
        self.networks.count(|_| ());
        self.brief().await?;
        Ok(self.networks.inner.power_save.replace(on) != on)
    }

    async fn set_country(&self, country: Option<&str>) -> Result<(), NetworkError> {
        self.networks.count(|_| ());
        self.brief().await?;
        self.networks.inner.country.replace(country.map(str::to_owned));
        Ok(())
    }
}

/// The port, when the device has one.
pub(crate) fn port(networks: &SimNetworks, alive: &Alive) -> Option<Rc<dyn Networks>> {
    let port = || -> Rc<dyn Networks> {
        Rc::new(NetworksPort { networks: networks.clone(), alive: alive.clone(), stale: RefCell::default() })
    };
    networks.inner.exists.get().then(port)
}
