//! Random numbers and choices that are the same in every run with the same seed.
//!
//! SplitMix64 (Steele, Lea and Flood, 2014): one addition and three multiplications a number, and any seed is a good
//! one. What takes part in a run has a generator of its own, made from the plan's seed and a number that names it, so
//! that nothing depends on the order in which tasks run.

use crate::plan::Spread;

/// A generator of uniform numbers.
#[derive(Clone, Debug)]
pub struct Random {
    state: u64,
}

impl Random {
    /// The generator that `seed` and `name` stand for.
    #[must_use]
    pub fn new(seed: u64, name: u64) -> Self {
        let mut named = Self { state: name };
        Self { state: seed ^ named.next_u64() }
    }

    /// Any number, each as likely as any other.
    pub fn next_u64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number from 0 to `bound`, without `bound`; 0 when `bound` is 0. The bias is below 2⁻³² for bounds below 2³².
    pub fn below(&mut self, bound: usize) -> usize {
        let wide = u128::from(self.next_u64()) * bound as u128;
        (wide >> 64) as usize
    }

    /// A number above 0 and up to 1.
    pub fn unit(&mut self) -> f64 {
        // 53 bits are what a double holds.
        ((self.next_u64() >> 11) + 1) as f64 / (1_u64 << 53) as f64
    }
}

/// Chooses among keys, as a [`Spread`] says.
#[derive(Clone, Debug)]
pub enum Chooser {
    /// Any of so many keys.
    Uniform(usize),
    /// Of so many keys the next one, from a random one on.
    Turns {
        /// How many there are.
        keys: usize,
        /// The last one.
        last: Option<usize>,
    },
    /// By the running sum of the keys' shares, which ends at 1.
    Weighted(Vec<f64>),
}

impl Chooser {
    /// A chooser among `keys` keys, which must be at least one.
    #[must_use]
    pub fn new(spread: Spread, keys: usize) -> Self {
        assert!(keys > 0, "a choice needs something to choose from");
        match spread {
            Spread::Uniform => Self::Uniform(keys),
            Spread::Turns => Self::Turns { keys, last: None },
            Spread::Zipf(exponent) => {
                let mut sum = 0.0;
                let mut sums: Vec<f64> = (1..=keys)
                    .map(|rank| {
                        sum += (rank as f64).powf(-exponent);
                        sum
                    })
                    .collect();
                sums.iter_mut().for_each(|share| *share /= sum);
                Self::Weighted(sums)
            }
        }
    }

    /// The next key, from 0.
    pub fn choose(&mut self, random: &mut Random) -> usize {
        match self {
            Self::Uniform(1) => 0,
            Self::Uniform(keys) => random.below(*keys),
            Self::Turns { keys, last } => {
                let next = last.map_or_else(|| random.below(*keys), |last| (last + 1) % *keys);
                *last = Some(next);
                next
            }
            Self::Weighted(sums) => {
                let at = random.unit();
                sums.partition_point(|&sum| sum < at).min(sums.len() - 1)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DRAWS: usize = 100_000;

    fn drawn(spread: Spread, keys: usize) -> Vec<usize> {
        let (mut chooser, mut random) = (Chooser::new(spread, keys), Random::new(7, 1));
        let mut counts = vec![0; keys];
        (0..DRAWS).for_each(|_| counts[chooser.choose(&mut random)] += 1);
        counts
    }

    #[test]
    fn a_seed_and_a_name_give_the_same_numbers_again() {
        let numbers = |seed, name| {
            let mut random = Random::new(seed, name);
            [(); 8].map(|()| random.next_u64())
        };
        assert_eq!(numbers(1, 2), numbers(1, 2));
        assert_ne!(numbers(1, 2), numbers(1, 3));
        assert_ne!(numbers(1, 2), numbers(2, 2));
    }

    #[test]
    fn uniform_keys_come_equally_often() {
        for count in drawn(Spread::Uniform, 10) {
            assert!((9_000..11_000).contains(&count), "{count} of {DRAWS} draws among ten");
        }
    }

    #[test]
    fn keys_in_turns_come_one_after_the_other() {
        let (mut chooser, mut random) = (Chooser::new(Spread::Turns, 3), Random::new(7, 1));
        let first = chooser.choose(&mut random);
        assert_eq!([(); 4].map(|()| chooser.choose(&mut random)), [1, 2, 3, 4].map(|step| (first + step) % 3));
    }

    #[test]
    fn zipf_keys_come_by_the_inverse_of_their_rank() {
        let counts = drawn(Spread::Zipf(1.0), 100);
        let ratio = |rank: usize| counts[0] as f64 / counts[rank - 1] as f64;
        assert!((1.8..2.2).contains(&ratio(2)), "{}", ratio(2));
        assert!((8.0..12.5).contains(&ratio(10)), "{}", ratio(10));
    }
}
