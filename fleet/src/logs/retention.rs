//! How long logs stay: by age, by size per part, by size altogether; whichever is reached first.
//!
//! Decides what has to go; deletes in small steps, so that the writer thread is never held long.

use std::{sync::Arc, time::Duration};

use tokio::sync::watch;

use crate::{
    clock::Millis,
    context::Context,
    store::{Db, DbError, duties, logs as store, parts as stored_parts},
};

/// How much is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Since arrival: a device's clock may be anywhere.
    pub age: Duration,
    /// Of one part.
    pub bytes_per_part: i64,
    /// Of all parts.
    pub bytes: i64,
}

impl Limits {
    /// As an operator says it.
    pub fn new(days: u32, megabytes_per_part: u32, megabytes: u32) -> Self {
        let bytes = |megabytes: u32| i64::from(megabytes) << 20;
        Self {
            age: Duration::from_secs(u64::from(days) * 86_400),
            bytes_per_part: bytes(megabytes_per_part),
            bytes: bytes(megabytes),
        }
    }
}

impl Default for Limits {
    /// A month; about half a million ordinary lines of one part; what a small server's disk has to spare.
    fn default() -> Self {
        Self::new(30, 64, 4096)
    }
}

/// How often it is looked at what has to go.
const EVERY: Duration = Duration::from_secs(60);
/// Once in so many of these it is looked for entries of parts that are gone: hardly ever is there anything.
const ORPHANS_EVERY: u64 = 60;
/// Spools remembered for one part: a device makes a new one only when its disk was wiped.
pub const SOURCES_PER_PART_MAX: i64 = 16;

/// What was deleted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Pruned {
    /// Blocks that were too old.
    pub aged: usize,
    /// Blocks that were too many.
    pub over_size: usize,
}

/// Prunes until the server stops. A failure is logged and tried again a minute later.
pub async fn keep_pruned(context: Arc<Context>, mut stopped: watch::Receiver<bool>) {
    let mut turn = 0_u64;
    loop {
        // Two servers that see the same excess would delete it twice.
        let mine = match hold(&context).await {
            Ok(mine) => mine,
            Err(DbError::Closed) => return,
            Err(_) => false,
        };
        if mine && turn.is_multiple_of(ORPHANS_EVERY) {
            match forget_orphans(&context).await {
                Ok(0) => {}
                Ok(parts) => tracing::info!(parts, "deleted log entries of parts that are gone"),
                Err(DbError::Closed) => return,
                Err(cause) => tracing::error!(%cause, "could not delete log entries of parts that are gone"),
            }
        }
        let pruned = match mine {
            true => context.logs.prune(context.memory.skew.shared(context.clock.now())).await,
            false => Ok(Pruned::default()),
        };
        turn += u64::from(mine);
        match pruned {
            Ok(Pruned { aged: 0, over_size: 0 }) => {}
            Ok(Pruned { aged, over_size }) => tracing::info!(aged, over_size, "deleted old blocks of log entries"),
            Err(DbError::Closed) => return,
            Err(cause) => tracing::error!(%cause, "could not delete old log entries; trying again in a minute"),
        }
        if tokio::time::timeout(EVERY, stopped.wait_for(|stop| *stop)).await.is_ok() {
            let server = context.server.clone();
            // Not waited for by anybody: without it the next server begins a little later.
            let _ = context.store.write::<_, DbError>(move |tx| duties::release(tx, &server)).await;
            return;
        }
    }
}

/// Whether this server prunes, until the one after next look.
async fn hold(context: &Context) -> Result<bool, DbError> {
    if !context.store.state.is_shared() {
        return Ok(true);
    }
    // By a wrong clock everything would be old.
    if !context.memory.skew.is_tolerable() {
        return Ok(false);
    }
    let (server, now) = (context.server.clone(), context.memory.skew.shared(context.clock.now()));
    let until = now + Millis::try_from((EVERY * 5 / 2).as_millis()).unwrap_or_default();
    context.store.write(move |tx| duties::hold(tx, "prune logs", &server, now, until)).await
}

/// Two databases have no common transaction: a server that died after a part was deleted, or a device that was just
/// sending, leaves entries of a part that is gone. How many parts that were.
pub async fn forget_orphans(context: &Context) -> Result<usize, DbError> {
    let mut parts = 0;
    for part in context.logs.parts().await? {
        if !context.store.read(|tx| stored_parts::exists(tx, &part)).await? {
            context.logs.forget(&part).await?;
            parts += 1;
        }
    }
    Ok(parts)
}

pub(super) async fn prune(db: &Db, limits: &Limits, now: Millis) -> Result<Pruned, DbError> {
    let age = Millis::try_from(limits.age.as_millis()).unwrap_or(Millis::MAX);
    let mut pruned = Pruned::default();
    let oldest = now.saturating_sub(age);
    while let deleted @ 1.. = store::delete_arrived_before(db, oldest).await? {
        pruned.aged += deleted;
    }
    store::forget_sources(db, oldest, SOURCES_PER_PART_MAX).await?;
    let sizes = store::sizes(db).await?;
    let mut total: i64 = sizes.iter().map(|(_, bytes)| bytes).sum();
    for (part_id, bytes) in sizes {
        let excess = bytes - limits.bytes_per_part;
        if excess > 0 {
            let (deleted, freed) = store::delete_oldest(db, Some(part_id), excess).await?;
            pruned.over_size += deleted;
            total -= freed;
        }
    }
    if total > limits.bytes {
        pruned.over_size += store::delete_oldest(db, None, total - limits.bytes).await?.0;
    }
    Ok(pruned)
}
