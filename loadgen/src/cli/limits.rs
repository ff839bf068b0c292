//! What a run is held to: its checks, the limits of an SLA, and the verdict.

use std::fmt;

use clap::Args;
use humantime::Duration;
use serde::Deserialize;

use super::{
    report::Report,
    units,
    words::{Allowed, Check, Word, as_flag},
};

/// The limits of an SLA. One that is not named does not hold.
#[derive(Args, Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// The median latency must not be longer
    #[arg(long, value_name = "TIME")]
    #[serde(deserialize_with = "as_flag")]
    pub p50: Option<Duration>,
    /// The 99th percentile must not be longer
    #[arg(long, value_name = "TIME")]
    #[serde(deserialize_with = "as_flag")]
    pub p99: Option<Duration>,
    /// The 99.9th percentile must not be longer
    #[arg(long, value_name = "TIME")]
    #[serde(deserialize_with = "as_flag")]
    pub p999: Option<Duration>,
    /// The longest latency must not be longer
    #[arg(long, value_name = "TIME")]
    #[serde(deserialize_with = "as_flag")]
    pub max: Option<Duration>,
    /// Errors, at most; none unless named.
    #[arg(skip)]
    pub errors: Option<u64>,
    /// Messages a second, at least.
    #[arg(skip)]
    pub rate: Option<f64>,
    /// CPU time of the server for a message in µs, at most.
    #[arg(skip)]
    pub server_cpu_us_per_message: Option<f64>,
    /// Resident memory of the server in bytes, at most.
    #[arg(skip)]
    pub server_rss_bytes: Option<u64>,
}

impl Limits {
    /// These limits, and those of `base` where these name none.
    pub fn over(self, base: Self) -> Self {
        Self {
            p50: self.p50.or(base.p50),
            p99: self.p99.or(base.p99),
            p999: self.p999.or(base.p999),
            max: self.max.or(base.max),
            errors: self.errors.or(base.errors),
            rate: self.rate.or(base.rate),
            server_cpu_us_per_message: self.server_cpu_us_per_message.or(base.server_cpu_us_per_message),
            server_rss_bytes: self.server_rss_bytes.or(base.server_rss_bytes),
        }
    }

    /// Whether no limit is named.
    pub fn is_empty(&self) -> bool {
        let times = [self.p50, self.p99, self.p999, self.max].iter().all(Option::is_none);
        let server = self.server_cpu_us_per_message.is_none() && self.server_rss_bytes.is_none();
        times && server && self.errors.is_none() && self.rate.is_none()
    }

    /// The same limits for a machine that is `factor` times as slow: what depends on speed is so much looser, errors
    /// and memory are as they were.
    pub fn loosened(self, factor: f64) -> Self {
        let looser = |time: Option<Duration>| time.map(|time| Duration::from(time.mul_f64(factor)));
        Self {
            p50: looser(self.p50),
            p99: looser(self.p99),
            p999: looser(self.p999),
            max: looser(self.max),
            rate: self.rate.map(|rate| rate / factor),
            server_cpu_us_per_message: self.server_cpu_us_per_message.map(|us| us * factor),
            ..self
        }
    }

    /// What `report` does not hold. Empty is a pass.
    pub fn verdict(&self, allowed: &Allowed, report: &Report) -> Verdict {
        let checks = [
            (Check::Lost, report.lost, 0),
            (Check::Duplicated, report.duplicated, 0),
            (Check::Reordered, report.reordered, 0),
            (Check::Corrupted, report.corrupted, 0),
            (Check::Errors, report.errors, self.errors.unwrap_or(0)),
        ];
        let checks = checks
            .into_iter()
            .filter(|(check, count, most)| count > most && !allowed.contains(*check))
            .map(|(check, count, most)| Failure::Check { check, count, most });
        // One that was stopped in its warm-up has measured nothing, and is no failure of the server's.
        let nothing = (report.samples() == 0 && !report.interrupted).then_some(Failure::Nothing);
        Verdict(checks.chain(nothing).chain(self.broken(report)).collect())
    }

    fn broken(&self, report: &Report) -> Vec<Failure> {
        let latency = &report.latency_us;
        let time = |name, measured, limit: Option<Duration>| {
            Bound { name, unit: units::micros, measured: Some(measured), side: Side::Ceiling }.broken(limit.map(us))
        };
        let server = report.server.as_ref();
        let cpu_us_per_message = server.and_then(|server| server.cpu_us_per_message);
        let cpu = Bound {
            name: "server_cpu_us_per_message",
            unit: units::micros,
            measured: cpu_us_per_message,
            side: Side::Ceiling,
        };
        let rss = Bound {
            name: "server_rss_bytes",
            unit: units::bytes,
            measured: server.map(|server| server.rss_bytes as f64),
            side: Side::Ceiling,
        };
        [
            time("p50", latency.p50, self.p50),
            time("p99", latency.p99, self.p99),
            time("p999", latency.p999, self.p999),
            time("max", latency.max, self.max),
            Failure::rate_under("rate", report.rate_per_s, self.rate),
            // Of a known server's time nothing can be said only where no message came, which is a failure of its own.
            cpu.broken(self.server_cpu_us_per_message.filter(|_| server.is_none() || cpu_us_per_message.is_some())),
            rss.broken(self.server_rss_bytes.map(|bytes| bytes as f64)),
        ]
        .into_iter()
        .flatten()
        .collect()
    }
}

fn us(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

/// On which side of a limit a figure must stay.
#[derive(Clone, Copy, PartialEq)]
enum Side {
    Ceiling,
    Floor,
}

/// A figure that may have a limit.
struct Bound {
    name: &'static str,
    unit: fn(f64) -> String,
    /// `None` where it could not be measured.
    measured: Option<f64>,
    side: Side,
}

impl Bound {
    fn broken(self, limit: Option<f64>) -> Option<Failure> {
        let Self { name, unit, measured, side } = self;
        let limit = limit?;
        let Some(measured) = measured else { return Some(Failure::Unmeasured { name }) };
        let (held, side) = match side {
            Side::Ceiling => (measured <= limit, "over"),
            Side::Floor => (measured >= limit, "under"),
        };
        let percent = (measured / limit - 1.0).abs() * 100.0;
        (!held).then(|| Failure::Limit { name, measured: unit(measured), limit: unit(limit), percent, side })
    }
}

/// What a run did not hold.
#[derive(Clone, Debug)]
pub struct Verdict(pub Vec<Failure>);

impl Verdict {
    /// Whether everything held.
    pub fn passed(&self) -> bool {
        self.0.is_empty()
    }
}

/// One thing that a run did not hold, as a clause.
#[derive(Clone, Debug)]
pub enum Failure {
    /// A check found more than it may.
    Check {
        /// Which.
        check: Check,
        /// How many it found.
        count: u64,
        /// How many it may find.
        most: u64,
    },
    /// A limit is broken.
    Limit {
        /// Which.
        name: &'static str,
        /// What was measured, with its unit.
        measured: String,
        /// The limit, with its unit.
        limit: String,
        /// How far beyond it.
        percent: f64,
        /// `over` or `under`.
        side: &'static str,
    },
    /// There is a limit on what could not be measured.
    Unmeasured {
        /// Which.
        name: &'static str,
    },
    /// Nothing came in the measured part.
    Nothing,
}

impl Failure {
    /// A rate that is below its limit, if it is.
    pub fn rate_under(name: &'static str, per_s: f64, limit: Option<f64>) -> Option<Self> {
        Bound { name, unit: units::rate, measured: Some(per_s), side: Side::Floor }.broken(limit)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Check { check, count, most: 0 } => write!(f, "{} {}", units::count(*count), check.word()),
            Self::Check { check, count, most } => {
                write!(f, "{} {}, the limit is {}", units::count(*count), check.word(), units::count(*most))
            }
            Self::Limit { name, measured, limit, percent, side } => {
                write!(f, "{name} is {measured}, the limit is {limit}: {percent:.0} % {side}")
            }
            Self::Unmeasured { name } => write!(
                f,
                "{name} has a limit and could not be measured: name the server with --server-pid, or measure on its machine"
            ),
            Self::Nothing => f.write_str("nothing was received in the measured part"),
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.passed() {
            return f.write_str("PASS");
        }
        f.write_str("FAIL")?;
        for failure in &self.0 {
            write!(f, "\n  {failure}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::report::example;

    fn failures(limits: &str, report: &Report) -> Vec<String> {
        let limits: Limits = toml::from_str(limits).unwrap();
        limits.verdict(&Allowed::default(), report).0.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn without_limits_the_checks_decide() {
        assert!(failures("", &example()).is_empty());
        assert_eq!(failures("", &Report { lost: 1234, ..example() }), ["1,234 lost"]);
        assert_eq!(failures("", &Report { reordered: 1, errors: 2, ..example() }), ["1 reordered", "2 errors"]);
    }

    #[test]
    fn what_is_allowed_does_not_fail() {
        let report = Report { lost: 3, duplicated: 1, ..example() };
        let verdict = Limits::default().verdict(&"lost".parse().unwrap(), &report);
        assert_eq!(verdict.to_string(), "FAIL\n  1 duplicated");
    }

    #[test]
    fn a_broken_limit_says_by_how_much() {
        let mut report = example();
        report.latency_us.p99 = 7_500.0;
        report.rate_per_s = 450.0;
        assert_eq!(
            failures("p99 = '5ms'\nrate = 500", &report),
            ["p99 is 7.50 ms, the limit is 5.00 ms: 50 % over", "rate is 450.0/s, the limit is 500.0/s: 10 % under"]
        );
        assert!(failures("p99 = '7.5ms'\nrate = 450", &report).is_empty());
    }

    #[test]
    fn errors_may_have_a_limit_above_zero() {
        let report = Report { errors: 5, ..example() };
        assert!(failures("errors = 5", &report).is_empty());
        assert_eq!(failures("errors = 4", &report), ["5 errors, the limit is 4"]);
    }

    #[test]
    fn a_limit_on_an_unknown_server_fails() {
        let report = Report { server: None, ..example() };
        let failures = failures("server_rss_bytes = 1000000", &report);
        assert!(failures[0].starts_with("server_rss_bytes has a limit and could not be measured"), "{failures:?}");
    }

    #[test]
    fn a_run_that_received_nothing_fails_unless_it_was_stopped() {
        let nothing = Report { percentiles: Vec::new(), ..example() };
        assert_eq!(failures("", &nothing), ["nothing was received in the measured part"]);
        assert!(failures("", &Report { interrupted: true, ..nothing }).is_empty());
    }

    #[test]
    fn loosened_limits_leave_what_speed_does_not_explain() {
        let limits: Limits =
            toml::from_str("p99 = '5ms'\nrate = 500\nerrors = 1\nserver_cpu_us_per_message = 10\nserver_rss_bytes = 7")
                .unwrap();
        let loose = limits.loosened(20.0);
        assert_eq!(loose.p99.map(us), Some(100_000.0));
        assert_eq!(loose.rate, Some(25.0));
        assert_eq!(loose.server_cpu_us_per_message, Some(200.0));
        assert_eq!((loose.errors, loose.server_rss_bytes), (Some(1), Some(7)));
    }
}
