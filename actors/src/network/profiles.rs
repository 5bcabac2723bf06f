//! Which networks the network manager keeps for us, and what has to be done so that it does.
//!
//! Wanted are those of the configuration; those that people gave at a door are kept whatever the configuration says.
//! Comparing finds also what somebody else has changed in a profile of ours. Profiles of others are never seen here.

use std::fmt::Write as _;

use api::device_config::{Address as Configured, Network, NetworkKind};
use board::network::{Address, Medium, Profile, Ssid};

use super::Given;

/// First part of the key of a network from the configuration.
const CONFIGURED: &str = "net:";
/// First part of the key of a network that was given at a door.
const GIVEN: &str = "given:";
/// First part of the key of what was there before a change that is not proven yet; the key of that one follows.
const BEFORE: &str = "old:";
/// Longest name of a network within a key, in bytes; a longer one, which is hardly text, is written in hexadecimal.
const SHOWN_BYTES_MAX: usize = 100;
/// Priority of what was given last.
pub const GIVEN_PRIORITY: i16 = 999;
/// Networks given at doors that are kept; each costs a profile of the network manager. One more, and the oldest goes.
pub const GIVEN_MAX: usize = 16;
/// What a radio's route costs where nothing else was said.
const WIFI_METRIC: u32 = 600;

/// One thing to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Add it, or change the one of this key.
    Put(Profile),
    /// Remove the one of this key.
    Remove(String),
}

impl Step {
    /// Which profile it is about.
    #[must_use]
    pub fn key(&self) -> &str {
        match self {
            Step::Put(profile) => &profile.key,
            Step::Remove(key) => key,
        }
    }

    /// What is there once it was done.
    pub fn done_to(self, present: &mut Vec<Profile>) {
        present.retain(|profile| profile.key != self.key());
        if let Step::Put(profile) = self {
            present.push(profile);
        }
    }
}

/// The profiles that the configuration asks for.
#[must_use]
pub fn wanted(networks: &[Network]) -> Vec<Profile> {
    networks.iter().filter_map(configured).collect()
}

fn configured(network: &Network) -> Option<Profile> {
    let medium = match &network.kind {
        // Whether it says its name is not configured: asking for it by name finds it either way.
        NetworkKind::Wifi { ssid, psk } => {
            Medium::Wifi { ssid: Ssid::new(ssid.as_bytes())?, psk: psk.clone(), hidden: true }
        }
        NetworkKind::Wired => Medium::Wired,
    };
    Some(Profile {
        key: format!("{CONFIGURED}{}", network.name),
        medium,
        interface: network.interface.as_deref().map(str::to_owned),
        priority: network.priority,
        address: match network.address {
            Configured::Auto => Address::Auto,
            Configured::Fixed(address, prefix) => Address::Fixed(address, prefix),
        },
        gateway: network.gateway,
        dns: network.dns.to_vec(),
        route_metric: network.route_metric,
    })
}

/// Whether a person gave it at a door.
#[must_use]
pub fn is_given(profile: &Profile) -> bool {
    profile.key.starts_with(GIVEN)
}

/// Whether this is the key of such a one.
#[must_use]
pub fn is_given_key(key: &str) -> bool {
    key.starts_with(GIVEN)
}

/// The key under which what was there before is kept while this one is not proven.
#[must_use]
pub fn before_key(key: &str) -> String {
    format!("{BEFORE}{key}")
}

/// The key of the change, when this is the key of what was before it.
#[must_use]
pub fn successor(key: &str) -> Option<&str> {
    key.strip_prefix(BEFORE)
}

/// The same profile, to be kept while a changed one is not proven.
#[must_use]
pub fn before(profile: &Profile) -> Profile {
    Profile { key: before_key(&profile.key), ..profile.clone() }
}

/// Whether a link by one of them is what a link by the other one would be.
#[must_use]
pub fn is_same_link(one: &Profile, other: &Profile) -> bool {
    Profile { key: one.key.clone(), priority: one.priority, ..other.clone() } == *one
}

/// Whether the network manager has its password and does not tell it, so that nobody else could write it.
#[must_use]
pub fn is_untold(profile: &Profile) -> bool {
    matches!(&profile.medium, Medium::Wifi { psk: Some(psk), .. } if psk.is_empty())
}

/// What brings the present profiles to the wanted ones. Removals first: a name may have moved to another key. Without
/// `remove` nothing is removed but what was before changes that are `proven`.
#[must_use]
pub fn compare(wanted: &[Profile], present: &[Profile], remove: bool, proven: &[String]) -> Vec<Step> {
    let find = |list: &[Profile], key: &str| list.iter().find(|profile| profile.key == key).cloned();
    let unwanted = |profile: &Profile| match successor(&profile.key) {
        Some(key) => {
            let (wanted, present) = (find(wanted, key), find(present, key));
            let same = present.as_ref().is_some_and(|present| is_same_link(present, profile));
            match is_given_key(key) {
                true => present.is_none() || same,
                false => wanted.is_none() || (same && wanted == present),
            }
        }
        None => !is_given(profile) && find(wanted, &profile.key).is_none(),
    };
    let past = |profile: &Profile| successor(&profile.key).is_some_and(|key| proven.iter().any(|one| one == key));
    let gone = |profile: &&Profile| past(profile) || (remove && unwanted(profile));
    let removed = present.iter().filter(gone).map(|profile| Step::Remove(profile.key.clone()));
    let put = wanted.iter().filter(|wanted| !present.contains(wanted)).cloned().map(Step::Put);
    removed.chain(put).collect()
}

/// The profile of what was given. `interface` is the one that WiFi is kept to, if any.
#[must_use]
pub fn of_given(given: &Given, interface: Option<&str>) -> Profile {
    let Given { ssid, psk, hidden } = given;
    Profile {
        key: given_key(ssid),
        medium: Medium::Wifi { ssid: ssid.clone(), psk: psk.clone(), hidden: *hidden },
        interface: interface.map(str::to_owned),
        priority: GIVEN_PRIORITY,
        address: Address::Auto,
        gateway: None,
        dns: Vec::new(),
        route_metric: WIFI_METRIC,
    }
}

fn given_key(ssid: &Ssid) -> String {
    let mut key = format!("{GIVEN}{ssid}");
    if key.len() > GIVEN.len() + SHOWN_BYTES_MAX {
        key.truncate(GIVEN.len());
        // Writing into a String cannot fail.
        ssid.bytes().iter().for_each(|byte| _ = write!(key, "{byte:02x}"));
    }
    key
}

/// What stores a network that was given: the older ones step down in their order, then it comes, highest of all. Where
/// there are too many, one that never worked goes, and only then the oldest: somebody who makes names up must not push out
/// the network that the device is brought home by.
#[must_use]
pub fn give(new: Profile, present: &[Profile], worked: impl Fn(&str) -> bool) -> Vec<Step> {
    let mut older: Vec<&Profile> =
        present.iter().filter(|profile| is_given(profile) && profile.key != new.key).collect();
    older.sort_by_key(|profile| std::cmp::Reverse(profile.priority));
    let mut steps = Vec::new();
    while older.len() >= GIVEN_MAX {
        let place = older.iter().rposition(|profile| !worked(&profile.key)).unwrap_or(older.len() - 1);
        let gone = older.remove(place);
        let before = before_key(&gone.key);
        steps.extend(present.iter().filter(|profile| profile.key == before).map(|_| Step::Remove(before.clone())));
        steps.push(Step::Remove(gone.key.clone()));
    }
    for (place, profile) in older.into_iter().enumerate() {
        let lower = i16::try_from(place + 1).map_or(0, |down| GIVEN_PRIORITY - down);
        if profile.priority != lower {
            steps.push(Step::Put(Profile { priority: lower, ..profile.clone() }));
        }
    }
    steps.push(Step::Put(new));
    steps
}

/// What puts back what was there before something was given that does not work.
#[must_use]
pub fn take_back(key: &str, before: Option<&Profile>, present: &[Profile]) -> Vec<Step> {
    let kept = before_key(key);
    let first = before.map_or_else(|| Step::Remove(key.to_owned()), |before| Step::Put(before.clone()));
    let is_kept = present.iter().any(|profile| profile.key == kept);
    [first].into_iter().chain(is_kept.then_some(Step::Remove(kept))).collect()
}

/// How a profile is called in front of people. Never its password.
#[must_use]
pub fn shown(profile: &Profile) -> String {
    match (&profile.medium, &profile.interface) {
        (Medium::Wifi { ssid, .. }, _) => ssid.to_string(),
        (Medium::Wired, Some(interface)) => format!("the cable at {interface}"),
        (Medium::Wired, None) => "the cable".to_owned(),
    }
}
