//! A shard's part of a budget that spans the node: taken from the pool in chunks, given back when it lies idle.

use std::cell::Cell;

use queen_fabric::budget::Pool;

/// What this shard holds of one pool. How much of it is used, its caller knows.
#[derive(Debug, Default)]
pub(crate) struct Share {
    held: Cell<u64>,
    chunk: u64,
}

impl Share {
    /// Nothing held yet; `chunk` is taken at a time. A chunk is a small part of the whole budget, so that shards
    /// which lie idle keep little from those that do not.
    pub(crate) fn of(total: u64, shards: usize, chunk_max: u64) -> Self {
        Self { held: Cell::new(0), chunk: (total / (64 * shards as u64)).clamp(1, chunk_max) }
    }

    /// The same share of a budget that has another size now.
    pub(crate) fn resized(self, total: u64, shards: usize, chunk_max: u64) -> Self {
        Self { held: self.held, ..Self::of(total, shards, chunk_max) }
    }

    /// Gives everything back.
    pub(crate) fn release(&self, pool: &Pool) {
        pool.give(self.held.take());
    }

    /// Raises what is held towards `needed` as far as the pool allows, and returns what is held.
    pub(crate) fn cover(&self, pool: &Pool, needed: u64) -> u64 {
        let held = self.held.get();
        if needed > held {
            let missing = needed - held;
            let mut taken = pool.take(missing.max(self.chunk));
            if taken < missing {
                taken += pool.take(missing - taken);
            }
            self.held.set(held + taken);
        }
        self.held.get()
    }

    /// Gives back what `used` does not need, but for two chunks of slack, and returns what is held.
    pub(crate) fn trim(&self, pool: &Pool, used: u64) -> u64 {
        let slack = if self.chunk == 1 { 0 } else { 2 * self.chunk };
        let keep = used + slack;
        let held = self.held.get();
        if held > keep {
            pool.give(held - keep);
            self.held.set(keep);
        }
        self.held.get()
    }
}

/// A counted resource of this shard that draws on a [`Share`]: connections, waiting pops, buffered bytes.
#[derive(Debug)]
pub(crate) struct Counted {
    share: Share,
    used: Cell<u64>,
}

impl Counted {
    pub(crate) fn of(total: u64, shards: usize, chunk_max: u64) -> Self {
        Self { share: Share::of(total, shards, chunk_max), used: Cell::new(0) }
    }

    /// Takes `n`, or nothing and false where the node has no more.
    pub(crate) fn try_take(&self, pool: &Pool, n: u64) -> bool {
        let needed = self.used.get() + n;
        let enough = self.share.cover(pool, needed) >= needed;
        if enough {
            self.used.set(needed);
        }
        enough
    }

    pub(crate) fn give(&self, pool: &Pool, n: u64) {
        let used = self.used.get() - n;
        self.used.set(used);
        self.share.trim(pool, used);
    }

    pub(crate) fn used(&self) -> u64 {
        self.used.get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_budget_is_used_to_its_last_unit_by_either_shard() {
        let pool = Pool::new(10);
        let (a, b) = (Counted::of(10, 2, 64), Counted::of(10, 2, 64));
        for _ in 0..5 {
            assert!(a.try_take(&pool, 1) && b.try_take(&pool, 1));
        }
        assert!(!a.try_take(&pool, 1) && !b.try_take(&pool, 1));
        b.give(&pool, 1);
        assert!(a.try_take(&pool, 1));
        assert_eq!((a.used(), b.used()), (6, 4));
    }

    #[test]
    fn idle_credit_goes_back_to_the_node() {
        let pool = Pool::new(100_000);
        let a = Counted::of(100_000, 2, 64);
        assert!(a.try_take(&pool, 50_000));
        a.give(&pool, 50_000);
        let b = Counted::of(100_000, 2, 64);
        assert!(b.try_take(&pool, 100_000 - 2 * 64));
    }
}
