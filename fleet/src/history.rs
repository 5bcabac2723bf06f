//! How long history stays: the audit log and former configurations of parts, for ever unless an operator says otherwise.

use std::{sync::Arc, time::Duration};

use tokio::sync::watch;

use crate::{
    clock::Millis,
    context::Context,
    store::{
        DbError, Tx, duties,
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
    /// What parts were before each change.
    pub parts: Option<Duration>,
}

impl Limits {
    /// As an operator says it.
    pub fn new(audit_days: Option<u32>, part_days: Option<u32>) -> Self {
        let days = |days: u32| Duration::from_secs(u64::from(days) * 86_400);
        Self { audit: audit_days.map(days), parts: part_days.map(days) }
    }
}

/// Deletes what is too old, now and every hour until the server stops.
pub async fn keep_short(context: Arc<Context>, limits: Limits, mut stopped: watch::Receiver<bool>) {
    while limits != Limits::default() {
        match round(&context, limits).await {
            Ok((0, 0)) => {}
            Ok((audit, parts)) => tracing::info!(audit, parts, "deleted rows of the audit log and of parts' history"),
            Err(problem) => tracing::warn!(%problem, "could not delete old history; trying again in an hour"),
        }
        if tokio::time::timeout(EVERY, stopped.wait_for(|stop| *stop)).await.is_ok() {
            return;
        }
    }
}

/// One round, by one server of those that share a database, and by none whose clock is wrong: rows of the audit log, of
/// parts.
pub async fn round(context: &Context, limits: Limits) -> Result<(usize, usize), DbError> {
    let skew = &context.memory.skew;
    let now = skew.shared(context.clock.now());
    let server = context.server.clone();
    let hold = move |tx: &Tx<'_>| duties::hold(tx, "shorten history", &server, now, now + HELD);
    if !skew.is_tolerable() || !context.store.write::<_, DbError>(hold).await? {
        return Ok((0, 0));
    }
    let mut deleted = [0; 2];
    for (count, (what, age)) in deleted.iter_mut().zip([(Kept::Audit, limits.audit), (Kept::Parts, limits.parts)]) {
        if let Some(age) = age {
            let before = now.saturating_sub(Millis::try_from(age.as_millis()).unwrap_or(Millis::MAX));
            *count = forget(&context.store, what, before).await?;
        }
    }
    Ok((deleted[0], deleted[1]))
}
