//! Chance that repeats: everything random in a simulated world comes from its seed.

use std::cell::Cell;

/// A source of chance.
#[derive(Clone, Debug)]
pub struct Random {
    state: Cell<u64>,
}

impl Random {
    /// The same seed gives the same chances.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Random { state: Cell::new(seed) }
    }

    /// Any number.
    pub fn any(&self) -> u64 {
        // splitmix64 (Steele, Lea, Flood 2014): every seed, also zero, starts a good sequence.
        let state = self.state.get().wrapping_add(0x9e37_79b9_7f4a_7c15);
        self.state.set(state);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`; zero when that is zero.
    pub fn below(&self, bound: u64) -> u64 {
        self.any().checked_rem(bound).unwrap_or(0)
    }

    /// True `percent` times out of a hundred.
    pub fn chance(&self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// A source of its own, which does not change what this one gives later by how much it is used.
    #[must_use]
    pub fn branch(&self) -> Random {
        Random::new(self.any())
    }

    /// One of `choices`.
    ///
    /// # Panics
    /// When there are none.
    pub fn pick<'a, T>(&self, choices: &'a [T]) -> &'a T {
        let at = usize::try_from(self.below(choices.len() as u64)).unwrap_or(0);
        choices.get(at).expect("a choice of nothing is none")
    }
}
