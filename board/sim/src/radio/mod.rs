//! A network manager, radios, cables and what is in the air, as the test likes.
//!
//! Owns what can be joined and how it goes: the right password or not, an address or none, internet, a login page or
//! neither. One radio serves one thing at a time unless it can do both. Profiles lie on a disk that survives the agent
//! and the power; those of the administrator are shown to nobody. What reaches the simulated web follows from the links.

mod air;
mod links;
mod port;

use std::{
    cell::{Cell, RefCell},
    collections::{BTreeMap, BTreeSet},
    future::poll_fn,
    net::Ipv4Addr,
    rc::Rc,
    task::{Poll, Waker},
    time::Duration,
};

use board::{
    Mono,
    network::{Hotspot, Internet, Link, Links, Manager, Medium, NetworkError, Profile, Radio, Seen, Ssid, Subnet},
};

pub use air::{AccessPoint, Beyond, Cable, any_cable, ssid};
pub(crate) use port::port;

use crate::{SimWeb, clock::SimClock};

/// Time to join a network, unless a test says otherwise.
pub const JOIN_TAKES: Duration = Duration::from_secs(4);
/// Time after which a radio has asked for a name in vain.
pub const ASKING_TAKES: Duration = Duration::from_secs(10);
/// Time after which a wrong password is known to be wrong.
pub const REFUSAL_TAKES: Duration = Duration::from_secs(8);
/// Time after which no address has come.
pub const NO_ADDRESS_TAKES: Duration = Duration::from_secs(30);
/// Time to listen to all channels.
pub const SCAN_TAKES: Duration = Duration::from_secs(3);
/// Time of a call that does nothing long.
pub const CALL_TAKES: Duration = Duration::from_millis(20);
/// Time until phones can join a hotspot.
pub const HOTSPOT_TAKES: Duration = Duration::from_secs(2);
/// The network manager connects by itself this long after it could.
pub const BY_ITSELF_AFTER: Duration = Duration::from_secs(5);

/// How often what was done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// The air was listened to.
    pub scans: u64,
    /// The agent asked to join something.
    pub joins: u64,
    /// A profile was written.
    pub puts: u64,
    /// A profile was removed.
    pub removes: u64,
    /// A hotspot was opened.
    pub hotspots: u64,
    /// Any call of the agent that is not for free.
    pub calls: u64,
}

/// A link that is up.
#[derive(Clone, Debug)]
pub(crate) struct Up {
    pub(crate) link: Link,
    beyond: Beyond,
    /// The way out that its profile names.
    gateway: Option<Ipv4Addr>,
    admin: Option<String>,
}

pub(crate) struct Inner {
    pub(crate) clock: SimClock,
    web: SimWeb,
    /// The agent's board has such a port at all.
    pub(crate) exists: Cell<bool>,
    manager: RefCell<Manager>,
    /// The network manager checks by itself whether there is internet.
    checks: Cell<bool>,
    /// It connects by itself.
    by_itself: Cell<bool>,
    /// It is about to.
    about_to: Cell<bool>,
    /// It takes this long then.
    by_itself_takes: Cell<Duration>,
    /// Interfaces that it is connecting, and by which profile of ours.
    pub(crate) coming: RefCell<BTreeMap<String, (String, u64)>>,
    /// Rises when it goes.
    pub(crate) ended: Cell<u64>,
    radios: RefCell<BTreeMap<String, Radio>>,
    points: RefCell<Vec<AccessPoint>>,
    cables: RefCell<BTreeMap<String, Cable>>,
    pub(crate) ours: RefCell<BTreeMap<String, Profile>>,
    admins: RefCell<BTreeMap<String, Profile>>,
    pub(crate) up: RefCell<BTreeMap<String, Up>>,
    pub(crate) hotspot: RefCell<Option<Hotspot>>,
    /// Access points that are gone and not missed.
    ghosts: RefCell<BTreeSet<Ssid>>,
    /// Access points that are gone and still in the list of what was heard, until then.
    echoes: RefCell<Vec<(Seen, Mono)>>,
    /// A radio remembers for this long what it heard.
    remembers: Cell<Duration>,
    /// Profiles that have learned to use a password as WPA3 wants it.
    pub(crate) learned: RefCell<BTreeSet<String>>,
    /// The right way out of a network, by its name or its cable's; any where there is none.
    gateways: RefCell<BTreeMap<String, Ipv4Addr>>,
    /// Passwords are not told.
    pub(crate) keeps_secrets: Cell<bool>,
    /// One call in this many fails; 0 is none.
    fails: Cell<u64>,
    pub(crate) call_takes: Cell<Duration>,
    chance: Cell<u64>,
    /// Networks of somebody else's that connect to nothing: containers.
    bridges: RefCell<Vec<Subnet>>,
    phones: Cell<u32>,
    pub(crate) power_save: Cell<Option<bool>>,
    pub(crate) country: RefCell<Option<String>>,
    pub(crate) counts: Cell<Counts>,
    join_takes: Cell<Duration>,
    /// It refuses to store profiles, with these words.
    pub(crate) refuses: RefCell<Option<String>>,
    edition: Cell<u64>,
    waiting: RefCell<Vec<Waker>>,
}

/// The network manager and the air, as the test sees them.
#[derive(Clone)]
pub struct SimNetworks {
    pub(crate) inner: Rc<Inner>,
}

impl SimNetworks {
    pub(crate) fn new(clock: &SimClock, web: &SimWeb) -> Self {
        SimNetworks {
            inner: Rc::new(Inner {
                clock: clock.clone(),
                web: web.clone(),
                exists: Cell::new(false),
                manager: RefCell::new(Manager::Ready),
                checks: Cell::new(false),
                by_itself: Cell::new(true),
                about_to: Cell::new(false),
                by_itself_takes: Cell::default(),
                coming: RefCell::default(),
                ended: Cell::default(),
                radios: RefCell::default(),
                points: RefCell::default(),
                cables: RefCell::default(),
                ours: RefCell::default(),
                admins: RefCell::default(),
                up: RefCell::default(),
                hotspot: RefCell::default(),
                ghosts: RefCell::default(),
                echoes: RefCell::default(),
                remembers: Cell::default(),
                learned: RefCell::default(),
                gateways: RefCell::default(),
                keeps_secrets: Cell::new(false),
                fails: Cell::new(0),
                call_takes: Cell::new(CALL_TAKES),
                chance: Cell::new(1),
                bridges: RefCell::default(),
                phones: Cell::new(0),
                power_save: Cell::new(None),
                country: RefCell::default(),
                counts: Cell::default(),
                join_takes: Cell::new(JOIN_TAKES),
                refuses: RefCell::default(),
                edition: Cell::new(0),
                waiting: RefCell::default(),
            }),
        }
    }

    /// From the next life on the device has a network manager; without a link the web cannot be reached.
    pub fn install(&self) {
        self.inner.exists.set(true);
        self.moved();
    }

    /// The network manager comes, goes or is unusable. Its links stay: the kernel keeps them.
    pub fn set_manager(&self, manager: Manager) {
        if manager != Manager::Ready {
            self.inner.ended.set(self.inner.ended.get() + 1);
            self.inner.coming.borrow_mut().clear();
        }
        self.inner.manager.replace(manager);
        self.moved();
    }

    /// It restarts: away, and back after `time`; links stay.
    pub fn restart_manager(&self, time: Duration) {
        self.set_manager(Manager::Absent);
        let again = self.clone();
        self.inner.clock.happens_after(time, move || again.set_manager(Manager::Ready));
    }

    /// Whether it looks by itself for internet.
    pub fn set_checks(&self, checks: bool) {
        self.inner.checks.set(checks);
        self.moved();
    }

    /// Whether it connects by itself to what it knows; on at first.
    pub fn set_by_itself(&self, by_itself: bool) {
        self.inner.by_itself.set(by_itself);
        self.moved();
    }

    /// Connecting by itself takes this long; at first no time at all.
    pub fn set_by_itself_takes(&self, time: Duration) {
        self.inner.by_itself_takes.set(time);
    }

    /// What a radio has heard stays in its list for so long after it is gone; at first not at all.
    pub fn set_remembers(&self, time: Duration) {
        self.inner.remembers.set(time);
    }

    /// A WiFi device is plugged in. It can be an access point, at the same time as it joins another one only if `both`.
    pub fn plug_radio(&self, interface: &str, both: bool) {
        let radio = Radio { interface: interface.to_owned(), access_point: true, both, blocked: None };
        self.inner.radios.borrow_mut().insert(interface.to_owned(), radio);
        self.moved();
    }

    /// Changes a WiFi device, or takes it out.
    pub fn change_radio(&self, interface: &str, change: impl FnOnce(&mut Radio)) {
        let mut radios = self.inner.radios.borrow_mut();
        change(radios.get_mut(interface).expect("only what is plugged in can be changed"));
        drop(radios);
        self.moved();
    }

    /// A WiFi device is taken out.
    pub fn unplug_radio(&self, interface: &str) {
        self.inner.radios.borrow_mut().remove(interface);
        self.moved();
    }

    /// An access point begins to send, in place of one of the same name.
    pub fn place(&self, point: AccessPoint) {
        let mut points = self.inner.points.borrow_mut();
        self.inner.ghosts.borrow_mut().remove(&point.ssid);
        points.retain(|other| other.ssid != point.ssid);
        points.push(point);
        drop(points);
        self.moved();
    }

    /// An access point is switched off.
    pub fn silence(&self, name: &str) {
        let until = self.inner.clock.mono() + self.inner.remembers.get();
        let echo = self.heard().into_iter().find(|seen| seen.ssid == ssid(name)).map(|seen| (seen, until));
        self.inner.echoes.borrow_mut().extend(echo);
        self.inner.points.borrow_mut().retain(|point| point.ssid != ssid(name));
        self.moved();
    }

    /// An access point dies, and the network manager goes on saying that it is connected.
    pub fn die_unnoticed(&self, name: &str) {
        self.inner.ghosts.borrow_mut().insert(ssid(name));
        self.silence(name);
    }

    /// Changes an access point.
    pub fn change(&self, name: &str, change: impl FnOnce(&mut AccessPoint)) {
        let mut points = self.inner.points.borrow_mut();
        change(points.iter_mut().find(|point| point.ssid == ssid(name)).expect("only what sends can be changed"));
        drop(points);
        self.moved();
    }

    /// A socket for a cable, with what is in it.
    pub fn cable(&self, interface: &str, cable: Cable) {
        self.inner.cables.borrow_mut().insert(interface.to_owned(), cable);
        self.moved();
    }

    /// Who names another way out of this network (its name, or its cable's interface) reaches nothing.
    pub fn set_gateway(&self, of: &str, gateway: Ipv4Addr) {
        self.inner.gateways.borrow_mut().insert(of.to_owned(), gateway);
        self.moved();
    }

    /// It does not tell passwords, such as when it asks a secret agent that does not answer.
    pub fn keep_secrets(&self, keeps: bool) {
        self.inner.keeps_secrets.set(keeps);
    }

    /// From now on one call in `every` fails, by chance; 0 is none.
    pub fn fail_calls(&self, every: u64) {
        self.inner.fails.set(every);
    }

    /// A call that does nothing long takes this long.
    pub fn set_call_takes(&self, time: Duration) {
        self.inner.call_takes.set(time);
    }

    /// Below `bound`, the same each time a test runs.
    pub(crate) fn random(&self, bound: u64) -> u64 {
        let next =
            self.inner.chance.get().wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.inner.chance.set(next);
        (next >> 33) % bound.max(1)
    }

    /// Whether this call is one of those that fail.
    pub(crate) fn fails_now(&self) -> bool {
        let every = self.inner.fails.get();
        every > 0 && self.random(every) == 0
    }

    /// Somebody makes a bridge that connects to nothing, such as for containers.
    pub fn bridge(&self, address: Subnet) {
        self.inner.bridges.borrow_mut().push(address);
        self.moved();
    }

    /// A profile that the administrator has made.
    pub fn by_admin(&self, profile: Profile) {
        self.inner.admins.borrow_mut().insert(profile.key.clone(), profile);
        self.moved();
    }

    /// The administrator's profiles as they are on the disk.
    #[must_use]
    pub fn admins(&self) -> Vec<Profile> {
        self.inner.admins.borrow().values().cloned().collect()
    }

    /// The agent's profiles as they are on the disk.
    #[must_use]
    pub fn ours(&self) -> Vec<Profile> {
        self.inner.ours.borrow().values().cloned().collect()
    }

    /// One of the agent's profiles comes onto the disk. One whose password is not told keeps what it has.
    pub(crate) fn store(&self, profile: &Profile) -> Result<(), NetworkError> {
        let mut profile = profile.clone();
        let mut ours = self.inner.ours.borrow_mut();
        if let Medium::Wifi { psk: Some(psk), .. } = &mut profile.medium
            && psk.is_empty()
        {
            let there = ours.get(&profile.key).map(|there| there.medium.clone());
            let Some(Medium::Wifi { psk: Some(kept), .. }) = there else {
                return Err(NetworkError::Refused("there is no password".to_owned()));
            };
            *psk = kept;
        }
        ours.insert(profile.key.clone(), profile);
        drop(ours);
        self.moved();
        Ok(())
    }

    /// Somebody edits one of the agent's profiles by hand.
    pub fn edit(&self, key: &str, change: impl FnOnce(&mut Profile)) {
        change(self.inner.ours.borrow_mut().get_mut(key).expect("only what is there can be edited"));
    }

    /// It refuses to store profiles from now on, with these words.
    pub fn refuse_profiles(&self, why: Option<&str>) {
        self.inner.refuses.replace(why.map(str::to_owned));
    }

    /// Time to join a network.
    pub fn set_join_takes(&self, time: Duration) {
        self.inner.join_takes.set(time);
    }

    /// What is connected.
    #[must_use]
    pub fn links(&self) -> Vec<Link> {
        self.inner.up.borrow().values().map(|up| up.link.clone()).collect()
    }

    /// The name of the network that WiFi is connected to.
    #[must_use]
    pub fn joined(&self) -> Option<String> {
        self.links().into_iter().find_map(|link| Some(link.ssid?.to_string()))
    }

    /// The administrator's profile that is in use.
    #[must_use]
    pub fn admin_in_use(&self) -> Option<String> {
        self.inner.up.borrow().values().find_map(|up| up.admin.clone())
    }

    /// The hotspot that phones see.
    #[must_use]
    pub fn hotspot(&self) -> Option<Hotspot> {
        self.inner.hotspot.borrow().clone()
    }

    /// A phone tries to join the hotspot; says whether it could.
    pub fn phone_joins(&self, password: &str) -> bool {
        let joined = self.hotspot().is_some_and(|hotspot| hotspot.password.expose() == password);
        self.inner.phones.set(self.inner.phones.get() + u32::from(joined));
        joined
    }

    /// Phones in the hotspot.
    #[must_use]
    pub fn phones(&self) -> u32 {
        self.inner.phones.get()
    }

    /// How often what was done.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.inner.counts.get()
    }

    /// Power save as the agent has set it.
    #[must_use]
    pub fn power_save(&self) -> Option<bool> {
        self.inner.power_save.get()
    }

    /// Country as the agent has set it.
    #[must_use]
    pub fn country(&self) -> Option<String> {
        self.inner.country.borrow().clone()
    }

    /// The agent is gone; everything else stays.
    pub(crate) fn agent_went(&self) {
        self.inner.waiting.borrow_mut().clear();
    }

    /// The power goes: links and hotspot with it.
    pub(crate) fn power_went(&self) {
        self.inner.up.borrow_mut().clear();
        self.close_hotspot();
        self.moved();
    }

    pub(crate) fn close_hotspot(&self) {
        self.inner.hotspot.replace(None);
        self.inner.phones.set(0);
    }

    pub(crate) fn manager(&self) -> Manager {
        self.inner.manager.borrow().clone()
    }

    pub(crate) fn radio(&self, interface: Option<&str>) -> Option<Radio> {
        let radios = self.inner.radios.borrow();
        radios.values().find(|radio| interface.is_none_or(|name| radio.interface == name)).cloned()
    }

    pub(crate) fn snapshot(&self) -> Links {
        let manager = self.manager();
        if manager != Manager::Ready {
            return Links { manager, ..Links::default() };
        }
        let beyond = |wanted| self.inner.up.borrow().values().any(|up| up.link.default_route && up.beyond == wanted);
        let internet = match () {
            () if !self.inner.checks.get() => Internet::Unknown,
            () if beyond(Beyond::Internet) => Internet::Yes,
            () if beyond(Beyond::Portal) => Internet::Portal,
            () => Internet::No,
        };
        let radios = self.inner.radios.borrow().values().cloned().collect();
        let coming = self.inner.coming.borrow();
        let coming = coming.keys().filter(|name| self.inner.radios.borrow().contains_key(*name)).cloned().collect();
        Links { manager, radios, links: self.links(), coming, internet, subnets: self.subnets() }
    }

    /// Every network that the kernel has an address of, but the hotspot's own.
    pub(crate) fn subnets(&self) -> Vec<Subnet> {
        let links = self.links().into_iter().filter_map(|link| link.address);
        let mut subnets: Vec<Subnet> = links.chain(self.inner.bridges.borrow().iter().copied()).collect();
        subnets.sort_unstable();
        subnets.dedup();
        subnets
    }

    pub(crate) fn count(&self, what: impl FnOnce(&mut Counts)) {
        let mut counts = self.inner.counts.get();
        counts.calls += 1;
        what(&mut counts);
        self.inner.counts.set(counts);
    }

    pub(crate) async fn moves(&self) {
        let before = self.inner.edition.get();
        poll_fn(|context| {
            if self.inner.edition.get() != before {
                return Poll::Ready(());
            }
            let mut waiting = self.inner.waiting.borrow_mut();
            if !waiting.iter().any(|waker| waker.will_wake(context.waker())) {
                waiting.push(context.waker().clone());
            }
            Poll::Pending
        })
        .await;
    }
}
