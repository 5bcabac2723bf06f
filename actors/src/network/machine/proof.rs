//! Changes of a network in use have to prove themselves.
//!
//! A configuration is written by people far away. Before it changes a network that the device is connected by, what was
//! there is kept under a key of its own ([`profiles::before`]): the network manager has both then, also after a power cut,
//! and whatever is tried next, one of them is what worked. The change is proven once the internet was reached by it and by
//! nothing else; what was before goes then. One that is not is left again, named, and tried again only where what was
//! before leads nowhere either.

use std::time::Duration;

use board::{
    Mono,
    network::{Address, Link, Medium, Profile},
};

use super::{Effect, Effects, Machine, tell, work::Work};
use crate::network::{
    Connectivity,
    online::counts,
    profiles::{self, Step},
};

/// A changed network has this long to lead to the internet.
const PROVE: Duration = Duration::from_secs(60);
/// The first question after it was joined.
const ASK_AFTER: Duration = Duration::from_secs(3);
/// Between two questions.
const ASK_AGAIN: Duration = Duration::from_secs(10);

/// What is known of changes that are not proven.
#[derive(Clone, Debug, Default)]
pub(super) struct Proofs {
    trial: Option<Trial>,
    /// Keys of changes that are: what was before can go.
    pub(super) proven: Vec<String>,
    /// Keys of changes that an earlier agent has written: whether the link that is up was made before that or after, nobody
    /// knows. They are written and joined once more.
    pub(super) again: Vec<String>,
    /// Keys of changes that were tried, and what was wrong.
    not_taken: Vec<(String, String)>,
    /// This cable is given back to whoever the system has for it.
    pub(super) give_back: Option<String>,
}

/// The device is connected by a changed network; is there internet?
#[derive(Clone, Debug)]
struct Trial {
    key: String,
    until: Mono,
    /// `None` while a question is under way.
    ask_at: Option<Mono>,
}

impl Machine {
    /// What was there before a step is kept first, where the step could cut the device off. The step itself is found again
    /// by comparing. What cannot be kept is not changed, and named.
    pub(super) fn carefully(&self, steps: Vec<Step>) -> (Vec<Step>, Vec<String>) {
        let mut unkept = Vec::new();
        let mut careful = Vec::with_capacity(steps.len());
        for step in steps {
            match step {
                Step::Put(wanted) => match self.worth_keeping(&wanted) {
                    Some(before) if profiles::is_untold(&before) => {
                        let why = "its present password is not told, so it cannot be kept until the new one works";
                        unkept.push(format!("network {:?}: {why}", wanted.key));
                    }
                    before => careful.push(Step::Put(before.unwrap_or(wanted))),
                },
                Step::Remove(_) => careful.push(step),
            }
        }
        (careful, unkept)
    }

    fn worth_keeping(&self, wanted: &Profile) -> Option<Profile> {
        // Who is away has nothing to lose; who has not looked yet may have.
        let connected = matches!(self.connectivity(), Connectivity::Online { .. } | Connectivity::Unknown);
        if !connected || self.present_of(&profiles::before_key(&wanted.key)).is_some() {
            return None;
        }
        let present = self.present_of(&wanted.key);
        if let Some(present) = present.filter(|present| self.is_in_use(&present.key)) {
            return (!profiles::is_same_link(present, wanted)).then(|| profiles::before(present));
        }
        // A cable that is somebody else's now: most get their address by DHCP.
        let interface = wanted.interface.as_ref().filter(|_| wanted.medium == Medium::Wired)?;
        let taken = self.links.links.iter().any(|link| link.interface == *interface && counts(link));
        let plain = || Profile { address: Address::Auto, gateway: None, dns: Vec::new(), ..profiles::before(wanted) };
        taken.then(plain).filter(|plain| !profiles::is_same_link(plain, wanted))
    }

    /// Profiles were listed for the first time: what an earlier agent was in the middle of goes on.
    pub(super) fn resume_changes(&mut self) {
        let keys = self.links.links.iter().filter_map(|link| link.key.clone());
        self.proofs.again = keys.filter(|key| self.is_unproven(key)).collect();
    }

    /// The device is connected by this one.
    pub(super) fn is_in_use(&self, key: &str) -> bool {
        self.links.links.iter().any(|link| link.key.as_deref() == Some(key))
    }

    /// It was changed, and what was before is there still.
    pub(super) fn is_unproven(&self, key: &str) -> bool {
        self.present_of(key).is_some() && self.present_of(&profiles::before_key(key)).is_some()
    }

    /// Looks whether a change has proven itself, or never will.
    pub(super) fn look_at_changes(&mut self, now: Mono, effects: &mut Effects) {
        let Some((key, link, changed)) = self.changed_link() else {
            self.proofs.trial = None;
            return;
        };
        let others = self.is_beside_another(&link);
        let online = matches!(self.connectivity(), Connectivity::Online { .. });
        if !changed {
            // What worked before leads nowhere either: the change may be what is needed now.
            self.proofs.trial = None;
            if !online && !others && self.may_try_changes() && self.attempts.next(&key).is_none_or(|at| at <= now) {
                self.rejoin.push(key);
            }
            return;
        }
        if profiles::is_given_key(&key) || (others && online && !link.default_route) {
            // A password is proven by being let in; and what leads nowhere on purpose by an address.
            return self.prove(&key);
        }
        let due = online || self.attempts.next(&key).is_none_or(|at| at <= now);
        if others || !due || !self.may_try_changes() {
            self.proofs.trial = None;
            return;
        }
        match &mut self.proofs.trial {
            Some(trial) if trial.key == key => {
                if trial.until <= now {
                    // The fleet server was called at once when the link came: its word is as new as the link by now.
                    if online {
                        return self.prove(&key);
                    }
                    let why = "there is no internet by it";
                    self.attempts.failed(now, &key, true, true, why);
                    self.not_taken(&key, why, effects);
                } else if trial.ask_at.is_some_and(|at| at <= now) {
                    trial.ask_at = None;
                    tell(effects, Effect::Ask(self.question()));
                }
            }
            trial => *trial = Some(Trial { key, until: now + PROVE, ask_at: Some(now + ASK_AFTER) }),
        }
    }

    /// The link whose network was changed and not proven: the key of the change, and whether it is in force there.
    fn changed_link(&self) -> Option<(String, Link, bool)> {
        self.links.links.iter().find_map(|link| {
            let used = link.key.as_deref()?;
            let (key, changed) = profiles::successor(used).map_or((used, true), |key| (key, false));
            let settled = |list: &[String]| list.iter().any(|one| one == key);
            let open = self.is_unproven(key) && !settled(&self.proofs.proven) && !settled(&self.proofs.again);
            open.then(|| (key.to_owned(), link.clone(), changed))
        })
    }

    /// What can be reached may be reached by another link than this.
    fn is_beside_another(&self, link: &Link) -> bool {
        self.links.links.iter().any(|other| other.default_route && other.interface != link.interface)
    }

    /// Nobody else is at work on the links.
    pub(super) fn may_try_changes(&self) -> bool {
        let joining = matches!(self.work, Some((Work::Join(_) | Work::JoinKnown(_), _)));
        let free = self.giving.is_none() && self.round.is_none() && !self.busy;
        self.can_work() && !joining && free && self.rejoin.is_empty() && self.proofs.give_back.is_none()
    }

    /// When time alone takes a change on.
    pub(super) fn proof_at(&self) -> Option<Mono> {
        let (key, link, changed) = self.changed_link()?;
        if !self.may_try_changes() {
            return None;
        }
        match &self.proofs.trial {
            Some(trial) => Some(trial.ask_at.map_or(trial.until, |at| at.min(trial.until))),
            None if self.is_beside_another(&link) => None,
            None => match (matches!(self.connectivity(), Connectivity::Online { .. }), changed) {
                (true, true) => Some(Mono::BOOT),
                (true, false) => None,
                // It waits for its time to be tried again.
                (false, _) => Some(self.attempts.next(&key).unwrap_or(Mono::BOOT)),
            },
        }
    }

    /// The question was answered; `None` when there is nobody to ask.
    pub(super) fn change_answered(&mut self, now: Mono, answer: Option<bool>) {
        let Some(trial) = self.proofs.trial.as_mut().filter(|trial| trial.ask_at.is_none()) else { return };
        trial.ask_at = Some(if answer.is_some() { now + ASK_AGAIN } else { trial.until });
        if answer == Some(true) {
            let key = trial.key.clone();
            self.prove(&key);
        }
    }

    /// The fleet server begins to answer.
    pub(super) fn change_reaches(&mut self) {
        if let Some(trial) = self.proofs.trial.take() {
            self.prove(&trial.key);
        }
    }

    fn prove(&mut self, key: &str) {
        self.attempts.forget(key);
        self.proofs.trial = None;
        self.proofs.not_taken.retain(|(of, _)| of != key);
        self.proofs.proven.push(key.to_owned());
        // Comparing finds that what was before can go.
        (self.stale, self.sync_at) = (true, Mono::BOOT);
    }

    /// A change leads nowhere: back to what was before.
    pub(super) fn not_taken(&mut self, key: &str, why: &str, effects: &mut Effects) {
        self.proofs.trial = None;
        self.proofs.not_taken.retain(|(of, _)| of != key);
        self.proofs.not_taken.push((key.to_owned(), why.to_owned()));
        if self.round.is_none() && self.giving.is_none() {
            tell(effects, Effect::Note(format!("{} is as it was before: {why}", named(key))));
            self.rejoin.push(profiles::before_key(key));
        }
    }

    /// What was before cannot be joined either.
    pub(super) fn nothing_before(&mut self, key: &str) {
        let wired = self.present_of(key).filter(|profile| profile.medium == Medium::Wired);
        if self.round.is_none() {
            self.proofs.give_back = wired.and_then(|profile| profile.interface.clone());
        }
    }

    /// These are configured otherwise now.
    pub(super) fn changed_anew(&mut self, key: &str) {
        self.proofs.proven.retain(|proven| proven != key);
        self.proofs.not_taken.retain(|(of, _)| of != key);
    }

    /// Changes that are not in force, in words.
    pub(super) fn complaints_of_changes(&self) -> impl Iterator<Item = String> {
        let keys = self.links.links.iter().filter_map(|link| profiles::successor(link.key.as_deref()?));
        keys.filter(|key| self.present_of(key).is_some()).map(|key| {
            let why = self.proofs.not_taken.iter().find(|(of, _)| of == key);
            let why = why.map_or("it did not work when it was tried", |(_, why)| why);
            format!("network {} was not taken as changed: {why}; what worked before is used", named(key))
        })
    }
}

fn named(key: &str) -> String {
    format!("{:?}", key.split_once(':').map_or(key, |(_, name)| name))
}
