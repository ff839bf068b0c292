//! The store's time as it is known here: never ahead of it.
//!
//! Every commit tells the store's time at a moment that lies before the answer's arrival. From then on the node's own
//! monotonic clock carries it on. What is worked out from it (a lease has lapsed, a delay is over) may come late by a
//! round trip, never early.

/// A reading this old is replaced even by an earlier one: clocks drift, and a database may be set back.
const READING_VALID_US: u64 = 10_000_000;

/// The last reading.
#[derive(Debug, Default)]
pub(super) struct StoreClock {
    reading: Option<Reading>,
}

#[derive(Debug, Clone, Copy)]
struct Reading {
    store_us: i64,
    mono_us: u64,
}

impl StoreClock {
    /// Takes a reading that arrived at `mono_us`.
    pub(super) fn read(&mut self, store_us: i64, mono_us: u64) {
        let better = self
            .reading
            .is_none_or(|old| mono_us.saturating_sub(old.mono_us) > READING_VALID_US || store_us >= old.at(mono_us));
        if better {
            self.reading = Some(Reading { store_us, mono_us });
        }
    }

    /// Whether there was a reading.
    pub(super) fn is_known(&self) -> bool {
        self.reading.is_some()
    }

    /// The store's time, at most; 0 before the first reading.
    pub(super) fn now_us(&self, mono_us: u64) -> i64 {
        self.reading.map_or(0, |reading| reading.at(mono_us))
    }

    /// The monotonic time at which the store's time is surely `store_us`.
    pub(super) fn mono_of(&self, store_us: i64, mono_us: u64) -> u64 {
        mono_us + u64::try_from(store_us - self.now_us(mono_us)).unwrap_or(0)
    }
}

impl Reading {
    fn at(self, mono_us: u64) -> i64 {
        self.store_us + mono_us.saturating_sub(self.mono_us) as i64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_never_ahead_of_the_latest_reading_that_came_fast() {
        let mut clock = StoreClock::default();
        clock.read(1_000, 10);
        clock.read(1_050, 100);
        assert_eq!(clock.now_us(100), 1_090, "the second reading took longer to arrive");
        clock.read(1_200, 110);
        assert_eq!(clock.now_us(110), 1_200);
        assert_eq!(clock.mono_of(1_300, 110), 210);
        assert_eq!(clock.mono_of(1_000, 110), 110);
    }

    #[test]
    fn a_store_that_was_set_back_is_believed_after_a_while() {
        let mut clock = StoreClock::default();
        clock.read(1_000_000_000, 0);
        clock.read(5, 1);
        assert_eq!(clock.now_us(1), 1_000_000_001);
        clock.read(6, READING_VALID_US + 1);
        assert_eq!(clock.now_us(READING_VALID_US + 1), 6);
    }
}
