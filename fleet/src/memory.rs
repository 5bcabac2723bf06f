//! What this process remembers of the database, and how it hears that it must not go on doing so.
//!
//! Several servers may share one database. Each remembers who may call, what lies inside what, which configurations are
//! unchanged. A change tells what is to be forgotten in its own transaction (`store/news.rs`): this process hears it
//! before the answer goes out, another one within half a second, or at once if the wake-up arrives. While the news
//! cannot be read, nothing that gives rights is taken from memory.

use std::{
    sync::{
        Arc,
        atomic::{AtomicI64, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use tokio::sync::watch;

use crate::{
    authn::Sessions,
    authz::Ancestry,
    changes::Changes,
    context::Context,
    logs::hub::Hub,
    presence::Presence,
    skew::Skew,
    store::{
        DbError, Store,
        news::{self, News, Numbered},
    },
};

/// How often the news is read, whether somebody announced some or not.
const READ_EVERY: Duration = Duration::from_millis(500);
/// News that was read longer ago than this may have missed a revocation, which must be known within two seconds.
const CURRENT_FOR: Duration = Duration::from_millis(1_500);
/// How often old news is deleted.
const TIDIED_EVERY: Duration = Duration::from_secs(600);

/// How recently this process read the news.
pub struct Freshness {
    begun: Instant,
    /// Milliseconds from `begun` to the begin of the last reading; `u64::MAX` where nobody else changes anything.
    read: AtomicU64,
}

impl Freshness {
    fn new(shared: bool) -> Self {
        Self { begun: Instant::now(), read: AtomicU64::new(if shared { 0 } else { u64::MAX }) }
    }

    /// Whether what is remembered can be counted on.
    pub fn is_current(&self) -> bool {
        match self.read.load(Ordering::Acquire) {
            u64::MAX => true,
            read => self.now().saturating_sub(read) <= CURRENT_FOR.as_millis() as u64,
        }
    }

    fn now(&self) -> u64 {
        u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX - 1)
    }

    fn read_at(&self, moment: u64) {
        if self.read.load(Ordering::Acquire) != u64::MAX {
            self.read.store(moment, Ordering::Release);
        }
    }
}

impl Default for Freshness {
    /// Of a process that shares its database with nobody.
    fn default() -> Self {
        Self::new(false)
    }
}

/// Everything that is remembered.
pub struct Memory {
    /// Who may call.
    pub sessions: Arc<Sessions>,
    /// What lies inside what.
    pub ancestry: Arc<Ancestry>,
    /// Which configurations changed.
    pub changes: Arc<Changes>,
    /// Which devices are there.
    pub presence: Arc<Presence>,
    /// How far this server's clock is from that of others.
    pub skew: Arc<Skew>,
    /// Who follows which log.
    pub hub: Hub,
    /// How far the news was read.
    pub freshness: Arc<Freshness>,
    heard: AtomicI64,
}

impl Memory {
    /// Nothing yet, over a database that others may change too.
    pub fn of(store: &Store) -> Arc<Self> {
        let freshness = Arc::new(Freshness::new(store.state.is_shared()));
        let skew = Arc::<Skew>::default();
        Arc::new(Self {
            sessions: Arc::default(),
            ancestry: Arc::new(Ancestry::new(freshness.clone())),
            changes: Arc::default(),
            presence: Arc::new(Presence::new(skew.clone())),
            skew,
            hub: Hub::default(),
            freshness,
            heard: AtomicI64::new(i64::MAX),
        })
    }

    /// Forgets what the news says. Hearing it twice does no harm.
    pub fn hear(&self, told: &[Numbered]) {
        self.sessions.hear(told);
        for (_, news) in told {
            match news {
                News::Everything => {
                    self.ancestry.changed();
                    self.changes.shared();
                }
                News::Tree => self.ancestry.changed(),
                News::Part(part) => self.changes.part(part),
                News::PartGone(part) => {
                    self.ancestry.changed();
                    self.changes.part(part);
                    self.presence.forget(part);
                    self.hub.end(part);
                }
                News::Configurations => self.changes.shared(),
                News::Key(_) | News::Identity(_) | News::PartSecrets(_) | News::LocationSecrets(_) | News::Rights => {}
            }
        }
    }

    /// Reads what was told since the last time. The first time that is nothing: there was nothing remembered. Past the
    /// calls that wait for the database: if this waited behind them, they would only be more.
    pub async fn catch_up(&self, store: &Store) -> Result<(), DbError> {
        loop {
            let (moment, heard) = (self.freshness.now(), self.heard.load(Ordering::Acquire));
            if heard == i64::MAX {
                self.heard.store(store.state.read_apart(news::newest).await?, Ordering::Release);
                self.freshness.read_at(moment);
                return Ok(());
            }
            let (found, all) = store.state.read_apart(|tx| news::after(tx, heard)).await?;
            self.hear(&found);
            if let Some((last, _)) = found.last() {
                self.heard.store(*last, Ordering::Release);
            }
            if all {
                self.freshness.read_at(moment);
                return Ok(());
            }
        }
    }
}

/// Keeps what is remembered true until the server stops.
pub async fn keep_current(context: Arc<Context>, mut stopped: watch::Receiver<bool>) {
    let mut changed = context.store.state.changed();
    let mut tidied = Instant::now();
    let mut reached = true;
    loop {
        let outcome = context.memory.catch_up(&context.store).await;
        if let (Err(problem), true) = (&outcome, reached) {
            tracing::warn!(%problem, "cannot read what other servers changed: everybody is looked up afresh until then");
        }
        reached = outcome.is_ok();
        if tidied.elapsed() >= TIDIED_EVERY {
            tidied = Instant::now();
            let now = context.clock.now();
            if let Err(problem) = context.store.write::<_, DbError>(move |tx| news::forget(tx, now)).await {
                tracing::warn!(%problem, "could not delete old news");
            }
        }
        tokio::select! {
            _ = changed.changed() => {}
            () = tokio::time::sleep(READ_EVERY) => {}
            _ = stopped.wait_for(|stop| *stop) => return,
        }
    }
}
