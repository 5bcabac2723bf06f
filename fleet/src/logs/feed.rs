//! What followers see: the blocks that were committed since, read back in the order of their commits.
//!
//! By whichever server they were taken in. One reading serves all followers of this process, and costs nothing while
//! nobody follows anything. It is woken by an announcement, looks by itself every half second where that was lost, and
//! goes on where it was after an outage of the database: what was committed meanwhile is shown then.

use std::{sync::Arc, time::Duration};

use tokio::sync::{Mutex, watch};

use super::{block, hub::Follower, hub::Hub, query::Wanted};
use crate::{
    context::Context,
    refusal::Refusal,
    store::{Db, DbError, logs as store},
};

/// How often it is looked whether something came, if nobody says so.
const LOOKED_EVERY: Duration = Duration::from_millis(500);
/// Under a flood of announcements: one reading for what came in this time.
const AT_MOST_EVERY: Duration = Duration::from_millis(10);
/// Blocks looked at in one go; only those of followed parts are opened.
const BLOCKS_PER_TURN: i64 = 500;

/// How far the blocks were read.
#[derive(Default)]
pub struct Feed {
    /// The last block that was shown or passed over; `None` while nobody follows anything.
    read: Mutex<Option<i64>>,
}

impl Feed {
    pub(super) async fn follow(&self, db: &Db, hub: &Hub, part_id: &str, wanted: Wanted) -> Result<Follower, Refusal> {
        let mut read = self.read.lock().await;
        let since = db.read(store::newest).await?;
        let follower = hub.follow(part_id, since, wanted)?;
        read.get_or_insert(since);
        Ok(follower)
    }

    pub(super) async fn turn(&self, db: &Db, hub: &Hub) -> Result<(), DbError> {
        let mut read = self.read.lock().await;
        if hub.watched_parts() == 0 {
            *read = None;
        }
        while let Some(after) = *read {
            let blocks = db.read(|tx| store::after(tx, after, BLOCKS_PER_TURN)).await?;
            for (id, part) in &blocks {
                if hub.is_watched(part)
                    && let Some(body) = db.read(|tx| store::body(tx, *id)).await?
                {
                    hub.publish(part, *id, block::entries(*id, body));
                    // Under a flood there are many: calls go in between.
                    tokio::task::yield_now().await;
                }
                *read = Some(*id);
            }
            if blocks.len() < BLOCKS_PER_TURN as usize {
                break;
            }
        }
        Ok(())
    }
}

/// Shows followers what comes, until the server stops.
pub async fn keep_fed(context: Arc<Context>, mut stopped: watch::Receiver<bool>) {
    let mut changed = context.store.logs.changed();
    let mut reached = true;
    loop {
        tokio::select! {
            () = context.logs.hub.some_follower() => {}
            _ = stopped.wait_for(|stop| *stop) => return,
        }
        changed.mark_unchanged();
        let outcome = context.logs.feed().await;
        if let (Err(problem), true) = (&outcome, reached) {
            tracing::warn!(%problem, "followers of logs wait: new entries cannot be read");
        }
        reached = outcome.is_ok();
        tokio::time::sleep(AT_MOST_EVERY).await;
        tokio::select! {
            _ = changed.changed() => {}
            () = tokio::time::sleep(LOOKED_EVERY) => {}
            _ = stopped.wait_for(|stop| *stop) => return,
        }
    }
}
