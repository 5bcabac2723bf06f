//! Bluetooth LE by BlueZ over the message bus.
//!
//! Owns which adapter is there, and what is offered on it. Objects are answered by hand and not by an object server:
//! there are thirty of them, all of three kinds, and they live as long as one offer. While an offer stands and nobody is
//! near, nothing wakes up: BlueZ advertises by itself, and values are told to it only when they change.
//! Never edits a file of BlueZ's; what was switched on is switched off again.

mod adapter;
mod answers;
mod objects;
mod offering;
mod packets;
mod tether;

use std::{
    cell::{Cell, RefCell},
    future::poll_fn,
    rc::Rc,
    task::{Poll, Waker},
};

use async_trait::async_trait;
use board::{
    Clock,
    bluetooth::{Bluetooth, BluetoothError, Offer, Standing},
};
use smol::{LocalExecutor, Task, future::FutureExt as _, stream::StreamExt as _};

use self::{adapter::Daemon, offering::Offering};
use crate::bus::Bus;

/// BlueZ.
const NAME: &str = "org.bluez";
/// What BlueZ lists its objects by, and we ours.
const OBJECT_MANAGER: &str = "org.freedesktop.DBus.ObjectManager";
const PROPERTIES: &str = "org.freedesktop.DBus.Properties";

/// The port [`Bluetooth`].
pub struct Bluez {
    shared: Rc<Shared>,
}

struct Shared {
    executor: Rc<LocalExecutor<'static>>,
    clock: Rc<dyn Clock>,
    bus: Rc<Bus>,
    daemon: RefCell<Option<Rc<Daemon>>>,
    /// Adapters that can do all that is needed, in the order of their names.
    adapters: RefCell<Vec<String>>,
    waiting: RefCell<Vec<Waker>>,
    watching: RefCell<Option<Task<()>>>,
    /// What is still being taken back of the offer before.
    leaving: RefCell<Option<Task<()>>>,
    offers: Cell<u64>,
}

impl Bluez {
    /// Costs nothing until it is used.
    #[must_use]
    pub fn new(executor: &Rc<LocalExecutor<'static>>, clock: Rc<dyn Clock>, bus: Rc<Bus>) -> Bluez {
        Bluez {
            shared: Rc::new(Shared {
                executor: Rc::clone(executor),
                clock,
                bus,
                daemon: RefCell::default(),
                adapters: RefCell::default(),
                waiting: RefCell::default(),
                watching: RefCell::default(),
                leaving: RefCell::default(),
                offers: Cell::default(),
            }),
        }
    }

    /// Begins to look, once.
    fn start(&self) {
        let mut watching = self.shared.watching.borrow_mut();
        if watching.is_none() {
            *watching = Some(self.shared.executor.spawn(sessions(Rc::clone(&self.shared))));
        }
    }
}

impl Shared {
    fn learn(&self, daemon: Option<Rc<Daemon>>, adapters: Vec<String>) {
        *self.daemon.borrow_mut() = daemon;
        if *self.adapters.borrow() != adapters {
            *self.adapters.borrow_mut() = adapters;
            self.waiting.take().into_iter().for_each(Waker::wake);
        }
    }
}

/// One session for each process of BlueZ that comes and goes.
async fn sessions(shared: Rc<Shared>) {
    loop {
        let there = shared.bus.appeared(NAME).await;
        let daemon = Rc::new(Daemon::new(there.clone()));
        let session = async {
            if let Err(error) = session(&shared, &daemon).await {
                log::warn!("Bluetooth cannot be used: {error}");
                shared.learn(None, Vec::new());
                // Nothing more comes of this process.
                std::future::pending::<()>().await;
            }
        };
        session.or(there.gone()).await;
        shared.learn(None, Vec::new());
    }
}

async fn session(shared: &Rc<Shared>, daemon: &Rc<Daemon>) -> zbus::Result<()> {
    // Watched before asked, so that nothing is missed in between.
    let mut added = daemon.signals("/", OBJECT_MANAGER, "InterfacesAdded").await?;
    let mut removed = daemon.signals("/", OBJECT_MANAGER, "InterfacesRemoved").await?;
    loop {
        shared.learn(Some(Rc::clone(daemon)), daemon.adapters().await?);
        loop {
            let Some(signal) = added.next().or(removed.next()).await else { return Ok(()) };
            if adapter::concerns_adapters(&signal?) {
                break;
            }
        }
    }
}

#[async_trait(?Send)]
impl Bluetooth for Bluez {
    fn present(&self) -> bool {
        self.start();
        !self.shared.adapters.borrow().is_empty()
    }

    async fn changed(&self) {
        let before = self.present();
        poll_fn(|context| {
            if self.present() != before {
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

    async fn offer(&self, offer: &Offer) -> Result<Rc<dyn Standing>, BluetoothError> {
        self.start();
        let leaving = self.shared.leaving.take();
        if let Some(leaving) = leaving {
            leaving.await;
        }
        let daemon = self.shared.daemon.borrow().clone();
        let daemon = daemon.ok_or_else(|| BluetoothError::Absent("bluetoothd is not running".to_owned()))?;
        let adapter = self.shared.adapters.borrow().first().cloned();
        let adapter = adapter.ok_or_else(|| BluetoothError::Absent("no adapter that can advertise".to_owned()))?;
        let number = self.shared.offers.get() + 1;
        self.shared.offers.set(number);
        Ok(Rc::new(Offering::make(&self.shared, daemon, adapter, number, offer).await?))
    }

    async fn tether(&self, phone: &str) -> Result<(), BluetoothError> {
        tether::connect(&self.shared.bus, &*self.shared.clock, phone).await
    }
}
