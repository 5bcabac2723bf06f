//! The agent as its own product: what it learns from how it was started, and how it makes way for another version.
//!
//! The record says what was to be started, the launcher says what was. Where they differ something went wrong before
//! this process began, and the one thing that must not happen is to believe neither.

use board::Mono;

use super::{Machine, STORE_RETRY};
use crate::{
    cloud::Reach,
    server::Command,
    update::{
        events::{Effect, Effects, give},
        kind::Launched,
        record::{Outcome, State},
        slots::Pointer,
        trial::Trial,
    },
};

/// Switches that may come to nothing without anybody saying why: a power cut between record and pointer is one. More
/// of them are the version's own doing.
const UNSEEN_MAX: u32 = 3;
/// Minutes without the fleet server after which the next version need not reach it either.
const OFFLINE_MINUTES: u32 = 10;
/// Bytes of a reason that are remembered.
const REASON_BYTES_MAX: usize = 400;

impl Machine {
    /// Compares the record with the slot that this agent was started from. Before anything else, and again as long as
    /// what follows from it could not be stored.
    pub(super) fn believe_the_launcher(&mut self) {
        let Some(Launched { slot, note, refused, .. }) = self.policy.kind.launched().cloned() else { return };
        if self.record.slots.active == Some(slot) {
            // It runs, with what helps against troubles of its own.
            self.said.launcher = note.unwrap_or_default();
            return;
        }
        let is_bad = self.record.slots.content(slot).is_some_and(|content| self.record.has_failed(content));
        let failed = match (&self.record.state, note) {
            // The launcher could not be executed, which says nothing about the version.
            (State::Switching, None) if refused.is_some() => {
                self.record.slots.active = Some(slot);
                self.record.state = State::Staged;
                return;
            }
            // The switch was stored and did not happen: the power was cut in between.
            (State::Switching, None) if self.record.unseen < UNSEEN_MAX => {
                self.record.unseen += 1;
                self.record.slots.active = Some(slot);
                self.record.state = State::Staged;
                return;
            }
            (State::Switching, None) => Some("it was switched to again and again, and never came to life".to_owned()),
            (State::Probation { .. }, None) => Some("the launcher went back to the version before it".to_owned()),
            (_, Some(note)) => Some(note),
            // An earlier life went back from it and could not carry that out.
            (_, None) if is_bad => return,
            (_, None) => None,
        };
        let went_back = failed.is_some_and(|reason| self.roll_back(cut(&reason)));
        if !went_back {
            // Somebody else has chosen it, or what was active is gone: what runs is what can be started.
            self.record.slots.active = Some(slot);
            self.record.state = State::Idle(Outcome::None);
        }
    }

    /// This process does not come from the active slot: it is on its way out, and begins nothing new.
    pub(super) fn is_leaving(&self) -> bool {
        self.policy.kind.launched().is_some_and(|launched| self.record.slots.active != Some(launched.slot))
    }

    /// The keeper says that nothing speaks against a switch now.
    pub(super) fn make_way(&mut self, now: Mono, effects: &mut Effects) {
        let opening = self.server.opening;
        if opening == 0 || opening == self.answered || self.store_retry.is_some() {
            return;
        }
        if self.may_make_way() {
            let offline = self.reach != Reach::Reached;
            if offline && now < self.certainly_offline_at() {
                // The network may only be slow: a version that has to reach nobody is hardly watched at all.
                return;
            }
            // What cannot be reached now says nothing about the next version when it cannot be reached then.
            self.record.waived = offline;
            self.record.slots.switch();
            self.record.state = State::Switching;
            self.trial = Trial::default();
            self.stays = false;
            self.said.hand_over.clear();
            self.point(effects);
        }
        self.answered = opening;
        give(effects, Effect::Tell(Command::Run { opening, program: self.program() }));
    }

    /// The keeper waits for an answer, and the next version is there.
    pub(super) fn may_make_way(&self) -> bool {
        self.policy.kind.is_agent()
            && self.server.opening > self.answered
            && matches!(self.record.state, State::Staged | State::Waiting)
            && self.record.slots.spare().is_some()
            && !self.is_leaving()
    }

    /// When a fleet server that is not reached until then counts as out of reach.
    pub(super) fn certainly_offline_at(&self) -> Mono {
        self.unreached_since + self.minutes(OFFLINE_MINUTES)
    }

    /// The pointer could not be written: whoever is started next would not be who is meant.
    pub(super) fn not_pointed(&mut self, now: Mono, reason: &str) {
        reason.clone_into(&mut self.said.disk);
        self.store_retry = Some(now + STORE_RETRY);
        self.way_back_told = false;
        self.stays = true;
        // What stood behind it in that step was not begun.
        self.busy = false;
        self.check.running = false;
    }

    /// The keeper could not carry a hand-over out, and tries it again later when it is told to.
    pub(super) fn refused(&mut self, reason: &str) {
        self.said.hand_over = format!("the agent could not be handed over to the next version: {reason}");
        self.way_back_told = false;
        // One of an earlier life is only said.
        self.stays |= self.record.state == State::Switching;
    }

    /// A switch that did not happen: everything is as before it, and it is tried again.
    pub(super) fn stay(&mut self, effects: &mut Effects) {
        if !self.stays {
            return;
        }
        self.record.slots.switch();
        self.record.state = State::Waiting;
        self.wait_again(effects);
    }

    /// The keeper gave the switch up, or does not know that nothing came of it: it is told once more, pointer first.
    pub(super) fn wait_again(&mut self, effects: &mut Effects) {
        if !std::mem::take(&mut self.stays) {
            return;
        }
        self.stay_begun = true;
        self.point(effects);
        if let Some(program) = self.candidate() {
            give(effects, Effect::Tell(Command::Switch { program }));
        }
    }

    /// Says in the pointer file what is started next.
    pub(super) fn point(&self, effects: &mut Effects) {
        let Some(slot) = self.record.slots.active else { return };
        let trial = matches!(self.record.state, State::Switching | State::Probation { .. });
        give(effects, Effect::Point(Pointer { slot, trial }));
    }
}

fn cut(reason: &str) -> &str {
    let end = (0..=REASON_BYTES_MAX.min(reason.len())).rev().find(|&end| reason.is_char_boundary(end)).unwrap_or(0);
    reason.get(..end).unwrap_or_default()
}
