//! How a version is tried: from the spare slot to an opening, through probation, to committed or back.

use std::time::Duration;

use api::device_config::VersionSetting;
use board::Mono;

use super::{Machine, READY_FACTOR, WAIT_NETWORK_MINUTES, WAIT_WORK_MINUTES, Wait};
use crate::{
    cloud::Reach,
    server::{Command, Phase, Program},
    update::{
        events::{Effect, Effects, give},
        record::{Outcome, State},
        shelf::UNKNOWN,
        slots::Slot,
        trial::Trial,
    },
};

impl Machine {
    /// From a staged version to a committed one, as far as it goes now.
    pub(super) fn try_out(&mut self, now: Mono, effects: &mut Effects) {
        let has_window = self.wish.as_ref().is_some_and(|wish| wish.has_window);
        let is_agent = self.policy.kind.is_agent();
        let runs_active = self.runs(self.program());
        self.way_back(effects);
        match self.record.state {
            State::Staged if (is_agent || has_window) && self.record.slots.active().is_some() => {
                if let Some(program) = self.candidate() {
                    self.record.state = State::Waiting;
                    give(effects, Effect::Tell(Command::Switch { program }));
                }
            }
            // The keeper says when, and is answered.
            State::Waiting if is_agent => self.wait_again(effects),
            // The window is gone from the configuration: the next opening decides, as it does without one.
            State::Waiting if self.wish.is_some() && !has_window && !self.runs(self.candidate()) => {
                if let Some(program) = self.program() {
                    give(effects, Effect::Tell(Command::Switch { program }));
                }
                self.record.state = State::Staged;
            }
            State::Waiting if self.runs(self.candidate()) => {
                self.record.slots.switch();
                self.begin_probation(now);
                self.point(effects);
            }
            State::Switching if runs_active => self.begin_probation(now),
            State::Switching if is_agent => self.stay(effects),
            State::Probation { .. } => {
                let frozen = !runs_active || matches!(self.server.phase, Phase::Disabled | Phase::NoVersion);
                if frozen {
                    self.trial.pause(now);
                } else {
                    self.trial.look(now);
                }
                self.judge(now, runs_active, effects);
            }
            State::Idle(_)
            | State::Downloading(_)
            | State::Verifying(_)
            | State::Placing(..)
            | State::Staged
            | State::Waiting
            | State::Switching => {}
        }
    }

    /// A failed version that an earlier life of the agent went back from still runs: its keeper has forgotten that.
    fn way_back(&mut self, effects: &mut Effects) {
        let lives = matches!(self.server.phase, Phase::Starting | Phase::Running | Phase::WaitingToRestart);
        let failed = self.runs(self.candidate());
        let is_bad = self.record.slots.spare().is_some_and(|spare| self.record.has_failed(spare));
        if lives
            && failed
            && is_bad
            && !self.way_back_told
            && let Some(program) = self.program()
        {
            self.way_back_told = true;
            if self.policy.kind.is_agent() {
                self.point(effects);
            }
            self.stays = false;
            give(effects, Effect::Tell(Command::Back { program }));
        }
    }

    pub(super) fn begin_probation(&mut self, now: Mono) {
        self.trial = Trial { since: Some(now), ..Trial::default() };
        self.record.state = State::Probation { restarts: 0 };
    }

    pub(super) fn judge(&mut self, now: Mono, runs_active: bool, effects: &mut Effects) {
        let (watched, whole) = (self.trial.watched_at(now), self.probation());
        let crashes = if runs_active { self.server.crashes } else { 0 };
        if crashes > self.trial.forgiven {
            self.fail(now, "it ended unasked while it was on probation", effects);
        } else if watched >= whole && runs_active && self.is_ready() {
            self.record.state = State::Idle(Outcome::Committed);
            (self.record.unseen, self.record.waived) = (0, false);
            self.said.verdict.clear();
            self.point(effects);
            // Something else may have been meant meanwhile.
            self.pursue(now, effects);
        } else if watched >= whole.saturating_mul(READY_FACTOR) {
            let reason = match self.server.phase == Phase::Running {
                true => "it did not reach the fleet server in time",
                false => "it did not become ready in time",
            };
            self.fail(now, reason, effects);
        }
    }

    /// The active version has failed. Goes back to the one before, if there is one.
    pub(super) fn fail(&mut self, now: Mono, reason: &str, effects: &mut Effects) {
        if !self.roll_back(reason) {
            self.trial = Trial { forgiven: self.server.crashes, ..Trial::default() };
            return;
        }
        if let Some(program) = self.program() {
            self.point(effects);
            self.way_back_told = true;
            give(effects, Effect::Tell(Command::Back { program }));
        }
        self.pursue(now, effects);
    }

    /// Whether there was a version to go back to.
    pub(super) fn roll_back(&mut self, reason: &str) -> bool {
        let Some(failed) = self.record.slots.active().cloned() else { return false };
        if self.record.slots.spare().is_none() {
            let version = failed.version;
            self.said.verdict = format!("{version} fails ({reason}) and no other version is here: choose another one");
            return false;
        }
        self.record.remember_bad(&failed);
        self.record.slots.switch();
        self.record.state = State::Idle(Outcome::RolledBack);
        (self.record.unseen, self.record.waived) = (0, false);
        self.said.verdict =
            format!("{} was rolled back: {reason}; choose another version, or ask for a retry", failed.version);
        self.record.reason.clone_from(&self.said.verdict);
        true
    }

    /// Answers an opening, once nothing is waited for any more.
    pub(super) fn answer(&mut self, now: Mono, effects: &mut Effects) {
        let opening = self.server.opening;
        self.wait = self.waiting(now);
        if opening == 0 {
            return;
        }
        if self.wait != Wait::Over {
            let takes_long = !matches!(self.wait, Wait::Settings { .. });
            if takes_long && self.held != opening {
                self.held = opening;
                give(effects, Effect::Tell(Command::Hold { opening }));
            }
            return;
        }
        let nothing_runs = self.record.slots.active().is_none();
        let has_window = self.wish.as_ref().is_some_and(|wish| wish.has_window);
        if opening == self.answered && !(nothing_runs && self.record.state == State::Staged) {
            return;
        }
        // A switch that cannot be stored does not happen; what was started before is started again.
        let stuck = self.store_retry.is_some();
        if stuck && nothing_runs {
            return;
        }
        self.answered = opening;
        if self.record.state == State::Staged && (nothing_runs || !has_window) && !stuck {
            self.record.slots.switch();
            self.record.state = State::Switching;
            self.trial = Trial::default();
            self.point(effects);
        }
        give(effects, Effect::Tell(Command::Run { opening, program: self.program() }));
        if let (State::Waiting, Some(program)) = (&self.record.state, self.candidate()) {
            give(effects, Effect::Tell(Command::Switch { program }));
        }
    }

    pub(super) fn waiting(&self, now: Mono) -> Wait {
        let minutes = |count| now + self.minutes(count);
        let is_pin = self.wish.as_ref().is_some_and(|wish| matches!(wish.setting, VersionSetting::Url(_)));
        let bringing = matches!(self.record.state, State::Downloading(_) | State::Verifying(_) | State::Placing(..));
        match (self.wait, &self.wish) {
            (Wait::Settings { until }, _) if until <= now => Wait::Over,
            (Wait::Settings { .. }, Some(wish)) if wish.wait => Wait::Network { until: minutes(WAIT_NETWORK_MINUTES) },
            (Wait::Settings { .. }, Some(_)) => Wait::Over,
            (Wait::Network { until }, _) if until <= now => Wait::Over,
            (Wait::Network { .. }, Some(_)) if is_pin || self.reach == Reach::Reached => {
                Wait::Work { until: minutes(WAIT_WORK_MINUTES) }
            }
            (Wait::Work { until }, _) if until <= now => Wait::Over,
            // Done, or failed in a way that takes longer than anybody wants to wait.
            (Wait::Work { .. }, _)
                if self.check.answered && !self.check.running && (!bringing || self.retry.is_some()) =>
            {
                Wait::Over
            }
            (wait, _) => wait,
        }
    }

    pub(super) fn probation(&self) -> Duration {
        let minutes =
            self.wish.as_ref().and_then(|wish| wish.probation_minutes).unwrap_or(self.policy.kind.probation_minutes());
        self.minutes(minutes)
    }

    /// Until the trial is judged next, from when watching began.
    pub(super) fn trial_left(&self) -> Duration {
        let whole = self.probation();
        // A version that is ready when its time is over is committed; one that is not gets more.
        let limit = if self.is_ready() { whole } else { whole.saturating_mul(READY_FACTOR) };
        limit.saturating_sub(self.trial.watched)
    }

    /// Whether it does what it is there for.
    fn is_ready(&self) -> bool {
        // An agent that nobody can reach cannot be mended by anybody.
        let heard = self.reached || self.record.waived || !self.policy.kind.is_agent();
        self.server.phase == Phase::Running && heard
    }

    /// Whether this is what runs. The agent is named by where it lies: what it is called may differ, and nothing is
    /// put where it runs from. So is a machine server whose name was lost, or was when it was started.
    fn runs(&self, program: Option<Program>) -> bool {
        match (&self.server.program, program) {
            (Some(running), Some(program)) => {
                let named = running.version == program.version;
                let nameless = [&running.version, &program.version].into_iter().any(|version| version == UNKNOWN);
                running.path == program.path && (named || nameless || self.policy.kind.is_agent())
            }
            _ => false,
        }
    }

    pub(super) fn program_in(&self, slot: Slot) -> Option<Program> {
        let content = self.record.slots.content(slot)?;
        Some(Program { version: content.version.clone(), path: self.policy.layout.executable(slot) })
    }

    pub(super) fn program(&self) -> Option<Program> {
        self.program_in(self.record.slots.active?)
    }

    pub(in crate::update) fn candidate(&self) -> Option<Program> {
        self.program_in(self.record.slots.spare_slot())
    }
}
