//! Random numbers that are the same again with the same seed: SplitMix64.

/// A generator of its own for each who draws, so that nothing depends on the order in which threads run.
#[derive(Clone, Debug)]
pub struct Random {
    state: u64,
}

impl Random {
    /// The generator that a run's seed and the name of who draws stand for.
    pub fn new(seed: u64, name: u64) -> Self {
        let mut named = Self { state: name };
        Self { state: seed ^ named.next() }
    }

    /// Any number.
    pub fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number from `from` to `to`, both included.
    pub fn within(&mut self, from: u64, to: u64) -> u64 {
        let span = u128::from(to - from) + 1;
        from + ((u128::from(self.next()) * span) >> 64) as u64
    }

    /// True so many times in a hundred.
    pub fn percent(&mut self, share: u64) -> bool {
        self.within(1, 100) <= share
    }
}
