//! Long work on a thread of its own, which ends soon after nobody waits for its result any more.

use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicBool, Ordering},
};

/// Tells a working thread that nobody waits for it.
#[derive(Clone, Default)]
pub(crate) struct Abandon {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    abandoned: AtomicBool,
    /// The network calls in flight: a thread that waits for a silent server sees no flag.
    agent: Mutex<Option<ureq::Agent>>,
}

impl Abandon {
    /// Whether to stop working.
    pub(crate) fn is_wanted(&self) -> bool {
        self.shared.abandoned.load(Ordering::Acquire)
    }

    /// Calls of this agent are to be interrupted too.
    pub(crate) fn covers(&self, agent: &ureq::Agent) {
        *self.shared.agent.lock().unwrap_or_else(PoisonError::into_inner) = Some(agent.clone());
        if self.is_wanted() {
            self.interrupt();
        }
    }

    fn interrupt(&self) {
        let agent = self.shared.agent.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(agent) = agent {
            agent.shutdown();
        }
    }
}

/// Abandons the work when dropped, which after its end means nothing.
struct OnDrop(Abandon);

impl Drop for OnDrop {
    fn drop(&mut self) {
        self.0.shared.abandoned.store(true, Ordering::Release);
        self.0.interrupt();
    }
}

/// Runs `work` on a thread of the pool. Dropping the future abandons it.
pub(crate) async fn run<T: Send + 'static>(work: impl FnOnce(&Abandon) -> T + Send + 'static) -> T {
    let guard = OnDrop(Abandon::default());
    let abandon = guard.0.clone();
    blocking::unblock(move || work(&abandon)).await
}
