//! What a person gave at a door: stored, joined, and taken back when it does not work.

use board::network::Profile;

use super::{Effect, Effects, Machine, tell};
use crate::network::{Given, Joining, Outcome, profiles};

/// What a person gave and what became of it.
#[derive(Clone, Debug)]
pub(super) struct Giving {
    pub(super) attempt: u64,
    pub(super) given: Given,
    pub(super) key: String,
    /// The profile of the same network that was there before.
    pub(super) before: Option<Profile>,
    pub(super) stage: GivingStage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum GivingStage {
    Store,
    Join,
    TakeBack,
}

impl Machine {
    pub(super) fn give(&mut self, attempt: u64, given: Given, effects: &mut Effects) {
        self.joining = Joining { attempt, outcome: Outcome::Trying, ..self.joining.clone() };
        if !self.can_work() {
            let why = self.obstacle().unwrap_or_else(|| "this device is not to manage networks".into());
            self.joining.outcome = Outcome::Failed(why);
            return;
        }
        if self.giving.as_ref().is_some_and(|giving| giving.stage == GivingStage::TakeBack) {
            self.next_giving = Some((attempt, given));
            return;
        }
        // Whatever goes on is dropped: somebody waits. What it has done to the profiles is found by comparing.
        if self.work.take().is_some() {
            tell(effects, Effect::Cancel);
            self.stale = true;
        }
        let profile = profiles::of_given(&given, None);
        let key = profile.key;
        self.giving = Some(Giving { attempt, given, key, before: None, stage: GivingStage::Store });
        self.present = None;
    }

    pub(super) fn fail_giving(&mut self, why: &str) {
        let (waiting, giving) = (self.next_giving.take(), self.giving.take());
        if waiting.is_some() || giving.is_some_and(|giving| giving.stage != GivingStage::TakeBack) {
            self.joining.outcome = Outcome::Failed(why.into());
        }
    }
}
