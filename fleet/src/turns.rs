//! Which of the server's threads get a processor first: those that answer calls.
//!
//! A call takes a tenth of a millisecond. A search, a commit, or another program keeps a processor until the system's clock
//! ticks, four milliseconds on many, and a worker that was woken meanwhile waits for that: most of what made one call in a
//! hundred slow on a busy server. Since Linux 6.12 a thread may ask for short turns: it then goes before those with longer
//! ones when it wakes, and gets no more of the processor for it. Nobody is starved, no privilege is needed, and older systems
//! leave everything as it was. Where a worker waits for PostgreSQL, threads change their roles; then those of files have short
//! turns too.

use std::{cell::Cell, io, time::Duration};

/// A turn of a worker: the shortest that Linux gives, about one call.
const SHORT: Duration = Duration::from_micros(100);

/// A thread of the runtime has started. It was made by a worker, perhaps, and has inherited its short turns; whether it is
/// one itself is seen when it parks.
pub fn started() {
    let _ = ask(Duration::ZERO);
}

/// A worker of the runtime has nothing to do: only workers ever come here.
pub fn parks() {
    thread_local! {
        static ASKED: Cell<bool> = const { Cell::new(false) };
    }
    if !ASKED.replace(true)
        && let Err(problem) = ask(SHORT)
    {
        tracing::debug!(%problem, "the system does not give threads that answer calls short turns");
    }
}

/// Turns of that length for this thread, zero for the usual ones. Nothing else about it changes; one that somebody gave
/// another class of its own keeps that.
#[cfg(target_os = "linux")]
#[expect(unsafe_code, reason = "neither the standard library nor rustix has it; one structure is read")]
fn ask(turn: Duration) -> io::Result<()> {
    let mut wanted = attributes()?;
    if wanted.sched_policy != libc::SCHED_OTHER as u32 {
        return Ok(());
    }
    wanted.sched_runtime = u64::try_from(turn.as_nanos()).unwrap_or_default();
    // SAFETY: the kernel only reads the structure, whose size is in it.
    match unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const wanted, 0) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// How this thread is given processors.
#[cfg(target_os = "linux")]
#[expect(unsafe_code, reason = "neither the standard library nor rustix has it; one structure is filled")]
fn attributes() -> io::Result<libc::sched_attr> {
    const SIZE: u32 = size_of::<libc::sched_attr>() as u32;
    // SAFETY: all zeros are a valid value of every field.
    let mut now: libc::sched_attr = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel writes no more than `SIZE` bytes, which is what there is.
    match unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut now, SIZE, 0) } {
        0 => Ok(libc::sched_attr { size: SIZE, ..now }),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(not(target_os = "linux"))]
fn ask(_: Duration) -> io::Result<()> {
    Ok(())
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use tokio::{runtime::Builder, task::spawn_blocking, time::sleep};

    use super::*;

    #[test]
    fn workers_have_short_turns_and_the_threads_that_they_start_have_not() {
        let turn = || attributes().unwrap().sched_runtime;
        let usual = turn();
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .on_thread_start(started)
            .on_thread_park(parks)
            .enable_time()
            .build()
            .unwrap();
        let seen = async move {
            // The one worker that there is has to park, or nobody would know that this is over.
            sleep(Duration::from_millis(1)).await;
            (turn(), spawn_blocking(turn).await.unwrap())
        };
        let (worker, another) = runtime.block_on(runtime.spawn(seen)).unwrap();
        assert_eq!(another, usual);
        // Before Linux 6.12 nothing is heeded.
        assert!(worker == usual || u128::from(worker) == SHORT.as_nanos(), "{worker}");
    }
}
