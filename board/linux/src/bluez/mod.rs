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
mod presence;
mod tether;

use std::{
    cell::{Cell, RefCell},
    convert::Infallible,
    future::poll_fn,
    rc::Rc,
    task::{Poll, Waker},
    time::Duration,
};

use async_trait::async_trait;
use board::{
    Clock,
    bluetooth::{Bluetooth, BluetoothError, Offer, Standing},
};
use smol::{LocalExecutor, Task, future::FutureExt as _};

use self::{adapter::Daemon, offering::Offering};
use crate::{
    bus::Bus,
    dbus::{Error, Said},
};

/// BlueZ.
const NAME: &str = "org.bluez";
/// What BlueZ lists its objects by, and we ours.
const OBJECT_MANAGER: &str = "org.freedesktop.DBus.ObjectManager";
const PROPERTIES: &str = "org.freedesktop.DBus.Properties";
/// Between two tries to speak to a bluetoothd that is there.
const PAUSE_MIN: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(60);

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
    /// The phone whose own connection was asked for last.
    tethered: RefCell<Option<String>>,
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
                tethered: RefCell::default(),
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
            let mut pause = PAUSE_MIN;
            loop {
                let Err(error) = session(&shared, &daemon).await;
                log::info!("bluetoothd does not answer as it should: {error}");
                shared.learn(None, Vec::new());
                // It has its name a moment before it has its objects, and on a busy board answers late.
                shared.clock.sleep_until(shared.clock.now() + pause).await;
                pause = (pause * 2).min(PAUSE_MAX);
            }
        };
        there.gone().or(session).await;
        shared.learn(None, Vec::new());
    }
}

async fn session(shared: &Rc<Shared>, daemon: &Rc<Daemon>) -> Result<Infallible, Error> {
    // Watched before asked, so that nothing is missed in between.
    let mut added = daemon.signals("/", OBJECT_MANAGER, "InterfacesAdded").await?;
    let mut removed = daemon.signals("/", OBJECT_MANAGER, "InterfacesRemoved").await?;
    loop {
        shared.learn(Some(Rc::clone(daemon)), daemon.adapters().await?);
        loop {
            match added.next().or(removed.next()).await {
                Some(Said::Message(signal)) if !adapter::concerns_adapters(&signal) => {}
                Some(Said::Message(_) | Said::Lost) => break,
                None => return Err(Error::Closed),
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
        let daemon = self.shared.daemon.borrow().clone();
        let daemon = daemon.ok_or_else(|| BluetoothError::Absent("bluetoothd is not running".to_owned()))?;
        let adapters = self.shared.adapters.borrow().clone();
        let mut failed = BluetoothError::Absent("no adapter that can advertise".to_owned());
        // The first that works; what the last one said where none does.
        for adapter in adapters {
            let leaving = self.shared.leaving.take();
            if let Some(leaving) = leaving {
                leaving.await;
            }
            let number = self.shared.offers.get() + 1;
            self.shared.offers.set(number);
            match Offering::make(&self.shared, Rc::clone(&daemon), adapter, number, offer).await {
                Ok(offering) => return Ok(Rc::new(offering)),
                Err(error) => failed = error,
            }
        }
        Err(failed)
    }

    async fn sharers(&self) -> Vec<String> {
        self.start();
        let daemon = self.shared.daemon.borrow().clone();
        let Some(daemon) = daemon else { return Vec::new() };
        tether::sharers(&daemon, &*self.shared.clock).await.unwrap_or_else(|error| {
            log::debug!("asking for phones that share their connection: {error}");
            Vec::new()
        })
    }

    async fn tether(&self, phone: &str) -> Result<(), BluetoothError> {
        *self.shared.tethered.borrow_mut() = Some(phone.to_owned());
        tether::connect(&self.shared.bus, &*self.shared.clock, phone).await
    }
}
