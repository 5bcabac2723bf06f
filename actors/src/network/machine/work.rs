//! Slow things of the network manager: what is done next, and what follows from how it ended.

use std::time::Duration;

use board::{
    Mono,
    network::{JoinError, Link, NetworkError, Profile, Seen},
};

use super::{
    Effect, Effects, Machine, PAUSE,
    giving::GivingStage,
    keeping::SYNC_FIRST,
    round::{Round, RoundStage, VERIFY},
    tell,
};
use crate::network::{
    SEEN_MAX,
    profiles::{self, Step},
};

/// Slow things of the network manager; one at a time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Work {
    /// List our profiles.
    List,
    /// Change them.
    Apply(Vec<Step>),
    /// Connect by one of them.
    Join(String),
    /// Connect by one of somebody else's, on this interface if one is named.
    JoinKnown(Option<String>),
    /// Listen to the air, on this interface if one is named.
    Scan(Option<String>),
    /// Set the radio.
    Tune(Tuning),
}

/// How the radio is set; `None` is the system's own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tuning {
    /// Power save.
    pub power_save: Option<bool>,
    /// Two letters.
    pub country: Option<Box<str>>,
}

/// How it ended.
#[derive(Clone, Debug, PartialEq)]
pub enum Done {
    /// [`Work::List`]
    Listed(Result<Vec<Profile>, NetworkError>),
    /// [`Work::Apply`]: each step and how it went; those that were not begun are missing.
    Applied(Vec<(Step, Result<(), NetworkError>)>),
    /// [`Work::Join`]
    Joined(String, Result<Link, JoinError>),
    /// [`Work::JoinKnown`]
    JoinedKnown(Result<bool, JoinError>),
    /// [`Work::Scan`]
    Scanned(Result<Vec<Seen>, NetworkError>),
    /// [`Work::Tune`]
    Tuned(Tuning, Result<(), NetworkError>),
}

/// One slow thing of the network manager takes at most this; its own limits are below it.
pub(super) const WORK_MAX: Duration = Duration::from_secs(3 * 60);

impl Machine {
    /// What is done next, if anything is to be done.
    pub(super) fn next_work(&mut self, now: Mono) -> Option<Work> {
        if !self.can_work() {
            return None;
        }
        if let Some(giving) = &self.giving {
            return Some(match giving.stage {
                GivingStage::List => Work::List,
                GivingStage::Keep | GivingStage::Store | GivingStage::TakeBack => {
                    Work::Apply(std::mem::take(&mut self.steps))
                }
                GivingStage::Join => Work::Join(giving.key.clone()),
            });
        }
        if !self.steps.is_empty() {
            return Some(Work::Apply(std::mem::take(&mut self.steps)));
        }
        if self.stale && self.sync_at <= now {
            return Some(Work::List);
        }
        if self.is_untuned() && self.tune_at <= now {
            return Some(Work::Tune(self.tuning()));
        }
        while let Some(key) = self.rejoin.pop() {
            if self.present_of(&key).is_some() {
                return Some(Work::Join(key));
            }
        }
        if let Some(interface) = self.proofs.give_back.take() {
            return Some(Work::JoinKnown(Some(interface)));
        }
        if self.rescan {
            return Some(Work::Scan(self.radio().map(|radio| radio.interface.clone())));
        }
        if let Some(listen) = self.watch_work(now) {
            return Some(listen);
        }
        let scan = Work::Scan(self.radio().map(|radio| radio.interface.clone()));
        let there = |key: &String| self.present.iter().flatten().any(|profile| profile.key == *key);
        let lets_others = self.lets_others(now);
        // A cable for a neighbour without a way out is not what the device is offline by: it is left to that.
        let neighbour = |link: &Link| link.ssid.is_none() && link.key.is_some() && !link.default_route;
        let radio = self.radio().filter(|_| self.links.links.iter().any(neighbour));
        let keeps_to = radio.map(|radio| radio.interface.clone());
        match &mut self.round.as_mut()?.stage {
            RoundStage::Look => Some(scan),
            RoundStage::Try(_) if lets_others => None,
            // The configuration may have changed since they were lined up.
            RoundStage::Try(left) => match left.iter().position(there) {
                Some(next) => left.drain(..=next).next_back().map(Work::Join),
                None => {
                    left.clear();
                    Some(Work::JoinKnown(keeps_to))
                }
            },
            RoundStage::Verify { .. } | RoundStage::Rest => None,
        }
    }

    pub(super) fn done(&mut self, now: Mono, done: Done, effects: &mut Effects) {
        match done {
            Done::Listed(Ok(present)) => self.listed(now, present),
            Done::Listed(Err(error)) => self.unlisted(now, &error),
            Done::Applied(results) => self.applied(now, results, effects),
            Done::Joined(key, result) => self.joined(now, &key, result, effects),
            Done::JoinedKnown(result) => self.joined_known(now, &result),
            Done::Scanned(Ok(mut seen)) => {
                seen.truncate(SEEN_MAX);
                self.rescan = false;
                self.scanned(now, seen);
                let seen = std::rc::Rc::clone(&self.seen);
                self.watch_heard(now, Some(&seen));
            }
            // What was heard last is still the best that is known.
            Done::Scanned(Err(_)) => {
                self.rescan = false;
                self.scanned(now, self.seen.to_vec());
                self.watch_heard(now, None);
            }
            Done::Tuned(tuning, result) => {
                self.untuned = result.as_ref().err().map(ToString::to_string);
                match result {
                    Ok(()) => self.tuned = Some(tuning),
                    Err(_) => self.tune_at = now + SYNC_FIRST,
                }
            }
        }
    }

    pub(super) fn joined(&mut self, now: Mono, key: &str, result: Result<Link, JoinError>, effects: &mut Effects) {
        let (shown, seen) = (self.name_of(key), self.present_of(key).is_some_and(|profile| self.is_seen(profile)));
        let given = self.giving.as_ref().is_some_and(|giving| giving.key == key);
        match &result {
            Ok(link) => {
                if !self.is_unproven(key) {
                    self.attempts.forget(key);
                }
                self.online.stirred(now);
                tell(effects, Effect::Note(format!("joined {shown} at {}", link.interface)));
            }
            Err(JoinError::Network(NetworkError::Restarted)) => {
                // Nothing of the network's is known by that.
                self.pause = Some(now + PAUSE);
                if !given {
                    self.rejoin.extend(self.round.is_none().then(|| key.to_owned()));
                    return;
                }
            }
            Err(error) => {
                let refused = matches!(error, JoinError::WrongPassword(_) | JoinError::Unsuitable { .. });
                let why = error.to_string();
                if self.attempts.failed(now, key, seen, refused, &why) {
                    tell(effects, Effect::Note(format!("not joined: {why}")));
                }
                match profiles::successor(key) {
                    Some(change) => self.nothing_before(change),
                    None if self.is_unproven(key) && !given => self.not_taken(key, &why, effects),
                    None => {}
                }
            }
        }
        self.watch_joined(now, key, result.is_ok());
        if given {
            return self.given_joined(now, result);
        }
        let Some(Round { stage: RoundStage::Try(left), .. }) = &mut self.round else { return };
        if result.is_ok() {
            let (left, until) = (std::mem::take(left), now + VERIFY);
            self.set_stage(RoundStage::Verify { key: Some(key.to_owned()), until, left });
        }
    }

    /// What people call it.
    pub(super) fn name_of(&self, key: &str) -> String {
        self.present_of(key).map_or_else(|| key.to_owned(), profiles::shown)
    }

    pub(super) fn joined_known(&mut self, now: Mono, result: &Result<bool, JoinError>) {
        let stage = match result {
            Ok(true) => RoundStage::Verify { key: None, until: now + VERIFY, left: Vec::new() },
            Ok(false) | Err(_) => RoundStage::Rest,
        };
        self.set_stage(stage);
    }

    pub(super) fn scanned(&mut self, now: Mono, seen: Vec<Seen>) {
        self.seen = seen.into();
        if self.round.as_ref().is_some_and(|round| round.stage == RoundStage::Look) {
            self.line_up(now);
        }
    }

    /// The work under way did not end in time.
    pub(super) fn given_up(&mut self, now: Mono, effects: &mut Effects) {
        let Some((work, _)) = self.work.take() else { return };
        let late = || NetworkError::Absent("it did not answer in time".to_owned());
        match work {
            Work::List => self.done(now, Done::Listed(Err(late())), effects),
            Work::Apply(_) => self.sync_failed(now, late().to_string()),
            Work::Join(key) => {
                let name = self.name_of(&key);
                self.done(now, Done::Joined(key, Err(JoinError::TimedOut(name))), effects);
            }
            Work::JoinKnown(_) => self.done(now, Done::JoinedKnown(Ok(false)), effects),
            Work::Scan(_) => self.done(now, Done::Scanned(Err(late())), effects),
            Work::Tune(tuning) => self.done(now, Done::Tuned(tuning, Err(late())), effects),
        }
    }
}
