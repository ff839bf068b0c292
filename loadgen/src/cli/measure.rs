//! A run from its start to its report: progress shown, the server watched, an interruption heard.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use hdrhistogram::Histogram;
use signal_hook::{
    consts::{SIGINT, SIGTERM},
    flag,
};

use super::{
    error::CliError,
    progress::{BAR_INTERVAL, Progress},
    report::{Report, messages},
    server::{Server, ServerUse, Usage, Used},
};
use crate::{Plan, run};

/// How often a run is looked at close to the beginning and the end of its measured part, where the server's CPU time is
/// read: 5 ms are 0.05 % of the usual 10 s.
const EDGE_INTERVAL: Duration = Duration::from_millis(5);

/// The first SIGINT or SIGTERM, which ends a run early; a second one ends the process at once.
#[derive(Clone, Debug)]
pub struct Interrupt(Arc<AtomicUsize>);

impl Interrupt {
    /// Listens from now on.
    ///
    /// # Errors
    ///
    /// As `sigaction` says.
    pub fn listen() -> io::Result<Self> {
        let (signal, again) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
        for number in [SIGINT, SIGTERM] {
            // In this order: the first signal finds `again` unset.
            flag::register_conditional_default(number, Arc::clone(&again))?;
            flag::register(number, Arc::clone(&again))?;
            flag::register_usize(number, Arc::clone(&signal), number as usize)?;
        }
        Ok(Self(signal))
    }

    /// The signal's number, once there was one.
    pub fn signal(&self) -> Option<u8> {
        match self.0.load(Ordering::Relaxed) {
            0 => None,
            number => u8::try_from(number).ok(),
        }
    }
}

/// How runs are watched.
#[derive(Clone, Debug)]
pub struct Watch {
    /// Show no progress.
    pub quiet: bool,
    /// The server's processes; empty: whoever listens at the target.
    pub server_pids: Vec<u32>,
    /// The postmaster of a PostgreSQL that is watched, too.
    pub postgres_pid: Option<u32>,
    /// What ends them early.
    pub interrupt: Interrupt,
}

/// Runs a plan.
///
/// # Errors
///
/// [`CliError::Run`], or [`CliError::Conflict`] if a server's process is not there.
pub fn measure(plan: &Plan, watch: &Watch) -> Result<(Report, Histogram<u64>), CliError> {
    let server = match watch.server_pids.as_slice() {
        [] => Server::listening_at(plan.target.address),
        pids => Some(
            Server::named(pids)
                .map_err(|pid| CliError::Conflict(format!("--server-pid {pid}: there is no such process here")))?,
        ),
    };
    let postgres = watch
        .postgres_pid
        .map(Server::family_of)
        .transpose()
        .map_err(|pid| CliError::Conflict(format!("--postgres-pid {pid}: there is no such process here")))?;
    let running = run::start(plan.clone())?;
    let mut progress = Progress::new(plan, watch.quiet);
    let mut sampler = Sampler { server: Sampled::new(server), postgres: Sampled::new(postgres) };
    let mut stopped = false;
    while !running.is_finished() {
        let snapshot = running.snapshot();
        let to_edge = sampler.look(snapshot.measured, plan.duration);
        progress.show(&snapshot);
        if watch.interrupt.signal().is_some() && !stopped {
            sampler.end();
            running.stop();
            stopped = true;
        }
        thread::sleep(to_edge.clamp(EDGE_INTERVAL, BAR_INTERVAL));
    }
    sampler.end();
    progress.finish();
    let outcome = running.join()?;
    let used = sampler.used(messages(plan, &outcome));
    Ok((Report::new(plan, &outcome, used), outcome.latency_ns))
}

/// Reads what is used when the measured part begins and when it ends.
struct Sampler {
    server: Sampled,
    postgres: Sampled,
}

impl Sampler {
    /// Sees where the run is; how long it is to the next moment that matters, as far as that is known.
    fn look(&mut self, measured: Option<Duration>, duration: Duration) -> Duration {
        let Some(measured) = measured else { return EDGE_INTERVAL };
        self.server.start();
        self.postgres.start();
        let left = duration.saturating_sub(measured);
        if left.is_zero() {
            self.end();
            return BAR_INTERVAL;
        }
        left
    }

    fn end(&mut self) {
        self.server.end();
        self.postgres.end();
    }

    fn used(&self, messages: u64) -> Used {
        Used { server: self.server.used(messages), postgres: self.postgres.used(messages) }
    }
}

/// One server, and what it had used at the beginning and at the end.
struct Sampled {
    server: Option<Server>,
    start: Option<Usage>,
    end: Option<Usage>,
}

impl Sampled {
    fn new(server: Option<Server>) -> Self {
        Self { server, start: None, end: None }
    }

    fn start(&mut self) {
        if self.start.is_none() {
            self.start = self.server.as_ref().map(Server::usage);
        }
    }

    fn end(&mut self) {
        if self.end.is_none() {
            self.end = self.server.as_ref().map(Server::usage);
        }
    }

    fn used(&self, messages: u64) -> Option<ServerUse> {
        Some(self.end?.since(&self.start?, messages))
    }
}
