//! One shard's counters and histograms: plain cells, written on the hot path, read when somebody asks.

use std::{
    cell::{Cell, RefCell},
    time::Duration,
};

use hdrhistogram::Histogram;

use crate::routes::Route;

/// A turn of the executor that one request held for longer than this is a stall: counted, and logged with its route.
const STALL: Duration = Duration::from_millis(5);

/// Histograms keep two significant digits between a microsecond and this: a waiting pop's longest time, doubled.
const LONGEST_US: u64 = 600_000_000;
const DIGITS: u8 = 2;

/// Upper bounds of the buckets that Prometheus gets, in microseconds.
pub(super) const BUCKETS_US: [u64; 16] = [
    50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000, 5_000_000,
    30_000_000,
];

/// A log line about the same trouble is written for every so many events at the most.
const LOG_EVERY: u64 = 100;

/// Counts since boot.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Counters {
    pub(crate) requests: u64,
    pub(crate) malformed: u64,
    pub(crate) accepted: u64,
    pub(crate) refused: u64,
    pub(crate) accept_errors: u64,
    /// TLS connections that ended before their handshake did.
    pub(crate) failed_handshakes: u64,
    pub(crate) stalls: u64,
    pub(crate) longest_turn_us: u64,
    pub(crate) lag_us: u64,
    pub(crate) lag_samples: u64,
    /// Requests that another node was asked.
    pub(crate) forwarded: u64,
    pub(crate) durable_pushed: u64,
    pub(crate) durable_popped: u64,
    pub(crate) durable_acked: u64,
    /// Pops and fetches that wait in the store role, now.
    pub(crate) durable_parked: u64,
}

/// How long the requests of one route took.
#[derive(Debug)]
pub(crate) struct RouteTimes {
    pub(crate) route: Route,
    pub(crate) count: u64,
    pub(crate) sum_us: u64,
    /// Cumulative counts at [`BUCKETS_US`].
    pub(crate) at_most: [u64; BUCKETS_US.len()],
}

/// The counters of a shard.
#[derive(Debug)]
pub(crate) struct Metrics {
    requests: Cell<u64>,
    malformed: Cell<u64>,
    accepted: Cell<u64>,
    refused: Cell<u64>,
    accept_errors: Cell<u64>,
    failed_handshakes: Cell<u64>,
    stalls: Cell<u64>,
    longest_turn_us: Cell<u64>,
    lag_us: Cell<u64>,
    lag_samples: Cell<u64>,
    forwarded: Cell<u64>,
    durable_pushed: Cell<u64>,
    durable_popped: Cell<u64>,
    durable_acked: Cell<u64>,
    durable_parked: Cell<u64>,
    times: RefCell<Vec<Times>>,
}

#[derive(Debug)]
struct Times {
    histogram: Histogram<u32>,
    sum_us: u64,
}

fn add(counter: &Cell<u64>, n: u64) {
    counter.set(counter.get() + n);
}

impl Metrics {
    pub(crate) fn new() -> Self {
        let times = || Times {
            histogram: Histogram::new_with_bounds(1, LONGEST_US, DIGITS).expect("constant bounds are valid"),
            sum_us: 0,
        };
        Self {
            requests: Cell::default(),
            malformed: Cell::default(),
            accepted: Cell::default(),
            refused: Cell::default(),
            accept_errors: Cell::default(),
            failed_handshakes: Cell::default(),
            stalls: Cell::default(),
            longest_turn_us: Cell::default(),
            lag_us: Cell::default(),
            lag_samples: Cell::default(),
            forwarded: Cell::default(),
            durable_pushed: Cell::default(),
            durable_popped: Cell::default(),
            durable_acked: Cell::default(),
            durable_parked: Cell::default(),
            times: RefCell::new(Route::ALL.iter().map(|_| times()).collect()),
        }
    }

    /// A request of `route` was answered after `took`, counted from when it was read.
    pub(crate) fn observe_request(&self, route: Route, took: Duration) {
        let took_us = took.as_micros() as u64;
        let times = &mut self.times.borrow_mut()[route as usize];
        times.histogram.saturating_record(took_us.max(1));
        times.sum_us += took_us;
        add(&self.requests, 1);
    }

    /// Serving a request of `route` held the executor for `took`.
    pub(crate) fn observe_turn(&self, route: Route, took: Duration) {
        if took < STALL {
            return;
        }
        let took_us = took.as_micros() as u64;
        add(&self.stalls, 1);
        self.longest_turn_us.set(self.longest_turn_us.get().max(took_us));
        tracing::warn!(route = route.name(), took_us, "a request held its shard for more than 5 ms");
    }

    /// A task was woken this much later than it had asked for.
    pub(crate) fn observe_lag(&self, lag: Duration) {
        add(&self.lag_us, lag.as_micros() as u64);
        add(&self.lag_samples, 1);
    }

    /// A request was sent to another node.
    pub(crate) fn forwarded(&self) {
        add(&self.forwarded, 1);
    }

    /// Messages were stored.
    pub(crate) fn durable_pushed(&self, messages: u64) {
        add(&self.durable_pushed, messages);
    }

    /// Messages were handed out of the log.
    pub(crate) fn durable_popped(&self, messages: u64) {
        add(&self.durable_popped, messages);
    }

    /// Acks were taken.
    pub(crate) fn durable_acked(&self, messages: u64) {
        add(&self.durable_acked, messages);
    }

    /// A pop or a fetch begins to wait in the store role.
    pub(crate) fn durable_parks(&self) {
        add(&self.durable_parked, 1);
    }

    /// It waits no longer.
    pub(crate) fn durable_unparks(&self) {
        self.durable_parked.set(self.durable_parked.get() - 1);
    }

    pub(crate) fn malformed(&self) {
        add(&self.malformed, 1);
    }

    pub(crate) fn connection_accepted(&self) {
        add(&self.accepted, 1);
    }

    pub(crate) fn connection_refused(&self) {
        add(&self.refused, 1);
    }

    pub(crate) fn handshake_failed(&self) {
        add(&self.failed_handshakes, 1);
    }

    /// Counts a failed accept; true where it is worth a log line.
    pub(crate) fn accept_failed(&self) -> bool {
        add(&self.accept_errors, 1);
        self.accept_errors.get() % LOG_EVERY == 1
    }

    pub(crate) fn counters(&self) -> Counters {
        Counters {
            requests: self.requests.get(),
            malformed: self.malformed.get(),
            accepted: self.accepted.get(),
            refused: self.refused.get(),
            accept_errors: self.accept_errors.get(),
            failed_handshakes: self.failed_handshakes.get(),
            stalls: self.stalls.get(),
            longest_turn_us: self.longest_turn_us.get(),
            lag_us: self.lag_us.get(),
            lag_samples: self.lag_samples.get(),
            forwarded: self.forwarded.get(),
            durable_pushed: self.durable_pushed.get(),
            durable_popped: self.durable_popped.get(),
            durable_acked: self.durable_acked.get(),
            durable_parked: self.durable_parked.get(),
        }
    }

    /// The times of every route that was asked for.
    pub(crate) fn routes(&self) -> Vec<RouteTimes> {
        let times = self.times.borrow();
        Route::ALL
            .iter()
            .zip(times.iter())
            .filter(|(_, times)| !times.histogram.is_empty())
            .map(|(&route, times)| RouteTimes {
                route,
                count: times.histogram.len(),
                sum_us: times.sum_us,
                at_most: BUCKETS_US.map(|bound| times.histogram.count_between(0, bound)),
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_counted_in_every_bucket_that_holds_them() {
        let metrics = Metrics::new();
        metrics.observe_request(Route::Push, Duration::from_micros(40));
        metrics.observe_request(Route::Push, Duration::from_millis(3));
        let routes = metrics.routes();
        assert_eq!(routes.len(), 1);
        let push = &routes[0];
        assert_eq!((push.route, push.count, push.sum_us), (Route::Push, 2, 3_040));
        assert_eq!(push.at_most[0], 1);
        assert_eq!(push.at_most[4], 1, "3 ms are not within 1 ms");
        assert_eq!(push.at_most[6], 2);
        assert!(push.at_most.is_sorted());
    }

    #[test]
    fn only_a_long_turn_is_a_stall() {
        let metrics = Metrics::new();
        metrics.observe_turn(Route::Push, Duration::from_millis(4));
        assert_eq!(metrics.counters().stalls, 0);
        metrics.observe_turn(Route::Push, Duration::from_millis(6));
        assert_eq!((metrics.counters().stalls, metrics.counters().longest_turn_us), (1, 6_000));
    }
}
