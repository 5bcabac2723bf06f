//! At most one slow operation at a time, whose result comes back as an event.

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
};

use smol::{LocalExecutor, Task};

use super::latest::{Latest, Watch};

/// A slot for one running operation; dropping it ends the operation.
pub struct Background<T: 'static> {
    executor: Rc<LocalExecutor<'static>>,
    running: RefCell<Option<Task<()>>>,
    /// The number of the operation whose result is wanted.
    current: Rc<Cell<u64>>,
    results: Latest<Rc<Outcome<T>>>,
}

/// What came out of the operation with this number, until somebody takes it.
struct Outcome<T> {
    number: u64,
    result: RefCell<Option<T>>,
}

/// Where results arrive.
pub struct Results<T> {
    watch: Watch<Rc<Outcome<T>>>,
    current: Rc<Cell<u64>>,
}

impl<T: 'static> Background<T> {
    /// An empty slot whose operations run on `executor`.
    #[must_use]
    pub fn new(executor: &Rc<LocalExecutor<'static>>) -> (Self, Results<T>) {
        let results = Latest::new();
        let watch = results.watch();
        let current = Rc::default();
        let wanted = Rc::clone(&current);
        let executor = Rc::clone(executor);
        (Background { executor, running: RefCell::new(None), current, results }, Results { watch, current: wanted })
    }

    /// Starts an operation; one that is still running is dropped. Its result never comes, also where it was there already
    /// and nobody had taken it.
    pub fn start(&self, operation: impl Future<Output = T> + 'static) {
        let results = self.results.clone();
        let number = self.forget();
        let task = self.executor.spawn(async move {
            let result = operation.await;
            results.publish(Rc::new(Outcome { number, result: RefCell::new(Some(result)) }));
        });
        drop(self.running.replace(Some(task)));
    }

    /// Drops the running operation, and a result that nobody has taken.
    pub fn cancel(&self) {
        self.forget();
        drop(self.running.replace(None));
    }

    /// The number of the next operation; what has a smaller one is nobody's any more.
    fn forget(&self) -> u64 {
        self.current.set(self.current.get() + 1);
        self.current.get()
    }
}

impl<T> Results<T> {
    /// The result of the operation started last. Cancel-safe.
    pub async fn next(&mut self) -> T {
        loop {
            let outcome = self.watch.changed().await;
            // Bound to a name so that the borrow ends before the next wait.
            let taken = outcome.result.borrow_mut().take().filter(|_| outcome.number == self.current.get());
            if let Some(result) = taken {
                return result;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Poll, Waker};

    use super::*;

    #[test]
    fn a_result_of_an_operation_that_is_not_wanted_any_more_never_comes() {
        let executor = Rc::new(LocalExecutor::new());
        let (work, mut results) = Background::new(&executor);
        let turn = || while executor.try_tick() {};
        let mut taken = || {
            let next = std::pin::pin!(results.next());
            match next.poll(&mut Context::from_waker(Waker::noop())) {
                Poll::Ready(result) => Some(result),
                Poll::Pending => None,
            }
        };
        work.start(async { "first" });
        turn();
        // It is there, and not taken: another one is started, as a door that opens is closed.
        work.start(async { "second" });
        assert_eq!(taken(), None, "the first one's");
        turn();
        assert_eq!(taken(), Some("second"));
        work.start(async { "third" });
        turn();
        work.cancel();
        assert_eq!(taken(), None);
        work.start(async { "fourth" });
        turn();
        assert_eq!(taken(), Some("fourth"));
        assert_eq!(taken(), None, "once");
    }
}
