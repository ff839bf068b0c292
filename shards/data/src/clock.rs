//! The shard's clocks: monotonic time since the node booted, in the units that the engine and the metrics count in.
//!
//! The engine has a clock of its own, which stands still while ephemeral queues are switched off: no lease runs out, no
//! message grows too old and no group is forgotten while nobody may do anything about it.

use std::{
    cell::Cell,
    time::{Duration, Instant},
};

use queen_ephemeral::Millis;

/// Time since boot. All shards count from the same moment.
#[derive(Debug)]
pub(crate) struct Clock {
    boot: Instant,
    /// When the engine's clock was stopped, while it stands still.
    stopped: Cell<Option<Instant>>,
    /// How long it has stood still before, altogether.
    stood: Cell<Duration>,
}

impl Clock {
    pub(crate) fn starting_at(boot: Instant) -> Self {
        Self { boot, stopped: Cell::new(None), stood: Cell::default() }
    }

    /// Milliseconds since boot, now.
    pub(crate) fn now_ms(&self) -> Millis {
        self.millis(Instant::now())
    }

    /// Milliseconds that the engine's clock shows at `at`, rounded down.
    pub(crate) fn engine_millis(&self, at: Instant) -> Millis {
        let at = self.stopped.get().map_or(at, |stopped| at.min(stopped));
        self.millis(at.checked_sub(self.stood.get()).unwrap_or(self.boot))
    }

    /// The first instant at which [`engine_millis`](Self::engine_millis) reads `at_ms`; none while the clock stands still.
    pub(crate) fn engine_instant(&self, at_ms: Millis) -> Option<Instant> {
        let runs = self.stopped.get().is_none();
        runs.then(|| self.boot + Duration::from_millis(at_ms) + self.stood.get())
    }

    /// Lets the engine's clock stand still, or run again.
    pub(crate) fn run_engine_time(&self, runs: bool, now: Instant) {
        match (self.stopped.get(), runs) {
            (None, false) => self.stopped.set(Some(now)),
            (Some(stopped), true) => {
                self.stood.set(self.stood.get() + now.saturating_duration_since(stopped));
                self.stopped.set(None);
            }
            (None, true) | (Some(_), false) => {}
        }
    }

    fn millis(&self, at: Instant) -> Millis {
        at.saturating_duration_since(self.boot).as_millis() as Millis
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_engines_clock_stands_still_and_goes_on_from_there() {
        let boot = Instant::now();
        let at = |ms| boot + Duration::from_millis(ms);
        let clock = Clock::starting_at(boot);
        assert_eq!((clock.engine_millis(at(100)), clock.engine_instant(150)), (100, Some(at(150))));
        clock.run_engine_time(false, at(120));
        clock.run_engine_time(false, at(130));
        assert_eq!((clock.engine_millis(at(110)), clock.engine_millis(at(500))), (110, 120));
        assert_eq!(clock.engine_instant(150), None);
        clock.run_engine_time(true, at(520));
        clock.run_engine_time(true, at(530));
        assert_eq!((clock.engine_millis(at(520)), clock.engine_millis(at(550))), (120, 150));
        assert_eq!(clock.engine_instant(150), Some(at(550)));
    }
}
