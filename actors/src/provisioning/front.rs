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
    portal::{Answer, Permits, Portal, Site},
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
                captive_api: hotspot.captive_api.clone(),
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

    /// Whether what is open is what is wanted now.
    pub(super) fn is_stale(&self, wanted: &Hotspot) -> bool {
        self.hotspot.as_ref().is_some_and(|open| is_stale(open, wanted))
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
    let all = !settings.disable_captive_portal_redirect;
    Some(Hotspot {
        ssid: hotspot::ssid(&settings.hotspot_prefix, hostname)?,
        password: hotspot::password(settings, serial),
        interface: radio.interface.clone(),
        channel: hotspot::channel(seen),
        address: hotspot::address(taken),
        names: if all { CaptiveNames::All } else { CaptiveNames::Setup },
        // Where other names do not lead here, that one does not either.
        captive_api: settings.advertise_captive_api.as_deref().filter(|_| all).map(str::to_owned),
    })
}

/// Whether what is open differs from what is wanted now. Channel and address stay as they are: a person may be using them.
fn is_stale(open: &Hotspot, wanted: &Hotspot) -> bool {
    *open != Hotspot { channel: open.channel, address: open.address, ..wanted.clone() }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use api::device_config::{self, Accepted, CommandLine, Source, Sources};

    use super::*;

    fn settings(more: &str) -> Rc<NetworkSettings> {
        let url = "https://portal.acme.example/api";
        let text = format!(r#"{{"network_configuration": {{"advertise_captive_api": "{url}"{more}}}}}"#);
        let sources = Sources {
            defaults: Source::Given(text.as_bytes()),
            cloud: Source::Absent,
            command_line: CommandLine::default(),
        };
        device_config::read(&sources, &Accepted::default()).settings.network
    }

    #[test]
    fn a_hotspot_in_use_is_replaced_for_other_settings_and_for_nothing_else() {
        let radio = Radio { interface: "wlan0".into(), access_point: true, both: true, blocked: None };
        let here = |settings: &NetworkSettings, taken: &[Subnet]| {
            wanted(settings, "pump-7", "", &radio, &[], taken).expect("it has a name")
        };
        let open = here(&settings(""), &[]);
        assert_eq!(open.captive_api.as_deref(), Some("https://portal.acme.example/api"));
        // A cable is plugged in whose network has the same addresses.
        let beside = here(&settings(""), &[(Ipv4Addr::new(10, 42, 0, 9), 24)]);
        assert_ne!(open.address, beside.address);
        assert!(!is_stale(&open, &beside), "nobody who uses it is turned out for that");
        let renamed = here(&settings(r#", "hotspot_prefix": "acme""#), &[]);
        assert!(is_stale(&open, &renamed));
        let quiet = here(&settings(r#", "disable_captive_portal_redirect": true"#), &[]);
        assert_eq!(quiet.captive_api, None, "a name that does not lead here is not told");
    }
}
