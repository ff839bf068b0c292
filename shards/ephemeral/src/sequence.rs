//! Sequence numbers: given out once per engine and never again, so that an id or a claim that is left over finds nothing.
//!
//! A push takes the next ones. Messages that another engine hands over may have to stand in front of what is here, whose
//! ids clients know already, so there are as many numbers below the first push as above it: inside the engine the first
//! push gets [`FIRST`], in an id it is 0, and what stands in front of it is at the upper end, 18446744073709551615
//! downwards. Clients treat ids as opaque.

/// The number of the engine's first push.
const FIRST: u64 = 1 << 63;

pub(crate) struct Sequences {
    next: u64,
    /// The lowest that was given out, or [`FIRST`].
    lowest: u64,
}

impl Sequences {
    pub(crate) const fn new() -> Self {
        Self { next: FIRST, lowest: FIRST }
    }

    /// The first of so many in a row, above all others.
    pub(crate) const fn take_above(&mut self, count: u64) -> u64 {
        let first = self.next;
        self.next += count;
        first
    }

    /// The first of so many in a row, below all others.
    pub(crate) const fn take_below(&mut self, count: u64) -> u64 {
        self.lowest -= count;
        self.lowest
    }
}

/// The number as ids show it.
pub(crate) const fn shown(sequence: u64) -> u64 {
    sequence.wrapping_sub(FIRST)
}

/// The number that an id shows.
pub(crate) const fn of_shown(shown: u64) -> u64 {
    shown.wrapping_add(FIRST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_taken_stands_in_a_row_above_or_below_everything() {
        let mut sequences = Sequences::new();
        assert_eq!([sequences.take_above(3), sequences.take_above(1)].map(shown), [0, 3]);
        assert_eq!([sequences.take_below(2), sequences.take_below(1)].map(shown), [u64::MAX - 1, u64::MAX - 2]);
        assert_eq!(shown(sequences.take_above(1)), 4);
        for sequence in [0, 1, FIRST - 1, FIRST, u64::MAX] {
            assert_eq!(of_shown(shown(sequence)), sequence);
        }
    }
}
