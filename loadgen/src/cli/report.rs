//! What a run leaves behind: the JSON report.

use std::{collections::BTreeMap, fs, path::Path};

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use super::{
    error::CliError,
    machine::Machine,
    ramp::Step,
    server::{ServerUse, Used},
    words::Word,
};
use crate::{
    Outcome, Plan,
    outcome::Second as MeasuredSecond,
    plan::{Arrivals, Pacing, Scenario, Size, Spread},
};

/// A report, as it stands in a JSON file. Counts are of the measured part; `lost`, `duplicated`, `reordered` and
/// `corrupted` are of the whole run.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Report {
    /// The scenario's word.
    pub scenario: String,
    /// The driver's word.
    pub driver: String,
    /// The target as it was given.
    pub target: String,
    /// `open-constant`, `open-poisson` or `closed`.
    pub pacing: String,
    /// What a reader of the figures must know, such as that a closed loop is blind to stalls.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// How a round trip went: `push-pop` or `verbs`.
    pub style: String,
    /// How long was measured.
    pub duration_s: f64,
    /// Whether it was stopped before its time.
    pub interrupted: bool,
    /// Messages sent (of request-reply and churn: requests).
    pub sent: u64,
    /// Messages received (of request-reply and churn: replies; of fan-out: by all groups together).
    pub received: u64,
    /// Requests that failed.
    pub errors: u64,
    /// The same by what went wrong.
    pub errors_by_kind: BTreeMap<String, u64>,
    /// Sent, confirmed and never received.
    pub lost: u64,
    /// Received again.
    pub duplicated: u64,
    /// Received after a later one of their partition.
    pub reordered: u64,
    /// Received with other bytes.
    pub corrupted: u64,
    /// Messages a second: received, or, where nothing is received (`push`), sent.
    pub rate_per_s: f64,
    /// Of `durable-push`: requests a second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requests_per_s: Option<f64>,
    /// Latencies in microseconds.
    pub latency_us: Latency,
    /// What the server used; `None` if it is not on this machine, or nobody knows which process it is.
    pub server: Option<ServerUse>,
    /// What the PostgreSQL used that was named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub postgres: Option<ServerUse>,
    /// The load generator's commit, with `-dirty` if it was built from changed files, or `unknown`.
    pub commit: String,
    /// What it ran on.
    pub machine: Machine,
    /// The plan's parameters.
    pub plan: Parameters,
    /// The measured part second by second.
    pub seconds: Vec<Second>,
    /// The distribution of latencies.
    pub percentiles: Vec<Percentile>,
    /// Of `--ramp`: every rate that was tried, in turn. The report is of the highest that held.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ramp: Vec<Step>,
}

/// Latencies in microseconds.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize)]
pub struct Latency {
    /// The median.
    pub p50: f64,
    /// The 90th percentile.
    pub p90: f64,
    /// The 99th percentile.
    pub p99: f64,
    /// The 99.9th percentile.
    pub p999: f64,
    /// The longest.
    pub max: f64,
    /// The mean.
    pub mean: f64,
}

/// What was asked for, as the flags say it.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Parameters {
    /// Of an open loop.
    pub rate_per_s: Option<f64>,
    /// Before anything counted.
    pub warmup_s: f64,
    /// How long was to be measured.
    pub duration_s: f64,
    /// `--connections`.
    pub connections: usize,
    /// `--pairs`.
    pub pairs: usize,
    /// `--depth`.
    pub depth: usize,
    /// `--batch`.
    pub batch: usize,
    /// `--queues`.
    pub queues: usize,
    /// `--partitions`.
    pub partitions: usize,
    /// `--spread`.
    pub spread: String,
    /// `--groups`.
    pub groups: usize,
    /// `--parked`.
    pub parked: usize,
    /// `--across`.
    #[serde(default)]
    pub across: usize,
    /// `--prefill`.
    #[serde(default)]
    pub prefill: usize,
    /// `--size`.
    pub size: String,
    /// `--incompressible`.
    #[serde(default)]
    pub incompressible: f64,
    /// `--seed`.
    pub seed: u64,
    /// `--cpus`.
    pub cpus: Vec<usize>,
}

/// One second of the measured part.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub struct Second {
    /// Messages sent in it.
    pub sent: u64,
    /// Messages received in it.
    pub received: u64,
    /// Errors in it.
    pub errors: u64,
    /// Median latency of what came in it; 0 if nothing did.
    pub p50_us: f64,
    /// Its 99th percentile.
    pub p99_us: f64,
    /// Its 99.9th percentile.
    pub p999_us: f64,
    /// The longest.
    pub max_us: f64,
}

/// A point of the distribution.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub struct Percentile {
    /// From 0 to 1.
    pub quantile: f64,
    /// The latency that this share does not exceed.
    pub us: f64,
    /// How many latencies do not exceed it.
    pub count: u64,
}

/// Points of the distribution for each halving of what remains above: enough for a smooth curve at any length.
const POINTS_PER_HALVING: u32 = 5;

impl Report {
    /// The report of a run of `plan` on this machine, for which `used` was used.
    pub fn new(plan: &Plan, outcome: &Outcome, used: Used) -> Self {
        let latency = &outcome.latency_ns;
        let at = |quantile| us(latency.value_at_quantile(quantile));
        let findings = &outcome.findings;
        Self {
            scenario: plan.scenario.word().into(),
            driver: plan.driver.word().into(),
            target: plan.target.url.clone(),
            pacing: match plan.pacing {
                Pacing::Open { arrivals, .. } => format!("open-{}", arrivals.word()),
                Pacing::Closed => "closed".into(),
            },
            note: (plan.pacing == Pacing::Closed).then(|| "blind to stalls: coordinated omission".into()),
            style: plan.style.word().into(),
            duration_s: outcome.measured.as_secs_f64(),
            interrupted: outcome.interrupted,
            sent: outcome.sent,
            received: outcome.received,
            errors: outcome.errors.values().sum(),
            errors_by_kind: outcome.errors.clone(),
            lost: findings.lost,
            duplicated: findings.duplicated,
            reordered: findings.reordered,
            corrupted: findings.corrupted,
            rate_per_s: per_second(messages(plan, outcome), outcome),
            requests_per_s: (plan.scenario == Scenario::DurablePush)
                .then(|| per_second(messages(plan, outcome), outcome) / plan.batch as f64),
            latency_us: Latency {
                p50: at(0.5),
                p90: at(0.9),
                p99: at(0.99),
                p999: at(0.999),
                max: if latency.is_empty() { 0.0 } else { us(latency.max()) },
                mean: latency.mean().round() / 1e3,
            },
            server: used.server,
            postgres: used.postgres,
            commit: env!("LOADGEN_COMMIT").into(),
            machine: Machine::of_this_process(),
            plan: Parameters::of(plan),
            seconds: outcome.seconds.iter().map(Second::of).collect(),
            percentiles: percentiles(latency),
            ramp: Vec::new(),
        }
    }

    /// Reads a report from a JSON file.
    ///
    /// # Errors
    ///
    /// [`CliError::File`] or [`CliError::Content`].
    pub fn read(path: &Path) -> Result<Self, CliError> {
        let text = fs::read_to_string(path).map_err(CliError::file(path))?;
        serde_json::from_str(&text).map_err(|error| CliError::Content {
            path: path.to_owned(),
            why: format!("this is no report of loadgen's --json: {error}"),
        })
    }

    /// It as JSON, indented.
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).expect("a report has text keys and finite numbers") + "\n"
    }

    /// How many latencies were measured.
    pub fn samples(&self) -> u64 {
        self.percentiles.last().map_or(0, |point| point.count)
    }

    /// How it was paced, for people: `open loop, 1,000/s (poisson)`.
    pub fn pacing_text(&self) -> String {
        match (self.plan.rate_per_s, self.pacing.strip_prefix("open-")) {
            (Some(rate), Some(arrivals)) => format!("open loop, {} ({arrivals})", super::units::rate(rate)),
            _ => "closed loop".into(),
        }
    }
}

/// The messages that a run is worth: what a rate, and the server's CPU time a message, count.
pub fn messages(plan: &Plan, outcome: &Outcome) -> u64 {
    if plan.scenario == Scenario::Push { outcome.sent } else { outcome.received }
}

fn per_second(messages: u64, outcome: &Outcome) -> f64 {
    if outcome.measured.is_zero() { 0.0 } else { messages as f64 / outcome.measured.as_secs_f64() }
}

fn us(ns: u64) -> f64 {
    ns as f64 / 1e3
}

impl Parameters {
    fn of(plan: &Plan) -> Self {
        Self {
            rate_per_s: match plan.pacing {
                Pacing::Open { rate_per_s, arrivals: Arrivals::Constant | Arrivals::Poisson } => Some(rate_per_s),
                Pacing::Closed => None,
            },
            warmup_s: plan.warmup.as_secs_f64(),
            duration_s: plan.duration.as_secs_f64(),
            connections: plan.connections,
            pairs: plan.pairs,
            depth: plan.depth,
            batch: plan.batch,
            queues: plan.queues,
            partitions: plan.partitions,
            spread: match plan.spread {
                Spread::Uniform => "uniform".into(),
                Spread::Turns => "turns".into(),
                Spread::Zipf(exponent) => format!("zipf:{exponent}"),
            },
            groups: plan.groups,
            parked: plan.parked,
            across: plan.across,
            prefill: plan.prefill,
            incompressible: plan.incompressible,
            size: match &plan.size {
                Size::Fixed(bytes) => bytes.to_string(),
                Size::Uniform { min, max } => format!("{min}-{max}"),
                Size::File(path) => format!("@{}", path.display()),
            },
            seed: plan.seed,
            cpus: plan.cpus.clone(),
        }
    }
}

impl Second {
    fn of(second: &MeasuredSecond) -> Self {
        Self {
            sent: second.sent,
            received: second.received,
            errors: second.errors,
            p50_us: us(second.p50_ns),
            p99_us: us(second.p99_ns),
            p999_us: us(second.p999_ns),
            max_us: us(second.max_ns),
        }
    }
}

fn percentiles(latency_ns: &Histogram<u64>) -> Vec<Percentile> {
    let mut count = 0;
    let points = latency_ns.iter_quantiles(POINTS_PER_HALVING).map(|step| {
        count += step.count_since_last_iteration();
        // Without the noise of the last digits.
        let quantile = (step.quantile_iterated_to() * 1e12).round() / 1e12;
        Percentile { quantile, us: us(step.value_iterated_to()), count }
    });
    points.collect()
}

/// A report for tests: 100 round trips between 100 and 10,000 µs.
#[cfg(test)]
pub fn example() -> Report {
    let mut latency_ns = Histogram::new(3).expect("three digits are within the bounds");
    for n in 1..=100u64 {
        latency_ns.record(n * 100_000).expect("it grows by itself");
    }
    let settings: super::settings::Settings = toml::from_str("scenario = 'request-reply'\nrate = 50").unwrap();
    let outcome = Outcome {
        measured: std::time::Duration::from_secs(2),
        sent: 100,
        received: 100,
        errors: BTreeMap::new(),
        findings: crate::outcome::Findings::default(),
        latency_ns,
        seconds: vec![
            MeasuredSecond {
                sent: 50,
                received: 50,
                p50_ns: 5_000_000,
                max_ns: 10_000_000,
                ..Default::default()
            };
            2
        ],
        interrupted: false,
    };
    Report::new(&settings.plan().unwrap(), &outcome, Used::default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_has_the_fields_that_tools_read() {
        let json: serde_json::Value = serde_json::from_str(&example().to_json()).unwrap();
        for field in ["scenario", "driver", "target", "sent", "received", "errors", "lost", "duplicated", "reordered"] {
            assert!(!json[field].is_null(), "{field}");
        }
        assert_eq!(json["rate_per_s"], 50.0);
        assert!((json["latency_us"]["p50"].as_f64().unwrap() - 5_000.0).abs() < 10.0, "{}", json["latency_us"]);
        assert!((json["latency_us"]["max"].as_f64().unwrap() - 10_000.0).abs() < 20.0, "{}", json["latency_us"]);
        assert_eq!(json.get("server"), Some(&serde_json::Value::Null));
        assert!(json.get("note").is_none());
    }

    #[test]
    fn a_report_is_read_as_it_was_written() {
        let report = example();
        let again: Report = serde_json::from_str(&report.to_json()).unwrap();
        assert_eq!((again.samples(), again.percentiles.len()), (100, report.percentiles.len()));
        assert_eq!((again.scenario, again.pacing, again.sent), (report.scenario, report.pacing, report.sent));
    }

    #[test]
    fn a_closed_loop_is_labelled() {
        let settings: crate::cli::settings::Settings = toml::from_str("scenario = 'push'\nclosed = true").unwrap();
        let plan = settings.plan().unwrap();
        let outcome = Outcome {
            measured: std::time::Duration::ZERO,
            sent: 3,
            received: 0,
            errors: BTreeMap::new(),
            findings: crate::outcome::Findings::default(),
            latency_ns: Histogram::new(3).unwrap(),
            seconds: Vec::new(),
            interrupted: true,
        };
        let report = Report::new(&plan, &outcome, Used::default());
        assert_eq!((report.pacing.as_str(), report.rate_per_s, report.samples()), ("closed", 0.0, 0));
        assert_eq!(report.note.as_deref(), Some("blind to stalls: coordinated omission"));
    }
}
