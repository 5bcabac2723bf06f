//! What others want: settings, another version, a restart; and when a restart that is wanted may happen.
//!
//! Whether it may is judged in `pending`.

use std::rc::Rc;

use api::device_config::Advanced;

use super::{Effect, Effects, Machine, Now, Server, State, Then, add};
use crate::server::{
    Command, Program,
    launch::fingerprint,
    pending::{Rules, Situation, Verdict},
};

impl Machine {
    pub(super) fn settings_changed(&mut self, now: Now, settings: Rc<Advanced>, effects: &mut Effects) {
        let disabled = settings.disable_server;
        if let (State::Starting { kill_at, .. }, Some(server)) = (&mut self.state, &self.server) {
            // Adopted while starting: counted from the adoption.
            *kill_at = server.since + settings.server_start_timeout.times(self.policy.minute);
        }
        self.environment = fingerprint(&settings);
        if self.limited != Some(settings.server_limits) {
            self.limited = Some(settings.server_limits);
            add(effects, Effect::Limit(settings.server_limits));
        }
        self.settings = Some(settings);
        match (&mut self.state, disabled) {
            (State::Starting { .. } | State::Running { .. }, true) => self.stop(now, Then::Disable, effects),
            (State::Stopping { then: then @ (Then::StartAgain | Then::Open), .. }, true) => *then = Then::Disable,
            (State::Opening { .. } | State::NoVersion | State::Waiting { .. } | State::Looking { .. }, true) => {
                self.state = State::Disabled;
            }
            (State::Disabled, false) => {
                self.state = State::Looking { ask_at: None, foreign: None };
                self.ask(effects);
            }
            (State::Opening { answered: true, .. }, false) => self.begin(effects),
            (State::Stopping { then: then @ Then::Disable, .. }, false) => *then = Then::StartAgain,
            (
                State::Opening { .. }
                | State::NoVersion
                | State::Disabled
                | State::Looking { .. }
                | State::Launching
                | State::Starting { .. }
                | State::Running { .. }
                | State::Stopping { .. }
                | State::Waiting { .. }
                | State::Ended,
                _,
            ) => {}
        }
    }

    pub(super) fn commanded(&mut self, now: Now, command: Command, effects: &mut Effects) {
        match command {
            Command::Hold { opening } => {
                if let State::Opening { answer_by: Some(answer_by), .. } = &mut self.state
                    && opening == self.opening
                {
                    *answer_by = now.mono + self.policy.hold_limit;
                }
            }
            Command::Run { opening, .. } if opening != self.opening => {}
            Command::Run { program, .. } => match self.state {
                State::Opening { .. } | State::NoVersion => {
                    self.program = program;
                    self.begin(effects);
                }
                State::Disabled | State::Looking { .. } => self.program = program,
                // An adopted server was no opening; otherwise the answer came too late to be had without asking.
                State::Launching
                | State::Starting { .. }
                | State::Running { .. }
                | State::Stopping { .. }
                | State::Waiting { .. } => {
                    if let Some(program) = program.filter(|_| self.opening > 0) {
                        self.switch(program, false);
                    }
                }
                State::Ended => {}
            },
            Command::Switch { program } => self.other(program, false, effects),
            Command::Back { program } => self.other(program, true, effects),
        }
    }

    /// Another program is to run: the next one that is started, or instead of the one that runs.
    pub(super) fn other(&mut self, program: Program, back: bool, effects: &mut Effects) {
        match self.state {
            State::Opening { .. } | State::NoVersion | State::Disabled | State::Looking { .. } => {
                self.program = Some(program);
                if self.state == State::NoVersion {
                    self.begin(effects);
                }
            }
            _ => self.switch(program, back),
        }
    }

    /// Wants `program` to run, unless that is what runs.
    pub(super) fn switch(&mut self, program: Program, back: bool) {
        self.pending.switch = Some(program).filter(|program| self.program.as_ref() != Some(program));
        self.pending.back = back;
    }

    pub(super) fn restarts_wanted(&mut self, now: Now, wanted: u64) {
        self.restarts_wanted = wanted;
        // A counter that went back was begun anew: what was wanted before is over.
        self.operator_restarts = self.operator_restarts.min(wanted);
        if wanted > self.operator_restarts {
            self.pending.operator.get_or_insert(now.mono);
        } else {
            self.pending.operator = None;
        }
    }

    /// Who the device is. What runs was started as who it was before, where nobody noted that.
    pub(super) fn identified(&mut self, identity: u64) {
        let before = std::mem::replace(&mut self.identity, identity);
        if let Some(server) = &mut self.server
            && server.recorded.identity == 0
        {
            server.recorded.identity = before;
        }
    }

    /// Whether a restart that is wanted may happen now.
    pub(super) fn think_about_restart(&mut self, now: Now, effects: &mut Effects) {
        let Some(settings) = &self.settings else { return };
        self.pending.environment =
            self.server.as_ref().is_some_and(|server| server.recorded.environment != self.environment);
        let other = |server: &Server| {
            let was = server.recorded.identity;
            was != 0 && self.identity != 0 && was != self.identity
        };
        match self.server.as_ref().is_some_and(other) {
            true => drop(self.pending.identity.get_or_insert(now.mono)),
            false => self.pending.identity = None,
        }
        let situation = match self.state {
            State::Running { .. } => Situation::Ready,
            State::Starting { .. } if self.crashes_of_program > 0 => Situation::Faltering,
            State::Starting { .. } => Situation::NotReady,
            State::Waiting { .. } => Situation::Dead,
            State::Opening { .. }
            | State::NoVersion
            | State::Disabled
            | State::Looking { .. }
            | State::Launching
            | State::Stopping { .. }
            | State::Ended => Situation::Settled,
        };
        let rules = match &settings.maintenance {
            Some(maintenance) => Rules { window: now.window, word_counts: maintenance.use_server_word },
            None => Rules { window: None, word_counts: true },
        };
        match self.pending.decide(now, situation, rules, &self.policy.patience, self.asking) {
            Verdict::Wait => {}
            Verdict::Ask => self.ask(effects),
            Verdict::Restart => {
                if let Some(program) = self.pending.switch.take() {
                    self.program = Some(program);
                }
                if situation == Situation::Dead {
                    self.begin(effects)
                } else {
                    self.stop(now, Then::StartAgain, effects)
                }
            }
            Verdict::Open => {
                if situation == Situation::Dead {
                    self.open(now)
                } else {
                    self.stop(now, Then::Open, effects)
                }
            }
        }
    }
}
