//! Removes artifacts that nobody refers to any more, and what killed servers left behind.

use std::{sync::Arc, time::Duration};

use tokio::sync::watch;

use super::ArtifactError;
use crate::{
    context::Context,
    store::{DbError, artifacts},
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

/// One round.
pub async fn round(context: &Context) -> Result<(), SweepError> {
    loop {
        let now = context.clock.now();
        let leaving = context.store.write::<_, DbError>(move |tx| artifacts::leave(tx, now)).await?;
        if leaving.is_empty() {
            return Ok(());
        }
        for digest in leaving {
            context.artifacts.remove(&digest).await?;
            context.store.write::<_, DbError>(move |tx| artifacts::left(tx, &digest)).await?;
        }
    }
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
