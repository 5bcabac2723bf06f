//! What lies inside what: part → machine → locations → organization, and with whom those locations are shared.
//!
//! Kept in memory, because every call asks. Anything that moves, shares or removes a resource tells the news (see
//! `memory.rs`), which calls [`Ancestry::changed`] and forgets everything: such changes are rare, and reading a way up
//! again costs microseconds.

use std::{
    collections::HashMap,
    sync::{
        Arc, RwLock,
        atomic::{AtomicU64, Ordering},
    },
};

use super::{Grant, Level, ResourceKind, Target};
use crate::{
    ids,
    memory::Freshness,
    refusal::Refusal,
    store::{Store, tree},
};

/// Ways up that are remembered; about 300 bytes each.
const REMEMBERED: usize = 50_000;

/// The way up from one thing. Ids of what lies on it; the thing itself included.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chain {
    /// The machine, for a machine and for a part.
    pub machine: Option<Arc<str>>,
    /// From the inner to the outermost.
    pub locations: Vec<Arc<str>>,
    /// The one that owns it.
    pub organization: Arc<str>,
    /// Others that have access because one of the locations is shared with them.
    pub shared_with: Vec<Arc<str>>,
}

impl Chain {
    /// How a grant reaches this thing, if it does.
    pub fn level_of(&self, grant: &Grant) -> Option<Level> {
        match grant.kind {
            ResourceKind::Organization if grant.resource == self.organization => Some(Level::Organization),
            ResourceKind::Organization => {
                self.shared_with.contains(&grant.resource).then_some(Level::SharedOrganization)
            }
            ResourceKind::Location => self.locations.contains(&grant.resource).then_some(Level::Location),
            ResourceKind::Machine => (self.machine.as_ref() == Some(&grant.resource)).then_some(Level::Machine),
        }
    }

    /// Whether the way up leads through that thing. An organization with which a location is shared is not on it: who
    /// has a key for one machine there need not learn who else looks after it.
    pub fn passes(&self, what: Target, id: &str) -> bool {
        match what {
            Target::Organization => *self.organization == *id,
            Target::Location => self.locations.iter().any(|location| **location == *id),
            Target::Machine => self.machine.as_deref() == Some(id),
            Target::Part | Target::Fragment | Target::RegistryItem => false,
        }
    }
}

/// Remembers ways up.
#[derive(Default)]
pub struct Ancestry {
    freshness: Arc<Freshness>,
    generation: AtomicU64,
    known: RwLock<Known>,
}

#[derive(Default)]
struct Known {
    generation: u64,
    chains: HashMap<Target, HashMap<Box<str>, Arc<Chain>>>,
    count: usize,
}

impl Ancestry {
    /// Nothing remembered yet.
    pub fn new(freshness: Arc<Freshness>) -> Self {
        Self { freshness, ..Self::default() }
    }

    /// The way up from a thing, itself included; `None` if there is no such thing. An id that cannot be one is refused.
    pub async fn of(&self, store: &Store, what: Target, id: &str) -> Result<Option<Arc<Chain>>, Refusal> {
        if !ids::is_id(id) {
            return Err(Refusal::malformed_id(what.word(), id));
        }
        // Read before the database: a change after this moment makes what we find old news at once.
        let generation = self.generation.load(Ordering::Acquire);
        if let Ok(known) = self.known.read()
            && known.generation == generation
            && self.freshness.is_current()
            && let Some(chain) = known.chains.get(&what).and_then(|chains| chains.get(id))
        {
            return Ok(Some(chain.clone()));
        }
        let found = store.read::<_, Refusal>(|tx| Ok(tree::way_up(tx, what, id)?)).await?;
        let Some(chain) = found.map(Arc::new) else { return Ok(None) };
        if let Ok(mut known) = self.known.write() {
            if known.generation != generation || known.count >= REMEMBERED {
                *known = Known { generation, ..Known::default() };
            }
            known.chains.entry(what).or_default().insert(id.into(), chain.clone());
            known.count += 1;
        }
        Ok(Some(chain))
    }

    /// Something was moved, shared, unshared or removed.
    pub fn changed(&self) {
        self.generation.fetch_add(1, Ordering::AcqRel);
    }
}
