//! Time on Linux: one timer on `CLOCK_BOOTTIME` for every deadline of the agent.
//!
//! The reactor's own timers do not count suspend, so a device that slept would be late by as long as it slept. Here all
//! sleepers share one heap and one timerfd, armed for the earliest of them. Far deadlines are rounded up to a common
//! phase ([`phase`]), so that a processor which sleeps is woken once for several of them.

use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    future::poll_fn,
    os::fd::OwnedFd,
    path::Path,
    rc::Rc,
    task::{Context, Poll, Waker},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use async_trait::async_trait;
use board::{Clock, Mono, Wall};
use rustix::time::{
    ClockId, Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, clock_gettime, timerfd_create,
    timerfd_settime,
};
use smol::{Async, LocalExecutor, Task};

/// Nearer deadlines than this are met exactly: somebody is waiting for them.
const EXACT: Duration = Duration::from_secs(1);
/// Nearer deadlines than this (polls, retries) may come up to 100 ms late.
const SOON: Duration = Duration::from_secs(30);
/// What systemd-timesyncd leaves behind once it has set the clock.
const TIMESYNCD_MARK: &str = "/run/systemd/timesync/synchronized";

/// The multiple of time since boot that a deadline this far away is rounded up to.
const fn phase(distance: Duration) -> Option<Duration> {
    if distance.as_nanos() <= EXACT.as_nanos() {
        None
    } else if distance.as_nanos() <= SOON.as_nanos() {
        Some(Duration::from_millis(100))
    } else {
        Some(Duration::from_secs(1))
    }
}

fn rounded(now: Mono, at: Mono) -> Mono {
    match phase(at.since(now)) {
        None => at,
        Some(phase) => {
            let phase = u64::try_from(phase.as_nanos()).unwrap_or(1).max(1);
            at.as_nanos().checked_next_multiple_of(phase).map_or(Mono::NEVER, Mono::from_nanos)
        }
    }
}

/// The clocks of this machine.
pub struct LinuxClock {
    alarm: Rc<Alarm>,
    _bell: Task<()>,
}

/// The timer and who waits for it.
struct Alarm {
    timer: Async<OwnedFd>,
    sleepers: RefCell<BTreeMap<(Mono, u64), Waker>>,
    /// Tells apart sleepers with the same deadline.
    numbers: Cell<u64>,
    armed: Cell<Option<Mono>>,
}

impl LinuxClock {
    /// Makes the timer; its alarm rings on `executor`.
    pub fn new(executor: &Rc<LocalExecutor<'static>>) -> std::io::Result<Self> {
        let timer = timerfd_create(TimerfdClockId::Boottime, TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC)?;
        let alarm = Rc::new(Alarm {
            timer: Async::new_nonblocking(timer)?,
            sleepers: RefCell::default(),
            numbers: Cell::new(0),
            armed: Cell::new(None),
        });
        let bell = executor.spawn(ring(Rc::clone(&alarm)));
        Ok(LinuxClock { alarm, _bell: bell })
    }
}

fn now() -> Mono {
    let Timespec { tv_sec, tv_nsec } = clock_gettime(ClockId::Boottime);
    let (seconds, nanos) = (u64::try_from(tv_sec).unwrap_or(0), u64::try_from(tv_nsec).unwrap_or(0));
    Mono::from_nanos(seconds.saturating_mul(1_000_000_000).saturating_add(nanos))
}

/// Wakes the sleepers whose time has come, for ever.
async fn ring(alarm: Rc<Alarm>) {
    loop {
        // How often it fired does not matter. Read, not only waited for: the reactor does not trust an event that was
        // there before it was asked and reports it a second time, which wakes both threads once more.
        if let Err(error) = alarm.timer.read_with(|timer| Ok(rustix::io::read(timer, &mut [0; 8])?)).await {
            log::error!("the timer cannot be waited for ({error}); looking again in a second");
            smol::Timer::after(Duration::from_secs(1)).await;
        }
        alarm.armed.set(None);
        alarm.wake(now());
        alarm.arm();
    }
}

impl Alarm {
    /// Wakes whose time has come by `now`, the earliest first.
    fn wake(&self, now: Mono) {
        loop {
            let first = {
                let mut sleepers = self.sleepers.borrow_mut();
                match sleepers.first_entry() {
                    Some(entry) if entry.key().0 <= now => entry.remove(),
                    _ => break,
                }
            };
            first.wake();
        }
    }

    /// Sets the timer to the earliest sleeper, with a system call only when that changes something.
    fn arm(&self) {
        let earliest = self.sleepers.borrow().first_key_value().map(|((at, _), _)| *at);
        if earliest == self.armed.get() {
            return;
        }
        // All zero disarms; a deadline is never zero, because zero is the past.
        let nanos = earliest.map_or(0, |at| at.as_nanos().max(1));
        let value = Timespec {
            tv_sec: i64::try_from(nanos / 1_000_000_000).unwrap_or(i64::MAX),
            tv_nsec: (nanos % 1_000_000_000).try_into().unwrap_or(0),
        };
        let spec = Itimerspec { it_interval: Timespec { tv_sec: 0, tv_nsec: 0 }, it_value: value };
        match timerfd_settime(self.timer.get_ref(), TimerfdTimerFlags::ABSTIME, &spec) {
            Ok(_) => self.armed.set(earliest),
            Err(error) => log::error!("the timer cannot be set: {error}"),
        }
    }

    fn poll(&self, at: Mono, number: &mut Option<u64>, context: &Context<'_>) -> Poll<()> {
        if now() >= at {
            return Poll::Ready(());
        }
        let number = *number.get_or_insert_with(|| {
            self.numbers.set(self.numbers.get() + 1);
            self.numbers.get()
        });
        self.sleepers.borrow_mut().insert((at, number), context.waker().clone());
        self.arm();
        Poll::Pending
    }
}

/// Takes a sleeper out when it is dropped, so that nobody is woken for it.
struct Place<'a> {
    alarm: &'a Alarm,
    at: Mono,
    number: Option<u64>,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let Some(number) = self.number else { return };
        let was_there = self.alarm.sleepers.borrow_mut().remove(&(self.at, number)).is_some();
        if was_there {
            self.alarm.arm();
        }
    }
}

#[async_trait(?Send)]
impl Clock for LinuxClock {
    fn now(&self) -> Mono {
        now()
    }

    fn wall(&self) -> Wall {
        let millis = match SystemTime::now().duration_since(UNIX_EPOCH) {
            Ok(since) => i64::try_from(since.as_millis()).unwrap_or(i64::MAX),
            Err(before) => i64::try_from(before.duration().as_millis()).map_or(i64::MIN, |millis| -millis),
        };
        Wall::from_millis(millis)
    }

    fn wall_is_synchronised(&self) -> bool {
        is_synchronised()
    }

    async fn sleep_until(&self, at: Mono) {
        if at == Mono::NEVER {
            return std::future::pending().await;
        }
        let mut place = Place { alarm: &self.alarm, at: rounded(now(), at), number: None };
        poll_fn(|context| self.alarm.poll(place.at, &mut place.number, context)).await;
    }
}

/// Whether something trustworthy has set the wall clock since boot. Of any thread.
#[must_use]
pub fn is_synchronised() -> bool {
    kernel_says_synchronised() || Path::new(TIMESYNCD_MARK).exists()
}

/// Whether a time daemon keeps the kernel's clock. Any of them (chrony, ntpd, timesyncd) clears the flag, and a kernel
/// sets it at boot.
#[expect(unsafe_code, reason = "rustix has no adjtimex; this call only reads")]
fn kernel_says_synchronised() -> bool {
    // SAFETY: `timex` is plain numbers, for which all zero is valid.
    let mut state: libc::timex = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel fills the structure, which lives until the call returns; `modes` is 0: nothing is changed.
    let answer = unsafe { libc::adjtimex(&raw mut state) };
    answer >= 0 && answer != libc::TIME_ERROR && state.status & libc::STA_UNSYNC == 0
}

#[cfg(test)]
mod tests {
    use std::{
        sync::{Arc, Mutex},
        task::Wake,
    };

    use super::*;
    use smol::future::poll_once;

    fn at(millis: u64) -> Mono {
        Mono::from_nanos(millis * 1_000_000)
    }

    #[test]
    fn near_deadlines_are_exact_and_far_ones_share_a_phase() {
        let table = [
            // case                   now      deadline    rung at
            ("past", 5_000, 4_000, 4_000),
            ("near", 5_000, 5_999, 5_999),
            ("one second", 5_000, 6_000, 6_000),
            ("a poll", 5_003, 10_003, 10_100),
            ("on the phase", 5_003, 10_100, 10_100),
            ("a minute", 5_003, 65_003, 66_000),
        ];
        for (case, now, deadline, rung) in table {
            assert_eq!(rounded(at(now), at(deadline)), at(rung), "{case}");
        }
        assert_eq!(rounded(at(0), Mono::from_nanos(u64::MAX - 1)), Mono::NEVER);
    }

    fn in_clock(test: impl AsyncFnOnce(&LinuxClock)) {
        let executor = Rc::new(LocalExecutor::new());
        let clock = LinuxClock::new(&executor).expect("a timer");
        smol::future::block_on(executor.run(test(&clock)));
    }

    /// Notes who is woken, in order. Not seen from a test that waits: who is woken together is polled in any order, and
    /// on a busy machine three moments may pass before the first sleeper lies down.
    struct Bed {
        number: u64,
        woken: Arc<Mutex<Vec<u64>>>,
    }

    impl Wake for Bed {
        fn wake(self: Arc<Self>) {
            self.woken.lock().expect("no panic").push(self.number);
        }
    }

    #[test]
    fn sleepers_wake_in_the_order_of_their_deadlines() {
        in_clock(async |clock| {
            let (start, woken) = (clock.now(), Arc::new(Mutex::new(Vec::new())));
            let hours = |count: u64| start + Duration::from_secs(3600 * count);
            // Two have the same deadline: who lay down first.
            let mut sleepers: Vec<_> = [3, 1, 2, 1].map(|count| clock.sleep_until(hours(count))).into();
            for (number, sleeper) in (0..).zip(&mut sleepers) {
                let waker = Arc::new(Bed { number, woken: Arc::clone(&woken) }).into();
                assert!(sleeper.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
            }
            let after = |count: u64| {
                clock.alarm.wake(hours(count) + Duration::from_secs(1));
                woken.lock().expect("no panic").clone()
            };
            assert_eq!(after(0), []);
            assert_eq!(after(1), [1, 3]);
            assert_eq!(after(3), [1, 3, 2, 0]);
            assert!(clock.alarm.sleepers.borrow().is_empty());
        });
    }

    #[test]
    fn a_sleeper_wakes_and_never_before_its_deadline() {
        in_clock(async |clock| {
            for millis in [0, 1, 30] {
                let at = clock.now() + Duration::from_millis(millis);
                clock.sleep_until(at).await;
                assert!(clock.now() >= at);
            }
        });
    }

    #[test]
    fn a_dropped_sleeper_leaves_nothing_behind() {
        in_clock(async |clock| {
            let mut far = Box::pin(clock.sleep_until(clock.now() + Duration::from_secs(3600)));
            let mut near = Box::pin(clock.sleep_until(clock.now() + Duration::from_secs(60)));
            assert_eq!(poll_once(&mut far).await, None);
            assert_eq!(poll_once(&mut near).await, None);
            let with_near = clock.alarm.armed.get();
            drop(near);
            assert!(clock.alarm.armed.get() > with_near, "armed for the far one again");
            drop(far);
            assert_eq!(clock.alarm.armed.get(), None, "no timer, no wake-up");
            assert!(clock.alarm.sleepers.borrow().is_empty());
        });
    }

    #[test]
    fn the_past_does_not_wait() {
        in_clock(async |clock| {
            clock.sleep_until(Mono::BOOT).await;
            clock.sleep_until(clock.now()).await;
        });
    }
}
