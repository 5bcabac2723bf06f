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

/// First wait after it did not say which profiles there are: it may only have been busy.
pub(super) const LIST_FIRST: Duration = Duration::from_secs(15);

/// Longest wait then.
pub(super) const LIST_MAX: Duration = Duration::from_secs(10 * 60);

impl Machine {
    pub(super) fn listed(&mut self, now: Mono, present: Vec<Profile>) {
        self.attempts.keep(&present);
        self.proofs.proven.retain(|key| present.iter().any(|one| profiles::successor(&one.key) == Some(key)));
        self.list_wait.reset();
        if self.present.replace(present).is_none() {
            self.resume_changes();
        }
        self.remember_what_works();
        let interface = self.wants.as_ref().and_then(|wants| wants.network.hotspot_interface.clone());
        if self.giving.as_ref().is_some_and(|giving| giving.stage == GivingStage::List) {
            return self.given_listed(interface.as_deref());
        }
        self.compare(now);
    }

    /// What has to be done so that the network manager has what is wanted.
    fn compare(&mut self, now: Mono) {
        let (Some(wants), Some(present)) = (&self.wants, &self.present) else { return };
        let wanted = profiles::wanted(&wants.networks);
        let steps = profiles::compare(&wanted, present, wants.heard, &self.proofs.proven);
        let (steps, unkept) = self.carefully(steps);
        let mut again: Vec<Step> = Vec::new();
        for key in &self.proofs.again {
            let named = steps.iter().any(|step| step.key() == key);
            again.extend(self.present_of(key).filter(|_| !named).cloned().map(Step::Put));
        }
        self.steps = self.undo.iter().cloned().chain(steps).chain(again).collect();
        if self.steps.is_empty() {
            self.synced(now, unkept);
        }
    }

    pub(super) fn applied(&mut self, now: Mono, results: Vec<(Step, Result<(), NetworkError>)>, effects: &mut Effects) {
        let mut failed = Vec::new();
        let mut done = Vec::new();
        for (step, result) in results {
            if let Err(error) = result {
                failed.push((step, error));
                continue;
            }
            let about = step.key().to_owned();
            self.undo.retain(|undone| *undone != step);
            if profiles::successor(&about).is_none() {
                self.attempts.forget(&about);
                self.changed_anew(&about);
            }
            let again =
                self.proofs.again.iter().position(|key| *key == about).map(|place| self.proofs.again.remove(place));
            if self.giving.is_none() && (again.is_some() || self.takes_effect_at_once(&step)) {
                self.rejoin.push(about.clone());
            }
            self.present.as_mut().into_iter().for_each(|present| step.clone().done_to(present));
            done.push(about);
        }
        if self.giving.is_some() {
            return self.given_applied(now, failed, &done, effects);
        }
        if failed.is_empty() && !done.is_empty() {
            // What was only prepared is done now.
            return self.compare(now);
        }
        let refused = failed.into_iter().map(|(step, error)| format!("network {:?}: {error}", step.key()));
        self.synced(now, refused.collect());
    }

    /// What was changed under a link is not what the link is, and a cable's own settings are meant for it as it lies
    /// there. A WiFi network that is better than the present one is no reason to leave that.
    fn takes_effect_at_once(&self, step: &Step) -> bool {
        let Step::Put(profile) = step else { return false };
        let present = self.present_of(&profile.key);
        if present.is_some_and(|present| profiles::is_same_link(present, profile)) {
            return false;
        }
        let in_use = self.is_in_use(&profile.key) || self.is_in_use(&profiles::before_key(&profile.key));
        let wired = profile.medium == Medium::Wired && profile.interface.is_some();
        profiles::successor(&profile.key).is_none() && (in_use || wired)
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

    /// It does not say what it has. What is known of it is still the best that is known.
    pub(super) fn unlisted(&mut self, now: Mono, error: &NetworkError) {
        let why = error.to_string();
        if !matches!(error, NetworkError::Absent(_)) || !self.give_again(now) {
            self.fail_giving(&why);
        }
        (self.stale, self.refused) = (true, vec![why]);
        self.sync_at = now + self.list_wait.next_delay();
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
