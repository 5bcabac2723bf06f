//! The reboot of a device that has been offline for too long, and what of it must be known after a restart.

use std::time::Duration;

use board::{
    Mono,
    network::{Link, Medium, Profile},
};

use super::{Effect, Effects, Machine, tell};
use crate::network::{
    Connectivity,
    profiles::{is_given, is_given_key, successor},
    record::Record,
};

/// Being offline is stored once it has lasted this long: a link that flaps must not wear out the disk.
pub(super) const RECORD_AFTER: Duration = Duration::from_secs(60);

/// After the system has refused to reboot.
pub(super) const REBOOT_REFUSED: Duration = Duration::from_secs(10 * 60);

impl Machine {
    /// When the device reboots because it has been away for too long.
    pub(super) fn reboot_at(&self) -> Option<Mono> {
        if self.is_disabled() || self.busy || self.giving.is_some() {
            return None;
        }
        let after = self.wants.as_ref()?.network.device_reboot_after_offline?.times(self.policy.minute);
        let since = self.away()?.max(self.record.asked_at.unwrap_or(Mono::BOOT));
        Some((since + after).max(self.reboot_hold))
    }

    /// When what is stored no longer is what is so.
    pub(super) fn record_at(&self) -> Option<Mono> {
        let rebooting = self.wants.as_ref()?.network.device_reboot_after_offline.is_some() && !self.is_disabled();
        let known = self.connectivity() != Connectivity::Unknown;
        if !rebooting || !known || self.stored == (Record { offline_since: self.away(), ..self.record }) {
            return None;
        }
        Some(self.away().map_or(Mono::BOOT, |since| since + RECORD_AFTER))
    }

    /// A network that a person gave is what the device is connected by.
    pub(super) fn remember_what_works(&mut self) {
        let Some(present) = &self.present else { return };
        let worth = |one: &&Profile| is_given(one) || one.medium == Medium::Wired;
        let there: Vec<&str> = present.iter().filter(worth).map(|one| one.key.as_str()).collect();
        let given = self.links.links.iter().filter_map(|link| link.key.as_deref()).filter(|key| is_given_key(key));
        let cable = self.proven_cable().map(str::to_owned);
        for key in given.chain(cable.as_deref()) {
            self.unstored |= self.record.worked.add(key, &there);
        }
    }

    /// The internet is reached by this cable, and by nothing else.
    fn proven_cable(&self) -> Option<&str> {
        let mut ways_out = self.links.links.iter().filter(|link| link.default_route);
        let (only, None) = (ways_out.next()?, ways_out.next()) else { return None };
        let online = matches!(self.connectivity(), Connectivity::Online { .. });
        only.key.as_deref().filter(|_| online && only.ssid.is_none())
    }

    /// Cables with settings of the configuration's that have never led to the internet: a link that a mistake has made up
    /// is none, or a device that has no other would be out of reach for ever (SEMANTICS 4.1: it is WiFi without internet
    /// that only counts where the configuration says so). One whose change is on trial is judged there.
    pub(super) fn doubted(&self) -> Vec<String> {
        // Without a radio there is no hotspot, and nothing else to be had beside a cable for a neighbour.
        let counts = |link: &&Link| link.ssid.is_none() && (link.default_route || !self.links.radios.is_empty());
        let keys = self.links.links.iter().filter(counts).filter_map(|link| link.key.as_deref());
        let wired = |key: &&str| self.present_of(key).is_some_and(|profile| profile.medium == Medium::Wired);
        let new = |key: &&str| !self.record.worked.has(key) && successor(key).is_none() && !self.is_unproven(key);
        keys.filter(wired).filter(new).map(str::to_owned).collect()
    }

    pub(super) fn keep_record(&mut self, now: Mono, effects: &mut Effects) {
        if self.reboot_at().is_some_and(|at| at <= now) {
            self.record = Record { asked_at: Some(now), reboots: self.record.reboots + 1, ..self.record };
            self.unrebooted = None;
            self.remember(effects);
            tell(effects, Effect::Note("offline for too long: rebooting".to_owned()));
            tell(effects, Effect::Reboot);
        } else if self.unstored || self.record_at().is_some_and(|at| at <= now) {
            self.remember(effects);
        }
    }

    pub(super) fn remember(&mut self, effects: &mut Effects) {
        self.unstored = false;
        self.record.offline_since = self.away();
        self.stored = self.record;
        tell(effects, Effect::Store(self.record));
    }
}
