//! Decides when a version is fetched, installed, started, kept and given up.
//!
//! Knows no clock, disk or network: facts come in as events, and what is to be done goes out as effects. Whatever has to
//! survive a power cut is one [`Record`]; when a step changes it, [`Effect::Store`] is the first effect of that step.
//! The record in memory is never ahead of the one on the disk for longer than that step ([`Event::NotStored`]).

mod heading;
mod launched;
mod trying;

use std::{rc::Rc, time::Duration};

use api::device_config::VersionSetting;
use board::Mono;

use super::{
    events::{Effect, Effects, Event, Sight, give},
    kind::Kind,
    record::{Outcome, Record, State},
    slots::Layout,
    trial::Trial,
    wish::Wish,
};
use crate::{cloud::Reach, kit::backoff::Backoff};

/// Minutes between checks when nothing points at news.
const CHECK_MINUTES: u32 = 60;
/// Between a check and the next one for a hint: a server that flaps must not be asked in a loop.
const HINT_GAP: Duration = Duration::from_secs(10);
/// Probations that a version may take to become ready once.
const READY_FACTOR: u32 = 3;
/// Starts of the agent during one probation: more mean that the version takes the machine down.
const PROBATION_RESTARTS_MAX: u32 = 8;
/// Minutes to wait for a network before the first start, where waiting is wanted.
const WAIT_NETWORK_MINUTES: u32 = 1;
/// Minutes to wait for check and download after that.
const WAIT_WORK_MINUTES: u32 = 10;
/// Settings come from a file within moments; without them nobody knows whether waiting is wanted.
const WAIT_SETTINGS: Duration = Duration::from_secs(1);
/// After this the disk is tried again.
const STORE_RETRY: Duration = Duration::from_secs(10);
/// Longest pause between attempts while nothing is wrong but the network.
const NETWORK_MINUTES_MAX: u32 = 10;
/// Longest pause between downloads of bytes that were not what was signed.
const BYTES_MINUTES_MAX: u32 = 6 * 60;

/// What does not change while the agent runs.
#[derive(Clone, Debug)]
pub struct Policy {
    /// Paths.
    pub layout: Layout,
    /// Product.
    pub kind: Kind,
    /// Length of a minute; `--dev-mode` may shorten it.
    pub minute: Duration,
    /// Whether the first opening waits for a check: the word of option or environment, else the configuration's.
    pub wait: Option<bool>,
    /// Differs per device.
    pub seed: u64,
    /// The agent was started with `--safe`: a walk that has not reached its switch is given up.
    pub safe: bool,
}

/// Whether the first opening is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wait {
    /// The settings will say.
    Settings { until: Mono },
    /// For a network.
    Network { until: Mono },
    /// For check and download.
    Work { until: Mono },
    /// Not any more.
    Over,
}

/// The check for new versions.
#[derive(Clone, Debug)]
struct Check {
    due: Mono,
    running: bool,
    /// One has ended since the setting changed.
    answered: bool,
    last: Option<Mono>,
    backoff: Backoff,
}

/// What to say about the last things that went wrong, by where; empty when nothing did.
#[derive(Clone, Debug, Default)]
pub(super) struct Said {
    pub(super) disk: String,
    pub(super) hand_over: String,
    pub(super) bringing: String,
    pub(super) room: String,
    pub(super) verdict: String,
    pub(super) check: String,
    pub(super) warning: String,
    pub(super) launcher: String,
}

/// What goes back when a step could not be stored.
#[derive(Clone, Debug)]
struct Before {
    record: Record,
    answered: u64,
    begun: bool,
}

/// The decisions for one product.
pub struct Machine {
    pub(super) policy: Policy,
    pub(super) record: Record,
    /// What the last step that changed the record found, for when that could not be stored.
    before: Option<Before>,
    /// The disk takes nothing; it is tried again then.
    store_retry: Option<Mono>,
    wish: Option<Rc<Wish>>,
    reach: Reach,
    pub(super) server: Sight,
    answered: u64,
    /// The opening for whose answer more time was asked.
    held: u64,
    /// The fleet server was reached by this life of the agent.
    reached: bool,
    /// It has not been reached since then, as far as this life knows.
    unreached_since: Mono,
    /// What follows from how this life began is in the record.
    begun: bool,
    /// The agent is still here although it was to be handed over.
    stays: bool,
    /// This step undoes that switch.
    stay_begun: bool,
    /// The last wish for another try.
    edition: u64,
    wait: Wait,
    check: Check,
    /// Something is being downloaded, judged or placed.
    busy: bool,
    /// Nothing is brought before this.
    retry: Option<Mono>,
    network: Backoff,
    bytes: Backoff,
    trial: Trial,
    /// The keeper knows the way back, as far as there is one.
    way_back_told: bool,
    pub(super) percent: u32,
    pub(super) said: Said,
}

impl Machine {
    /// Continues from a record, whose slots have been compared with what is there. See [`Machine::resume`].
    #[must_use]
    pub fn new(policy: Policy, record: Record, now: Mono) -> Machine {
        let minutes = |count: u32| policy.minute.saturating_mul(count);
        let first = policy.minute / 6;
        let wait = match policy.wait {
            Some(false) => Wait::Over,
            Some(true) => Wait::Network { until: now + minutes(WAIT_NETWORK_MINUTES) },
            None => Wait::Settings { until: now + WAIT_SETTINGS },
        };
        Machine {
            check: Check {
                due: now,
                running: false,
                answered: false,
                last: None,
                backoff: Backoff::new(first, minutes(CHECK_MINUTES), policy.seed),
            },
            network: Backoff::new(first, minutes(NETWORK_MINUTES_MAX), policy.seed.rotate_left(16)),
            bytes: Backoff::new(policy.minute, minutes(BYTES_MINUTES_MAX), policy.seed.rotate_left(32)),
            policy,
            record,
            before: None,
            store_retry: None,
            wish: None,
            reach: Reach::Unknown,
            server: Sight::default(),
            answered: 0,
            held: 0,
            reached: false,
            unreached_since: now,
            begun: false,
            stays: false,
            stay_begun: false,
            edition: 0,
            wait,
            busy: false,
            retry: None,
            trial: Trial::default(),
            way_back_told: false,
            percent: 0,
            said: Said::default(),
        }
    }

    /// The first step: one arm per stored state says where each continues.
    pub fn resume(&mut self) -> Effects {
        let was = self.now_is();
        let mut effects = Effects::new();
        self.begin(&mut effects);
        self.settle(was, effects)
    }

    fn begin(&mut self, effects: &mut Effects) {
        self.begun = true;
        self.believe_the_launcher();
        match &self.record.state {
            // What has arrived belongs to no walk.
            State::Idle(_) => give(effects, Effect::Discard),
            // These begin again once the settings are known, which may have changed meanwhile.
            State::Downloading(_) | State::Verifying(_) | State::Placing(..) => {}
            // A candidate that is not there any more is fetched again by the next check.
            State::Staged | State::Waiting if self.record.slots.spare().is_none() => self.rest(),
            State::Staged => {}
            // The program's keeper has forgotten what it was told.
            State::Waiting => self.record.state = State::Staged,
            // The active version was lost, and the spare became active by necessity.
            State::Switching | State::Probation { .. } if self.record.slots.active().is_none() => self.rest(),
            // The opening of this start is answered with it.
            State::Switching => {}
            State::Probation { restarts } if *restarts < PROBATION_RESTARTS_MAX => {
                self.record.state = State::Probation { restarts: restarts + 1 };
            }
            State::Probation { .. } => {
                let reason = format!("the agent had to start {PROBATION_RESTARTS_MAX} times meanwhile");
                if !self.roll_back(&reason) {
                    self.record.state = State::Probation { restarts: 0 };
                }
            }
        }
        if self.record.state == State::Idle(Outcome::RolledBack) {
            self.said.verdict.clone_from(&self.record.reason);
        }
        // A power cut may have come between record and pointer.
        self.point(effects);
    }

    fn now_is(&self) -> Before {
        Before { record: self.record.clone(), answered: self.answered, begun: self.begun }
    }

    /// The only place where anything changes.
    pub fn step(&mut self, now: Mono, event: Event) -> Effects {
        match &event {
            Event::NotStored(reason) => self.fall_back(now, reason),
            Event::NotPointed(reason) => self.not_pointed(now, reason),
            _ => {}
        }
        self.stay_begun = false;
        let was = self.now_is();
        let mut effects = Effects::new();
        match event {
            Event::Wish(wish) => self.wished(now, wish, &mut effects),
            Event::Reach(reach) => {
                if reach == Reach::Reached && self.reach != Reach::Reached && !self.said.bringing.is_empty() {
                    // What failed for want of a network need not wait any longer.
                    self.retry = self.retry.filter(|_| self.network.tries() == 0);
                }
                if reach == Reach::Reached && self.reach != Reach::Reached && self.check.backoff.tries() > 0 {
                    // Nor a question that had no answer; whoever comes and goes is not asked in a loop.
                    self.check.backoff.reset();
                    self.check_soon(now);
                }
                if self.reach == Reach::Reached && reach != Reach::Reached {
                    self.unreached_since = now;
                }
                self.reach = reach;
                self.reached |= reach == Reach::Reached;
            }
            Event::Hint => self.check_soon(now),
            Event::Retry(edition) => self.try_again(now, edition, &mut effects),
            Event::Server(sight) => self.watch(now, sight),
            Event::Checked(answer) => {
                self.check.running = false;
                self.checked(now, answer, &mut effects);
            }
            Event::Arrived(percent) => {
                self.percent = percent;
                self.said.room.clear();
            }
            Event::Downloaded(result) => self.downloaded(now, result, &mut effects),
            Event::Verified(result) => self.verified(now, result, &mut effects),
            Event::Placed(result) => self.placed(now, result),
            Event::NotStored(_) | Event::NotPointed(_) | Event::DeadlinePassed => {}
        }
        self.proceed(now, &mut effects);
        match self.policy.kind {
            Kind::MachineServer => self.answer(now, &mut effects),
            Kind::Agent(_) => self.make_way(now, &mut effects),
        }
        self.settle(was, effects)
    }

    /// The moment at which time alone would change something.
    #[must_use]
    pub fn deadline(&self) -> Option<Mono> {
        let wait = match self.wait {
            Wait::Settings { until } | Wait::Network { until } | Wait::Work { until } => Some(until),
            Wait::Over => None,
        };
        let check = self.may_check().then_some(self.check.due);
        let bring = if self.busy || !self.may_bring() { None } else { self.retry };
        let trial = match self.record.state {
            State::Probation { .. } => self.trial.next_look(self.trial_left()),
            _ => None,
        };
        if let Some(at) = self.store_retry {
            // Nothing moves before the disk takes it, except that openings are answered.
            return [wait, Some(at)].into_iter().flatten().min();
        }
        let offline = self.may_make_way().then(|| self.certainly_offline_at());
        [wait, check, bring, trial, offline].into_iter().flatten().min()
    }

    /// Where the walk is.
    #[must_use]
    pub fn state(&self) -> &State {
        &self.record.state
    }

    /// The record could not be stored: everything is as it is on the disk.
    fn fall_back(&mut self, now: Mono, reason: &str) {
        if let Some(Before { record, answered, begun }) = self.before.take() {
            (self.record, self.answered, self.begun) = (record, answered, begun);
        }
        // Nobody was told anything.
        self.stays |= self.stay_begun;
        self.way_back_told = false;
        self.busy = false;
        self.check.running = false;
        reason.clone_into(&mut self.said.disk);
        self.store_retry = Some(now + STORE_RETRY);
    }

    fn watch(&mut self, now: Mono, sight: Sight) {
        if matches!(self.record.state, State::Probation { .. }) {
            self.trial.pause(now);
        }
        if sight.refused != self.server.refused
            && let Some((_, reason)) = &sight.refused
        {
            self.refused(reason);
        }
        self.server = sight;
    }

    /// What follows from what is known, whatever event brought it.
    fn proceed(&mut self, now: Mono, effects: &mut Effects) {
        self.wait = self.waiting(now);
        match self.store_retry {
            Some(at) if at > now => return,
            Some(_) => {
                self.store_retry = None;
                self.said.disk.clear();
                if !self.begun {
                    self.begin(effects);
                }
                // What was wished when the disk refused is not in the record, nor what was found of it. Taken, so that it
                // is pursued as if it were new: the next check may be an hour away.
                if let Some(wish) = self.wish.take() {
                    self.wished(now, wish, effects);
                }
                self.try_again(now, self.edition, effects);
            }
            None => {}
        }
        // First, because it may find that something else has to be brought here.
        self.try_out(now, effects);
        let Some(wish) = self.wish.clone() else { return };
        if self.may_check() && self.check.due <= now {
            self.check.running = true;
            give(effects, Effect::Check(Rc::clone(&wish)));
        }
        let due = self.retry.is_none_or(|at| at <= now);
        if self.busy || !due || !self.may_bring() {
            return;
        }
        let next = match &self.record.state {
            State::Downloading(target) => Effect::Download(Box::new(target.clone()), wish),
            State::Verifying(target) => Effect::Verify(Box::new(target.clone()), wish),
            State::Placing(_, installed) => Effect::Place(self.record.slots.spare_slot(), Box::new(installed.clone())),
            State::Idle(_) | State::Staged | State::Waiting | State::Switching | State::Probation { .. } => return,
        };
        self.retry = None;
        self.busy = true;
        give(effects, next);
    }

    /// Puts the record in front of everything else, if this step has changed it.
    fn settle(&mut self, was: Before, mut effects: Effects) -> Effects {
        self.before = None;
        if self.record != was.record {
            let store = Effect::Store(Box::new(self.record.clone()));
            let stored = effects.insert(0, store);
            assert!(stored.is_ok(), "a step asks for no more than its effects can hold");
            self.before = Some(was);
        }
        effects
    }

    fn check_soon(&mut self, now: Mono) {
        let soonest = self.check.last.map_or(now, |last| last + HINT_GAP);
        self.check.due = self.check.due.min(soonest.max(now));
    }

    fn may_check(&self) -> bool {
        let asks = self.wish.as_ref().is_some_and(|wish| !matches!(wish.setting, VersionSetting::Url(_)));
        asks && self.reach == Reach::Reached && !self.check.running
    }

    /// Whether it needs the one place for bytes that arrive: while something is done with them, and as long as that can
    /// go on. One that waits for a network has no right to keep the other product from what lies on a stick.
    pub(super) fn wants_room(&self) -> bool {
        let has_bytes = matches!(self.record.state, State::Downloading(_) | State::Verifying(_) | State::Placing(..));
        has_bytes && (self.busy || self.may_bring())
    }

    /// The other product has that place.
    pub(super) fn waits_for_room(&mut self) {
        "waits until the other download has ended, or has gained nothing for an hour".clone_into(&mut self.said.room);
    }

    fn may_bring(&self) -> bool {
        let online = self.reach == Reach::Reached;
        self.wish.is_some()
            && match &self.record.state {
                State::Downloading(target) => online || target.is_pin(),
                State::Verifying(_) | State::Placing(..) => true,
                State::Idle(_) | State::Staged | State::Waiting | State::Switching | State::Probation { .. } => false,
            }
    }

    fn rest(&mut self) {
        self.record.state = State::Idle(Outcome::None);
    }

    fn forget_trouble(&mut self) {
        self.network.reset();
        self.bytes.reset();
        self.retry = None;
        self.said.bringing.clear();
        self.said.room.clear();
    }

    fn minutes(&self, count: u32) -> Duration {
        self.policy.minute.saturating_mul(count)
    }
}
