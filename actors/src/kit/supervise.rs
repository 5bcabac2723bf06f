//! Starts the actors by rank, feeds the watchdog while they move, and stops them in the same order.
//!
//! It never awaits an actor's work. An actor that ends unasked is a bug and ends the process: whoever started the agent
//! starts it again, and the machine server lives on. An actor whose loop has not come round although news waited for it
//! starves the watchdog, and the service manager decides.

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    time::Duration,
};

use board::{Clock, Mono, service::Service};
use smol::{LocalExecutor, Task, future::FutureExt as _};

use super::latest::{Latest, Watch};
use crate::rank::Actor;

/// An actor that has been in one turn for longer than this hangs. Turns await only quick things.
pub const TURN_MAX: Duration = Duration::from_secs(60);

/// What each shell is given to be stoppable and watched.
#[derive(Clone)]
pub struct Lifeline {
    stop: Watch<()>,
    clock: Rc<dyn Clock>,
    /// When the present turn began; `None` while the actor waits for news.
    turn: Rc<Cell<Option<Mono>>>,
}

impl Lifeline {
    /// Resolves when the actor shall end. Cancel-safe.
    pub async fn stopped(&mut self) {
        self.stop.changed().await;
    }

    /// The actor has news and begins to work.
    pub fn turn_begins(&self) {
        self.turn.set(Some(self.clock.now()));
    }

    /// The actor waits for news.
    pub fn turn_ends(&self) {
        self.turn.set(None);
    }

    /// A lifeline that nobody pulls, for tests of single actors.
    #[must_use]
    pub fn unattended(clock: Rc<dyn Clock>) -> Self {
        Lifeline { stop: Latest::new().watch(), clock, turn: Rc::default() }
    }
}

struct Charge {
    actor: Actor,
    name: &'static str,
    task: Task<()>,
    stop: Latest<()>,
    turn: Rc<Cell<Option<Mono>>>,
}

/// The actors under supervision.
pub struct Supervisor {
    executor: Rc<LocalExecutor<'static>>,
    clock: Rc<dyn Clock>,
    charges: Rc<RefCell<Vec<Charge>>>,
    ended: Latest<&'static str>,
}

impl Supervisor {
    /// Nobody yet.
    #[must_use]
    pub fn new(executor: &Rc<LocalExecutor<'static>>, clock: &Rc<dyn Clock>) -> Self {
        Supervisor {
            executor: Rc::clone(executor),
            clock: Rc::clone(clock),
            charges: Rc::default(),
            ended: Latest::new(),
        }
    }

    /// Starts an actor; `run` gets the lifeline it has to heed. Start them by rank.
    pub fn start<F: Future<Output = ()> + 'static>(
        &self,
        actor: Actor,
        name: &'static str,
        run: impl FnOnce(Lifeline) -> F,
    ) {
        let stop = Latest::new();
        let turn = Rc::new(Cell::new(None));
        let lifeline = Lifeline { stop: stop.watch(), clock: Rc::clone(&self.clock), turn: Rc::clone(&turn) };
        let (life, ended) = (run(lifeline), self.ended.clone());
        let task = self.executor.spawn(async move {
            life.await;
            ended.publish(name);
        });
        self.charges.borrow_mut().push(Charge { actor, name, task, stop, turn });
    }

    /// Resolves with the name of an actor that ended although nobody asked it to.
    pub async fn unasked_end(&self) -> &'static str {
        self.ended.watch().changed().await
    }

    /// Tells the service manager that the agent lives, as often as it wants to hear that, while no actor hangs.
    pub async fn feed_watchdog(&self, service: &dyn Service) {
        let Some(every) = service.watchdog() else { return std::future::pending().await };
        loop {
            // At once: when it was fed last is not known to whoever begins to feed it.
            match self.hanging() {
                None => service.alive(),
                Some(name) => log::error!("{name} has been busy for over {} s", TURN_MAX.as_secs()),
            }
            self.clock.sleep_until(self.clock.now() + every).await;
        }
    }

    /// An actor that has been in one turn for too long.
    #[must_use]
    pub fn hanging(&self) -> Option<&'static str> {
        hanging(&self.charges.borrow(), &*self.clock)
    }

    /// Whether every actor is alive, for an actor: one that has been in one turn for too long is not.
    pub fn all_alive(&self) -> impl Fn() -> bool + 'static {
        // Weak: an actor must not hold what holds it.
        let (charges, clock) = (Rc::downgrade(&self.charges), Rc::clone(&self.clock));
        move || charges.upgrade().is_none_or(|charges| hanging(&charges.borrow(), &*clock).is_none())
    }

    /// Stops the actors by rank: whoever commands goes before those it commands, and log delivery goes last, so that the
    /// others' last words are kept. Each is given `limit`, then dropped. None of them hangs from now on, because of that
    /// limit: the watchdog has to be fed meanwhile.
    pub async fn stop(&self, limit: Duration) {
        let mut charges = self.charges.take();
        charges.sort_by_key(|charge| charge.actor);
        for Charge { name, task, stop, .. } in charges {
            stop.publish(());
            let in_time = async {
                task.await;
                true
            }
            .or(async {
                self.clock.sleep_until(self.clock.now() + limit).await;
                false
            })
            .await;
            if !in_time {
                log::warn!("{name} did not stop within {} s and was dropped", limit.as_secs());
            }
        }
    }
}

fn hanging(charges: &[Charge], clock: &dyn Clock) -> Option<&'static str> {
    let now = clock.now();
    let too_long = |charge: &&Charge| charge.turn.get().is_some_and(|since| now.since(since) > TURN_MAX);
    charges.iter().find(too_long).map(|charge| charge.name)
}
