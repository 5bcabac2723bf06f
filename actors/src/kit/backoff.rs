//! Capped exponential delays with jitter from a seed, so that a fleet does not knock in step and a simulation repeats.

use std::time::Duration;

/// A growing delay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Backoff {
    first: Duration,
    cap: Duration,
    tries: u32,
    random: u64,
}

impl Backoff {
    /// Starts at `first`, doubles, never exceeds `cap`. `seed` differs per device.
    #[must_use]
    pub const fn new(first: Duration, cap: Duration, seed: u64) -> Self {
        Backoff { first, cap, tries: 0, random: seed | 1 }
    }

    /// The delay before the next try: between half and all of the doubled delay.
    pub fn next_delay(&mut self) -> Duration {
        let whole = self.first.saturating_mul(1 << self.tries.min(20)).min(self.cap);
        self.tries = self.tries.saturating_add(1);
        // xorshift64 (Marsaglia 2003): good enough to spread devices, repeatable from the seed.
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        let half = whole / 2;
        let part = u32::try_from(self.random >> 48).unwrap_or(0);
        half + half.mul_f64(f64::from(part) / 65_536.0)
    }

    /// It worked: the next failure starts from the beginning.
    pub fn reset(&mut self) {
        self.tries = 0;
    }

    /// How many delays were given since the last reset.
    #[must_use]
    pub const fn tries(&self) -> u32 {
        self.tries
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_grow_to_the_cap_and_start_again_after_success() {
        let (first, cap) = (Duration::from_secs(1), Duration::from_secs(60));
        let mut backoff = Backoff::new(first, cap, 7);
        for step in 0..40 {
            let whole = first.saturating_mul(1 << step.min(20)).min(cap);
            let delay = backoff.next_delay();
            assert!(delay >= whole / 2 && delay <= whole, "step {step}: {delay:?} of {whole:?}");
        }
        backoff.reset();
        assert!(backoff.next_delay() <= first);
    }
}
