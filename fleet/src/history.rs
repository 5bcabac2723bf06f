//! How long history stays: the audit log and former configurations of parts and fragments, for ever unless an operator says
//! otherwise. A fragment's former configuration that something names stays for as long as it is named.

use std::{sync::Arc, time::Duration};

use tokio::sync::watch;

use crate::{
    clock::Millis,
    context::Context,
    store::{
        DbError, Tx, duties, fragment_history,
        history::{Kept, forget},
    },
};

/// How often it is looked at what has to go.
const EVERY: Duration = Duration::from_secs(60 * 60);
/// For how long no other server begins.
const HELD: Millis = 2 * 60 * 60 * 1000;

/// How long it is kept; nothing is for ever.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Limits {
    /// Rows of the audit log.
    pub audit: Option<Duration>,
    /// What parts and fragments were before each change.
    pub configurations: Option<Duration>,
}

impl Limits {
    /// As an operator says it.
    pub fn new(audit_days: Option<u32>, history_days: Option<u32>) -> Self {
        let days = |days: u32| Duration::from_secs(u64::from(days) * 86_400);
        Self { audit: audit_days.map(days), configurations: history_days.map(days) }
    }
}

/// Deletes what is too old, now and every hour until the server stops.
pub async fn keep_short(context: Arc<Context>, limits: Limits, mut stopped: watch::Receiver<bool>) {
    while limits != Limits::default() {
        match round(&context, limits).await {
            Ok(nothing) if nothing == Forgotten::default() => {}
            Ok(Forgotten { audit, parts, fragments }) => {
                tracing::info!(audit, parts, fragments, "deleted rows of the audit log and former configurations");
            }
            Err(problem) => tracing::warn!(%problem, "could not delete old history; trying again in an hour"),
        }
        if tokio::time::timeout(EVERY, stopped.wait_for(|stop| *stop)).await.is_ok() {
            return;
        }
    }
}

/// How many rows went.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Forgotten {
    /// Of the audit log.
    pub audit: usize,
    /// What parts were.
    pub parts: usize,
    /// What fragments were.
    pub fragments: usize,
}

/// One round, by one server of those that share a database, and by none whose clock is wrong.
pub async fn round(context: &Context, limits: Limits) -> Result<Forgotten, DbError> {
    let skew = &context.memory.skew;
    let now = skew.shared(context.clock.now());
    let server = context.server.clone();
    let hold = move |tx: &Tx<'_>| duties::hold(tx, "shorten history", &server, now, now + HELD);
    if !skew.is_tolerable() || !context.store.write::<_, DbError>(hold).await? {
        return Ok(Forgotten::default());
    }
    let before = |age: Duration| now.saturating_sub(Millis::try_from(age.as_millis()).unwrap_or(Millis::MAX));
    let mut forgotten = Forgotten::default();
    if let Some(age) = limits.audit {
        forgotten.audit = forget(&context.store, Kept::Audit, before(age)).await?;
    }
    if let Some(age) = limits.configurations {
        forgotten.parts = forget(&context.store, Kept::Parts, before(age)).await?;
        forgotten.fragments = fragment_history::forget(&context.store, before(age)).await?;
    }
    Ok(forgotten)
}
