//! What devices say: taken in, kept for a while, read back in pages, followed live.
//!
//! Owns the shape of a stored log (`block`), the question of a reader (`query`), the order of an answer (`order`), the
//! live followers (`hub`, `feed`, `encoded`) and how long anything stays (`retention`). The SQL is in `store/logs.rs`.
//! Entries are kept in the order of their own time; entries of the same millisecond in the order of their arrival.
//! Refuses nothing that a device cannot repair: an entry that is too long is cut and says so, because a refused batch
//! would block the device's queue for ever.

pub mod block;
pub mod encoded;
pub mod feed;
pub mod hub;
pub mod level;
pub mod order;
pub mod query;
pub mod retention;

#[cfg(test)]
mod tests;
#[cfg(test)]
#[path = "tests.rs"]
#[allow(clippy::duplicate_mod, reason = "the same promises, on the other engine")]
mod tests_on_postgres;

use std::sync::Arc;

use api::pb::platform::common::v1::LogEntry;

use crate::{
    clock::Millis,
    refusal::Refusal,
    store::{Db, DbError, logs as store},
};
use feed::Feed;
use hub::{Follower, Hub};
use retention::Limits;

/// Entries in one call: ten of the device's batches.
pub const ENTRIES_PER_CALL_MAX: usize = 1_000;
/// Name of a device's spool: random, so this is plenty.
pub const SPOOL_ID_MAX_BYTES: usize = 64;

/// Where a batch comes from, which decides how a repeat is recognised.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// A device that numbers its batches, counted within one spool.
    Spool {
        /// The spool's name.
        id: String,
        /// This batch's number.
        number: i64,
    },
    /// A caller that does not number: a batch equal to the one before is a repeat.
    Unnumbered,
}

/// What became of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Taken {
    /// The highest number kept of this spool; 0 for callers that do not number.
    pub acknowledged: i64,
    /// It was a repeat, and was dropped.
    pub repeat: bool,
}

/// The logs of all parts.
pub struct Logs {
    db: Db,
    ids: Arc<store::BlockIds>,
    /// Who follows which part.
    pub hub: Hub,
    feed: Feed,
    limits: Limits,
}

impl Logs {
    /// Over the log database.
    pub fn new(db: Db, hub: Hub, limits: Limits) -> Self {
        Self { db, ids: Arc::default(), hub, feed: Feed::default(), limits }
    }

    /// Keeps a batch. Returns after the commit; whoever follows the part sees it a moment later.
    pub async fn take(
        &self,
        part_id: &str,
        source: Source,
        entries: Vec<LogEntry>,
        now: Millis,
    ) -> Result<Taken, DbError> {
        if entries.is_empty() && source == Source::Unnumbered {
            return Ok(Taken { acknowledged: 0, repeat: false });
        }
        let digest = match source {
            Source::Spool { .. } => String::new(),
            Source::Unnumbered => block::digest(&entries),
        };
        let blocks = block::pack(block::accept(entries, now));
        let batch = store::Batch { part_id: part_id.to_owned(), source, digest, blocks, now };
        store::insert(&self.db, self.ids.clone(), batch).await
    }

    /// Follows a part from now on.
    pub async fn follow(&self, part_id: &str, wanted: query::Wanted) -> Result<Follower, Refusal> {
        self.feed.follow(&self.db, &self.hub, part_id, wanted).await
    }

    /// Shows followers what was committed since the last time.
    pub async fn feed(&self) -> Result<(), DbError> {
        self.feed.turn(&self.db, &self.hub).await
    }

    /// One page of a part's entries.
    pub async fn page(&self, part_id: &str, query: query::Query) -> Result<query::Page, DbError> {
        store::page(&self.db, part_id, query).await
    }

    /// Forgets everything a part said: called after the part is gone.
    pub async fn forget(&self, part_id: &str) -> Result<(), DbError> {
        self.hub.end(part_id);
        store::forget(&self.db, part_id).await
    }

    /// Parts of which anything is kept.
    pub async fn parts(&self) -> Result<Vec<String>, DbError> {
        Ok(store::sizes(&self.db).await?.into_iter().map(|(part, _)| part).collect())
    }

    /// Deletes what is too old or too much. Works in small steps: taking logs in goes on meanwhile.
    pub async fn prune(&self, now: Millis) -> Result<retention::Pruned, DbError> {
        retention::prune(&self.db, &self.limits, now).await
    }
}
