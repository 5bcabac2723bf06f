//! One go at every network, while the device is away from what it counts as a connection.

use std::time::Duration;

use board::{
    Mono,
    network::{Link, Links, Medium, Profile, Radio, Seen},
};

use super::{Effect, Effects, Machine, tell, work::Work};
use crate::network::{Connectivity, choose::Choice, online::counts};

/// The network manager connects by itself after a start and a loss; it is given this long before anything is tried.
pub(super) const GRACE: Duration = Duration::from_secs(15);

/// Between two rounds at first.
pub(super) const ROUND_FIRST: Duration = Duration::from_secs(15);

/// Between two rounds while nothing changes. The network manager looks for what it knows meanwhile, too.
pub(super) const ROUND_MAX: Duration = Duration::from_secs(10 * 60);

/// What the network manager began by itself is let end in a round for this long: as long as a join of ours may take.
const OTHERS_MAX: Duration = Duration::from_secs(60);

/// A network that was joined and has no internet is left after this.
pub(super) const VERIFY: Duration = Duration::from_secs(30);

/// One go at every network.
#[derive(Clone, Debug)]
pub(super) struct Round {
    /// Somebody asked for it, and waits for its end.
    pub(super) number: Option<u64>,
    pub(super) began: Mono,
    pub(super) stage: RoundStage,
    /// Others are let end until then, once; `None` before there were any.
    others: Option<Mono>,
}

impl Round {
    pub(super) fn new(number: Option<u64>, now: Mono) -> Round {
        Round { number, began: now, stage: RoundStage::Look, others: None }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum RoundStage {
    Look,
    /// These are left, in this order.
    Try(Vec<String>),
    /// Joined by this one; is there internet?
    Verify {
        key: Option<String>,
        until: Mono,
        left: Vec<String>,
    },
    /// Everything was tried; others may connect meanwhile.
    Rest,
}

impl Machine {
    pub(super) fn may_begin_round(&self) -> bool {
        let profiles = self.present.as_ref().is_some_and(|present| !present.is_empty());
        let free = !self.hotspot || self.free_radios().len() == self.links.radios.len() || self.has_wired();
        self.round.is_none()
            && self.can_work()
            && self.away().is_some()
            && profiles
            && free
            && !self.busy
            && self.giving.is_none()
    }

    pub(super) fn has_wired(&self) -> bool {
        self.present.as_ref().is_some_and(|present| present.iter().any(|profile| profile.medium == Medium::Wired))
    }

    /// No round that somebody waits for is over before this, unless it was good: others connect meanwhile.
    pub(super) fn rest_end(&self, round: &Round) -> Mono {
        round.began + if round.number.is_some() { self.policy.minute } else { Duration::ZERO }
    }

    /// A round that somebody waits for is over then in any case.
    pub(super) fn round_end(&self, round: &Round) -> Mono {
        round.began + 5 * self.policy.minute
    }

    /// Somebody else is connecting a radio that is free: to take it away would cost what was won.
    fn others_come(&self) -> bool {
        let trying = self.round.as_ref().is_some_and(|round| matches!(round.stage, RoundStage::Try(_)));
        let free = self.free_radios();
        let coming = |radio: &Radio| self.links.coming.contains(&radio.interface);
        trying && self.work.is_none() && free.iter().any(coming)
    }

    /// They are let end now.
    pub(super) fn lets_others(&self, now: Mono) -> bool {
        self.others_at().is_some_and(|until| now < until)
    }

    /// When that is over.
    pub(super) fn others_at(&self) -> Option<Mono> {
        self.round.as_ref()?.others.filter(|_| self.others_come())
    }

    /// What somebody else connected may be good.
    pub(super) fn others_came(&mut self, now: Mono, before: &Links) {
        let Some(Round { stage: RoundStage::Try(left), others: Some(_), .. }) = &self.round else { return };
        let came = |link: &&Link| before.coming.contains(&link.interface) && counts(link);
        let Some(link) = self.links.links.iter().find(came).filter(|_| self.work.is_none()) else { return };
        let left = left.iter().filter(|key| link.key.as_ref() != Some(key)).cloned().collect();
        self.set_stage(RoundStage::Verify { key: link.key.clone(), until: now + VERIFY, left });
    }

    /// Takes the round on as far as it goes without waiting.
    pub(super) fn move_round(&mut self, now: Mono, effects: &mut Effects) {
        let Some(round) = &self.round else { return };
        let known = !matches!(self.connectivity(), Connectivity::Unknown);
        let good = known && self.away().is_none();
        let late = round.number.is_some() && self.round_end(round) <= now;
        if good || late || !self.can_work() {
            return self.end_round(now, effects);
        }
        match &round.stage {
            RoundStage::Verify { key, until, left } if *until <= now => {
                let (key, left) = (key.clone(), left.clone());
                if let Some(key) = key {
                    self.attempts.failed(now, &key, true, false, "no internet there");
                    tell(effects, Effect::Note("no internet there".to_owned()));
                }
                self.set_stage(RoundStage::Try(left));
            }
            RoundStage::Rest if self.rest_end(round) <= now => self.end_round(now, effects),
            RoundStage::Look | RoundStage::Try(_) | RoundStage::Verify { .. } | RoundStage::Rest => {}
        }
        if self.work.is_some() {
            return;
        }
        if self.round.as_ref().is_some_and(|round| round.stage == RoundStage::Look) && !self.can_hear() {
            self.line_up(now);
        }
        let others_come = self.others_come();
        let Some(round) = &mut self.round else { return };
        if others_come {
            round.others.get_or_insert(now + OTHERS_MAX);
        } else if round.stage == RoundStage::Try(Vec::new()) && round.number.is_none() {
            self.end_round(now, effects);
        }
    }

    /// Listening to the air would tell something about a network of ours.
    pub(super) fn can_hear(&self) -> bool {
        let wireless = |profile: &Profile| matches!(profile.medium, Medium::Wifi { .. });
        let ours = self.present.as_ref().is_none_or(|present| present.iter().any(wireless));
        ours && self.free_radios().iter().any(|radio| radio.blocked.is_none())
    }

    pub(super) fn end_round(&mut self, now: Mono, effects: &mut Effects) {
        self.drop_round_work(effects);
        let Some(round) = self.round.take() else { return };
        if let Some(number) = round.number {
            self.joining.round_ended = number;
        }
        self.round_at = now + self.round_wait.next_delay();
    }

    pub(super) fn drop_round_work(&mut self, effects: &mut Effects) {
        let of_round = |work: &Work| matches!(work, Work::Join(_) | Work::JoinKnown(_) | Work::Scan(_));
        if self.round.is_some() && self.giving.is_none() && self.work.as_ref().is_some_and(|(work, _)| of_round(work)) {
            self.work = None;
            tell(effects, Effect::Cancel);
        }
    }

    pub(super) fn set_stage(&mut self, stage: RoundStage) {
        if let Some(round) = &mut self.round {
            round.stage = stage;
        }
    }

    /// Who is tried in this round, in which order.
    pub(super) fn line_up(&mut self, now: Mono) {
        let profiles = self.present.as_deref().unwrap_or_default();
        let in_range: Vec<String> =
            profiles.iter().filter(|profile| self.is_seen(profile)).map(|profile| profile.key.clone()).collect();
        let all = self.round.as_ref().is_some_and(|round| round.number.is_some());
        let near: Vec<Seen> = self.seen.iter().filter(|seen| self.is_near(seen)).cloned().collect();
        let choice = Choice { profiles, seen: &near, links: &self.links.links, radios: &self.free_radios() };
        let candidates = self.attempts.candidates(now, choice, all);
        if in_range != self.in_range {
            self.in_range = in_range;
            self.round_wait.reset();
        }
        self.set_stage(RoundStage::Try(candidates));
    }
}
