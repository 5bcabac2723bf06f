//! Which network is tried next.
//!
//! Owns the order (what is in the air before what can only be asked for, the higher priority before the lower) and the
//! patience with each: one that fails waits longer each time, is never forgotten, and is tried at once when it comes
//! into range again.

use std::{cmp::Reverse, time::Duration};

use board::{
    Mono,
    network::{Link, Medium, Profile, Radio, Seen},
};

use super::profiles::is_given;
use crate::kit::backoff::Backoff;

/// First wait after a failure that may pass by itself.
const RETRY_FIRST: Duration = Duration::from_secs(30);
/// Longest wait then.
const RETRY_MAX: Duration = Duration::from_secs(15 * 60);
/// First wait after a refusal, where somebody has to change something here or at the access point, and after asking in
/// vain for what is not in the air, which keeps the radio busy for up to a minute.
const SELDOM_FIRST: Duration = Duration::from_secs(5 * 60);
/// Longest wait then.
const SELDOM_MAX: Duration = Duration::from_secs(60 * 60);

/// One network and how it went with it.
#[derive(Clone, Debug)]
struct Tried {
    key: String,
    /// Not before this, unless it comes into range.
    next: Mono,
    /// It was in the air when it was tried.
    seen: bool,
    seldom: bool,
    wait: Backoff,
    /// What was said, so that the same is not said again each time.
    why: String,
}

/// The memory of what was tried.
#[derive(Clone, Debug, Default)]
pub struct Attempts {
    seed: u64,
    tried: Vec<Tried>,
}

/// What there is to choose from.
#[derive(Clone, Copy)]
pub struct Choice<'a> {
    /// Ours.
    pub profiles: &'a [Profile],
    /// In the air.
    pub seen: &'a [Seen],
    /// Connected already.
    pub links: &'a [Link],
    /// WiFi devices that are free.
    pub radios: &'a [Radio],
}

impl Choice<'_> {
    fn signal(&self, profile: &Profile) -> Option<u8> {
        match &profile.medium {
            Medium::Wifi { ssid, .. } => self.seen.iter().find(|seen| seen.ssid == *ssid).map(|seen| seen.signal),
            // Whether a cable is plugged in is found out by asking, which costs nothing.
            Medium::Wired => Some(0),
        }
    }

    fn possible(&self, profile: &Profile) -> bool {
        let connected = self.links.iter().any(|link| link.key.as_deref() == Some(&*profile.key));
        let named = |radio: &Radio| profile.interface.as_ref().is_none_or(|name| *name == radio.interface);
        let usable = |radio: &Radio| radio.blocked.is_none() && named(radio);
        let asked_for = match &profile.medium {
            Medium::Wifi { hidden, .. } => *hidden || self.signal(profile).is_some(),
            Medium::Wired => return !connected,
        };
        !connected && asked_for && self.radios.iter().any(usable)
    }
}

impl Attempts {
    /// Nothing was tried yet. `seed` differs per device.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Attempts { seed, tried: Vec::new() }
    }

    /// Keys of what can be tried, in the order in which it is. With `all`, also what failed a short while ago.
    #[must_use]
    pub fn candidates(&self, now: Mono, choice: Choice<'_>, all: bool) -> Vec<String> {
        let mut found: Vec<(&Profile, Option<u8>)> = choice
            .profiles
            .iter()
            .filter(|profile| choice.possible(profile))
            .map(|profile| (profile, choice.signal(profile)))
            .filter(|(profile, signal)| all || self.is_due(now, &profile.key, signal.is_some()))
            .collect();
        found.sort_by_key(|(profile, signal)| {
            (signal.is_none(), Reverse(profile.priority), !is_given(profile), Reverse(*signal), profile.key.clone())
        });
        found.into_iter().map(|(profile, _)| profile.key.clone()).collect()
    }

    fn is_due(&self, now: Mono, key: &str, seen: bool) -> bool {
        let tried = self.tried.iter().find(|tried| tried.key == key);
        tried.is_none_or(|tried| tried.next <= now || (seen && !tried.seen))
    }

    /// When it is tried again; `None` when nothing speaks against now.
    #[must_use]
    pub fn next(&self, key: &str) -> Option<Mono> {
        self.tried.iter().find(|tried| tried.key == key).map(|tried| tried.next)
    }

    /// It did not work; says whether that is news. `seen` when it was in the air, `refused` when it did not want us.
    pub fn failed(&mut self, now: Mono, key: &str, seen: bool, refused: bool, why: &str) -> bool {
        let (seed, seldom) = (self.seed, refused || !seen);
        let before = self.tried.iter().position(|tried| tried.key == key).map(|place| self.tried.swap_remove(place));
        let news = before.as_ref().is_none_or(|before| before.why != why);
        let same = before.filter(|before| before.seldom == seldom).map(|before| before.wait);
        let (first, max) = if seldom { (SELDOM_FIRST, SELDOM_MAX) } else { (RETRY_FIRST, RETRY_MAX) };
        let mut wait = same.unwrap_or_else(|| Backoff::new(first, max, seed));
        let next = now + wait.next_delay();
        self.tried.push(Tried { key: key.to_owned(), next, seen, seldom, wait, why: why.to_owned() });
        news
    }

    /// Something is otherwise with this one: it is tried as if it never had been.
    pub fn forget(&mut self, key: &str) {
        self.tried.retain(|tried| tried.key != key);
    }

    /// Only these still exist.
    pub fn keep(&mut self, profiles: &[Profile]) {
        self.tried.retain(|tried| profiles.iter().any(|profile| profile.key == tried.key));
    }
}
