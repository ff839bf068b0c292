//! Starting a run, looking at it while it goes, stopping it.
//!
//! A run has an executor for each core of its plan. Each opens its share of the connections (`run::executor`,
//! `run::connection`), every connection has a role (`run::role`), and what they send when is paced on each executor
//! (`run::pace`). They share a clock, the ledger of messages and little else (`run::shared`).
//!
//! The measured part ends at its time. Then what was due before is still sent and answered, for ten seconds at most, and
//! what was sent is waited for: for as long as something came within two seconds, and for ten more at most.

mod connection;
mod core;
mod executor;
mod flow;
mod pace;
mod role;
mod setup;
mod shared;
mod sizes;

use std::{
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use queen_fabric::rt::{Executor, ExecutorError, JoinHandle};
use rustix::process::{Resource, getrlimit, setrlimit};

use self::{core::Share, executor::Setup, flow::Flow, shared::Shared, sizes::Sizes};
use crate::{Outcome, Plan, outcome::Findings, payload, plan::Scenario, random::Random};

/// A run that goes on, on executors of its own.
#[must_use = "join it, or its outcome is never seen"]
pub struct Running {
    plan: Arc<Plan>,
    flows: Arc<[Arc<Flow>]>,
    shared: Arc<Shared>,
    executors: Vec<JoinHandle<Result<(), RunError>>>,
}

/// Why a run could not be started, or did not come to its end. Each text says what to do.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// Nothing answers at the target, or not as this driver expects.
    #[error("{0}")]
    Unreachable(String),
    /// The plan asks for what the driver can't do, such as groups with Redis lists.
    #[error("{0}")]
    Unsupported(String),
    /// An executor did not start or panicked.
    #[error("{0}")]
    Executor(String),
}

/// What a run has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Snapshot {
    /// Since the start of the measured part; `None` in the warm-up.
    pub measured: Option<Duration>,
    /// Messages sent since then.
    pub sent: u64,
    /// Messages received since then.
    pub received: u64,
    /// Errors since then.
    pub errors: u64,
    /// Percentiles since then, in nanoseconds: median, 99th, 99.9th.
    pub p50_ns: u64,
    /// See `p50_ns`.
    pub p99_ns: u64,
    /// See `p50_ns`.
    pub p999_ns: u64,
}

/// Connects to the target and starts the run. Returns once the first connection has shown that the target speaks the
/// driver's protocol, and the run's queues are declared.
///
/// Raises the process's limit of open files as far as it may go.
///
/// # Errors
///
/// [`RunError`].
pub fn start(plan: Plan) -> Result<Running, RunError> {
    flow::check(&plan)?;
    let sizes = Sizes::new(&plan.size)?;
    raise_open_files();
    let executors = plan.cpus.len().max(1);
    let layout = flow::lay_out(&plan, executors, new_run());
    let flows: Arc<[Arc<Flow>]> = layout.flows.into_iter().map(Arc::new).collect();
    setup::prepare(&plan, &flows)?;
    let plan = Arc::new(plan);
    // A parked pop is woken once: there is nothing to warm up with.
    let warmup = if plan.scenario == Scenario::Parked { Duration::ZERO } else { plan.warmup };
    let shared = Arc::new(Shared::new(executors, warmup, plan.duration));
    let mut running = Running { plan, flows, shared, executors: Vec::with_capacity(executors) };
    for executor in 0..executors {
        let own = |part: &&flow::Part| part.executor == executor;
        let setup = Setup {
            executor,
            plan: Arc::clone(&running.plan),
            flows: Arc::clone(&running.flows),
            parts: layout.parts.iter().filter(own).cloned().collect(),
            shares: shares(&running.flows, &layout.parts, executor, executors),
            sizes: sizes.clone(),
            shared: Arc::clone(&running.shared),
        };
        let cpu = running.plan.cpus.get(executor).copied();
        let ended = Ended(Arc::clone(&running.shared));
        let spawned = Executor::spawn("load", cpu, Duration::ZERO, move || async move {
            let _ended = ended;
            executor::run(setup).await
        });
        match spawned {
            Ok(handle) => running.executors.push(handle),
            Err(error) => {
                running.shared.finish();
                return Err(failed(&error));
            }
        }
    }
    Ok(running)
}

impl Running {
    /// What it has done so far. Cheap enough for ten times a second.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        self.shared.snapshot()
    }

    /// Ends it early: what is in flight is waited for, as at a run's own end. May be called from a signal handler's thread.
    pub fn stop(&self) {
        self.shared.interrupt();
    }

    /// Whether its executors have ended, so that [`join`](Self::join) would wait only for queues to be removed.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.shared.all_have_ended()
    }

    /// Waits for its end, and removes its queues.
    ///
    /// # Errors
    ///
    /// [`RunError`].
    pub fn join(self) -> Result<Outcome, RunError> {
        let ends: Vec<_> = self.executors.into_iter().map(JoinHandle::join).collect();
        setup::clean_up(&self.plan, &self.flows);
        for end in ends {
            end.map_err(|error| failed(&error))??;
        }
        let totals = self.shared.totals();
        Ok(Outcome {
            measured: self.shared.measured().unwrap_or_default(),
            sent: totals.sent,
            received: totals.received,
            errors: totals.errors,
            findings: findings(&self.flows),
            latency_ns: totals.latency_ns,
            seconds: self.shared.seconds(),
            interrupted: self.shared.is_interrupted(),
        })
    }
}

/// Tells the others that an executor's thread has ended, also if it panicked.
struct Ended(Arc<Shared>);

impl Drop for Ended {
    fn drop(&mut self) {
        self.0.ended();
    }
}

fn failed(error: &ExecutorError) -> RunError {
    RunError::Executor(format!("{error}: see that the cores exist (--cpus) and that io_uring is allowed here"))
}

/// Each flow's share of an executor: by how many of its connections that send what is due are there.
fn shares(flows: &[Arc<Flow>], parts: &[flow::Part], executor: usize, executors: usize) -> Vec<Share> {
    let share = |(number, flow): (usize, &Arc<Flow>)| {
        let paced = |part: &&flow::Part| part.flow == number && part.job.is_paced(flow.kind);
        let all = parts.iter().filter(paced).count();
        let own = parts.iter().filter(paced).filter(|part| part.executor == executor).count();
        let part = own as f64 / all.max(1) as f64 / flows.len() as f64;
        Share { part, phase: executor as f64 / executors as f64 }
    };
    flows.iter().enumerate().map(share).collect()
}

fn findings(flows: &[Arc<Flow>]) -> Findings {
    flows.iter().fold(Findings::default(), |sum, flow| {
        let found = flow.ledger.findings();
        Findings {
            lost: sum.lost + if flow.is_drained() { found.lost } else { 0 },
            duplicated: sum.duplicated + found.duplicated,
            reordered: sum.reordered + found.reordered,
            corrupted: sum.corrupted + found.corrupted,
        }
    })
}

/// A number for this run that no other one has that uses the same broker.
fn new_run() -> u32 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    payload::run_of(Random::new(shared::nanos(since), std::process::id().into()).next_u64())
}

/// Each connection is an open file. As many as may be had are had; where that is too few, connections fail and say so.
fn raise_open_files() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    let _ = setrlimit(Resource::Nofile, limit);
}
