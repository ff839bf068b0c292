//! Node-wide limits that every shard draws on: bytes, queues, parked pops, connections.
//!
//! The [`Pool`] is the one atomic that shards share. A shard takes from it in chunks, and its hot path counts on what it
//! holds. So a limit is never exceeded by the node, and approximate in when it is reached: a shard may be refused while
//! others hold a few chunks that they do not use.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use crossbeam_utils::CachePadded;

/// A limit that shards share, and what they hold of it together. Clones are the same pool.
#[derive(Clone, Debug)]
pub struct Pool {
    shared: Arc<Limit>,
}

#[derive(Debug)]
struct Limit {
    taken: CachePadded<AtomicU64>,
    total: AtomicU64,
}

// The units order nothing but themselves: everything is relaxed throughout.
impl Pool {
    /// A pool of `total` units, all free.
    #[must_use]
    pub fn new(total: u64) -> Self {
        let limit = Limit { taken: CachePadded::new(AtomicU64::new(0)), total: AtomicU64::new(total) };
        Self { shared: Arc::new(limit) }
    }

    /// All units, taken or free.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.shared.total.load(Ordering::Relaxed)
    }

    /// Changes how many units there are. Those that are taken stay so: when they are more, none is free until enough
    /// came back.
    pub fn resize(&self, total: u64) {
        self.shared.total.store(total, Ordering::Relaxed);
    }

    /// What a shard that holds `held` units may use of them: all, or, where a [`resize`](Self::resize) left more taken
    /// than there are, its part of what there is.
    #[must_use]
    pub fn usable(&self, held: u64) -> u64 {
        let (total, taken) = (self.total(), self.shared.taken.load(Ordering::Relaxed));
        if taken <= total {
            return held;
        }
        u64::try_from(u128::from(held) * u128::from(total) / u128::from(taken)).unwrap_or(held)
    }

    /// Units that no shard holds.
    #[must_use]
    pub fn free(&self) -> u64 {
        self.total().saturating_sub(self.shared.taken.load(Ordering::Relaxed))
    }

    /// Takes up to `wanted` units and returns how many: fewer, or none, when the pool runs out.
    #[must_use = "what was taken has to be given back"]
    pub fn take(&self, wanted: u64) -> u64 {
        let total = self.total();
        let share = |taken: u64| wanted.min(total.saturating_sub(taken));
        let before =
            self.shared.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |taken| Some(taken + share(taken)));
        match before {
            Ok(taken) | Err(taken) => share(taken),
        }
    }

    /// Gives units back.
    ///
    /// # Panics
    ///
    /// When more is given back than was taken.
    pub fn give(&self, units: u64) {
        let before = self.shared.taken.fetch_sub(units, Ordering::Relaxed);
        assert!(before >= units, "more units given back than were taken");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pool_gives_what_it_has_and_no_more() {
        let pool = Pool::new(10);
        assert_eq!((pool.take(7), pool.take(7), pool.take(1)), (7, 3, 0));
        pool.give(10);
        assert_eq!(pool.take(u64::MAX), 10);
    }

    #[test]
    #[should_panic(expected = "more units given back than were taken")]
    fn what_was_not_taken_cannot_be_given_back() {
        Pool::new(10).give(1);
    }

    #[test]
    fn a_pool_that_shrank_gives_nothing_until_enough_came_back() {
        let pool = Pool::new(10);
        assert_eq!(pool.take(8), 8);
        pool.resize(5);
        assert_eq!((pool.free(), pool.take(1)), (0, 0));
        assert_eq!((pool.usable(8), pool.usable(4)), (5, 2));
        pool.give(4);
        assert_eq!((pool.free(), pool.usable(4), pool.take(9)), (1, 4, 1));
        pool.resize(7);
        assert_eq!(pool.take(9), 2);
    }

    #[test]
    fn shards_that_race_never_hold_more_than_the_total() {
        let pool = Pool::new(100);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for wanted in 0..10_000 {
                        let taken = pool.take(wanted % 60);
                        assert!(pool.free() + taken <= pool.total());
                        pool.give(taken);
                    }
                });
            }
        });
        assert_eq!(pool.free(), pool.total());
    }
}
