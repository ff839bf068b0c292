//! When requests are due in an open loop.
//!
//! A schedule is a clock that is read one request at a time: [`Schedule::due_ns`] is when the next one is due, and
//! [`Schedule::advance`] goes on to the one after it. Requests that are due while every connection is busy are not kept
//! anywhere: the schedule lags behind the time and is read when a connection is free. So nothing is skipped, however
//! long a stall, and nothing grows.

use crate::{plan::Arrivals, random::Random};

/// The due times of one executor's share of the load.
#[derive(Clone, Debug)]
pub struct Schedule {
    arrivals: Arrivals,
    start_ns: u64,
    /// Mean time between two requests. A fraction, so that no rate is rounded.
    gap_ns: f64,
    /// Requests gone by, or of Poisson the time from the start to the next one in mean gaps.
    elapsed_gaps: f64,
    random: Random,
}

impl Schedule {
    /// Requests at `rate_per_s` from `start_ns` on, which must be above 0. The first of even arrivals is due `phase`
    /// gaps after the start, from 0 to 1: executors that take a part each of one rate are set apart by it.
    #[must_use]
    pub fn new(arrivals: Arrivals, rate_per_s: f64, start_ns: u64, phase: f64, random: Random) -> Self {
        assert!(rate_per_s > 0.0, "a schedule has a rate");
        let mut schedule = Self { arrivals, start_ns, gap_ns: 1e9 / rate_per_s, elapsed_gaps: phase, random };
        if arrivals == Arrivals::Poisson {
            schedule.elapsed_gaps = 0.0;
            schedule.advance();
        }
        schedule
    }

    /// When the next request is due, on the clock of `start_ns`.
    #[must_use]
    pub fn due_ns(&self) -> u64 {
        self.start_ns + (self.elapsed_gaps * self.gap_ns) as u64
    }

    /// Goes on to the request after the next one.
    pub fn advance(&mut self) {
        self.elapsed_gaps += match self.arrivals {
            Arrivals::Constant => 1.0,
            // Gaps of independent arrivals are distributed exponentially.
            Arrivals::Poisson => -self.random.unit().ln(),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START_NS: u64 = 5_000_000_000_000;
    const RATE_PER_S: f64 = 30_000.0;
    const REQUESTS: usize = 200_000;

    fn dues(arrivals: Arrivals, seed: u64) -> Vec<u64> {
        let mut schedule = Schedule::new(arrivals, RATE_PER_S, START_NS, 0.0, Random::new(seed, 0));
        (0..REQUESTS)
            .map(|_| {
                let due_ns = schedule.due_ns();
                schedule.advance();
                due_ns
            })
            .collect()
    }

    fn gaps(dues: &[u64]) -> Vec<f64> {
        dues.windows(2).map(|pair| (pair[1] - pair[0]) as f64).collect()
    }

    fn mean(values: &[f64]) -> f64 {
        values.iter().sum::<f64>() / values.len() as f64
    }

    #[test]
    fn constant_arrivals_keep_the_rate_without_drift() {
        let dues = dues(Arrivals::Constant, 1);
        assert_eq!(dues[0], START_NS);
        for (number, due_ns) in dues.iter().enumerate() {
            let wanted = START_NS + (number as f64 * 1e9 / RATE_PER_S) as u64;
            assert!(due_ns.abs_diff(wanted) <= 1, "request {number} is due at {due_ns}, not {wanted}");
        }
    }

    #[test]
    fn poisson_arrivals_keep_the_rate_in_the_mean() {
        let gaps = gaps(&dues(Arrivals::Poisson, 1));
        let relative = mean(&gaps) * RATE_PER_S / 1e9;
        assert!((0.99..1.01).contains(&relative), "{relative} of the mean gap");
    }

    #[test]
    fn poisson_gaps_vary_as_much_as_their_mean() {
        let gaps = gaps(&dues(Arrivals::Poisson, 1));
        let mean = mean(&gaps);
        let variance = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
        let relative = variance.sqrt() / mean;
        assert!((0.98..1.02).contains(&relative), "deviation over mean is {relative}");
    }

    #[test]
    fn a_seed_gives_the_same_arrivals_again() {
        assert_eq!(dues(Arrivals::Poisson, 1), dues(Arrivals::Poisson, 1));
        assert_ne!(dues(Arrivals::Poisson, 1), dues(Arrivals::Poisson, 2));
    }

    #[test]
    fn executors_with_a_phase_each_share_one_rate_evenly() {
        let schedule = |phase| Schedule::new(Arrivals::Constant, 1_000.0, 0, phase, Random::new(1, 0));
        let (first, second) = (schedule(0.0), schedule(0.5));
        assert_eq!((first.due_ns(), second.due_ns()), (0, 500_000));
    }
}
