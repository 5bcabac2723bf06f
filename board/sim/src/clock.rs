//! A clock that stands still until somebody moves it.
//!
//! Owns simulated time: who sleeps until when, and what happens by itself at which moment (a machine server that gets
//! ready, a network that goes away). Time moves only in [`SimClock::advance`], to the earliest moment at which anything
//! would happen, so that a weekend costs as much as its events. Nothing here reads the clock of the computer.

use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll, Waker},
    time::Duration,
};

use async_trait::async_trait;
use board::{Clock, Mono, Wall};

/// How long the device had been up when the agent was started first: nothing may count from zero.
pub const UPTIME_AT_START: Duration = Duration::from_secs(20);
/// What the wall clock shows when the world begins: 2026-03-02 08:00:00 UTC, a Monday.
pub const WALL_AT_START: Wall = Wall::from_millis(1_772_438_400_000);

/// Time since the world began, in nanoseconds. Unlike [`Mono`] it goes on when the device is switched off.
type Moment = u64;

/// Sleepers and happenings of one moment keep the order in which they were made.
type Place = (Moment, u64);

struct Inner {
    now: Cell<Moment>,
    /// The moment at which [`Mono`] was zero; the world may have begun later than that.
    booted: Cell<i128>,
    wall_ahead: Cell<i64>,
    synchronised: Cell<bool>,
    /// Sleepers wake at multiples of this.
    phase: Cell<Moment>,
    serial: Cell<u64>,
    /// Moments at which somebody who slept was woken.
    wakes: Cell<u64>,
    sleepers: RefCell<BTreeMap<Place, Waker>>,
    happenings: RefCell<BTreeMap<Place, Box<dyn FnOnce()>>>,
}

/// The hand on the clock.
#[derive(Clone)]
pub struct SimClock {
    inner: Rc<Inner>,
}

impl Default for SimClock {
    fn default() -> Self {
        SimClock::new()
    }
}

impl SimClock {
    /// A clock that stands at the beginning.
    #[must_use]
    pub fn new() -> Self {
        SimClock {
            inner: Rc::new(Inner {
                now: Cell::new(0),
                booted: Cell::new(-nanos(UPTIME_AT_START)),
                wall_ahead: Cell::new(WALL_AT_START.as_millis()),
                synchronised: Cell::new(true),
                phase: Cell::new(1),
                serial: Cell::new(0),
                wakes: Cell::new(0),
                sleepers: RefCell::default(),
                happenings: RefCell::default(),
            }),
        }
    }

    /// How long the world has existed; goes on over reboots.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        Duration::from_nanos(self.inner.now.get())
    }

    /// How long after the beginning of the world `at` is (in the present boot of the device).
    #[must_use]
    pub fn elapsed_at(&self, at: Mono) -> Duration {
        let moment = i128::from(at.as_nanos()) + self.inner.booted.get();
        Duration::from_nanos(u64::try_from(moment).unwrap_or(if moment < 0 { 0 } else { u64::MAX }))
    }

    /// Lets `what` happen by itself, `after` from now.
    pub fn happens_after(&self, after: Duration, what: impl FnOnce() + 'static) {
        let at = self.inner.now.get().saturating_add(u64::try_from(nanos(after)).unwrap_or(u64::MAX));
        self.inner.happenings.borrow_mut().insert((at, self.serial()), Box::new(what));
    }

    /// How long from now until anything would happen; `None` when nothing ever would.
    #[must_use]
    pub fn next_change(&self) -> Option<Duration> {
        let now = self.inner.now.get();
        let sleeper = self.inner.sleepers.borrow().first_key_value().map(|(place, _)| place.0);
        let happening = self.inner.happenings.borrow().first_key_value().map(|(place, _)| place.0);
        let next = [sleeper, happening].into_iter().flatten().filter(|&at| at != Moment::MAX).min()?;
        Some(Duration::from_nanos(next.saturating_sub(now)))
    }

    /// Moves time on by `by`, at most to the next change, lets happen what is due and wakes who slept until then.
    ///
    /// # Panics
    /// When that would pass over a change: time that jumps over a deadline would hide it.
    pub fn advance(&self, by: Duration) {
        assert!(self.next_change().is_none_or(|next| by <= next), "time may not pass over a deadline");
        let now = self.inner.now.get().saturating_add(u64::try_from(nanos(by)).unwrap_or(u64::MAX));
        self.inner.now.set(now);
        while let Some(what) = take_due(&self.inner.happenings, now) {
            what();
        }
        let mut woken = false;
        while let Some(waker) = take_due(&self.inner.sleepers, now) {
            waker.wake();
            woken = true;
        }
        self.inner.wakes.set(self.inner.wakes.get() + u64::from(woken));
    }

    /// At how many moments the device was woken because somebody on it had slept long enough.
    #[must_use]
    pub fn wakes(&self) -> u64 {
        self.inner.wakes.get()
    }

    /// Somebody sets the wall clock: it jumps by this many milliseconds. Monotonic time does not notice.
    pub fn jump_wall(&self, millis: i64) {
        self.inner.wall_ahead.set(self.inner.wall_ahead.get() + millis);
    }

    /// Sets whether something trustworthy vouches for the wall clock.
    pub fn set_synchronised(&self, synchronised: bool) {
        self.inner.synchronised.set(synchronised);
    }

    /// Rounds every wake-up up to a multiple of `phase`, as a device does that wants to sleep long.
    ///
    /// # Panics
    /// When `phase` is zero.
    pub fn wake_in_phase(&self, phase: Duration) {
        assert!(!phase.is_zero(), "a phase of nothing never comes");
        self.inner.phase.set(u64::try_from(nanos(phase)).unwrap_or(u64::MAX));
    }

    /// The device starts again: monotonic time begins anew.
    pub(crate) fn reboot(&self) {
        self.inner.booted.set(i128::from(self.inner.now.get()) - nanos(UPTIME_AT_START));
    }

    /// Whoever slept is gone.
    pub(crate) fn forget_sleepers(&self) {
        // Taken out first: dropping a waker may drop a task, and with it sleepers that remove themselves.
        drop(self.inner.sleepers.take());
    }

    /// Present monotonic time.
    #[must_use]
    pub fn mono(&self) -> Mono {
        let up = i128::from(self.inner.now.get()) - self.inner.booted.get();
        Mono::from_nanos(u64::try_from(up).unwrap_or(u64::MAX))
    }

    /// What the wall clock shows.
    #[must_use]
    pub fn wall_clock(&self) -> Wall {
        let passed = i64::try_from(self.elapsed().as_millis()).unwrap_or(i64::MAX);
        Wall::from_millis(self.inner.wall_ahead.get().saturating_add(passed))
    }

    /// Resolves after `duration`.
    pub async fn sleep(&self, duration: Duration) {
        self.until(self.mono() + duration).await;
    }

    /// Resolves at `at` of the present boot.
    pub async fn until(&self, at: Mono) {
        let moment = i128::from(at.as_nanos()) + self.inner.booted.get();
        let moment = if at == Mono::NEVER { u64::MAX } else { u64::try_from(moment.max(0)).unwrap_or(u64::MAX) };
        let phase = self.inner.phase.get();
        let at = if moment <= self.inner.now.get() { moment } else { moment.div_ceil(phase).saturating_mul(phase) };
        Sleep { inner: Rc::clone(&self.inner), place: (at, self.serial()) }.await;
    }

    fn serial(&self) -> u64 {
        let serial = self.inner.serial.get();
        self.inner.serial.set(serial + 1);
        serial
    }
}

fn nanos(duration: Duration) -> i128 {
    i128::try_from(duration.as_nanos()).unwrap_or(i128::MAX)
}

fn take_due<T>(queue: &RefCell<BTreeMap<Place, T>>, now: Moment) -> Option<T> {
    let mut queue = queue.borrow_mut();
    let entry = queue.first_entry()?;
    (entry.key().0 <= now).then(|| entry.remove())
}

struct Sleep {
    inner: Rc<Inner>,
    place: Place,
}

impl Future for Sleep {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if self.place.0 <= self.inner.now.get() {
            return Poll::Ready(());
        }
        self.inner.sleepers.borrow_mut().insert(self.place, context.waker().clone());
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        self.inner.sleepers.borrow_mut().remove(&self.place);
    }
}

/// The clock as the agent of one boot sees it.
pub(crate) struct ClockPort {
    pub(crate) clock: SimClock,
    pub(crate) alive: crate::power::Alive,
}

#[async_trait(?Send)]
impl Clock for ClockPort {
    fn now(&self) -> Mono {
        self.clock.mono()
    }

    fn wall(&self) -> Wall {
        self.clock.wall_clock()
    }

    fn wall_is_synchronised(&self) -> bool {
        self.clock.inner.synchronised.get()
    }

    async fn sleep_until(&self, at: Mono) {
        self.alive.or_for_ever().await;
        self.clock.until(at).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn monotonic_time_starts_again_with_a_boot_and_the_world_goes_on() {
        let clock = SimClock::new();
        assert_eq!(clock.mono(), Mono::BOOT + UPTIME_AT_START);
        clock.advance(Duration::from_secs(100));
        assert_eq!(clock.mono(), Mono::BOOT + Duration::from_secs(120));
        clock.reboot();
        assert_eq!(clock.mono(), Mono::BOOT + UPTIME_AT_START);
        assert_eq!(clock.elapsed(), Duration::from_secs(100));
        assert_eq!(clock.elapsed_at(clock.mono()), Duration::from_secs(100));
    }

    #[test]
    fn the_wall_clock_jumps_without_moving_time() {
        let clock = SimClock::new();
        let before = clock.mono();
        clock.jump_wall(-3_600_000);
        assert_eq!(clock.mono(), before);
        assert_eq!(clock.wall_clock().as_millis(), WALL_AT_START.as_millis() - 3_600_000);
    }

    #[test]
    fn things_happen_in_the_order_of_their_time() {
        let clock = SimClock::new();
        let seen = Rc::new(RefCell::new(Vec::new()));
        for (after, name) in [(3, "third"), (1, "first"), (1, "second")] {
            let seen = Rc::clone(&seen);
            clock.happens_after(Duration::from_secs(after), move || seen.borrow_mut().push(name));
        }
        while let Some(by) = clock.next_change() {
            clock.advance(by);
        }
        assert_eq!(*seen.borrow(), ["first", "second", "third"]);
        assert_eq!(clock.elapsed(), Duration::from_secs(3));
    }
}
