//! A Bluetooth daemon with an adapter, and phones near it, as the test likes.
//!
//! As strict as the real ones: one offer at a time, values of 512 bytes, packets of 31, nothing written that may not be
//! written, and an offer that ends when the daemon or the adapter goes. A phone that goes away in the middle hears no answer.

use std::{
    cell::{Cell, RefCell},
    collections::{BTreeMap, VecDeque},
    future::poll_fn,
    rc::{Rc, Weak},
    task::{Poll, Waker},
    time::Duration,
};

use async_trait::async_trait;
use board::bluetooth::{
    Advertisement, Allows, Bluetooth, BluetoothError, Characteristic, Offer, Secretive, Standing, Uuid,
    VALUE_BYTES_MAX, Visit, WriteRefused,
};

use crate::{clock::SimClock, power::Alive};

/// Time until an offer is in the air.
pub const OFFER_TAKES: Duration = Duration::from_millis(300);
/// Time until a phone's own connection is up.
pub const TETHER_TAKES: Duration = Duration::from_secs(8);
/// Time until a phone that is not near is given up.
pub const CALL_TAKES: Duration = Duration::from_secs(5);
/// Visits that wait for the agent; more are refused.
const VISITS: usize = 16;
/// An advertisement's packet, of which flags take three bytes.
const PACKET: usize = 31 - 3;

/// Bluetooth, as the test sees it.
#[derive(Clone)]
pub struct SimBluetooth {
    inner: Rc<Inner>,
}

struct Inner {
    clock: SimClock,
    fitted: Cell<bool>,
    adapter: Cell<bool>,
    failures: RefCell<VecDeque<BluetoothError>>,
    live: RefCell<Weak<Live>>,
    offers: Cell<u32>,
    tethers: RefCell<BTreeMap<String, Result<(), BluetoothError>>>,
    /// Phones that were let in and offered their connection, and whether they are near.
    sharers: RefCell<BTreeMap<String, bool>>,
    looked: Cell<u32>,
    asked: Cell<u32>,
    waiting: RefCell<Vec<Waker>>,
}

/// Values that a phone was told of.
pub type Told = Vec<(Uuid, Vec<u8>)>;

/// One offer that stands.
struct Live {
    offer: Offer,
    values: RefCell<BTreeMap<Uuid, Vec<u8>>>,
    data: RefCell<BTreeMap<Uuid, Vec<u8>>>,
    visits: RefCell<VecDeque<Visit>>,
    ended: RefCell<Option<BluetoothError>>,
    waiting: RefCell<Vec<Waker>>,
    phones: RefCell<BTreeMap<String, Told>>,
}

impl SimBluetooth {
    pub(crate) fn new(clock: &SimClock) -> Self {
        SimBluetooth {
            inner: Rc::new(Inner {
                clock: clock.clone(),
                fitted: Cell::new(false),
                adapter: Cell::new(false),
                failures: RefCell::default(),
                live: RefCell::default(),
                offers: Cell::new(0),
                tethers: RefCell::default(),
                sharers: RefCell::default(),
                looked: Cell::new(0),
                asked: Cell::new(0),
                waiting: RefCell::default(),
            }),
        }
    }

    /// From the next life on this kind of machine can do Bluetooth; its adapter is there.
    pub fn fit(&self) {
        self.inner.fitted.set(true);
        self.plug();
    }

    /// An adapter comes.
    pub fn plug(&self) {
        self.inner.adapter.set(true);
        wake(&self.inner.waiting);
    }

    /// The adapter is pulled out.
    pub fn pull(&self) {
        self.inner.adapter.set(false);
        self.end(&BluetoothError::Absent("the adapter has gone".to_owned()));
        wake(&self.inner.waiting);
    }

    /// The daemon is restarted: whatever was offered is gone.
    pub fn restart(&self) {
        self.end(&BluetoothError::Absent("the daemon has gone".to_owned()));
    }

    /// The next offers fail like this, one for each.
    pub fn fail(&self, error: BluetoothError, times: usize) {
        self.inner.failures.borrow_mut().extend(std::iter::repeat_n(error, times));
    }

    /// What becomes of using this phone's own connection; phones not named have none.
    pub fn tethers(&self, phone: &str, result: Result<(), BluetoothError>) {
        self.inner.tethers.borrow_mut().insert(phone.to_owned(), result);
    }

    /// A phone that was let in on some other day and offered its connection, and is near now or not.
    pub fn knows(&self, phone: &str, near: bool) {
        self.inner.sharers.borrow_mut().insert(phone.to_owned(), near);
    }

    /// How often phones were looked for, and how often one was asked for its connection.
    #[must_use]
    pub fn asked(&self) -> (u32, u32) {
        (self.inner.looked.get(), self.inner.asked.get())
    }

    /// How often something was offered.
    #[must_use]
    pub fn offers(&self) -> u32 {
        self.inner.offers.get()
    }

    /// What is found by who scans now, with the data as they are now.
    #[must_use]
    pub fn found(&self) -> Option<Advertisement> {
        let live = self.live()?;
        let mut advertisement = live.offer.advertisement.clone();
        for (name, data) in advertisement.found.iter_mut().filter_map(|found| found.data.as_mut()) {
            if let Some(now) = live.data.borrow().get(name) {
                data.clone_from(now);
            }
        }
        Some(advertisement)
    }

    /// A phone that is near. It is not connected yet.
    #[must_use]
    pub fn phone(&self, name: &str) -> SimPhone {
        SimPhone { bluetooth: self.clone(), name: name.to_owned() }
    }

    pub(crate) fn port(&self, alive: &Alive) -> Option<Rc<dyn Bluetooth>> {
        let port = BluetoothPort { bluetooth: self.clone(), alive: alive.clone() };
        self.inner.fitted.get().then(|| Rc::new(port) as Rc<dyn Bluetooth>)
    }

    /// The agent's life is over, and what it offered with it.
    pub(crate) fn agent_went(&self) {
        self.inner.live.replace(Weak::new());
    }

    fn live(&self) -> Option<Rc<Live>> {
        self.inner.live.borrow().upgrade().filter(|live| live.ended.borrow().is_none())
    }

    fn end(&self, why: &BluetoothError) {
        if let Some(live) = self.live() {
            live.ended.replace(Some(why.clone()));
            // Answers that nobody gives any more are lost with the connection.
            live.phones.borrow_mut().clear();
            live.visits.borrow_mut().clear();
            wake(&live.waiting);
        }
    }
}

/// A phone.
#[derive(Clone)]
pub struct SimPhone {
    bluetooth: SimBluetooth,
    name: String,
}

/// What becomes of something that a phone asked for.
#[derive(Clone)]
pub struct Pending<T>(Rc<RefCell<Option<T>>>);

impl<T: Clone> Pending<T> {
    /// The answer, once it is there. A phone that went away hears none.
    #[must_use]
    pub fn answer(&self) -> Option<T> {
        self.0.borrow().clone()
    }
}

/// Says no when it is dropped without an answer, as the daemon does.
struct Guard<T: Clone + 'static> {
    slot: Rc<RefCell<Option<T>>>,
    otherwise: T,
    live: Weak<Live>,
    phone: String,
}

impl<T: Clone + 'static> Guard<T> {
    fn put(&self, answer: T) {
        let is_here = self.live.upgrade().is_some_and(|live| live.phones.borrow().contains_key(&self.phone));
        if is_here {
            self.slot.borrow_mut().get_or_insert(answer);
        }
    }
}

impl<T: Clone + 'static> Drop for Guard<T> {
    fn drop(&mut self) {
        self.put(self.otherwise.clone());
    }
}

impl SimPhone {
    /// Connects; `false` when nothing is found.
    pub fn connect(&self) -> bool {
        let Some(live) = self.bluetooth.live() else { return false };
        let came = live.phones.borrow_mut().insert(self.name.clone(), Vec::new()).is_none();
        if came {
            live.tell(Visit::Connected { phone: self.name.clone(), here: true });
        }
        true
    }

    /// Goes away, also in the middle of something.
    pub fn disconnect(&self) {
        let Some(live) = self.bluetooth.live() else { return };
        let went = live.phones.borrow_mut().remove(&self.name).is_some();
        if went {
            live.tell(Visit::Connected { phone: self.name.clone(), here: false });
        }
    }

    /// Whether it is connected.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        self.bluetooth.live().is_some_and(|live| live.phones.borrow().contains_key(&self.name))
    }

    /// Reads a value; `None` when it is not connected, or there is no such value to be read.
    #[must_use]
    pub fn read(&self, uuid: Uuid) -> Option<Vec<u8>> {
        let live = self.bluetooth.live().filter(|_| self.is_connected())?;
        live.characteristic(uuid).filter(|one| one.allows.read)?;
        Some(live.values.borrow().get(&uuid).cloned().unwrap_or_default())
    }

    /// Values that it was told of, since it asked last.
    #[must_use]
    pub fn told(&self) -> Told {
        let live = self.bluetooth.live();
        live.and_then(|live| live.phones.borrow_mut().get_mut(&self.name).map(std::mem::take)).unwrap_or_default()
    }

    /// Writes a value and waits for the answer.
    pub fn write(&self, uuid: Uuid, value: &[u8]) -> Pending<Result<(), WriteRefused>> {
        let pending = Pending(Rc::default());
        let Some(live) = self.bluetooth.live().filter(|_| self.is_connected()) else { return pending };
        let refuse = |why| pending.0.replace(Some(Err(why)));
        if live.characteristic(uuid).is_none_or(|one| !one.allows.write) {
            refuse(WriteRefused::Invalid);
        } else if value.len() > VALUE_BYTES_MAX {
            refuse(WriteRefused::TooLong);
        } else {
            let guard = self.guard(&pending, Err(WriteRefused::Invalid), &live);
            let answer = Box::new(move |answer| guard.put(answer));
            let value = Secretive::new(value.to_vec());
            live.tell(Visit::Write { characteristic: uuid, phone: self.name.clone(), value, answer });
        }
        pending
    }

    /// Wants to pair.
    pub fn pair(&self, passkey: Option<u32>) -> Pending<bool> {
        let pending = Pending(Rc::default());
        let Some(live) = self.bluetooth.live().filter(|_| self.is_connected()) else { return pending };
        let guard = self.guard(&pending, false, &live);
        let answer = Box::new(move |answer| guard.put(answer));
        live.tell(Visit::Pairing { phone: self.name.clone(), passkey, answer });
        pending
    }

    /// Is back, and connects by itself.
    pub fn come_back(&self) {
        self.bluetooth.knows(&self.name, true);
        if let Some(live) = self.bluetooth.live() {
            live.tell(Visit::Back { phone: self.name.clone() });
        }
    }

    /// Has paired, and offers its own connection.
    pub fn offer_connection(&self) {
        self.bluetooth.knows(&self.name, true);
        if let Some(live) = self.bluetooth.live() {
            live.tell(Visit::Tether { phone: self.name.clone() });
        }
    }

    fn guard<T: Clone + 'static>(&self, pending: &Pending<T>, otherwise: T, live: &Rc<Live>) -> Guard<T> {
        Guard { slot: Rc::clone(&pending.0), otherwise, live: Rc::downgrade(live), phone: self.name.clone() }
    }
}

impl Live {
    fn characteristic(&self, uuid: Uuid) -> Option<&Characteristic> {
        self.offer.services.iter().flat_map(|service| &service.characteristics).find(|one| one.uuid == uuid)
    }

    fn tell(&self, visit: Visit) {
        let refused = {
            let mut visits = self.visits.borrow_mut();
            if visits.len() < VISITS {
                visits.push_back(visit);
                None
            } else {
                Some(visit)
            }
        };
        // Outside of the borrow: its answer may be no.
        drop(refused);
        wake(&self.waiting);
    }
}

fn wake(waiting: &RefCell<Vec<Waker>>) {
    waiting.take().into_iter().for_each(Waker::wake);
}

struct BluetoothPort {
    bluetooth: SimBluetooth,
    alive: Alive,
}

struct StandingPort {
    live: Rc<Live>,
    alive: Alive,
}

/// What no radio could offer.
fn check(offer: &Offer) {
    let mut seen = Vec::new();
    for one in offer.services.iter().flat_map(|service| &service.characteristics) {
        assert!(!seen.contains(&one.uuid), "{} is there twice", one.uuid);
        assert!(one.allows != Allows::default(), "nothing can be done with {}", one.uuid);
        seen.push(one.uuid);
    }
    for found in &offer.advertisement.found {
        assert!(offer.services.iter().any(|service| service.uuid == found.service), "{} is not there", found.service);
        let data = found.data.as_ref().map_or(0, |(_, data)| 4 + data.len());
        assert!(18 + data <= PACKET, "the advertisement of {} is too long", found.service);
    }
}

#[async_trait(?Send)]
impl Bluetooth for BluetoothPort {
    fn present(&self) -> bool {
        self.bluetooth.inner.adapter.get()
    }

    async fn changed(&self) {
        let before = self.present();
        poll_fn(|context| {
            if self.present() != before {
                return Poll::Ready(());
            }
            self.bluetooth.inner.waiting.borrow_mut().push(context.waker().clone());
            Poll::Pending
        })
        .await;
        self.alive.or_for_ever().await;
    }

    async fn offer(&self, offer: &Offer) -> Result<Rc<dyn Standing>, BluetoothError> {
        self.alive.or_for_ever().await;
        check(offer);
        let inner = &self.bluetooth.inner;
        assert!(self.bluetooth.live().is_none(), "one offer stands at a time");
        inner.clock.sleep(OFFER_TAKES).await;
        self.alive.or_for_ever().await;
        let failure = inner.failures.borrow_mut().pop_front();
        if let Some(error) = failure {
            return Err(error);
        }
        if !self.present() {
            return Err(BluetoothError::Absent("no adapter".to_owned()));
        }
        inner.offers.set(inner.offers.get() + 1);
        let live = Rc::new(Live {
            offer: offer.clone(),
            values: RefCell::default(),
            data: RefCell::default(),
            visits: RefCell::default(),
            ended: RefCell::default(),
            waiting: RefCell::default(),
            phones: RefCell::default(),
        });
        inner.live.replace(Rc::downgrade(&live));
        Ok(Rc::new(StandingPort { live, alive: self.alive.clone() }))
    }

    async fn sharers(&self) -> Vec<String> {
        self.alive.or_for_ever().await;
        let inner = &self.bluetooth.inner;
        inner.looked.set(inner.looked.get() + 1);
        let known = match self.present() {
            true => inner.sharers.borrow().clone(),
            false => BTreeMap::new(),
        };
        let absent = known.values().filter(|near| !**near).count();
        inner.clock.sleep(CALL_TAKES * u32::try_from(absent).unwrap_or(u32::MAX)).await;
        self.alive.or_for_ever().await;
        known.into_iter().filter_map(|(phone, near)| near.then_some(phone)).collect()
    }

    async fn tether(&self, phone: &str) -> Result<(), BluetoothError> {
        self.alive.or_for_ever().await;
        self.bluetooth.inner.asked.set(self.bluetooth.inner.asked.get() + 1);
        self.bluetooth.inner.clock.sleep(TETHER_TAKES).await;
        self.alive.or_for_ever().await;
        let known = self.bluetooth.inner.tethers.borrow().get(phone).cloned();
        known.unwrap_or_else(|| Err(BluetoothError::Refused(format!("{phone} does not share its connection"))))
    }
}

#[async_trait(?Send)]
impl Standing for StandingPort {
    async fn next(&self) -> Result<Visit, BluetoothError> {
        let next = poll_fn(|context| {
            if let Some(error) = &*self.live.ended.borrow() {
                return Poll::Ready(Err(error.clone()));
            }
            if let Some(visit) = self.live.visits.borrow_mut().pop_front() {
                return Poll::Ready(Ok(visit));
            }
            self.live.waiting.borrow_mut().push(context.waker().clone());
            Poll::Pending
        });
        self.alive.or_for_ever().await;
        next.await
    }

    fn set(&self, characteristic: Uuid, value: &[u8]) {
        let known = self.live.characteristic(characteristic);
        let allows = known.unwrap_or_else(|| panic!("{characteristic} was not offered")).allows;
        assert!(allows.read, "{characteristic} cannot be read");
        let value = value[..value.len().min(VALUE_BYTES_MAX)].to_vec();
        if allows.notify {
            for told in self.live.phones.borrow_mut().values_mut() {
                told.push((characteristic, value.clone()));
            }
        }
        self.live.values.borrow_mut().insert(characteristic, value);
    }

    fn set_service_data(&self, name: Uuid, data: &[u8]) {
        let found = &self.live.offer.advertisement.found;
        let known = found.iter().filter_map(|found| found.data.as_ref()).find(|(of, _)| *of == name);
        let (_, first) = known.unwrap_or_else(|| panic!("{name} was not offered"));
        assert!(data.len() <= first.len(), "data of {name} became longer than its packet");
        self.live.data.borrow_mut().insert(name, data.to_vec());
    }

    fn disconnect_all(&self) {
        let phones: Vec<String> = self.live.phones.take().into_keys().collect();
        for phone in phones {
            self.live.tell(Visit::Connected { phone, here: false });
        }
    }
}

#[cfg(test)]
mod tests {
    use board::bluetooth::{Found, Service};

    use super::*;
    use crate::SimBoard;

    const VALUE: Uuid = Uuid(7);

    fn offer() -> Offer {
        let allows = Allows { read: true, write: true, notify: true, ..Allows::default() };
        Offer {
            advertisement: Advertisement {
                name: "board".into(),
                found: vec![Found { service: Uuid(1), data: Some((Uuid::short(2), vec![0; 6])) }],
            },
            services: vec![Service { uuid: Uuid(1), characteristics: vec![Characteristic { uuid: VALUE, allows }] }],
        }
    }

    fn write(visit: Visit, answer_with: Result<(), WriteRefused>) -> Vec<u8> {
        let Visit::Write { value, answer, .. } = visit else { panic!("no write") };
        answer(answer_with);
        value.expose().to_vec()
    }

    #[test]
    fn a_phone_reads_writes_and_goes_in_the_middle() {
        let board = SimBoard::new(1);
        board.bluetooth.fit();
        let ports = board.switch_on();
        let phone = board.bluetooth.phone("phone");
        assert!(!phone.connect(), "nothing is offered yet");
        let bluetooth = ports.bluetooth.unwrap();
        let life = crate::Driver::new(&board);
        let standing = life.block_on(async move { bluetooth.offer(&offer()).await.map_err(|error| error.to_string()) });
        let standing = standing.unwrap();
        assert!(phone.connect());
        standing.set(VALUE, b"hello");
        assert_eq!(phone.read(VALUE).as_deref(), Some(&b"hello"[..]));
        assert_eq!(phone.told(), [(VALUE, b"hello".to_vec())]);
        standing.set_service_data(Uuid::short(2), &[1; 6]);
        assert_eq!(board.bluetooth.found().unwrap().found[0].data.as_ref().unwrap().1, [1; 6]);

        let next = || smol::future::block_on(standing.next());
        assert!(matches!(next(), Ok(Visit::Connected { here: true, .. })));
        let first = phone.write(VALUE, b"value");
        assert_eq!(first.answer(), None);
        assert_eq!(write(next().unwrap_or_else(|_| panic!("it stands")), Ok(())), b"value");
        assert_eq!(first.answer(), Some(Ok(())));
        assert_eq!(phone.write(VALUE, &[0; 513]).answer(), Some(Err(WriteRefused::TooLong)));
        assert_eq!(phone.write(Uuid(8), b"").answer(), Some(Err(WriteRefused::Invalid)));
        let forgotten = phone.write(VALUE, b"");
        drop(next());
        assert_eq!(forgotten.answer(), Some(Err(WriteRefused::Invalid)), "not answered is a no");
        let lost = phone.write(VALUE, b"");
        phone.disconnect();
        write(next().unwrap_or_else(|_| panic!("it stands")), Ok(()));
        assert_eq!(lost.answer(), None, "it is not there to hear it");
        assert!(matches!(next(), Ok(Visit::Connected { here: false, .. })));

        phone.connect();
        board.bluetooth.restart();
        assert!(next().is_err());
        assert!(!phone.is_connected() && board.bluetooth.found().is_none());
    }
}
