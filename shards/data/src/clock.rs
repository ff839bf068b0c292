//! The shard's clock: monotonic time since the node booted, in the units that the engine and the metrics count in.

use std::time::{Duration, Instant};

use queen_ephemeral::Millis;

/// Time since boot. Copied into every shard, so that all of them count from the same moment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Clock {
    boot: Instant,
}

impl Clock {
    pub(crate) fn starting_at(boot: Instant) -> Self {
        Self { boot }
    }

    /// Milliseconds since boot at `at`, rounded down.
    pub(crate) fn millis(&self, at: Instant) -> Millis {
        at.saturating_duration_since(self.boot).as_millis() as Millis
    }

    /// Milliseconds since boot, now.
    pub(crate) fn now_ms(&self) -> Millis {
        self.millis(Instant::now())
    }

    /// The first instant at which [`Clock::millis`] reads `at_ms`.
    pub(crate) fn instant(&self, at_ms: Millis) -> Instant {
        self.boot + Duration::from_millis(at_ms)
    }
}
