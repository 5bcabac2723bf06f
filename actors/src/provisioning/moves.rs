//! The transitions of the doors: what is due by time, and what becomes of a visit.

use std::rc::Rc;
use std::time::Duration;

use board::{Mono, network::Link};

use super::{
    machine::{Effect, Effects, Machine, State, tell},
    visit::Visit,
    welcome::{self, Attempt},
};
use crate::network::{Connectivity, Given, JOIN_TAKES_MAX, Joining, Outcome};

/// How long the page that says "the hotspot goes now" may take to reach the phone.
pub(super) const PARTING_TAKES: Duration = Duration::from_secs(3);
/// How long a hotspot may take to close before what needs the radio is tried all the same.
pub(super) const CLEARING_TAKES_MAX: Duration = Duration::from_secs(20);
/// How long an attempt may take: longer than its result, so that no hotspot opens on a radio that still joins.
pub(super) const JOINING_TAKES_MAX: Duration = Duration::from_secs(180);
const _: () = assert!(JOIN_TAKES_MAX.as_secs() < JOINING_TAKES_MAX.as_secs());
/// How long the internet may take to appear behind a network that was joined, where it counts.
pub(super) const INTERNET_TAKES_MAX: Duration = Duration::from_secs(45);
/// How long a good result is shown before the doors close.
pub(super) const SHOWING_MAX: Duration = Duration::from_secs(60);
/// The same once a person has seen it: time for the phone to close its sheet.
pub(super) const SEEN_TAKES: Duration = Duration::from_secs(10);
/// The pause between two invitations, in which what is known is tried (SEMANTICS 4.2).
pub(super) const RETRYING_MIN: Duration = Duration::from_secs(60);
/// No pause is longer.
pub(super) const RETRYING_MAX: Duration = Duration::from_secs(300);
/// The air is listened to for visitors this often at most: a radio that listens is no good access point.
const LISTENING_PAUSE: Duration = Duration::from_secs(10);

impl Machine {
    /// A transition that is due now, if there is one.
    pub(super) fn moves(&mut self, now: Mono, effects: &mut Effects) -> bool {
        // What somebody at the device permitted ends with its time, whoever is still here.
        self.forced = self.forced.filter(|until| *until > now);
        let (connected, invited) = (self.is_connected(), self.invite_at().is_some_and(|at| at <= now));
        let clear = self.hotspot.is_closed() || !self.able.hotspot;
        let next = match &self.state {
            State::Resting if invited => State::Inviting { since: now },
            State::Resting => return false,
            _ if !self.rules.any() => State::Resting,
            State::Inviting { since } if self.invitation_ends(*since) <= now => match connected {
                true => State::Resting,
                false => retrying(now, self.is_used(now)),
            },
            State::Parting { given, until } if *until <= now => match given {
                Some(given) => State::Clearing { given: given.clone(), until: now + CLEARING_TAKES_MAX },
                None if self.wished => State::Inviting { since: now },
                None if connected => State::Resting,
                None => retrying(now, false),
            },
            State::Clearing { given, until } if clear || *until <= now => {
                let given = given.clone();
                self.join(now, false, given, effects);
                return true;
            }
            State::Joining { linked: Some(_), .. } if connected => return self.joined(now),
            State::Joining { linked: Some(linked), .. } if *linked + INTERNET_TAKES_MAX <= now => {
                let name = self.attempt.as_ref().map(|attempt| attempt.ssid.to_string()).unwrap_or_default();
                return self.failed(now, format!("{name} was joined, and there is no internet behind it").into());
            }
            State::Joining { since, linked: None, .. } if *since + JOINING_TAKES_MAX <= now => {
                let name = self.attempt.as_ref().map(|attempt| attempt.ssid.to_string()).unwrap_or_default();
                return self.failed(now, format!("{name} did not answer in time").into());
            }
            State::Showing { until, .. } if *until <= now && connected => State::Resting,
            State::Showing { until, .. } if *until <= now => retrying(now, false),
            State::Retrying { .. } if connected => State::Resting,
            State::Retrying { since, begun: false, ended, held } if clear || *since + CLEARING_TAKES_MAX <= now => {
                self.rounds += 1;
                tell(effects, Effect::TryKnown(self.rounds));
                State::Retrying { since: *since, begun: true, ended: *ended, held: *held }
            }
            State::Retrying { since, ended: true, .. } if *since + RETRYING_MIN <= now => {
                State::Inviting { since: now }
            }
            State::Retrying { since, .. } if *since + RETRYING_MAX <= now => State::Inviting { since: now },
            State::Inviting { .. }
            | State::Parting { .. }
            | State::Clearing { .. }
            | State::Joining { .. }
            | State::Showing { .. }
            | State::Retrying { .. } => return false,
        };
        if self.state == State::Resting {
            // Somebody else, some other day.
            self.keep_news();
        }
        if matches!(next, State::Inviting { .. }) && !connected && self.has_identity {
            // It was joined, and is so no more.
            self.attempt =
                self.attempt.take().filter(|attempt| !matches!(attempt.result, welcome::Result::Joined { .. }));
        }
        if next == State::Resting {
            (self.forced, self.touched) = (None, None);
        }
        self.enter(next);
        true
    }

    /// Where the doors are open or stay shut, whoever wished for them has been heard.
    fn enter(&mut self, next: State) {
        self.wished &= matches!(next, State::Parting { .. } | State::Clearing { .. } | State::Joining { .. });
        self.state = next;
    }

    pub(super) fn force(&mut self, now: Mono) {
        self.forced = Some(now + self.rules.retry);
        self.held_since = Some(now);
        match self.state {
            State::Parting { .. } | State::Clearing { .. } | State::Joining { .. } => self.wished = true,
            State::Resting | State::Inviting { .. } | State::Showing { .. } | State::Retrying { .. } => {
                self.keep_news();
                self.state = State::Inviting { since: now };
            }
        }
    }

    /// Of the last attempt only what somebody still has to read: why it failed.
    fn keep_news(&mut self) {
        let seen = self.seen;
        let news = |attempt: &Attempt| !seen && matches!(attempt.result, welcome::Result::Failed(_));
        self.attempt = self.attempt.take().filter(news);
    }

    pub(super) fn visited(&mut self, now: Mono, visit: Visit, effects: &mut Effects) {
        if visit != Visit::SawResult {
            self.touched = Some(now);
        }
        match visit {
            Visit::Came | Visit::Touched => {}
            // Who asks again sees what was heard a moment ago.
            Visit::Rescan if self.listened.is_some_and(|at| at + LISTENING_PAUSE > now) => {}
            Visit::Rescan => {
                self.listened = Some(now);
                tell(effects, Effect::Rescan);
            }
            Visit::Network(given) if self.stays() => self.join(now, self.hotspot.is_open(), given, effects),
            Visit::Network(given) => {
                self.attempts += 1;
                self.attempt = Some(self.trying(&given));
                self.seen = false;
                self.state = State::Parting { given: Some(given), until: now + PARTING_TAKES };
            }
            Visit::Identity(identity) => tell(effects, Effect::Store(identity)),
            Visit::SawResult => self.saw(now),
            Visit::Leave => {
                self.touched = None;
                self.forced = None;
                self.state = match self.state {
                    State::Inviting { .. } => State::Parting { given: None, until: now + PARTING_TAKES },
                    State::Showing { hotspot, .. } => State::Showing { until: now + PARTING_TAKES, hotspot },
                    ref other => other.clone(),
                };
            }
        }
    }

    fn trying(&self, given: &Given) -> Attempt {
        Attempt { number: self.attempts, ssid: given.ssid.clone(), result: welcome::Result::Trying }
    }

    fn join(&mut self, now: Mono, stays: bool, given: Given, effects: &mut Effects) {
        if !matches!(self.state, State::Clearing { .. }) {
            self.attempts += 1;
        }
        self.attempt = Some(self.trying(&given));
        self.seen = false;
        self.state = State::Joining { since: now, stays, linked: None };
        tell(effects, Effect::Join(self.attempts, given));
    }

    /// A person has seen the result.
    fn saw(&mut self, now: Mono) {
        let over = self.attempt.as_ref().is_some_and(|attempt| attempt.result != welcome::Result::Trying);
        self.seen |= over;
        if let State::Showing { until, .. } = &mut self.state {
            *until = (*until).min(now + SEEN_TAKES);
        }
    }

    pub(super) fn heard(&mut self, now: Mono, joining: Joining) {
        if let State::Retrying { begun: true, ended, .. } = &mut self.state {
            *ended |= joining.round_ended >= self.rounds;
        }
        let current = self.attempt.as_ref().is_some_and(|attempt| attempt.number == joining.attempt);
        let State::Joining { linked, .. } = &mut self.state else { return };
        match joining.outcome {
            _ if !current => {}
            Outcome::Trying => {}
            Outcome::Joined(link) => {
                *linked = linked.or(Some(now));
                let online = matches!(self.connectivity, Connectivity::Online { .. });
                if let Some(attempt) = &mut self.attempt {
                    attempt.result = welcome::Result::Joined { address: address(&link), online };
                }
                if !self.rules.internet_counts {
                    self.joined(now);
                }
            }
            Outcome::Failed(why) => {
                self.failed(now, why);
            }
        }
    }

    /// The network that was given is joined. A device that does not know who it is keeps its doors open for that, and one
    /// whose doors were wished for meanwhile opens them.
    fn joined(&mut self, now: Mono) -> bool {
        let hotspot = matches!(self.state, State::Joining { stays: true, .. });
        self.enter(match self.has_identity && !self.wished {
            true => State::Showing { until: now + SHOWING_MAX, hotspot },
            false => State::Inviting { since: now },
        });
        true
    }

    fn failed(&mut self, now: Mono, why: Rc<str>) -> bool {
        if let Some(attempt) = &mut self.attempt {
            attempt.result = welcome::Result::Failed(why);
        }
        // Whoever gave it has to find the hotspot again, read, and type.
        self.touched = Some(now);
        self.enter(State::Inviting { since: now });
        true
    }

    /// The device knows who it is. It leaves as soon as it has a network, too.
    pub(super) fn stored(&mut self, now: Mono, well: bool, effects: &mut Effects) {
        if !well {
            return;
        }
        self.has_identity = true;
        // One act at the device is one change.
        self.forced = None;
        let was_given =
            self.attempt.as_ref().is_some_and(|attempt| matches!(attempt.result, welcome::Result::Joined { .. }));
        if matches!(self.state, State::Inviting { .. } | State::Resting) && (was_given || self.is_connected()) {
            let hotspot = matches!(self.state, State::Inviting { .. });
            self.state = State::Showing { until: now + SHOWING_MAX, hotspot };
        }
        tell(effects, Effect::Poke);
    }
}

/// The doors' own radio is let go of, and everything known is tried.
const fn retrying(since: Mono, held: bool) -> State {
    State::Retrying { since, begun: false, ended: false, held }
}

fn address(link: &Link) -> Option<Rc<str>> {
    link.address.map(|(address, _)| address.to_string().into())
}
