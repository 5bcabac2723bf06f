//! The one thread that writes.
//!
//! Takes whatever waits, up to a bound, runs it in one transaction and answers everybody after the commit. A write
//! that fails is rolled back to its savepoint and answered with its own error; if the commit itself fails, all hear it.

use std::{
    io,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, atomic::Ordering::Relaxed},
    thread,
};

use tokio::sync::{mpsc, oneshot, watch};

use super::{Counters, DbError, Tx, engine::Connection};

/// Writes that share a commit: enough to make the commit's own cost vanish, few enough that nobody waits long.
const WRITES_PER_COMMIT: usize = 64;

pub(super) type Submitted = Box<dyn Write>;

/// One write with its types erased: first run, then, after the commit, answered.
pub(super) trait Write: Send {
    /// Whether its changes are to be kept.
    fn run(&mut self, tx: &Tx<'_>) -> bool;
    /// Its changes are not kept although it said so.
    fn refuse(&mut self, why: DbError);
    fn answer(self: Box<Self>, committed: Result<(), DbError>);
}

pub(super) struct Job<F, A, T, E> {
    work: Option<F>,
    after: A,
    outcome: Option<Result<T, E>>,
    reply: oneshot::Sender<Result<T, E>>,
}

impl<F, A, T, E> Job<F, A, T, E> {
    pub(super) fn new(work: F, after: A, reply: oneshot::Sender<Result<T, E>>) -> Self {
        Self { work: Some(work), after, outcome: None, reply }
    }
}

impl<F, A, T, E> Write for Job<F, A, T, E>
where
    F: FnOnce(&Tx<'_>) -> Result<T, E> + Send,
    A: FnOnce(&T) + Send,
    T: Send,
    E: From<DbError> + Send,
{
    fn run(&mut self, tx: &Tx<'_>) -> bool {
        let Some(work) = self.work.take() else { return false };
        let outcome = catch_unwind(AssertUnwindSafe(|| work(tx))).unwrap_or_else(|_| Err(DbError::Panicked.into()));
        let keep = outcome.is_ok();
        self.outcome = Some(outcome);
        keep
    }

    fn refuse(&mut self, why: DbError) {
        self.outcome = Some(Err(why.into()));
    }

    fn answer(self: Box<Self>, committed: Result<(), DbError>) {
        if let Some(Ok(done)) = &self.outcome {
            // Also after a commit that failed: if the line was lost, it may have happened all the same.
            (self.after)(done);
        }
        let answer = match (self.outcome, committed) {
            // What was refused stays refused, whatever became of its neighbours.
            (Some(Err(refused)), _) => Err(refused),
            (Some(Ok(done)), Ok(())) => Ok(done),
            (Some(Ok(_)), Err(lost)) => Err(lost.into()),
            (None, outcome) => Err(outcome.err().unwrap_or(DbError::Closed).into()),
        };
        // Nobody waits any more: the caller went away, which changes nothing about what was written.
        let _ = self.reply.send(answer);
    }
}

pub(super) fn start(
    connection: Connection,
    mut queue: mpsc::Receiver<Submitted>,
    counters: Arc<Counters>,
    changed: Arc<watch::Sender<u64>>,
) -> io::Result<()> {
    let work = move || {
        let mut batch = Vec::with_capacity(WRITES_PER_COMMIT);
        // Ends when the last `Db` is dropped, after everything that was queued.
        while queue.blocking_recv_many(&mut batch, WRITES_PER_COMMIT) > 0 {
            let mut announced = false;
            let committed = commit(&connection, &counters, &mut batch, &mut announced);
            for job in batch.drain(..) {
                job.answer(match &committed {
                    Ok(()) => Ok(()),
                    Err(lost) => Err(lost.again()),
                });
            }
            if announced {
                changed.send_modify(|count| *count += 1);
                connection.announce();
            }
            connection.tidy();
        }
    };
    thread::Builder::new().name("store-writer".into()).spawn(work).map(|_| ())
}

fn commit(
    connection: &Connection,
    counters: &Counters,
    batch: &mut [Submitted],
    announced: &mut bool,
) -> Result<(), DbError> {
    connection.begin_write()?;
    let outcome = run_all(connection, counters, batch, announced);
    if outcome.is_err() && connection.is_in_transaction() {
        // Some failures (a full disk, a lost connection) end the transaction by themselves.
        let _ = connection.rollback();
    }
    outcome
}

fn run_all(
    connection: &Connection,
    counters: &Counters,
    batch: &mut [Submitted],
    announced: &mut bool,
) -> Result<(), DbError> {
    let alone = batch.len() == 1;
    let mut kept = false;
    for job in batch {
        if alone {
            kept = run_one(connection, counters, job, announced);
            break;
        }
        connection.savepoint()?;
        if run_one(connection, counters, job, announced) {
            kept = true;
        } else if connection.is_in_transaction() {
            connection.rollback_to()?;
        } else {
            // The engine gave up the whole transaction, and with it the neighbours' writes: they must not hear yes.
            return Err(connection.why_given_up());
        }
        connection.release()?;
    }
    if !kept {
        if connection.is_in_transaction() {
            connection.rollback()?;
        }
        return Ok(());
    }
    connection.commit()?;
    counters.commits.fetch_add(1, Relaxed);
    Ok(())
}

fn run_one(connection: &Connection, counters: &Counters, job: &mut Submitted, announced: &mut bool) -> bool {
    let tx = Tx::new(connection, counters);
    let keep = job.run(&tx);
    if keep && connection.is_spoilt() {
        job.refuse(DbError::went_on());
        return false;
    }
    *announced |= keep && tx.announced.get();
    keep
}
