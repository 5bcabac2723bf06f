//! What the machine tells others.

use std::rc::Rc;

use board::network::Manager;

use super::Machine;
use crate::network::{Air, Connectivity, Joining, Report, online::counts};

/// Refused profiles that are named.
const REFUSED_MAX: usize = 8;

impl Machine {
    /// How the device is connected.
    #[must_use]
    pub fn connectivity(&self) -> Connectivity {
        self.online.word()
    }

    /// The last attempt that was asked for.
    #[must_use]
    pub fn joining(&self) -> &Joining {
        &self.joining
    }

    /// What a person can choose from.
    #[must_use]
    pub fn air(&self) -> Air {
        let radio = if self.is_disabled() { None } else { self.radio().cloned() };
        Air {
            seen: Rc::clone(&self.seen),
            radio,
            trouble: self.obstacle(),
            subnets: self.links.subnets.as_slice().into(),
        }
    }

    /// Rises with each reason for others to see for themselves whether something can be reached now.
    #[must_use]
    pub fn stir(&self) -> u64 {
        self.stir
    }

    /// What people want to know.
    #[must_use]
    pub fn report(&self) -> Report {
        let unsaved = self.untuned.as_ref().map(|why| format!("the radio could not be set: {why}"));
        let unrebooted = self.unrebooted.as_ref().map(|why| (**why).to_owned());
        let refused = self.refused.iter().take(REFUSED_MAX).cloned();
        // A device that needs no network manager is well without one.
        let needed = self.wants.as_ref().is_some_and(|wants| !wants.networks.is_empty());
        let trouble = self.obstacle().filter(|_| needed || self.links.manager != Manager::Absent);
        let trouble = trouble.map(|why| (*why).to_owned());
        Report {
            connectivity: self.connectivity(),
            links: self.links.links.iter().filter(|link| counts(link)).cloned().collect(),
            trouble: trouble
                .into_iter()
                .chain(self.complaints_of_changes())
                .chain(self.complaints_of_cables())
                .chain(refused)
                .chain(unsaved)
                .chain(unrebooted)
                .collect(),
            reboots: self.record.reboots,
        }
    }

    fn complaints_of_cables(&self) -> impl Iterator<Item = String> {
        let online = matches!(self.connectivity(), Connectivity::Online { .. } | Connectivity::Unknown);
        let doubted = if online { Vec::new() } else { self.doubted() };
        doubted.into_iter().map(|key| {
            let name = key.split_once(':').map_or(&*key, |(_, name)| name);
            format!("the cable of network {name:?} leads nowhere: are its address and gateway right?")
        })
    }

    /// Why nothing can be done about the network, in words.
    pub(super) fn obstacle(&self) -> Option<Rc<str>> {
        if self.wants.is_none() || self.is_disabled() {
            return None;
        }
        match &self.links.manager {
            Manager::Ready => self.missing_radio(),
            Manager::Unusable(why) => Some(why.as_str().into()),
            Manager::Absent if !self.is_missing => None,
            Manager::Absent => Some("no network manager runs on this device: install and start it".into()),
        }
    }

    pub(super) fn missing_radio(&self) -> Option<Rc<str>> {
        let network = &self.wants.as_ref()?.network;
        let Some(name) = network.hotspot_interface.as_ref() else {
            let useless = !self.links.radios.is_empty() && !self.links.radios.iter().any(|radio| radio.access_point);
            let why = "no WiFi device of this device can be an access point: it has no hotspot";
            return (useless && !network.disable_wifi_provisioning).then(|| why.into());
        };
        let there = self.links.radios.iter().any(|radio| radio.interface == **name);
        (!there).then(|| format!("there is no WiFi device named {name}, which is configured").into())
    }
}
