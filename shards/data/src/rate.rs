//! A tenant's message rate, exact across the shards of a node: one virtual clock per tenant.
//!
//! The generic cell rate algorithm keeps one number, the time at which the bucket would be empty again. A push of
//! `n` messages moves it by `n` intervals, if it is not further ahead than the burst allows. The number is an atomic
//! in a lock-free map, so that two shards that take pushes of one tenant share it without waiting for each other.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use crossbeam_skiplist::SkipMap;
use queen_ephemeral::TenantId;

/// How many messages a tenant may push, in a second and at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RateLimit {
    /// Nanoseconds that one message takes at the rate; 0 is no limit.
    interval_ns: u64,
    /// How far ahead of now the virtual clock may stand.
    tolerance_ns: u64,
}

impl RateLimit {
    /// `rate` messages a second, `burst` at once; a rate of 0 is no limit.
    pub(crate) fn new(rate: u64, burst: u64) -> Self {
        let interval_ns = 1_000_000_000u64.checked_div(rate).map_or(0, |ns| ns.max(1));
        Self { interval_ns, tolerance_ns: interval_ns.saturating_mul(burst) }
    }
}

/// The clocks of all tenants of a node. Of a tenant without a limit nothing is ever looked up.
#[derive(Debug, Default)]
pub(crate) struct Rates {
    clocks: SkipMap<TenantId, Arc<AtomicU64>>,
}

impl Rates {
    /// Forgets those who owe nothing any more at `now_ns`: their clocks say what no clock says.
    pub(crate) fn forget_idle(&self, now_ns: u64) {
        for entry in self.clocks.iter().filter(|entry| entry.value().load(Ordering::Relaxed) <= now_ns) {
            entry.remove();
        }
    }

    /// Forgets what a tenant has pushed: its rate is another one now.
    pub(crate) fn forget(&self, tenant: TenantId) {
        self.clocks.remove(&tenant);
    }

    /// Takes `messages` of `tenant`'s rate at `now_ns` since boot, or says in how many milliseconds it would do.
    ///
    /// A call larger than the burst is taken when the bucket is full, and paid for afterwards: it could never pass
    /// otherwise.
    pub(crate) fn take(&self, tenant: TenantId, limit: RateLimit, messages: u64, now_ns: u64) -> Result<(), u64> {
        if limit.interval_ns == 0 || messages == 0 {
            return Ok(());
        }
        let entry = self.clocks.get_or_insert_with(tenant, Default::default);
        let clock = entry.value();
        let cost_ns = limit.interval_ns.saturating_mul(messages);
        let allowed_ns = now_ns.saturating_add(limit.tolerance_ns.saturating_sub(cost_ns));
        let mut seen = clock.load(Ordering::Relaxed);
        loop {
            if seen > allowed_ns {
                return Err((seen - allowed_ns).div_ceil(1_000_000));
            }
            let next = seen.max(now_ns).saturating_add(cost_ns);
            match clock.compare_exchange_weak(seen, next, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return Ok(()),
                Err(other) => seen = other,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;
    const START: u64 = 100 * SECOND;

    #[test]
    fn off_takes_everything() {
        let (rates, limit) = (Rates::default(), RateLimit::new(0, 0));
        assert_eq!(rates.take(TenantId::DEFAULT, limit, u64::MAX, START), Ok(()));
    }

    #[test]
    fn a_burst_passes_and_the_next_message_waits_for_its_interval() {
        let (rates, limit) = (Rates::default(), RateLimit::new(10, 20));
        assert_eq!(rates.take(TenantId::DEFAULT, limit, 20, START), Ok(()));
        assert_eq!(rates.take(TenantId::DEFAULT, limit, 1, START), Err(100));
        assert_eq!(rates.take(TenantId::DEFAULT, limit, 1, START + SECOND / 10), Ok(()));
        assert_eq!(rates.take(TenantId::DEFAULT, limit, 1, START + SECOND / 10), Err(100));
    }

    #[test]
    fn a_call_above_the_burst_passes_on_a_full_bucket_and_is_paid_for() {
        let (rates, limit) = (Rates::default(), RateLimit::new(10, 20));
        assert_eq!(rates.take(TenantId::DEFAULT, limit, 50, START), Ok(()));
        assert_eq!(rates.take(TenantId::DEFAULT, limit, 1, START), Err(3_100));
    }

    #[test]
    fn who_owes_nothing_is_forgotten_and_who_does_is_not() {
        let (rates, limit) = (Rates::default(), RateLimit::new(10, 20));
        assert_eq!(rates.take(TenantId::DEFAULT, limit, 20, START), Ok(()));
        rates.forget_idle(START + SECOND);
        assert_eq!(rates.take(TenantId::DEFAULT, limit, 20, START + SECOND), Err(1_000));
        rates.forget_idle(START + 2 * SECOND);
        assert_eq!(rates.clocks.len(), 0);
    }

    #[test]
    fn one_tenant_does_not_use_up_anothers_rate() {
        let (rates, limit) = (Rates::default(), RateLimit::new(1, 1));
        assert_eq!(rates.take(TenantId::DEFAULT, limit, 1, START), Ok(()));
        assert_eq!(rates.take(TenantId([7; 16]), limit, 1, START), Ok(()));
    }

    #[test]
    fn shards_that_race_take_no_more_than_the_burst() {
        let (rates, limit) = (Rates::default(), RateLimit::new(1, 1_000));
        let taken: u64 = std::thread::scope(|scope| {
            let shards: Vec<_> = (0..2)
                .map(|_| {
                    scope.spawn(|| {
                        (0..1_000).filter(|_| rates.take(TenantId::DEFAULT, limit, 1, START).is_ok()).count() as u64
                    })
                })
                .collect();
            shards.into_iter().map(|shard| shard.join().unwrap()).sum()
        });
        assert_eq!(taken, 1_000);
    }
}
