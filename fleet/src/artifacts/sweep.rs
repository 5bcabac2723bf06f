//! Removes artifacts that nobody refers to any more, and what killed servers left behind.

use std::{sync::Arc, time::Duration};

use tokio::sync::watch;

use super::ArtifactError;
use crate::{
    clock::Millis,
    context::Context,
    store::{DbError, Tx, artifacts, duties},
};

/// Deleting sweeps at once; this is for what crashes left, on this server or on another one.
const EVERY: Duration = Duration::from_secs(15 * 60);

/// Why a round was not finished; the next one goes on.
#[derive(Debug, thiserror::Error)]
pub enum SweepError {
    /// See [`DbError`].
    #[error(transparent)]
    Database(#[from] DbError),
    /// See [`ArtifactError`].
    #[error(transparent)]
    Artifact(#[from] ArtifactError),
}

/// What only one server does at a time, for how long it may rest when its holder dies. Longer than any removal takes.
const DUTY: &str = "remove artifacts";
const HELD: Millis = 10 * 60 * 1000;

/// One round, unless another server is at it. Two at once would both remove what they saw marked, and the slower one
/// what was uploaded anew in between.
pub async fn round(context: &Context) -> Result<(), SweepError> {
    let _alone = context.sweeping.lock().await;
    let ended = removed(context).await;
    hold(context, 0, |_| Ok(())).await?;
    ended
}

async fn removed(context: &Context) -> Result<(), SweepError> {
    loop {
        let now = context.memory.skew.shared(context.clock.now());
        let leaving = hold(context, HELD, move |tx| artifacts::leave(tx, now)).await?.unwrap_or_default();
        if leaving.is_empty() {
            return Ok(());
        }
        for digest in leaving {
            // Looked at once more each time: this server may have slept since, and another one gone on.
            let name = digest.clone();
            if hold(context, HELD, move |tx| artifacts::is_leaving(tx, &name)).await? != Some(true) {
                return Ok(());
            }
            context.artifacts.remove(&digest).await?;
            context.store.write::<_, DbError>(move |tx| artifacts::left(tx, &digest)).await?;
        }
    }
}

/// Does it while this server has the duty, and keeps that for `held`; nothing while another server has
/// it, and by a clock that is not the others'.
async fn hold<T: Send + 'static>(
    context: &Context,
    held: Millis,
    work: impl FnOnce(&Tx<'_>) -> Result<T, DbError> + Send + 'static,
) -> Result<Option<T>, DbError> {
    if !context.memory.skew.is_tolerable() {
        return Ok(None);
    }
    let (server, now) = (context.server.clone(), context.memory.skew.shared(context.clock.now()));
    let work = move |tx: &Tx<'_>| match duties::hold(tx, DUTY, &server, now, now + held)? {
        true => work(tx).map(Some),
        false => Ok(None),
    };
    context.store.write(work).await
}

/// A round now, because something was deleted; a failure is only a delay.
pub async fn now(context: &Context) {
    if let Err(problem) = round(context).await {
        tracing::warn!(%problem, "artifacts that nobody needs could not be removed yet");
    }
}

/// What unfinished uploads left, at the start; everything, every quarter of an hour.
pub async fn keep_swept(context: Arc<Context>, mut stopped: watch::Receiver<bool>) {
    loop {
        if let Err(problem) = context.artifacts.clean().await {
            tracing::warn!(%problem, "what unfinished uploads left could not be removed yet");
        }
        if tokio::time::timeout(EVERY, stopped.wait_for(|stop| *stop)).await.is_ok() {
            return;
        }
        now(&context).await;
    }
}
