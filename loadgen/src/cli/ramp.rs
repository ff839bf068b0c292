//! `--ramp`: the highest rate at which an SLA still holds, by doubling and then bisection.

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use super::{
    error::CliError,
    limits::{Failure, Limits, Verdict},
    measure::{Watch, measure},
    report::Report,
    units,
    words::Allowed,
};
use crate::{Plan, plan::Pacing};

/// The search ends when the rate that holds and the one that does not are this close.
const PRECISION: f64 = 1.05;
/// Below this nothing is searched: one message in ten seconds.
const RATE_MIN_PER_S: f64 = 0.1;
/// A rate that is not reached is one that does not hold, whatever the latencies of what did come.
const REACHED_SHARE: f64 = 0.95;

/// A rate that was tried.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Step {
    /// Messages due each second.
    pub rate_per_s: f64,
    /// Whether the SLA held.
    pub held: bool,
    /// What did not.
    pub failures: Vec<String>,
}

/// Which rate to try next, given what held and what did not. Starts from the first rate.
#[derive(Clone, Copy, Debug)]
struct Search {
    rate: f64,
    held: Option<f64>,
    broke: Option<f64>,
}

impl Search {
    /// Takes the result of the current rate; the next one is in `rate`, unless this returns false.
    fn goes_on(&mut self, held: bool) -> bool {
        if held {
            self.held = Some(self.rate);
        } else {
            self.broke = Some(self.rate);
        }
        self.rate = match (self.held, self.broke) {
            (Some(held), None) => held * 2.0,
            (None, Some(broke)) => broke / 2.0,
            (Some(held), Some(broke)) => f64::midpoint(held, broke),
            (None, None) => unreachable!("one of them was just set"),
        };
        match (self.held, self.broke) {
            (Some(held), Some(broke)) => broke / held > PRECISION,
            _ => self.rate >= RATE_MIN_PER_S,
        }
    }
}

/// Searches from the first rate on, and prints each step on stderr. Returns the report of the highest rate that held (of
/// the last one, if none did) with all steps, its latencies in nanoseconds, and its verdict.
///
/// # Errors
///
/// As [`measure`].
pub fn ramp(
    plan: &Plan,
    first_per_s: f64,
    limits: &Limits,
    allowed: &Allowed,
    watch: &Watch,
) -> Result<(Report, Histogram<u64>, Verdict), CliError> {
    let mut search = Search { rate: first_per_s, held: None, broke: None };
    let mut steps = Vec::new();
    let mut best = None;
    loop {
        let rate_per_s = search.rate;
        let (report, latency_ns) = measure(&at_rate(plan, rate_per_s), watch)?;
        let stopped = report.interrupted;
        let mut verdict = limits.verdict(allowed, &report);
        verdict.0.extend(not_reached(rate_per_s, &report));
        let held = verdict.passed() && !stopped;
        let failures: Vec<_> = verdict.0.iter().map(ToString::to_string).collect();
        eprintln!("{}", step_text(rate_per_s, held, &failures, &report));
        steps.push(Step { rate_per_s, held, failures });
        if held || best.as_ref().is_none_or(|(_, _, verdict): &(_, _, Verdict)| !verdict.passed()) {
            best = Some((report, latency_ns, verdict));
        }
        if stopped || !search.goes_on(held) {
            break;
        }
    }
    let (mut report, latency_ns, verdict) = best.expect("the first rate was tried");
    report.ramp = steps;
    Ok((report, latency_ns, verdict))
}

/// The same plan at another rate.
fn at_rate(plan: &Plan, per_s: f64) -> Plan {
    let mut plan = plan.clone();
    if let Pacing::Open { rate_per_s, .. } = &mut plan.pacing {
        *rate_per_s = per_s;
    }
    plan
}

/// That a rate was not reached: fewer messages were sent than were due.
fn not_reached(rate_per_s: f64, report: &Report) -> Option<Failure> {
    let sent_per_s = report.sent as f64 / report.duration_s.max(f64::MIN_POSITIVE);
    Failure::rate_under("the rate of sending", sent_per_s, Some(rate_per_s * REACHED_SHARE))
}

fn step_text(rate_per_s: f64, held: bool, failures: &[String], report: &Report) -> String {
    let latency = &report.latency_us;
    let figures = format!("p50 {}, p99 {}", units::micros(latency.p50), units::micros(latency.p99));
    let verdict = if held { "holds".into() } else { format!("does not hold: {}", failures.join("; ")) };
    format!("{:>14}  {figures}  {verdict}", units::rate(rate_per_s))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The rates that are tried on a server that holds up to `capacity`.
    fn tried(first: f64, capacity: f64) -> (Vec<f64>, Option<f64>) {
        let mut search = Search { rate: first, held: None, broke: None };
        let mut rates = vec![first];
        while search.goes_on(search.rate <= capacity) {
            rates.push(search.rate);
        }
        (rates, search.held)
    }

    #[test]
    fn rates_double_until_one_breaks_and_are_halved_in_between() {
        let (rates, held) = tried(1000.0, 5000.0);
        assert_eq!(rates[..6], [1000.0, 2000.0, 4000.0, 8000.0, 6000.0, 5000.0]);
        let held = held.unwrap();
        assert!(held <= 5000.0 && held > 5000.0 / PRECISION, "{held}");
    }

    #[test]
    fn a_first_rate_that_breaks_is_halved_until_one_holds() {
        let (rates, held) = tried(1000.0, 100.0);
        assert_eq!(rates[..5], [1000.0, 500.0, 250.0, 125.0, 62.5]);
        assert!(held.unwrap() > 100.0 / PRECISION);
    }

    #[test]
    fn a_server_that_holds_nothing_ends_the_search() {
        let (rates, held) = tried(1000.0, 0.0);
        assert_eq!(held, None);
        assert!(rates.len() < 20, "{rates:?}");
    }
}
