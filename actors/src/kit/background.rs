//! At most one slow operation at a time, whose result comes back as an event.

use std::{cell::RefCell, rc::Rc};

use smol::{LocalExecutor, Task};

use super::latest::{Latest, Watch};

/// A slot for one running operation; dropping it ends the operation.
pub struct Background<T: 'static> {
    executor: Rc<LocalExecutor<'static>>,
    running: RefCell<Option<Task<()>>>,
    results: Latest<Rc<RefCell<Option<T>>>>,
}

/// Where results arrive.
pub struct Results<T> {
    watch: Watch<Rc<RefCell<Option<T>>>>,
}

impl<T: 'static> Background<T> {
    /// An empty slot whose operations run on `executor`.
    #[must_use]
    pub fn new(executor: &Rc<LocalExecutor<'static>>) -> (Self, Results<T>) {
        let results = Latest::new();
        let watch = results.watch();
        (Background { executor: Rc::clone(executor), running: RefCell::new(None), results }, Results { watch })
    }

    /// Starts an operation; one that is still running is dropped, and its result never comes.
    pub fn start(&self, operation: impl Future<Output = T> + 'static) {
        let results = self.results.clone();
        let task = self.executor.spawn(async move {
            let result = operation.await;
            results.publish(Rc::new(RefCell::new(Some(result))));
        });
        drop(self.running.replace(Some(task)));
    }

    /// Drops the running operation.
    pub fn cancel(&self) {
        drop(self.running.replace(None));
    }
}

impl<T> Results<T> {
    /// The result of the operation started last. Cancel-safe.
    pub async fn next(&mut self) -> T {
        loop {
            let result = self.watch.changed().await;
            // Bound to a name so that the borrow ends before the next wait.
            let taken = result.borrow_mut().take();
            if let Some(result) = taken {
                return result;
            }
        }
    }
}
