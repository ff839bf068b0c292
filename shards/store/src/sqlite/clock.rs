//! The clock of an embedded database: the system's, never going back within the process.

use std::{
    sync::atomic::{AtomicI64, Ordering},
    time::{SystemTime, UNIX_EPOCH},
};

/// Shared by the threads that work on one file.
#[derive(Debug)]
pub(super) struct Clock {
    latest_us: AtomicI64,
    /// When the transaction that is open was opened; the maximum while none is.
    open_us: AtomicI64,
}

impl Clock {
    pub(super) fn new() -> Self {
        Self { latest_us: AtomicI64::new(0), open_us: AtomicI64::new(i64::MAX) }
    }

    /// Microseconds since 1970.
    pub(super) fn now_us(&self) -> i64 {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let now_us = i64::try_from(since.as_micros()).expect("the year is below 290,000");
        self.latest_us.fetch_max(now_us, Ordering::SeqCst).max(now_us)
    }

    /// A transaction opens: its stamps are made from now on.
    pub(super) fn open(&self) {
        self.open_us.store(self.now_us(), Ordering::SeqCst);
    }

    /// It has committed, or not.
    pub(super) fn close(&self) {
        self.open_us.store(i64::MAX, Ordering::SeqCst);
    }

    /// Nothing stamped below this can still appear to those who look after asking.
    pub(super) fn safe_us(&self) -> i64 {
        // In this order: a transaction that opens after the second stamps with times after the first.
        let now_us = self.now_us();
        now_us.min(self.open_us.load(Ordering::SeqCst))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_open_transaction_may_stamp_is_not_safe_yet() {
        let clock = Clock::new();
        clock.open();
        let stamp_us = clock.now_us();
        assert!(clock.safe_us() <= stamp_us);
        clock.close();
        assert!(clock.safe_us() >= stamp_us);
    }

    #[test]
    fn it_does_not_follow_the_system_back() {
        let clock = Clock::new();
        let future_us = clock.now_us() + 3_600_000_000;
        clock.latest_us.store(future_us, Ordering::SeqCst);
        assert_eq!(clock.now_us(), future_us);
    }
}
