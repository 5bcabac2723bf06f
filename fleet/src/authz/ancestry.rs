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
    store::{Store, Tx, tree},
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

/// A way up, and that of a location, to be remembered too.
type Found = Option<(Arc<Chain>, Option<(Arc<str>, Arc<Chain>)>)>;

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
    /// By the bytes of the id, which are compared without looking anywhere else.
    chains: HashMap<(Target, [u8; 16]), Arc<Chain>>,
}

impl Known {
    fn put(&mut self, what: Target, id: &str, chain: Arc<Chain>) {
        if let Some(id) = ids::to_bytes(id) {
            self.chains.insert((what, id), chain);
        }
    }
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
        if let Some(chain) = self.remembered(generation, what, id) {
            return Ok(Some(chain));
        }
        let found = store.read::<_, Refusal>(|tx| self.look_up(tx, generation, what, id)).await?;
        let Some((chain, above)) = found else { return Ok(None) };
        if let Ok(mut known) = self.known.write() {
            if known.generation != generation || known.chains.len() >= REMEMBERED {
                *known = Known { generation, ..Known::default() };
            }
            if let Some((location, above)) = above {
                known.put(Target::Location, &location, above);
            }
            known.put(what, id, chain.clone());
        }
        Ok(Some(chain))
    }

    fn remembered(&self, generation: u64, what: Target, id: &str) -> Option<Arc<Chain>> {
        let id = ids::to_bytes(id)?;
        let known = self.known.read().ok()?;
        let counts = known.generation == generation && self.freshness.is_current();
        known.chains.get(&(what, id)).filter(|_| counts).cloned()
    }

    /// The way up, and that of its location where it was not remembered: a location has many machines, and where it lies is
    /// asked once for all of them.
    fn look_up(&self, tx: &Tx<'_>, generation: u64, what: Target, id: &str) -> Result<Found, Refusal> {
        if !matches!(what, Target::Part | Target::Machine) {
            return Ok(tree::way_up(tx, what, id)?.map(|chain| (Arc::new(chain), None)));
        }
        let Some((machine, location)) = tree::place(tx, what, id)? else { return Ok(None) };
        let (above, new) = match self.remembered(generation, Target::Location, &location) {
            Some(above) => (above, None),
            None => {
                let Some(above) = tree::way_up(tx, Target::Location, &location)?.map(Arc::new) else { return Ok(None) };
                (above.clone(), Some((location, above)))
            }
        };
        Ok(Some((Arc::new(Chain { machine: Some(machine), ..(*above).clone() }), new)))
    }

    /// Something was moved, shared, unshared or removed.
    pub fn changed(&self) {
        self.generation.fetch_add(1, Ordering::AcqRel);
    }
}
