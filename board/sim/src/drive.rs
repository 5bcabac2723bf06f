//! Runs tasks in simulated time: until none can move, then on to the next moment at which one could.
//!
//! Owns the loop of every simulation. Tasks run in the order in which they were woken, on one thread, so that a seed
//! and a commit repeat a run exactly. A task that never comes to rest, or a moment that never ends, is reported as what
//! it is: a device would burn its processor.

use std::{
    cell::Cell,
    panic::{self, AssertUnwindSafe, catch_unwind},
    rc::Rc,
    sync::Once,
    time::Duration,
};

use smol::LocalExecutor;

use crate::{SimBoard, power::Interruption};

/// More turns than this without time moving is an endless loop: the busiest burst of the agent needs a few thousand.
const TURNS_AT_ONCE_MAX: u32 = 1_000_000;
/// A moment that never ends is one in which this many jumps of no length were made.
const JUMPS_AT_ONCE_MAX: u32 = 10_000;

thread_local! {
    /// Panics of this thread. The executor keeps a task's panic for whoever awaits the task, which is often nobody.
    static PANICS: Cell<u64> = const { Cell::new(0) };
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Driven {
    /// The time is up, or nothing will ever happen again.
    Done,
    /// The agent was interrupted in the middle of a write. Its tasks must be dropped.
    Interrupted(Interruption),
}

/// The executor of a simulated agent, and the device it lives on.
#[derive(Clone)]
pub struct Driver {
    sim: SimBoard,
    executor: Rc<LocalExecutor<'static>>,
}

impl Driver {
    /// Nothing runs yet.
    #[must_use]
    pub fn new(sim: &SimBoard) -> Self {
        count_panics();
        Driver { sim: sim.clone(), executor: Rc::default() }
    }

    /// Where tasks are spawned.
    #[must_use]
    pub fn executor(&self) -> Rc<LocalExecutor<'static>> {
        Rc::clone(&self.executor)
    }

    /// Lets every task run until none can move, without moving time.
    ///
    /// # Panics
    /// When they never come to rest, or a task panicked.
    pub fn settle(&self) -> Driven {
        let panics = PANICS.get();
        for _ in 0..TURNS_AT_ONCE_MAX {
            let moved = self.executor.try_tick();
            if let Some(by) = self.sim.files.take_interruption() {
                return Driven::Interrupted(by);
            }
            assert_eq!(PANICS.get(), panics, "a task panicked: its message is above");
            if !moved {
                return Driven::Done;
            }
        }
        panic!("the tasks wake each other for ever");
    }

    /// Runs for `time`. `rested` is called whenever no task can move: the place for invariants.
    ///
    /// # Panics
    /// When time stands still although somebody waits for it, or a task panicked.
    pub fn run_for(&self, time: Duration, mut rested: impl FnMut()) -> Driven {
        self.run_while(time, || {
            rested();
            true
        })
    }

    /// Runs for `time`, or until `rested`, which is called whenever no task can move, says that it is enough.
    ///
    /// # Panics
    /// When time stands still although somebody waits for it, or a task panicked.
    pub fn run_while(&self, time: Duration, mut rested: impl FnMut() -> bool) -> Driven {
        let clock = &self.sim.clock;
        let end = clock.elapsed().saturating_add(time);
        let mut jumps_at_once = 0;
        loop {
            if let Driven::Interrupted(by) = self.settle() {
                return Driven::Interrupted(by);
            }
            if !rested() {
                return Driven::Done;
            }
            let left = end.saturating_sub(clock.elapsed());
            match clock.next_change().filter(|&next| next <= left) {
                Some(next) => {
                    jumps_at_once = if next.is_zero() { jumps_at_once + 1 } else { 0 };
                    assert!(jumps_at_once < JUMPS_AT_ONCE_MAX, "somebody sleeps until now, for ever");
                    clock.advance(next);
                }
                None => {
                    clock.advance(left);
                    return Driven::Done;
                }
            }
        }
    }

    /// Runs until `future` has its answer, in simulated time.
    ///
    /// # Panics
    /// When it never will have it, when the agent is interrupted, or a task panicked.
    pub fn block_on<T: 'static>(&self, future: impl Future<Output = T> + 'static) -> T {
        let task = self.executor.spawn(future);
        loop {
            assert_eq!(self.settle(), Driven::Done, "interrupted while a test waited");
            if task.is_finished() {
                return smol::block_on(task);
            }
            let next = self.sim.clock.next_change().expect("nothing will ever happen again, and a test still waits");
            self.sim.clock.advance(next);
        }
    }

    /// Lets tasks whose handles were dropped go, with everything they hold. The life they belong to is over.
    pub fn bury(&self) {
        while catch_unwind(AssertUnwindSafe(|| self.executor.try_tick())).unwrap_or(true) {}
    }
}

fn count_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let previous = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            PANICS.set(PANICS.get() + 1);
            previous(info);
        }));
    });
}
