//! What a person gave at a door: stored, joined, and taken back when it does not work.
//!
//! A network that was there under the same name is kept under a key of its own before it is overwritten, so that a power
//! cut in the middle does not lose the password that worked.

use std::time::Duration;

use board::{
    Mono,
    network::{JoinError, Link, Manager, NetworkError, Profile},
};

use super::{Effect, Effects, Machine, PAUSE, tell, work::Work};
use crate::network::{
    Given, Joining, Outcome,
    profiles::{self, Step},
};

/// A person waits for no longer than this, whatever the network manager does.
const GIVING_MAX: Duration = Duration::from_secs(150);
/// Nor for longer than this until something else is taken back, which goes before.
const BEFORE_MAX: Duration = Duration::from_secs(20);
/// The doors wait for longer than both.
pub(in crate::network) const TOGETHER_MAX: Duration = Duration::from_secs(GIVING_MAX.as_secs() + BEFORE_MAX.as_secs());

/// What a person gave and what became of it.
#[derive(Clone, Debug)]
pub(super) struct Giving {
    pub(super) attempt: u64,
    pub(super) given: Given,
    pub(super) key: String,
    /// The profile of the same network that was there before.
    pub(super) before: Option<Profile>,
    pub(super) stage: GivingStage,
    until: Mono,
    /// It is known what was there before anything was stored.
    listed: bool,
    /// The network manager went in the middle of it, and it was begun once more.
    again: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum GivingStage {
    /// What is there?
    List,
    /// What was before is kept.
    Keep,
    Store,
    Join,
    TakeBack,
}

impl Giving {
    pub(super) fn deadline(&self) -> Mono {
        self.until
    }
}

impl Machine {
    pub(super) fn give(&mut self, now: Mono, attempt: u64, given: Given, effects: &mut Effects) {
        self.joining = Joining { attempt, outcome: Outcome::Trying, ..self.joining.clone() };
        if !self.may_give() {
            let none =
                if self.is_disabled() { "this device is not to manage networks" } else { "no network manager answers" };
            let why = self.obstacle().unwrap_or_else(|| none.into());
            self.joining.outcome = Outcome::Failed(why);
            return;
        }
        if let Some(giving) = self.giving.as_mut().filter(|giving| giving.stage == GivingStage::TakeBack) {
            giving.until = giving.until.min(now + BEFORE_MAX);
            self.next_giving = Some((attempt, given));
            return;
        }
        // Whatever goes on is dropped: somebody waits. What it has done to the profiles is found by comparing.
        if self.work.take().is_some() {
            tell(effects, Effect::Cancel);
            self.stale = true;
        }
        let key = profiles::of_given(&given, None).key;
        self.undo.retain(|step| profiles::successor(step.key()).unwrap_or(step.key()) != key);
        self.steps.clear();
        let until = now + GIVING_MAX;
        let (before, stage) = (None, GivingStage::List);
        self.giving = Some(Giving { attempt, given, key, before, stage, until, listed: false, again: false });
    }

    /// The network manager is there, or may be in a moment: it is restarted now and then.
    pub(super) fn may_give(&self) -> bool {
        !self.is_disabled() && !self.is_missing && !matches!(self.links.manager, Manager::Unusable(_))
    }

    /// The network manager went in the middle of it, which says nothing of what was given: the same once more when it is
    /// back. Whether there will be.
    pub(super) fn give_again(&mut self, now: Mono) -> bool {
        let Some(giving) = &mut self.giving else { return false };
        if giving.again || giving.stage == GivingStage::TakeBack {
            return false;
        }
        (giving.again, giving.stage) = (true, GivingStage::List);
        self.pause = Some(now + PAUSE);
        true
    }

    pub(super) fn fail_giving(&mut self, why: &str) {
        let (waiting, giving) = (self.next_giving.take(), self.giving.take());
        let taking_back = giving.as_ref().is_some_and(|giving| giving.stage == GivingStage::TakeBack);
        if taking_back {
            // It is done later.
            self.undo.append(&mut self.steps);
            self.stale = true;
        }
        if waiting.is_some() || (giving.is_some() && !taking_back) {
            self.joining.outcome = Outcome::Failed(why.into());
        }
    }

    /// The person has waited long enough.
    pub(super) fn limit_giving(&mut self, now: Mono, effects: &mut Effects) {
        let Some(giving) = self.giving.as_ref().filter(|giving| giving.until <= now) else { return };
        let (key, stage) = (giving.key.clone(), giving.stage);
        let late = match self.work.take() {
            Some((Work::Apply(steps), _)) if stage == GivingStage::TakeBack => steps,
            Some(_) | None => Vec::new(),
        };
        tell(effects, Effect::Cancel);
        (self.stale, self.steps) = (true, late);
        match stage {
            GivingStage::Join => self.given_joined(now, Err(JoinError::TimedOut(self.name_of(&key)))),
            GivingStage::List | GivingStage::Keep | GivingStage::Store | GivingStage::TakeBack => {
                self.fail_giving("the network manager did not answer in time");
            }
        }
    }

    /// What is there is known: what was before is kept, or the new one is stored.
    pub(super) fn given_listed(&mut self, interface: Option<&str>) {
        let Some(giving) = &mut self.giving else { return };
        let present = self.present.as_deref().unwrap_or_default();
        let find = |key: &str| present.iter().find(|profile| profile.key == key);
        let proven = self.proofs.proven.contains(&giving.key);
        let kept = find(&profiles::before_key(&giving.key)).filter(|_| !proven);
        let last = find(&giving.key).filter(|last| !profiles::is_untold(last));
        if !std::mem::replace(&mut giving.listed, true) {
            // What was kept is proven, and what lies in its place not yet.
            giving.before = kept.or(last).map(|before| Profile { key: giving.key.clone(), ..before.clone() });
        }
        self.stale = true;
        let new = profiles::of_given(&giving.given, interface);
        match last.filter(|last| kept.is_none() && !profiles::is_same_link(last, &new)) {
            Some(last) => {
                giving.stage = GivingStage::Keep;
                self.steps = vec![Step::Put(profiles::before(last))];
            }
            None => self.store_given(interface),
        }
    }

    fn store_given(&mut self, interface: Option<&str>) {
        let Some(giving) = &mut self.giving else { return };
        giving.stage = GivingStage::Store;
        let new = profiles::of_given(&giving.given, interface);
        // The configuration's own can wait; a person does.
        let present = self.present.as_deref().unwrap_or_default();
        self.steps = profiles::give(new, present, |key| self.record.worked.has(key));
    }

    /// Steps of the giving under way have ended.
    pub(super) fn given_applied(
        &mut self,
        now: Mono,
        failed: Vec<(Step, NetworkError)>,
        done: &[String],
        effects: &mut Effects,
    ) {
        let Some(giving) = &mut self.giving else { return };
        let why = |failed: &[(Step, NetworkError)]| {
            failed.last().map_or_else(|| "the network could not be stored".to_owned(), |(_, error)| error.to_string())
        };
        match giving.stage {
            GivingStage::Keep if failed.is_empty() => {
                let wants = self.wants.as_ref();
                let interface = wants.and_then(|wants| wants.network.hotspot_interface.clone());
                self.store_given(interface.as_deref());
            }
            GivingStage::Store if done.contains(&giving.key) => giving.stage = GivingStage::Join,
            GivingStage::Keep | GivingStage::Store => {
                let gone = failed.last().is_some_and(|(_, error)| matches!(error, NetworkError::Absent(_)));
                if !gone || !self.give_again(now) {
                    self.fail_giving(&why(&failed));
                }
            }
            GivingStage::TakeBack => {
                self.giving = None;
                if !failed.is_empty() {
                    self.undo = failed.into_iter().map(|(step, _)| step).collect();
                    (self.stale, self.sync_at) = (true, now + self.list_wait.next_delay());
                }
                if let Some((attempt, given)) = self.next_giving.take() {
                    self.give(now, attempt, given, effects);
                }
            }
            GivingStage::List | GivingStage::Join => {}
        }
    }

    /// The network that was given was joined, or not.
    pub(super) fn given_joined(&mut self, now: Mono, result: Result<Link, JoinError>) {
        let gone = matches!(result, Err(JoinError::Network(NetworkError::Restarted | NetworkError::Absent(_))));
        if gone && self.give_again(now) {
            return;
        }
        let Some(giving) = &mut self.giving else { return };
        self.joining.attempt = giving.attempt;
        let error = match result {
            Ok(link) => {
                self.joining.outcome = Outcome::Joined(link);
                let (key, before) = (giving.key.clone(), profiles::before_key(&giving.key));
                self.giving = None;
                if self.present_of(&before).is_some() {
                    self.proofs.proven.push(key);
                    (self.stale, self.sync_at) = (true, Mono::BOOT);
                }
                return;
            }
            Err(error) => error,
        };
        self.joining.outcome = Outcome::Failed(error.to_string().into());
        let useless = matches!(error, JoinError::WrongPassword(_) | JoinError::Unsuitable { .. });
        if useless || giving.before.is_some() {
            // What worked before, or nothing: a network that refuses us must not stand before the others, and a password
            // that was not proven right not in the place of one that was.
            let present = self.present.as_deref().unwrap_or_default();
            self.steps = profiles::take_back(&giving.key, giving.before.as_ref(), present);
            (giving.stage, giving.until) = (GivingStage::TakeBack, now + GIVING_MAX);
        } else {
            self.giving = None;
        }
    }
}
