//! The door that people see: the hotspot, and the page on it. Opens and closes both together.
//!
//! Owns the order: nobody listens where there is no hotspot, and a hotspot without its page is closed again.

use std::rc::Rc;

use board::{
    doorway::{Doorway, Open, Request, SocketAddrV4},
    network::{CaptiveNames, Hotspot, Networks, Radio, Seen, Subnet},
};
use smol::LocalExecutor;

use api::device_config::NetworkSettings;

use super::{
    hotspot,
    portal::{Answer, CAPTIVE_API_PATH, Permits, Portal, Site},
    welcome::Welcome,
};
use crate::kit::background::{Background, Results};

/// Where browsers look.
const PORT: u16 = 80;

/// How an opening or a closing ended.
pub(super) enum Done {
    Opened(Result<Rc<dyn Open>, Rc<str>>),
    Closed(Result<(), Rc<str>>),
}

/// The hotspot and its page.
pub(super) struct Front {
    networks: Rc<dyn Networks>,
    doorway: Rc<dyn Doorway>,
    work: Background<Done>,
    /// What was opened last.
    hotspot: Option<Hotspot>,
    listener: Option<Rc<dyn Open>>,
    portal: Option<Portal>,
}

impl Front {
    pub(super) fn new(
        networks: Rc<dyn Networks>,
        doorway: Rc<dyn Doorway>,
        executor: &Rc<LocalExecutor<'static>>,
    ) -> (Front, Results<Done>) {
        let (work, done) = Background::new(executor);
        (Front { networks, doorway, work, hotspot: None, listener: None, portal: None }, done)
    }

    pub(super) fn networks(&self) -> &Rc<dyn Networks> {
        &self.networks
    }

    /// Where visitors come in, while they can.
    pub(super) fn listener(&self) -> Option<Rc<dyn Open>> {
        self.listener.clone()
    }

    /// The hotspot that was opened last.
    pub(super) fn hotspot(&self) -> Option<&Hotspot> {
        self.hotspot.as_ref()
    }

    pub(super) fn open(&mut self, hotspot: Hotspot) {
        (self.listener, self.portal) = (None, None);
        self.hotspot = Some(hotspot.clone());
        let (networks, doorway) = (Rc::clone(&self.networks), Rc::clone(&self.doorway));
        self.work.start(async move {
            if let Err(error) = networks.open_hotspot(&hotspot).await {
                return Done::Opened(Err(format!("the hotspot cannot be opened: {error}").into()));
            }
            let opened = doorway.open(SocketAddrV4::new(hotspot.address.0, PORT)).await;
            Done::Opened(opened.map_err(|error| {
                format!("the page cannot be shown: {error}; does another program use this port?").into()
            }))
        });
    }

    /// `key` is random: what the page's forms are known by.
    pub(super) fn opened(&mut self, listener: Rc<dyn Open>, key: [u8; 32]) {
        self.portal = self.hotspot.as_ref().map(|hotspot| {
            let site = Site {
                address: listener.address(),
                prefix: hotspot.address.1,
                hotspot: hotspot.ssid.to_string(),
                captive_api: hotspot.captive_api.is_some(),
            };
            Portal::new(site, key)
        });
        self.listener = Some(listener);
    }

    /// What a visitor is answered; `None` when the door has closed meanwhile.
    pub(super) fn answer(&mut self, request: &Request, welcome: &Welcome, permits: Permits<'_>) -> Option<Answer> {
        Some(self.portal.as_mut()?.answer(request, welcome, permits))
    }

    /// Nobody comes in any more.
    pub(super) fn shut(&mut self) {
        (self.listener, self.portal) = (None, None);
    }

    pub(super) fn close(&mut self) {
        self.shut();
        let networks = Rc::clone(&self.networks);
        self.work.start(async move {
            let closed = networks.close_hotspot().await;
            Done::Closed(closed.map_err(|error| format!("the hotspot cannot be closed: {error}").into()))
        });
    }

    /// The agent ends.
    pub(super) async fn leave(&mut self) {
        (self.listener, self.portal) = (None, None);
        self.work.cancel();
        if let Err(error) = self.networks.close_hotspot().await {
            log::warn!("the hotspot cannot be closed: {error}");
        }
    }

    /// Whether what is open is what is wanted now. Channel and address stay as they are: a person may be using them.
    pub(super) fn is_stale(&self, wanted: &Hotspot) -> bool {
        let Some(open) = &self.hotspot else { return false };
        let captive_api = wanted.captive_api.as_ref().and(open.captive_api.as_ref().or(wanted.captive_api.as_ref()));
        let like = Hotspot {
            channel: open.channel,
            address: open.address,
            captive_api: captive_api.cloned(),
            ..wanted.clone()
        };
        *open != like
    }
}

/// The hotspot of this device, as things are.
pub(super) fn wanted(
    settings: &NetworkSettings,
    hostname: &str,
    serial: &str,
    radio: &Radio,
    seen: &[Seen],
    taken: &[Subnet],
) -> Option<Hotspot> {
    let address = hotspot::address(taken);
    let captive_api = settings.advertise_captive_api.then(|| format!("https://{}{CAPTIVE_API_PATH}", address.0));
    Some(Hotspot {
        ssid: hotspot::ssid(&settings.hotspot_prefix, hostname)?,
        password: hotspot::password(settings, serial),
        interface: radio.interface.clone(),
        channel: hotspot::channel(seen),
        address,
        names: if settings.disable_captive_portal_redirect { CaptiveNames::Setup } else { CaptiveNames::All },
        captive_api,
    })
}
