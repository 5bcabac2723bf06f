//! Looks twice at a radio's link, where the network manager's word is not enough.
//!
//! *Is it there?* A network manager may say for minutes that it is connected to an access point that was switched off. Once
//! nobody answers any more, the radio listens; a network of ours that is not heard twice is joined anew, which either works
//! or says that it is gone.
//!
//! *Is it the best?* When the network manager connects by itself it takes what it can use: not a network whose way of using
//! the password it has not learned yet. Where it came to a lower network by itself, the radio listens once, and a higher one
//! that is heard is joined; the lower one again, if that fails. Who was joined by the agent is not left.

use std::time::Duration;

use board::{
    Mono,
    network::{Link, Medium, Profile, Seen},
};

use super::{Machine, work::Work};
use crate::{
    kit::backoff::Backoff,
    network::{Connectivity, profiles::Step},
};

/// Between two looks for a link that nobody answers by.
const LOOK_FIRST: Duration = Duration::from_secs(5 * 60);
/// Longest time between two.
const LOOK_MAX: Duration = Duration::from_secs(30 * 60);
/// Not heard once may be chance.
const ONCE_MORE: Duration = Duration::from_secs(5);
/// Times that it is not heard.
const UNHEARD: u8 = 2;
/// A better network that was joined has this long to lead to the internet.
const PROVE: Duration = Duration::from_secs(60);
/// Between two looks for something better: a link that flaps must not keep the radio from it.
const BETTER_APART: Duration = Duration::from_secs(5 * 60);

/// What is known of the radio's link.
#[derive(Clone, Debug)]
pub(super) struct Watch {
    look_at: Mono,
    wait: Backoff,
    unheard: u8,
    /// The agent has joined this one.
    pub(super) chosen: Option<String>,
    /// The network manager came to this one by itself.
    arrived: Option<String>,
    better_at: Mono,
    /// This one is tried instead of that one.
    climb: Option<(String, String)>,
    /// It was joined; is there internet by then? Who was online by the lower one must not lose that.
    climbed: Option<(String, String, Mono)>,
}

impl Watch {
    pub(super) fn new(seed: u64) -> Watch {
        let wait = Backoff::new(LOOK_FIRST, LOOK_MAX, seed);
        let (look_at, better_at) = (Mono::BOOT, Mono::BOOT);
        Watch { look_at, wait, unheard: 0, chosen: None, arrived: None, better_at, climb: None, climbed: None }
    }
}

impl Machine {
    /// A radio's link by a network of ours.
    fn radio_link(&self) -> Option<(&Link, &str)> {
        self.links.links.iter().find_map(|link| link.ssid.as_ref().and(Some((link, link.key.as_deref()?))))
    }

    /// The links are otherwise.
    pub(super) fn watch_links(&mut self) {
        let key = self.radio_link().map(|(_, key)| key.to_owned());
        let Some(key) = key else {
            (self.watch.chosen, self.watch.arrived, self.watch.unheard) = (None, None, 0);
            return;
        };
        let ours = matches!(&self.work, Some((Work::Join(joining), _)) if *joining == key);
        if ours || self.watch.chosen.as_ref() == Some(&key) {
            self.watch.arrived = None;
        } else if self.watch.arrived.as_ref() != Some(&key) {
            (self.watch.arrived, self.watch.unheard) = (Some(key), 0);
        }
    }

    /// Nobody answers by it.
    fn is_silent(&self) -> bool {
        matches!(self.connectivity(), Connectivity::Local { .. }) && self.radio_link().is_some()
    }

    /// Ours that the network manager may not have been able to use, higher than the one that it came to.
    fn higher(&self, now: Mono) -> Vec<&Profile> {
        let arrived = self.watch.arrived.as_deref().and_then(|key| self.present_of(key));
        let Some(arrived) = arrived else { return Vec::new() };
        let fits = |profile: &&Profile| {
            let wireless = matches!(profile.medium, Medium::Wifi { .. });
            let due = self.attempts.next(&profile.key).is_none_or(|at| at <= now);
            wireless && due && profile.priority > arrived.priority && profile.interface == arrived.interface
        };
        self.present.iter().flatten().filter(fits).collect()
    }

    /// Whether to listen now for one of both reasons.
    pub(super) fn watch_work(&self, now: Mono) -> Option<Work> {
        if !self.may_try_changes() || self.hotspot {
            return None;
        }
        let (link, _) = self.radio_link()?;
        let silent = self.is_silent() && self.watch.look_at <= now;
        let better = self.watch.better_at <= now && !self.higher(now).is_empty();
        (silent || better).then(|| Work::Scan(Some(link.interface.clone())))
    }

    /// When to.
    pub(super) fn watch_at(&self) -> Option<Mono> {
        if !self.may_try_changes() || self.hotspot || self.work.is_some() {
            return None;
        }
        let silent = self.is_silent().then_some(self.watch.look_at);
        let better = (!self.higher(self.watch.better_at).is_empty()).then_some(self.watch.better_at);
        let climbed = self.watch.climbed.as_ref().map(|(.., until)| *until);
        silent.into_iter().chain(better).chain(climbed).min()
    }

    /// The radio has listened.
    pub(super) fn watch_heard(&mut self, now: Mono, seen: Option<&[Seen]>) {
        if self.round.is_some() {
            return;
        }
        let Some((link, key)) = self.radio_link().map(|(link, key)| (link.clone(), key.to_owned())) else { return };
        if self.is_silent() && self.watch.look_at <= now {
            let heard = seen.is_none_or(|seen| seen.iter().any(|seen| Some(&seen.ssid) == link.ssid.as_ref()));
            self.watch.unheard = if heard { 0 } else { self.watch.unheard + 1 };
            let again = (1..UNHEARD).contains(&self.watch.unheard);
            self.watch.look_at = now + if again { ONCE_MORE } else { self.watch.wait.next_delay() };
            if self.watch.unheard >= UNHEARD {
                self.watch.unheard = 0;
                // Written once more, it is joined anew and not taken for what is there.
                self.steps.extend(self.present_of(&key).cloned().map(Step::Put));
                self.rejoin.push(key.clone());
            }
        }
        let higher = self.higher(now).into_iter().filter(|profile| self.is_seen(profile));
        let best = higher.max_by_key(|profile| profile.priority).map(|profile| profile.key.clone());
        if self.watch.arrived.take().is_some() {
            self.watch.better_at = now + BETTER_APART;
        }
        if let Some(best) = best.filter(|_| self.rejoin.is_empty()) {
            self.watch.climb = Some((best.clone(), key));
            self.rejoin.push(best);
        }
    }

    /// One was joined, or not.
    pub(super) fn watch_joined(&mut self, now: Mono, key: &str, joined: bool) {
        if joined {
            (self.watch.chosen, self.watch.arrived) = (Some(key.to_owned()), None);
        }
        match self.watch.climb.take_if(|(best, _)| best == key) {
            Some((best, lower)) if joined => self.watch.climbed = Some((best, lower, now + PROVE)),
            Some((_, lower)) => self.rejoin.push(lower),
            None => {}
        }
    }

    /// Looks whether somebody answers.
    pub(super) fn watch_online(&mut self, now: Mono) {
        let online = matches!(self.connectivity(), Connectivity::Online { .. });
        if online {
            // Who fell silent once may do so again soon.
            self.watch.wait.reset();
            (self.watch.look_at, self.watch.unheard) = (Mono::BOOT, 0);
        }
        if let Some((best, lower, _)) = self.watch.climbed.take_if(|(.., until)| *until <= now)
            && !online
            && self.may_try_changes()
        {
            self.attempts.failed(now, &best, true, true, "no internet there");
            self.rejoin.push(lower);
        }
    }
}
