//! Measuring how long work held up its executor.

use std::time::{Duration, Instant};

/// Measures stretches of work that do not yield, against one limit. The caller runs it around a poll or a call and
/// counts and logs what it returns.
#[derive(Clone, Copy, Debug)]
pub struct Stopwatch {
    limit: Duration,
    since: Instant,
}

/// A stretch of work that took longer than the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stall {
    /// How long it took.
    pub took: Duration,
}

impl Stopwatch {
    /// Starts now; what ends within `limit` is no stall.
    #[must_use]
    pub fn start(limit: Duration) -> Self {
        Self { limit, since: Instant::now() }
    }

    /// Ends a stretch at `now` and starts the next one there: one clock reading per stretch.
    pub fn lap(&mut self, now: Instant) -> Option<Stall> {
        let took = now.saturating_duration_since(self.since);
        self.since = now;
        (took > self.limit).then_some(Stall { took })
    }

    /// Ends the stretch.
    #[must_use]
    pub fn stop(mut self) -> Option<Stall> {
        self.lap(Instant::now())
    }
}
