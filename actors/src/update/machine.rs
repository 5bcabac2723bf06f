//! Decides when a version is fetched, installed, started, kept and given up.
//!
//! Knows no clock, disk or network: facts come in as events, and what is to be done goes out as effects. Whatever has to
//! survive a power cut is one [`Record`]; when a step changes it, [`Effect::Store`] is the first effect of that step.
//! The record in memory is never ahead of the one on the disk for longer than that step ([`Event::NotStored`]).

use std::{rc::Rc, time::Duration};

use api::device_config::VersionSetting;
use board::Mono;

use super::{
    check::Found,
    events::{Effect, Effects, Event, Sight, Trouble, VerifyTrouble, give},
    record::{Outcome, Record, State},
    slots::{Installed, Layout, Slot},
    target::Target,
    trial::Trial,
    wish::Wish,
};
use crate::{
    cloud::Reach,
    kit::backoff::Backoff,
    server::{Command, Phase, Program},
};

/// Minutes between checks when nothing points at news.
const CHECK_MINUTES: u32 = 60;
/// Between a check and the next one for a hint: a server that flaps must not be asked in a loop.
const HINT_GAP: Duration = Duration::from_secs(10);
/// Minutes that a new version is watched when nobody says otherwise.
const PROBATION_MINUTES: u32 = 5;
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
    /// Product and paths.
    pub layout: Layout,
    /// Length of a minute; `--dev-mode` may shorten it.
    pub minute: Duration,
    /// Whether the first opening waits for a check: the word of option or environment, else the configuration's.
    pub wait: Option<bool>,
    /// Differs per device.
    pub seed: u64,
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
    pub(super) bringing: String,
    pub(super) verdict: String,
    pub(super) check: String,
    pub(super) warning: String,
}

/// The decisions for one product.
pub struct Machine {
    pub(super) policy: Policy,
    pub(super) record: Record,
    /// The record and the opening answered before the last step that changed the record, for when that could not be
    /// stored.
    before: Option<(Record, u64)>,
    /// The disk takes nothing; it is tried again then.
    store_retry: Option<Mono>,
    wish: Option<Rc<Wish>>,
    reach: Reach,
    pub(super) server: Sight,
    answered: u64,
    /// The opening for whose answer more time was asked.
    held: u64,
    wait: Wait,
    check: Check,
    /// Something is being downloaded, judged or placed.
    busy: bool,
    /// Nothing is brought before this.
    retry: Option<Mono>,
    network: Backoff,
    bytes: Backoff,
    trial: Trial,
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
                backoff: Backoff::new(first, minutes(NETWORK_MINUTES_MAX), policy.seed),
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
            wait,
            busy: false,
            retry: None,
            trial: Trial::default(),
            percent: 0,
            said: Said::default(),
        }
    }

    /// The first step: one arm per stored state says where each continues.
    pub fn resume(&mut self) -> Effects {
        let was = (self.record.clone(), self.answered);
        let mut effects = Effects::new();
        match &self.record.state {
            // What has arrived belongs to no walk.
            State::Idle(_) => give(&mut effects, Effect::Discard),
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
        if let Some(slot) = self.record.slots.active {
            // A power cut may have come between record and pointer.
            give(&mut effects, Effect::Point(slot));
        }
        self.settle(was, effects)
    }

    /// The only place where anything changes.
    pub fn step(&mut self, now: Mono, event: Event) -> Effects {
        if let Event::NotStored(reason) = &event {
            self.fall_back(now, reason);
        }
        let was = (self.record.clone(), self.answered);
        let mut effects = Effects::new();
        match event {
            Event::Wish(wish) => self.wished(now, wish, &mut effects),
            Event::Reach(reach) => {
                if reach == Reach::Reached && self.reach != Reach::Reached && !self.said.bringing.is_empty() {
                    // What failed for want of a network need not wait any longer.
                    self.retry = self.retry.filter(|_| self.network.tries() == 0);
                }
                self.reach = reach;
            }
            Event::Hint => {
                let soonest = self.check.last.map_or(now, |last| last + HINT_GAP);
                self.check.due = self.check.due.min(soonest.max(now));
            }
            Event::Server(sight) => self.watch(now, sight),
            Event::Checked(answer) => {
                self.check.running = false;
                self.checked(now, answer, &mut effects);
            }
            Event::Arrived(percent) => self.percent = percent,
            Event::Downloaded(result) => self.downloaded(now, result, &mut effects),
            Event::Verified(result) => self.verified(now, result, &mut effects),
            Event::Placed(result) => self.placed(now, result),
            Event::NotStored(_) | Event::DeadlinePassed => {}
        }
        self.proceed(now, &mut effects);
        self.answer(now, &mut effects);
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
            State::Probation { .. } => self.trial.since.map(|since| since + self.trial_left()),
            _ => None,
        };
        if let Some(at) = self.store_retry {
            // Nothing moves before the disk takes it, except that openings are answered.
            return [wait, Some(at)].into_iter().flatten().min();
        }
        [wait, check, bring, trial].into_iter().flatten().min()
    }

    /// Where the walk is.
    #[must_use]
    pub fn state(&self) -> &State {
        &self.record.state
    }

    fn wished(&mut self, now: Mono, wish: Rc<Wish>, effects: &mut Effects) {
        let text = wish.setting.to_string();
        let old = self.wish.replace(Rc::clone(&wish));
        let rekeyed = old.as_ref().is_some_and(|old| old.release_keys != wish.release_keys);
        if text != self.record.wanted {
            // Another wish is another chance, also for versions that failed.
            self.record.wanted = text;
            self.record.bad.clear();
            self.said = Said::default();
            self.forget_trouble();
            self.check.answered = false;
            self.turn_back(effects);
        } else if old.is_some() && !rekeyed && old.as_ref().is_some_and(|old| old.pins_allowed == wish.pins_allowed) {
            return;
        }
        self.pursue(now, effects);
    }

    /// Finds out what the wish means, or has it found out.
    fn pursue(&mut self, now: Mono, effects: &mut Effects) {
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
                match wish.pins_allowed {
                    true => self.head_for(target, effects),
                    false => {
                        self.said.check = format!(
                            "{} is not taken: the manufacturer allows signed releases only (allow_unsigned_pins)",
                            target.version
                        );
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

    fn checked(&mut self, now: Mono, answer: Result<Found, String>, effects: &mut Effects) {
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
    fn head_for(&mut self, target: Target, effects: &mut Effects) {
        let record = &mut self.record;
        if let (Some(slot), true) =
            (record.slots.active, record.slots.active().is_some_and(|active| active.is(&target)))
        {
            relabel(record, slot, &target);
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
    fn turn_back(&mut self, effects: &mut Effects) {
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

    fn downloaded(&mut self, now: Mono, result: Result<(), Trouble>, effects: &mut Effects) {
        let State::Downloading(target) = &self.record.state else { return };
        self.busy = false;
        match result {
            Ok(()) => {
                self.percent = 100;
                self.record.state = State::Verifying(target.clone());
            }
            Err(trouble) => self.trouble(now, trouble, effects),
        }
    }

    fn verified(&mut self, now: Mono, result: Result<Installed, VerifyTrouble>, effects: &mut Effects) {
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

    fn placed(&mut self, now: Mono, result: Result<(), Trouble>) {
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
    fn trouble(&mut self, now: Mono, trouble: Trouble, effects: &mut Effects) {
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

    /// The record could not be stored: everything is as it is on the disk.
    fn fall_back(&mut self, now: Mono, reason: &str) {
        if let Some((record, answered)) = self.before.take() {
            (self.record, self.answered) = (record, answered);
        }
        self.busy = false;
        self.check.running = false;
        reason.clone_into(&mut self.said.disk);
        self.store_retry = Some(now + STORE_RETRY);
    }

    fn watch(&mut self, now: Mono, sight: Sight) {
        if matches!(self.record.state, State::Probation { .. }) {
            self.trial.pause(now);
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
                // What was wished when the disk refused is not in the record.
                if let Some(wish) = self.wish.clone() {
                    self.wished(now, wish, effects);
                }
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
            State::Verifying(target) => Effect::Verify(Box::new(target.clone())),
            State::Placing(_, installed) => Effect::Place(self.record.slots.spare_slot(), Box::new(installed.clone())),
            State::Idle(_) | State::Staged | State::Waiting | State::Switching | State::Probation { .. } => return,
        };
        self.retry = None;
        self.busy = true;
        give(effects, next);
    }

    /// From a staged version to a committed one, as far as it goes now.
    fn try_out(&mut self, now: Mono, effects: &mut Effects) {
        let has_window = self.wish.as_ref().is_some_and(|wish| wish.has_window);
        let runs_active = self.server.program.is_some() && self.server.program == self.program();
        match self.record.state {
            State::Staged if has_window && self.record.slots.active().is_some() => {
                if let Some(program) = self.candidate() {
                    self.record.state = State::Waiting;
                    give(effects, Effect::Tell(Command::Switch { program }));
                }
            }
            // The window is gone from the configuration: the next opening decides, as it does without one.
            State::Waiting if self.wish.is_some() && !has_window && self.server.program != self.candidate() => {
                if let Some(program) = self.program() {
                    give(effects, Effect::Tell(Command::Switch { program }));
                }
                self.record.state = State::Staged;
            }
            State::Waiting if self.server.program.is_some() && self.server.program == self.candidate() => {
                self.record.slots.switch();
                give(effects, Effect::Point(self.record.slots.spare_slot().other()));
                self.begin_probation(now);
            }
            State::Switching if runs_active => self.begin_probation(now),
            State::Probation { .. } => {
                let frozen = !runs_active || matches!(self.server.phase, Phase::Disabled | Phase::NoVersion);
                if frozen {
                    self.trial.pause(now);
                } else {
                    self.trial.since = self.trial.since.or(Some(now));
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

    fn begin_probation(&mut self, now: Mono) {
        self.trial = Trial { since: Some(now), ..Trial::default() };
        self.record.state = State::Probation { restarts: 0 };
    }

    fn judge(&mut self, now: Mono, runs_active: bool, effects: &mut Effects) {
        let (watched, whole) = (self.trial.watched_at(now), self.probation());
        let crashes = if runs_active { self.server.crashes } else { 0 };
        if crashes > self.trial.forgiven {
            self.fail(now, "it ended unasked while it was on probation", effects);
        } else if watched >= whole && runs_active && self.server.phase == Phase::Running {
            self.record.state = State::Idle(Outcome::Committed);
            self.said.verdict.clear();
            // Something else may have been meant meanwhile.
            self.pursue(now, effects);
        } else if watched >= whole.saturating_mul(READY_FACTOR) {
            self.fail(now, "it did not become ready in time", effects);
        }
    }

    /// The active version has failed. Goes back to the one before, if there is one.
    fn fail(&mut self, now: Mono, reason: &str, effects: &mut Effects) {
        if !self.roll_back(reason) {
            self.trial = Trial { forgiven: self.server.crashes, ..Trial::default() };
            return;
        }
        if let (Some(slot), Some(program)) = (self.record.slots.active, self.program()) {
            give(effects, Effect::Point(slot));
            give(effects, Effect::Tell(Command::Switch { program }));
        }
        self.pursue(now, effects);
    }

    /// Whether there was a version to go back to.
    fn roll_back(&mut self, reason: &str) -> bool {
        let Some(failed) = self.record.slots.active().cloned() else { return false };
        if self.record.slots.spare().is_none() {
            let version = failed.version;
            self.said.verdict = format!("{version} fails ({reason}) and no other version is here: choose another one");
            return false;
        }
        self.record.remember_bad(&failed);
        self.record.slots.switch();
        self.record.state = State::Idle(Outcome::RolledBack);
        self.said.verdict =
            format!("{} was rolled back: {reason}; choose another version, or ask for a retry", failed.version);
        true
    }

    /// Answers an opening, once nothing is waited for any more.
    fn answer(&mut self, now: Mono, effects: &mut Effects) {
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
            give(effects, Effect::Point(self.record.slots.spare_slot().other()));
        }
        give(effects, Effect::Tell(Command::Run { opening, program: self.program() }));
        if let (State::Waiting, Some(program)) = (&self.record.state, self.candidate()) {
            give(effects, Effect::Tell(Command::Switch { program }));
        }
    }

    fn waiting(&self, now: Mono) -> Wait {
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

    /// Puts the record in front of everything else, if this step has changed it.
    fn settle(&mut self, (was, answered): (Record, u64), mut effects: Effects) -> Effects {
        self.before = None;
        if self.record != was {
            let store = Effect::Store(Box::new(self.record.clone()));
            let stored = effects.insert(0, store);
            assert!(stored.is_ok(), "a step asks for no more than its effects can hold");
            self.before = Some((was, answered));
        }
        effects
    }

    fn may_check(&self) -> bool {
        let asks = self.wish.as_ref().is_some_and(|wish| !matches!(wish.setting, VersionSetting::Url(_)));
        asks && self.reach == Reach::Reached && !self.check.running
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
    }

    fn minutes(&self, count: u32) -> Duration {
        self.policy.minute.saturating_mul(count)
    }

    fn probation(&self) -> Duration {
        let minutes = self.wish.as_ref().and_then(|wish| wish.probation_minutes).unwrap_or(PROBATION_MINUTES);
        self.minutes(minutes)
    }

    /// Until the trial is judged next, from when watching began.
    fn trial_left(&self) -> Duration {
        let whole = self.probation();
        // A version that is ready when its time is over is committed; one that is not gets more.
        let ready = self.server.phase == Phase::Running;
        let limit = if ready { whole } else { whole.saturating_mul(READY_FACTOR) };
        limit.saturating_sub(self.trial.watched)
    }

    fn program_in(&self, slot: Slot) -> Option<Program> {
        let content = self.record.slots.content(slot)?;
        Some(Program { version: content.version.clone(), path: self.policy.layout.executable(slot) })
    }

    fn program(&self) -> Option<Program> {
        self.program_in(self.record.slots.active?)
    }

    fn candidate(&self) -> Option<Program> {
        self.program_in(self.record.slots.spare_slot())
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
        content.pinned = target.is_pin();
        record.slots.set(slot, Some(content));
    }
}
