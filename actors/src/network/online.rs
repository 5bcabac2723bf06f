//! Whether the device is online, and since when.
//!
//! A fleet server that answers is online, whatever anybody says. Else it is the network manager's word, and where that
//! is no yes, a question of our own: a board on a filtered network is online, one behind a login page is not. The
//! question is only asked while nothing else vouches, and less often the longer the answer is no.

use std::time::Duration;

use board::{
    Mono,
    network::{Internet, Link, Links, Manager},
};

use super::Connectivity;
use crate::{cloud::Reach, kit::backoff::Backoff};

/// The fleet server is asked at once when something changed, and usually answers before this.
const ASK_AFTER: Duration = Duration::from_secs(3);
/// While the answer was no.
const ASK_FIRST: Duration = Duration::from_secs(10);
/// Longest wait while the answer is no: a network that begins to work is noticed within this.
const ASK_MAX: Duration = Duration::from_secs(5 * 60);
/// While only our own question says yes.
const ASK_AGAIN: Duration = Duration::from_secs(2 * 60);

/// Online is believed for no longer than this while nobody answers.
const AWAIT_MAX: Duration = Duration::from_secs(60);
/// A link without internet counts as one once it has lasted this long.
const HELD: Duration = Duration::from_secs(60);

/// What is known from others.
#[derive(Clone, Copy)]
pub struct Facts<'a> {
    /// The network manager's.
    pub links: &'a Links,
    /// The fleet server's.
    pub reach: Reach,
    /// Nothing of the network is looked at.
    pub disabled: bool,
    /// Keys of cables that have never led anywhere.
    pub doubted: &'a [String],
}

impl Facts<'_> {
    fn reached(&self) -> bool {
        matches!(self.reach, Reach::Reached | Reach::CredentialsRefused)
    }

    fn link(&self) -> bool {
        self.links.links.iter().any(counts)
    }

    /// There is one that is believed, and none that was never good for anything takes all traffic to elsewhere.
    fn believed(&self) -> bool {
        let doubted = |link: &&Link| link.key.as_ref().is_some_and(|key| self.doubted.contains(key));
        let links = &self.links.links;
        let misled = links.iter().filter(doubted).any(|link| link.default_route);
        !misled && links.iter().filter(|link| !doubted(link)).any(counts)
    }

    fn managed(&self) -> bool {
        self.links.manager == Manager::Ready
    }

    fn vouched(&self) -> bool {
        self.reached() || (self.managed() && self.link() && self.links.internet == Internet::Yes)
    }

    /// Asking could find out something.
    fn worth_asking(&self) -> bool {
        !self.disabled && !self.vouched() && (self.link() || !self.managed())
    }
}

/// A service port with an address of its own and the like, which are always up, connect to nothing.
#[must_use]
pub fn counts(link: &Link) -> bool {
    link.default_route || link.ssid.is_some() || link.key.is_some()
}

/// The answer to our own question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    Awaited,
    Yes,
    No,
}

/// How the device is connected, and the question that helps to know it.
#[derive(Clone, Debug)]
pub struct Online {
    word: Connectivity,
    no_internet_since: Mono,
    no_link_since: Mono,
    answer: Answer,
    /// Asking helps: nothing else vouches.
    worth: bool,
    /// Nobody knows better since then.
    awaited_since: Mono,
    /// Since when there is a link, and whether there was internet since.
    linked_at: Mono,
    was_good: bool,
    /// The question is under way.
    asking: bool,
    ask_at: Mono,
    wait: Backoff,
}

impl Online {
    /// Nobody has looked yet; if the first look finds nothing, that has been so since `since`.
    #[must_use]
    pub fn new(since: Mono, seed: u64) -> Self {
        Online {
            word: Connectivity::Unknown,
            no_internet_since: since,
            no_link_since: since,
            answer: Answer::Awaited,
            worth: false,
            awaited_since: since,
            linked_at: since,
            was_good: false,
            asking: false,
            ask_at: Mono::NEVER,
            wait: Backoff::new(ASK_FIRST, ASK_MAX, seed),
        }
    }

    /// How the device is connected.
    #[must_use]
    pub fn word(&self) -> Connectivity {
        self.word
    }

    /// Since when it is away from what it counts as a connection.
    #[must_use]
    pub fn away(&self, local_is_away: bool) -> Option<Mono> {
        match self.word {
            Connectivity::Unknown | Connectivity::Online { .. } => None,
            Connectivity::Local { .. } => local_is_away.then_some(self.no_internet_since),
            Connectivity::Offline { .. } if local_is_away => Some(self.no_internet_since),
            Connectivity::Offline { since } => Some(since),
        }
    }

    /// What an earlier question found out holds no more.
    pub fn stirred(&mut self, now: Mono) {
        self.wait.reset();
        let awaited = self.answer == Answer::Awaited && self.worth;
        if !awaited {
            self.awaited_since = now;
        }
        // A link that goes up and down does not put the question off for ever.
        let soon = now + ASK_AFTER;
        self.ask_at = if awaited && !self.asking { self.ask_at.min(soon) } else { soon };
        (self.answer, self.asking) = (Answer::Awaited, false);
    }

    /// The question has its answer; `None` when there is nobody to ask.
    pub fn answered(&mut self, now: Mono, answer: Option<bool>) {
        if !std::mem::take(&mut self.asking) {
            return;
        }
        let yes = answer == Some(true);
        self.answer = if yes { Answer::Yes } else { Answer::No };
        if yes {
            self.wait.reset();
        }
        self.ask_at = now + if yes { ASK_AGAIN } else { self.wait.next_delay() };
    }

    /// Whether to ask now; it is under way then.
    pub fn ask(&mut self, now: Mono) -> bool {
        let due = self.worth && !self.asking && self.ask_at <= now;
        self.asking |= due;
        due
    }

    /// When to ask.
    #[must_use]
    pub fn deadline(&self) -> Option<Mono> {
        let ask = (self.worth && !self.asking).then_some(self.ask_at);
        let believed = matches!(self.word, Connectivity::Online { .. });
        let doubt = (self.worth && self.answer == Answer::Awaited && believed).then(|| self.awaited_since + AWAIT_MAX);
        ask.into_iter().chain(doubt).min()
    }

    /// Looks at what is known now.
    pub fn look(&mut self, now: Mono, facts: Facts<'_>) {
        let worth = facts.worth_asking();
        if worth && !self.worth {
            self.stirred(now);
        }
        if !worth {
            self.asking = false;
        }
        self.worth = worth;
        let next = self.judge(now, facts);
        let was_online = matches!(self.word, Connectivity::Online { .. });
        let was_local = matches!(self.word, Connectivity::Local { .. });
        if was_online && !matches!(next, Level::Online) {
            (self.no_internet_since, self.no_link_since) = (now, now);
        } else if was_local && matches!(next, Level::Offline) && (self.was_good || self.linked_at + HELD <= now) {
            // A network that takes the device in and drops it again is no link in between.
            self.no_link_since = now;
        }
        if !was_online && !was_local {
            self.linked_at = now;
        }
        match next {
            Level::Offline => self.was_good = false,
            Level::Online => self.was_good = true,
            Level::Local | Level::Unknown => {}
        }
        self.word = match next {
            Level::Unknown => Connectivity::Unknown,
            Level::Online if was_online => self.word,
            Level::Online => Connectivity::Online { since: now },
            Level::Local => Connectivity::Local { since: self.no_internet_since },
            Level::Offline => Connectivity::Offline { since: self.no_link_since },
        };
    }

    fn judge(&self, now: Mono, facts: Facts<'_>) -> Level {
        if facts.disabled {
            return match facts.reach {
                Reach::Reached | Reach::CredentialsRefused => Level::Online,
                Reach::Unreachable => Level::Offline,
                Reach::Unknown | Reach::NoIdentity => Level::Unknown,
            };
        }
        if facts.vouched() {
            return Level::Online;
        }
        if !self.worth {
            return Level::Offline;
        }
        let without = if facts.believed() { Level::Local } else { Level::Offline };
        match (self.answer, self.word) {
            (Answer::Yes, _) => Level::Online,
            (Answer::No, _) => without,
            // It stays as it was until somebody knows better; a link alone is one already.
            (Answer::Awaited, Connectivity::Unknown) => Level::Unknown,
            (Answer::Awaited, Connectivity::Online { .. }) if now < self.awaited_since + AWAIT_MAX => Level::Online,
            (Answer::Awaited, Connectivity::Online { .. }) => without,
            (Answer::Awaited, Connectivity::Local { .. } | Connectivity::Offline { .. }) => without,
        }
    }
}

#[derive(Clone, Copy)]
enum Level {
    Unknown,
    Online,
    Local,
    Offline,
}
