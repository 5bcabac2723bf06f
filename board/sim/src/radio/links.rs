//! How joining goes, which links stay, and what the network manager does by itself.

use std::{cell::RefCell, collections::BTreeMap, net::Ipv4Addr, task::Waker, time::Duration};

use board::network::{Address, JoinError, Link, Manager, Medium, NetworkError, Profile, Security, Ssid};

use super::{ASKING_TAKES, BY_ITSELF_AFTER, Beyond, Inner, NO_ADDRESS_TAKES, REFUSAL_TAKES, SimNetworks, Up};

impl SimNetworks {
    /// The device that joining by this profile takes, where it comes to that.
    pub(crate) fn interface_of(&self, profile: &Profile) -> Option<String> {
        match (&profile.medium, self.attempt(profile)) {
            (_, (_, Ok(interface))) => Some(interface),
            (Medium::Wifi { .. }, (_, Err(JoinError::Network(_)))) | (Medium::Wired, _) => None,
            (Medium::Wifi { .. }, _) => self.radio(profile.interface.as_deref()).map(|radio| radio.interface),
        }
    }

    /// How joining by this profile goes and how long that takes, as things are now.
    pub(crate) fn attempt(&self, profile: &Profile) -> (Duration, Result<String, JoinError>) {
        let takes = self.inner.join_takes.get();
        match &profile.medium {
            Medium::Wifi { ssid, psk, hidden } => {
                let radio = match self.radio(profile.interface.as_deref()) {
                    Some(radio) if radio.blocked.is_none() => radio,
                    _ => {
                        let gone = NetworkError::NoRadio(profile.interface.clone());
                        return (Duration::from_millis(10), Err(gone.into()));
                    }
                };
                let points = self.inner.points.borrow();
                let found = points.iter().find(|point| point.ssid == *ssid && (!point.hidden || *hidden));
                let Some(point) = found else { return (ASKING_TAKES, Err(JoinError::NotInRange(ssid.clone()))) };
                if let Some(refusal) = point.refuses(psk.as_ref().map(|psk| psk.expose())) {
                    return (REFUSAL_TAKES, Err(refusal));
                }
                if profile.address == Address::Auto && !point.dhcp {
                    return (NO_ADDRESS_TAKES, Err(JoinError::NoAddress(ssid.to_string())));
                }
                (takes, Ok(radio.interface))
            }
            Medium::Wired => {
                let cables = self.inner.cables.borrow();
                let fits = |name: &&String| profile.interface.as_ref().is_none_or(|wanted| wanted == *name);
                let Some(name) = cables.keys().find(fits) else {
                    let named = profile.interface.clone().unwrap_or_else(|| "this device".to_owned());
                    return (Duration::from_millis(10), Err(JoinError::NoCable(named)));
                };
                let cable = cables[name];
                match () {
                    () if !cable.plugged => (Duration::from_millis(10), Err(JoinError::NoCable(name.clone()))),
                    () if profile.address == Address::Auto && !cable.dhcp => {
                        (NO_ADDRESS_TAKES, Err(JoinError::NoAddress(name.clone())))
                    }
                    () => (Duration::from_secs(1), Ok(name.clone())),
                }
            }
        }
    }

    /// The link comes up.
    pub(crate) fn connect(&self, profile: &Profile, interface: &str, admin: bool) -> Link {
        let ssid = match &profile.medium {
            Medium::Wifi { ssid, .. } => Some(ssid.clone()),
            Medium::Wired => None,
        };
        let gateway = profile.gateway;
        let beyond = self.beyond(ssid.as_ref(), interface, gateway);
        let (address, default_route) = match profile.address {
            Address::Auto => ((Ipv4Addr::new(192, 168, if ssid.is_some() { 1 } else { 7 }, 20), 24), true),
            Address::Fixed(address, prefix) => ((address, prefix), profile.gateway.is_some()),
        };
        let link = Link {
            interface: interface.to_owned(),
            ssid,
            key: (!admin).then(|| profile.key.clone()),
            address: Some(address),
            default_route,
        };
        let up = Up { link: link.clone(), beyond, gateway, admin: admin.then(|| profile.key.clone()) };
        self.inner.up.borrow_mut().insert(interface.to_owned(), up);
        self.moved();
        link
    }

    fn beyond(&self, ssid: Option<&Ssid>, interface: &str, gateway: Option<Ipv4Addr>) -> Beyond {
        let name = ssid.map_or_else(|| interface.to_owned(), ToString::to_string);
        let right = self.inner.gateways.borrow().get(&name).copied();
        if gateway.is_some_and(|gateway| right.is_some_and(|right| right != gateway)) {
            return Beyond::Nothing;
        }
        match ssid {
            Some(ssid) => {
                let points = self.inner.points.borrow();
                points.iter().find(|point| point.ssid == *ssid).map_or(Beyond::Nothing, |point| point.beyond)
            }
            None => self.inner.cables.borrow().get(interface).map_or(Beyond::Nothing, |cable| cable.beyond),
        }
    }

    pub(crate) fn disconnect(&self, which: impl Fn(&Link) -> bool) {
        self.inner.up.borrow_mut().retain(|_, up| !which(&up.link));
        self.moved();
    }

    /// Something is otherwise: links go that cannot stay, the web follows, and whoever watches is told.
    pub(crate) fn moved(&self) {
        let Inner { radios, points, ghosts, cables, up, hotspot, web, .. } = &*self.inner;
        if !self.inner.exists.get() {
            return;
        }
        let stays = |up: &Up| match &up.link.ssid {
            Some(ssid) => {
                let radios = radios.borrow();
                let radio = radios.get(&up.link.interface).filter(|radio| radio.blocked.is_none());
                let taken = hotspot.borrow().as_ref().is_some_and(|hotspot| hotspot.interface == up.link.interface);
                radio.is_some_and(|radio| radio.both || !taken)
                    && (points.borrow().iter().any(|point| point.ssid == *ssid) || ghosts.borrow().contains(ssid))
            }
            None => cables.borrow().get(&up.link.interface).is_some_and(|cable| cable.plugged),
        };
        up.borrow_mut().retain(|_, up| stays(up));
        let beyond: Vec<(String, Beyond)> = up
            .borrow()
            .values()
            .map(|up| (up.link.interface.clone(), self.beyond(up.link.ssid.as_ref(), &up.link.interface, up.gateway)))
            .collect();
        for (interface, beyond) in beyond {
            if let Some(up) = up.borrow_mut().get_mut(&interface) {
                up.beyond = beyond;
            }
        }
        if hotspot.borrow().as_ref().is_some_and(|hotspot| !radios.borrow().contains_key(&hotspot.interface)) {
            self.close_hotspot();
        }
        let leads = |wanted| up.borrow().values().any(|up| up.link.default_route && up.beyond == wanted);
        let (internet, portal) = (leads(Beyond::Internet), leads(Beyond::Portal));
        web.set_online(internet || portal);
        web.set_captive(portal && !internet);
        self.inner.edition.set(self.inner.edition.get() + 1);
        self.inner.waiting.take().into_iter().for_each(Waker::wake);
        self.connect_by_itself();
    }

    /// The network manager's own doing: soon, the best profile for each idle device.
    fn connect_by_itself(&self) {
        if !self.inner.by_itself.get() || self.inner.about_to.replace(true) {
            return;
        }
        let manager = self.clone();
        self.inner.clock.happens_after(BY_ITSELF_AFTER, move || {
            manager.inner.about_to.set(false);
            if manager.manager() != Manager::Ready || !manager.inner.by_itself.get() {
                return;
            }
            let of = |profiles: &RefCell<BTreeMap<String, Profile>>, admin: bool| -> Vec<(Profile, bool)> {
                profiles.borrow().values().map(|profile| (profile.clone(), admin)).collect()
            };
            let mut known = of(&manager.inner.ours, false);
            known.extend(of(&manager.inner.admins, true));
            known.sort_by_key(|(profile, _)| std::cmp::Reverse(profile.priority));
            for (profile, admin) in known {
                if manager.is_wpa3_only(&profile) && !manager.inner.learned.borrow().contains(&profile.key) {
                    continue;
                }
                // One that would fail is blocked after that, which is all that matters here.
                let (_, Ok(interface)) = manager.attempt(&profile) else { continue };
                let idle = !manager.inner.up.borrow().contains_key(&interface);
                let begun = manager.inner.coming.borrow().contains_key(&interface);
                if !idle || begun || manager.is_taken(&interface) {
                    continue;
                }
                match manager.inner.by_itself_takes.get() {
                    Duration::ZERO => drop(manager.connect(&profile, &interface, admin)),
                    takes => manager.begin_by_itself(profile, interface, admin, takes),
                }
            }
        });
    }

    /// A device begins to be connected, instead of whatever it did. Its number.
    pub(crate) fn begins(&self, interface: &str, key: &str) -> u64 {
        let number = self.inner.edition.get();
        self.inner.coming.borrow_mut().insert(interface.to_owned(), (key.to_owned(), number));
        self.moved();
        number
    }

    /// That is over; says whether it was still under way.
    pub(crate) fn ends(&self, interface: &str, number: u64) -> bool {
        let mut coming = self.inner.coming.borrow_mut();
        let there = coming.get(interface).is_some_and(|(_, begun)| *begun == number);
        there && coming.remove(interface).is_some()
    }

    /// It ends well unless the agent wants the device for something else meanwhile.
    fn begin_by_itself(&self, profile: Profile, interface: String, admin: bool, takes: Duration) {
        let number = self.begins(&interface, &profile.key);
        let manager = self.clone();
        self.inner.clock.happens_after(takes, move || {
            if !manager.ends(&interface, number) {
                return;
            }
            match manager.attempt(&profile) {
                (_, Ok(_)) if !manager.is_taken(&interface) => drop(manager.connect(&profile, &interface, admin)),
                _ => manager.moved(),
            }
        });
    }

    /// Its access point wants WPA3 and nothing else.
    pub(crate) fn is_wpa3_only(&self, profile: &Profile) -> bool {
        let Medium::Wifi { ssid, .. } = &profile.medium else { return false };
        self.inner.points.borrow().iter().any(|point| point.ssid == *ssid && point.security == Security::Wpa3)
    }

    /// The radio is a hotspot and can be nothing else meanwhile.
    pub(crate) fn is_taken(&self, interface: &str) -> bool {
        let both = self.radio(Some(interface)).is_some_and(|radio| radio.both);
        !both && self.hotspot().is_some_and(|hotspot| hotspot.interface == interface)
    }

    /// The best of the administrator's profiles that would be used.
    pub(crate) fn known(&self, wanted: Option<&str>) -> Option<Profile> {
        let mut known = self.admins();
        known.sort_by_key(|profile| std::cmp::Reverse(profile.priority));
        known.into_iter().find(|profile| {
            let in_use = self.admin_in_use().as_ref() == Some(&profile.key);
            !in_use && matches!(self.attempt(profile), (_, Ok(interface)) if !self.is_taken(&interface) && wanted.is_none_or(|wanted| wanted == interface))
        })
    }
}
