//! A bounded memory of what the actors did last: for the log, for support, and as the expectation of scenario tests.

use std::{cell::RefCell, collections::VecDeque, fmt, rc::Rc};

use board::Mono;

use crate::rank::Actor;

/// Transitions kept; the older ones are forgotten.
pub const ENTRIES_MAX: usize = 512;
/// Bytes kept of one description.
const TEXT_MAX: usize = 160;

/// One thing an actor did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// When.
    pub at: Mono,
    /// Who.
    pub actor: Actor,
    /// "Offline → Inviting   hotspot up"
    pub text: String,
}

/// Somebody who wants to see each entry as it is made.
type Watcher = Rc<dyn Fn(&Entry)>;

/// The shared ring.
#[derive(Clone, Default)]
pub struct Trace {
    entries: Rc<RefCell<VecDeque<Entry>>>,
    watcher: Option<Watcher>,
}

impl Trace {
    /// An empty trace that also shows each entry to `watcher`.
    #[must_use]
    pub fn watched(watcher: impl Fn(&Entry) + 'static) -> Self {
        Trace { entries: Rc::default(), watcher: Some(Rc::new(watcher)) }
    }

    /// Notes one transition. `text` must not hold secrets: it is shown to people.
    pub fn note(&self, at: Mono, actor: Actor, text: fmt::Arguments<'_>) {
        let mut text = text.to_string();
        if text.len() > TEXT_MAX {
            let end = (0..=TEXT_MAX).rev().find(|&end| text.is_char_boundary(end)).unwrap_or(0);
            text.truncate(end);
        }
        let entry = Entry { at, actor, text };
        log::debug!(target: actor.name(), "{}", entry.text);
        if let Some(watcher) = &self.watcher {
            watcher(&entry);
        }
        let mut entries = self.entries.borrow_mut();
        if entries.len() == ENTRIES_MAX {
            entries.pop_front();
        }
        entries.push_back(entry);
    }

    /// What is remembered, oldest first.
    #[must_use]
    pub fn entries(&self) -> Vec<Entry> {
        self.entries.borrow().iter().cloned().collect()
    }
}
