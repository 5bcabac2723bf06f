//! The profiles that the network manager keeps for us, and how the radio is set.

use std::time::Duration;

use board::{
    Mono,
    network::{Medium, NetworkError, Profile},
};

use super::{Effects, Machine, giving::GivingStage, work::Tuning};
use crate::network::profiles::{self, Step};

/// First wait after the network manager refused a profile: it will not like it better soon.
pub(super) const SYNC_FIRST: Duration = Duration::from_secs(5 * 60);

/// Longest wait then.
pub(super) const SYNC_MAX: Duration = Duration::from_secs(6 * 60 * 60);

impl Machine {
    pub(super) fn listed(&mut self, now: Mono, present: Vec<Profile>) {
        let Some(wants) = &self.wants else { return };
        self.steps = profiles::compare(&profiles::wanted(&wants.networks), &present, wants.heard);
        let interface = wants.network.hotspot_interface.clone();
        if let Some(giving) = self.giving.as_mut().filter(|giving| giving.stage == GivingStage::Store) {
            let profile = profiles::of_given(&giving.given, interface.as_deref());
            giving.before = present.iter().find(|present| present.key == profile.key).cloned();
            // The configuration's own can wait; a person does.
            self.steps = profiles::give(profile, &present);
            self.stale = true;
        } else if self.steps.is_empty() {
            self.synced(now, Vec::new());
        }
        self.attempts.keep(&present);
        self.present = Some(present);
    }

    pub(super) fn applied(&mut self, now: Mono, results: Vec<(Step, Result<(), NetworkError>)>, effects: &mut Effects) {
        let mut refused = Vec::new();
        let key = self.giving.as_ref().map(|giving| giving.key.clone());
        let mut given = false;
        for (step, result) in results {
            let about = step.key().to_owned();
            match result {
                Ok(()) => {
                    given |= key.as_ref() == Some(&about);
                    self.attempts.forget(&about);
                    if self.giving.is_none() && self.takes_effect_at_once(&step) {
                        self.rejoin.push(about);
                    }
                    self.present.as_mut().into_iter().for_each(|present| step.clone().done_to(present));
                }
                Err(error) => refused.push(format!("network {about:?}: {error}")),
            }
        }
        match self.giving.as_mut().map(|giving| (giving.stage, giving)) {
            Some((GivingStage::Store, giving)) if given => giving.stage = GivingStage::Join,
            Some((GivingStage::Store, _)) => {
                let why = refused.pop().unwrap_or_else(|| "the network could not be stored".to_owned());
                self.fail_giving(&why);
            }
            Some((GivingStage::TakeBack, _)) => {
                self.giving = None;
                if let Some((attempt, given)) = self.next_giving.take() {
                    self.give(attempt, given, effects);
                }
            }
            Some((GivingStage::Join, _)) | None => {
                self.synced(now, refused);
            }
        }
    }

    /// What was changed under a link is not what the link is, and a cable's own settings are meant for it as it lies
    /// there. A WiFi network that is better than the present one is no reason to leave that.
    pub(super) fn takes_effect_at_once(&self, step: &Step) -> bool {
        let Step::Put(profile) = step else { return false };
        let in_use = self.links.links.iter().any(|link| link.key.as_ref() == Some(&profile.key));
        in_use || (profile.medium == Medium::Wired && profile.interface.is_some())
    }

    pub(super) fn synced(&mut self, now: Mono, refused: Vec<String>) {
        self.stale = !refused.is_empty();
        if self.stale {
            self.sync_at = now + self.sync_wait.next_delay();
        } else {
            self.sync_wait.reset();
        }
        self.refused = refused;
    }

    pub(super) fn sync_failed(&mut self, now: Mono, why: String) {
        self.fail_giving(&why);
        self.synced(now, vec![why]);
    }

    pub(super) fn tuning(&self) -> Tuning {
        let network = self.wants.as_ref().map(|wants| &wants.network);
        Tuning {
            power_save: network.and_then(|network| network.wifi_power_save),
            country: network.and_then(|network| network.wifi_country.clone()),
        }
    }

    pub(super) fn is_tuned_as_wanted(&self) -> bool {
        self.tuned.as_ref() == Some(&self.tuning())
    }

    pub(super) fn is_untuned(&self) -> bool {
        self.can_work() && !self.is_tuned_as_wanted()
    }
}
