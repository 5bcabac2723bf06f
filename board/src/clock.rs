//! Time: a monotonic clock that counts suspend, and the wall clock with its trustworthiness.
//!
//! Every deadline of the agent is a [`Mono`]; wall time is only for what people and certificates read.

use std::{
    ops::{Add, Sub},
    time::Duration,
};

use async_trait::async_trait;

/// Nanoseconds since the device booted, time asleep included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Mono(u64);

impl Mono {
    /// The moment of boot.
    pub const BOOT: Mono = Mono(0);
    /// Later than every deadline.
    pub const NEVER: Mono = Mono(u64::MAX);

    /// `nanos` after boot.
    #[must_use]
    pub const fn from_nanos(nanos: u64) -> Self {
        Mono(nanos)
    }

    /// Nanoseconds since boot.
    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// How long after `earlier` this is; zero when it is not after it.
    #[must_use]
    pub const fn since(self, earlier: Mono) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Mono {
    type Output = Mono;

    /// Saturates at [`Mono::NEVER`]: a deadline in 600 years is no deadline.
    fn add(self, by: Duration) -> Mono {
        Mono(self.0.saturating_add(u64::try_from(by.as_nanos()).unwrap_or(u64::MAX)))
    }
}

impl Sub<Duration> for Mono {
    type Output = Mono;

    /// Saturates at boot.
    fn sub(self, by: Duration) -> Mono {
        Mono(self.0.saturating_sub(u64::try_from(by.as_nanos()).unwrap_or(u64::MAX)))
    }
}

/// Milliseconds since 1970-01-01 UTC, as far as this device knows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Wall(i64);

impl Wall {
    /// `millis` after 1970.
    #[must_use]
    pub const fn from_millis(millis: i64) -> Self {
        Wall(millis)
    }

    /// Milliseconds since 1970.
    #[must_use]
    pub const fn as_millis(self) -> i64 {
        self.0
    }
}

/// The clocks of a device.
#[async_trait(?Send)]
pub trait Clock {
    /// Now, never going backwards.
    fn now(&self) -> Mono;

    /// The time of day as the device shows it; may be 1970 on a board without a battery.
    fn wall(&self) -> Wall;

    /// Whether something trustworthy has set the wall clock since boot.
    fn wall_is_synchronised(&self) -> bool;

    /// Resolves at `at`, or a little later: deadlines may be rounded up to a common phase so that a sleeping
    /// processor is woken once for several of them. Resolves at once when `at` has passed. Cancel-safe.
    async fn sleep_until(&self, at: Mono);
}
