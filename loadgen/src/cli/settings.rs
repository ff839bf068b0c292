//! What flags and TOML files may say of a run, one over the other, and the [`Plan`] that comes of it.

use std::{fs, num::NonZeroUsize, path::Path, time::Duration};

use clap::Args;
use queen_fabric::placement::CpuList;
use serde::Deserialize;

use super::{
    error::CliError,
    limits::Limits,
    target,
    words::{Allowed, Rate, Share, Word, as_flag},
};
use crate::plan::{Arrivals, DriverKind, Pacing, Plan, Scenario, Size, Spread, Style};

/// Everything that a flag or a key of a TOML file may say. What is not said has a default.
#[derive(Args, Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// The scenario: a word, only in files.
    #[arg(skip)]
    #[serde(deserialize_with = "as_flag")]
    pub scenario: Option<Scenario>,
    /// The broker [default: http://127.0.0.1:6632]
    #[arg(long, value_name = "URL")]
    pub target: Option<String>,
    /// How it is spoken to: queen, durable, nats or redis [default: by the URL; of durable scenarios: durable]
    #[arg(long, value_name = "WORD")]
    #[serde(deserialize_with = "as_flag")]
    pub driver: Option<DriverKind>,
    /// Open loop: messages (or requests) due each second, of all connections together [default: 1000]
    #[arg(long, value_name = "N")]
    #[serde(deserialize_with = "as_flag")]
    pub rate: Option<Rate>,
    /// How they are spaced: poisson or constant [default: poisson]
    #[arg(long, value_name = "WORD")]
    #[serde(deserialize_with = "as_flag")]
    pub arrivals: Option<Arrivals>,
    /// Closed loop: the next one when the last one came back. For peak throughput; blind to stalls
    #[arg(long, conflicts_with_all = ["rate", "arrivals"])]
    pub closed: bool,
    /// How long is measured [default: 10s]
    #[arg(long, value_name = "TIME")]
    #[serde(deserialize_with = "as_flag")]
    pub duration: Option<humantime::Duration>,
    /// How long is run before anything counts [default: 2s]
    #[arg(long, value_name = "TIME")]
    #[serde(deserialize_with = "as_flag")]
    pub warmup: Option<humantime::Duration>,
    /// Connections that push, and as many that pop [default: 16]
    #[arg(long, value_name = "N")]
    #[serde(deserialize_with = "as_flag")]
    pub connections: Option<NonZeroUsize>,
    /// Requesters and workers, of request-reply and churn [default: 8]
    #[arg(long, value_name = "N")]
    #[serde(deserialize_with = "as_flag")]
    pub pairs: Option<NonZeroUsize>,
    /// Requests that a connection may have in flight [default: 1]
    #[arg(long, value_name = "N")]
    #[serde(deserialize_with = "as_flag")]
    pub depth: Option<NonZeroUsize>,
    /// Messages in a push, and the most that a pop takes [default: 1]
    #[arg(long, value_name = "N")]
    #[serde(deserialize_with = "as_flag")]
    pub batch: Option<NonZeroUsize>,
    /// Queues that the load is spread over [default: 1]
    #[arg(long, value_name = "N")]
    #[serde(deserialize_with = "as_flag")]
    pub queues: Option<NonZeroUsize>,
    /// Partitions of each queue [default: 1]
    #[arg(long, value_name = "N")]
    #[serde(deserialize_with = "as_flag")]
    pub partitions: Option<NonZeroUsize>,
    /// How queues and partitions are chosen: uniform, turns, zipf or zipf:EXPONENT [default: uniform; of durable
    /// scenarios: turns]
    #[arg(long, value_name = "WORD")]
    #[serde(deserialize_with = "as_flag")]
    pub spread: Option<Spread>,
    /// Consumer groups, of fan-out [default: 4]
    #[arg(long, value_name = "N")]
    #[serde(deserialize_with = "as_flag")]
    pub groups: Option<NonZeroUsize>,
    /// Long polls, of parked [default: 1000]
    #[arg(long, value_name = "N")]
    #[serde(deserialize_with = "as_flag")]
    pub parked: Option<NonZeroUsize>,
    /// Partitions that one durable push goes to, a message to each in turns [default: 1]
    #[arg(long, value_name = "N")]
    #[serde(deserialize_with = "as_flag")]
    pub across: Option<NonZeroUsize>,
    /// Messages that are there before durable-pop or durable-push begins, evenly in all partitions [default: 100000,
    /// or none]
    #[arg(long, value_name = "N")]
    #[serde(deserialize_with = "as_flag")]
    pub prefill: Option<usize>,
    /// Payload: bytes, a range as 64-1024, or @FILE with a size a line [default: 256]
    #[arg(long, value_name = "BYTES")]
    #[serde(deserialize_with = "as_flag")]
    pub size: Option<Size>,
    /// Which share of a payload's filler does not compress [default: 0.5]
    #[arg(long, value_name = "SHARE")]
    #[serde(deserialize_with = "as_flag")]
    pub incompressible: Option<Share>,
    /// How a round trip goes: push-pop or verbs [default: push-pop]
    #[arg(long, value_name = "WORD")]
    #[serde(deserialize_with = "as_flag")]
    pub style: Option<Style>,
    /// Makes payloads, arrivals and choices the same in every run [default: 1]
    #[arg(long, value_name = "N")]
    #[serde(deserialize_with = "as_flag")]
    pub seed: Option<u64>,
    /// Cores that get a pinned executor each, as 1 or 2-3 [default: one executor, not pinned]
    #[arg(long, value_name = "LIST")]
    #[serde(deserialize_with = "as_flag")]
    pub cpus: Option<CpuList>,
    /// Checks that may fail: of lost, duplicated, reordered, corrupted, errors
    #[arg(long, value_name = "LIST")]
    #[serde(deserialize_with = "as_flag")]
    pub allow: Option<Allowed>,
    /// Limits of an SLA.
    #[command(flatten)]
    pub limits: Limits,
}

impl Settings {
    /// Reads a TOML file.
    ///
    /// # Errors
    ///
    /// [`CliError::File`] or [`CliError::Content`], which names the line and, of an unknown key, the known ones.
    pub fn read(path: &Path) -> Result<Self, CliError> {
        let text = fs::read_to_string(path).map_err(CliError::file(path))?;
        let settings: Self = toml::from_str(&text).map_err(CliError::content::<toml::de::Error>(path))?;
        if settings.closed && (settings.rate.is_some() || settings.arrivals.is_some()) {
            return Err(CliError::Content {
                path: path.to_owned(),
                why: "`closed` goes with neither `rate` nor `arrivals`: a closed loop has no rate".into(),
            });
        }
        Ok(settings)
    }

    /// These settings, and those of `base` where these say nothing.
    pub fn over(self, base: Self) -> Self {
        // A loop is open or closed: whoever speaks of that last decides it alone.
        let paced = self.closed || self.rate.is_some();
        let closed = if paced || self.arrivals.is_some() { self.closed } else { base.closed };
        Self {
            scenario: self.scenario.or(base.scenario),
            target: self.target.or(base.target),
            driver: self.driver.or(base.driver),
            rate: if closed { None } else { self.rate.or(base.rate) },
            arrivals: if closed { None } else { self.arrivals.or(base.arrivals) },
            closed,
            duration: self.duration.or(base.duration),
            warmup: self.warmup.or(base.warmup),
            connections: self.connections.or(base.connections),
            pairs: self.pairs.or(base.pairs),
            depth: self.depth.or(base.depth),
            batch: self.batch.or(base.batch),
            queues: self.queues.or(base.queues),
            partitions: self.partitions.or(base.partitions),
            spread: self.spread.or(base.spread),
            groups: self.groups.or(base.groups),
            parked: self.parked.or(base.parked),
            across: self.across.or(base.across),
            prefill: self.prefill.or(base.prefill),
            size: self.size.or(base.size),
            incompressible: self.incompressible.or(base.incompressible),
            style: self.style.or(base.style),
            seed: self.seed.or(base.seed),
            cpus: self.cpus.or(base.cpus),
            allow: self.allow.or(base.allow),
            limits: self.limits.over(base.limits),
        }
    }

    /// The plan, with a default for what is not said.
    ///
    /// # Errors
    ///
    /// [`CliError`] if there is no scenario, or the target does not resolve.
    pub fn plan(&self) -> Result<Plan, CliError> {
        let scenario = self.scenario.ok_or_else(|| {
            CliError::Conflict(format!("no scenario is named: say `scenario = {:?}` or another", Scenario::Push.word()))
        })?;
        let (target, driver) = target::resolve(self.target.as_deref().unwrap_or(target::DEFAULT_URL), self.driver)?;
        let is_durable = scenario.is_durable();
        let driver = if is_durable && driver == DriverKind::Queen { DriverKind::Durable } else { driver };
        let any_spread = if is_durable { Spread::Turns } else { Spread::Uniform };
        let pacing = if self.closed {
            Pacing::Closed
        } else {
            let Rate(rate_per_s) = self.rate.unwrap_or(Rate(1000.0));
            Pacing::Open { rate_per_s, arrivals: self.arrivals.unwrap_or(Arrivals::Poisson) }
        };
        let duration = self.duration.map_or(Duration::from_secs(10), Into::into);
        if duration.is_zero() {
            return Err(CliError::Conflict("--duration is zero: there is nothing to measure".into()));
        }
        let number = |said: Option<NonZeroUsize>, default| said.map_or(default, NonZeroUsize::get);
        Ok(Plan {
            scenario,
            driver,
            target,
            pacing,
            duration,
            warmup: self.warmup.map_or(Duration::from_secs(2), Into::into),
            connections: number(self.connections, 16),
            pairs: number(self.pairs, 8),
            depth: number(self.depth, 1),
            batch: number(self.batch, 1),
            queues: number(self.queues, 1),
            partitions: number(self.partitions, 1),
            spread: self.spread.unwrap_or(any_spread),
            groups: number(self.groups, 4),
            parked: number(self.parked, 1000),
            across: number(self.across, 1),
            prefill: self.prefill.unwrap_or(if scenario == Scenario::DurablePop { 100_000 } else { 0 }),
            size: self.size.clone().unwrap_or(Size::Fixed(256)),
            incompressible: self.incompressible.map_or(0.5, |Share(share)| share),
            style: self.style.unwrap_or(Style::PushPop),
            seed: self.seed.unwrap_or(1),
            cpus: self.cpus.iter().flat_map(CpuList::iter).collect(),
        })
    }

    /// Checks that may fail.
    pub fn allowed(&self) -> Allowed {
        self.allow.clone().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(text: &str) -> Settings {
        toml::from_str(text).unwrap()
    }

    #[test]
    fn a_file_says_what_flags_say() {
        let plan = settings(
            "scenario = 'push-pop'\ntarget = 'nats://127.0.0.1'\nrate = 500\narrivals = 'constant'\nduration = '3s'\n\
             warmup = '500ms'\nsize = '64-1024'\nspread = 'zipf:1.1'\nbatch = 10\ncpus = '0-1'\nseed = 7",
        )
        .plan()
        .unwrap();
        assert_eq!(plan.scenario, Scenario::PushPop);
        assert_eq!(plan.driver, DriverKind::Nats);
        assert_eq!(plan.pacing, Pacing::Open { rate_per_s: 500.0, arrivals: Arrivals::Constant });
        assert_eq!((plan.duration, plan.warmup), (Duration::from_secs(3), Duration::from_millis(500)));
        assert_eq!(plan.size, Size::Uniform { min: 64, max: 1024 });
        assert_eq!(plan.spread, Spread::Zipf(1.1));
        assert_eq!((plan.batch, plan.seed), (10, 7));
        assert_eq!(plan.cpus, [0, 1]);
    }

    #[test]
    fn flags_win_over_the_file() {
        let file = settings("scenario = 'push'\nbatch = 10\npairs = 2\n[limits]\np99 = '5ms'\np50 = '1ms'");
        let flags = settings("batch = 20\n[limits]\np99 = '7ms'");
        let both = flags.over(file);
        assert_eq!((both.batch.unwrap().get(), both.pairs.unwrap().get()), (20, 2));
        assert_eq!(both.limits.p99.unwrap().as_millis(), 7);
        assert_eq!(both.limits.p50.unwrap().as_millis(), 1);
    }

    #[test]
    fn who_speaks_last_of_the_loop_decides_whether_it_is_open() {
        let pacing = |flags: &str, file: &str| settings(flags).over(settings(file)).plan().unwrap().pacing;
        let open = |rate_per_s, arrivals| Pacing::Open { rate_per_s, arrivals };
        let file = "scenario = 'push'\n";
        assert_eq!(pacing("closed = true", &format!("{file}rate = 5\narrivals = 'constant'")), Pacing::Closed);
        assert_eq!(pacing("rate = 7", &format!("{file}closed = true")), open(7.0, Arrivals::Poisson));
        assert_eq!(pacing("rate = 7", &format!("{file}arrivals = 'constant'")), open(7.0, Arrivals::Constant));
        assert_eq!(pacing("", &format!("{file}closed = true")), Pacing::Closed);
        assert_eq!(pacing("", file), open(1000.0, Arrivals::Poisson));
    }

    #[test]
    fn an_unknown_key_names_the_known_ones() {
        let error = toml::from_str::<Settings>("raet = 5").unwrap_err().to_string();
        assert!(error.contains("unknown field `raet`") && error.contains("`rate`"), "{error}");
        let error = toml::from_str::<Settings>("[limits]\np98 = '5ms'").unwrap_err().to_string();
        assert!(error.contains("unknown field `p98`") && error.contains("`p99`"), "{error}");
    }
}
