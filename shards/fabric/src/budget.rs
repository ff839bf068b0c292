//! Node-wide limits that every shard draws on: bytes, queues, parked pops, connections.
//!
//! The [`Pool`] is the one atomic that shards share. A shard takes from it in chunks into its own [`Share`], and the hot
//! path counts on that alone. So a limit is exact for the node, never exceeded, and approximate in when it is reached:
//! a shard may be refused while others hold up to two chunks each that they do not use.

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

/// One shard's part of a pool. What it holds goes back to the pool on drop.
#[derive(Debug)]
pub struct Share {
    pool: Pool,
    chunk: u64,
    held: u64,
    used: u64,
}

impl Share {
    /// Holds nothing yet, and will take from `pool` by `chunk` units at least.
    ///
    /// # Panics
    ///
    /// When `chunk` is 0.
    #[must_use]
    pub fn new(pool: Pool, chunk: u64) -> Self {
        assert!(chunk > 0, "a share grows by something");
        Self { pool, chunk, held: 0, used: 0 }
    }

    /// Units in use.
    #[must_use]
    pub fn used(&self) -> u64 {
        self.used
    }

    /// Units held, used or not.
    #[must_use]
    pub fn held(&self) -> u64 {
        self.held
    }

    /// Uses `units` more. Returns false, with nothing changed, when the node's limit does not allow it.
    #[must_use = "when false, nothing may be used"]
    pub fn try_use(&mut self, units: u64) -> bool {
        let needed = self.used.saturating_add(units);
        if needed > self.held {
            let missing = needed - self.held;
            self.held += self.pool.take(missing.max(self.chunk));
            if needed > self.held {
                // What came is too little. Others may do with it.
                self.give_back_beyond(self.chunk);
                return false;
            }
        }
        self.used = needed;
        true
    }

    /// Uses `units` less. Beyond two chunks unused, all but one go back to the pool: a share that goes up and down by
    /// less than a chunk leaves the pool alone.
    ///
    /// # Panics
    ///
    /// When fewer are in use.
    pub fn release(&mut self, units: u64) {
        self.used = self.used.checked_sub(units).expect("no more is released than was used");
        if self.held - self.used > self.chunk.saturating_mul(2) {
            self.give_back_beyond(self.chunk);
        }
    }

    /// Gives back what is unused beyond `kept` units.
    fn give_back_beyond(&mut self, kept: u64) {
        let surplus = (self.held - self.used).saturating_sub(kept);
        if surplus > 0 {
            self.held -= surplus;
            self.pool.give(surplus);
        }
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        if self.held > 0 {
            self.pool.give(self.held);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_grows_by_chunks_and_gives_back_with_hysteresis() {
        let pool = Pool::new(100);
        let mut share = Share::new(pool.clone(), 10);
        assert!(share.try_use(1));
        assert_eq!((share.held(), pool.free()), (10, 90));
        assert!(share.try_use(24));
        assert_eq!((share.held(), pool.free()), (25, 75), "what is missing is more than a chunk");
        share.release(20);
        assert_eq!((share.used(), share.held()), (5, 25), "two chunks unused stay");
        share.release(1);
        assert_eq!((share.used(), share.held(), pool.free()), (4, 14, 86), "beyond two, one stays");
        assert!(share.try_use(10));
        assert_eq!(pool.free(), 86, "up and down within a chunk leaves the pool alone");
    }

    #[test]
    fn a_refusal_changes_nothing_and_keeps_nothing_from_others() {
        let pool = Pool::new(45);
        let (mut first, mut second) = (Share::new(pool.clone(), 10), Share::new(pool.clone(), 10));
        assert!(first.try_use(10));
        assert!(!second.try_use(36));
        assert_eq!(second.used(), 0);
        assert!(second.try_use(35), "all that is left can be used");
        assert!(!first.try_use(1));
        second.release(35);
        assert!(first.try_use(5), "what came back is for everybody");
    }

    #[test]
    fn more_than_any_pool_is_refused() {
        let pool = Pool::new(u64::MAX);
        let mut share = Share::new(pool, 1);
        assert!(share.try_use(5));
        assert!(!Share::new(Pool::new(10), 1).try_use(u64::MAX));
        assert!(share.try_use(u64::MAX - 5));
    }

    #[test]
    fn a_dropped_share_gives_everything_back() {
        let pool = Pool::new(100);
        let mut share = Share::new(pool.clone(), 30);
        assert!(share.try_use(40));
        drop(share);
        assert_eq!(pool.free(), pool.total());
    }

    #[test]
    fn the_total_is_never_exceeded_by_shards_at_once() {
        let pool = Pool::new(1_000);
        let in_use = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for seed in 0..4_u64 {
                let (pool, in_use) = (pool.clone(), &in_use);
                scope.spawn(move || {
                    let mut share = Share::new(pool, 16);
                    let mut random = seed + 1;
                    for _ in 0..20_000 {
                        // xorshift64: any mixture of sizes does.
                        random ^= random << 13;
                        random ^= random >> 7;
                        random ^= random << 17;
                        let units = random % 100;
                        if random & 1 << 40 == 0 && share.try_use(units) {
                            let before = in_use.fetch_add(units, Ordering::SeqCst);
                            assert!(before + units <= 1_000);
                        } else if share.used() >= units {
                            in_use.fetch_sub(units, Ordering::SeqCst);
                            share.release(units);
                        }
                    }
                    in_use.fetch_sub(share.used(), Ordering::SeqCst);
                });
            }
        });
        assert_eq!(pool.free(), 1_000);
    }
}
