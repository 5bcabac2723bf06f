//! What the provisioning actor does with what it hears: feeds the machine, carries out its wishes, serves visitors.

use std::{collections::VecDeque, rc::Rc};

use api::{
    device_config::{Advanced, NetworkSettings},
    pb::platform::fleet::v1::{ProvisioningStatus, provisioning_status},
};
use board::{
    Mono, Wall,
    bluetooth::{self, Bluetooth, BluetoothError, Standing, WriteRefused},
    doorway::{Knock, Open},
    files::Access,
    network::{Hotspot, Manager, Networks, Seen},
};

use super::{
    actor::{Check, Ports},
    ble::session::Settings,
    front::{self, Done, Front},
    hotspot, identity,
    keeper::{Keeper, Stand},
    machine::{Effect, Event, Machine, Refused},
    near::{self, Near},
    rules::{Able, Rules},
    visit::{Door, Identity, Visit},
    welcome::{self, Welcome},
};
use crate::{
    cloud::{Reach, status::timestamp},
    config::ConfigStatus,
    kit::latest::Watch,
    network::{Air, Command},
    rank::Actor,
};

/// Sentences that one visitor is shown.
const COMPLAINTS_MAX: usize = 8;

/// The published states that a visitor may be told of.
pub(super) struct Known {
    pub(super) advanced: Watch<Rc<Advanced>>,
    pub(super) settings: Watch<Rc<NetworkSettings>>,
    pub(super) config: Watch<ConfigStatus>,
    pub(super) reach: Watch<Reach>,
    pub(super) air: Watch<Air>,
}

/// Everything in reach.
pub(super) struct Desk {
    pub(super) machine: Machine,
    ports: Ports,
    known: Known,
    front: Option<Front>,
    near: Option<Near>,
    /// Why the last identity that was given could not be stored.
    unstored: Option<Rc<str>>,
    /// When the doors opened or closed last.
    since: Wall,
    /// Which attempt was made last, and when.
    attempted: (u64, Wall),
    /// The file of whoever stands at the device could not be removed: it counts once.
    file_counted: bool,
}

impl Desk {
    pub(super) fn new(machine: Machine, ports: Ports, known: Known, front: Option<Front>, near: Option<Near>) -> Desk {
        let since = ports.clock.wall();
        Desk { machine, ports, known, front, near, unstored: None, since, attempted: (0, since), file_counted: false }
    }

    /// Where visitors come in, while they can.
    pub(super) fn listener(&self) -> Option<Rc<dyn Open>> {
        self.front.as_ref()?.listener()
    }

    /// The network manager, unless it is to be left alone and nothing of ours is in it.
    pub(super) fn networks(&self) -> Option<Rc<dyn Networks>> {
        let ours = matches!(self.machine.hotspot().stand(), Stand::Opening | Stand::Open { .. } | Stand::Closing);
        let front = self.front.as_ref().filter(|_| self.machine.rules().network || ours);
        front.map(|front| Rc::clone(front.networks()))
    }

    /// Feeds the machine one event and does what it wants.
    pub(super) async fn hear(&mut self, event: Event) {
        let mut events = VecDeque::from([event]);
        while let Some(event) = events.pop_front() {
            let now = self.ports.clock.now();
            let (before, attempt) = (self.machine.state().name(), self.machine.attempt().cloned());
            let effects = self.machine.step(now, event);
            self.note(before, attempt.as_ref());
            for effect in effects {
                events.extend(self.perform(effect).await);
            }
        }
    }

    /// Lets a visitor do something, if he may.
    pub(super) async fn visit(&mut self, door: Door, visit: Visit) {
        if permits(&self.machine, &self.ports.check, door, &visit).is_ok() {
            self.hear(Event::Visit(door, visit)).await;
        }
    }

    /// The configuration in force.
    pub(super) async fn settings(&mut self) {
        let (Some(settings), Some(advanced)) = (self.known.settings.get(), self.known.advanced.get()) else { return };
        self.hear(Event::Rules(Rules::new(&settings, &advanced, self.ports.minute))).await;
        self.able().await;
    }

    /// What the device has at the moment.
    pub(super) async fn able(&mut self) {
        let ready = self.networks().is_some_and(|networks| networks.links().manager == Manager::Ready);
        let air = self.known.air.get().unwrap_or_default();
        let radio = air.radio.filter(|radio| radio.access_point && radio.blocked.is_none());
        let hotspot = ready && radio.is_some();
        let able = Able {
            hotspot,
            both: radio.is_some_and(|radio| radio.both),
            bluetooth: self.bluetooth().is_some_and(|bluetooth| bluetooth.present()),
        };
        if !hotspot && self.machine.hotspot().is_open() {
            self.lost("the radio or the network manager has gone").await;
        }
        self.hear(Event::Able(able)).await;
        let stale = match (&self.front, self.wanted_hotspot()) {
            (Some(front), Some(wanted)) => self.machine.hotspot().is_open() && front.is_stale(&wanted),
            _ => false,
        };
        if stale {
            self.lost("its settings have changed").await;
        }
        let stale = match (&self.near, self.wanted_bluetooth()) {
            (Some(near), Some(wanted)) => self.machine.bluetooth().is_open() && near.is_stale(&wanted),
            _ => false,
        };
        if stale {
            self.hear(Event::BluetoothLost("its settings have changed".into())).await;
        }
    }

    /// The hotspot is not there any more, or not as it should be: nobody is let in by it.
    async fn lost(&mut self, why: &str) {
        if let Some(front) = &mut self.front {
            front.shut();
        }
        self.command(Command::Hotspot(false)).await;
        self.hear(Event::HotspotLost(why.into())).await;
    }

    /// Whether the device knows who it is, as its file says now.
    pub(super) async fn identity(&mut self) {
        let has = (self.ports.has_identity)();
        self.hear(Event::Identity(has)).await;
    }

    /// A file can be left by a button, a boot partition, a script.
    pub(super) async fn look_for_force_file(&mut self) {
        let path = self.ports.force_file.clone();
        // Whatever is in it. What cannot be looked at is nobody's wish.
        let there = match self.ports.files.read(&path, 0) {
            Ok(content) => content.is_some(),
            Err(error) => error.source.kind() == std::io::ErrorKind::FileTooLarge,
        };
        if there && !self.file_counted {
            log::info!("{} asks for the doors to be opened", path.display());
            self.forced().await;
        }
        self.file_counted = there
            && match self.ports.files.remove(&path) {
                Ok(()) => false,
                Err(error) => {
                    log::warn!("{error}: {}; it counts once", error.source);
                    true
                }
            };
    }

    pub(super) async fn front_done(&mut self, done: Done) {
        match done {
            Done::Opened(Ok(listener)) => {
                if let Some(front) = &mut self.front {
                    let mut key = [0; 32];
                    let words = std::iter::repeat_with(|| (self.ports.random)().to_le_bytes());
                    key.chunks_mut(8).zip(words).for_each(|(place, word)| place.copy_from_slice(&word));
                    front.opened(listener, key);
                }
                let hotspot = self.front.as_ref().and_then(Front::hotspot);
                if let Some(Hotspot { ssid, address, channel, .. }) = hotspot {
                    self.trace(format_args!("hotspot {ssid} up at {} on channel {channel}", address.0));
                }
                // Opened at once on a device that knows nothing yet: before the radio had heard anybody.
                if self.heard(&self.known.air.get().unwrap_or_default()).is_empty() {
                    self.command(Command::Rescan).await;
                }
                self.hear(Event::HotspotOpened(Ok(()))).await;
            }
            Done::Opened(Err(why)) => {
                log::warn!("{why}");
                self.command(Command::Hotspot(false)).await;
                self.hear(Event::HotspotOpened(Err(why))).await;
            }
            Done::Closed(closed) => {
                match &closed {
                    Ok(()) => self.command(Command::Hotspot(false)).await,
                    Err(why) => log::warn!("{why}"),
                }
                self.hear(Event::HotspotClosed(closed)).await;
            }
        }
    }

    /// A visitor asks something. What he does is done before he is answered: the next request shows the outcome.
    pub(super) async fn knock(&mut self, knock: Box<dyn Knock>) {
        let welcome = self.welcome();
        let (machine, check) = (&self.machine, &self.ports.check);
        let permits = |door: Door, visit: &Visit| permits(machine, check, door, visit);
        let Some(answer) = self.front.as_mut().and_then(|front| front.answer(knock.request(), &welcome, &permits))
        else {
            return;
        };
        for (door, visit) in answer.visits {
            self.visit(door, visit).await;
        }
        // Whoever reads slowly holds up nobody; the port bounds how many they are, and for how long.
        self.ports.executor.spawn(knock.answer(answer.response)).detach();
    }

    /// Bluetooth is offered, or why not.
    pub(super) async fn near_done(&mut self, done: near::Done) {
        match done {
            Ok(opened) => {
                let (session, standing) = *opened;
                if let Some(near) = &mut self.near {
                    near.opened(self.ports.clock.now(), session, standing);
                }
                self.trace(format_args!("Bluetooth {} up", self.name().unwrap_or_default()));
                self.hear(Event::BluetoothOpened(Ok(()))).await;
            }
            Err(why) => {
                log::warn!("{why}");
                self.hear(Event::BluetoothOpened(Err(why))).await;
            }
        }
    }

    /// A phone does something; what it does is done before it is answered.
    pub(super) async fn phone(&mut self, visit: Result<bluetooth::Visit, BluetoothError>) {
        let now = self.ports.clock.now();
        let Some(near) = &mut self.near else { return };
        match visit {
            Ok(bluetooth::Visit::Write { characteristic, phone, value, answer }) => {
                let meant = near.write(now, &phone, characteristic, &value);
                let Ok(visits) = meant else { return answer(meant.map(drop)) };
                let mut done = Ok(());
                for visit in visits.visits {
                    match permits(&self.machine, &self.ports.check, visits.door, &visit) {
                        Ok(()) => self.hear(Event::Visit(visits.door, visit)).await,
                        Err(refused) => {
                            if let Some(near) = &mut self.near {
                                near.refused(visits.door);
                            }
                            done = done.and(Err(refused));
                        }
                    }
                }
                answer(done.map_err(|refused| match refused {
                    Refused::Busy | Refused::Closed => WriteRefused::Busy,
                    Refused::IdentityStays | Refused::NotHere => WriteRefused::NotAuthorized,
                    Refused::Address => WriteRefused::Invalid,
                }));
            }
            Ok(bluetooth::Visit::Pairing { answer, .. }) => answer(near.pairing(now)),
            Ok(bluetooth::Visit::Tether { phone }) => {
                near.tether(phone);
                self.hear(Event::Asking).await;
            }
            Ok(bluetooth::Visit::Back { .. }) => self.hear(Event::PhoneCame).await,
            Ok(bluetooth::Visit::Connected { here: true, .. }) => {}
            Ok(bluetooth::Visit::Connected { phone, here: false }) => near.left(&phone),
            Err(error) => {
                near.shut();
                let why = near::ended(&error);
                log::warn!("{why}");
                self.hear(Event::BluetoothLost(why)).await;
            }
        }
    }

    /// Gives phones what is new.
    pub(super) fn show(&mut self) {
        let Some(mut near) = self.near.take() else { return };
        near.show(self.ports.clock.now(), || self.welcome());
        self.near = Some(near);
    }

    /// Bluetooth, unless it is to be left alone.
    pub(super) fn bluetooth(&self) -> Option<Rc<dyn Bluetooth>> {
        let near = self.near.as_ref().filter(|_| self.machine.rules().network || self.machine.bluetooth().is_open());
        near.map(|near| Rc::clone(near.bluetooth()))
    }

    /// What phones do, while it is offered.
    pub(super) fn standing(&self) -> Option<Rc<dyn Standing>> {
        self.near.as_ref()?.standing()
    }

    /// The moment at which time alone changes something of Bluetooth.
    pub(super) fn near_deadline(&self) -> Option<Mono> {
        self.near.as_ref()?.deadline()
    }

    pub(super) fn tick(&mut self, now: Mono) {
        if let Some(near) = &mut self.near {
            near.tick(now);
        }
    }

    /// Somebody at the device wants the doors open.
    pub(super) async fn forced(&mut self) {
        if let Some(near) = &mut self.near {
            near.present(self.ports.clock.now());
        }
        self.hear(Event::Forced).await;
    }

    /// Closes everything: the agent ends.
    pub(super) async fn leave(&mut self) {
        if let Some(near) = &mut self.near {
            near.shut();
        }
        if !self.machine.hotspot().is_closed()
            && let Some(front) = &mut self.front
            && self.machine.able().hotspot
        {
            front.leave().await;
        }
    }

    /// What a visitor is shown.
    pub(super) fn welcome(&self) -> Welcome {
        let Some(settings) = self.known.settings.get() else { return Welcome::default() };
        let air = self.known.air.get().unwrap_or_default();
        let online = self.machine.is_online();
        let mut attempt = self.machine.attempt().cloned();
        if let Some(welcome::Attempt { result: welcome::Result::Joined { online: reached, .. }, .. }) = &mut attempt {
            *reached |= online;
        }
        let links = self.networks().map(|networks| networks.links()).unwrap_or_default();
        Welcome {
            manufacturer: settings.manufacturer.as_ref().into(),
            model: settings.model.as_ref().into(),
            fragment_id: settings.fragment_id.as_deref().map(Rc::from),
            hostname: Rc::clone(&self.ports.hostname),
            agent_version: Rc::clone(&self.ports.agent_version),
            networks: self.heard(&air).into(),
            has_identity: self.machine.has_identity(),
            identity: self.machine.identity_door(),
            online,
            joined: links.links.into_iter().find_map(|link| link.ssid),
            attempt,
            complaints: self.complaints().into(),
            stays: self.machine.stays(),
        }
    }

    /// The networks of others. A radio hears its own hotspot too, which nobody can choose and which disturbs nobody.
    fn heard(&self, air: &Air) -> Vec<Seen> {
        let settings = self.known.settings.get();
        let own = settings.and_then(|settings| hotspot::ssid(&settings.hotspot_prefix, &self.ports.hostname));
        air.seen.iter().filter(|seen| Some(&seen.ssid) != own.as_ref()).cloned().collect()
    }

    /// For the fleet server and for people at the device.
    pub(super) fn publish(&mut self) {
        let before = self.ports.status.get();
        let able = self.machine.able();
        // Nobody is invited by a device that has nothing to do it with.
        let open = self.machine.is_open() && (able.hotspot || able.bluetooth);
        if before.as_ref().is_none_or(|before| before.open != open) {
            self.since = self.ports.clock.wall();
        }
        let attempt = self.machine.attempt();
        if let Some(attempt) = attempt
            && attempt.number != self.attempted.0
        {
            self.attempted = (attempt.number, self.ports.clock.wall());
        }
        let rules = self.machine.rules();
        let hotspot = door(self.machine.hotspot(), rules.hotspot(), able.hotspot, self.machine.wants_hotspot());
        let bluetooth = door(self.machine.bluetooth(), rules.radio(), able.bluetooth, self.machine.wants_bluetooth());
        let page = self.front.as_ref().and_then(Front::hotspot).filter(|_| self.machine.hotspot().is_open());
        let trouble = [self.machine.hotspot(), self.machine.bluetooth()];
        let trouble = trouble.into_iter().filter_map(Keeper::trouble).map(|why| why.to_string());
        let fragment = self.fragment_complaint().filter(|_| open).map(str::to_owned);
        let status = ProvisioningStatus {
            open,
            since: Some(timestamp(self.since)),
            hotspot: hotspot.into(),
            bluetooth: bluetooth.into(),
            name: self.name().unwrap_or_default(),
            address: page.map(|hotspot| format!("http://{}", hotspot.address.0)).unwrap_or_default(),
            forced: self.machine.is_forced(),
            last_network: attempt.map(|attempt| attempt.ssid.to_string()).unwrap_or_default(),
            last_result: attempt.map(|attempt| words(&attempt.result)).unwrap_or_default(),
            last_at: attempt.map(|_| timestamp(self.attempted.1)),
            trouble: trouble.chain(fragment).collect(),
        };
        self.ports.status.publish_if_changed(status);
    }

    async fn perform(&mut self, effect: Effect) -> Option<Event> {
        match effect {
            Effect::OpenHotspot => {
                self.command(Command::Hotspot(true)).await;
                match (self.wanted_hotspot(), &mut self.front) {
                    (Some(hotspot), Some(front)) => front.open(hotspot),
                    _ => return Some(Event::HotspotOpened(Err("the hotspot has no name".into()))),
                }
            }
            Effect::CloseHotspot => {
                if let Some(front) = &mut self.front {
                    front.close();
                }
            }
            Effect::OfferBluetooth => {
                let welcome = self.welcome();
                match (self.wanted_bluetooth(), &mut self.near) {
                    (Some(settings), Some(near)) => near.open(settings, welcome),
                    _ => return Some(Event::BluetoothOpened(Err("there is no Bluetooth".into()))),
                }
            }
            Effect::WithdrawBluetooth => {
                if let Some(near) = &mut self.near {
                    near.shut();
                }
                return Some(Event::BluetoothClosed);
            }
            Effect::AskPhones => match &mut self.near {
                Some(near) => near.ask(),
                None => return Some(Event::Asked(false)),
            },
            Effect::Join(attempt, given) => {
                self.trace(format_args!("join {} as attempt {attempt}", given.ssid));
                self.command(Command::Join { attempt, given }).await;
            }
            Effect::TryKnown(round) => self.command(Command::TryKnown { round }).await,
            Effect::Rescan => self.command(Command::Rescan).await,
            Effect::Busy(busy) => self.command(Command::Busy(busy)).await,
            Effect::Store(identity) => return Some(Event::Stored(self.store(&identity))),
            // One that waits says the same.
            Effect::Poke => drop(self.ports.poke.try_send(())),
        }
        None
    }

    /// On stable storage when it returns, readable for the agent alone.
    fn store(&mut self, identity: &Identity) -> Result<(), Rc<str>> {
        let content = identity::document(identity);
        let written = self.ports.files.write(&self.ports.credentials, content.as_bytes(), Access::Private);
        match written {
            Ok(()) => {
                self.unstored = None;
                log::info!("this device is now part {} of {}", identity.part_id, identity.app_address);
                self.trace(format_args!("is now part {}", identity.part_id));
                Ok(())
            }
            Err(error) => {
                let why: Rc<str> = format!("the identity could not be stored: {error}: {}", error.source).into();
                log::error!("{why}");
                self.unstored = Some(Rc::clone(&why));
                Err(why)
            }
        }
    }

    fn wanted_hotspot(&self) -> Option<Hotspot> {
        let (settings, air) = (self.known.settings.get()?, self.known.air.get()?);
        let (hostname, serial) = (&self.ports.hostname, &self.ports.serial);
        front::wanted(&settings, hostname, serial, air.radio.as_ref()?, &self.heard(&air), &air.subnets)
    }

    fn wanted_bluetooth(&self) -> Option<Settings> {
        near::wanted(&*self.known.settings.get()?, &self.ports.hostname, &self.ports.serial)
    }

    fn name(&self) -> Option<String> {
        let settings = self.known.settings.get()?;
        hotspot::ssid(&settings.hotspot_prefix, &self.ports.hostname).map(|ssid| ssid.to_string())
    }

    fn complaints(&self) -> Vec<Rc<str>> {
        let config = self.known.config.get().unwrap_or_default();
        let settings = config.complaints.iter().map(|complaint| Rc::from(complaint.to_string()));
        let refused = (self.known.reach.get() == Some(Reach::CredentialsRefused))
            .then(|| Rc::from("the fleet server refuses this device's credentials"));
        let air = self.known.air.get().unwrap_or_default();
        let fragment = self.fragment_complaint().map(Rc::from);
        let unstored = self.unstored.iter().cloned();
        unstored.chain(fragment).chain(refused).chain(air.trouble).chain(settings).take(COMPLAINTS_MAX).collect()
    }

    /// An app that makes machines needs to know from what (SEMANTICS 4.5).
    fn fragment_complaint(&self) -> Option<&'static str> {
        let settings = self.known.settings.get()?;
        let missing = settings.fragment_id.as_deref().unwrap_or_default().is_empty() && !self.machine.has_identity();
        missing.then_some("network_configuration.fragment_id is not set: an app cannot make a machine of this device")
    }

    async fn command(&self, command: Command) {
        self.ports.to_network.send(command).await;
    }

    fn note(&self, before: &'static str, attempt: Option<&welcome::Attempt>) {
        let after = self.machine.state().name();
        if before != after {
            self.trace(format_args!("{before} → {after}"));
        }
        let now = self.machine.attempt();
        if let Some(now) = now.filter(|now| attempt.map(|attempt| &attempt.result) != Some(&now.result)) {
            match &now.result {
                welcome::Result::Trying => {}
                welcome::Result::Joined { .. } | welcome::Result::Failed(_) => {
                    log::info!("{} was given at a door: {}", now.ssid, words(&now.result));
                    self.trace(format_args!("{}: {}", now.ssid, words(&now.result)));
                }
            }
        }
    }

    fn trace(&self, text: std::fmt::Arguments<'_>) {
        self.ports.trace.note(self.ports.clock.now(), Actor::Provisioning, text);
    }
}

/// Whether this may be done now, and an identity could be used.
fn permits(machine: &Machine, check: &Check, door: Door, visit: &Visit) -> Result<(), Refused> {
    machine.permits(door, visit)?;
    match visit {
        Visit::Identity(identity) => check(identity::document(identity).as_bytes()).map_err(|why| {
            log::warn!("an identity that was given at a door cannot be used: {why}");
            Refused::Address
        }),
        _ => Ok(()),
    }
}

fn words(result: &welcome::Result) -> String {
    match result {
        welcome::Result::Trying => "is being tried".to_owned(),
        welcome::Result::Joined { .. } => "joined".to_owned(),
        welcome::Result::Failed(why) => why.to_string(),
    }
}

fn door(keeper: &Keeper, allowed: bool, able: bool, wanted: bool) -> provisioning_status::Door {
    use provisioning_status::Door as Wire;
    match keeper.stand() {
        Stand::Open { .. } => Wire::Open,
        _ if !allowed => Wire::Disabled,
        _ if !able => Wire::Absent,
        _ if wanted => Wire::Opening,
        _ => Wire::Closed,
    }
}
