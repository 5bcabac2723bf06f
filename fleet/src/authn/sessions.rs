//! What callers may do, remembered from their last call, so that the usual call asks no database.
//!
//! Each session knows how far the news had come when it was read (`store/news.rs`). News makes sessions that are older
//! end: their next call is looked up afresh, and calls that are still open hear of it. Where a key or a secret is gone,
//! they end; where roles changed, they look up who they are by now and whether that one may. Where something moved,
//! nobody is somebody else, and only calls that stay open have to ask once more whether they may.

use std::{
    collections::HashMap,
    sync::{
        Arc, PoisonError, RwLock,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use super::{Who, tokens::Claim};
use crate::{
    clock::{Clock, Millis},
    store::news::{News, Numbered},
};

/// Keys and secrets whose rights are remembered; about 400 bytes each.
const REMEMBERED: usize = 50_000;

/// Somebody who may call.
pub(super) struct Session {
    pub(super) who: Who,
    /// Rises when a key is rotated; a token of an earlier one is worthless.
    pub(super) generation: u64,
    /// The newest news when this was read.
    read_at: i64,
    /// Under what it is looked up again; nothing of who has no token.
    pub(super) claim: Option<Claim>,
    /// When a key that a sign-in gave ends.
    pub(super) ends: Option<(Millis, Clock)>,
    /// Rises when something moved: what it may see may be less.
    moved: AtomicU64,
    /// Other roles may have been given since.
    outdated: AtomicBool,
    revoked: AtomicBool,
}

/// How a session ends by news.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum End {
    /// Its holder may have other roles by now.
    Outdated,
    /// Its key or secret is not good any more.
    Revoked,
}

impl Session {
    pub(super) fn new(who: Who, generation: u64, read_at: i64) -> Self {
        Self {
            who,
            generation,
            read_at,
            claim: None,
            ends: None,
            moved: AtomicU64::new(0),
            outdated: AtomicBool::new(false),
            revoked: AtomicBool::new(false),
        }
    }

    pub(super) fn moved(&self) -> u64 {
        self.moved.load(Ordering::Acquire)
    }

    /// Ended by news, and not by its own time.
    pub(super) fn is_over(&self) -> bool {
        self.is_outdated() || self.revoked.load(Ordering::Acquire)
    }

    pub(super) fn is_outdated(&self) -> bool {
        self.outdated.load(Ordering::Acquire)
    }

    pub(super) fn is_revoked(&self) -> bool {
        self.revoked.load(Ordering::Acquire) || self.ends.as_ref().is_some_and(|(at, clock)| *at <= clock.now())
    }

    fn end(&self, how: End) {
        match how {
            End::Outdated => self.outdated.store(true, Ordering::Release),
            End::Revoked => self.revoked.store(true, Ordering::Release),
        }
    }
}

/// Under which a session is remembered.
pub(super) type Key = [u8; 16];

/// Those that are remembered.
#[derive(Default)]
pub struct Sessions {
    /// Rises with every revocation, so that a lookup that began before one is not remembered after it.
    revocations: AtomicU64,
    known: RwLock<HashMap<Key, Arc<Session>>>,
}

impl Sessions {
    pub(super) fn get(&self, key: &Key) -> Option<Arc<Session>> {
        self.known.read().unwrap_or_else(PoisonError::into_inner).get(key).cloned()
    }

    /// To be given to [`Self::remember`] by whoever begins to look somebody up.
    pub(super) fn revocations(&self) -> u64 {
        self.revocations.load(Ordering::Acquire)
    }

    /// `None` if there were revocations since: what was found may be what was revoked.
    pub(super) fn remember(&self, key: Key, found: Session, revocations: u64) -> Option<Arc<Session>> {
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        if self.revocations() != revocations {
            // Only what is remembered can be told of a revocation, and an open call must be.
            return None;
        }
        if known.len() >= REMEMBERED {
            known.retain(|_, session| Arc::strong_count(session) > 1);
        }
        // Another call may have been faster; its holders must hear what ours hear.
        let session = known.entry(key).or_insert_with(|| Arc::new(Session::new(Who::Nobody, 0, i64::MIN)));
        let end = match (session.generation == found.generation, session.who == found.who) {
            (true, true) => None,
            (true, false) => Some(End::Outdated),
            (false, _) => Some(End::Revoked),
        };
        if let Some(end) = end
            && session.read_at <= found.read_at
        {
            session.end(end);
            *session = Arc::new(found);
        }
        Some(session.clone())
    }

    /// Somebody was looked up and is not there any more.
    pub(super) fn forget(&self, key: &Key, generation: u64) {
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        if known.get(key).is_some_and(|session| session.generation == generation)
            && let Some(session) = known.remove(key)
        {
            session.end(End::Revoked);
        }
    }

    /// Ends what news says is over: one walk through all for any number of it, because calls wait meanwhile.
    pub fn hear(&self, told: &[Numbered]) {
        if told.iter().any(|(_, news)| *news == News::Rights) {
            // Nobody is somebody else for it. Calls that stay open look whether they still may.
            let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
            for session in known.values() {
                session.moved.fetch_add(1, Ordering::AcqRel);
            }
        }
        let over = Over::told(told);
        if over.is_nothing() {
            return;
        }
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        self.revocations.fetch_add(1, Ordering::AcqRel);
        known.retain(|_, session| {
            let end = over.of_session(session);
            if let Some(end) = end {
                session.end(end);
            }
            end.is_none()
        });
    }
}

/// Who is over by some news, and by which number of it at last.
#[derive(Default)]
struct Over<'a> {
    everybody: Option<i64>,
    keys: HashMap<&'a str, i64>,
    identities: HashMap<&'a str, i64>,
    parts: HashMap<&'a str, i64>,
    locations: HashMap<&'a str, i64>,
}

impl<'a> Over<'a> {
    fn told(told: &'a [Numbered]) -> Self {
        let mut over = Self::default();
        for (number, news) in told {
            let (list, about) = match news {
                News::Everything => {
                    over.everybody = over.everybody.max(Some(*number));
                    continue;
                }
                News::Key(key) => (&mut over.keys, key),
                News::Identity(one) => (&mut over.identities, one),
                News::PartSecrets(gone) | News::PartGone(gone) => (&mut over.parts, gone),
                News::LocationSecrets(gone) => (&mut over.locations, gone),
                News::Rights | News::Tree | News::Part(_) | News::Configurations => continue,
            };
            let last = list.entry(about.as_str()).or_insert(*number);
            *last = (*last).max(*number);
        }
        over
    }

    fn is_nothing(&self) -> bool {
        let lists = [&self.keys, &self.identities, &self.parts, &self.locations];
        self.everybody.is_none() && lists.iter().all(|list| list.is_empty())
    }

    /// How it ends, by news that it did not know when it was read.
    fn of_session(&self, session: &Session) -> Option<End> {
        let of = |list: &HashMap<&str, i64>, id: &str| list.get(id).copied();
        let (gone, changed) = match &session.who {
            Who::ApiKey { id, user, .. } => {
                let of_user = user.as_ref().and_then(|user| of(&self.identities, user));
                (of(&self.keys, id), of(&self.identities, id).max(of_user))
            }
            Who::Part { part } => (of(&self.parts, part), None),
            Who::LocationSecret { part, location } => (of(&self.parts, part).max(of(&self.locations, location)), None),
            Who::Local | Who::Nobody => (None, None),
        };
        let is_new = |number: Option<i64>| number.is_some_and(|number| session.read_at < number);
        let outdated = is_new(changed.max(self.everybody)).then_some(End::Outdated);
        is_new(gone).then_some(End::Revoked).or(outdated)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(id: &str, read_at: i64) -> Session {
        Session::new(Who::ApiKey { id: id.into(), user: None, grants: Vec::new() }, 1, read_at)
    }

    #[test]
    fn news_ends_what_was_read_before_it() {
        let sessions = Sessions::default();
        let old = sessions.remember([1; 16], key("a", 4), 0).unwrap();
        let other = sessions.remember([2; 16], key("b", 4), 0).unwrap();
        sessions.hear(&[(5, News::Key("a".into()))]);
        assert!(old.is_revoked() && !other.is_revoked());
        assert!(sessions.get(&[1; 16]).is_none());
        assert!(sessions.remember([1; 16], key("a", 4), 0).is_none(), "a look-up that began before");
        let new = sessions.remember([1; 16], key("a", 5), sessions.revocations()).unwrap();
        sessions.hear(&[(5, News::Key("a".into()))]);
        assert!(!new.is_revoked(), "the same news, heard once more from the table, is old news to it");
        sessions.hear(&[(6, News::Rights)]);
        assert_eq!((new.moved(), new.is_revoked()), (1, false), "to be looked at again, and nobody else");
        sessions.hear(&[(7, News::Everything)]);
        assert!(new.is_outdated() && other.is_outdated(), "whoever they are is to be looked up …");
        assert!(!new.is_revoked() && !other.is_revoked(), "… and nobody knows that their keys are gone");
    }

    #[test]
    fn a_batch_ends_whoever_one_piece_of_it_names() {
        let person = |id: &str, read_at| {
            let who = Who::ApiKey { id: id.into(), user: Some("ann".into()), grants: Vec::new() };
            Session::new(who, 1, read_at)
        };
        let device =
            |read_at| Session::new(Who::LocationSecret { part: "arm".into(), location: "north".into() }, 0, read_at);
        let (none, changed, gone) = (None, Some(End::Outdated), Some(End::Revoked));
        type Case = (&'static str, Vec<Numbered>, [Option<End>; 4]);
        let table: [Case; 8] = [
            ("nothing that ends anybody", vec![(9, News::Tree), (10, News::Part("arm".into()))], [none; 4]),
            ("a key", vec![(9, News::Key("x".into())), (10, News::Key("a".into()))], [gone, none, none, none]),
            ("a key's roles", vec![(9, News::Identity("a".into()))], [changed, none, none, none]),
            (
                "its roles, and then itself",
                vec![(9, News::Key("a".into())), (10, News::Identity("a".into()))],
                [gone, none, none, none],
            ),
            ("a person", vec![(9, News::Identity("ann".into())), (10, News::Tree)], [none, changed, none, none]),
            ("old news and new", vec![(5, News::Key("a".into())), (8, News::Key("b".into()))], [none; 4]),
            ("a part", vec![(8, News::Key("b".into())), (9, News::PartGone("arm".into()))], [none, none, gone, none]),
            ("a location", vec![(9, News::LocationSecrets("north".into()))], [none, none, gone, none]),
        ];
        for (case, told, ended) in table {
            let sessions = Sessions::default();
            let all = [key("a", 8), person("b", 8), device(8), key("c", 8)];
            let all: Vec<_> = (0..).zip(all).map(|(n, one)| sessions.remember([n; 16], one, 0).unwrap()).collect();
            sessions.hear(&told);
            let end = |one: &Session| match (one.is_revoked(), one.is_outdated()) {
                (true, _) => Some(End::Revoked),
                (false, outdated) => outdated.then_some(End::Outdated),
            };
            let found: Vec<_> = all.iter().map(|one| end(one)).collect();
            assert_eq!(found, ended, "{case}");
        }
    }

    #[test]
    fn looking_up_again_ends_only_what_became_something_else() {
        let sessions = Sessions::default();
        let one = sessions.remember([1; 16], key("a", 4), 0).unwrap();
        assert!(Arc::ptr_eq(&one, &sessions.remember([1; 16], key("a", 9), 0).unwrap()));
        let mut rotated = key("a", 9);
        rotated.generation = 2;
        let two = sessions.remember([1; 16], rotated, 0).unwrap();
        assert!(one.is_revoked() && !two.is_revoked());
        assert!(Arc::ptr_eq(&two, &sessions.remember([1; 16], key("a", 8), 0).unwrap()), "read earlier, found later");
        let mut of_a_person = key("a", 10);
        of_a_person.generation = 2;
        of_a_person.who = Who::ApiKey { id: "a".into(), user: Some("ann".into()), grants: Vec::new() };
        let changed = sessions.remember([1; 16], of_a_person, 0).unwrap();
        assert!(two.is_outdated() && !two.is_revoked() && !changed.is_over());
        let two = changed;
        sessions.forget(&[1; 16], 1);
        assert!(!two.is_revoked(), "a token of before ends nothing");
        sessions.forget(&[1; 16], 2);
        assert!(two.is_revoked());
    }
}
