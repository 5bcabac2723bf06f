//! The reboot of a device that has been offline for too long, and what of it must be known after a restart.

use std::time::Duration;

use board::Mono;

use super::{Effect, Effects, Machine, tell};
use crate::network::{
    Connectivity,
    profiles::{is_given, is_given_key},
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
        let there: Vec<&str> = present.iter().filter(|one| is_given(one)).map(|one| one.key.as_str()).collect();
        let used = self.links.links.iter().filter_map(|link| link.key.as_deref()).filter(|key| is_given_key(key));
        for key in used {
            self.unstored |= self.record.worked.add(key, &there);
        }
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
