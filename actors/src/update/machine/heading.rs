//! Which version is headed for, and how its bytes come here: from a wish to a verified version in the spare slot.

use std::rc::Rc;

use api::device_config::VersionSetting;
use board::Mono;

use super::{CHECK_MINUTES, Machine, Said};
use crate::{
    server::Command,
    update::{
        check::Found,
        events::{Effect, Effects, Trouble, VerifyTrouble, give},
        kind::refusal,
        record::{Record, State},
        slots::{Installed, Slot},
        target::Target,
        wish::Wish,
    },
};

impl Machine {
    pub(super) fn wished(&mut self, now: Mono, wish: Rc<Wish>, effects: &mut Effects) {
        let text = wish.setting.to_string();
        let old = self.wish.replace(Rc::clone(&wish));
        let rekeyed = old.as_ref().is_some_and(|old| old.release_keys != wish.release_keys);
        if text != self.record.wanted {
            // Another wish is another chance, also for versions that failed. A record that was lost knew the wish, too.
            let is_another = !self.record.wanted.is_empty();
            self.record.wanted = text;
            if is_another {
                self.record.bad.clear();
                self.record.reason.clear();
                self.said = Said::default();
            }
            self.forget_trouble();
            self.check.answered = false;
            self.turn_back(effects);
        } else if old.is_some() && !rekeyed && old.as_ref().is_some_and(|old| old.pins == wish.pins) {
            return;
        }
        self.pursue(now, effects);
    }

    /// Tries versions again that failed here, and what waits for its next attempt at once. Each edition once: it is
    /// stored with what it changes, and said again until this device has reported it.
    pub(super) fn try_again(&mut self, now: Mono, edition: u64, effects: &mut Effects) {
        self.edition = edition;
        if edition <= self.record.retried {
            return;
        }
        self.record.retried = edition;
        self.record.bad.clear();
        self.record.reason.clear();
        self.said.verdict.clear();
        self.check.backoff.reset();
        self.forget_trouble();
        self.pursue(now, effects);
    }

    /// Finds out what the wish means, or has it found out.
    pub(super) fn pursue(&mut self, now: Mono, effects: &mut Effects) {
        let Some(wish) = self.wish.clone() else { return };
        match Target::of_pin(&wish.setting) {
            Some(target) => {
                self.check.answered = true;
                self.said.warning = match target.is_unprotected() {
                    true => format!(
                        "{} comes over plain http without a signed digest: use https or a release",
                        target.version
                    ),
                    false => String::new(),
                };
                match refusal(&wish, &target) {
                    None => self.head_for(target, effects),
                    Some(refusal) => {
                        self.said.check = refusal;
                        self.turn_back(effects);
                    }
                }
            }
            None => {
                // The answer to another question would be of no use.
                self.check.running = false;
                self.check.due = now;
            }
        }
    }

    pub(super) fn checked(&mut self, now: Mono, answer: Result<Found, String>, effects: &mut Effects) {
        self.check.answered = true;
        self.check.last = Some(now);
        match answer {
            // A pin came while the check was on its way.
            Ok(_) | Err(_) if self.wish.as_ref().is_none_or(|wish| matches!(wish.setting, VersionSetting::Url(_))) => {}
            Ok(Found { target, warning }) => {
                self.check.backoff.reset();
                self.check.due = now + self.minutes(CHECK_MINUTES);
                self.said.check.clear();
                self.said.warning = warning;
                self.head_for(target, effects);
            }
            Err(reason) => {
                self.check.due = now + self.check.backoff.next_delay();
                self.said.check = reason;
            }
        }
    }

    /// This is what is meant: begins the walk to it, or goes on, or finds it done.
    pub(super) fn head_for(&mut self, target: Target, effects: &mut Effects) {
        if self.is_leaving() {
            return;
        }
        let record = &mut self.record;
        if let (Some(slot), true) =
            (record.slots.active, record.slots.active().is_some_and(|active| active.is(&target)))
        {
            relabel(record, slot, &target);
            record.reason.clear();
            self.said.verdict.clear();
            return self.turn_back(effects);
        }
        if record.is_bad(&target) {
            if self.said.verdict.is_empty() {
                self.said.verdict = format!(
                    "{} failed on this device and is not tried again: choose another version, or ask for a retry",
                    target.version
                );
            }
            return self.turn_back(effects);
        }
        self.said.verdict.clear();
        let spare_is_it = record.slots.spare().is_some_and(|spare| spare.is(&target));
        match &record.state {
            // The only version that is known to work is not overwritten while the active one has to prove itself.
            State::Switching | State::Probation { .. } if !spare_is_it && record.slots.spare().is_some() => return,
            State::Downloading(on_its_way) | State::Verifying(on_its_way) | State::Placing(on_its_way, _)
                if *on_its_way == target =>
            {
                return;
            }
            State::Staged | State::Waiting if spare_is_it => {
                let slot = record.slots.spare_slot();
                return relabel(record, slot, &target);
            }
            State::Idle(_)
            | State::Downloading(_)
            | State::Verifying(_)
            | State::Placing(..)
            | State::Staged
            | State::Waiting
            | State::Switching
            | State::Probation { .. } => {}
        }
        self.turn_back(effects);
        self.forget_trouble();
        let record = &mut self.record;
        if spare_is_it {
            let slot = record.slots.spare_slot();
            relabel(record, slot, &target);
            record.state = State::Staged;
        } else {
            self.percent = 0;
            record.state = State::Downloading(target);
        }
    }

    /// Gives up a walk that has not reached its switch. What runs is untouched.
    pub(super) fn turn_back(&mut self, effects: &mut Effects) {
        match self.record.state {
            State::Downloading(_) | State::Verifying(_) | State::Placing(..) => {
                give(effects, Effect::Cancel);
                give(effects, Effect::Discard);
                self.busy = false;
                self.rest();
            }
            State::Staged => self.rest(),
            State::Waiting => {
                // Switching to what runs is how a switch is called off.
                if let Some(program) = self.program() {
                    give(effects, Effect::Tell(Command::Switch { program }));
                }
                self.rest();
            }
            State::Idle(_) | State::Switching | State::Probation { .. } => {}
        }
    }

    pub(super) fn downloaded(&mut self, now: Mono, result: Result<(), Trouble>, effects: &mut Effects) {
        let State::Downloading(target) = &self.record.state else { return };
        self.busy = false;
        self.said.room.clear();
        match result {
            Ok(()) => {
                self.percent = 100;
                self.record.state = State::Verifying(target.clone());
            }
            Err(trouble) => self.trouble(now, trouble, effects),
        }
    }

    pub(super) fn verified(&mut self, now: Mono, result: Result<Installed, VerifyTrouble>, effects: &mut Effects) {
        let State::Verifying(target) = &self.record.state else { return };
        let (target, spare) = (target.clone(), self.record.slots.spare_slot());
        self.busy = false;
        match result {
            Ok(installed) => {
                self.record.slots.set(spare, None);
                self.record.state = State::Placing(target, installed);
            }
            Err(VerifyTrouble::Refused(refusal)) => {
                let reason = format!("{} was refused: {refusal}", target.version);
                self.trouble(now, Trouble::Bytes(reason), effects);
            }
            Err(VerifyTrouble::Unreadable(reason)) => self.trouble(now, Trouble::Local(reason), effects),
        }
    }

    pub(super) fn placed(&mut self, now: Mono, result: Result<(), Trouble>) {
        let State::Placing(_, installed) = &self.record.state else { return };
        let (installed, spare) = (installed.clone(), self.record.slots.spare_slot());
        self.busy = false;
        match result {
            Ok(()) => {
                self.record.slots.set(spare, Some(installed));
                self.record.state = State::Staged;
                self.forget_trouble();
            }
            // The bytes are where they were, or nowhere: both are found out by downloading what is missing.
            Err(trouble) => self.trouble(now, trouble, &mut Effects::new()),
        }
    }

    /// Bringing bytes has failed: says so and tries again from the download, after a pause.
    pub(super) fn trouble(&mut self, now: Mono, trouble: Trouble, effects: &mut Effects) {
        let (State::Downloading(target) | State::Verifying(target) | State::Placing(target, _)) = &self.record.state
        else {
            return;
        };
        self.record.state = State::Downloading(target.clone());
        let (pause, reason) = match trouble {
            Trouble::Network(reason) | Trouble::Local(reason) => (self.network.next_delay(), reason),
            Trouble::Bytes(reason) => {
                give(effects, Effect::Discard);
                self.percent = 0;
                (self.bytes.next_delay(), reason)
            }
        };
        self.retry = Some(now + pause);
        self.said.bringing = reason;
    }
}

/// The same bytes under the name they are wanted by now.
///
/// Not while somebody was told the old name and reports under it.
fn relabel(record: &mut Record, slot: Slot, target: &Target) {
    if matches!(record.state, State::Waiting | State::Switching | State::Probation { .. }) {
        return;
    }
    if let Some(mut content) = record.slots.content(slot).cloned() {
        content.version.clone_from(&target.version);
        content.pin = target.pin();
        record.slots.set(slot, Some(content));
    }
}
