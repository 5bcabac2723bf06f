//! Networks by NetworkManager over the message bus.
//!
//! Owns the snapshot of what is connected, which signals of the network manager and of the kernel keep: nothing is asked
//! while nothing changes. The work is done by sessions, one for each process of the network manager that comes and goes;
//! a session listens, asks and is forgotten with it. Nothing begins before the port is first used.

mod activation;
mod daemon;
mod dnsmasq;
mod hotspot;
mod join;
mod known;
mod links;
mod power_save;
mod reasons;
mod scan;
mod security;
mod settings;

use std::{
    cell::{Cell, RefCell},
    convert::Infallible,
    future::poll_fn,
    io,
    path::{Path, PathBuf},
    rc::Rc,
    task::{Poll, Waker},
    time::Duration,
};

use async_trait::async_trait;
use board::{
    Clock, Mono,
    network::{Hotspot, JoinError, Link, Links, Manager, NetworkError, Networks, Profile, Seen},
};
use smol::{LocalExecutor, Task, future::FutureExt as _};

use self::{
    daemon::{ACTIVE, CONNECTION, DEVICE, Daemon, NAME, Owned, PATH, PROPERTIES, uuid},
    dnsmasq::Names,
    known::{Device, Known},
    links::Kernel,
    settings::Mark,
};
use crate::{
    bus::Bus,
    dbus::Value,
    netlink::{Changes, Radios},
};

/// Signals come in bursts; what they say is asked once, this long after the first.
const BURST: Duration = Duration::from_millis(50);
/// Between two tries to speak to a network manager that is there.
const PAUSE_MIN: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(60);
/// It has its name this long before it has its objects, on a slow board: nothing is said until then.
const START_MAX: Duration = Duration::from_secs(25);
/// Between two tries meanwhile.
const START_PAUSE: Duration = Duration::from_secs(1);
/// The network manager's folder of settings.
const FOLDER: &str = "/etc/NetworkManager";
/// Where its name server writes the number of its process.
const RUN_FOLDER: &str = "/run";
/// Reads its configuration again (`NM_MANAGER_RELOAD_FLAG_CONF`).
const RELOAD_CONFIGURATION: u32 = 0x1;

/// The port [`Networks`].
pub struct NetworkManager {
    shared: Rc<Shared>,
}

struct Shared {
    executor: Rc<LocalExecutor<'static>>,
    clock: Rc<dyn Clock>,
    bus: Rc<Bus>,
    mark: Mark,
    names: Names,
    daemon: RefCell<Option<Rc<Daemon>>>,
    known: RefCell<Known>,
    links: RefCell<Links>,
    waiting: RefCell<Vec<Waker>>,
    /// Profiles that were changed since they were last joined: what is connected by them still uses what was.
    stale: RefCell<Vec<String>>,
    /// Radios that cannot be an access point beside a station although they say so.
    broken: RefCell<Vec<String>>,
    tasks: RefCell<Vec<Task<()>>>,
    started: Cell<bool>,
    /// The network manager's folder of settings.
    folder: PathBuf,
    /// Whether the network manager has read its settings again since they were changed; `None` when nobody knows.
    heeded: Cell<Option<bool>>,
}

impl NetworkManager {
    /// Costs nothing until it is used. `brand` marks what belongs to the agent.
    #[must_use]
    pub fn new(
        executor: &Rc<LocalExecutor<'static>>,
        clock: Rc<dyn Clock>,
        bus: Rc<Bus>,
        brand: &str,
    ) -> NetworkManager {
        NetworkManager::with_folder(executor, clock, bus, brand, Path::new(FOLDER))
    }

    /// As [`NetworkManager::new`], with the network manager's settings in another folder.
    #[must_use]
    pub fn with_folder(
        executor: &Rc<LocalExecutor<'static>>,
        clock: Rc<dyn Clock>,
        bus: Rc<Bus>,
        brand: &str,
        folder: &Path,
    ) -> NetworkManager {
        NetworkManager {
            shared: Rc::new(Shared {
                executor: Rc::clone(executor),
                clock,
                bus,
                mark: Mark(brand.to_owned()),
                names: Names::new(folder, brand),
                daemon: RefCell::default(),
                known: RefCell::default(),
                links: RefCell::default(),
                waiting: RefCell::default(),
                stale: RefCell::default(),
                broken: RefCell::default(),
                tasks: RefCell::default(),
                started: Cell::new(false),
                folder: folder.to_owned(),
                heeded: Cell::default(),
            }),
        }
    }

    /// Removes what an agent that was killed while its hotspot was open has left. For an agent that may not use the port
    /// any more; the first use does it too.
    pub fn clear(&self) {
        self.names().remove();
        self.remove_beside();
    }

    /// Begins to look, once.
    fn start(&self) {
        if self.shared.started.replace(true) {
            return;
        }
        self.clear();
        self.shared.publish();
        let sessions = self.shared.executor.spawn(sessions(Rc::clone(&self.shared)));
        let kernel = self.shared.executor.spawn(kernel_changes(Rc::clone(&self.shared)));
        self.shared.tasks.borrow_mut().extend([sessions, kernel]);
    }

    fn daemon(&self) -> Result<Rc<Daemon>, NetworkError> {
        self.start();
        if let Manager::Unusable(words) = &self.shared.known.borrow().manager {
            return Err(NetworkError::Refused(words.clone()));
        }
        self.shared.daemon.borrow().clone().ok_or_else(|| NetworkError::Absent("it is not there".to_owned()))
    }

    fn clock(&self) -> &dyn Clock {
        &*self.shared.clock
    }

    fn mark(&self) -> &Mark {
        &self.shared.mark
    }

    /// The interface that the agent makes for a hotspot beside a station. Within the kernel's 15 bytes.
    fn own_interface(&self) -> String {
        self.mark().interface()
    }

    /// The radio promised an access point beside a station and did not keep it.
    fn give_up_both(&self, interface: &str) {
        put(&self.shared.broken, interface);
        self.shared.publish();
    }

    fn names(&self) -> &Names {
        &self.shared.names
    }

    fn run_folder(&self) -> &Path {
        Path::new(RUN_FOLDER)
    }

    fn links_now(&self) -> Links {
        self.start();
        self.shared.links.borrow().clone()
    }

    fn known_devices(&self) -> Vec<Device> {
        self.shared.known.borrow().devices.clone()
    }

    fn learn(&self, known: Known) {
        self.shared.learn(known);
    }

    fn take_stale(&self, key: &str) -> bool {
        let mut stale = self.shared.stale.borrow_mut();
        let before = stale.len();
        stale.retain(|other| other != key);
        stale.len() < before
    }

    /// The link of an interface, waiting for its address until `limit`.
    async fn link_until(&self, interface: &str, limit: Mono) -> Option<Link> {
        let of = || self.links_now().links.into_iter().find(|link| link.interface == interface);
        let addressed = async {
            loop {
                if of().is_some_and(|link| link.address.is_some()) {
                    return;
                }
                self.changed().await;
            }
        };
        addressed.or(self.clock().sleep_until(limit)).await;
        of()
    }
}

impl Shared {
    /// Makes the snapshot anew and wakes who waits for a change.
    fn publish(&self) {
        let mut links = links::links(&self.known.borrow(), &Kernel::read());
        for radio in &mut links.radios {
            radio.both &= !self.broken.borrow().contains(&radio.interface);
        }
        if *self.links.borrow() != links {
            *self.links.borrow_mut() = links;
            self.waiting.take().into_iter().for_each(Waker::wake);
        }
    }

    fn learn(&self, known: Known) {
        *self.known.borrow_mut() = known;
        self.publish();
    }
}

/// One session after another.
async fn sessions(shared: Rc<Shared>) {
    loop {
        let there = shared.bus.appeared(NAME).await;
        let daemon = Rc::new(Daemon::new(there.clone()));
        let session = async {
            let (mut pause, mut told) = (PAUSE_MIN, None);
            let starting = shared.clock.now() + START_MAX;
            loop {
                let Err(error) = session(&shared, &daemon).await;
                *shared.daemon.borrow_mut() = None;
                if shared.clock.now() < starting {
                    log::debug!("the network manager is not ready: {error}");
                    shared.clock.sleep_until(shared.clock.now() + START_PAUSE).await;
                    continue;
                }
                if told.as_ref() != Some(&error) {
                    log::info!("the network manager does not answer as it should: {error}");
                }
                shared.learn(Known { manager: Manager::Unusable(error.to_string()), ..Known::default() });
                told = Some(error);
                shared.clock.sleep_until(shared.clock.now() + pause).await;
                pause = (pause * 2).min(PAUSE_MAX);
            }
        };
        there.gone().or(session).await;
        log::info!("the network manager has gone");
        *shared.daemon.borrow_mut() = None;
        shared.learn(Known::default());
    }
}

/// Listens and asks, as long as the network manager is there.
async fn session(shared: &Rc<Shared>, daemon: &Rc<Daemon>) -> Result<Infallible, NetworkError> {
    let (ring, rung) = smol::channel::bounded(1);
    let mut readers = Vec::new();
    // Not of radios and access points: their properties change with every breath of the air.
    let interfaces = [
        (PROPERTIES, "PropertiesChanged", Some(NAME)),
        (PROPERTIES, "PropertiesChanged", Some(DEVICE)),
        (PROPERTIES, "PropertiesChanged", Some(ACTIVE)),
        (CONNECTION, "Updated", None),
    ];
    for (interface, member, first) in interfaces {
        let mut signals = daemon.signals(None, interface, member, first).await?;
        let (ring, daemon) = (ring.clone(), Rc::clone(daemon));
        readers.push(shared.executor.spawn(async move {
            while signals.next().await.is_some() {
                if interface == CONNECTION {
                    daemon.keys.borrow_mut().clear();
                }
                let _ = ring.try_send(());
            }
        }));
    }
    loop {
        let known = known::ask(daemon, &shared.mark).await?;
        // Only now can calls find the devices that they need.
        *shared.daemon.borrow_mut() = Some(Rc::clone(daemon));
        shared.learn(known);
        if rung.recv().await.is_err() {
            return Err(NetworkError::Absent("its signals have ended".to_owned()));
        }
        shared.clock.sleep_until(shared.clock.now() + BURST).await;
        let _ = rung.try_recv();
    }
}

async fn kernel_changes(shared: Rc<Shared>) {
    let mut pause = PAUSE_MIN;
    loop {
        let watched: io::Result<Infallible> = async {
            let changes = Changes::watch()?;
            // What changed meanwhile was told to nobody.
            shared.publish();
            loop {
                changes.next().await?;
                pause = PAUSE_MIN;
                shared.clock.sleep_until(shared.clock.now() + BURST).await;
                shared.publish();
            }
        }
        .await;
        let Err(error) = watched;
        log::warn!("the kernel does not tell of changes of its network: {error}");
        shared.clock.sleep_until(shared.clock.now() + pause).await;
        pause = (pause * 2).min(PAUSE_MAX);
    }
}

/// Puts a name among others, once.
fn put(names: &RefCell<Vec<String>>, name: &str) {
    let mut names = names.borrow_mut();
    if !names.iter().any(|other| other == name) {
        names.push(name.to_owned());
    }
}

fn refused(what: &str, error: &io::Error) -> NetworkError {
    NetworkError::Refused(format!("{what}: {error}"))
}

#[async_trait(?Send)]
impl Networks for NetworkManager {
    fn links(&self) -> Links {
        self.links_now()
    }

    async fn changed(&self) {
        let before = self.links_now();
        poll_fn(|context| {
            if *self.shared.links.borrow() != before {
                return Poll::Ready(());
            }
            let mut waiting = self.shared.waiting.borrow_mut();
            // Whoever asks again and again waits once.
            if !waiting.iter().any(|waker| waker.will_wake(context.waker())) {
                waiting.push(context.waker().clone());
            }
            Poll::Pending
        })
        .await;
    }

    async fn profiles(&self) -> Result<Vec<Profile>, NetworkError> {
        let daemon = self.daemon()?;
        let mut profiles = Vec::new();
        for kept in daemon.kept().await? {
            if self.mark().key(&kept.settings).is_none() {
                continue;
            }
            let secrets = daemon.secrets(&kept).await?;
            profiles.extend(settings::to_profile(self.mark(), &kept.settings, &secrets));
        }
        Ok(profiles)
    }

    async fn put(&self, profile: &Profile) -> Result<(), NetworkError> {
        let daemon = self.daemon()?;
        let psk = if let board::network::Medium::Wifi { psk, .. } = &profile.medium { psk.as_ref() } else { None };
        let how = security::How::usual(psk);
        let mut there = daemon.kept().await?;
        there.retain(|kept| self.mark().key(&kept.settings).as_deref() == Some(&*profile.key));
        let mut there = there.into_iter();
        put(&self.shared.stale, &profile.key);
        let mut used = false;
        match there.next() {
            None => daemon.add(settings::of_profile(self.mark(), profile, how, &uuid()?)).await?,
            Some(kept) => {
                let uuid = settings::uuid(&kept.settings);
                // What was learned of its access point is not forgotten: the network manager could not join it by itself.
                let learned = settings::how(&kept.settings);
                let how = if psk.is_some() && learned == security::How::Wpa3Only { learned } else { how };
                used = self.is_used(&daemon, &kept.path).await;
                daemon.update(&kept.path, settings::of_profile(self.mark(), profile, how, &uuid)).await?;
                used |= self.is_used(&daemon, &kept.path).await;
            }
        }
        if !used {
            // What is connected by it later uses what is now.
            self.take_stale(&profile.key);
        }
        // An agent that was killed between asking and hearing the answer may have asked twice.
        for double in there {
            daemon.delete(&double.path).await?;
        }
        Ok(())
    }

    async fn remove(&self, key: &str) -> Result<(), NetworkError> {
        let daemon = self.daemon()?;
        for kept in daemon.kept().await? {
            if self.mark().key(&kept.settings).as_deref() == Some(key) {
                daemon.delete(&kept.path).await?;
            }
        }
        self.take_stale(key);
        Ok(())
    }

    async fn join(&self, key: &str) -> Result<Link, JoinError> {
        self.join_by_key(key).await
    }

    async fn join_known(&self, interface: Option<&str>) -> Result<bool, JoinError> {
        self.join_best_known(interface).await
    }

    async fn scan(&self, interface: Option<&str>, fresh: bool) -> Result<Vec<Seen>, NetworkError> {
        let daemon = self.daemon()?;
        let device = self.radio(interface)?;
        let listened = match fresh {
            true => scan::listen(&daemon, &device.path, None, self.clock()).await,
            false => Ok(()),
        };
        let mut seen = security::strongest(scan::heard(&daemon, &device.path).await?);
        if device.owned == Some(Owned::Hotspot) {
            // While it is an access point the radio hears little more than itself.
            seen.retain(|seen| Some(&seen.ssid) != device.ssid.as_ref());
            if seen.is_empty() {
                return Err(NetworkError::Refused(format!(
                    "{} is the hotspot's and hears nobody else",
                    device.interface
                )));
            }
        }
        // A radio that cannot listen now has still heard something before.
        if seen.is_empty() { listened.map(|()| seen) } else { Ok(seen) }
    }

    async fn open_hotspot(&self, hotspot: &Hotspot) -> Result<(), NetworkError> {
        self.open(hotspot).await
    }

    async fn close_hotspot(&self) -> Result<(), NetworkError> {
        let daemon = self.daemon()?;
        self.close(&daemon).await
    }

    async fn set_power_save(&self, on: Option<bool>) -> Result<bool, NetworkError> {
        let daemon = self.daemon()?;
        let (folder, brand) = (&*self.shared.folder, &*self.mark().0);
        let radios = Radios::open().ok();
        let devices = self.known_devices();
        let interfaces = || devices.iter().filter(|device| device.wifi).map(|device| device.interface.clone());
        let state = |name: String| radios.as_ref()?.power_save(&name).ok().map(|on| (name, on));
        let before = power_save::before(folder, brand);
        let changed = power_save::set(folder, brand, on, &interfaces().filter_map(state).collect::<Vec<_>>())
            .map_err(|error| refused("the file for power save cannot be written", &error))?;
        if changed {
            self.shared.heeded.set(Some(false));
        }
        // Whether an agent before this one was heard is not known.
        if self.shared.heeded.get().unwrap_or(on.is_none()) {
            return Ok(changed);
        }
        daemon.call(PATH, NAME, "Reload", vec![Value::from(RELOAD_CONFIGURATION)]).await?;
        self.shared.heeded.set(Some(true));
        // The file is for the connections to come; what is connected is told by the kernel, without being disconnected.
        let wanted = |on| interfaces().map(|interface| (interface, on)).collect();
        for (interface, on) in on.map_or(before, wanted) {
            if let Some(Err(error)) = radios.as_ref().map(|radios| radios.set_power_save(&interface, on)) {
                log::debug!("power save of {interface}: {error}");
            }
        }
        Ok(true)
    }

    async fn set_country(&self, country: Option<&str>) -> Result<(), NetworkError> {
        let Some(country) = country else { return Ok(()) };
        let [first, second] = country.as_bytes() else {
            return Err(NetworkError::Refused(format!("{country} is no country of two letters")));
        };
        let letters = [first.to_ascii_uppercase(), second.to_ascii_uppercase()];
        let radios = Radios::open().map_err(|_| NetworkError::NoRadio(None))?;
        radios.set_country(letters).map_err(|error| refused("the radio rules of this country were not taken", &error))
    }
}
