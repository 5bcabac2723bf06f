//! The fragments at hand, and what can be said about a document's fragments before it is saved.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

use serde_json::{Map, Value};

use super::{
    DEPTH_MAX, FRAGMENTS, RESOLUTIONS_MAX, WORK_MAX_BYTES,
    complaint::Complaints,
    reference::{self, Key},
};

/// A fragment in one of its revisions.
#[derive(Debug, Clone)]
pub struct Fragment {
    revision: String,
    config: Map<String, Value>,
    /// Length of its text, for the account of work.
    bytes: usize,
}

impl Fragment {
    /// From the stored text; nothing if that is not a JSON object.
    pub fn read(revision: impl Into<String>, text: &str) -> Option<Self> {
        let Ok(Value::Object(config)) = serde_json::from_str(text) else { return None };
        Some(Self { revision: revision.into(), config, bytes: text.len() })
    }

    /// The revision, as the fragment's history counts it.
    pub fn revision(&self) -> &str {
        &self.revision
    }

    /// The document.
    pub fn config(&self) -> &Map<String, Value> {
        &self.config
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }
}

/// Fragments by what references call them. Holds "there is none" too, so that filling it ends.
#[derive(Debug, Clone, Default)]
pub struct Library {
    held: HashMap<Key, Option<Arc<Fragment>>>,
    /// Fragments that are there, and the length of their texts.
    count: usize,
    bytes: usize,
}

impl Library {
    /// Adds what was found for a key, or that nothing was.
    pub fn add(&mut self, key: Key, fragment: Option<Arc<Fragment>>) {
        if let Some(fragment) = &fragment {
            self.count += 1;
            self.bytes += fragment.bytes;
        }
        self.held.insert(key, fragment);
    }

    /// Whether more is held than one composition resolves or copies: it is refused, whatever else is added.
    pub fn is_beyond_composing(&self) -> bool {
        self.count > RESOLUTIONS_MAX || self.bytes > WORK_MAX_BYTES
    }

    pub(super) fn get(&self, key: &Key) -> Option<&Arc<Fragment>> {
        self.held.get(key)?.as_ref()
    }
}

/// What `document` names, directly or through fragments at hand, and `library` was not asked for yet.
/// Call it, fill, and call it again until it is empty: at most [`DEPTH_MAX`] times.
pub fn missing(document: &Map<String, Value>, library: &Library) -> Vec<Key> {
    let mut seen: BTreeSet<Key> = BTreeSet::new();
    let mut missing = Vec::new();
    let mut level = keys(document);
    for _ in 0..DEPTH_MAX {
        let mut next = Vec::new();
        for key in level {
            if !seen.insert(key.clone()) {
                continue;
            }
            match library.held.get(&key) {
                None => missing.push(key),
                Some(None) => {}
                Some(Some(fragment)) => next.extend(keys(fragment.config())),
            }
        }
        level = next;
    }
    missing
}

/// Why a document with these fragments is not saved.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SaveRefusal {
    /// The fragment would contain itself.
    #[error("the fragment would contain itself: {}; take one of these references out", chain.join(" → "))]
    Cycle {
        /// Ids from the fragment back to itself.
        chain: Vec<String>,
    },
    /// Its fragments are nested too deeply.
    #[error("its fragments are nested deeper than {DEPTH_MAX} levels: {}{}", said_of(*above), chain.join(" → "))]
    TooDeep {
        /// Levels of fragments that it lies in itself.
        above: usize,
        /// Ids from the outermost to the one that is too deep.
        chain: Vec<String>,
    },
}

fn said_of(levels: usize) -> String {
    if levels == 0 { String::new() } else { format!("{levels} above it → ") }
}

/// Checks a fragment about to be saved as `id`, which lies in fragments of so many levels `above`, with everything it names
/// at hand (see [`missing`]).
pub fn check_fragment(
    id: &str,
    above: usize,
    config: &Map<String, Value>,
    library: &Library,
) -> Result<(), SaveRefusal> {
    // A circle is told as one, however deep it lies.
    walk(config, library, 0, &mut vec![id.to_owned()], &mut BTreeSet::new())?;
    match above {
        0 => Ok(()),
        above => walk(config, library, above, &mut vec![id.to_owned()], &mut BTreeSet::new()),
    }
}

/// Checks a part's configuration about to be saved: the depth of its fragments.
pub fn check_part(config: &Map<String, Value>, library: &Library) -> Result<(), SaveRefusal> {
    walk(config, library, 0, &mut Vec::new(), &mut BTreeSet::new())
}

/// `cleared` holds (depth, fragment) pairs already walked: without it, fragments that share fragments would be walked
/// as often as there are ways to them.
fn walk(
    config: &Map<String, Value>,
    library: &Library,
    above: usize,
    chain: &mut Vec<String>,
    cleared: &mut BTreeSet<(usize, Key)>,
) -> Result<(), SaveRefusal> {
    for key in keys(config) {
        if chain.contains(&key.id) {
            let chain = chain.iter().skip_while(|id| **id != key.id).cloned().chain([key.id.clone()]).collect();
            return Err(SaveRefusal::Cycle { chain });
        }
        if cleared.contains(&(chain.len(), key.clone())) {
            continue;
        }
        chain.push(key.id.clone());
        if above + chain.len() > DEPTH_MAX {
            return Err(SaveRefusal::TooDeep { above, chain: chain.clone() });
        }
        if let Some(fragment) = library.get(&key) {
            walk(fragment.config(), library, above, chain, cleared)?;
        }
        chain.pop();
        cleared.insert((chain.len(), key));
    }
    Ok(())
}

fn keys(document: &Map<String, Value>) -> Vec<Key> {
    let mut unheard = Complaints::default();
    reference::read(document.get(FRAGMENTS), "", &mut unheard).into_iter().map(|reference| reference.key).collect()
}
