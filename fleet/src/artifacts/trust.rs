//! Whether what lies under a digest still has it, as far as this server has looked.
//!
//! Owns what was found, and decides what that means for a download. Disks rot and hands reach into folders, so a file is
//! summed up while it goes out as a whole: that costs as much as sending it, so it is not done again for a day, unless
//! the store says that something was written there since. What was found damaged is not sent any more, in pieces
//! neither: who lost the last piece of a damaged file would come for just that one.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use crate::clock::Millis;

/// A disk rots without telling: after this long it is looked at again.
const GOOD_FOR: Millis = 24 * 60 * 60 * 1000;
/// A controller that misread once is given another chance, by one download: many would fetch 2 GiB each in vain.
const DAMAGED_FOR: Millis = 10 * 60 * 1000;
/// Files that are remembered: a few megabytes. One more, and those that were looked at before are looked at again.
const REMEMBERED_MAX: usize = 10_000;

/// What is known of each digest. Only this server's: another one that shares the store looks for itself.
#[derive(Debug, Default)]
pub struct Trust {
    found: Mutex<HashMap<String, Found>>,
}

#[derive(Debug)]
struct Found {
    /// What the store said of the file; see [`Opened::form`](super::Opened::form).
    form: String,
    whole: bool,
    /// When that was seen; of a damaged one, or when somebody last began to look again.
    at: Millis,
}

/// How a file goes out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Plan {
    /// As it lies there.
    Send,
    /// Summed up on the way; its last bytes go only if they make the digest.
    Check,
    /// Not at all: it is damaged.
    Refuse,
}

impl Trust {
    /// For a download of the file in this form, of `all` of it or of a piece. Who is told to check what was damaged is the
    /// only one for a while, whatever becomes of it: one who reads slowly, or leaves, keeps no chance from others for ever.
    pub fn plan(&self, digest: &str, form: &str, all: bool, now: Millis) -> Plan {
        let mut found = self.found();
        let known = found.get_mut(digest).filter(|found| found.form == form);
        // A clock that was set back makes nothing good for longer.
        let within = |at: Millis, span: Millis| (at..at.saturating_add(span)).contains(&now);
        match known {
            Some(found) if found.whole && within(found.at, GOOD_FOR) => Plan::Send,
            Some(found) if !found.whole && (!all || within(found.at, DAMAGED_FOR)) => Plan::Refuse,
            Some(found) if !found.whole => {
                found.at = now;
                Plan::Check
            }
            Some(_) | None if all => Plan::Check,
            Some(_) | None => Plan::Send,
        }
    }

    /// What came of a [`Plan::Check`].
    pub fn note(&self, digest: &str, form: String, whole: bool, now: Millis) {
        let mut found = self.found();
        if found.len() >= REMEMBERED_MAX && !found.contains_key(digest) {
            // What is damaged is few, and must stay refused.
            found.retain(|_, found| !found.whole);
        }
        if found.len() < REMEMBERED_MAX || found.contains_key(digest) {
            found.insert(digest.to_owned(), Found { form, whole, at: now });
        }
    }

    /// It was just uploaded: whatever lay there before is gone, also where the store tells times in seconds.
    pub fn forget(&self, digest: &str) {
        self.found().remove(digest);
    }

    fn found(&self) -> MutexGuard<'_, HashMap<String, Found>> {
        // Nothing is half done between two lines that hold it.
        self.found.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_summed_up_once_a_day_and_whenever_it_was_written() {
        let trust = Trust::default();
        let hour = 60 * 60 * 1000;
        trust.note("good", "1".into(), true, 100 * hour);
        trust.note("bad", "1".into(), false, 100 * hour);
        let table = [
            // case                               digest  form  all    hour  expected
            ("never looked at", "other", "1", true, 100, Plan::Check),
            ("a piece of it", "other", "1", false, 100, Plan::Send),
            ("just looked at", "good", "1", true, 100, Plan::Send),
            ("in the evening", "good", "1", true, 123, Plan::Send),
            ("the day after", "good", "1", true, 124, Plan::Check),
            ("a clock that was set back", "good", "1", true, 99, Plan::Check),
            ("written since", "good", "2", true, 100, Plan::Check),
            ("damaged", "bad", "1", true, 100, Plan::Refuse),
            ("damaged, the last piece", "bad", "1", false, 100, Plan::Refuse),
            ("damaged, another chance", "bad", "1", true, 101, Plan::Check),
            ("damaged, somebody else has the chance", "bad", "1", true, 101, Plan::Refuse),
            ("damaged, a piece for who has the chance", "bad", "1", false, 101, Plan::Refuse),
            ("damaged, that one never came to an end", "bad", "1", true, 102, Plan::Check),
            ("damaged, and so did the next", "bad", "1", true, 102, Plan::Refuse),
            ("damaged, no chance for a piece", "bad", "1", false, 200, Plan::Refuse),
            ("written anew", "bad", "2", false, 100, Plan::Send),
            ("written anew, all of it", "bad", "2", true, 100, Plan::Check),
        ];
        for (case, digest, form, all, at, expected) in table {
            assert_eq!(trust.plan(digest, form, all, at * hour), expected, "{case}");
        }
        trust.forget("bad");
        assert_eq!(trust.plan("bad", "1", false, 100 * hour), Plan::Send, "uploaded anew");
    }

    #[test]
    fn what_is_damaged_is_not_forgotten_for_others() {
        let trust = Trust::default();
        trust.note("bad", "1".into(), false, 0);
        for n in 0..REMEMBERED_MAX + 10 {
            trust.note(&n.to_string(), "1".into(), true, 0);
        }
        assert!(trust.found().len() <= REMEMBERED_MAX);
        assert_eq!(trust.plan("bad", "1", false, 1), Plan::Refuse);
        assert_eq!(trust.plan(&(REMEMBERED_MAX + 9).to_string(), "1", true, 1), Plan::Send);
    }
}
