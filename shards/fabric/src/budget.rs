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

/// What is left of a node-wide limit. Clones are the same pool.
#[derive(Clone, Debug)]
pub struct Pool {
    shared: Arc<Limits>,
}

#[derive(Debug)]
struct Limits {
    free: CachePadded<AtomicU64>,
    total: u64,
}

impl Pool {
    /// A pool of `total` units, all free.
    #[must_use]
    pub fn new(total: u64) -> Self {
        Self { shared: Arc::new(Limits { free: CachePadded::new(AtomicU64::new(total)), total }) }
    }

    /// All units, taken or free.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.shared.total
    }

    /// Units that no shard holds.
    #[must_use]
    pub fn free(&self) -> u64 {
        self.shared.free.load(Ordering::Relaxed)
    }

    /// Takes up to `wanted` units and returns how many: fewer, or none, when the pool runs out.
    #[must_use = "what was taken has to be given back"]
    pub fn take(&self, wanted: u64) -> u64 {
        // The units order nothing but themselves: relaxed throughout.
        let taken =
            self.shared.free.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |free| Some(free - wanted.min(free)));
        match taken {
            Ok(free) | Err(free) => wanted.min(free),
        }
    }

    /// Gives units back.
    ///
    /// # Panics
    ///
    /// When the pool would hold more than its total: more was given than taken.
    pub fn give(&self, units: u64) {
        let before = self.shared.free.fetch_add(units, Ordering::Relaxed);
        assert!(before + units <= self.shared.total, "more units given back than were taken");
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
