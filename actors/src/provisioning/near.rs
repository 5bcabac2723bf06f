//! The door without a picture: Bluetooth. Opens it with fresh keys, passes on what phones write, keeps what they read.

use std::{pin::Pin, rc::Rc, time::Duration};

use api::{Secret, device_config::NetworkSettings};
use board::{
    Mono,
    bluetooth::{Bluetooth, BluetoothError, Secretive, Standing, Uuid, WriteRefused},
};
use smol::LocalExecutor;

use super::{
    ble::session::{Keys, Session, Settings, Visits},
    hotspot,
    visit::Door,
    welcome::Welcome,
};
use crate::kit::background::{Background, Results};

/// Makes the keys of one opening on a thread that may take seconds; `None` when there is no chance to be had.
pub type MakeKeys = Rc<dyn Fn(Secret) -> Pin<Box<dyn Future<Output = Option<Keys>>>>>;

/// How an opening ended.
pub(super) type Done = Result<Box<(Session, Rc<dyn Standing>)>, Rc<str>>;
/// Phones were looked for; whether one was near and was asked for its connection.
pub(super) type Asked = bool;

/// Bluetooth.
pub(super) struct Near {
    bluetooth: Rc<dyn Bluetooth>,
    make_keys: MakeKeys,
    work: Background<Done>,
    tether: Background<Asked>,
    /// What was offered last.
    settings: Option<Settings>,
    session: Option<Session>,
    standing: Option<Rc<dyn Standing>>,
    shown: Option<Welcome>,
    /// Somebody opened the doors at the device, which are not open yet.
    came: Option<Mono>,
}

/// Who opened the doors at the device is there still when they are open: a key may take a minute.
const COMING_MAX: Duration = Duration::from_secs(120);

impl Near {
    pub(super) fn new(
        bluetooth: Rc<dyn Bluetooth>,
        make_keys: MakeKeys,
        executor: &Rc<LocalExecutor<'static>>,
    ) -> (Near, Results<Done>, Results<Asked>) {
        let (work, done) = Background::new(executor);
        let (tether, asked) = Background::new(executor);
        let near = Near {
            bluetooth,
            make_keys,
            work,
            tether,
            settings: None,
            session: None,
            standing: None,
            shown: None,
            came: None,
        };
        (near, done, asked)
    }

    pub(super) fn bluetooth(&self) -> &Rc<dyn Bluetooth> {
        &self.bluetooth
    }

    /// What phones do, while it is offered.
    pub(super) fn standing(&self) -> Option<Rc<dyn Standing>> {
        self.standing.clone()
    }

    pub(super) fn open(&mut self, settings: Settings, welcome: Welcome) {
        self.shut();
        self.settings = Some(settings.clone());
        let (bluetooth, make_keys) = (Rc::clone(&self.bluetooth), Rc::clone(&self.make_keys));
        self.work.start(async move {
            let keys = make_keys(settings.password.clone()).await.ok_or("no keys could be made for Bluetooth")?;
            let session = Session::new(&settings, keys, &welcome);
            let standing = bluetooth.offer(&session.offer()).await;
            let standing = standing.map_err(|error| Rc::from(format!("Bluetooth cannot be offered: {error}")))?;
            Ok(Box::new((session, standing)))
        });
    }

    pub(super) fn opened(&mut self, now: Mono, mut session: Session, standing: Rc<dyn Standing>) {
        if self.came.take().is_some_and(|at| now < at + COMING_MAX) {
            session.present(now);
        }
        (self.session, self.standing) = (Some(session), Some(standing));
    }

    /// Nothing is offered any more.
    pub(super) fn shut(&mut self) {
        self.work.cancel();
        (self.session, self.standing, self.shown) = (None, None, None);
    }

    /// Whether what is offered is what is wanted now.
    pub(super) fn is_stale(&self, wanted: &Settings) -> bool {
        self.settings.as_ref().is_some_and(|settings| settings != wanted)
    }

    /// What a write means.
    pub(super) fn write(
        &mut self,
        now: Mono,
        phone: &str,
        characteristic: Uuid,
        value: &Secretive,
    ) -> Result<Visits, WriteRefused> {
        let session = self.session.as_mut().ok_or(WriteRefused::Busy)?;
        session.write(now, phone, characteristic, value.expose())
    }

    /// What the last write meant is not permitted.
    pub(super) fn refused(&mut self, door: Door) {
        if let Some(session) = &mut self.session {
            session.refused(door);
        }
    }

    pub(super) fn pairing(&mut self, now: Mono) -> bool {
        self.session.as_mut().is_some_and(|session| session.pairing(now))
    }

    pub(super) fn left(&mut self, phone: &str) {
        if let Some(session) = &mut self.session {
            session.left(phone);
        }
    }

    /// A person is at the device.
    pub(super) fn present(&mut self, now: Mono) {
        match &mut self.session {
            Some(session) => session.present(now),
            None => self.came = Some(now),
        }
    }

    /// Uses the own connection of a phone that was let in; the network actor sees the link.
    pub(super) fn tether(&mut self, phone: String) {
        let bluetooth = Rc::clone(&self.bluetooth);
        self.tether.start(async move {
            if let Err(error) = bluetooth.tether(&phone).await {
                log::warn!("the phone's own connection cannot be used: {error}");
            }
            true
        });
    }

    /// Asks the phones that were let in before, one after the other, until one shares its connection.
    pub(super) fn ask(&mut self) {
        let bluetooth = Rc::clone(&self.bluetooth);
        self.tether.start(async move {
            let near = bluetooth.sharers().await;
            for phone in &near {
                match bluetooth.tether(phone).await {
                    Ok(()) => {
                        log::info!("{phone} shares its connection again");
                        break;
                    }
                    Err(error) => log::debug!("{phone} was asked for its connection: {error}"),
                }
            }
            !near.is_empty()
        });
    }

    pub(super) fn deadline(&self) -> Option<Mono> {
        self.session.as_ref().and_then(Session::deadline)
    }

    pub(super) fn tick(&mut self, now: Mono) {
        if let Some(session) = &mut self.session {
            session.tick(now);
        }
    }

    /// Gives phones what is new.
    pub(super) fn show(&mut self, now: Mono, welcome: impl FnOnce() -> Welcome) {
        let (Some(session), Some(standing)) = (&mut self.session, &self.standing) else { return };
        let welcome = welcome();
        if self.shown.as_ref() != Some(&welcome) {
            session.welcome(now, &welcome);
            self.shown = Some(welcome);
        }
        let changes = session.changes();
        for (characteristic, value) in changes.values {
            standing.set(characteristic, &value);
        }
        if let Some((name, data)) = changes.service_data {
            standing.set_service_data(name, &data);
        }
    }
}

/// What is offered by this device, as things are. `page` is where a person goes on after Improv.
pub(super) fn wanted(settings: &NetworkSettings, hostname: &str, serial: &str) -> Option<Settings> {
    Some(Settings {
        name: hotspot::ssid(&settings.hotspot_prefix, hostname)?.to_string(),
        password: hotspot::password(settings, serial),
        trust_all: settings.bluetooth_trust_all,
        improv: settings.improv,
        improv_needs_presence: settings.improv_needs_presence,
        url: "".into(),
    })
}

/// Why an offer has ended.
pub(super) fn ended(error: &BluetoothError) -> Rc<str> {
    format!("Bluetooth has ended: {error}").into()
}
