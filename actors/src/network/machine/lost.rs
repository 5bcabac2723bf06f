//! Networks that were lost a short while ago.
//!
//! A radio remembers for minutes what it heard. A network that was just lost is in that list still: it is in the air only
//! once it was heard after the loss. Whoever tried it at once would wait for nobody, with the best of what is left beside it.

use std::time::Duration;

use board::{
    Mono,
    network::{Link, Links, Manager, Seen, Ssid},
};

use super::{Machine, work::Work};

/// The system forgets by itself whom it has not heard for three minutes.
const REMEMBERED_MAX: Duration = Duration::from_secs(4 * 60);
/// More than there are radios.
const LOST_MAX: usize = 8;

/// Which ones, and when.
#[derive(Clone, Debug, Default)]
pub(super) struct Lost(Vec<(Ssid, Mono)>);

impl Lost {
    fn add(&mut self, ssid: Ssid, now: Mono) {
        self.found(&ssid);
        if self.0.len() < LOST_MAX {
            self.0.push((ssid, now));
        }
    }

    fn found(&mut self, ssid: &Ssid) {
        self.0.retain(|(lost, _)| lost != ssid);
    }

    /// Nobody remembers those any more.
    pub(super) fn forget(&mut self, now: Mono) {
        self.0.retain(|(_, at)| now < *at + REMEMBERED_MAX);
    }
}

impl Machine {
    /// It was heard since it was lost, if it was.
    pub(super) fn is_near(&self, seen: &Seen) -> bool {
        let since = |at: Mono| seen.heard.is_none_or(|heard| heard > at);
        self.lost.0.iter().all(|(ssid, at)| *ssid != seen.ssid || since(*at))
    }

    /// The links are otherwise: which networks are lost by that? Not those that were left for another or for the hotspot.
    pub(super) fn look_for_losses(&mut self, now: Mono, before: &Links) {
        let names = |links: &[Link]| -> Vec<Ssid> { links.iter().filter_map(|link| link.ssid.clone()).collect() };
        let there = names(&self.links.links);
        there.iter().for_each(|ssid| self.lost.found(ssid));
        let by_us = matches!(self.work, Some((Work::Join(_) | Work::JoinKnown(_), _))) || self.hotspot;
        let told = before.manager == Manager::Ready && self.links.manager == Manager::Ready;
        if told && !by_us {
            let gone = names(&before.links).into_iter().filter(|ssid| !there.contains(ssid));
            gone.for_each(|ssid| self.lost.add(ssid, now));
        }
    }
}
