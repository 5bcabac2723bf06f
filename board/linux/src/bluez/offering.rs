//! An offer that stands: its values, who is near, and how it is taken back.

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
};

use super::{
    OBJECT_MANAGER, PROPERTIES, Shared,
    adapter::{ADAPTER, ADVERTISING, Daemon, GATT, refused, said},
    answers::{self, Answer, address},
    objects::{self, ADVERTISEMENT, CHARACTERISTIC, Places},
    packets::{self, Packet},
    tether,
};
use crate::dbus::{Error, Inbox, Message, Said, Value};
use async_trait::async_trait;
use board::bluetooth::{BluetoothError, Offer, Standing, Uuid, VALUE_BYTES_MAX, Visit};
use smol::{
    Task,
    channel::{self, Receiver, Sender},
};

const AGENT_MANAGER: &str = "org.bluez.AgentManager1";
const AGENT_MANAGER_PATH: &str = "/org/bluez";
pub(super) const DEVICE: &str = "org.bluez.Device1";
/// A number can be shown to nobody, but yes can be said.
const CAPABILITY: &str = "DisplayYesNo";
/// Visits that wait for their actor. A phone waits for the answer to its write: more than a few are a flood.
const VISITS: usize = 16;
/// BlueZ's own limit, in seconds, for who is found by others.
const VISIBLE_LIMIT: u32 = 180;
/// Answers and changes on their way to BlueZ.
const OUTBOX: usize = 64;

/// Something for BlueZ, in the order in which it was put here.
pub(super) enum Out {
    /// The answer to a call.
    Answer(Rc<Message>, Answer),
    /// The answer to the question for all services and characteristics.
    Table(Rc<Message>),
    /// The answer to the question for one advertisement.
    Advertisement(Rc<Message>, usize),
    /// A value has changed, and somebody wants to know.
    Changed(Uuid),
    /// An advertisement's data have changed.
    Advertised(usize),
}

/// What is shared by the tasks of one offer.
pub(super) struct Inner {
    pub(super) places: Places,
    paths: Vec<(String, Uuid)>,
    values: RefCell<Vec<(Uuid, Vec<u8>)>>,
    notifying: RefCell<Vec<Uuid>>,
    packets: RefCell<Vec<Packet>>,
    phones: RefCell<Vec<String>>,
    /// Phones that were let in; told of once they are paired.
    accepted: Rc<RefCell<Vec<String>>>,
    visits: Sender<Visit>,
    outbox: Sender<Out>,
    ended: RefCell<Option<BluetoothError>>,
}

/// An offer; dropping it takes it back.
pub(super) struct Offering {
    inner: Rc<Inner>,
    visits: Receiver<Visit>,
    daemon: Rc<Daemon>,
    adapter: String,
    shared: Rc<Shared>,
    /// What has to be taken back.
    done: RefCell<Vec<Done>>,
    pairable: Cell<bool>,
    _tasks: Vec<Task<()>>,
}

/// What was done at BlueZ.
enum Done {
    PoweredOn,
    MadePairable,
    /// With the limit of before, in seconds.
    MadeVisible(u32),
    Agent,
    Table,
    Advertisement(usize),
}

impl Offering {
    pub(super) async fn make(
        shared: &Rc<Shared>,
        daemon: Rc<Daemon>,
        adapter: String,
        number: u64,
        offer: &Offer,
    ) -> Result<Offering, BluetoothError> {
        let places = Places::new(number);
        let (visits, visitors) = channel::bounded(VISITS);
        let (outbox, sent) = channel::bounded(OUTBOX);
        let inner = Rc::new(Inner {
            paths: objects::paths(&places, offer),
            places,
            values: RefCell::default(),
            notifying: RefCell::default(),
            packets: RefCell::new(objects::advertisements(offer)),
            phones: RefCell::default(),
            accepted: Rc::default(),
            visits,
            outbox,
            ended: RefCell::default(),
        });
        let trouble = |error: Error| refused(&error);
        let calls = daemon.calls(&inner.places.root).await.map_err(trouble)?;
        let changes = daemon.signals(&adapter, PROPERTIES, "PropertiesChanged").await.map_err(trouble)?;
        let removed = daemon.signals("/", OBJECT_MANAGER, "InterfacesRemoved").await.map_err(trouble)?;
        let spawn = |task| shared.executor.spawn(task);
        let tasks = vec![
            spawn(Box::pin(serve(Rc::clone(&inner), calls)) as std::pin::Pin<Box<dyn Future<Output = ()>>>),
            spawn(Box::pin(send(Rc::clone(&inner), Rc::clone(&daemon), sent, offer.clone()))),
            spawn(Box::pin(watch(Rc::clone(&inner), Rc::clone(&daemon), changes, adapter.clone()))),
            spawn(Box::pin(watch_removal(Rc::clone(&inner), Rc::clone(&daemon), removed, adapter.clone()))),
        ];
        // From here on, whatever goes wrong is taken back by dropping it.
        let offering = Offering {
            inner,
            visits: visitors,
            daemon,
            adapter,
            shared: Rc::clone(shared),
            done: RefCell::default(),
            pairable: Cell::new(true),
            _tasks: tasks,
        };
        offering.register().await?;
        Ok(offering)
    }

    async fn register(&self) -> Result<(), BluetoothError> {
        let done = |what| self.done.borrow_mut().push(what);
        if self.daemon.power_on(&self.adapter).await? {
            done(Done::PoweredOn);
        }
        self.register_agent().await;
        let registered = |place: String| vec![Value::Path(place), Value::dict::<&str>([])];
        let table = registered(self.inner.places.table());
        let answer = self.daemon.call(&self.adapter, GATT, "RegisterApplication", table).await;
        answer.map_err(|error| refused(&error))?;
        done(Done::Table);
        let count = self.inner.packets.borrow().len();
        for at in 0..count {
            let place = registered(self.inner.places.advertisement(at));
            match self.daemon.call(&self.adapter, ADVERTISING, "RegisterAdvertisement", place).await {
                Ok(_) => done(Done::Advertisement(at)),
                // The first is what existing apps look for; an adapter that has no room for a second still serves them.
                Err(error) if at > 0 => {
                    log::warn!("{} has no room for another advertisement: {}", self.adapter, said(&error))
                }
                Err(error) => return Err(refused(&error)),
            }
        }
        Ok(())
    }

    /// Without it nobody can pair, and everything else works.
    async fn register_agent(&self) {
        let place = || Value::Path(self.inner.places.agent());
        let body = vec![place(), Value::from(CAPABILITY)];
        let registered = self.daemon.call(AGENT_MANAGER_PATH, AGENT_MANAGER, "RegisterAgent", body).await;
        match registered {
            Ok(_) => self.done.borrow_mut().push(Done::Agent),
            Err(error) => return log::warn!("phones cannot pair: {}", said(&error)),
        }
        let first = self.daemon.call(AGENT_MANAGER_PATH, AGENT_MANAGER, "RequestDefaultAgent", vec![place()]).await;
        if let Err(error) = first {
            log::warn!("phones may be asked by somebody else when they pair: {}", said(&error));
        }
        let properties = self.daemon.get_all(&self.adapter, ADAPTER).await;
        self.pairable.set(properties.is_ok_and(|properties| super::adapter::is(&properties, "Pairable")));
        if !self.pairable.get() && self.daemon.set(&self.adapter, ADAPTER, "Pairable", true).await.is_ok() {
            self.done.borrow_mut().push(Done::MadePairable);
        }
        self.be_visible().await;
    }

    /// A phone that is to share its connection is paired by its settings, which find and call who can be found and called by
    /// classic Bluetooth: what is advertised is not enough for them.
    async fn be_visible(&self) {
        let Ok(properties) = self.daemon.get_all(&self.adapter, ADAPTER).await else { return };
        if super::adapter::is(&properties, "Discoverable") {
            return;
        }
        let limit = properties.get("DiscoverableTimeout").and_then(Value::unsigned).unwrap_or(VISIBLE_LIMIT);
        let made = async {
            self.daemon.set(&self.adapter, ADAPTER, "DiscoverableTimeout", 0_u32).await?;
            self.done.borrow_mut().push(Done::MadeVisible(limit));
            self.daemon.set(&self.adapter, ADAPTER, "Discoverable", true).await
        };
        if let Err(error) = made.await {
            log::debug!("{} is not found by classic Bluetooth: {}", self.adapter, said(&error));
        }
    }
}

impl Drop for Offering {
    fn drop(&mut self) {
        if self.inner.ended.borrow().is_some() && self.shared.daemon.borrow().is_none() {
            // Whoever would take it back has gone.
            return;
        }
        let (daemon, adapter) = (Rc::clone(&self.daemon), self.adapter.clone());
        let (done, places) = (self.done.take(), Places { root: self.inner.places.root.clone() });
        let tethered = self.shared.tethered.take();
        let before = self.shared.leaving.take();
        let leaving = self.shared.executor.spawn(async move {
            if let Some(before) = before {
                before.await;
            }
            for one in done.into_iter().rev() {
                let (path, interface, method, place) = match one {
                    Done::PoweredOn | Done::MadePairable | Done::MadeVisible(_) => {
                        if let Err(error) = leave(&daemon, &adapter, &one, tethered.as_deref()).await {
                            log::debug!("leaving {adapter} as it was: {}", said(&error));
                        }
                        continue;
                    }
                    Done::Agent => (AGENT_MANAGER_PATH, AGENT_MANAGER, "UnregisterAgent", places.agent()),
                    Done::Table => (&*adapter, GATT, "UnregisterApplication", places.table()),
                    Done::Advertisement(at) => {
                        (&*adapter, ADVERTISING, "UnregisterAdvertisement", places.advertisement(at))
                    }
                };
                if let Err(error) = daemon.call(path, interface, method, vec![Value::Path(place)]).await {
                    log::debug!("taking back what was offered over Bluetooth: {}", said(&error));
                }
            }
        });
        *self.shared.leaving.borrow_mut() = Some(leaving);
    }
}

/// Leaves a property of the adapter as it was. One that a phone's connection is used by stays on.
async fn leave(daemon: &Daemon, adapter: &str, done: &Done, tethered: Option<&str>) -> Result<(), Error> {
    match done {
        Done::PoweredOn => {
            if let Some(phone) = tethered {
                let phone = daemon.get_all(&device(adapter, phone), DEVICE).await;
                if phone.is_ok_and(|phone| super::adapter::is(&phone, "Connected")) {
                    return Ok(());
                }
            }
            daemon.set(adapter, ADAPTER, "Powered", false).await
        }
        Done::MadeVisible(limit) => {
            daemon.set(adapter, ADAPTER, "Discoverable", false).await?;
            daemon.set(adapter, ADAPTER, "DiscoverableTimeout", *limit).await
        }
        _ => daemon.set(adapter, ADAPTER, "Pairable", false).await,
    }
}

/// Where BlueZ has the phone of this address.
fn device(adapter: &str, phone: &str) -> String {
    format!("{adapter}/dev_{}", phone.replace(':', "_"))
}

#[async_trait(?Send)]
impl Standing for Offering {
    async fn next(&self) -> Result<Visit, BluetoothError> {
        match self.visits.recv().await {
            Ok(visit) => Ok(visit),
            Err(_) => Err(self
                .inner
                .ended
                .borrow()
                .clone()
                .unwrap_or_else(|| BluetoothError::Absent("bluetoothd has gone".to_owned()))),
        }
    }

    fn set(&self, characteristic: Uuid, value: &[u8]) {
        let value = value.get(..value.len().min(VALUE_BYTES_MAX)).unwrap_or_default().to_vec();
        {
            let mut values = self.inner.values.borrow_mut();
            match values.iter_mut().find(|(uuid, _)| *uuid == characteristic) {
                Some((_, now)) => *now = value,
                None => values.push((characteristic, value)),
            }
        }
        if self.inner.notifying.borrow().contains(&characteristic) {
            self.inner.send(Out::Changed(characteristic));
        }
    }

    fn set_service_data(&self, name: Uuid, data: &[u8]) {
        let mut packets = self.inner.packets.borrow_mut();
        for (at, packet) in packets.iter_mut().enumerate() {
            let Some((_, now)) = packet.data.as_mut().filter(|(of, now)| *of == name && now != data) else { continue };
            *now = data.to_vec();
            self.inner.send(Out::Advertised(at));
        }
    }

    fn disconnect_all(&self) {
        for phone in self.inner.phones.borrow().iter() {
            let (daemon, path) = (Rc::clone(&self.daemon), device(&self.adapter, phone));
            let task = async move {
                if let Err(error) = daemon.call(&path, DEVICE, "Disconnect", Vec::new()).await {
                    log::debug!("sending a phone away: {}", said(&error));
                }
            };
            self.shared.executor.spawn(task).detach();
        }
    }
}

impl Inner {
    pub(super) fn send(&self, out: Out) {
        if self.outbox.try_send(out).is_err() {
            log::debug!("BlueZ does not take what it is told");
        }
    }

    pub(super) fn outbox(&self) -> Sender<Out> {
        self.outbox.clone()
    }

    pub(super) fn accepted(&self) -> Rc<RefCell<Vec<String>>> {
        Rc::clone(&self.accepted)
    }

    pub(super) fn uuid_at(&self, path: &str) -> Option<Uuid> {
        self.paths.iter().find(|(at, _)| at == path).map(|(_, uuid)| *uuid)
    }

    fn path_of(&self, uuid: Uuid) -> Option<&str> {
        self.paths.iter().find(|(_, of)| *of == uuid).map(|(path, _)| path.as_str())
    }

    pub(super) fn value(&self, uuid: Uuid) -> Vec<u8> {
        let values = self.values.borrow();
        values.iter().find(|(of, _)| *of == uuid).map(|(_, value)| value.clone()).unwrap_or_default()
    }

    pub(super) fn set_notifying(&self, uuid: Uuid, on: bool) {
        let mut notifying = self.notifying.borrow_mut();
        notifying.retain(|other| *other != uuid);
        if on {
            notifying.push(uuid);
        }
    }

    /// A visit that finds no room is dropped, and its phone told that it failed.
    pub(super) fn tell(&self, visit: Visit) {
        let _ = self.visits.try_send(visit);
    }

    pub(super) fn phone_is_here(&self, phone: &str) {
        let mut phones = self.phones.borrow_mut();
        if !phones.iter().any(|other| other == phone) {
            phones.push(phone.to_owned());
            self.tell(Visit::Connected { phone: phone.to_owned(), here: true });
        }
    }

    fn phone_is_gone(&self, phone: &str) {
        let mut phones = self.phones.borrow_mut();
        if phones.iter().any(|other| other == phone) {
            phones.retain(|other| other != phone);
            self.tell(Visit::Connected { phone: phone.to_owned(), here: false });
        }
    }

    /// Some of what BlueZ said of phones and of the adapter was lost.
    async fn look_again(&self, daemon: &Daemon, adapter: &str) {
        if daemon.get_all(adapter, ADAPTER).await.is_ok_and(|adapter| !super::adapter::is(&adapter, "Powered")) {
            return self.end_switched_off(adapter);
        }
        let phones = self.phones.borrow().clone();
        for phone in phones {
            let there = daemon.get_all(&device(adapter, &phone), DEVICE).await;
            if !there.is_ok_and(|there| super::adapter::is(&there, "Connected")) {
                self.phone_is_gone(&phone);
            }
        }
    }

    fn end_switched_off(&self, adapter: &str) {
        self.end(BluetoothError::Blocked(format!("somebody has switched {adapter} off")));
    }

    fn end(&self, why: BluetoothError) {
        self.ended.borrow_mut().get_or_insert(why);
        self.visits.close();
    }

    pub(super) fn end_refused(&self, why: &str) {
        self.end(BluetoothError::Refused(why.to_owned()));
    }
}

async fn serve(inner: Rc<Inner>, mut calls: Inbox) {
    while let Some(said) = calls.next().await {
        // A call that was lost fails at its caller's.
        let Said::Message(message) = said else { continue };
        match answers::call(&inner, &message) {
            Answer::Later => {}
            answer => inner.send(Out::Answer(message, answer)),
        }
    }
    inner.end(BluetoothError::Absent("the message bus has gone".to_owned()));
}

/// Sends in order: an answer never overtakes a change that was made before it.
async fn send(inner: Rc<Inner>, daemon: Rc<Daemon>, outbox: Receiver<Out>, offer: Offer) {
    let connection = daemon.there.connection();
    while let Ok(out) = outbox.recv().await {
        let sent = match out {
            Out::Answer(message, Answer::Done) => connection.reply(&message, Vec::new()).await,
            Out::Answer(message, Answer::Bytes(bytes)) => connection.reply(&message, vec![Value::from(bytes)]).await,
            Out::Answer(message, Answer::Error(name)) => {
                connection.reply_error(&message, &format!("org.bluez.Error.{name}"), "refused").await
            }
            Out::Answer(_, Answer::Later) => Ok(()),
            Out::Table(message) => connection.reply(&message, vec![objects::table(&inner.places, &offer)]).await,
            Out::Advertisement(message, at) => {
                let packet = inner.packets.borrow().get(at).cloned();
                let properties =
                    packet.map(|packet| objects::advertisement(&packet, packets::name(&offer.advertisement)));
                connection.reply(&message, vec![properties.unwrap_or_else(|| Value::dict::<&str>([]))]).await
            }
            Out::Changed(uuid) => match inner.path_of(uuid) {
                Some(path) => changed(&daemon, path, CHARACTERISTIC, "Value", Value::from(inner.value(uuid))).await,
                None => Ok(()),
            },
            Out::Advertised(at) => {
                let data = inner.packets.borrow().get(at).and_then(|packet| packet.data.clone());
                match data {
                    Some((name, data)) => {
                        let value = objects::service_data(name, &data);
                        changed(&daemon, &inner.places.advertisement(at), ADVERTISEMENT, "ServiceData", value).await
                    }
                    None => Ok(()),
                }
            }
        };
        if let Err(error) = sent {
            log::debug!("BlueZ was not told: {error}");
        }
    }
}

async fn changed(
    daemon: &Daemon,
    path: &str,
    interface: &'static str,
    name: &'static str,
    value: Value,
) -> Result<(), Error> {
    let body = vec![Value::from(interface), Value::dict([(name, value)]), Value::texts::<&str>([])];
    let owner = daemon.there.owner();
    daemon.there.connection().signal(owner, path, PROPERTIES, "PropertiesChanged", body).await
}

/// Phones that come, go and pair; the adapter when somebody switches it off.
async fn watch(inner: Rc<Inner>, daemon: Rc<Daemon>, mut changes: Inbox, adapter: String) {
    while let Some(said) = changes.next().await {
        let Said::Message(message) = said else {
            inner.look_again(&daemon, &adapter).await;
            continue;
        };
        let path = &*message.path;
        let (Some(interface), Some(changed)) = (message.first().and_then(Value::text), message.nth(1)) else {
            continue;
        };
        let phone = address(path);
        match interface {
            ADAPTER if path == adapter && changed.get("Powered").and_then(Value::boolean) == Some(false) => {
                inner.end_switched_off(&adapter);
            }
            DEVICE => {
                let connected = changed.get("Connected").and_then(Value::boolean);
                let came = connected == Some(true);
                match connected {
                    Some(true) => inner.phone_is_here(&phone),
                    Some(false) => inner.phone_is_gone(&phone),
                    None => {}
                }
                let may_tether = changed.get("Paired").is_some() || changed.get("UUIDs").is_some();
                if may_tether && inner.accepted.borrow().contains(&phone) && tether::is_offered(&daemon, path).await {
                    inner.accepted.borrow_mut().retain(|other| *other != phone);
                    inner.tell(Visit::Tether { phone });
                } else if came && tether::is_known(&daemon, path).await {
                    inner.tell(Visit::Back { phone });
                }
            }
            _ => {}
        }
    }
}

/// The adapter may be pulled out, and BlueZ be ended.
async fn watch_removal(inner: Rc<Inner>, daemon: Rc<Daemon>, mut removed: Inbox, adapter: String) {
    let pulled = async {
        while let Some(said) = removed.next().await {
            let Said::Message(message) = said else {
                if daemon.adapters().await.is_ok_and(|there| !there.contains(&adapter)) {
                    break;
                }
                continue;
            };
            let gone = message.nth(1).map(Value::list).unwrap_or_default();
            let is_adapter = gone.iter().any(|interface| interface.text() == Some(ADAPTER));
            if is_adapter && message.first().and_then(Value::text) == Some(&*adapter) {
                break;
            }
        }
        BluetoothError::Absent(format!("{adapter} has gone"))
    };
    let gone = async {
        daemon.there.gone().await;
        BluetoothError::Absent("bluetoothd has gone".to_owned())
    };
    inner.end(smol::future::or(pulled, gone).await);
}
