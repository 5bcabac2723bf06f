//! Starts and ends: what is started, what an end is followed by, how crashes are counted.
//!
//! A crash is answered by a start in the same step; only the second one in a row waits.

use board::{
    Wall,
    process::{Exit, ProcessId},
};

use super::{Effect, Effects, FIRST_PROBE, Machine, Now, Server, State, Then, add, words::describe};
use crate::server::record::Recorded;

/// What a machine server is asked to end with.
const SIGTERM: i32 = 15;

impl Machine {
    /// Starts what is to run, if anything is and may.
    pub(super) fn begin(&mut self, effects: &mut Effects) {
        self.state = match (&self.settings, &self.program) {
            (None, _) => State::Opening { answer_by: None, answered: true },
            (Some(settings), _) if settings.disable_server => State::Disabled,
            (Some(_), None) => State::NoVersion,
            (Some(_), Some(program)) => {
                add(effects, Effect::Start(program.clone()));
                State::Launching
            }
        };
    }

    pub(super) fn started(&mut self, now: Now, id: ProcessId, at: Wall, identity: u64, effects: &mut Effects) {
        if self.ran != self.program {
            self.crashes_of_program = 0;
        }
        self.ran = self.program.clone();
        self.starts += 1;
        let Some(settings) = &self.settings else { return };
        self.server = Some(Server {
            recorded: Recorded {
                id,
                boot: self.boot,
                started_at: at,
                ready_at: None,
                environment: self.environment,
                identity,
                urls: Vec::new(),
            },
            since: now.mono,
        });
        self.state = State::Starting {
            kill_at: now.mono + settings.server_start_timeout.times(self.policy.minute),
            probe_at: Some(now.mono + FIRST_PROBE),
            probes: 0,
        };
        // A start answers every wish for one, an operator's too.
        self.operator_restarts = self.restarts_wanted;
        (self.pending.operator, self.pending.identity) = (None, None);
        self.identity = identity;
        let program = &self.program;
        self.pending.switch.take_if(|wanted| Some(&*wanted) == program.as_ref());
        self.pending.forget_words();
        self.handles_needs_restart = false;
        add(effects, Effect::Store);
    }

    pub(super) fn not_started(&mut self, now: Now, reason: String, effects: &mut Effects) {
        if self.ran != self.program {
            self.crashes_of_program = 0;
        }
        self.ran = self.program.clone();
        self.count_crash(reason);
        self.first_crash = false;
        self.state = State::Waiting { until: now.mono + self.backoff.next_delay() };
        add(effects, Effect::Store);
    }

    pub(super) fn count_crash(&mut self, how: String) {
        self.crashes += 1;
        self.crashes_of_program += 1;
        self.last_exit = how;
    }

    pub(super) fn exited(&mut self, now: Now, exit: Exit, effects: &mut Effects) {
        let Some(server) = self.server.take() else { return };
        self.asking = false;
        self.pending.forget_words();
        match self.state {
            State::Stopping { then, timed_out, .. } => {
                // An end as asked is no news; it would hide the reason of the last crash.
                if !timed_out && !matches!(exit, Exit::Code(0) | Exit::Signal(SIGTERM)) {
                    self.last_exit = describe(exit, self.limits());
                }
                match then {
                    Then::Open => self.open(now),
                    Then::StartAgain if self.pending.operator.is_some() => self.open(now),
                    // Dead now, so that the other version may be let in instead.
                    Then::StartAgain if self.pending.switch.is_some() => {
                        self.state = State::Waiting { until: now.mono }
                    }
                    Then::StartAgain => self.begin(effects),
                    Then::Disable => self.state = State::Disabled,
                    Then::End => self.state = State::Ended,
                }
            }
            _ => {
                self.count_crash(describe(exit, self.limits()));
                if now.mono.since(server.since) >= self.policy.stable {
                    self.backoff.reset();
                    self.first_crash = true;
                }
                if self.pending.operator.is_some() {
                    self.open(now);
                } else if self.pending.back && self.pending.switch.is_some() {
                    // Dead now, so that the version before it may be let in instead.
                    self.state = State::Waiting { until: now.mono };
                } else if std::mem::take(&mut self.first_crash) {
                    self.begin(effects);
                } else {
                    self.state = State::Waiting { until: now.mono + self.backoff.next_delay() };
                }
            }
        }
        if self.state != State::Launching {
            // A start stores by itself, once it has happened.
            add(effects, Effect::Store);
        }
        add(effects, Effect::EndOrphans(server.recorded.id));
    }

    /// Stands still for the update actor to say what to run.
    pub(super) fn open(&mut self, now: Now) {
        self.opening += 1;
        self.pending.operator = None;
        self.pending.forget_words();
        self.state = State::Opening { answer_by: Some(now.mono + self.policy.answer_limit), answered: false };
    }

    /// Asks it to end.
    pub(super) fn stop(&mut self, now: Now, then: Then, effects: &mut Effects) {
        self.state = State::Stopping { then, kill_at: Some(now.mono + self.policy.stop_limit), timed_out: false };
        add(effects, Effect::Terminate);
    }

    pub(super) fn end(&mut self, now: Now, effects: &mut Effects) {
        match &mut self.state {
            State::Starting { .. } | State::Running { .. } => self.stop(now, Then::End, effects),
            State::Stopping { then, .. } => *then = Then::End,
            State::Opening { .. }
            | State::NoVersion
            | State::Disabled
            | State::Looking { .. }
            | State::Launching
            | State::Waiting { .. }
            | State::Ended => self.state = State::Ended,
        }
    }
}
