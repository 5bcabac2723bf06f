//! Readiness and permission: when the machine server is asked, what its answers and its silence mean.

use std::time::Duration;

use board::Mono;

use super::{Effect, Effects, FIRST_PROBE, Machine, Now, State, Then, add};
use crate::server::{launch::status_url, permission::Answer};

/// The longest pause between questions to one that does not answer yet.
const PROBE_PAUSE_MAX: Duration = Duration::from_secs(5);
/// How often a ready one is asked whether it looks after restarts itself, until it says so.
const INTRODUCTIONS: u8 = 3;

impl Machine {
    pub(super) fn serves(&mut self, now: Now, urls: Vec<String>, effects: &mut Effects) {
        let Some(server) = &mut self.server else { return };
        let news = server.recorded.urls != urls;
        server.recorded.urls = urls;
        if let State::Starting { .. } = self.state {
            server.recorded.ready_at = Some(now.wall);
            self.state = State::Running { introduce_at: Some(now.mono), introductions: 0 };
        } else if !news {
            return;
        }
        add(effects, Effect::Store);
    }

    pub(super) fn answered(&mut self, now: Now, question: u64, answer: Answer, effects: &mut Effects) {
        if !self.asking || question != self.question {
            return;
        }
        self.asking = false;
        if let Some(handles) = answer.handles_needs_restart {
            self.handles_needs_restart = handles;
        }
        self.pending.answered(now.mono, answer.word, &self.policy.patience);
        match &mut self.state {
            State::Starting { probe_at, probes, .. } => match answer.from {
                Some(url) => {
                    self.serves(now, vec![url], effects);
                    if let (State::Running { introduce_at, .. }, Some(_)) =
                        (&mut self.state, answer.handles_needs_restart)
                    {
                        *introduce_at = None;
                    }
                }
                None => {
                    *probes += 1;
                    let pause = FIRST_PROBE.saturating_mul(1 << (*probes).min(8)).min(PROBE_PAUSE_MAX);
                    *probe_at = Some(now.mono + pause);
                }
            },
            State::Running { introduce_at, introductions } => {
                let enough = answer.handles_needs_restart.is_some() || *introductions >= INTRODUCTIONS;
                *introduce_at = (!enough).then_some(now.mono + self.policy.patience.ask_again);
            }
            State::Looking { ask_at, foreign } => match answer.from {
                Some(url) => {
                    *foreign = Some(url);
                    *ask_at = Some(now.mono + self.policy.minute);
                }
                None => self.begin(effects),
            },
            _ => {}
        }
    }

    pub(super) fn deadline_passed(&mut self, now: Now, effects: &mut Effects) {
        let due = |at: Option<Mono>| at.is_some_and(|at| at <= now.mono);
        match &mut self.state {
            State::Opening { answer_by, .. } if due(*answer_by) => self.begin(effects),
            State::Starting { kill_at, .. } if due(Some(*kill_at)) => {
                let limit = self.settings.as_ref().map_or(0, |settings| settings.server_start_timeout.0);
                self.count_crash(format!("not ready {limit} minutes after its start: killed"));
                self.state = State::Stopping { then: Then::StartAgain, kill_at: None, timed_out: true };
                add(effects, Effect::Kill);
            }
            State::Starting { probe_at, .. } if due(*probe_at) => {
                *probe_at = None;
                self.ask(effects);
            }
            State::Running { introduce_at, introductions } if due(*introduce_at) && !self.asking => {
                *introduce_at = None;
                *introductions += 1;
                self.ask(effects);
            }
            State::Stopping { kill_at, .. } if due(*kill_at) => {
                *kill_at = None;
                add(effects, Effect::Kill);
            }
            State::Waiting { until } if due(Some(*until)) => self.begin(effects),
            State::Looking { ask_at, .. } if due(*ask_at) => {
                *ask_at = None;
                self.ask(effects);
            }
            State::Opening { .. }
            | State::NoVersion
            | State::Disabled
            | State::Looking { .. }
            | State::Launching
            | State::Starting { .. }
            | State::Running { .. }
            | State::Stopping { .. }
            | State::Waiting { .. }
            | State::Ended => {}
        }
    }

    pub(super) fn ask(&mut self, effects: &mut Effects) {
        let Some(settings) = &self.settings else { return };
        let mut urls = self.server.as_ref().map(|server| server.recorded.urls.clone()).unwrap_or_default();
        let usual = status_url(settings);
        if !urls.iter().any(|url| url == usual) {
            urls.push(usual.to_owned());
        }
        self.question += 1;
        self.asking = true;
        add(effects, Effect::Ask { question: self.question, urls });
    }
}
